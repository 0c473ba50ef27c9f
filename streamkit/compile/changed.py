"""The bytes of a table's change in a repartition topic (ChangedSerializer, ChangedDeserializer)."""

from __future__ import annotations


def split_changed(data: bytes | None) -> tuple[bytes | None, bytes | None]:
    """Return the bytes of the new and the old value of a table's repartition record (ChangedDeserializer)."""
    if data is None:
        return None, None
    flag = data[-1]
    if flag == 1:
        return data[:-1], None
    if flag == 0:
        return None, data[:-1]
    length, at, shift = 0, 0, 0
    while True:
        byte = data[at]
        at += 1
        length |= (byte & 0x7F) << shift
        if byte < 0x80:
            break
        shift += 7
    length = (length >> 1) ^ -(length & 1)
    return data[at : at + length], data[at + length : -1]


def join_changed(new: bytes | None, old: bytes | None) -> bytes:
    """Return the record value of a table's repartition topic (ChangedSerializer): new value, old value and a flag for which of them exist.

    >>> join_changed(b"n", None), join_changed(None, b"o"), join_changed(b"n", b"o")
    (b'n\\x01', b'o\\x00', b'\\x02no\\x02')
    """
    if old is None:
        return (new or b"") + b"\x01"
    if new is None:
        return old + b"\x00"
    length, head = len(new) << 1, bytearray()
    while length >= 0x80:
        head.append(length & 0x7F | 0x80)
        length >>= 7
    head.append(length)
    return bytes(head) + new + old + b"\x02"
