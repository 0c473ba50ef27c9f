"""States of threads and of the client, and their transitions (StreamThread.State, KafkaStreams.State)."""

from __future__ import annotations

from enum import Enum

from streamkit.errors import StateError


class ThreadState(Enum):
    """States of a stream thread."""

    CREATED = "CREATED"
    STARTING = "STARTING"
    PARTITIONS_REVOKED = "PARTITIONS_REVOKED"
    PARTITIONS_ASSIGNED = "PARTITIONS_ASSIGNED"
    RUNNING = "RUNNING"
    PENDING_SHUTDOWN = "PENDING_SHUTDOWN"
    DEAD = "DEAD"


class ClientState(Enum):
    """States of an application instance."""

    CREATED = "CREATED"
    REBALANCING = "REBALANCING"
    RUNNING = "RUNNING"
    PENDING_SHUTDOWN = "PENDING_SHUTDOWN"
    NOT_RUNNING = "NOT_RUNNING"
    PENDING_ERROR = "PENDING_ERROR"
    ERROR = "ERROR"


_T = ThreadState
_C = ClientState
_FOLLOWERS: dict[Enum, frozenset[Enum]] = {
    _T.CREATED: frozenset((_T.STARTING, _T.PENDING_SHUTDOWN)),
    _T.STARTING: frozenset((_T.PARTITIONS_REVOKED, _T.PARTITIONS_ASSIGNED, _T.PENDING_SHUTDOWN)),
    _T.PARTITIONS_REVOKED: frozenset((_T.PARTITIONS_REVOKED, _T.PARTITIONS_ASSIGNED, _T.PENDING_SHUTDOWN)),
    _T.PARTITIONS_ASSIGNED: frozenset((_T.PARTITIONS_REVOKED, _T.PARTITIONS_ASSIGNED, _T.RUNNING, _T.PENDING_SHUTDOWN)),
    _T.RUNNING: frozenset((_T.PARTITIONS_REVOKED, _T.PARTITIONS_ASSIGNED, _T.RUNNING, _T.PENDING_SHUTDOWN)),
    _T.PENDING_SHUTDOWN: frozenset((_T.DEAD,)),
    _T.DEAD: frozenset(),
    _C.CREATED: frozenset((_C.REBALANCING, _C.PENDING_SHUTDOWN)),
    _C.REBALANCING: frozenset((_C.REBALANCING, _C.RUNNING, _C.PENDING_SHUTDOWN, _C.PENDING_ERROR)),
    _C.RUNNING: frozenset((_C.REBALANCING, _C.RUNNING, _C.PENDING_SHUTDOWN, _C.PENDING_ERROR)),
    _C.PENDING_SHUTDOWN: frozenset((_C.NOT_RUNNING,)),
    _C.NOT_RUNNING: frozenset(),
    _C.PENDING_ERROR: frozenset((_C.ERROR,)),
    _C.ERROR: frozenset(),
}


def check_transition(old: Enum, new: Enum) -> None:
    """Raise StateError unless `new` may follow `old`."""
    if new not in _FOLLOWERS[old]:
        raise StateError(f"{new.value} can't follow {old.value}")


def client_state(threads: list[ThreadState], global_ready: bool) -> ClientState:
    """Return RUNNING when all threads are running or dead and the global thread is up, else REBALANCING."""
    running = all(state in (_T.RUNNING, _T.DEAD) for state in threads)
    return _C.RUNNING if running and global_ready else _C.REBALANCING
