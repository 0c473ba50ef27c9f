"""Columns of a batch as bytes: lengths, then the concatenated values; little-endian on every machine.

A column of bytes is: int32 lengths (-1 for None), then the concatenation. A batch is: uint32 sizes of its four parts
(timestamps int64, keys, values, headers), then the parts; headers are empty when no record has any, else int32 counts
(-1 for None), the column of names and the column of values.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Sequence
from itertools import accumulate, pairwise

from streamkit.record import Headers

Encoded = tuple[list[bytes | None], list[bytes | None], list[int], list[Headers | None]]
_SIZES = struct.Struct("<IIII")
_SIZE = struct.Struct("<I")


def encode(
    keys: Sequence[bytes | None],
    values: Sequence[bytes | None],
    timestamps: Sequence[int],
    headers: Sequence[Headers | None],
) -> bytes:
    """Return the bytes of one batch.

    >>> decode(encode([b"k", None], [b"", b"v"], [1, 2], [None, [("h", None)]]), 2)
    ([b'k', None], [b'', b'v'], [1, 2], [None, [('h', None)]])
    """
    parts = (_pack("q", timestamps), _column(keys), _column(values), _headers(headers))
    return _SIZES.pack(*map(len, parts)) + b"".join(parts)


def decode(data: bytes, count: int) -> Encoded:
    """Decode the bytes of a batch of `count` records. Raises ValueError, OverflowError or struct.error for others."""
    sizes = _SIZES.unpack_from(data)
    ends = list(accumulate(sizes, initial=_SIZES.size))
    if sizes[0] != 8 * count or ends[-1] != len(data):
        raise ValueError(f"{len(data)} bytes of {count} records should be {ends[-1]}")
    times, keys, values, headers = (data[start:end] for start, end in pairwise(ends))
    return (
        _read_column(keys, count),
        _read_column(values, count),
        _unpack("q", times),
        _read_headers(headers, count) if headers else [None] * count,
    )


def _pack(kind: str, numbers: Sequence[int]) -> bytes:
    packed = array(kind, numbers)
    if sys.byteorder == "big":
        packed.byteswap()
    return packed.tobytes()


def _unpack(kind: str, data: bytes) -> list[int]:
    numbers = array(kind)
    numbers.frombytes(data)
    if sys.byteorder == "big":
        numbers.byteswap()
    return numbers.tolist()


def _column(values: Sequence[bytes | None]) -> bytes:
    if None in values:
        lengths = [-1 if value is None else len(value) for value in values]
        return _pack("i", lengths) + b"".join([value for value in values if value])
    return _pack("i", list(map(len, values))) + b"".join(values)  # type: ignore[arg-type]  # none is None


def _read_column(data: bytes, count: int) -> list[bytes | None]:
    lengths = _unpack("i", data[: 4 * count])
    if min(lengths, default=0) >= 0:
        ends = list(accumulate(lengths, initial=4 * count))
        _check_end(ends[-1], data)
        return [data[start:end] for start, end in pairwise(ends)]
    ends = list(accumulate([max(length, 0) for length in lengths], initial=4 * count))
    _check_end(ends[-1], data)
    return [data[start : start + length] if length >= 0 else None for start, length in zip(ends, lengths, strict=False)]


def _check_end(end: int, data: bytes) -> None:
    if end != len(data):
        raise ValueError(f"a column has {len(data)} bytes, and not {end}")


def _headers(headers: Sequence[Headers | None]) -> bytes:
    if not any(headers):
        return b""
    pairs = [pair for each in headers if each for pair in each]
    counts = _pack("i", [-1 if each is None else len(each) for each in headers])
    names = _column([name.encode() for name, _ in pairs])
    return counts + _SIZE.pack(len(names)) + names + _column([value for _, value in pairs])


def _read_headers(data: bytes, count: int) -> list[Headers | None]:
    counts = _unpack("i", data[: 4 * count])
    start = 4 * count + _SIZE.size
    size = _SIZE.unpack_from(data, 4 * count)[0]
    total = sum(each for each in counts if each > 0)
    names = _read_column(data[start : start + size], total)
    values = _read_column(data[start + size :], total)
    pairs = iter([(name.decode(), value) for name, value in zip(names, values, strict=True)])  # type: ignore[union-attr]  # names are never None
    return [None if each <= 0 else [next(pairs) for _ in range(each)] for each in counts]
