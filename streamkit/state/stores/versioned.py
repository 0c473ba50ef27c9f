"""Versioned key-value stores: every version of a value within a history time (KIP-889, VersionedKeyValueStore)."""

from __future__ import annotations

from collections import deque
from collections.abc import Iterator
from concurrent.futures import Executor
from typing import ClassVar

from streamkit.metrics import DropReason
from streamkit.record import Headers, Key, Value
from streamkit.state.definitions import (
    NOT_PUT,
    VALID_TO_UNDEFINED,
    BytesMap,
    ChangelogRecord,
    Query,
    Rows,
    StoreContext,
    StoreDef,
    StoredRow,
)
from streamkit.state.layouts import MAX_LONG, pack_int, pack_long, unpack_long
from streamkit.state.stores.changelogged import MapStore

_VALUE, _DELETION = b"\x01", b"\x00"
_MARKED_VALUE, _VERSION_OF_NOTHING = b"\x03", b"\x02"
"""A value that replaced a deletion of the same time; a deletion that has a later version. Java keeps a row for both."""


class VersionedStore(MapStore):
    """Versions by key and timestamp; history retention is also the grace period, as in RocksDBVersionedStore.

    Map rows are length4 + key + (largest long - timestamp)8, so that a key's versions come newest first; values are a
    flag byte (odd: a value follows; even: deleted). The changelog has the key, the plain value, and the version's timestamp.
    """

    converts: ClassVar[bool] = True
    volatile: ClassVar[tuple[str, ...]] = ("observed_time",)

    def __init__(self, definition: StoreDef, entries: BytesMap, context: StoreContext):
        super().__init__(definition, entries, context)
        self.history = definition.history or 0
        self.observed_time = -1
        self._encode = definition.value_serde.encode
        self._decode = definition.value_serde.decode
        self._deletions: deque[tuple[int, bytes]] = deque()

    def put(self, key: bytes, value: Value, timestamp: int) -> int:
        """Set the value from `timestamp` on, or delete with None, and log it in every case, as Java does.

        Return VALID_TO_UNDEFINED if this is now the latest version, NOT_PUT if it was too old and was dropped, else
        the timestamp of the next version. Raises SerdeError.
        """
        data = None if value is None else self._encode(value)
        valid_to = self._put(key, data, timestamp)
        if valid_to == NOT_PUT:
            self._dropped(DropReason.EXPIRED)
        self._log(key, data, timestamp, None)
        return valid_to

    def _put(self, key: bytes, data: bytes | None, timestamp: int) -> int:
        if timestamp < self.observed_time - self.history:
            return NOT_PUT
        self.observed_time = max(self.observed_time, timestamp)
        prefix = pack_int(len(key)) + key
        row = prefix + pack_long(MAX_LONG - timestamp)
        existing = self._map.get(row)
        newer = self._newer(prefix, row)
        if data is not None:
            marked = newer is None and existing is not None and existing[:1] != _VALUE
            self._map.put(row, (_MARKED_VALUE if marked else _VALUE) + data)
        elif newer is None and existing is not None and existing[:1] == _VALUE and self._leaves_no_trace(prefix, row):
            self._map.put(row, None)
            return VALID_TO_UNDEFINED
        else:
            self._map.put(row, _DELETION if newer is None else _VERSION_OF_NOTHING)
            self._deletions.append((timestamp, prefix))
        self._trim(prefix)
        self._trim_deleted()
        return VALID_TO_UNDEFINED if newer is None else newer

    def _newer(self, prefix: bytes, row: bytes) -> int | None:
        """Return the time of the version after a row, None for the latest."""
        for newer, _ in self._map.range(prefix, row, reverse=True, include_high=False, limit=1):
            if newer.startswith(prefix):
                return MAX_LONG - int(unpack_long(newer, len(newer) - 8)[0])
        return None

    def _leaves_no_trace(self, prefix: bytes, row: bytes) -> bool:
        """Return whether a deletion of the latest value, at the value's own time, leaves no row.

        Java stores a deletion as the end of the version before it: if there is none, it stores nothing.
        """
        older = next(iter(self._map.range(row + b"\x00", prefix + pack_long(MAX_LONG), limit=1)), None)
        return older is None or older[1] == _DELETION

    def _trim(self, prefix: bytes) -> None:
        """Delete the versions of a key that no read within the history can reach."""
        bound = self.observed_time - self.history
        if bound < 0:
            return
        first, last = prefix + pack_long(MAX_LONG - bound), prefix + pack_long(MAX_LONG)
        rows = list(self._map.range(first, last))
        # The first row is valid at the bound itself and is kept, unless it is a deletion: no row means the same.
        if rows and rows[0][1] != _DELETION:
            rows = rows[1:]
        for row, _ in rows:
            self._map.put(row, None)

    def _trim_deleted(self) -> None:
        """Delete the rows of deleted keys once the deletion is older than the history: no later write may trim them."""
        bound = self.observed_time - self.history
        while self._deletions and self._deletions[0][0] < bound:
            self._trim(self._deletions.popleft()[1])

    def find_deletions(self) -> None:
        """Note the deletions among the rows of a map that was opened, so that their rows are deleted in time."""
        deletions = [
            (MAX_LONG - unpack_long(row, len(row) - 8)[0], row[:-8])
            for row, data in self._map.range(None, None)
            if not data[0] & 1
        ]
        self._deletions = deque(sorted(deletions))

    def delete(self, key: bytes, timestamp: int) -> tuple[Value, int] | None:
        """Delete from `timestamp` on; return the version that was valid then."""
        expired = timestamp < self.observed_time - self.history
        before = None if expired else self.get(key, timestamp)
        self.put(key, None, timestamp)
        return before

    def get(self, key: bytes, as_of: int | None = None) -> tuple[Value, int] | None:
        """Return (value, timestamp) of the latest version, or of the one valid at `as_of`; None if deleted or unknown.

        Before the history only a version that is still the latest is returned.
        """
        prefix = pack_int(len(key)) + key
        if as_of is not None and as_of >= self.observed_time - self.history:
            first = prefix + pack_long(MAX_LONG - as_of if as_of >= 0 else MAX_LONG)
            return None if as_of < 0 else self._first(first, prefix)
        latest = self._first(prefix + bytes(8), prefix)
        return latest if latest is None or as_of is None or latest[1] <= as_of else None

    def versions(self, key: bytes, low: int, high: int) -> Iterator[tuple[Value, int]]:
        """Yield (value, timestamp) of the versions that were valid at some time from low to high, the newest first."""
        prefix = pack_int(len(key)) + key
        first = prefix + pack_long(MAX_LONG - min(high, MAX_LONG))
        for row, data in self._map.range(first, prefix + pack_long(MAX_LONG)):
            time = MAX_LONG - unpack_long(row, len(row) - 8)[0]
            if data[0] & 1:
                yield self._decode(data[1:]), time
            if time <= low:
                return

    def _first(self, low: bytes, prefix: bytes) -> tuple[Value, int] | None:
        for row, data in self._map.range(low, prefix + pack_long(MAX_LONG), limit=1):
            if data[0] & 1:
                return self._decode(data[1:]), MAX_LONG - unpack_long(row, len(row) - 8)[0]
        return None

    def all(self) -> Iterator[tuple[bytes, Value, int]]:
        """Yield (key, value, timestamp) of the latest versions, in byte order of keys."""
        latest: dict[bytes, tuple[bytes, bytes]] = {}
        for row, data in self._map.range(None, None):
            latest.setdefault(row[4:-8], (row, data))
        for key, (row, data) in sorted(latest.items()):
            if data[0] & 1:
                yield key, self._decode(data[1:]), MAX_LONG - unpack_long(row, len(row) - 8)[0]

    def _answers(self, query: Query) -> Iterator[StoredRow]:
        decode, key = self.key_serde.decode, query.key
        if query.kind == "get":
            row = self.get(key or b"", query.as_of)
            if row is not None:
                yield StoredRow(key or b"", decode(key or b""), *row)
        elif query.kind == "versions":
            # The newest first, as in MultiVersionedKeyQuery; `reverse` returns the oldest first.
            rows = list(self.versions(key or b"", query.start, query.end))
            for value, time in reversed(rows) if query.reverse else rows:
                place = pack_long(MAX_LONG - time) + (key or b"")
                yield StoredRow(place, decode(key or b""), value, time)
        else:
            latest = list(self.all())
            for raw, value, time in reversed(latest) if query.reverse else latest:
                yield StoredRow(raw, decode(raw), value, time)

    @classmethod
    def changelog_records(cls, rows: Rows) -> Iterator[ChangelogRecord]:
        """Yield versions so that a restore in their order drops none: by time, and deletions of the past after what follows them.

        The versions of a key come newest first.
        """
        prefix, latest = b"", 0
        for row, data in rows:
            time = MAX_LONG - unpack_long(row, len(row) - 8)[0]
            if row[:-8] != prefix:
                prefix, latest = row[:-8], time
            key, flag = row[4:-8], data[:1]
            if flag != _VERSION_OF_NOTHING:
                latest = time
            if flag == _MARKED_VALUE:
                yield ChangelogRecord(time, key, None, time)
            yield ChangelogRecord(latest, key, data[1:] if data[0] & 1 else None, time)

    def rows(self) -> Iterator[tuple[Key, Value]]:
        """Yield (key, latest value), decoded, in byte order of keys."""
        decode = self.key_serde.decode
        return ((decode(key), value) for key, value, _ in self.all())

    def begin_load(self, executor: Executor) -> None:
        """Do nothing: each record is compared with the rows restored before it."""

    def restore(self, key: bytes, value: bytes | None, timestamp: int, headers: Headers | None) -> None:
        """Apply one changelog record; a record that was too old when it was written is dropped again."""
        self._put(key, value, timestamp)
