"""Kafka's partitioner over a column of keys at once: a key at a time it would cost more than the rest of a shuffle."""

from __future__ import annotations

from typing import Any

from streamkit.serdes.partitioner import partition as partition_of

_M = 0x5BD1E995
_SEED = 0x9747B28C
_LONGEST = 256
"""Bytes; keys beyond them are hashed one by one."""


def partitions_of(keys: Any, count: int) -> Any:
    """Return the partition, of `count`, of each key in an Arrow column of bytes, as a NumPy array; 0 where there is none."""
    import numpy as np

    size = len(keys)
    if count == 1 or not size:
        return np.zeros(size, dtype=np.int64)
    buffers = keys.buffers()
    if buffers[2] is None:
        data = np.zeros(4, dtype=np.uint32)
    else:
        # A few bytes more, so that reading a word never leaves the end.
        data = np.append(np.frombuffer(buffers[2], dtype=np.uint8), np.zeros(4, dtype=np.uint8)).astype(np.uint32)
    bounds = np.frombuffer(buffers[1], dtype=np.int32)[keys.offset : keys.offset + size + 1].astype(np.int64)
    starts, lengths = bounds[:-1], np.diff(bounds)
    found = (_hashes(np, data, starts, np.minimum(lengths, _LONGEST)) & np.uint32(0x7FFFFFFF)).astype(np.int64) % count
    for at in np.flatnonzero(lengths > _LONGEST).tolist():
        found[at] = partition_of(keys[at].as_py(), count)
    if keys.null_count:
        found[~np.asarray(keys.is_valid())] = 0
    return found


def _hashes(np: Any, data: Any, starts: Any, lengths: Any) -> Any:
    """Return murmur2 of each key, as Utils.murmur2 computes it, a word of all keys at a time."""
    m = np.uint32(_M)
    h = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    words = lengths >> 2
    for word in range(int(words.max())):
        mine = np.flatnonzero(words > word)
        at = starts[mine] + 4 * word
        k = data[at] | data[at + 1] << 8 | data[at + 2] << 16 | data[at + 3] << 24
        k = k * m
        k = (k ^ k >> np.uint32(24)) * m
        h[mine] = h[mine] * m ^ k
    rest = lengths & 3
    ends = starts + 4 * words
    for byte in (2, 1, 0):
        mine = np.flatnonzero(rest > byte)
        h[mine] ^= data[ends[mine] + byte] << np.uint32(8 * byte)
    mine = np.flatnonzero(rest)
    h[mine] = h[mine] * m
    h = (h ^ h >> np.uint32(13)) * m
    return h ^ h >> np.uint32(15)
