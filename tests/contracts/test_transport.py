"""What every log must do, run against Kafka and the embedded log: records, partitions, topics, what is refused."""

from __future__ import annotations

import pytest

from streamkit.errors import (
    ProductionError,
    TopicError,
)
from streamkit.record import TopicPartition
from streamkit.serdes.partitioner import partition
from streamkit.transport.kafka import KafkaTransport
from streamkit.transport.log_interface import (
    EARLIEST,
    NewTopic,
)
from tests.contracts.records import KAFKA, KAFKA_IN_PYTHON, create, numbered, produce, read, values


def test_records_of_a_partition_come_in_order_of_sending(transport, consumer, topic):
    produce(transport, numbered(topic, 0, 12_000))
    consumer.assign({TopicPartition(topic, 0): EARLIEST})
    batches = read(consumer, 12_000)
    assert values(batches) == [b"%d" % n for n in range(12_000)]
    assert [o for b in batches for o in b.offsets] == list(range(12_000))
    assert [batch for batch in batches if len(batch) > 500] == []


def test_null_and_empty_keys_and_values_differ(transport, consumer, topic):
    sent = [(None, None), (b"", b""), (b"k", None), (None, b"v")]
    produce(transport, [(topic, k, v, 5, None, 0) for k, v in sent])
    consumer.assign({TopicPartition(topic, 0): EARLIEST})
    batches = read(consumer, 4)
    assert [pair for b in batches for pair in zip(b.keys, b.values, strict=True)] == sent


def test_headers_keep_order_doubles_and_nulls(transport, consumer, topic):
    headers = [("a", b"1"), ("ä", None), ("a", b"")]
    produce(transport, [(topic, b"k", b"v", 5, headers, 0), (topic, b"k", b"v", 6, None, 0)])
    consumer.assign({TopicPartition(topic, 0): EARLIEST})
    assert [h for b in read(consumer, 2) for h in b.headers] == [headers, None]


def test_timestamps_are_kept_and_a_missing_one_is_assigned(transport, consumer, topic):
    produce(transport, [(topic, b"k", b"v", time, None, 0) for time in (1, 1_700_000_000_000, None, -1)])
    consumer.assign({TopicPartition(topic, 0): EARLIEST})
    times = [time for b in read(consumer, 4) for time in b.timestamps]
    assert times[:2] == [1, 1_700_000_000_000]
    assert [time for time in times[2:] if time <= 1_700_000_000_000] == []


def test_time_zero_stays_or_is_one_millisecond(transport, consumer, topic):
    produce(transport, [(topic, b"k", b"v", 0, None, 0)])
    consumer.assign({TopicPartition(topic, 0): EARLIEST})
    assert read(consumer, 1)[0].timestamps == [1 if isinstance(transport, KafkaTransport) else 0]


def test_partitions_are_those_of_murmur2(transport, consumer):
    topic = create(transport, 5)
    keys = [b"", *(b"key-%d" % n for n in range(200))]
    produce(transport, [(topic, key, b"v", 1, None, None) for key in keys])
    consumer.assign({TopicPartition(topic, n): EARLIEST for n in range(5)})
    found = {key: b.partition for b in read(consumer, len(keys)) for key in b.keys}
    assert found == {key: partition(key, 5) for key in keys}


def test_a_given_partition_wins_and_null_keys_go_somewhere(transport, consumer):
    topic = create(transport, 3)
    produce(transport, [(topic, b"k", b"given", 1, None, n) for n in range(3)])
    produce(transport, [(topic, None, b"null", 1, None, None)])
    consumer.assign({TopicPartition(topic, n): EARLIEST for n in range(3)})
    batches = read(consumer, 4)
    assert {b.partition for b in batches if b"given" in b.values} == {0, 1, 2}
    assert values(batches).count(b"null") == 1


def test_topics_are_created_once_and_deleted(transport):
    name = create(transport, 3, {"cleanup.policy": "compact"})
    admin = transport.admin()
    admin.create_topics([NewTopic(name, 5)])
    assert admin.topics([name, "no-such"])[name].partitions == 3
    assert list(admin.topics([name, "no-such"])) == [name]
    assert name in admin.topics()
    assert admin.topic_config(name)["cleanup.policy"] == "compact"
    admin.delete_topics([name, "no-such"])
    assert admin.topics([name]) == {}
    assert admin.group_members("no-such-group") == []
    admin.close()


def test_a_missing_topic_is_an_error_that_names_it(transport, consumer):
    with pytest.raises(ProductionError, match="no-such-topic"):
        produce(transport, [("no-such-topic", b"k", b"v", 1, None, None)])
    with pytest.raises(TopicError, match="no-such-topic"):
        transport.admin().topic_config("no-such-topic")
    with pytest.raises(TopicError):
        consumer.end_offsets([TopicPartition("no-such-topic", 0)])


def test_a_partition_that_is_not_there_is_an_error(transport, topic):
    with pytest.raises(ProductionError, match=topic):
        produce(transport, [(topic, b"k", b"v", 1, None, 7)])


@pytest.mark.parametrize("transport", [KAFKA, KAFKA_IN_PYTHON], indirect=True)
def test_rows_behind_one_that_fails_are_written(transport, consumer, topic):
    # The embedded log writes all rows of a call or none.
    with pytest.raises(ProductionError):
        produce(transport, [(topic, b"k", b"v", 1, None, 7), *numbered(topic, 0, 2)])
    consumer.assign({TopicPartition(topic, 0): EARLIEST})
    assert values(read(consumer, 2)) == [b"0", b"1"]


def test_a_producer_takes_records_as_large_as_javas_does():
    producer = KafkaTransport("127.0.0.1:1").producer()
    producer.send([("t", b"k", b"x" * 1_040_000, 1, None, None)])
    with pytest.raises(ProductionError, match=r"a record for topic t could not be written: .*large") as raised:
        producer.send([("t", b"k", b"x" * 1_048_577, 1, None, None)])
    assert [len(row[2]) for row in raised.value.rows] == [1_048_577]
