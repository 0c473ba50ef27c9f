"""Kafka's partitioner for a column of keys. Hashing one key at a time would take longer than the rest of a shuffle."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamkit.serdes.partitioner import partition as partition_of

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

_M = 0x5BD1E995
_SEED = 0x9747B28C
_LONGEST = 256
"""The maximum length of a key in bytes; longer keys are hashed one by one."""


def partitions_of(keys: pa.Array, count: int) -> NDArray[np.int64]:
    """Return the partition of each key in an Arrow column of bytes, as a NumPy array; 0 for null. count: the number of partitions."""
    import numpy as np

    size = len(keys)
    if count == 1 or not size:
        return np.zeros(size, dtype=np.int64)
    buffers = keys.buffers()
    if buffers[2] is None:
        data = np.zeros(4, dtype=np.uint32)
    else:
        # Padded, so that a word can be read from any byte.
        data = np.append(np.frombuffer(buffers[2], dtype=np.uint8), np.zeros(4, dtype=np.uint8)).astype(np.uint32)
    bounds = np.frombuffer(buffers[1], dtype=np.int32)[keys.offset : keys.offset + size + 1].astype(np.int64)
    lengths = np.diff(bounds)
    found = (_hashes(data, bounds[:-1], np.minimum(lengths, _LONGEST)) & np.uint32(0x7FFFFFFF)).astype(np.int64) % count
    for at in np.flatnonzero(lengths > _LONGEST).tolist():
        found[at] = partition_of(keys[at].as_py(), count)
    if keys.null_count:
        found[~np.asarray(keys.is_valid())] = 0
    return found


def _hashes(data: NDArray[np.uint32], offsets: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Return murmur2 of each key (Utils.murmur2), computed word by word for all keys at once."""
    import numpy as np

    m = np.uint32(_M)
    h = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    words = lengths >> 2
    for word in range(int(words.max())):
        longer = np.flatnonzero(words > word)
        at = offsets[longer] + 4 * word
        k = data[at] | data[at + 1] << 8 | data[at + 2] << 16 | data[at + 3] << 24
        k = k * m
        k = (k ^ k >> np.uint32(24)) * m
        h[longer] = h[longer] * m ^ k
    rest = lengths & 3
    ends = offsets + 4 * words
    for byte in (2, 1, 0):
        longer = np.flatnonzero(rest > byte)
        h[longer] ^= data[ends[longer] + byte] << np.uint32(8 * byte)
    longer = np.flatnonzero(rest)
    h[longer] = h[longer] * m
    h = (h ^ h >> np.uint32(13)) * m
    return h ^ h >> np.uint32(15)
