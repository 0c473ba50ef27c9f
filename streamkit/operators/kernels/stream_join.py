"""Joins of two streams within a window (KStreamKStreamJoin, KStreamJoinWindow, KStreamKStreamSelfJoin)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from streamkit.rounds import many

NO_TIMESTAMP = -1
NEVER = (1 << 63) - 1
Forward = Callable[[Any, Any, int, Any], None]


class TimeTracker:
    """What the two sides of a join share in a task: stream time and the time of the oldest unmatched record."""

    __slots__ = ("min_time", "next_emit", "stream_time")

    def __init__(self) -> None:
        self.stream_time = NO_TIMESTAMP
        self.min_time = NEVER
        self.next_emit = 0


@dataclass(frozen=True)
class JoinWork:
    """What one side of a join needs; times in milliseconds."""

    before: int
    """How much earlier than this side's record the other side's may be."""
    after: int
    grace: int
    left_lookahead: int
    """How long an unmatched record of the left side waits (the window's `after`)."""
    right_lookahead: int
    is_left: bool
    outer: bool
    """Whether unmatched records of this side are released."""
    joiner: Callable[[Any, Any, Any], Any]
    """(key, left, right) to the joined value."""
    forward: Forward
    decode_key: Callable[[bytes], Any]
    same_key: Callable[[Any, Any], bool]
    """Whether two decoded keys are equal."""


class StreamJoin:
    """One side; `process` is called for every record of it."""

    def __init__(self, rt: Any, other: Any, unmatched: Any, tracker: TimeTracker, work: JoinWork):
        self._rt = rt
        self._other = other
        self._unmatched = unmatched
        self._tracker = tracker
        self._work = work

    def process(self, kb: bytes | None, k: Any, v: Any, t: int, c: Any) -> None:
        """Release what waited too long, join with the other side's window, or wait for a match."""
        work, tracker, unmatched = self._work, self._tracker, self._unmatched
        if t > tracker.stream_time:
            tracker.stream_time = t
        if k is None or kb is None or v is None:
            if k is None and v is not None and work.outer:
                work.forward(k, self._joined(k, v, None), t, c)
                return
            if kb is None or v is None:
                self._rt.dropped()
                return
        if unmatched is not None and t == tracker.stream_time:
            self._release(t, c)
        low, high = t - work.before, t + work.after
        if high < 0:
            high = 0
        rows = many(self._other.fetch(kb, low if low > 0 else 0, high))
        forward, joiner = work.forward, work.joiner
        for time, value in rows:
            if unmatched is not None:
                unmatched.remove(kb, not work.is_left, time, t)
            joined = joiner(k, v, value) if work.is_left else joiner(k, value, v)
            forward(k, joined, t if t > time else time, c)
        if not rows and work.outer:
            if unmatched is None or high < tracker.stream_time:
                work.forward(k, self._joined(k, v, None), t, c)
            else:
                tracker.min_time = min(tracker.min_time, t)
                unmatched.put(kb, work.is_left, v, t, t)

    def _joined(self, k: Any, this: Any, other: Any) -> Any:
        joiner = self._work.joiner
        return joiner(k, this, other) if self._work.is_left else joiner(k, other, this)

    def _release(self, t: int, c: Any) -> None:
        """Forward, as unmatched, the records whose windows have closed (emitNonJoinedOuterRecords)."""
        work, tracker, rt = self._work, self._tracker, self._rt
        waits = tracker.min_time + work.after + work.grace
        # Java's sum overflows while nothing has waited, and so goes on to look: that resets the throttle.
        if tracker.stream_time <= waits <= NEVER:
            return
        now = rt.now()
        if now < tracker.next_emit:
            return
        tracker.next_emit = now + rt.emit_intervals.joins
        tracker.min_time = NEVER
        open_sides: set[bool] = set()
        previous: Any = None
        previous_key: Any = None
        for entry, value in _one_by_one(self._unmatched.scan()):
            tracker.min_time = entry.timestamp
            if len(open_sides) == 2:
                break
            lookahead = work.left_lookahead if entry.left else work.right_lookahead
            if entry.timestamp + lookahead + work.grace >= tracker.stream_time:
                open_sides.add(entry.left)
                continue
            key = work.decode_key(entry.key)
            joined = work.joiner(key, value, None) if entry.left else work.joiner(key, None, value)
            work.forward(key, joined, entry.timestamp, c)
            # Deleted one later: a key's values stay until all of them are out. Where the next row has an equal key in
            # other bytes, Java leaves this one for the next time, and so it comes out twice.
            if previous is not None and previous is not entry and not self._is_one(previous, previous_key, entry, key):
                self._remove(previous, t)
            previous, previous_key = entry, key
        if previous is not None:
            self._remove(previous, t)

    def _is_one(self, one: Any, one_key: Any, other: Any, other_key: Any) -> bool:
        """Return whether two entries are the same one for Java (TimestampedKeyAndJoinSide.equals)."""
        alike = (one.timestamp, one.left) == (other.timestamp, other.left)
        return alike and self._work.same_key(one_key, other_key)

    def _remove(self, entry: Any, t: int) -> None:
        self._unmatched.remove(entry.key, entry.left, entry.timestamp, t)


def _one_by_one(entries: Iterable[Any]) -> Iterator[tuple[Any, Any]]:
    """Yield each waiting value with its entry: Java walks value by value, and its bookkeeping shows it."""
    for entry in entries:
        for value in entry.values:
            yield entry, value


class SelfJoin:
    """A stream joined with itself over one store (single.store.self.join)."""

    def __init__(self, rt: Any, store: Any, retention: int, work: JoinWork):
        self._rt = rt
        self._store = store
        self._retention = retention
        self._work = work
        self._stream_time = NO_TIMESTAMP

    def process(self, kb: bytes | None, k: Any, v: Any, t: int, c: Any) -> None:
        """Join a record with those before it on both sides, and with itself, in the order of an inner join."""
        work = self._work
        if kb is None or v is None:
            self._rt.dropped()
            return
        own = work.joiner(k, v, v)
        self._stream_time = max(self._stream_time, t)
        alone = t > self._stream_time - self._retention + 1
        for time, value in many(self._store.fetch(kb, max(0, t - work.before), max(0, t + work.after))):
            work.forward(k, work.joiner(k, v, value), max(t, time), c)
        for time, value in many(self._store.fetch(kb, max(0, t - work.after), max(0, t + work.before))):
            if t < time and alone:
                alone = False
                work.forward(k, own, t, c)
            work.forward(k, work.joiner(k, value, v), max(t, time), c)
        if alone:
            work.forward(k, own, t, c)
