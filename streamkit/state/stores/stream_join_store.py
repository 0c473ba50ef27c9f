"""The stores of stream-stream joins: windows with duplicates, and records that have no match yet."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import ClassVar, NamedTuple, cast

from streamkit.metrics import DropReason
from streamkit.record import Headers, Key, Value, WindowedKey
from streamkit.serdes.plain import Json
from streamkit.serdes.sides import RAW, Side, guarded, side_of
from streamkit.state.definitions import BytesMap, ChangelogRecord, Rows, RowWriter, StoreContext, StoreDef
from streamkit.state.engines.segments import Segments, of_segments
from streamkit.state.layouts import MAX_LONG, MAX_SEQUENCE, pack_int, pack_long, unpack_int, unpack_long
from streamkit.state.stores.changelogged import MapStore, NumberedStore, window_key_side
from streamkit.state.stores.key_rows import SUFFIX, JoinRow, JoinRows

_pack_suffix = SUFFIX.pack
_SCAN_CHUNK = 64


class JoinWindowStore(NumberedStore):
    """One side's records by key, timestamp and arrival (RocksDBWindowStore with retainDuplicates).

    Map and changelog have the key key + timestamp8 + sequence4. Values are plain. The changelog has the headers of the records
    (ChangeLoggingTimestampedWindowBytesStoreWithHeaders), the store has none.
    """

    around: ClassVar[tuple[int, int]] = (0, 12)
    converts: ClassVar[bool] = True

    @classmethod
    def changelog_sides(cls, definition: StoreDef) -> tuple[Side, Side]:
        return window_key_side(definition), side_of(definition.value_serde)

    @classmethod
    def changelog_records(cls, rows: Rows) -> Iterator[ChangelogRecord]:
        for key, data in of_segments(rows):
            yield ChangelogRecord(0, key, data, unpack_long(key, len(key) - 12)[0])

    def __init__(self, definition: StoreDef, entries: BytesMap, context: StoreContext):
        super().__init__(definition, entries, context)
        self._segments: Segments = Segments(
            entries,
            definition.retention or 0,
            definition.persistent,
            suffix=12,
            interval=definition.segment_interval,
            by_key=JoinRows,
        )
        # As in Java, rows in memory have expired as soon as they are written if the window has no length.
        keeps = definition.persistent or definition.retention
        self._put = self._segments.put if keeps else self._expired
        self._rows_between = self._segments.join_rows.fetch
        self._encode = definition.value_serde.encode
        self._decode = definition.value_serde.decode

    @property
    def observed_time(self) -> int:
        """The latest timestamp that was written, -1 before the first."""
        return self._segments.observed

    @observed_time.setter
    def observed_time(self, time: int) -> None:
        self._segments.observed = time

    def put(self, key: bytes, value: Value, timestamp: int, headers: Headers | None = None) -> bool:
        """Add a record; False if it had expired: counted as dropped, but logged, as in Java; so is one without a value."""
        return self.put_bytes(key, None if value is None else self._encode(value), timestamp, headers)

    def put_bytes(self, key: bytes, data: bytes | None, timestamp: int, headers: Headers | None) -> bool:
        """Add a record, given its value's bytes: what `put` does."""
        self._sequence = sequence = (self._sequence + 1) & MAX_SEQUENCE
        suffix = _pack_suffix(timestamp, sequence)
        if data is None:
            # It deletes nothing, as a key has many values. But Java's changelog layer writes it, and it advances the
            # observed time of a store in memory.
            if not self.persistent and not self._segments.touch(timestamp):
                self._dropped(DropReason.EXPIRED)
            self._log(key + suffix, None, timestamp, headers)
            return True
        kept = self._put(timestamp, key, suffix, data)
        if not kept:
            self._dropped(DropReason.EXPIRED)
        self._log(key + suffix, data, timestamp, headers)
        return kept

    def _expired(self, time: int, key: bytes, suffix: bytes, data: bytes | None) -> bool:
        return self._segments.touch(time)

    def between(self, key: bytes, low: int, high: int) -> Sequence[JoinRow]:
        """Return (timestamp, sequence number, value bytes) of a key's records from low to high, both included, in this order."""
        segments = self._segments
        alive = segments.observed - segments.retention + 1
        if alive > low:
            low = alive
        return self._rows_between(key, low, high) if low <= high else ()

    def fetch(self, key: bytes, low: int, high: int) -> list[tuple[int, Value]]:
        """Return (timestamp, value) of a key's records from low to high, both included, by (timestamp, arrival)."""
        decode = self._decode
        return [(time, decode(data)) for time, _, data in self.between(key, low, high)]

    def rows(self) -> Iterator[tuple[Key, Value]]:
        """Yield (WindowedKey, value), decoded, in byte order of keys."""
        alive, size = self._segments.first_alive(0), self.definition.window_size or 0
        for row, data in sorted(self._segments.between(alive, MAX_LONG)):
            start = unpack_long(row, len(row) - 12)[0]
            if start >= alive:
                yield WindowedKey(self.key_serde.decode(row[:-12]), start, start + size), self._decode(data)

    def restore(self, key: bytes, value: bytes | None, timestamp: int, headers: Headers | None) -> None:
        self.note_numbers((key,))
        time = unpack_long(key, len(key) - 12)[0]
        if value is None:
            # Logged for a record without a value, which advances the observed time of stores in memory only.
            if not self.persistent:
                self._segments.touch(time)
            self._segments.remove(time, key)
        else:
            self._segments.put(time, key[:-12], key[-12:], value)

    def restore_batch(
        self, keys: list[bytes], values: list[bytes | None], timestamps: list[int], headers: list[Headers | None]
    ) -> None:
        if None in values:
            super().restore_batch(keys, values, timestamps, headers)
            return
        self.note_numbers(keys)
        unpack = unpack_long
        self._segments.load(
            (unpack(key, len(key) - 12)[0], key, value) for key, value in zip(keys, values, strict=True)
        )


class Waiting(NamedTuple):
    """Records of one key, side and timestamp that have found no match so far, in order of arrival."""

    timestamp: int
    left: bool
    key: bytes
    values: list[Value]


class OuterJoinStore(MapStore):
    """The unmatched records of both sides of a left or outer join, by timestamp, side and key (ListValueStore).

    Keys are timestamp8 + side byte (1 left, 0 right) + key; values `01`, count4, and per record length4, side byte,
    value bytes. `value_serde` is the left side's, option `right_serde` the right side's.
    """

    around: ClassVar[tuple[int, int]] = (9, 0)

    @classmethod
    def row_writer(cls, definition: StoreDef) -> RowWriter:
        key_json, left_json = definition.key_serde.to_json, definition.value_serde.to_json
        right_json = (definition.right_serde or definition.value_serde).to_json

        def write(key: Key, values: Value) -> tuple[Json, Json]:
            unmatched = cast("dict[str, Json]", key)
            value_json = left_json if unmatched["side"] == "left" else right_json
            shown = {**unmatched, "key": key_json(unmatched["key"])}
            return shown, [value_json(value) for value in cast("list[Value]", values)]

        return write

    @classmethod
    def changelog_sides(cls, definition: StoreDef) -> tuple[Side, Side]:
        """Return the forms of the changelog's keys and values; the serde of a value is that of the side that the key names."""
        serde = definition.key_serde

        def decode(data: bytes) -> dict[str, Value]:
            side = "left" if data[8] else "right"
            return {"key": serde.decode(data[9:]), "timestamp": unpack_long(data)[0], "side": side}

        return Side(guarded(decode), lambda key: {**key, "key": serde.to_json(key["key"])}), RAW

    @classmethod
    def changelog_records(cls, rows: Rows) -> Iterator[ChangelogRecord]:
        for key, data in rows:
            yield ChangelogRecord(0, key, data, unpack_long(key)[0])

    def __init__(self, definition: StoreDef, entries: BytesMap, context: StoreContext):
        super().__init__(definition, entries, context)
        self._serdes = (definition.right_serde or definition.value_serde, definition.value_serde)

    def put(self, key: bytes, left: bool, value: Value, timestamp: int, now: int) -> None:
        """Add an unmatched record; `now` is the timestamp of the current record, which the changelog record gets."""
        row = _outer_key(timestamp, left, key)
        item = (b"\x01" if left else b"\x00") + self._serdes[left].encode(value)
        before = self._map.get(row)
        items = [] if before is None else _items(before)
        items.append(item)
        data = b"".join([b"\x01", pack_int(len(items)), *(pack_int(len(one)) + one for one in items)])
        self._map.put(row, data)
        self._log(row, data, now, None)

    def remove(self, key: bytes, left: bool, timestamp: int, now: int) -> bool:
        """Delete the unmatched records of a key, side and timestamp, as a match does; False, and no log, if there are none."""
        row = _outer_key(timestamp, left, key)
        if self._map.get(row) is None:
            return False
        self._map.put(row, None)
        self._log(row, None, now, None)
        return True

    def scan(self) -> Iterator[Waiting]:
        """Yield unmatched records by timestamp, right before left, key bytes; entries may be removed meanwhile."""
        low: bytes | None = None
        while True:
            chunk = list(self._map.range(low, None, limit=_SCAN_CHUNK))
            for row, data in chunk:
                left = row[8] == 1
                decode = self._serdes[left].decode
                yield Waiting(unpack_long(row)[0], left, row[9:], [decode(item[1:]) for item in _items(data)])
            if len(chunk) < _SCAN_CHUNK:
                return
            low = chunk[-1][0] + b"\x00"

    def min_time(self) -> int:
        """Return the lowest timestamp of an unmatched record, or the largest long."""
        for row, _ in self._map.range(None, None, limit=1):
            lowest: int = unpack_long(row)[0]
            return lowest
        return MAX_LONG

    def rows(self) -> Iterator[tuple[Key, Value]]:
        """Yield ({"key", "timestamp", "side"}, values), decoded, in byte order of keys."""
        for entry in self.scan():
            side = "left" if entry.left else "right"
            key = {"key": self.key_serde.decode(entry.key), "timestamp": entry.timestamp, "side": side}
            yield key, entry.values

    def restore(self, key: bytes, value: bytes | None, timestamp: int, headers: Headers | None) -> None:
        self._map.put(key, value)


def _outer_key(timestamp: int, left: bool, key: bytes) -> bytes:
    return pack_long(timestamp) + (b"\x01" if left else b"\x00") + key


def _items(data: bytes) -> list[bytes]:
    """Return the items of a list value, each beginning with its side byte."""
    items, position = [], 5
    for _ in range(unpack_int(data, 1)[0]):
        end = position + 4 + unpack_int(data, position)[0]
        items.append(data[position + 4 : end])
        position = end
    return items
