"""Byte layouts of keys and values in stores and changelogs; all numbers are big-endian."""

from __future__ import annotations

import struct

INT4 = struct.Struct(">i")
LONG8 = struct.Struct(">q")
TWO_LONGS = struct.Struct(">qq")

pack_long = LONG8.pack
unpack_long = LONG8.unpack_from
pack_int = INT4.pack
unpack_int = INT4.unpack_from

MAX_LONG = 0x7FFFFFFFFFFFFFFF
MAX_SEQUENCE = 0x7FFFFFFF
FIRST_SEQUENCE = bytes(4)


def prefix_end(prefix: bytes) -> bytes | None:
    """Return the smallest bytes above everything that begins with `prefix`; None: there is none (Bytes.increment).

    >>> prefix_end(b"a\\xff")
    b'b'
    """
    stripped = prefix.rstrip(b"\xff")
    return stripped[:-1] + bytes((stripped[-1] + 1,)) if stripped else None


def session_key(key: bytes, start: int, end: int) -> bytes:
    """Return the changelog key of a session: key, end, start (SessionKeySchema)."""
    return key + TWO_LONGS.pack(end, start)


def split_session_key(data: bytes) -> tuple[bytes, int, int]:
    """Return key, start and end of a session's changelog key."""
    end, start = TWO_LONGS.unpack_from(data, len(data) - 16)
    return data[:-16], start, end


def combined_key(foreign: bytes, primary: bytes) -> bytes:
    """Return the key of a foreign-key subscription (CombinedKeySchema)."""
    return pack_int(len(foreign)) + foreign + primary


def split_combined_key(data: bytes) -> tuple[bytes, bytes]:
    """Return the foreign and the primary key of a subscription's key."""
    middle = 4 + unpack_int(data)[0]
    return data[4:middle], data[middle:]
