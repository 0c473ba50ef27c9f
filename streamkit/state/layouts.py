"""Java's layouts of bytes that several kinds of stores share: keys with their windows, and contexts of records. All numbers are big-endian."""

from __future__ import annotations

import struct
from typing import NamedTuple

from streamkit.record import Headers

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
    """Return the smallest bytes above all bytes that begin with `prefix`, or None if there are none (Bytes.increment).

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


# The byte layout of headers in the stores of dsl.store.format HEADERS (HeadersSerializer, KIP-1271).


def encode_headers(headers: Headers | None) -> bytes:
    """Return the bytes of headers: their count, then name and value of each after their lengths (-1 for null), as varints.

    >>> encode_headers([("a", b"1"), ("b", None)])
    b'\\x04\\x02a\\x021\\x02b\\x01'
    """
    if not headers:
        return b""
    parts = [_varint(len(headers))]
    for name, value in headers:
        raw = name.encode()
        parts += [_varint(len(raw)), raw]
        parts += [_varint(-1)] if value is None else [_varint(len(value)), value]
    return b"".join(parts)


def decode_headers(data: bytes) -> Headers:
    """Decode the result of `encode_headers`."""
    if not data:
        return []
    reader = _Reader(data)
    headers: Headers = []
    for _ in range(reader.varint()):
        name = (reader.take(reader.varint()) or b"").decode()
        headers.append((name, reader.take(reader.varint())))
    return headers


def headers_bytes(encoded: bytes) -> int:
    """Return the number of bytes that headers take in the value of such a store, including their length."""
    return len(_varint(len(encoded))) + len(encoded)


def headed_value(value: bytes, timestamp: int, headers: Headers | None) -> bytes:
    """Return the value of such a store: headers after their length, timestamp8, value (ValueTimestampHeadersSerializer)."""
    encoded = encode_headers(headers)
    return _varint(len(encoded)) + encoded + pack_long(timestamp) + value


def split_headed_value(data: bytes) -> tuple[bytes, bytes]:
    """Return the part before the value, and the value."""
    reader = _Reader(data)
    end = reader.varint() + reader.position + 8
    return data[:end], data[end:]


def timestamp_of_prefix(prefix: bytes) -> int:
    """Return the timestamp in the part before the value."""
    return int(unpack_long(prefix, len(prefix) - 8)[0])


def _varint(number: int) -> bytes:
    """Encode a number like ByteUtils.writeVarint: zigzag, seven bits per byte."""
    left = number << 1 ^ number >> 31
    encoded = bytearray()
    while left > 0x7F:
        encoded.append(left & 0x7F | 0x80)
        left >>= 7
    encoded.append(left)
    return bytes(encoded)


# The byte layout of a record's context in the changelogs of buffers (ProcessorRecordContext, BufferValue).

_NULL = pack_int(-1)
_SAME_AS_PRIOR = pack_int(-2)


class ProcessorRecordContext(NamedTuple):
    """The origin of a record; `timestamp` in ms, `offset` -1 and `topic` None if there is none."""

    timestamp: int
    offset: int
    topic: str | None
    partition: int
    headers: Headers | None

    def size(self) -> int:
        """Return the size that Java counts: 20 + topic + headers, in characters and bytes."""
        headers = self.headers or ()
        return 20 + len(self.topic or "") + sum(len(name) + len(value or b"") for name, value in headers)

    def encode(self) -> bytes:
        """Return timestamp8 offset8 topic(length4) partition4 count4 and headers (length4 or -1 for null)."""
        headers = self.headers or ()
        parts = [pack_long(self.timestamp), pack_long(self.offset), _sized((self.topic or "").encode())]
        parts += [pack_int(self.partition), pack_int(len(headers))]
        for name, value in headers:
            parts += [_sized(name.encode()), _sized(value)]
        return b"".join(parts)


class BufferValue(NamedTuple):
    """The bytes that a buffer has for a key; `prior` is the value that the key had when it was first buffered."""

    prior: bytes | None
    old: bytes | None
    new: bytes | None
    context: ProcessorRecordContext

    def size(self) -> int:
        """Return the size that Java counts, in bytes; a prior equal to old counts once."""
        old = 0 if self.old == self.prior else len(self.old or b"")
        return len(self.prior or b"") + old + len(self.new or b"") + self.context.size()

    def encode(self, time: int) -> bytes:
        """Return the changelog value: context, prior, old, new, time8."""
        same = self.old is not None and self.old == self.prior
        old = _SAME_AS_PRIOR if same else _sized(self.old)
        return b"".join([self.context.encode(), _sized(self.prior), old, _sized(self.new), pack_long(time)])


def _sized(data: bytes | None) -> bytes:
    return _NULL if data is None else pack_int(len(data)) + data


def decode_buffer_value(data: bytes) -> tuple[BufferValue, int]:
    """Return the value and the buffer time of a changelog value."""
    reader = _Reader(data)
    timestamp, offset = reader.long(), reader.long()
    topic = (reader.sized() or b"").decode()
    partition, count = reader.number(), reader.number()
    headers = [((reader.sized() or b"").decode(), reader.sized()) for _ in range(count)]
    context = ProcessorRecordContext(timestamp, offset, topic or None, partition, headers or None)
    prior = reader.sized()
    length = reader.number()
    old = prior if length == -2 else reader.take(length)
    new = reader.sized()
    return BufferValue(prior, old, new, context), reader.long()


class _Reader:
    __slots__ = ("data", "position")

    def __init__(self, data: bytes):
        self.data = data
        self.position = 0

    def long(self) -> int:
        self.position += 8
        number: int = unpack_long(self.data, self.position - 8)[0]
        return number

    def number(self) -> int:
        self.position += 4
        number: int = unpack_int(self.data, self.position - 4)[0]
        return number

    def varint(self) -> int:
        number = shift = 0
        while True:
            byte = self.data[self.position]
            self.position += 1
            number |= (byte & 0x7F) << shift
            shift += 7
            if byte < 0x80:
                return number >> 1 ^ -(number & 1)

    def take(self, length: int) -> bytes | None:
        if length < 0:
            return None
        self.position += length
        return self.data[self.position - length : self.position]

    def sized(self) -> bytes | None:
        return self.take(self.number())
