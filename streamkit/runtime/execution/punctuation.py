"""Punctuators: callbacks at stream-time or wall-clock intervals (PunctuationQueue, PunctuationSchedule)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass


@dataclass(slots=True)
class Punctuator:
    """One schedule of a node; times in milliseconds."""

    node: int
    interval_ms: int
    callback: Callable[[int], None]
    due: int
    """The next time at which it fires."""
    cancelled: bool = False

    def cancel(self) -> None:
        """Cancel the schedule (Cancellable)."""
        self.cancelled = True


class PunctuationQueue:
    """Schedules of one clock, the earliest due first.

    Schedules that are due at the same time fire in the order of `java.util.PriorityQueue`, a binary heap that compares
    times only, and not in the order of scheduling. Cancelled schedules therefore keep their position until they are due.
    """

    def __init__(self) -> None:
        self._heap: list[Punctuator] = []

    def schedule(self, punctuator: Punctuator) -> Punctuator:
        """Add a schedule."""
        self._heap.append(punctuator)
        self._sift_up(len(self._heap) - 1)
        return punctuator

    @property
    def schedules(self) -> tuple[Punctuator, ...]:
        """The schedules in heap order."""
        return tuple(self._heap)

    def restore(self, schedules: Iterable[Punctuator]) -> None:
        """Replace the schedules by a queue in heap order."""
        self._heap[:] = schedules

    def next_due(self) -> int | None:
        """Return when the head of the queue is due (ms), cancelled or not; None without schedules."""
        return self._heap[0].due if self._heap else None

    def punctuate(self, now: int, fire: Callable[[Punctuator, int], None]) -> bool:
        """Fire each due schedule with `now` as its argument, only once even if several intervals have passed.

        Its next time is the first aligned one after `now`. Returns whether anything fired.
        """
        fired = False
        heap = self._heap
        while heap and heap[0].due <= now:
            punctuator = self._take()
            if punctuator.cancelled:
                continue
            fire(punctuator, now)
            fired = True
            # Its own callback may have cancelled it.
            if not punctuator.cancelled:
                punctuator.due = next_time(punctuator.due, punctuator.interval_ms, now)
                self.schedule(punctuator)
        return fired

    def clear(self) -> None:
        """Remove all schedules."""
        self._heap.clear()

    def _take(self) -> Punctuator:
        heap = self._heap
        head, last = heap[0], heap.pop()
        if heap:
            heap[0] = last
            self._sift_down()
        return head

    def _sift_up(self, at: int) -> None:
        """Move an entry up until its parent is due no later; entries with equal times do not move."""
        heap = self._heap
        entry = heap[at]
        while at:
            parent = (at - 1) // 2
            if heap[parent].due <= entry.due:
                break
            heap[at] = heap[parent]
            at = parent
        heap[at] = entry

    def _sift_down(self) -> None:
        """Move the first entry down past children that are due earlier; the left one goes before an equal right one."""
        heap = self._heap
        entry, at, half = heap[0], 0, len(heap) // 2
        while at < half:
            child = 2 * at + 1
            if child + 1 < len(heap) and heap[child + 1].due < heap[child].due:
                child += 1
            if entry.due <= heap[child].due:
                break
            heap[at] = heap[child]
            at = child
        heap[at] = entry


def first_time(start: int, interval_ms: int, now: int) -> int:
    """Return the first time of a schedule that is aligned with `start`: `start` itself, or the first aligned time after `now`.

    >>> first_time(7, 20, 5), first_time(7, 20, 7), first_time(7, 20, 30)
    (7, 7, 47)
    """
    return start if start >= now else next_time(start, interval_ms, now)


def next_time(due: int, interval_ms: int, now: int) -> int:
    """Return the first time after `now` that is aligned with `due`.

    >>> next_time(0, 10, 25)
    30
    """
    return due + ((now - due) // interval_ms + 1) * interval_ms
