"""Partitions that have no leader for a while, of three brokers."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from itertools import count

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from streamkit.errors import RetriableTransportError, TransportError, UnreachableError
from streamkit.record import TopicPartition
from streamkit.transport.kafka.transaction_markers import TOPIC, partition_of
from tests.broker.support import Log, until
from tests.chaos.brokers import Brokers

pytestmark = pytest.mark.broker


@pytest.fixture(scope="module")
def brokers(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Brokers]:
    with Brokers(tmp_path_factory.mktemp("brokers"), 3, seed=0) as running:
        yield running


@pytest.fixture
def place(brokers: Brokers, request: pytest.FixtureRequest) -> TopicPartition:
    """A partition whose only replica is on the second broker."""
    topic = request.node.name
    admin = _admin(brokers)  # a client without a name ends before its answer
    (created,) = admin.create_topics([NewTopic(topic, 1, replica_assignment=[[2]])]).values()
    created.result()
    return TopicPartition(topic, 0)


def test_a_leader_that_comes_back_is_found_at_once(brokers: Brokers, place: TopicPartition) -> None:
    """librdkafka itself would go on without it for five minutes, and with it a state updater that restores a task."""
    admin = _admin(brokers)
    with closing(Log(brokers.address)) as log, closing(log.transport.consumer(None)) as consumer:

        def found() -> bool:
            try:
                return consumer.end_offsets([place]) == {place: 0}
            except (RetriableTransportError, UnreachableError):
                return False

        brokers.nodes[1].stop()
        until(lambda: _leader(admin, place) < 0, "the partition has no leader")
        with pytest.raises(TransportError):
            consumer.end_offsets([place])
        brokers.nodes[1].start()
        until(lambda: _leader(admin, place) >= 0, "the partition has a leader again")
        until(found, "the offset is found")


def test_a_producer_knows_that_the_leader_of_what_it_wrote_was_lost(brokers: Brokers, place: TopicPartition) -> None:
    """Also if it is not its coordinator, and no record waits for it: the markers of the last commit may be lost."""
    admin = _admin(brokers)
    with closing(Log(brokers.address)) as log:

        def is_elsewhere(name: str) -> bool:
            with closing(log.transport.producer(transactional_id=name)) as first:
                first.begin()
            numbers = admin.list_topics(TOPIC).topics[TOPIC].partitions
            return numbers[partition_of(name, len(numbers))].leader != 2

        name = next(name for name in map(str, count()) if is_elsewhere(name))
        with closing(log.transport.producer(transactional_id=name)) as producer:
            producer.begin()
            producer.send([(place.topic, b"k", b"v", 1, None, 0)])
            producer.commit({}, None)
            assert not producer.lost_broker()
            brokers.nodes[1].stop()
            until(producer.lost_broker, "the producer knows")
            brokers.nodes[1].start()


def _admin(brokers: Brokers) -> AdminClient:
    return AdminClient({"bootstrap.servers": brokers.address, "log_level": 0})


def _leader(admin: AdminClient, place: TopicPartition) -> int:
    return admin.list_topics(place.topic).topics[place.topic].partitions[place.partition].leader
