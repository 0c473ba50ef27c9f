"""Kafka's default partitioner: murmur2 of the key bytes (Utils.murmur2, BuiltInPartitioner)."""

from __future__ import annotations

import struct

_MASK = 0xFFFFFFFF
_M = 0x5BD1E995
_SEED = 0x9747B28C
_CACHE_SIZE = 65_536

_known: dict[bytes, int] = {}


def murmur2(data: bytes) -> int:
    """Return the signed 32-bit hash that Kafka's Java client partitions by.

    >>> murmur2(b""), murmur2(b"a"), murmur2(b"21"), murmur2(b"abc")
    (275646681, -1563381124, -973932308, 479470107)
    """
    length = len(data)
    h = _SEED ^ length
    words = length >> 2
    for k in struct.unpack_from(f"<{words}I", data):
        k = k * _M & _MASK
        h = (h * _M & _MASK) ^ ((k ^ k >> 24) * _M & _MASK)
    tail = data[words << 2 :]
    if tail:
        h = (h ^ int.from_bytes(tail, "little")) * _M & _MASK
    h = (h ^ h >> 13) * _M & _MASK
    h ^= h >> 15
    return h - (1 << 32) if h >> 31 else h


def partition(key: bytes, partitions: int) -> int:
    """Return the partition of a key in a topic with so many partitions.

    >>> partition(b"21", 4)
    0
    """
    if partitions == 1:
        return 0
    h = _known.get(key)
    if h is None:
        h = murmur2(key) & 0x7FFFFFFF
        if len(_known) >= _CACHE_SIZE:
            _known.clear()
        _known[key] = h
    return h % partitions
