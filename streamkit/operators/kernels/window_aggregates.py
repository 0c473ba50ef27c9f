"""The run-time part of windowed aggregations: time, session and sliding windows, and results when windows close."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar, Generic, TypeAlias, TypeVar

from streamkit.metrics import DropReason
from streamkit.record import Key, RecordContext, Value, WindowedKey
from streamkit.rounds import MANY, ROW, count_bytes
from streamkit.state.definitions import Volatile

if TYPE_CHECKING:
    from streamkit.operators.core.task_services import DecodeKey, ForwardChange, Joiner, TaskServices
    from streamkit.state.stores.session_store import SessionStore
    from streamkit.state.stores.window_store import WindowStore


@dataclass(frozen=True)
class WindowWork:
    """The settings and functions of a windowed aggregation. Times are in milliseconds; functions take decoded values."""

    store_name: str
    size: int
    """The time difference of sliding windows, or the inactivity gap of session windows."""
    advance: int
    grace: int
    final: bool
    """Whether only closed windows are emitted."""
    cached: bool
    """Whether the store's cache forwards updates, instead of the node at once."""
    send_old: bool
    initial: Callable[[], Value]
    add: Callable[[Key, Value, Value, int, RecordContext], Value]
    """Maps (key, value, aggregate, timestamp, context) to the new aggregate."""
    forward: ForwardChange
    """Takes windowed keys."""
    decode_key: DecodeKey
    merge: Joiner | None = None
    """For session windows: maps (key, left, right) to the combined aggregate."""
    changes_only: bool = False
    """Whether a result that is identical to the old aggregate is neither written nor forwarded."""


Windows = TypeVar("Windows", "WindowStore", "SessionStore")


class _Kernel(Volatile, Generic[Windows]):
    """The work of one node; `process` is called with records whose key is not None."""

    volatile: ClassVar[tuple[str, ...]] = ("observed",)

    def __init__(self, rt: TaskServices, store: Windows, work: WindowWork):
        self._store: Windows = store
        self._work = work
        self._dropped = rt.dropped
        self.observed = NO_TIMESTAMP
        """The stream time of this node; that of time windows is advanced by generated code too."""
        self._emitter = FinalEmitter(rt, work.store_name, store.keeps) if work.final else None


class TimeWindowAggregate(_Kernel["WindowStore"]):
    """The work on time windows."""

    def process(self, kb: bytes, k: Key, v: Value, t: int, c: RecordContext) -> None:
        """Update each open window of a record in ascending order of start, then emit the windows that have closed."""
        work = self._work
        if t > self.observed:
            self.observed = t
        close_time = self.observed - work.grace
        size, advance = work.size, work.advance
        emitter = self._emitter
        if emitter is not None and emitter.would_lose(size - 1, self.observed):
            self._emit(close_time, c)
        start = (t - size + advance) // advance * advance if t > size - advance else 0
        while start <= t:
            if start + size > close_time:
                self.update(kb, k, v, t, c, start)
            else:
                self._dropped(DropReason.LATE)
            start += advance
        if emitter is not None and emitter.due(close_time):
            self._emit(close_time, c)

    def update(self, kb: bytes, k: Key, v: Value, t: int, c: RecordContext, start: int) -> None:
        """Update the record's window that begins at `start` (ms)."""
        work, store = self._work, self._store
        row = store.fetch(kb, start)
        if row is None:
            old, time = work.initial(), t
        else:
            old, time = row
            time = max(time, t)
        new = work.add(k, v, old, t, c)
        if work.changes_only and new is old:
            return
        # In the changelog, a tombstone has the time of the current record, regardless of the forwarded time.
        store.put(kb, start, new, t if new is None else time, c)
        if not work.cached and not work.final:
            key = WindowedKey(k, start, start + work.size)
            work.forward(key, new, old if work.send_old else None, time, c, True)

    def _emit(self, close_time: int, c: RecordContext) -> None:
        work, emitter = self._work, self._emitter
        assert emitter is not None
        high = close_time - work.size
        if high < 0:
            return
        last = emitter.last_close
        low = 0 if last == NO_TIMESTAMP else max(0, last - work.size) + 1
        if last != NO_TIMESTAMP and self._window_starts(high) == self._window_starts(low - 1):
            return
        for kb, start, value, time in self._store.fetch_all(low, high, use=True):
            work.forward(WindowedKey(work.decode_key(kb), start, start + work.size), value, None, time, c, True)
        emitter.emitted(close_time)

    def _window_starts(self, t: int) -> range:
        # Equal ranges contain the same windows, so no window has closed in between.
        size, advance = self._work.size, self._work.advance
        return range(max(0, t - size + advance) // advance * advance, t + 1, advance)


# Aggregation over session windows (KStreamSessionWindowAggregate).


class SessionWindowAggregate(_Kernel["SessionStore"]):
    """The work on sessions; the timestamp of a result is its session's end."""

    def __init__(self, rt: TaskServices, store: SessionStore, work: WindowWork, node: int):
        super().__init__(rt, store, work)
        assert work.merge is not None
        self._merge = work.merge
        # Java fails for records before this time. Here, no record fails if that would end the application.
        self._searchable = store.searched_from + work.size if rt.skips_failures(node) else 0
        if self._emitter is not None and self._emitter.saves:
            store.keep_open_sessions()

    def process(self, kb: bytes, k: Key, v: Value, t: int, c: RecordContext) -> None:
        """Merge the sessions within the gap of a record: remove them, and put the merged session."""
        work, store = self._work, self._store
        if t > self.observed:
            self.observed = t
        gap = work.size
        close_time = self.observed - work.grace - gap
        emitter = self._emitter
        if emitter is not None and emitter.would_lose(0, self.observed):
            self._emit(close_time, c)
        start = end = t
        aggregate = work.initial()
        if t < self._searchable:
            raise ValueError(
                f"the search for sessions begins at {t - gap} ms, but as in Kafka Streams it can't begin before "
                f"{store.searched_from} ms in a cached store; without a cache (`store: {{caching: false}}`) it can"
            )
        merged = store.find(kb, t - gap, t + gap, use=True)
        for _, low, high, value in merged:
            aggregate = self._merge(k, aggregate, value)
            start, end = min(start, low), max(end, high)
        if end < close_time:
            self._dropped(DropReason.LATE)
        else:
            # A session of this one timestamp is updated in place, without a tombstone.
            if (start, end) != (t, t):
                for _, low, high, value in merged:
                    store.remove(kb, low, high, t, c)
                    self._forward(WindowedKey(k, low, high), None, value, c)
            aggregate = work.add(k, v, aggregate, t, c)
            store.put(kb, start, end, aggregate, t, c)
            self._forward(WindowedKey(k, start, end), aggregate, None, c)
        if emitter is not None and emitter.due(close_time):
            self._emit(close_time, c)

    def _forward(self, key: WindowedKey, new: Value, old: Value, c: RecordContext) -> None:
        work = self._work
        if not work.cached and not work.final:
            # Java creates a new record here, without headers. A record that leaves a cache keeps them.
            bare = (None, *c[1:]) if isinstance(c, tuple) else None
            work.forward(key, new, old if work.send_old else None, key.end, bare, True)

    def _emit(self, close_time: int, c: RecordContext) -> None:
        work, emitter = self._work, self._emitter
        assert emitter is not None
        high = close_time - 1
        low = max(0, emitter.last_close)
        if high < 0 or high < low:
            return
        for kb, start, end, value in self._store.find_sessions(low, high):
            work.forward(WindowedKey(work.decode_key(kb), start, end), value, None, end, c, True)
        emitter.emitted(close_time)


# Aggregation over sliding windows (KStreamSlidingWindowAggregate): [t - difference, t] and [t + 1, t + 1 + difference].

ValueAndTime: TypeAlias = tuple[Value, int]
"""An aggregate and the highest timestamp in it."""


class SlidingWindowAggregate(_Kernel["WindowStore"]):
    """The work on sliding windows; `process` is called with records whose value is not None either."""

    def __init__(self, rt: TaskServices, store: WindowStore, work: WindowWork):
        super().__init__(rt, store, work)
        self._close = 0
        self._record: tuple[bytes, Key, Value, int, RecordContext] = (b"", None, None, 0, None)

    def process(self, kb: bytes, k: Key, v: Value, t: int, c: RecordContext) -> None:
        """Update the windows that contain a record, and create those that it opens."""
        if t > self.observed:
            self.observed = t
        self._close = self.observed - self._work.grace
        emitter = self._emitter
        # A record may begin a window one millisecond after it.
        if emitter is not None and emitter.would_lose(self._work.size, self.observed + 1):
            self._emit(c)
        self._record = (kb, k, v, t, c)
        if t + self._work.size < self._close:
            self._dropped(DropReason.LATE)
        elif t < self._work.size:
            # A window can't begin before 0, so early records share the first one, and emit nothing.
            self._early(kb, t)
        else:
            self._regular(kb, t)
            if emitter is not None and emitter.due(self._close):
                self._emit(c)

    def _regular(self, kb: bytes, t: int) -> None:
        difference = self._work.size
        window_starts: set[int] = set()
        left: ValueAndTime | None = None
        right: ValueAndTime | None = None
        has_left = has_right = False
        previous: int | None = None
        for _, start, value, time in self._store.walk(kb, max(0, t - 2 * difference), t + 1, reverse=True):
            window_starts.add(start)
            end = start + difference
            if start == t + 1:
                has_right = True
            elif end > t:
                if right is None:
                    right = (value, time)
                self._update(start, (value, time))
            elif end == t:
                has_left = True
                self._update(start, (value, time))
                if time >= t:
                    return
                previous = time
            else:
                left, previous = (value, time), time
                break
        if len(window_starts) > MANY:
            count_bytes(ROW * len(window_starts))
        if previous is not None and previous + 1 not in window_starts and previous + 1 + difference >= t:
            self._update(previous + 1, self._fresh(t))
        if not has_left:
            inside = previous is not None and t - difference <= previous
            base = (left[0], t) if inside and left is not None else self._fresh(t)
            self._update(t - difference, base)
        if not has_right and right is not None and right[1] > t:
            self._open_right(right)

    def _early(self, kb: bytes, t: int) -> None:
        window_starts: set[int] = set()
        first: ValueAndTime | None = None
        right: ValueAndTime | None = None
        has_right = False
        previous: int | None = None
        for _, start, value, time in self._store.walk(kb, 0, t + 1):
            window_starts.add(start)
            if start == 0:
                first = (value, time)
                if time < t:
                    previous = time
            elif start <= t:
                right = (value, time)
                self._update(start, right)
            else:
                has_right = True
        if right is None and first is not None and first[1] > t:
            right = first
        if not has_right and right is not None and right[1] > t:
            self._open_right(right)
        if len(window_starts) > MANY:
            count_bytes(ROW * len(window_starts))
        if previous is not None and previous + 1 not in window_starts:
            self._update(previous + 1, self._fresh(t))
        self._update(0, first if first is not None else self._fresh(t))

    def _fresh(self, t: int) -> ValueAndTime:
        return (self._work.initial(), t)

    def _open_right(self, window: ValueAndTime) -> None:
        kb, k, _, t, c = self._record
        self._store.put(kb, t + 1, window[0], window[1], c)
        self._forward(k, t + 1, window[0], None, window[1], c)

    def _update(self, start: int, window: ValueAndTime) -> None:
        kb, k, v, t, c = self._record
        if start + self._work.size < self._close:
            self._dropped(DropReason.LATE)
            return
        old, time = window
        new = self._work.add(k, v, old, t, c)
        time = t if old is None else max(time, t)
        self._store.put(kb, start, new, t if new is None else time, c)
        self._forward(k, start, new, old, time, c)

    def _forward(self, k: Key, start: int, new: Value, old: Value, time: int, c: RecordContext) -> None:
        work = self._work
        if not work.cached and not work.final:
            key = WindowedKey(k, start, start + work.size)
            work.forward(key, new, old if work.send_old else None, time, c, True)

    def _emit(self, c: RecordContext) -> None:
        work, emitter = self._work, self._emitter
        assert emitter is not None
        high = self._close - work.size - 1
        if high < 0:
            return
        low = 0 if emitter.last_close == NO_TIMESTAMP else max(0, emitter.last_close - work.size)
        for kb, start, value, time in self._store.fetch_all(low, high):
            work.forward(WindowedKey(work.decode_key(kb), start, start + work.size), value, None, time, c, True)
        emitter.emitted(self._close)


# The times at which closed windows are emitted (`emit: on_close`), for all kinds of windows.

NO_TIMESTAMP = -1


class FinalEmitter:
    """Decides when to emit and keeps the last close time (AbstractKStreamTimeWindowAggregateProcessor).

    Java emits after a record is stored, and at most once a second. By then the store may have expired windows that have closed:
    after a gap between records, or when a task catches up. With `saves` they are emitted before such a record. The last close time
    is kept with the committed offsets under the store's name, so that a restart continues from it.
    """

    def __init__(self, rt: TaskServices, store_name: str, keeps: Callable[[int, int], bool]):
        """`keeps`: of the store, such as WindowStore.keeps."""
        self._rt = rt
        self._store_name = store_name
        self._keeps = keeps
        self._next_emit = 0
        self.saves = not rt.emit_intervals.may_lose
        """Whether closed windows that the store would expire with a record are emitted before the record is stored."""

    @property
    def last_close(self) -> int:
        """The time up to which closed windows are emitted. It is read each time, because a task gets committed metadata later."""
        return self._rt.processor_metadata.get(self._store_name, NO_TIMESTAMP)

    def would_lose(self, length: int, time: int) -> bool:
        """Return whether a row at `time` may make the store expire closed windows; these lie at most `length` before the last close."""
        return self.saves and not self._keeps(self.last_close - length, time)

    def due(self, close_time: int) -> bool:
        """Return whether windows may be emitted now: after the throttle, and only if close time has advanced."""
        now = self._rt.now()
        if now < self._next_emit:
            return False
        self._next_emit = now + self._rt.emit_intervals.windows
        last = self.last_close
        return last == NO_TIMESTAMP or last < close_time

    def emitted(self, close_time: int) -> None:
        """Record that all windows that have closed by then are emitted."""
        self._rt.processor_metadata[self._store_name] = close_time
