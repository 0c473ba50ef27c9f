"""Follows the group: hands its decisions to the threads, and leaves it when a thread stalls (StreamsRebalanceListener)."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from time import monotonic

from streamkit.errors import FencedError, ForeignMembersError, RetriableTransportError, UnreachableError
from streamkit.runtime.local.coordinator import Coordinator, Share
from streamkit.runtime.local.thread import StreamThread

log = logging.getLogger(__name__)

_LAST_WORD_SECONDS = 5.0
_FOREIGN_EXTRA_MS = 15_000
_FOREIGN_RETRY_SECONDS = 1.0


class Following:
    """Between the coordinator and the threads, which may come and go; driven by the thread that waits for the application."""

    def __init__(
        self, coordinator: Coordinator, threads: Callable[[], Sequence[StreamThread]], max_poll_ms: int, session_ms: int
    ):
        """max_poll_ms: max.poll.interval.ms; session_ms: session.timeout.ms."""
        self._coordinator = coordinator
        self._threads = threads
        self._max_poll_ms = max_poll_ms
        self._foreign = _ForeignMembers(session_ms + _FOREIGN_EXTRA_MS)
        self._losing = False

    @property
    def settled(self) -> bool:
        """Whether the group has decided and every thread does what it was given."""
        return self._coordinator.assigned and self._threads_settled()

    def begin(self, shares: Mapping[str, Share]) -> None:
        """Give the threads their first tasks."""
        self._assign(shares)

    def look(self) -> None:
        """Do what is next: give threads tasks, take part in the group. Returns at once. Raises TransportError."""
        if self._losing and not self._threads_settled():
            # The next generation must not be heard of before: it would vouch for commits of tasks that are lost.
            return
        self._losing = False
        try:
            self._coordinator.use_threads({thread.name: thread.assignment for thread in self._working()})
            self._check_stalled()
            self._answer_lost()
            if not self._foreign.may_join():
                return
            shares = self._coordinator.poll(join=self._threads_settled())
        except ForeignMembersError as error:
            self._foreign.bear(error)
            return
        except FencedError as error:
            log.warning("%s; joining again", error)
            self._lose()
            return
        except (RetriableTransportError, UnreachableError) as error:
            log.info("%s; trying again", error)
            return
        if shares is not None:
            self._foreign.gone()
            self._assign(shares)

    def finish(self) -> None:
        """Hear the end of a rebalance that goes on, so that threads can commit when they close; not for long."""
        deadline = monotonic() + _LAST_WORD_SECONDS
        while self._coordinator.rebalancing and monotonic() < deadline:
            try:
                self._coordinator.poll(wait_ms=50)
            except (FencedError, RetriableTransportError, UnreachableError) as error:
                log.info("%s", error)
                return

    def _working(self) -> list[StreamThread]:
        return [thread for thread in self._threads() if not thread.stopping]

    def _threads_settled(self) -> bool:
        return all(thread.settled() for thread in self._working())

    def _assign(self, shares: Mapping[str, Share]) -> None:
        for thread in self._threads():
            share = shares.get(thread.name, Share())
            thread.assign(share.active, share.standby)

    def _lose(self) -> None:
        """Have the threads close everything as it is: others have it by now."""
        self._losing = True
        for thread in self._threads():
            thread.lose()

    def _answer_lost(self) -> None:
        """Ask the group what is left to threads that have given up their tasks by themselves."""
        lost = [thread for thread in self._threads() if thread.lost.is_set()]
        for thread in lost:
            thread.lost.clear()
        if lost:
            self._coordinator.rejoin()

    def _check_stalled(self) -> None:
        """Leave when a thread no longer polls (max.poll.interval.ms): its heartbeats would keep partitions that no thread processes."""
        if not self._coordinator.is_member:
            return
        now = monotonic()
        for thread in self._working():
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
        """Return whether it is time to try."""
        return monotonic() >= self._next

    def bear(self, error: ForeignMembersError) -> None:
        """Note that such members are there. Raises ForeignMembersError when they have been there for too long."""
        now = monotonic()
        if self._since is None:
            self._since = now
            seconds = self._limit_ms // 1000
            log.warning("the group has members that are not streamkit's; waiting at most %d s for their end", seconds)
        elif now - self._since > self._limit_ms / 1000:
            raise error
        self._next = now + _FOREIGN_RETRY_SECONDS

    def gone(self) -> None:
        """Note that this process is a member."""
        self._since = None
