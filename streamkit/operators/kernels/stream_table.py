"""The buffered side of a stream-table join with grace (KStreamKTableJoinProcessor)."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamkit.record import FullContext, Key, Value
from streamkit.state.record_context import ProcessorRecordContext

if TYPE_CHECKING:
    from streamkit.operators.kernels.signatures import DecodeKey, Forward
    from streamkit.state.stores.suppress_buffer import JoinGraceBuffer


class GraceJoin:
    """Buffers stream records until stream time is past them by the grace, then joins them in order of time.

    `join` looks up the table as of a record and forwards the result. Only records that are put into the buffer advance
    its stream time: none without a key or value, and none that comes too late.
    """

    def __init__(self, buffer: JoinGraceBuffer, decode_key: DecodeKey, join: Forward):
        self._buffer = buffer
        self._decode_key = decode_key
        self._join = join

    def process(self, kb: bytes, k: Key, v: Value, t: int, c: FullContext) -> None:
        """Buffer a record and join those whose grace is over; a record that is too late is joined at once."""
        headers, topic, partition, offset = c
        if not self._buffer.put(kb, v, ProcessorRecordContext(t, offset, topic, partition, headers)):
            self._join(k, v, t, c)
            return
        current = self._buffer.topic
        saved_size = current.size
        for entry in self._buffer.release():
            at = entry.context
            context = (at.headers, at.topic, at.partition, at.offset)
            current.size = len(at.topic or "")
            self._join(self._decode_key(entry.key), entry.new, at.timestamp, context)
        current.size = saved_size
