"""Kafka: records through confluent-kafka, group membership through kafka-python; both are imported only in this package, on first use."""

from __future__ import annotations

import threading
from collections.abc import Mapping
from typing import TYPE_CHECKING

from streamkit.transport.kafka.kafka_errors import logger
from streamkit.transport.log_interface import (
    MEMBERSHIP,
    STREAMS_GROUPS,
    TRANSACTIONS,
    Admin,
    Assign,
    Consumer,
    Membership,
    Producer,
    StreamsTopology,
    Transport,
)

if TYPE_CHECKING:
    from streamkit.transport.kafka.kafka_membership import CommittedOffsets

DEFAULT_TIMEOUT_MS = 15_000
TIMEOUT_SETTING = "default.api.timeout.ms"

Settings = Mapping[str, Mapping[str, str]]

_MEMBER_TIMES = frozenset({"session.timeout.ms", "heartbeat.interval.ms", "max.poll.interval.ms"})
"""Settings of a group's member, which a consumer with assigned partitions is not."""
_LINGER = frozenset({"linger.ms", "queue.buffering.max.ms"})
"""The names of how long a producer waits for fuller batches."""

_BACKOFF, _BACKOFF_MAX = "reconnect.backoff.ms", "reconnect.backoff.max.ms"
_CLIENT = {
    # As in Java's clients. With librdkafka's limit of 10 s, it would return to a restarted broker later.
    _BACKOFF: "50",
    _BACKOFF_MAX: "1000",
}
# Measured with values of 40 bytes and a bare consume(5000) loop on 2 cores. A full queue makes librdkafka wait
# fetch.queue.backoff.ms (1 s by default) before it fetches again: about 165 k records/s without, 660 k to 1 M/s with the
# setting below. A broker answers one connection in order, so lookups and new partitions wait behind an idle fetch: hence
# the short fetch.wait.max.ms. A response may be as large as the queue (fetch.max.bytes follows it), and each record in it takes
# 300 bytes more: with 64 partitions and 64 MB it was 330 MB of memory, with 8 MB 173 MB.
_CONSUMER = {
    "enable.auto.commit": "false",
    "enable.auto.offset.store": "false",
    # The event at the end of a partition has the position after control records; no record has it.
    "enable.partition.eof": "true",
    "auto.offset.reset": "error",
    "allow.auto.create.topics": "false",
    # As in Java's client; librdkafka reads damaged records as they are. It takes no measurable time.
    "check.crcs": "true",
    "queued.min.messages": "100000",
    "queued.max.messages.kbytes": "8192",
    "fetch.queue.backoff.ms": "5",
    "fetch.wait.max.ms": "100",
}
# linger.ms is half of Kafka Streams' 100: Java's producer sends the records of all partitions of a broker once one of them has
# 16 KiB (RecordAccumulator.ready), while librdkafka lets each partition wait by itself.
_PRODUCER = {
    "enable.idempotence": "true",
    "partitioner": "murmur2_random",
    "linger.ms": "50",
    "batch.size": "262144",
    # Java's max.request.size; librdkafka's own default is 1,000,000.
    "message.max.bytes": "1048576",
    "batch.num.messages": "10000",
    # The time for an unknown topic to appear: 30 s by default, but streamkit creates topics before it writes.
    "topic.metadata.propagation.max.ms": "5000",
    "queue.buffering.max.messages": "500000",
    "queue.buffering.max.kbytes": "262144",
}


class KafkaTransport(Transport):
    """A Kafka cluster.

    settings: librdkafka's names, per role: common, consumer, main, restore, global, producer, admin; a more specific role takes
    precedence. `default.api.timeout.ms` (not a librdkafka setting) limits every call that waits for a response.
    """

    marks_commits = True
    features = frozenset({TRANSACTIONS, MEMBERSHIP, STREAMS_GROUPS})

    def __init__(self, bootstrap: str, settings: Settings | None = None):
        self.bootstrap = bootstrap
        self._settings = settings or {}
        self._lock = threading.Lock()
        self._committed: dict[tuple[str, bool], CommittedOffsets] = {}
        self._largest_batch: int | None = None
        """The batch.size (bytes) that a topic has forced on producers."""

    def consumer(
        self, group: str | None, *, read_committed: bool = False, role: str = "main", client_id: str = ""
    ) -> Consumer:
        from streamkit.transport.kafka.kafka_consumer import NO_GROUP, KafkaConsumer

        config, timeout = self._config(_CONSUMER, ("consumer", role), client_id)
        # librdkafka refuses a session that is longer than max.poll.interval.ms, which brokers and Java take.
        config = {name: value for name, value in config.items() if name not in _MEMBER_TIMES}
        config["group.id"] = group or NO_GROUP
        config["isolation.level"] = "read_committed" if read_committed else "read_uncommitted"
        return KafkaConsumer(config, timeout, self._committed_of(group or "", read_committed))

    def producer(self, *, transactional_id: str | None = None, client_id: str = "") -> Producer:
        from streamkit.transport.kafka.kafka_producer import KafkaProducer

        config, timeout = self._config(_PRODUCER, ("producer",), client_id)
        if transactional_id is not None:
            config["transactional.id"] = transactional_id
        if self._largest_batch is not None:
            config["batch.size"] = str(min(int(config["batch.size"]), self._largest_batch))
        lingers = any(not _LINGER.isdisjoint(self._settings.get(role, ())) for role in ("common", "producer"))
        return KafkaProducer(config, timeout, logger, lingers=lingers, shrink=self._shrink_batches)

    def _shrink_batches(self, size: int) -> None:
        self._largest_batch = min(size, self._largest_batch or size)

    def admin(self) -> Admin:
        from streamkit.transport.kafka.kafka_admin import KafkaAdmin

        config, timeout = self._config({}, ("admin",), "")
        return KafkaAdmin(config, timeout, logger)

    def membership(self, group: str, member_id: str, assign: Assign) -> Membership:
        from streamkit.transport.kafka.kafka_membership import KafkaMembership

        # Brokers create member ids, which begin with the client id.
        config, timeout = self._config({}, ("consumer", "main"), member_id)
        return KafkaMembership(config, timeout, group, assign)

    def streams_membership(self, group: str, member_id: str, topology: StreamsTopology) -> Membership:
        from streamkit.transport.kafka.streams_membership import StreamsMembership

        config, timeout = self._config({}, ("consumer", "main"), member_id)
        return StreamsMembership(config, timeout, group, topology)

    def prepare_membership(self) -> None:
        import streamkit.transport.kafka.kafka_membership  # noqa: F401 - its import takes a seventh of the start-up time

    def close(self) -> None:
        with self._lock:
            for reader in self._committed.values():
                reader.close()
            self._committed.clear()

    def _committed_of(self, group: str, read_committed: bool) -> CommittedOffsets:
        """Return the reader of committed offsets that all consumers of a group share; it has its own connection and thread."""
        from streamkit.transport.kafka.kafka_membership import CommittedOffsets

        with self._lock:
            committed_offsets = self._committed.get((group, read_committed))
            if committed_offsets is None:
                settings, timeout = self._config({}, ("consumer", "main"), "")
                committed_offsets = self._committed[group, read_committed] = CommittedOffsets(
                    settings, timeout, group, read_committed
                )
            return committed_offsets

    def _config(
        self, defaults: Mapping[str, str], roles: tuple[str, ...], client_id: str
    ) -> tuple[dict[str, str], float]:
        own: dict[str, str] = {}
        for role in ("common", *roles):
            own.update(self._settings.get(role, {}))
        if _BACKOFF in own:
            # As in Java, the backoff is constant unless its maximum is set too (postProcessReconnectBackoffConfigs).
            own.setdefault(_BACKOFF_MAX, own[_BACKOFF])
        config = {"bootstrap.servers": self.bootstrap, **_CLIENT, **defaults, **own}
        if client_id:
            config["client.id"] = client_id
        timeout = float(config.pop(TIMEOUT_SETTING, DEFAULT_TIMEOUT_MS)) / 1000
        return config, timeout
