"""The buffered side of a stream-table join with grace (KStreamKTableJoinProcessor)."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from streamkit.state.context import RecordContext


class GraceJoin:
    """Holds stream records until stream time has passed them by the grace, then joins them in order of time.

    `join(key, value, timestamp, context)` looks the table up as of the record and forwards. Only records that are put
    into the buffer move its stream time: none without a key or value, and none that comes too late.
    """

    def __init__(self, buffer: Any, decode_key: Callable[[bytes], Any], join: Callable[[Any, Any, int, Any], None]):
        self._buffer = buffer
        self._decode_key = decode_key
        self._join = join

    def process(self, kb: bytes, k: Any, v: Any, t: int, c: Any) -> None:
        """Buffer a record and join those whose grace is over; one that comes too late joins at once."""
        headers, topic, partition, offset = c
        if not self._buffer.put(kb, v, RecordContext(t, offset, topic, partition, headers)):
            self._join(k, v, t, c)
            return
        current = self._buffer.topic
        in_hand = current.size
        for entry in self._buffer.release():
            at = entry.context
            context = (at.headers, at.topic, at.partition, at.offset)
            current.size = len(at.topic or "")
            self._join(self._decode_key(entry.key), entry.new, at.timestamp, context)
        current.size = in_hand
