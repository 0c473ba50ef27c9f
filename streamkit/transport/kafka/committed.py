"""Committed offsets with their metadata, through kafka-python.

confluent-kafka can't read metadata: it treats what another client has written as a C string, and reads memory after its
end up to a zero byte. It writes such a byte after each metadata itself, which is removed here.
"""

from __future__ import annotations

import threading
from collections.abc import Mapping, Sequence

from kafka import KafkaConsumer as Client
from kafka.structs import TopicPartition as KafkaPartition

from streamkit.record import TopicPartition
from streamkit.transport.kafka.membership_config import client_config
from streamkit.transport.kafka.membership_errors import translated
from streamkit.transport.log_interface import CommittedOffset


class CommittedOffsets:
    """Reads a group's offsets without a membership. Every thread may call it; it connects on first use."""

    def __init__(self, settings: Mapping[str, str], timeout: float, group: str, read_committed: bool):
        """`read_committed`: wait for transactions that have sent offsets and not ended (KIP-447)."""
        self._address = settings["bootstrap.servers"]
        self._timeout_ms = int(timeout * 1000)
        # Only the membership may use the static member's id.
        plain = {name: value for name, value in settings.items() if name != "group.instance.id"}
        self._config: dict[str, object] = {
            **client_config(plain, timeout),
            "group_id": group,
            "isolation_level": "read_committed" if read_committed else "read_uncommitted",
        }
        self._lock = threading.Lock()
        self._client: Client | None = None

    def read(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """Return the committed offsets; partitions without one are missing. Raises UnreachableError, TransportError."""
        wanted = [KafkaPartition(*partition) for partition in partitions]
        with translated("committed offsets could not be read", self._address):
            with self._lock:
                self._client = self._client or Client(**self._config)
            coordinator = self._client._coordinator
            try:
                found = coordinator.fetch_committed_offsets(wanted, timeout_ms=self._timeout_ms)
            except BaseException:
                # kafka-python would give a late answer to the next read of these partitions, whose offsets may be newer.
                coordinator._offset_fetch_futures.pop(frozenset(wanted), None)
                raise
        return {
            TopicPartition(*place): CommittedOffset(offset.offset, (offset.metadata or "").rstrip("\0"))
            for place, offset in found.items()
        }

    def close(self) -> None:
        """Close the connections."""
        with self._lock:
            if self._client is not None:
                self._client.close(autocommit=False)
                self._client = None
