"""Kafka's hashes of bytes: murmur2 with the default partitioner, and murmur3 of foreign-key joins."""

from __future__ import annotations

import struct

from streamkit.extension import native

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


# Murmur3 x64 128 bits, by which foreign-key joins detect stale responses (org.apache.kafka.streams.state.internals.Murmur3).

_MASK_64 = 0xFFFFFFFFFFFFFFFF
_C1 = 0x87C37B91114253D5
_C2 = 0x4CF5AD432745937F


def _rotate(x: int, by: int) -> int:
    return (x << by | x >> (64 - by)) & _MASK_64


def _mix(h: int) -> int:
    h = (h ^ h >> 33) * 0xFF51AFD7ED558CCD & _MASK_64
    h = (h ^ h >> 33) * 0xC4CEB9FE1A85EC53 & _MASK_64
    return h ^ h >> 33


def murmur3_128_in_python(data: bytes, seed: int) -> bytes:
    """Return the 16 bytes of the hash, both halves big-endian.

    >>> murmur3_128_in_python(b"f1:a", 104729).hex()
    '0a8ff9d26a7037bdf6b5d819f80a15ee'
    """
    h1 = h2 = seed
    blocks = len(data) >> 4
    words = struct.unpack_from(f"<{blocks * 2}Q", data)
    for i in range(0, blocks * 2, 2):
        h1 ^= _rotate(words[i] * _C1 & _MASK_64, 31) * _C2 & _MASK_64
        h1 = ((_rotate(h1, 27) + h2) * 5 + 0x52DCE729) & _MASK_64
        h2 ^= _rotate(words[i + 1] * _C2 & _MASK_64, 33) * _C1 & _MASK_64
        h2 = ((_rotate(h2, 31) + h1) * 5 + 0x38495AB5) & _MASK_64
    tail = data[blocks << 4 :]
    if len(tail) > 8:
        h2 ^= _rotate(int.from_bytes(tail[8:], "little") * _C2 & _MASK_64, 33) * _C1 & _MASK_64
    if tail:
        h1 ^= _rotate(int.from_bytes(tail[:8], "little") * _C1 & _MASK_64, 31) * _C2 & _MASK_64
    h1 ^= len(data)
    h2 ^= len(data)
    h1 = (h1 + h2) & _MASK_64
    h2 = (h2 + h1) & _MASK_64
    h1, h2 = _mix(h1), _mix(h2)
    h1 = (h1 + h2) & _MASK_64
    h2 = (h2 + h1) & _MASK_64
    return struct.pack(">QQ", h1, h2)


murmur3_128 = native("murmur3_128", murmur3_128_in_python)
"""The same by the extension `streamkit._native`, if it is in use."""
