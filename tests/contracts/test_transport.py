"""What every log must do, run against Kafka and the embedded log."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from time import monotonic
from uuid import uuid4

import pytest

from streamkit.errors import (
    FencedError,
    OffsetOutOfRangeError,
    ProductionError,
    StreamkitError,
    TopicError,
    TransportError,
    UnreachableError,
)
from streamkit.record import RecordBatch, TopicPartition
from streamkit.serdes.partitioner import partition
from streamkit.transport import open_transport
from streamkit.transport.base import (
    EARLIEST,
    LATEST,
    TRANSACTIONS,
    CommittedOffset,
    Consumer,
    NewTopic,
    Transport,
)
from streamkit.transport.embedded import EmbeddedTransport
from streamkit.transport.kafka import KafkaTransport

PATIENCE = 30.0
KAFKA = pytest.param("kafka", marks=pytest.mark.broker)
with_transactions = pytest.mark.parametrize("transport", [KAFKA, "embedded"], indirect=True)


@pytest.fixture(params=[KAFKA, "embedded"])
def transport(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Transport]:
    made: Transport
    if request.param == "kafka":
        made = KafkaTransport(request.getfixturevalue("broker").address)
    else:
        made = EmbeddedTransport(tmp_path / "log")
    yield made
    made.close()


@pytest.fixture
def topic(transport: Transport) -> str:
    """A topic of one partition."""
    return create(transport, 1)


@pytest.fixture
def consumer(transport: Transport) -> Iterator[Consumer]:
    made = transport.consumer(f"group-{uuid4()}", read_committed=True)
    yield made
    made.close()


def create(transport: Transport, partitions: int, config: dict[str, str] | None = None) -> str:
    name = f"topic-{uuid4()}"
    admin = transport.admin()
    admin.create_topics([NewTopic(name, partitions, config or {})])
    admin.close()
    return name


def produce(transport: Transport, rows: list[tuple]) -> None:
    producer = transport.producer()
    producer.send(rows)
    producer.flush()
    producer.close()


def numbered(topic: str, first: int, last: int) -> list[tuple]:
    return [(topic, b"k", b"%d" % n, 1000 + n, None, 0) for n in range(first, last)]


def read_until(consumer: Consumer, done: Callable[[list[RecordBatch]], bool], limit: int = 500) -> list[RecordBatch]:
    batches: list[RecordBatch] = []
    deadline = monotonic() + PATIENCE
    while not done(batches):
        assert monotonic() < deadline, f"only {sum(map(len, batches))} records came"
        batches += consumer.poll(limit, 200)
    return batches


def read(consumer: Consumer, count: int, limit: int = 500) -> list[RecordBatch]:
    return read_until(consumer, lambda batches: sum(map(len, batches)) >= count, limit)


def values(batches: list[RecordBatch]) -> list[bytes | None]:
    return [value for batch in batches for value in batch.values]


def reach_end(consumer: Consumer, place: TopicPartition) -> list[RecordBatch]:
    end = consumer.end_offsets([place])[place]
    return read_until(consumer, lambda _: consumer.position(place) >= end)


def test_records_of_a_partition_come_in_order_of_sending(transport, consumer, topic):
    produce(transport, numbered(topic, 0, 12_000))
    consumer.assign({TopicPartition(topic, 0): EARLIEST})
    batches = read(consumer, 12_000)
    assert values(batches) == [b"%d" % n for n in range(12_000)]
    assert [o for b in batches for o in b.offsets] == list(range(12_000))
    assert all(len(batch) <= 500 for batch in batches)


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
    assert all(time > 1_700_000_000_000 for time in times[2:])


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


def test_positions_follow_what_poll_gave(transport, consumer, topic):
    place = TopicPartition(topic, 0)
    produce(transport, numbered(topic, 0, 10))
    consumer.assign({place: 4})
    assert consumer.position(place) == 4
    first = consumer.poll(3, int(PATIENCE * 1000))
    assert consumer.position(place) == 4 + len(values(first))
    rest = reach_end(consumer, place)
    assert values(first + rest) == [b"%d" % n for n in range(4, 10)]
    consumer.assign({place: LATEST})
    assert consumer.position(place) == 10
    produce(transport, numbered(topic, 10, 11))
    assert values(read(consumer, 1)) == [b"10"]


def test_partitions_are_added_and_removed_without_moving_others(transport, consumer):
    topic = create(transport, 2)
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    produce(transport, numbered(topic, 0, 5))
    consumer.assign({zero: EARLIEST})
    assert len(values(read(consumer, 5))) == 5
    consumer.add({one: EARLIEST})
    produce(transport, [(topic, b"k", b"one", 1, None, 1), (topic, b"k", b"zero", 1, None, 0)])
    assert sorted(values(read(consumer, 2))) == [b"one", b"zero"]  # type: ignore[type-var]
    consumer.remove([zero])
    produce(transport, [(topic, b"k", b"lost", 1, None, 0), (topic, b"k", b"two", 1, None, 1)])
    assert values(read(consumer, 1)) == [b"two"]
    with pytest.raises(TransportError, match="not assigned"):
        consumer.position(zero)


def test_paused_partitions_give_nothing_and_lose_nothing(transport, consumer):
    topic = create(transport, 2)
    zero, one = TopicPartition(topic, 0), TopicPartition(topic, 1)
    produce(transport, numbered(topic, 0, 60_000))
    consumer.assign({zero: EARLIEST, one: EARLIEST})
    before = read(consumer, 1000, limit=1000)
    consumer.pause([zero])
    produce(transport, [(topic, b"k", b"other", 1, None, 1)])
    meanwhile = read(consumer, 1)
    assert values(meanwhile) == [b"other"]
    position = consumer.position(zero)
    assert position == len(values(before))
    consumer.resume([zero])
    after = read(consumer, 60_000 - position, limit=1000)
    assert values(before + after) == [b"%d" % n for n in range(60_000)]
    assert all(len(batch) <= 1000 for batch in after)


def test_end_and_beginning_offsets(transport, consumer, topic):
    place = TopicPartition(topic, 0)
    assert (consumer.beginning_offsets([place]), consumer.end_offsets([place])) == ({place: 0}, {place: 0})
    produce(transport, numbered(topic, 0, 7))
    assert (consumer.beginning_offsets([place]), consumer.end_offsets([place])) == ({place: 0}, {place: 7})


def test_offsets_for_times(transport, consumer, topic):
    place = TopicPartition(topic, 0)
    produce(transport, [(topic, b"k", b"v", time, None, 0) for time in (100, 300, 200, 400)])
    found = [consumer.offsets_for_times({place: time})[place] for time in (0, 100, 101, 301, 401)]
    assert found == [0, 0, 1, 3, 4]


def test_committed_offsets_carry_metadata_and_belong_to_the_group(transport, consumer, topic):
    place = TopicPartition(topic, 0)
    produce(transport, numbered(topic, 0, 3))
    assert consumer.committed([place]) == {}
    consumer.commit({place: CommittedOffset(2, "AgAAAAAAAAPo")})
    assert consumer.committed([place]) == {place: CommittedOffset(2, "AgAAAAAAAAPo")}
    other = transport.consumer(f"group-{uuid4()}")
    assert other.committed([place]) == {}
    other.close()


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


def test_deleted_records_are_gone(transport, consumer, topic):
    place = TopicPartition(topic, 0)
    produce(transport, numbered(topic, 0, 10))
    admin = transport.admin()
    admin.delete_records({place: 6})
    admin.close()
    assert consumer.beginning_offsets([place]) == {place: 6}
    consumer.assign({place: EARLIEST})
    assert values(read(consumer, 4)) == [b"6", b"7", b"8", b"9"]


def test_a_position_that_is_gone_is_an_error(transport, consumer, topic):
    place = TopicPartition(topic, 0)
    produce(transport, numbered(topic, 0, 3))
    consumer.assign({place: 1000})
    with pytest.raises(OffsetOutOfRangeError, match="out of range") as caught:
        read(consumer, 1)
    assert (caught.value.topic, caught.value.partition) == place


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


@pytest.mark.parametrize("transport", [KAFKA], indirect=True)
def test_rows_behind_one_that_fails_are_written(transport, consumer, topic):
    # The embedded log writes all rows of a call or none.
    with pytest.raises(ProductionError):
        produce(transport, [(topic, b"k", b"v", 1, None, 7), *numbered(topic, 0, 2)])
    consumer.assign({TopicPartition(topic, 0): EARLIEST})
    assert values(read(consumer, 2)) == [b"0", b"1"]


def test_what_is_not_offered_says_so(transport, topic):
    if TRANSACTIONS not in transport.features:
        with pytest.raises(TransportError, match="no transactions"):
            transport.producer(transactional_id="t")
    plain = transport.producer()
    with pytest.raises(TransportError, match="transaction"):
        plain.begin()


@pytest.mark.broker
@pytest.mark.parametrize("length", [0, 1, 8, 12, 24, 25, 100])
def test_metadata_that_another_client_committed_is_read_exactly(broker, length):
    # Read as a C string it would go on in memory that nobody owns.
    from kafka import KafkaConsumer
    from kafka.structs import OffsetAndMetadata
    from kafka.structs import TopicPartition as KafkaPartition

    transport, group = KafkaTransport(broker.address), f"group-{uuid4()}"
    topic = create(transport, 1)
    other = KafkaConsumer(bootstrap_servers=broker.address, group_id=group, metrics_enabled=False)
    other.commit({KafkaPartition(topic, 0): OffsetAndMetadata(3, "A" * length, -1)})
    other.close()
    consumer = transport.consumer(group)
    assert consumer.committed([TopicPartition(topic, 0)]) == {
        TopicPartition(topic, 0): CommittedOffset(3, "A" * length)
    }
    consumer.close()
    transport.close()


@with_transactions
def test_committed_transactions_are_read_with_their_offsets(transport, consumer, topic):
    place = TopicPartition(topic, 0)
    producer = transport.producer(transactional_id=f"t-{uuid4()}")
    for start in (0, 5):
        producer.begin()
        producer.send(numbered(topic, start, start + 5))
        producer.commit({place: CommittedOffset(start + 5, "m")}, consumer.group_metadata())
    consumer.assign({place: EARLIEST})
    assert values(reach_end(consumer, place)) == [b"%d" % n for n in range(10)]
    # The last marker may come behind the answer to the commit.
    assert not read_until(consumer, lambda _: consumer.position(place) == consumer.end_offsets([place])[place])
    assert consumer.committed([place]) == {place: CommittedOffset(10, "m")}
    producer.close()


@with_transactions
def test_open_and_aborted_transactions_are_not_read(transport, consumer, topic):
    place = TopicPartition(topic, 0)
    producer = transport.producer(transactional_id=f"t-{uuid4()}")
    consumer.assign({place: EARLIEST})
    producer.begin()
    producer.send(numbered(topic, 0, 5))
    producer.flush()
    assert consumer.end_offsets([place]) == {place: 0}
    producer.abort()
    assert values(reach_end(consumer, place)) == []
    producer.begin()
    producer.send(numbered(topic, 5, 6))
    producer.commit({}, None)
    assert values(read(consumer, 1)) == [b"5"]
    producer.close()


@with_transactions
def test_a_second_producer_fences_the_first(transport, consumer, topic):
    place, name = TopicPartition(topic, 0), f"t-{uuid4()}"
    first, second = (transport.producer(transactional_id=name) for _ in range(2))
    first.begin()
    first.send(numbered(topic, 0, 2))
    first.flush()
    second.begin()
    with pytest.raises(FencedError):
        first.commit({place: CommittedOffset(1)}, consumer.group_metadata())
    second.send(numbered(topic, 5, 6))
    second.commit({}, None)
    consumer.assign({place: EARLIEST})
    assert values(reach_end(consumer, place)) == [b"5"]
    assert consumer.committed([place]) == {}
    second.close()


def test_addresses_name_their_transports(tmp_path):
    assert isinstance(open_transport("localhost:9092", {}, tmp_path), KafkaTransport)
    assert isinstance(open_transport("embedded:9092", {}, tmp_path), KafkaTransport)
    inside, beside = (open_transport(name, None, tmp_path) for name in ("embedded", f"embedded:{tmp_path / 'x'}"))
    assert isinstance(inside, EmbeddedTransport)
    assert inside.directory == tmp_path / "embedded"
    assert isinstance(beside, EmbeddedTransport)
    assert beside.directory == tmp_path / "x"
    with pytest.raises(StreamkitError, match="empty"):
        open_transport(" ", {}, tmp_path)


@pytest.mark.parametrize(
    "ask",
    [
        lambda t: t.admin().topics(),
        lambda t: t.admin().create_topics([NewTopic("t", 1)]),
        lambda t: t.consumer("g").committed([TopicPartition("t", 0)]),
        lambda t: t.consumer("g").end_offsets([TopicPartition("t", 0)]),
        lambda t: t.producer(transactional_id="t").begin(),
    ],
)
def test_an_address_where_nobody_answers_is_named_in_one_line(ask, capfd):
    transport = KafkaTransport("127.0.0.1:1", {"common": {"default.api.timeout.ms": "300"}})
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1") as raised:
        ask(transport)
    assert "\n" not in str(raised.value)
    assert raised.value.__cause__ is not None
    assert capfd.readouterr().err == ""


def test_a_producer_takes_records_as_large_as_javas_does():
    producer = KafkaTransport("127.0.0.1:1").producer()
    producer.send([("t", b"k", b"x" * 1_040_000, 1, None, None)])
    with pytest.raises(ProductionError, match=r"a record for topic t could not be written: .*large") as raised:
        producer.send([("t", b"k", b"x" * 1_048_577, 1, None, None)])
    assert [len(row[2]) for row in raised.value.rows] == [1_048_577]


@pytest.mark.broker
def test_the_users_settings_win(broker):
    transport = KafkaTransport(broker.address, {"producer": {"message.max.bytes": "2000"}})
    topic = create(transport, 1)
    with pytest.raises(ProductionError, match=topic):
        produce(transport, [(topic, b"k", b"x" * 5000, 1, None, None)])
    with pytest.raises(TransportError, match=r"no\.such\.setting"):
        KafkaTransport(broker.address, {"main": {"no.such.setting": "1"}}).consumer("g")
