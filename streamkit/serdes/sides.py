"""The forms of keys and values on the log: how their bytes are decoded, and shown as JSON."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from struct import error as ShortError
from typing import NamedTuple

from streamkit.errors import SerdeError
from streamkit.expressions.types import ANY, Type
from streamkit.record import Operand, Value, WindowedKey
from streamkit.serdes.plain import Json, plain
from streamkit.serdes.serde import Serde


class Side(NamedTuple):
    """The form of the keys or the values of a topic.

    serde: the serde of the bytes, or of the key within a window if `is_windowed`; None: the bytes have a layout of their own.
    """

    decode: Callable[[bytes], Value]
    to_json: Callable[[Operand], Json]
    serde: Serde | None = None
    is_windowed: bool = False
    type: Type = ANY

    def json(self, value: Value) -> Json:
        """Return the JSON form of a decoded value; None is an absent one."""
        return None if value is None else self.to_json(value)


def _same(data: bytes) -> bytes:
    return data


RAW = Side(_same, plain)
"""The form of bytes that no serde decodes."""


def side_of(serde: Serde | None) -> Side:
    """Return the form of a serde's bytes; None: no serde is known."""
    if serde is None:
        return RAW
    # Windowed serdes are the only ones with a serde within.
    inner = getattr(serde, "inner", None)
    return Side(serde.decode, serde.to_json, inner or serde, inner is not None, serde.type)


def windowed_side(serde: Serde, decode: Callable[[bytes], WindowedKey]) -> Side:
    """Return the form of keys with a window around a key of the serde."""
    return Side(guarded(decode), partial(windowed_json, serde), serde, is_windowed=True)


def windowed_json(serde: Serde, key: Operand) -> dict[str, Json]:
    """Return the JSON form of a WindowedKey around a key of the serde."""
    return {"key": serde.to_json(key.key), "start": key.start, "end": key.end}


def changes_side(serde: Serde, split: Callable[[bytes], tuple[bytes | None, bytes | None]]) -> Side:
    """Return the form of bytes from which `split` takes a new and an old value of the serde."""

    def decode(data: bytes) -> dict[str, Value]:
        parts = zip(("new", "old"), split(data), strict=True)
        return {name: None if part is None else serde.decode(part) for name, part in parts}

    def to_json(parts: Operand) -> dict[str, Json]:
        return {name: None if part is None else serde.to_json(part) for name, part in parts.items()}

    return Side(guarded(decode), to_json)


def guarded(decode: Callable[[bytes], Value]) -> Callable[[bytes], Value]:
    """Return a function that raises SerdeError for bytes without the layout that it expects."""

    def checked(data: bytes) -> Value:
        try:
            return decode(data)
        except (ShortError, IndexError, ValueError) as error:
            raise SerdeError(f"{len(data)} bytes do not have the layout of this topic ({error})") from error

    return checked


# The bytes of a table's change in a repartition topic (ChangedSerializer, ChangedDeserializer).


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
