"""Sampling by a hash, which gives the same choice on each replay."""

from __future__ import annotations

import json
from hashlib import blake2b

from streamkit.errors import StreamkitError
from streamkit.record import Value, WindowedKey
from streamkit.serdes.plain import shown

_RANGE = 1 << 64


class Sampler:
    """Chooses records; callable with the value that decides, and with the place of the record."""

    __slots__ = ("_bound", "_start")

    def __init__(self, rate: float, seed: int):
        self._bound = int(rate * _RANGE)
        self._start = blake2b(b"%d" % seed, digest_size=8)

    def __call__(self, by: Value, topic: str | None, partition: int, offset: int) -> bool:
        """Return whether the record is kept. Raises StreamkitError for a value that has no JSON form."""
        found = self._start.copy()
        found.update(repr((topic, partition, offset)).encode() if by is None else _bytes_of(by))
        return int.from_bytes(found.digest()) < self._bound


def _bytes_of(value: Value) -> bytes:
    if type(value) is str:
        return b"s" + value.encode("utf-8", "surrogatepass")
    if type(value) is bytes:
        return b"b" + value
    try:
        return b"j" + json.dumps(_plain(value), sort_keys=True).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise StreamkitError(f"sample: {shown(value, 80)} has no JSON form, so that it has no hash") from error


def _plain(value: Value) -> Value:
    """Return a value in which equal numbers are written equally."""
    if type(value) is float and value.is_integer():
        return int(value)
    if isinstance(value, WindowedKey):
        return [_plain(value.key), value.start, value.end]
    if isinstance(value, dict):
        return {key: _plain(each) for key, each in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(each) for each in value]
    return value
