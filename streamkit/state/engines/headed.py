"""A map of a table's rows, some of which have headers: those that were restored from records of the table's source topic."""

from __future__ import annotations

from collections.abc import Iterator

from streamkit.record import Headers
from streamkit.state.definitions import BytesMap, MapOnMap
from streamkit.state.layouts import encode_headers, pack_int, pack_long, unpack_int, unpack_long

_MARK = 1 << 63
_TIME = (1 << 62) - 1
_SIGN = 1 << 61


class HeadedMap(MapOnMap):
    """Rows of timestamp8 + value on a map whose rows may also have headers, which reads leave out.

    A row with headers is timestamp8 + length4 + headers + value in the map below. The first bits of its timestamp are 10, which
    no other timestamp begins with. Only `headed_row` makes such rows: what is put has no headers, as in Java
    (KTableSource), and what is restored has those of its record (RecordConverters).
    """

    def get(self, key: bytes) -> bytes | None:
        """Return timestamp8 + value, or None."""
        data = self._inner.get(key)
        return None if data is None else _plain(data)

    def headers(self, key: bytes) -> bytes:
        """Return the headers of a row as Java's stores have them; empty if there are none."""
        data = self._inner.get(key)
        return b"" if data is None or not _has_headers(data) else data[12 : 12 + unpack_int(data, 8)[0]]

    def range(
        self,
        low: bytes | None,
        high: bytes | None,
        reverse: bool = False,
        include_high: bool = True,
        limit: int | None = None,
    ) -> Iterator[tuple[bytes, bytes]]:
        """Return entries from low to high in byte order, at most `limit`, as they are now, without headers."""
        rows = self._inner.range(low, high, reverse, include_high, limit)
        return ((key, _plain(data)) for key, data in rows)

    def committed(self) -> BytesMap | None:
        """Return the rows as of the last commit."""
        inner = self._inner.committed()
        return None if inner is None else HeadedMap(inner)


def headed_row(timestamp: int, value: bytes, headers: Headers | None) -> bytes:
    """Return the row of a record that is restored.

    >>> headed_row(1, b"v", None)
    b'\\x00\\x00\\x00\\x00\\x00\\x00\\x00\\x01v'
    """
    if not headers:
        return pack_long(timestamp) + value
    encoded = encode_headers(headers)
    return (timestamp & _TIME | _MARK).to_bytes(8, "big") + pack_int(len(encoded)) + encoded + value


def _has_headers(data: bytes) -> bool:
    return 0x80 <= data[0] < 0xC0


def _plain(data: bytes) -> bytes:
    if not _has_headers(data):
        return data
    time = int(unpack_long(data)[0]) & _TIME
    return pack_long(time - 2 * _SIGN if time & _SIGN else time) + data[12 + unpack_int(data, 8)[0] :]
