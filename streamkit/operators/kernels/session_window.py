"""Aggregation over session windows (KStreamSessionWindowAggregate)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from streamkit.metrics import DropReason
from streamkit.operators.kernels.emit_final import NO_TIMESTAMP, FinalEmitter
from streamkit.operators.kernels.time_window import WindowWork
from streamkit.record import Key, RecordContext, Value, WindowedKey

if TYPE_CHECKING:
    from streamkit.operators.core.task_services import TaskServices
    from streamkit.state.stores.session_store import SessionStore


class SessionWindowAggregate:
    """The work of one node; `process` is called with records whose key is not None.

    The timestamp of a result is its session's end.
    """

    volatile: ClassVar[tuple[str, ...]] = ("_observed",)

    def __init__(self, rt: TaskServices, store: SessionStore, work: WindowWork, node: int):
        assert work.merge is not None
        self._store = store
        self._work = work
        self._merge = work.merge
        self._dropped = rt.dropped
        self._observed = NO_TIMESTAMP
        # Java fails at records before this time. None fails here where that would end the application.
        self._searchable = store.searched_from + work.size if rt.skips_failures(node) else 0
        self._emitter = FinalEmitter(rt, work.store_name) if work.final else None

    def process(self, kb: bytes, k: Key, v: Value, t: int, c: RecordContext) -> None:
        """Merge the sessions within the gap of a record: remove them, and put the merged one."""
        work, store = self._work, self._store
        if t > self._observed:
            self._observed = t
        gap = work.size
        close_time = self._observed - work.grace - gap
        start = end = t
        aggregate = work.initial()
        if t < self._searchable:
            raise ValueError(
                f"the search for sessions begins at {t - gap} ms, and like that of Kafka Streams can't begin before "
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
        if self._emitter is not None and self._emitter.due(close_time):
            self._emit(close_time, c)

    def _forward(self, key: WindowedKey, new: Value, old: Value, c: RecordContext) -> None:
        work = self._work
        if not work.cached and not work.final:
            # Java makes a new record here, which has no headers; a record that leaves a cache keeps them.
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
