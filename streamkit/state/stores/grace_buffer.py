"""The buffer of a stream-table join with grace: records wait until their grace is over (RocksDBTimeOrderedKeyValueBuffer)."""

from __future__ import annotations

from collections.abc import Iterator
from typing import ClassVar

from streamkit.record import Headers, Key, Value
from streamkit.state.definitions import BytesMap, StoreContext, StoreDef
from streamkit.state.keys import MAX_SEQUENCE, pack_int, pack_long, unpack_long
from streamkit.state.record_context import BufferValue, ProcessorRecordContext, decode_buffer_value
from streamkit.state.stores.changelogged import MapStore
from streamkit.state.stores.suppress_buffer import Eviction

_TIME_FIRST = b"\x00"


class JoinGraceBuffer(MapStore):
    """Records by (timestamp, key, arrival); keys are 0 + timestamp8 + key + sequence4, in map and changelog.

    Values are those of `BufferValue` with nothing prior or old. The producer assigns the timestamps of the changelog.
    """

    volatile: ClassVar[tuple[str, ...]] = ("observed_time", "_sequence")

    def __init__(self, definition: StoreDef, entries: BytesMap, context: StoreContext):
        super().__init__(definition, entries, context)
        self.grace = definition.grace or 0
        self.observed_time = -1
        self._sequence = 0
        self._encode = definition.value_serde.encode
        self._decode = definition.value_serde.decode

    def put(self, key: bytes, value: Value, context: ProcessorRecordContext) -> bool:
        """Buffer a record (value not None) until its grace is over; False if it is over already: join it at once.

        Raises SerdeError.
        """
        timestamp = context.timestamp
        if timestamp < self.observed_time - self.grace:
            return False
        self._sequence = (self._sequence + 1) & MAX_SEQUENCE
        row = _TIME_FIRST + pack_long(timestamp) + key + pack_int(self._sequence)
        data = BufferValue(None, None, self._encode(value), context).encode(0)
        self._map.put(row, data)
        self.observed_time = max(self.observed_time, timestamp)
        self._log(row, data, None, None)
        return True

    def release(self) -> Iterator[Eviction]:
        """Remove, one by one, the records with timestamp <= observed time - grace, by (timestamp, key, arrival)."""
        bound = self.observed_time - self.grace
        if bound < 0:
            return
        end = _TIME_FIRST + pack_long(bound + 1)
        for row, data in list(self._map.range(None, end, include_high=False)):
            value, _ = decode_buffer_value(data)
            assert value.new is not None
            yield Eviction(row[9:-4], self._decode(value.new), None, value.context)
            self._map.put(row, None)
            self._log(row, None, None, None)

    def rows(self) -> Iterator[tuple[Key, Value]]:
        """Yield (key, value) of the buffered records, decoded, by (timestamp, key, arrival)."""
        for row, data in self._map.range(None, None):
            new = decode_buffer_value(data)[0].new
            yield self.key_serde.decode(row[9:-4]), None if new is None else self._decode(new)

    def restore(self, key: bytes, value: bytes | None, timestamp: int, headers: Headers | None) -> None:
        """Apply one changelog record."""
        self._map.put(key, value)
        self.observed_time = max(self.observed_time, unpack_long(key, 1)[0])
