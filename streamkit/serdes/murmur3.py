"""Murmur3 x64 128 bits, by which foreign-key joins detect stale responses (org.apache.kafka.streams.state.internals.Murmur3)."""

from __future__ import annotations

import struct

from streamkit.extension import native

_MASK = 0xFFFFFFFFFFFFFFFF
_C1 = 0x87C37B91114253D5
_C2 = 0x4CF5AD432745937F


def _rotate(x: int, by: int) -> int:
    return (x << by | x >> (64 - by)) & _MASK


def _mix(h: int) -> int:
    h = (h ^ h >> 33) * 0xFF51AFD7ED558CCD & _MASK
    h = (h ^ h >> 33) * 0xC4CEB9FE1A85EC53 & _MASK
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
        h1 ^= _rotate(words[i] * _C1 & _MASK, 31) * _C2 & _MASK
        h1 = ((_rotate(h1, 27) + h2) * 5 + 0x52DCE729) & _MASK
        h2 ^= _rotate(words[i + 1] * _C2 & _MASK, 33) * _C1 & _MASK
        h2 = ((_rotate(h2, 31) + h1) * 5 + 0x38495AB5) & _MASK
    tail = data[blocks << 4 :]
    if len(tail) > 8:
        h2 ^= _rotate(int.from_bytes(tail[8:], "little") * _C2 & _MASK, 33) * _C1 & _MASK
    if tail:
        h1 ^= _rotate(int.from_bytes(tail[:8], "little") * _C1 & _MASK, 31) * _C2 & _MASK
    h1 ^= len(data)
    h2 ^= len(data)
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    h1, h2 = _mix(h1), _mix(h2)
    h1 = (h1 + h2) & _MASK
    h2 = (h2 + h1) & _MASK
    return struct.pack(">QQ", h1, h2)


murmur3_128 = native("murmur3_128", murmur3_128_in_python)
"""The same by the extension `streamkit._native`, where it is in use."""
