"""The json serde: compact UTF-8 text, field order kept, numbers as Java prints them (Jackson's JsonNode.toString)."""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Sequence
from typing import Any

import orjson

from streamkit.code import Code, call
from streamkit.errors import SerdeError
from streamkit.serdes.base import Serde
from streamkit.serdes.equality import same
from streamkit.serdes.primitives import kind_of
from streamkit.serdes.utf8 import JAVA

# Nineteen digits in a row show as nineteen zeros in the translated text: a third of what a pattern takes.
_DIGITS_AS_ZERO = bytes(ord("0") if byte in b"0123456789" else byte for byte in range(256))
_BIG_NUMBER = b"0" * 19

_dumps, _loads = orjson.dumps, orjson.loads


def to_text(value: Any) -> bytes:
    """Return the text of a value. Raises SerdeError for what JSON can't hold."""
    try:
        data = _dumps(value)
        if not _has_java_number(value):
            return data
    except TypeError:
        pass
    try:
        return "".join(_pieces(value)).encode("utf-8", JAVA)
    except RecursionError as error:
        raise SerdeError("serde json can't hold a value that is nested so deeply, or that holds itself") from error


def _has_java_number(value: Any) -> bool:
    """Say whether a value holds a float that Java writes with an exponent or in quotes, unlike orjson.

    A look at the values costs less than one at the text, where every digit could begin such a number.
    """
    kind = value.__class__
    if kind is dict or isinstance(value, dict):
        items = value.values()
    elif kind is list or isinstance(value, (list, tuple)):
        items = value
    else:
        return isinstance(value, float) and not (value == 0 or 0.001 <= abs(value) < 10_000_000)
    for item in items:
        kind = item.__class__
        if kind is str or kind is int or kind is bool or item is None:
            continue
        if kind is float:
            # Not-a-number fails every comparison.
            if not (0.001 <= item < 10_000_000 or item == 0 or -10_000_000 < item <= -0.001):
                return True
        elif _has_java_number(item):
            return True
    return False


def from_text(data: bytes) -> Any:
    """Return the value of a text. Raises SerdeError."""
    try:
        if _BIG_NUMBER in data.translate(_DIGITS_AS_ZERO):
            # orjson turns whole numbers beyond 64 bits into floats.
            return json.loads(data.decode("utf-8"), parse_constant=_no_constant, parse_float=_finite)
        return _loads(data)
    except (ValueError, RecursionError) as error:
        raise _not_json(error, data) from error


def batch_decoder(values: Sequence[bytes | None]) -> Callable[[bytes], Any]:
    """Return what decodes any of these texts: mostly a bare `orjson.loads`, for no batch has a number beyond 64 bits."""
    return from_text if _BIG_NUMBER in b",".join(filter(None, values)).translate(_DIGITS_AS_ZERO) else _loads


def _not_json(error: Exception, data: bytes) -> SerdeError:
    return SerdeError(f"serde json: not JSON: {error}: {data[:60]!r}{'…' * (len(data) > 60)}")


def _no_constant(name: str) -> Any:
    raise ValueError(f"{name} is no JSON number")


def _finite(text: str) -> float:
    # What orjson refuses is refused here, too, so that a number's neighbours do not decide about it.
    number = float(text)
    if math.isinf(number):
        raise ValueError("a number is beyond the range of doubles")
    return number


def java_double(number: float) -> str:
    """Return a number as Double.toString writes it; numbers that are none are quoted, as Jackson does.

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
    whole, _, fraction = mantissa.partition(".")
    exponent = int(power or 0) + len(whole) - 1
    figures = (whole + fraction).lstrip("0")
    if whole == "0":
        exponent = int(power or 0) - (len(fraction) - len(fraction.lstrip("0"))) - 1
    figures = figures.rstrip("0") or "0"
    return f"{sign}{figures[0]}.{figures[1:] or '0'}E{exponent}"


def _pieces(value: Any) -> Any:
    """Yield the text of a value in pieces; the slow way, for what orjson writes differently."""
    if value is None:
        yield "null"
    elif value is True or value is False:
        yield "true" if value else "false"
    elif type(value) is int:
        yield str(value)
    elif type(value) is float:
        yield java_double(value)
    elif isinstance(value, str):
        yield _text(value)
    elif isinstance(value, dict):
        yield "{"
        for number, (name, item) in enumerate(value.items()):
            yield f"{',' if number else ''}{_text(_field_name(name))}:"
            yield from _pieces(item)
        yield "}"
    elif isinstance(value, (list, tuple)):
        yield "["
        for number, item in enumerate(value):
            if number:
                yield ","
            yield from _pieces(item)
        yield "]"
    else:
        raise SerdeError(f"serde json can't hold {kind_of(value)}: {repr(value)[:80]}")


def _text(value: str) -> str:
    try:
        return _dumps(value).decode()
    except TypeError:
        return _dumps(value.encode("utf-8", JAVA).decode()).decode()


def _field_name(name: Any) -> str:
    if isinstance(name, str):
        return name
    if type(name) in (int, bool, float) or name is None:
        return "".join(_pieces(name))
    raise SerdeError(f"serde json: a field's name must be text, not {kind_of(name)}")


class JsonSerde(Serde):
    """Any plain data as JSON; the text `null` reads as an absent value."""

    spec = "json"
    batch_decoder = staticmethod(batch_decoder)

    def explained(self, error: Exception, data: bytes | None) -> Exception:
        return _not_json(error, data or b"") if isinstance(error, orjson.JSONDecodeError) else error

    def encode(self, value: Any) -> bytes:
        return to_text(value)

    def decode(self, data: bytes) -> Any:
        return from_text(data)

    def to_json(self, value: Any) -> Any:
        return value

    def from_json(self, data: Any) -> Any:
        return data

    def same(self, one: Any, other: Any) -> bool:
        return same(one, other)

    def encode_source(self, variable: Code) -> Code:
        return call("_s_json_encode", variable)

    def decode_source(self, variable: Code) -> Code:
        return call("_s_json_decode", variable)

    @property
    def inline_globals(self) -> dict[str, Any]:
        return {"_s_json_encode": to_text, "_s_json_decode": from_text}
