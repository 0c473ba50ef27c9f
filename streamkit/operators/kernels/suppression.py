"""Suppression of intermediate updates of a table (KTableSuppressProcessorSupplier)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from streamkit.errors import StreamkitError
from streamkit.record import FullContext, Key, Value
from streamkit.state.record_context import ProcessorRecordContext

if TYPE_CHECKING:
    from streamkit.operators.kernels.signatures import DecodeKey, ForwardChange
    from streamkit.state.stores.suppress_buffer import Eviction, SuppressBuffer


@dataclass(frozen=True)
class SuppressWork:
    """The settings of a suppress node; times in milliseconds, sizes in bytes, None: no bound."""

    node_name: str
    duration: int
    """How long after its buffer time an entry waits; the grace where windows close."""
    by_window_end: bool
    """Whether buffer time is the window's end rather than the record's time."""
    drop_tombstones: bool
    max_records: int | None
    max_bytes: int | None
    emit_early: bool
    forward: ForwardChange
    decode_key: DecodeKey


class Suppress:
    """The work of one node."""

    volatile: ClassVar[tuple[str, ...]] = ("_observed",)

    def __init__(self, buffer: SuppressBuffer, work: SuppressWork):
        self._buffer = buffer
        self._work = work
        self._observed = -1

    def process(self, kb: bytes, k: Key, new: Value, old: Value, t: int, c: FullContext) -> None:
        """Buffer a change, forward what is due, and keep the buffer within its bounds.

        Raises StreamkitError where it is full and may not emit.
        """
        work, buffer = self._work, self._buffer
        if t > self._observed:
            self._observed = t
        headers, topic, partition, offset = c
        context = ProcessorRecordContext(t, offset, topic, partition, headers)
        buffer.put(k.end if work.by_window_end else t, kb, new, old, context)
        for entry in buffer.evict_until(self._observed - work.duration):
            self._emit(entry)
        while self._is_full():
            if not work.emit_early:
                raise StreamkitError(
                    f"{work.node_name} buffer exceeded its max capacity. Currently [{buffer.count}/{_shown(work.max_records)}] "
                    f"records and [{buffer.size}/{_shown(work.max_bytes)}] bytes."
                )
            oldest = buffer.first()
            assert oldest is not None
            self._emit(oldest)
            buffer.remove_first()

    def _is_full(self) -> bool:
        work, buffer = self._work, self._buffer
        too_many = work.max_records is not None and buffer.count > work.max_records
        return too_many or (work.max_bytes is not None and buffer.size > work.max_bytes)

    def _emit(self, entry: Eviction) -> None:
        work = self._work
        if entry.new is not None or not work.drop_tombstones:
            at = entry.context
            context = (at.headers, at.topic, at.partition, at.offset)
            current = self._buffer.topic
            saved_size, current.size = current.size, len(at.topic or "")
            work.forward(work.decode_key(entry.key), entry.new, entry.old, at.timestamp, context, True)
            current.size = saved_size


def _shown(bound: int | None) -> int:
    # Java prints Long.MAX_VALUE where there is no bound.
    return (1 << 63) - 1 if bound is None else bound
