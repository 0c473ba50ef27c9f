"""Aggregation over tumbling and hopping windows (KStreamWindowAggregate)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from streamkit.operators.kernels.emit_final import NO_TIMESTAMP, FinalEmitter
from streamkit.record import WindowedKey


@dataclass(frozen=True)
class WindowWork:
    """What a windowed aggregation needs of its node: times in milliseconds, callables over decoded values."""

    store_name: str
    size: int
    """Of sliding windows the time difference; of session windows the inactivity gap."""
    advance: int
    grace: int
    final: bool
    """Whether only closed windows are emitted."""
    cached: bool
    """Whether updates are forwarded by the store's cache rather than at once."""
    send_old: bool
    initial: Callable[[], Any]
    add: Callable[[Any, Any, Any, int, Any], Any]
    """(key, value, aggregate, timestamp, context) to the new aggregate."""
    forward: Callable[[Any, Any, Any, int, Any, bool], None]
    """(windowed key, new, old, timestamp, context, latest)."""
    decode_key: Callable[[bytes], Any]
    merge: Callable[[Any, Any, Any], Any] | None = None
    """Of session windows: (key, left, right) to the aggregate of both."""


class TimeWindowAggregate:
    """One node's work; `process` is called with records whose key is not None."""

    def __init__(self, rt: Any, store: Any, work: WindowWork):
        self._store = store
        self._work = work
        self._dropped = rt.dropped
        self.observed = NO_TIMESTAMP
        """Stream time, as this node has seen it; generated code moves it on, too."""
        self._emitter = FinalEmitter(rt, work.store_name) if work.final else None

    def process(self, kb: bytes, k: Any, v: Any, t: int, c: Any) -> None:
        """Update each open window of a record in ascending order of start, then emit what has closed."""
        work, store = self._work, self._store
        if t > self.observed:
            self.observed = t
        close_time = self.observed - work.grace
        size, advance = work.size, work.advance
        start = (t - size + advance) // advance * advance if t > size - advance else 0
        while start <= t:
            if start + size > close_time:
                self._update(store, kb, k, v, t, c, start)
            else:
                self._dropped()
            start += advance
        if self._emitter is not None and self._emitter.due(close_time):
            self._emit(close_time, c)

    def _update(self, store: Any, kb: bytes, k: Any, v: Any, t: int, c: Any, start: int) -> None:
        work = self._work
        found = store.fetch(kb, start)
        if found is None:
            old, time = work.initial(), t
        else:
            old, time = found
            time = max(time, t)
        new = work.add(k, v, old, t, c)
        # A tombstone carries the time of the current record in the changelog, whatever is forwarded.
        store.put(kb, start, new, t if new is None else time, c)
        if not work.cached and not work.final:
            key = WindowedKey(k, start, start + work.size)
            work.forward(key, new, old if work.send_old else None, time, c, True)

    def _emit(self, close_time: int, c: Any) -> None:
        work, emitter = self._work, self._emitter
        assert emitter is not None
        high = close_time - work.size
        if high < 0:
            return
        last = emitter.last_close
        low = 0 if last == NO_TIMESTAMP else max(0, last - work.size) + 1
        if last != NO_TIMESTAMP and self._starts(high) == self._starts(low - 1):
            return
        for kb, start, value, time in self._store.fetch_all(low, high, use=True):
            work.forward(WindowedKey(work.decode_key(kb), start, start + work.size), value, None, time, c, True)
        emitter.emitted(close_time)

    def _starts(self, t: int) -> range:
        # Equal ranges hold equal windows: between them no window has closed.
        size, advance = self._work.size, self._work.advance
        return range(max(0, t - size + advance) // advance * advance, t + 1, advance)
