"""A log on disk without a broker: SQLite in one directory, for any number of threads and processes on one machine. Differences
from Kafka: the records of a transaction are written when it commits, so open and aborted transactions are never read and the
last stable offset is the end; records stay until delete_records or delete_topics, since retention and cleanup policy are stored
but have no effect; a write is acknowledged before it is on disk (a power failure may lose the last writes, a killed process loses nothing), unless it
commits offsets or a transaction: then it is on disk, and all before it.
"""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory

from streamkit.config import Config
from streamkit.transport.log_interface import (
    MEMBERSHIP,
    TRANSACTIONS,
    Admin,
    Assign,
    Consumer,
    Membership,
    Producer,
    Transport,
)


class EmbeddedTransport(Transport):
    """The log in a directory; timeouts (ms) without a heartbeat, and without a poll, after which a member is removed."""

    creates_written_topics = True
    features = frozenset({TRANSACTIONS, MEMBERSHIP})

    def __init__(
        self,
        directory: str | Path,
        session_timeout_ms: int = Config.session_timeout_ms.default,
        max_poll_interval_ms: int = Config.max_poll_interval_ms.default,
    ):
        self.directory = Path(directory)
        self._timeouts = (session_timeout_ms, max_poll_interval_ms)

    def consumer(
        self, group: str | None, *, read_committed: bool = False, role: str = "main", client_id: str = ""
    ) -> Consumer:
        from streamkit.transport.embedded.embedded_clients import EmbeddedConsumer

        return EmbeddedConsumer(self.directory, group, for_stores=role != "main")

    def producer(self, *, transactional_id: str | None = None, client_id: str = "") -> Producer:
        from streamkit.transport.embedded.embedded_clients import EmbeddedProducer

        return EmbeddedProducer(self.directory, transactional_id)

    def admin(self) -> Admin:
        from streamkit.transport.embedded.embedded_clients import EmbeddedAdmin

        return EmbeddedAdmin(self.directory)

    def membership(self, group: str, member_id: str, assign: Assign) -> Membership:
        from streamkit.transport.embedded.embedded_groups import EmbeddedMembership

        return EmbeddedMembership(self.directory, group, member_id, assign, self._timeouts)

    def missing(self) -> str | None:
        from streamkit.transport.embedded.database import FILE

        return None if (self.directory / FILE).exists() else str(self.directory)

    def close(self) -> None:
        pass


class EmptyLog(EmbeddedTransport):
    """The empty log of a directory that does not exist yet, for commands that create nothing; deleted on close."""

    def __init__(self, directory: Path):
        self._folder = TemporaryDirectory(prefix="streamkit-")
        super().__init__(self._folder.name)
        self._place = directory

    def missing(self) -> str | None:
        return str(self._place)

    def close(self) -> None:
        self._folder.cleanup()
