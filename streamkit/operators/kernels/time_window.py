"""Aggregation over tumbling and hopping windows (KStreamWindowAggregate)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from streamkit.metrics import DropReason
from streamkit.operators.kernels.emit_final import NO_TIMESTAMP, FinalEmitter
from streamkit.record import Key, RecordContext, Value, WindowedKey

if TYPE_CHECKING:
    from streamkit.operators.core.task_services import TaskServices
    from streamkit.operators.kernels.signatures import DecodeKey, ForwardChange, Joiner
    from streamkit.state.stores.window_store import WindowStore


@dataclass(frozen=True)
class WindowWork:
    """The settings and functions of a windowed aggregation; times in milliseconds, functions take decoded values."""

    store_name: str
    size: int
    """Of sliding windows the time difference, of session windows the inactivity gap."""
    advance: int
    grace: int
    final: bool
    """Whether only closed windows are emitted."""
    cached: bool
    """Whether updates are forwarded by the store's cache rather than at once."""
    send_old: bool
    initial: Callable[[], Value]
    add: Callable[[Key, Value, Value, int, RecordContext], Value]
    """(key, value, aggregate, timestamp, context) to the new aggregate."""
    forward: ForwardChange
    """Takes windowed keys."""
    decode_key: DecodeKey
    merge: Joiner | None = None
    """Of session windows: (key, left, right) to the aggregate of both."""
    changes_only: bool = False
    """Whether a result that is the aggregate itself is neither written nor forwarded."""


class TimeWindowAggregate:
    """The work of one node; `process` is called with records whose key is not None."""

    volatile: ClassVar[tuple[str, ...]] = ("observed",)

    def __init__(self, rt: TaskServices, store: WindowStore, work: WindowWork):
        self._store = store
        self._work = work
        self._dropped = rt.dropped
        self.observed = NO_TIMESTAMP
        """The stream time of this node; generated code advances it, too."""
        self._emitter = FinalEmitter(rt, work.store_name) if work.final else None

    def process(self, kb: bytes, k: Key, v: Value, t: int, c: RecordContext) -> None:
        """Update each open window of a record in ascending order of start, then emit the windows that have closed."""
        work = self._work
        if t > self.observed:
            self.observed = t
        close_time = self.observed - work.grace
        size, advance = work.size, work.advance
        start = (t - size + advance) // advance * advance if t > size - advance else 0
        while start <= t:
            if start + size > close_time:
                self.update(kb, k, v, t, c, start)
            else:
                self._dropped(DropReason.LATE)
            start += advance
        if self._emitter is not None and self._emitter.due(close_time):
            self._emit(close_time, c)

    def update(self, kb: bytes, k: Key, v: Value, t: int, c: RecordContext, start: int) -> None:
        """Update the window of a record that begins at `start` (ms)."""
        work, store = self._work, self._store
        found = store.fetch(kb, start)
        if found is None:
            old, time = work.initial(), t
        else:
            old, time = found
            time = max(time, t)
        new = work.add(k, v, old, t, c)
        if work.changes_only and new is old:
            return
        # A tombstone has the time of the current record in the changelog, whatever time is forwarded.
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
        # Equal ranges hold equal windows: between them no window has closed.
        size, advance = self._work.size, self._work.advance
        return range(max(0, t - size + advance) // advance * advance, t + 1, advance)
