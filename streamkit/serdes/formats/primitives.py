"""The serdes of org.apache.kafka.common.serialization.Serdes: same names, same bytes (big-endian); and `lines`."""

from __future__ import annotations

import base64
import binascii
import codecs
import struct
from collections.abc import Sequence
from math import isfinite
from typing import cast

from streamkit.code import TRUE, Code, all_of, attribute, binary, call, compare, either, item, literal, method, symbol
from streamkit.errors import SerdeError, SerdeTypeError
from streamkit.expressions.types import BOOLEAN, INTEGER, NUMBER, TEXT, ListOf, Type
from streamkit.expressions.types import BYTES as RAW
from streamkit.record import Operand, Value
from streamkit.serdes.plain import Document, Json, shown
from streamkit.serdes.serde import Serde, SerdeSpec, same
from streamkit.serdes.size import check_size, check_value
from streamkit.suggestions import number_of


def kind_of(value: Value) -> str:
    """Return the type of a value in words, for messages.

    >>> kind_of({}), kind_of("a"), kind_of(True)
    ('an object', 'text', 'a boolean')
    """
    names = {
        str: "text",
        bool: "a boolean",
        int: "a whole number",
        float: "a number",
        dict: "an object",
        list: "a list",
        tuple: "a list",
        bytes: "bytes",
        type(None): "null",
    }
    return names.get(type(value), f"a {type(value).__name__}")


def refused(serde: str, expected: str, value: Value) -> SerdeTypeError:
    """Return the error of a value that a serde can't encode."""
    return SerdeTypeError(f"serde {serde} takes {expected}, not {kind_of(value)}: {shown(value, 81)}")


class StringSerde(Serde):
    """UTF-8; malformed parts become U+FFFD when read and `?` when written, as many as in Java."""

    spec = "string"
    immutable = True
    type = TEXT
    takes = (TEXT,)

    def encode(self, value: Value) -> bytes:
        if type(value) is not str:
            raise refused("string", "text", value)
        return check_size(value.encode("utf-8", JAVA))

    def decode(self, data: bytes) -> str:
        return data.decode("utf-8", JAVA)

    def to_json(self, value: Document) -> Document:
        return value

    def same(self, one: Value, other: Value) -> bool:
        return bool(one == other)

    def json_column(self, column: Sequence[bytes | None]) -> list[Json]:
        return [None if data is None else data.decode("utf-8", JAVA) for data in column]

    def from_json(self, data: Json) -> Value:
        if data is not None and not isinstance(data, str):
            raise refused("string", "text", data)
        return data

    def encode_source(self, variable: Code) -> Code:
        return call("_s_encode", variable, literal("utf-8"), literal(JAVA))

    def decode_source(self, variable: Code) -> Code:
        return method(variable, "decode", literal("utf-8"), literal(JAVA))

    def well_formed_source(self, variable: Code) -> tuple[Code, Code]:
        return method(variable, "decode"), call("_s_encode", variable)

    def canonical_source(self, variable: Code) -> Code:
        return method(variable, "isascii")

    @property
    def inline_globals(self) -> dict[str, object]:
        # The unbound method raises TypeError for other types, so that it is check and call in one.
        return {"_s_encode": str.encode}


class BytesSerde(Serde):
    """Bytes as they are."""

    spec = "bytes"
    immutable = True
    type = RAW
    takes = (RAW,)

    def encode(self, value: Value) -> bytes:
        if not isinstance(value, bytes):
            raise refused("bytes", "bytes", value)
        return check_size(value)

    def decode(self, data: bytes) -> bytes:
        return data

    def to_json(self, value: Operand) -> Json:
        return None if value is None else {"base64": base64.b64encode(value).decode()}

    def from_json(self, data: Json) -> Value:
        if data is None:
            return None
        if not isinstance(data, dict) or set(data) != {"base64"}:
            raise refused("bytes", 'an object {"base64": …}', data)
        try:
            return base64.b64decode(data["base64"], validate=True)
        except (binascii.Error, TypeError, ValueError) as error:
            raise SerdeError(f"serde bytes: not base64: {error}") from error

    def decode_source(self, variable: Code) -> Code:
        return variable

    def canonical_source(self, variable: Code) -> Code:
        return TRUE


_NO_NUMBERS = ("NaN", "Infinity", "-Infinity")
"""The texts for NaN and infinities in JSON, as Jackson writes them."""


def _text_of(value: float) -> str:
    return "NaN" if value != value else "Infinity" if value > 0 else "-Infinity"


def _is_a(variable: Code, kind: str) -> Code:
    return compare(attribute(variable, "__class__"), "is", symbol(kind))


def _is_number(variable: Code) -> Code:
    return compare(binary(item(variable, 0), "&", literal(127)), "!=", literal(127))


_NAN = struct.pack(">d", float("nan"))


class NumberSerde(Serde):
    """A number of fixed size."""

    spec: str

    def __init__(self, name: str, code: str, floating: bool = False):
        self.spec = name
        self.immutable = name != "float"  # a float loses digits when it is encoded
        self._code = code
        self._floating = floating
        self._size = struct.calcsize(code)
        self._prepare()

    def _prepare(self) -> None:
        packer = struct.Struct(self._code)
        self._pack, self._unpack = packer.pack, packer.unpack

    @property
    def inline_globals(self) -> dict[str, object]:
        name = self.spec
        return {f"_s_{name}_unpack": self._unpack, f"_s_{name}_pack": self._pack, f"_s_{name}_encode": self.encode}

    def __getstate__(self) -> dict[str, object]:
        return {
            "spec": self.spec,
            "immutable": self.immutable,
            "_code": self._code,
            "_floating": self._floating,
            "_size": self._size,
        }

    def __setstate__(self, state: dict[str, object]) -> None:
        self.__dict__.update(state)
        self._prepare()

    @property
    def type(self) -> Type:  # type: ignore[override]
        return NUMBER if self._floating else INTEGER

    @property
    def takes(self) -> tuple[Type, ...]:  # type: ignore[override]
        # A value of a schema's type `number` may be a whole number.
        return (NUMBER, INTEGER) if self._floating else (INTEGER, NUMBER)

    def same(self, one: Value, other: Value) -> bool:
        # A float loses digits when it is encoded, and a double may be given as a whole number.
        alike = one.__class__ is other.__class__ and self.spec != "float"
        return same(one, other) if alike else self.same_bytes(one, other)

    def encode(self, value: Value) -> bytes:
        if type(value) is not int and not (self._floating and type(value) is float):
            raise refused(self.spec, "a number" if self._floating else "a whole number", value)
        if value != value and self.spec == "double":
            return _NAN  # one encoding for every NaN (Double.doubleToLongBits)
        try:
            return self._pack(value)
        except (struct.error, OverflowError) as error:
            raise SerdeError(f"serde {self.spec}: {value} does not fit into {number_of(self._size, 'byte')}") from error

    def as_decoded(self, value: Operand) -> Value:
        return float(value) if self._floating else value

    def decode(self, data: bytes) -> Value:
        try:
            return self._unpack(data)[0]
        except struct.error as error:
            raise SerdeError(
                f"serde {self.spec}: expected {number_of(self._size, 'byte')}, found {len(data)}"
            ) from error

    def to_json(self, value: Operand) -> Json:
        return _text_of(value) if self._floating and value is not None and not isfinite(value) else value

    def json_column(self, column: Sequence[bytes | None]) -> list[Json]:
        if None in column or set(map(len, column)) != {self._size}:  # type: ignore[arg-type]
            return super().json_column(column)
        numbers = list(struct.unpack(f">{len(column)}{self._code[1:]}", b"".join(column)))  # type: ignore[arg-type]
        return list(map(self.to_json, numbers)) if self._floating else numbers

    def from_json(self, data: Json) -> Value:
        if data is None:
            return None
        if self._floating and (type(data) in (int, float) or data in _NO_NUMBERS):
            return float(cast("float | str", data))
        if type(data) is float and data.is_integer():
            data = int(data)
        if type(data) is not int or self._floating:
            raise refused(self.spec, "a number" if self._floating else "a whole number", data)
        return data

    def encode_source(self, variable: Code) -> Code:
        # struct also takes booleans, so that values of other types than the expected one go through `encode`.
        plain = _is_a(variable, "float" if self._floating else "int")
        if self.spec == "double":
            plain = all_of(plain, compare(variable, "==", variable))
        return either(plain, call(f"_s_{self.spec}_pack", variable), call(f"_s_{self.spec}_encode", variable))

    def decode_source(self, variable: Code) -> Code:
        return item(call(f"_s_{self.spec}_unpack", variable), 0)

    def canonical_source(self, variable: Code) -> Code:
        test = compare(call("len", variable), "==", literal(self._size))
        # Java writes every NaN with the same bytes, so that bytes with a NaN's exponent do not pass through.
        return all_of(test, _is_number(variable)) if self.spec == "double" else test


class DoubleSerde(NumberSerde):
    """A number of 8 bytes; every NaN is written as the same bytes (Double.doubleToLongBits), unlike with floats."""

    def __init__(self) -> None:
        super().__init__("double", ">d", True)


class BooleanSerde(Serde):
    """One byte, 0 or 1."""

    spec = "boolean"
    immutable = True
    type = BOOLEAN
    takes = (BOOLEAN,)

    def encode(self, value: Value) -> bytes:
        if type(value) is not bool:
            raise refused("boolean", "true or false", value)
        return b"\x01" if value else b"\x00"

    def decode(self, data: bytes) -> bool:
        if data == b"\x01":
            return True
        if data == b"\x00":
            return False
        raise SerdeError(f"serde boolean: expected one byte 0 or 1, found {data[:8].hex(' ')!r}")

    def to_json(self, value: Document) -> Document:
        return value

    def from_json(self, data: Json) -> Value:
        if data is not None and type(data) is not bool:
            raise refused("boolean", "true or false", data)
        return data


class UuidSerde(Serde):
    """A UUID as its 36 characters of text; the value in expressions is that text (UUIDSerializer).

    Reading and writing accept all that `java.util.UUID.fromString` does: `1-2-3-4-5` is a UUID too.
    """

    spec = "uuid"
    read_by = ("string",)

    def encode(self, value: Value) -> bytes:
        try:
            return uuid_text(value if isinstance(value, str) else str(value)).encode()
        except ValueError as error:
            raise refused("uuid", "a UUID", value) from error

    def decode(self, data: bytes) -> str:
        try:
            return uuid_text(data.decode("utf-8", JAVA))
        except ValueError as error:
            raise SerdeError(f"serde uuid: {data[:40]!r} is not a UUID") from error

    def to_json(self, value: Document) -> Document:
        return value

    def from_json(self, data: Json) -> Value:
        return None if data is None else self.encode(data).decode()


def uuid_text(text: str) -> str:
    """Return the 36 characters of a UUID's text: the lowest digits of five hexadecimal numbers. Raises ValueError.

    >>> uuid_text("1-2-3-4-5")
    '00000001-0002-0003-0004-000000000005'
    """
    parts = text.split("-")
    # Java allows a sign before each number too; a minus makes one part more here.
    if len(text) > 36 or len(parts) != 5:
        raise ValueError("not five numbers of at most 36 characters")
    return "-".join(format(_hexadecimal(part), f"0{size}x")[-size:] for part, size in zip(parts, _UUID, strict=True))


_UUID = (8, 4, 4, 4, 12)


def _hexadecimal(digits: str) -> int:
    """Return a number as Long.parseLong reads it: digits of any script, with or without a plus, within 63 bits."""
    if digits[:1] == "+":
        digits = digits[1:]
    number = int("".join(map(_plain_digit, digits)), 16)
    if number >= 1 << 63:
        raise ValueError("more than 63 bits")
    return number


def _plain_digit(char: str) -> str:
    # Java also takes full-width letters, and no character beyond the first plane.
    if "\uff21" <= char <= "\uff5a":
        char = chr(ord(char) - 0xFEE0)
    if char > "\uffff":
        raise ValueError("not a digit")
    return format(int(char, 16), "x")


class VoidSerde(Serde):
    """Nothing: only absent values (VoidSerializer)."""

    spec = "void"
    immutable = True

    def encode(self, value: Value) -> bytes:
        raise refused("void", "nothing", value)

    def decode(self, data: bytes) -> Value:
        raise SerdeError("serde void: expected no bytes at all, found some")

    def to_json(self, value: Value) -> Json:
        return None

    def from_json(self, data: Json) -> Value:
        if data is not None:
            raise refused("void", "null", data)
        return None


STRING, BYTES = StringSerde(), BytesSerde()
PRIMITIVES: dict[str, Serde] = {
    str(serde.spec): serde
    for serde in (
        STRING,
        BYTES,
        BooleanSerde(),
        NumberSerde("short", ">h"),
        NumberSerde("integer", ">i"),
        NumberSerde("long", ">q"),
        NumberSerde("float", ">f", True),
        DoubleSerde(),
        UuidSerde(),
        VoidSerde(),
    )
}


# UTF-8 as Java reads and writes it: handlers of malformed text, by the name JAVA for `encode` and `decode`.
#
# They are not called for well-formed text.

JAVA = "java"
"""Name of the error handlers: `text.encode("utf-8", JAVA)`, `data.decode("utf-8", JAVA)`."""


def _written(error: UnicodeError) -> tuple[bytes, int]:
    """Return Java's bytes of a run of surrogates: a pair is one character, a lone surrogate becomes `?`."""
    if not isinstance(error, UnicodeEncodeError):
        raise error
    run = error.object[error.start : error.end]
    joined = run.encode("utf-16-le", "surrogatepass").decode("utf-16-le", "surrogatepass")
    return joined.encode("utf-8", "replace"), error.end


def _read(error: UnicodeError) -> tuple[str, int]:
    """Return one U+FFFD for a malformed sequence; the bytes of an encoded surrogate are one sequence, not three."""
    if not isinstance(error, UnicodeDecodeError):
        raise error
    data, start, end = error.object, error.start, error.end
    if data[start] == 0xED and end == start + 1 and data[end : end + 1] and data[end] & 0xE0 == 0xA0:
        third = data[end + 1 : end + 2]
        end += 2 if third and third[0] & 0xC0 == 0x80 else 1
    return "\ufffd", end


def _handle(error: UnicodeError) -> tuple[str | bytes, int]:
    return _written(error) if isinstance(error, UnicodeEncodeError) else _read(error)


codecs.register_error(JAVA, _handle)


# Text of several lines: a list with one text a line, for `flat_map_values: {values: value}`.


class LinesSerde(Serde):
    """UTF-8; lines end with LF, or CR LF when read; the end of the last one may be absent, and is written if that is empty."""

    spec = "lines"

    type = ListOf(TEXT)

    def encode(self, value: Value) -> bytes:
        if not isinstance(value, (list, tuple)) or not all(isinstance(line, str) for line in value):
            raise SerdeError(f"serde lines takes a list of texts, not {shown(value, 80)}")
        check_value(value)
        if any("\n" in line for line in value):
            raise SerdeError("serde lines takes a list of texts, each without a line break")
        if any(line.endswith("\r") for line in value[:-1]):
            raise SerdeError("serde lines can't hold a line that ends with a carriage return, except for the last one")
        end = "" if not value or value[-1] else "\n"
        return ("\n".join(value) + end).encode("utf-8", "replace")

    def decode(self, data: bytes) -> list[str]:
        text = data.decode("utf-8", "replace").replace("\r\n", "\n")
        return text.removesuffix("\n").split("\n") if text else []

    def to_json(self, value: Document) -> Document:
        return value

    def from_json(self, data: Json) -> Value:
        return data


def make_lines(spec: SerdeSpec, folder: str) -> Serde:
    """Return the serde of `lines`."""
    return LinesSerde()
