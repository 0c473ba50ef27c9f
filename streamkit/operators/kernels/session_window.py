"""Aggregation over session windows (KStreamSessionWindowAggregate)."""

from __future__ import annotations

from typing import Any

from streamkit.operators.kernels.emit_final import NO_TIMESTAMP, FinalEmitter
from streamkit.operators.kernels.time_window import WindowWork
from streamkit.record import WindowedKey


class SessionWindowAggregate:
    """One node's work; `process` is called with records whose key is not None. Results carry their session's end as time."""

    def __init__(self, rt: Any, store: Any, work: WindowWork):
        assert work.merge is not None
        self._store = store
        self._work = work
        self._merge = work.merge
        self._dropped = rt.dropped
        self._observed = NO_TIMESTAMP
        self._emitter = FinalEmitter(rt, work.store_name) if work.final else None

    def process(self, kb: bytes, k: Any, v: Any, t: int, c: Any) -> None:
        """Merge the sessions that a record touches, remove them, and put the new one."""
        work, store = self._work, self._store
        if t > self._observed:
            self._observed = t
        gap = work.size
        close_time = self._observed - work.grace - gap
        start = end = t
        aggregate = work.initial()
        merged = store.find(kb, t - gap, t + gap, use=True)
        for _, low, high, value in merged:
            aggregate = self._merge(k, aggregate, value)
            start, end = min(start, low), max(end, high)
        if end < close_time:
            self._dropped()
        else:
            # A session of this one moment is updated in place: no tombstone for it.
            if (start, end) != (t, t):
                for _, low, high, value in merged:
                    store.remove(kb, low, high, t, c)
                    self._forward(WindowedKey(k, low, high), None, value, c)
            aggregate = work.add(k, v, aggregate, t, c)
            store.put(kb, start, end, aggregate, t, c)
            self._forward(WindowedKey(k, start, end), aggregate, None, c)
        if self._emitter is not None and self._emitter.due(close_time):
            self._emit(close_time, c)

    def _forward(self, key: WindowedKey, new: Any, old: Any, c: Any) -> None:
        work = self._work
        if not work.cached and not work.final:
            # Java makes a new record here, which has no headers; what leaves a cache keeps them.
            bare = (None, *c[1:]) if isinstance(c, tuple) else None
            work.forward(key, new, old if work.send_old else None, key.end, bare, True)

    def _emit(self, close_time: int, c: Any) -> None:
        work, emitter = self._work, self._emitter
        assert emitter is not None
        high = close_time - 1
        low = max(0, emitter.last_close)
        if high < 0 or high < low:
            return
        for kb, start, end, value in self._store.find_sessions(low, high):
            work.forward(WindowedKey(work.decode_key(kb), start, end), value, None, end, c, True)
        emitter.emitted(close_time)
