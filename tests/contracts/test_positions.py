"""Positions and offsets, run against Kafka and the embedded log."""

from __future__ import annotations

from typing import cast
from uuid import uuid4

import pytest
from confluent_kafka import KafkaError

from streamkit.errors import (
    OffsetOutOfRangeError,
    TransportError,
)
from streamkit.record import Columns, RecordBatch, TopicPartition
from streamkit.transport.kafka import KafkaTransport
from streamkit.transport.kafka.kafka_consumer import Event, KafkaConsumer
from streamkit.transport.log_interface import (
    EARLIEST,
    LATEST,
    CommittedOffset,
)
from tests.contracts.records import PATIENCE, attempts, create, numbered, produce, reach_end, read, values


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
    assert [batch for batch in after if len(batch) > 1000] == []


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


def test_positions_of_several_partitions_that_are_gone_cost_no_record(transport, consumer):
    """Each one is an error of its own, and the records that came with an error are read too."""
    topic = create(transport, 4)
    places = [TopicPartition(topic, number) for number in range(4)]
    produce(transport, [(topic, b"k", b"%d" % n, 1000, None, n) for n in range(4)])
    consumer.assign({places[0]: EARLIEST, **dict.fromkeys(places[1:], 1000)})
    gone: list[TopicPartition] = []
    found: list[bytes | None] = []
    for _ in attempts(lambda: f"three errors and four records: {gone} and {found} came"):
        if len(gone) == 3 and len(found) == 4:
            break
        try:
            found.extend(values(consumer.poll(500, 200)))
        except OffsetOutOfRangeError as error:
            place = TopicPartition(error.topic, error.partition)
            gone.append(place)
            consumer.remove([place])
            consumer.add({place: EARLIEST})
    assert sorted(gone) == places[1:]
    assert sorted(found) == [b"0", b"1", b"2", b"3"]  # type: ignore[type-var]


@pytest.mark.broker
@pytest.mark.parametrize("length", [0, 1, 8, 12, 24, 25, 100])
def test_metadata_that_another_client_committed_is_read_exactly(broker, length):
    # Read as a C string the text would go on behind its memory.
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


def test_records_before_a_position_that_is_gone_are_returned_first() -> None:
    """The caller goes on elsewhere, so that what was fetched before would be lost."""
    transport = KafkaTransport("127.0.0.1:1")
    consumer = cast(KafkaConsumer, transport.consumer(None))
    place, other = TopicPartition("words", 0), TopicPartition("words", 1)
    consumer.add({place: 5, other: 0})
    gone = Event("words", 0, 10, KafkaError(KafkaError.OFFSET_OUT_OF_RANGE, "gone"))
    unreadable = Event("words", 1, 0, KafkaError(KafkaError.TOPIC_AUTHORIZATION_FAILED, "no"))

    def batch(first: int, last: int) -> RecordBatch:
        offsets = list(range(first, last))
        columns = Columns([None] * len(offsets), [b"x"] * len(offsets), offsets, [None] * len(offsets), offsets)
        return RecordBatch("words", 0, columns)

    def read_offsets() -> list[int]:
        return [offset for each in consumer.poll(100, 0) for offset in each.offsets]

    taken = [([batch(5, 10)], [gone]), ([], []), ([batch(5, 10)], [gone, unreadable])]
    consumer._reader.take = lambda *_: taken.pop(0)  # type: ignore[method-assign]
    assert read_offsets() == [5, 6, 7, 8, 9]
    with pytest.raises(OffsetOutOfRangeError):
        consumer.poll(100, 0)
    assert read_offsets() == []
    # Another error keeps the records for the next polls, and with them what comes after them.
    consumer.assign({place: 5, other: 0})
    with pytest.raises(TransportError, match=r"words \[1\] could not be read"):
        consumer.poll(100, 0)
    assert read_offsets() == [5, 6, 7, 8, 9]
    with pytest.raises(OffsetOutOfRangeError):
        consumer.poll(100, 0)
    transport.close()
