"""The json serde: compact UTF-8 text, field order kept, numbers as Java prints them (Jackson's JsonNode.toString)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import suppress
from typing import NoReturn

import orjson

from streamkit.code import Code, call
from streamkit.errors import SerdeError
from streamkit.extension import native
from streamkit.record import Key, Operand, Value
from streamkit.rounds import LARGE
from streamkit.serdes.formats.primitives import JAVA, kind_of
from streamkit.serdes.plain import Document, Json, shown
from streamkit.serdes.serde import Serde, SerdeSpec, same
from streamkit.serdes.size import MAX_DEPTH, SMALL, check_size, least_size, unused

# The search for a number beyond 64 bits translates digits to zeros and looks for nineteen of them, in a third of the time of a
# regular expression. It first looks at every third byte: nineteen zeros leave six there, which most texts do not have.
_DIGITS_AS_ZERO = bytes(ord("0") if byte in b"0123456789" else byte for byte in range(256))
_BIG_NUMBER = b"0" * 19
_EVERY = 3
_SIX = b"0" * (19 // _EVERY)

_UNCOUNTED_ROOM = SMALL - LARGE
"""If this much of SMALL is left after a value, the value is too small to count towards the limit of a round."""
_PIECES = 20_000
"""The number of pieces of text that are collected before they are joined."""

_dumps, _loads, _join = orjson.dumps, orjson.loads, b"".join


def to_text(value: Value, most: int | None = None, deepest: int = MAX_DEPTH) -> bytes:
    """Return the text of a value.

    Raises SerdeError for a value that JSON can't represent, for more than `most` bytes (by default the limit of
    serdes.size.check_size), and for more than `deepest` levels.
    """
    try:
        # It is cheaper to check the value than its text, where every digit could begin a float that Java writes differently.
        # The check comes first, because orjson ends the process if there is no memory for its text.
        room = unused(value)
        if room > _UNCOUNTED_ROOM:
            return plain_text(value)
        if room >= 0:
            return check_size(plain_text(value), most)
    except (TypeError, RecursionError):
        pass
    return _large_or_odd(value, most, deepest)


def _large_or_odd(value: Value, most: int | None, deepest: int) -> bytes:
    _, odd = least_size(value, most, deepest)
    if not odd:
        with suppress(TypeError):
            return check_size(plain_text(value), most)
    return _written(value, most)


def plain_text(value: Value) -> bytes:
    """Return the text that orjson writes, in no more memory than its size. Raises TypeError.

    >>> plain_text({"a": 1})
    b'{"a":1}'
    """
    # orjson reserves 1 KB (4 KB from 3.12 on) for each text, and the result keeps all of it. The join copies the text, which
    # costs less than the memory that many results would otherwise take.
    return _join((_dumps(value), b""))


def from_text(data: bytes) -> Json:
    """Return the value of a text. Raises SerdeError."""
    try:
        if has_big_number(data):
            # orjson turns whole numbers beyond 64 bits into floats.
            value: Json = json.loads(data.decode("utf-8"), parse_constant=_no_constant, parse_float=_finite)
        else:
            value = _loads(data)
        return value
    except (ValueError, RecursionError) as error:
        raise _not_json(error, data) from error


def batch_decoder(values: Sequence[bytes | None]) -> Callable[[bytes], Value]:
    """Return a decoder for all of these texts: `orjson.loads` itself, unless a number may be beyond 64 bits."""
    return from_text if has_big_number(values) else _loads


def has_big_number_in_python(texts: bytes | Sequence[bytes | None]) -> bool:
    """Return whether a text, or one of several, has nineteen digits in a row, as every number beyond 64 bits has."""
    data = texts if isinstance(texts, bytes) else b",".join(filter(None, texts))
    return _SIX in data[::_EVERY].translate(_DIGITS_AS_ZERO) and _BIG_NUMBER in data.translate(_DIGITS_AS_ZERO)


has_big_number = native("big_number", has_big_number_in_python)
"""The same function from the extension `streamkit._native`, if it is in use."""


def _not_json(error: Exception, data: bytes) -> SerdeError:
    return SerdeError(f"serde json: not JSON: {error}: {data[:60]!r}{'…' * (len(data) > 60)}")


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a JSON number")


def _finite(text: str) -> float:
    # orjson refuses it too, so the result does not depend on the other numbers in the text.
    number = float(text)
    if math.isinf(number):
        raise ValueError("a number is beyond the range of doubles")
    return number


def java_double(number: float) -> str:
    """Return a number as Double.toString of JDK 19 and later writes it (JDK-4511638); NaN and infinities are quoted, as Jackson does.

    >>> java_double(1e10), java_double(0.0001), java_double(0.001), java_double(-12.5), java_double(float("nan"))
    ('1.0E10', '1.0E-4', '0.001', '-12.5', '"NaN"')
    """
    if math.isnan(number):
        return '"NaN"'
    if math.isinf(number):
        return '"Infinity"' if number > 0 else '"-Infinity"'
    size = abs(number)
    if size == 0 or 0.001 <= size < 10_000_000:
        return repr(number) if size == 0 or "e" not in repr(number) else f"{number:.17f}".rstrip("0")
    digits, exponent = f"{number!r}", 0
    sign = "-" if digits.startswith("-") else ""
    mantissa, _, power = digits.lstrip("-").partition("e")
    integer, _, fraction = mantissa.partition(".")
    exponent = int(power or 0) + len(integer) - 1
    figures = (integer + fraction).lstrip("0")
    if integer == "0":
        exponent = int(power or 0) - (len(fraction) - len(fraction.lstrip("0"))) - 1
    figures = figures.rstrip("0") or "0"
    if len(figures) == 1:
        # Java writes at least two digits, and chooses the nearest number with two digits: 5e-324 is 4.9E-324.
        nearest = f"{size:.1e}"
        if float(nearest) == size:
            figures, exponent = (nearest[0] + nearest[2]).rstrip("0"), int(nearest[4:])
    return f"{sign}{figures[0]}.{figures[1:] or '0'}E{exponent}"


def _written(value: Value, most: int | None) -> bytes:
    """Return the text of a value, joined from pieces: slower, for values that orjson writes differently from Java."""
    data, waiting = bytearray(), []
    for piece in _pieces(value):
        waiting.append(piece)
        if len(waiting) >= _PIECES:
            data += "".join(waiting).encode("utf-8", JAVA)
            waiting.clear()
            check_size(data, most)
    data += "".join(waiting).encode("utf-8", JAVA)
    return check_size(bytes(data), most)


def _pieces(value: Value) -> Iterator[str]:
    """Yield the text of a value, whose depth was checked, without recursion."""
    outer: list[tuple[Iterator[tuple[str, Operand]], str]] = []
    items: Iterator[tuple[str, Operand]]
    item: Operand
    items, end = iter((("", value),)), ""
    while True:
        for before, item in items:
            scalar = _scalar(item)
            if scalar is not None:
                yield before + scalar
                continue
            outer.append((items, end))
            if isinstance(item, dict):
                yield before + "{"
                items, end = _fields(item), "}"
            else:
                yield before + "["
                items, end = _elements(item), "]"
            break
        else:
            yield end
            if not outer:
                return
            items, end = outer.pop()


def _fields(value: dict[Key, Value]) -> Iterator[tuple[str, Value]]:
    for number, (name, item) in enumerate(value.items()):
        text = _field_name(name)
        if text is not name and text in value:
            raise SerdeError(f"serde json: there are two fields {text!r}, one named by {kind_of(name)} and one by text")
        yield f"{',' if number else ''}{_text(text)}:", item


def _elements(value: Iterable[Value]) -> Iterator[tuple[str, Value]]:
    for number, item in enumerate(value):
        yield "," if number else "", item


def _scalar(value: Value) -> str | None:
    """Return the text of a value; None for a list or an object. Raises SerdeError for any other object."""
    if value is None:
        return "null"
    if value is True or value is False:
        return "true" if value else "false"
    if type(value) is int:
        return str(value)
    if type(value) is float:
        return java_double(value)
    if isinstance(value, str):
        return _text(value)
    if isinstance(value, (dict, list, tuple)):
        return None
    raise SerdeError(f"serde json can't hold {kind_of(value)}: {shown(value, 80)}")


def _text(value: str) -> str:
    try:
        return _dumps(value).decode()
    except TypeError:
        return _dumps(value.encode("utf-8", JAVA).decode()).decode()


def _has_non_finite(data: Json) -> bool:
    """Return whether data contain NaN or an infinite number, which orjson would write as null."""
    if isinstance(data, float):
        return not math.isfinite(data)
    if isinstance(data, dict):
        return any(map(_has_non_finite, data)) or any(map(_has_non_finite, data.values()))
    return isinstance(data, (list, tuple)) and any(map(_has_non_finite, data))


def _field_name(name: Key) -> str:
    if isinstance(name, str):
        return name
    if type(name) in (int, bool, float) or name is None:
        return _scalar(name) or ""
    raise SerdeError(f"serde json: a field's name must be text, not {kind_of(name)}")


class JsonSerde(Serde):
    """Plain data as JSON; the text `null` reads as an absent value."""

    spec = "json"
    batch_decoder = staticmethod(batch_decoder)

    def explained(self, error: Exception, data: bytes | None) -> Exception:
        return _not_json(error, data or b"") if isinstance(error, orjson.JSONDecodeError) else error

    def encode(self, value: Value) -> bytes:
        return to_text(value)

    def decode(self, data: bytes) -> Value:
        return from_text(data)

    def to_json(self, value: Document) -> Document:
        return value

    def from_json(self, data: Json) -> Value:
        # `encode` raises its own error for data that are too deep.
        with suppress(RecursionError):
            if _has_non_finite(data):
                raise SerdeError("JSON has no NaN and no infinite number; write null, or text")
        return data

    def same(self, one: Value, other: Value) -> bool:
        return same(one, other)

    def encode_source(self, variable: Code) -> Code:
        return call("_s_json_encode", variable)

    def decode_source(self, variable: Code) -> Code:
        return call("_s_json_decode", variable)

    @property
    def inline_globals(self) -> dict[str, object]:
        return {"_s_json_encode": to_text, "_s_json_decode": from_text}


def make_json(spec: SerdeSpec, folder: str) -> Serde:
    """Return the serde of `json`."""
    return JsonSerde()
