"""Joins of two streams within a window (KStreamKStreamJoin, KStreamJoinWindow, KStreamKStreamSelfJoin)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from streamkit.metrics import DropReason
from streamkit.record import Key, RecordContext, Value
from streamkit.rounds import MANY, many

if TYPE_CHECKING:
    from streamkit.operators.core.task_services import TaskServices
    from streamkit.operators.kernels.signatures import DecodeKey, Forward, Joiner
    from streamkit.state.stores.key_rows import JoinRow
    from streamkit.state.stores.stream_join_store import JoinWindowStore, OuterJoinStore, Waiting

NO_TIMESTAMP = -1
NEVER = (1 << 63) - 1


class TimeTracker:
    """The state that the two sides of a join share in a task: stream time and the time of the oldest unmatched record."""

    volatile: ClassVar[tuple[str, ...]] = ("stream_time", "min_time")

    __slots__ = ("min_time", "next_emit", "stream_time")

    def __init__(self) -> None:
        self.stream_time = NO_TIMESTAMP
        self.min_time = NEVER
        self.next_emit = 0


@dataclass(frozen=True)
class JoinWork:
    """The settings and functions of one side of a join; times in milliseconds."""

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
    joiner: Joiner
    forward: Forward
    decode_key: DecodeKey
    same_key: Callable[[Key, Key], bool]
    """Whether two decoded keys are equal."""


class StreamJoin:
    """One side of a join; `matches` is called for each of its records."""

    def __init__(
        self,
        rt: TaskServices,
        other: JoinWindowStore,
        unmatched: OuterJoinStore | None,
        tracker: TimeTracker,
        work: JoinWork,
    ):
        self._rt = rt
        self._between = other.between
        self._unmatched = unmatched
        self._tracker = tracker
        self._work = work
        self._before, self._after, self._outer = work.before, work.after, work.outer

    def matches(self, kb: bytes | None, k: Key, v: Value, t: int, c: RecordContext) -> Sequence[JoinRow]:
        """Return the other side's records within the window, in order; the caller joins them.

        First the unmatched records that have expired are released. A record without a match is forwarded, or waits.
        """
        tracker, unmatched = self._tracker, self._unmatched
        if t > tracker.stream_time:
            tracker.stream_time = t
        if k is None or kb is None or v is None:
            if k is None and v is not None and self._outer:
                self._work.forward(k, self._joined(k, v, None), t, c)
                return ()
            if kb is None or v is None:
                self._rt.dropped(DropReason.NULL)
                return ()
        if unmatched is not None and t == tracker.stream_time:
            self._release(unmatched, t, c)
        low, high = t - self._before, t + self._after
        if high < 0:
            high = 0
        rows = self._between(kb, low if low > 0 else 0, high)
        if not rows:
            if self._outer:
                self._no_match(kb, k, v, t, c, high)
        elif len(rows) > MANY:
            many(rows)
        return rows

    def _no_match(self, kb: bytes, k: Key, v: Value, t: int, c: RecordContext, high: int) -> None:
        work, tracker, unmatched = self._work, self._tracker, self._unmatched
        if unmatched is None or high < tracker.stream_time:
            work.forward(k, self._joined(k, v, None), t, c)
        else:
            tracker.min_time = min(tracker.min_time, t)
            unmatched.put(kb, work.is_left, v, t, t)

    def _joined(self, k: Key, this: Value, other: Value) -> Value:
        joiner = self._work.joiner
        return joiner(k, this, other) if self._work.is_left else joiner(k, other, this)

    def _release(self, unmatched: OuterJoinStore, t: int, c: RecordContext) -> None:
        """Forward, as unmatched, the records whose windows have closed (emitNonJoinedOuterRecords)."""
        work, tracker, rt = self._work, self._tracker, self._rt
        waits = tracker.min_time + work.after + work.grace
        # Java's sum overflows while nothing has waited, so that Java reads the store: that resets the throttle.
        if tracker.stream_time <= waits <= NEVER:
            return
        now = rt.now()
        if now < tracker.next_emit:
            return
        tracker.next_emit = now + rt.emit_intervals.joins
        tracker.min_time = NEVER
        open_sides: set[bool] = set()
        previous: Waiting | None = None
        previous_key: Key = None
        for entry, value in _one_by_one(unmatched.scan()):
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
            # An entry is deleted with the next one: it stays until all its values are forwarded. Where the next row has
            # an equal key in other bytes, Java keeps this entry until the next release, and forwards it twice.
            if previous is not None and previous is not entry and not self._is_one(previous, previous_key, entry, key):
                unmatched.remove(previous.key, previous.left, previous.timestamp, t)
            previous, previous_key = entry, key
        if previous is not None:
            unmatched.remove(previous.key, previous.left, previous.timestamp, t)

    def _is_one(self, one: Waiting, one_key: Key, other: Waiting, other_key: Key) -> bool:
        """Return whether two entries are the same one for Java (TimestampedKeyAndJoinSide.equals)."""
        alike = (one.timestamp, one.left) == (other.timestamp, other.left)
        return alike and self._work.same_key(one_key, other_key)


def _one_by_one(entries: Iterable[Waiting]) -> Iterator[tuple[Waiting, Value]]:
    """Yield each waiting value with its entry: Java notes times and open sides value by value."""
    for entry in entries:
        for value in entry.values:
            yield entry, value


class SelfJoin:
    """A stream joined with itself over one store (single.store.self.join)."""

    volatile: ClassVar[tuple[str, ...]] = ("_stream_time",)

    def __init__(self, rt: TaskServices, store: JoinWindowStore, retention: int, work: JoinWork):
        self._rt = rt
        self._store = store
        self._retention = retention
        self._work = work
        self._stream_time = NO_TIMESTAMP

    def process(self, kb: bytes | None, k: Key, v: Value, t: int, c: RecordContext) -> None:
        """Join a record with those before it on both sides, and with itself, in the order of an inner join."""
        work = self._work
        if kb is None or v is None:
            self._rt.dropped(DropReason.NULL)
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
