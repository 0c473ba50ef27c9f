"""Punctuators: callbacks at stream-time or wall-clock intervals (PunctuationQueue, PunctuationSchedule)."""

from __future__ import annotations

import heapq
import itertools
from collections.abc import Callable
from dataclasses import dataclass


@dataclass(slots=True)
class Punctuator:
    """One schedule of a node; times in milliseconds."""

    node: int
    interval_ms: int
    callback: Callable[[int], None]
    cancelled: bool = False

    def cancel(self) -> None:
        """Fire no more (Cancellable)."""
        self.cancelled = True


class PunctuationQueue:
    """Schedules of one clock, the earliest due first."""

    def __init__(self) -> None:
        self._heap: list[tuple[int, int, Punctuator]] = []
        self._order = itertools.count()

    def schedule(self, due: int, punctuator: Punctuator) -> Punctuator:
        """Add a schedule that is first due at `due` (ms)."""
        heapq.heappush(self._heap, (due, next(self._order), punctuator))
        return punctuator

    def next_due(self) -> int | None:
        """Return when the next schedule is due (ms), None without schedules."""
        while self._heap and self._heap[0][2].cancelled:
            heapq.heappop(self._heap)
        return self._heap[0][0] if self._heap else None

    def punctuate(self, now: int, fire: Callable[[Punctuator, int], None]) -> bool:
        """Fire each schedule that is due, once however many intervals passed, with `now` as its argument.

        The next time is the first aligned one after `now`. Returns whether anything fired.
        """
        fired = False
        heap = self._heap
        while heap and heap[0][0] <= now:
            due, _, punctuator = heapq.heappop(heap)
            if punctuator.cancelled:
                continue
            fire(punctuator, now)
            fired = True
            # Its own callback may have cancelled it.
            if not punctuator.cancelled:
                self.schedule(next_time(due, punctuator.interval_ms, now), punctuator)
        return fired

    def clear(self) -> None:
        """Forget all schedules."""
        self._heap.clear()


def next_time(due: int, interval_ms: int, now: int) -> int:
    """Return the first time after `now` that is aligned with `due`.

    >>> next_time(0, 10, 25)
    30
    """
    return due + ((now - due) // interval_ms + 1) * interval_ms
