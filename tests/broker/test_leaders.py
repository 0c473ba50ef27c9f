"""Partitions that have no leader for a while, of three brokers."""

from __future__ import annotations

from contextlib import closing
from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewTopic

from streamkit.errors import RetriableTransportError, TransportError, UnreachableError
from streamkit.record import TopicPartition
from tests.broker.support import Log, until
from tests.chaos.brokers import Brokers

pytestmark = pytest.mark.broker


def test_a_leader_that_comes_back_is_found_at_once(tmp_path: Path) -> None:
    """librdkafka itself would go on without it for five minutes, and with it a state updater that restores a task."""
    place = TopicPartition("lonely", 0)
    with Brokers(tmp_path, 3, seed=0) as brokers, closing(Log(brokers.address)) as log:
        admin = AdminClient({"bootstrap.servers": brokers.address, "log_level": 0})
        # Its only replica is on the second broker.
        (created,) = admin.create_topics([NewTopic(place.topic, 1, replica_assignment=[[2]])]).values()
        created.result()
        with closing(log.transport.consumer(None)) as consumer:

            def found() -> bool:
                try:
                    return consumer.end_offsets([place]) == {place: 0}
                except (RetriableTransportError, UnreachableError):
                    return False

            brokers.nodes[1].stop()
            until(lambda: not _leader(admin, place), "the partition has no leader")
            with pytest.raises(TransportError):
                consumer.end_offsets([place])
            brokers.nodes[1].start()
            until(lambda: _leader(admin, place), "the partition has a leader again")
            until(found, "the offset is found")


def _leader(admin: AdminClient, place: TopicPartition) -> bool:
    return admin.list_topics(place.topic).topics[place.topic].partitions[place.partition].leader >= 0
