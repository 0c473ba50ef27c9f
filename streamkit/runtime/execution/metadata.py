"""The metadata text of committed offsets: partition and processor times (TopicPartitionMetadata)."""

from __future__ import annotations

import base64
import binascii
import struct

UNKNOWN = -1
"""A time before the first record (RecordQueue.UNKNOWN)."""

_VERSION = 2
_HEAD = struct.Struct(">bq")
_COUNT = struct.Struct(">i")
_TIME = struct.Struct(">q")


def encode(partition_time: int, processor_metadata: dict[str, int] | None = None) -> str:
    """Return the metadata text of a partition time and processor times, both in milliseconds.

    >>> encode(1000)
    'AgAAAAAAAAPo'
    """
    parts = [_HEAD.pack(_VERSION, partition_time)]
    if processor_metadata:
        parts.append(_COUNT.pack(len(processor_metadata)))
        for name, time in processor_metadata.items():
            key = name.encode()
            parts += (_COUNT.pack(len(key)), key, _TIME.pack(time))
    return base64.b64encode(b"".join(parts)).decode()


def decode(text: str) -> tuple[int, dict[str, int]]:
    """Return (partition time, processor times); text that can't be decoded counts as unknown, as in Java.

    >>> decode("AgAAAAAAAAPo")
    (1000, {})
    """
    try:
        data = base64.b64decode(text, validate=True)
        version, time = _HEAD.unpack_from(data)
        if version not in (1, _VERSION):
            return UNKNOWN, {}
        if version == 1 or len(data) == _HEAD.size:
            return time, {}
        return time, _decode_times(data, _HEAD.size)
    except (binascii.Error, struct.error, ValueError):
        return UNKNOWN, {}


def _decode_times(data: bytes, at: int) -> dict[str, int]:
    (count,) = _COUNT.unpack_from(data, at)
    at += _COUNT.size
    times: dict[str, int] = {}
    for _ in range(count):
        (length,) = _COUNT.unpack_from(data, at)
        at += _COUNT.size
        name = data[at : at + length].decode()
        at += length
        (times[name],) = _TIME.unpack_from(data, at)
        at += _TIME.size
    return times
