"""Aggregation over sliding windows (KStreamSlidingWindowAggregate): [t - difference, t] and [t + 1, t + 1 + difference]."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar, TypeAlias

from streamkit.metrics import DropReason
from streamkit.operators.kernels.emit_final import NO_TIMESTAMP, FinalEmitter
from streamkit.operators.kernels.time_window import WindowWork
from streamkit.record import Key, RecordContext, Value, WindowedKey
from streamkit.rounds import MANY, ROW, made

if TYPE_CHECKING:
    from streamkit.operators.core.task_services import TaskServices
    from streamkit.state.stores.window_store import WindowStore

Found: TypeAlias = tuple[Value, int]
"""An aggregate and the highest timestamp in it."""


class SlidingWindowAggregate:
    """The work of one node; `process` is called with records whose key and value are not None."""

    volatile: ClassVar[tuple[str, ...]] = ("_observed",)

    def __init__(self, rt: TaskServices, store: WindowStore, work: WindowWork):
        self._store = store
        self._work = work
        self._dropped = rt.dropped
        self._observed = NO_TIMESTAMP
        self._close = 0
        self._emitter = FinalEmitter(rt, work.store_name) if work.final else None
        self._record: tuple[bytes, Key, Value, int, RecordContext] = (b"", None, None, 0, None)

    def process(self, kb: bytes, k: Key, v: Value, t: int, c: RecordContext) -> None:
        """Update the windows that contain a record, and create those that it opens."""
        if t > self._observed:
            self._observed = t
        self._close = self._observed - self._work.grace
        self._record = (kb, k, v, t, c)
        if t + self._work.size < self._close:
            self._dropped(DropReason.LATE)
        elif t < self._work.size:
            # A window can't begin before 0: early records share the first one, and emit nothing.
            self._early(kb, t)
        else:
            self._regular(kb, t)
            if self._emitter is not None and self._emitter.due(self._close):
                self._emit(c)

    def _regular(self, kb: bytes, t: int) -> None:
        difference = self._work.size
        window_starts: set[int] = set()
        left: Found | None = None
        right: Found | None = None
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
            made(ROW * len(window_starts))
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
        first: Found | None = None
        right: Found | None = None
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
            made(ROW * len(window_starts))
        if previous is not None and previous + 1 not in window_starts:
            self._update(previous + 1, self._fresh(t))
        self._update(0, first if first is not None else self._fresh(t))

    def _fresh(self, t: int) -> Found:
        return (self._work.initial(), t)

    def _open_right(self, found: Found) -> None:
        kb, k, _, t, c = self._record
        self._store.put(kb, t + 1, found[0], found[1], c)
        self._forward(k, t + 1, found[0], None, found[1], c)

    def _update(self, start: int, found: Found) -> None:
        kb, k, v, t, c = self._record
        if start + self._work.size < self._close:
            self._dropped(DropReason.LATE)
            return
        old, time = found
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
