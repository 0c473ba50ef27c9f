"""Transactions, run against Kafka and the embedded log."""

from __future__ import annotations

from contextlib import closing
from types import SimpleNamespace
from typing import Any
from uuid import uuid4

import pytest

from streamkit.errors import (
    FencedError,
    TransportError,
    UnknownTopicError,
)
from streamkit.record import TopicPartition
from streamkit.transport.kafka.transaction_markers import MarkerLooks
from streamkit.transport.log_interface import (
    EARLIEST,
    TRANSACTIONS,
    CommittedOffset,
    Generation,
    encode_generation,
)
from tests.contracts.records import KAFKA, KAFKA_IN_PYTHON, attempts, numbered, reach_end, read, read_until, values

with_transactions = pytest.mark.parametrize("transport", [KAFKA, KAFKA_IN_PYTHON, "embedded"], indirect=True)


def test_transactions_that_are_not_offered_are_refused(transport, topic):
    if TRANSACTIONS not in transport.features:
        with pytest.raises(TransportError, match="no transactions"):
            transport.producer(transactional_id="t")
    plain = transport.producer()
    with pytest.raises(TransportError, match="transaction"):
        plain.begin()


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


@pytest.mark.parametrize("transport", [KAFKA], indirect=True)
def test_a_transaction_lacks_markers_until_all_its_partitions_have_them(transport, topic):
    group, name = f"g-{uuid4()}", f"t-{uuid4()}"
    producer = transport.producer(transactional_id=name)
    with closing(transport.admin()) as admin:
        for refresh, committed in ((True, True), (False, False)):
            producer.begin()
            producer.send(numbered(topic, 0, 1))
            producer.flush()
            assert admin.lacks_markers(name, [topic], group, refresh=refresh)
            assert not admin.lacks_markers(name, [], group, refresh=False)
            if committed:
                metadata = encode_generation(Generation(group))
                producer.commit({TopicPartition(topic, 0): CommittedOffset(1)}, metadata)
            else:
                producer.abort()
            for _ in attempts(lambda: "the markers"):
                if not admin.lacks_markers(name, [topic], group, refresh=False):
                    break
    producer.close()


def test_a_topic_that_brokers_do_not_list_may_lack_a_marker():
    """Brokers that have just started do not list all topics yet, and some services never list the topic of offsets."""
    listed, asked, forbidden = {"out": 2}, [], 29

    class Client:
        def describe_transactions(self, names: list[str]) -> dict[str, Any]:
            return {name: SimpleNamespace(producer_id=7) for name in names}

        def describe_topics(self, names: list[str]) -> list[dict[str, Any]]:
            (name,) = names
            found = [{"partition_index": number, "leader_id": 1} for number in range(listed.get(name, 0))]
            return [{"error_code": 0 if found else forbidden if name == "secret" else 3, "partitions": found}]

        def describe_groups(self, names: list[str]) -> None:
            """A new broker creates the topic of offsets then."""

        def describe_producers(self, places: list[Any]) -> dict[Any, Any]:
            asked.append({tuple(place) for place in places})
            return {place: SimpleNamespace(active_producers=()) for place in places}

    looks: Any = MarkerLooks(Client(), "broker")  # type: ignore[arg-type]
    with pytest.raises(UnknownTopicError, match="new: brokers do not list this topic now"):
        looks.lacks("id", ["out", "new"], "", refresh=True)
    listed.update({"new": 1})
    with pytest.raises(UnknownTopicError, match="__consumer_offsets: brokers do not list this topic now"):
        looks.lacks("id", ["out", "new"], "group", refresh=False)
    assert not asked
    assert not looks.lacks("id", ["out", "new", "secret"], "", refresh=False)
    listed.update({"__consumer_offsets": 1})
    assert not looks.lacks("id", ["out", "new"], "group", refresh=False)
    known = {("out", 0), ("out", 1), ("new", 0)}
    assert asked == [known, known | {("__consumer_offsets", 0)}]


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
    with pytest.raises(FencedError):
        first.abort()
    second.send(numbered(topic, 5, 6))
    second.commit({}, None)
    consumer.assign({place: EARLIEST})
    assert values(reach_end(consumer, place)) == [b"5"]
    assert consumer.committed([place]) == {}
    second.close()
