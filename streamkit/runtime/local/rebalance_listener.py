"""Passes the group's assignments to the threads, and leaves the group when a thread stalls (StreamsRebalanceListener)."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, nullcontext
from time import monotonic, time
from typing import NamedTuple

from streamkit.errors import FencedError, ForeignMembersError, RetriableTransportError, UnreachableError
from streamkit.record import TaskId
from streamkit.runtime.local.coordinator import Coordinator, Share
from streamkit.runtime.local.states import ThreadState
from streamkit.runtime.local.stream_thread import StreamThread

log = logging.getLogger(__name__)

_WAIT_SECONDS = 5.0
_FOREIGN_EXTRA_MS = 15_000
_FOREIGN_RETRY_SECONDS = 1.0
_QUIET_SECONDS = 10.0
"""The time without a rebalance after which the next one is unlikely to come soon."""
_MAX_REBALANCES = 50
"""The number of latest rebalances that status requests can see."""


class Rebalance(NamedTuple):
    """An assignment of the group to this process."""

    time: int
    """Milliseconds since 1970."""
    text: str


class RebalanceListener:
    """Connects the coordinator with the current threads. Only the thread that waits for the application calls it."""

    def __init__(
        self,
        coordinator: Coordinator,
        threads: Callable[[], Sequence[StreamThread]],
        max_poll_ms: int,
        session_ms: int,
        unchanged: Callable[[], AbstractContextManager[object]] = nullcontext,
    ):
        """max_poll_ms: max.poll.interval.ms; session_ms: session.timeout.ms; unchanged: a lock that prevents the replacement of threads."""
        self._coordinator = coordinator
        self._threads = threads
        self._unchanged = unchanged
        self._max_poll_ms = max_poll_ms
        self._foreign = _ForeignMembers(session_ms + _FOREIGN_EXTRA_MS)
        self._losing = False
        self._busy_at = monotonic()
        self._owned: frozenset[TaskId] = frozenset()
        self.rebalances: deque[Rebalance] = deque(maxlen=_MAX_REBALANCES)
        """The latest rebalances; any thread may read them."""

    @property
    def settled(self) -> bool:
        """Whether the group has assigned tasks, and every thread has applied its assignment."""
        return self._coordinator.assigned and self._threads_settled()

    def is_quiet(self) -> bool:
        """Return whether the last rebalance was some seconds ago, so that `poll` may be called less often."""
        if not self.settled or self._coordinator.rebalancing:
            self._busy_at = monotonic()
        return monotonic() > self._busy_at + _QUIET_SECONDS

    def assign_first(self, shares: Mapping[str, Share]) -> None:
        """Assign the threads their first tasks."""
        self._assign(shares)

    def poll(self) -> None:
        """Poll the group, and assign tasks to threads. Returns at once. Raises TransportError."""
        if self._losing and not self._threads_settled():
            # Lost tasks must close first: the metadata of the next generation would make their commits valid.
            return
        self._losing = False
        try:
            self._coordinator.use_threads({thread.name: thread.assignment for thread in self._running_threads()})
            self._check_stalled()
            self._rejoin_lost()
            if not self._foreign.may_join():
                return
            shares = self._coordinator.poll(join=self._threads_settled())
        except ForeignMembersError as error:
            self._foreign.note(error)
            return
        except FencedError as error:
            log.warning("%s; rejoining the group", error)
            self._lose()
            return
        except (RetriableTransportError, UnreachableError) as error:
            log.info("%s; trying again", error)
            return
        if shares is not None:
            self._foreign.note_joined()
            self._assign(shares)

    def wait_for_rebalance(self) -> None:
        """Wait a few seconds for the end of a rebalance, so that threads can commit when they close."""
        deadline = monotonic() + _WAIT_SECONDS
        while self._coordinator.rebalancing and monotonic() < deadline:
            self.continue_rebalance(wait_ms=50)

    def continue_rebalance(self, wait_ms: int = 0) -> None:
        """Take part in a rebalance that has begun while threads close. Its assignment is not applied."""
        if self._coordinator.rebalancing:
            try:
                self._coordinator.poll(wait_ms=wait_ms)
            except (FencedError, RetriableTransportError, UnreachableError) as error:
                log.info("%s", error)

    def _running_threads(self) -> list[StreamThread]:
        return [thread for thread in self._threads() if not thread.stopping]

    def _threads_settled(self) -> bool:
        """Return whether every thread has applied its assignment. A stopping thread has not: it commits until it ends."""
        return all(
            thread.state is ThreadState.DEAD or (thread.settled() and not thread.stopping) for thread in self._threads()
        )

    def _assign(self, shares: Mapping[str, Share]) -> None:
        self._busy_at = monotonic()
        with self._unchanged():
            for thread in self._threads():
                share = shares.get(thread.name, Share())
                thread.assign(share.active, share.standby)
        self._note(shares)

    def _note(self, shares: Mapping[str, Share]) -> None:
        owned = frozenset(task for share in shares.values() for task in share.active)
        standbys = sum(len(share.standby) for share in shares.values())
        parts = [f"{len(owned)} active and {standbys} standby tasks"]
        for word, tasks in (("new", owned - self._owned), ("gone", self._owned - owned)):
            if tasks:
                parts.append(f"{word}: {' '.join(str(task) for task in sorted(tasks))}")
        if not (owned or self._owned or standbys):
            # Before the first assignment.
            return
        self._owned = owned
        self.rebalances.append(Rebalance(int(time() * 1000), "; ".join(parts)))

    def _lose(self) -> None:
        """Make the threads close all active tasks without a commit, because other instances may already own them."""
        self._losing = True
        self._note({})
        # A replacement thread would keep the tasks of the thread that it replaces.
        with self._unchanged():
            for thread in self._threads():
                thread.lose()

    def _rejoin_lost(self) -> None:
        """Request a rebalance for threads that have closed their tasks on their own."""
        with self._unchanged():
            lost = [thread for thread in self._threads() if thread.lost.is_set()]
            for thread in lost:
                thread.lost.clear()
        if lost:
            self._coordinator.rejoin()

    def _check_stalled(self) -> None:
        """Leave if a thread no longer polls (max.poll.interval.ms): heartbeats would keep partitions that no thread processes."""
        if not self._coordinator.is_member:
            return
        now = monotonic()
        for thread in self._threads():
            if thread.state is ThreadState.DEAD:
                continue
            # A stopping thread counts too, because no rebalance begins before it ends.
            if now - thread.polled_at > self._max_poll_ms / 1000:
                reason = f"{thread.name} has not polled for longer than max.poll.interval.ms ({self._max_poll_ms} ms)"
                log.warning("%s; leaving the group", reason)
                self._coordinator.give_up(reason)
                return


class _ForeignMembers:
    """Waits for the sessions of members that have stopped without leaving the group, as instances of Kafka Streams do."""

    def __init__(self, limit_ms: int):
        self._limit_ms = limit_ms
        self._since: float | None = None
        self._next = 0.0

    def may_join(self) -> bool:
        """Return whether the next attempt is due."""
        return monotonic() >= self._next

    def note(self, error: ForeignMembersError) -> None:
        """Note that the group has such members. Raises ForeignMembersError if it has had them for too long."""
        now = monotonic()
        if self._since is None:
            self._since = now
            seconds = self._limit_ms // 1000
            log.warning("the group has members that are not streamkit's; waiting up to %d s for them to end", seconds)
        elif now - self._since > self._limit_ms / 1000:
            raise error
        self._next = now + _FOREIGN_RETRY_SECONDS

    def note_joined(self) -> None:
        """Note that this process is a member."""
        self._since = None
