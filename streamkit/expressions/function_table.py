"""The functions of the library by name, in the order of the reference."""

from __future__ import annotations

from collections.abc import Callable
from decimal import (
    ROUND_CEILING,
    ROUND_DOWN,
    ROUND_FLOOR,
    ROUND_HALF_DOWN,
    ROUND_HALF_EVEN,
    ROUND_HALF_UP,
    ROUND_UP,
    Context,
    Decimal,
)
from functools import lru_cache, partial
from typing import Any
from urllib.parse import quote, unquote

from streamkit.expressions import regex, time_functions
from streamkit.expressions.budget import MAX_BYTES, MAX_TOTAL, SLOT, Budget, size_error
from streamkit.expressions.function_entry import (
    LibraryFunction,
    bytes_of,
    need_integer,
    need_text,
    one_of_words,
)
from streamkit.expressions.helpers import bounded, written
from streamkit.expressions.types import BYTES, INTEGER, NUMBER, TEXT, ListOf
from streamkit.record import Key, Operand, Value, WindowedKey

SECTIONS: dict[str, list[LibraryFunction]] = {
    "Times": time_functions.ENTRIES,
    "Fields and keys": [],
    "JSON, base64, URLs": [],
    "Patterns": [],
    "Numbers": [],
    "Hashes": [],
}
"""The functions by the sections of the reference; each one enters its section where it is defined."""

# Fields of nested objects, and windowed keys.


def _charged_get(budget: Budget, value: Value, path: Value, default: Value = None) -> Value:
    # The result is a part of the value, which has been charged.
    budget.spend(1 + budget.size(path))
    return get(value, path, default)


@LibraryFunction(
    SECTIONS["Fields and keys"],
    (
        ("get({'a': {'b': [1, 2]}}, 'a.b.1')", "2"),
        ("get({'a': None}, 'a.b.c', 0)", "0"),
        ("get({'x.y': 5}, ['x.y'])", "5"),
    ),
    factor=1.0,
    charge=_charged_get,
)
def get(value: Value, path: Value, default: Value = None) -> Value:
    """The part of a value at a path such as `a.b.0.c`: fields of objects and indices of lists, from 0. If a part is absent or null, the result is
    `default`, which is None if omitted. If a name contains dots, write the path as a list.
    """
    part = value
    for step in path.split(".") if isinstance(path, str) else _parts(path):
        if isinstance(part, dict):
            part = part.get(step)
        elif isinstance(part, (list, tuple)):
            at = _index(step)
            part = part[at] if at is not None and at < len(part) else None
        elif isinstance(part, WindowedKey) and step in ("key", "start", "end"):
            part = getattr(part, step)
        else:
            part = None
        if part is None:
            return default
    return part


def _parts(path: Value) -> list[Value]:
    if not isinstance(path, (list, tuple)):
        raise TypeError(f"get() takes a path as text or as a list, not {type(path).__name__}")
    return list(path)


def _index(part: Value) -> int | None:
    if isinstance(part, str) and part.isascii() and part.isdigit() and len(part) < 10:
        return int(part)
    return part if type(part) is int and part >= 0 else None


@LibraryFunction(SECTIONS["Fields and keys"], (("windowed_key('ada', 0, 60000).end", "60000"),), factor=1.0)
def windowed_key(key: Key, start: Value, end: Value) -> WindowedKey:
    """A key with its window, for topics and tables with windowed keys; its parts are `.key`, `.start` and `.end` (ms)."""
    low, high = need_integer(start, "windowed_key"), need_integer(end, "windowed_key")
    if not 0 <= low <= high:
        raise ValueError("windowed_key() takes a start of at least 0, and an end that is not before it")
    return WindowedKey(key, low, high)


# Hashes, and UUIDs computed from names.

_NAMESPACES = ("dns", "url", "oid", "x500")


@LibraryFunction(SECTIONS["Hashes"], (("sha256('tea')[:16]", "'a9f74d1ec36ebdeb'"),), type=TEXT, constant=64.0)
def sha256(value: Value) -> str:
    """The SHA-256 of bytes, or of text in UTF-8, as 64 hexadecimal digits."""
    from hashlib import sha256 as digest

    return digest(bytes_of(value, "sha256")).hexdigest()


@LibraryFunction(SECTIONS["Hashes"], (("murmur2('21')", "-973932308"),), type=INTEGER)
def murmur2(value: Value) -> int:
    """The hash of a key's bytes (or text), from which Kafka's clients choose its partition: a signed 32-bit integer."""
    from streamkit.serdes.partitioner import murmur2 as digest

    return digest(bytes_of(value, "murmur2"))


@LibraryFunction(SECTIONS["Hashes"], (("xxhash64('tea')", "4741855839676419641"),), type=INTEGER)
def xxhash64(value: Value, seed: Value = 0) -> int:
    """The XXH64 hash of bytes or text: a signed 64-bit integer."""
    from xxhash import xxh64_intdigest

    number = xxh64_intdigest(bytes_of(value, "xxhash64"), need_integer(seed, "xxhash64") % (1 << 64))
    return number - (1 << 64) if number >> 63 else number


@lru_cache(maxsize=256)
def _namespace(value: Operand) -> Any:
    import uuid

    if value in _NAMESPACES:
        return getattr(uuid, f"NAMESPACE_{value.upper()}")
    try:
        return uuid.UUID(value)
    except (ValueError, AttributeError, TypeError):
        words = ", ".join(_NAMESPACES)
        raise ValueError(f"uuid5() takes a namespace of {words}, or a UUID, not {str(value)[:40]!r}") from None


@LibraryFunction(
    SECTIONS["Hashes"],
    (("uuid5('dns', 'example.org')", "'aad03681-8b63-5304-89e0-8ca8f49461b5'"),),
    type=TEXT,
    constant=36.0,
    checks={0: _namespace},
)
def uuid5(namespace: Value, name: Value) -> str:
    """The version 5 UUID of a name; it depends only on the arguments. `namespace` is `dns`, `url`, `oid`, `x500` or a UUID."""
    from uuid import uuid5 as computed

    return str(computed(_namespace(namespace), need_text(name, "uuid5")))


# Rounding and formatting numbers.

_MODES = {
    "half_even": ROUND_HALF_EVEN,
    "half_up": ROUND_HALF_UP,
    "half_down": ROUND_HALF_DOWN,
    "up": ROUND_UP,
    "down": ROUND_DOWN,
    "ceiling": ROUND_CEILING,
    "floor": ROUND_FLOOR,
}
_MAX_DECIMALS = 100
"""The maximum number of decimals."""
# Integers of 4,096 bits have 1,234 digits.
_CONTEXT = Context(prec=2000)


def _round(number: Value, decimals: Operand, mode: Operand, name: str) -> Decimal:
    _DECIMALS(decimals)
    _MODE(mode)
    if type(number) not in (int, float):
        raise TypeError(f"{name}() takes a number, not {type(number).__name__}")
    exact = Decimal(repr(number))
    if not exact.is_finite():
        raise ValueError(f"{name}() takes finite numbers, not {number}")
    return exact.quantize(Decimal(1).scaleb(-decimals), _MODES[mode], _CONTEXT)


def _check_decimals(value: Value) -> None:
    if type(value) is not int or not -_MAX_DECIMALS <= value <= _MAX_DECIMALS:
        raise ValueError(f"decimals must be a whole number from -{_MAX_DECIMALS} to {_MAX_DECIMALS}")


def _check_group(value: Value) -> None:
    if not isinstance(value, str) or len(value) > 1:
        raise ValueError("the separator of thousands must be one character, or empty text")


_DECIMALS, _GROUP, _MODE = _check_decimals, _check_group, one_of_words(*_MODES)


@LibraryFunction(
    SECTIONS["Numbers"],
    (
        ("round_to(2.675, 2, 'half_up')", "2.68"),
        ("round_to(1250, -2)", "1200"),
        ("round_to(-1.5, 0, 'down')", "-1.0"),
    ),
    type=NUMBER,
    checks={1: _DECIMALS, 2: _MODE},
)
def round_to(number: Value, decimals: Value = 0, mode: Value = "half_even") -> int | float:
    """The number rounded to `decimals` places, by default 0; a negative number rounds to tens, hundreds, …. The mode is `half_even` (as `round`),
    `half_up`, `half_down`, `up`, `down`, `ceiling` or `floor`. Rounding uses the decimal digits as printed, so that 2.675 rounds half up to
    2.68. A whole number stays whole.
    """
    rounded = _round(number, decimals, mode, "round_to")
    return int(rounded) if type(number) is int else float(rounded)


@LibraryFunction(
    SECTIONS["Numbers"],
    (("format_number(1234567.891, 2, ',')", "'1,234,567.89'"), ("format_number(5, 2)", "'5.00'")),
    type=TEXT,
    # The digits of the largest integer with separators of thousands, and the decimals.
    constant=2_000.0,
    checks={1: _DECIMALS, 2: _GROUP, 3: _MODE},
)
def format_number(number: Value, decimals: Operand = 0, group: Operand = "", mode: Value = "half_even") -> str:
    """The number as text, rounded to `decimals` places by `mode`, with `group` between thousands."""
    _GROUP(group)
    if decimals.__class__ is int and decimals < 0:
        raise ValueError("format_number() takes 0 or more decimals")
    shown = f"{_round(number, decimals, mode, 'format_number'):,f}"
    return shown.replace(",", group)


# Regular expressions (RE2): search, groups, substitution.

_MATCH = 400
"""Steps charged for each match and its replacement, in addition to the steps by length: several microseconds."""
_PART = 40
"""Steps charged at each match for each part of the replacement; a part is text or a group."""
_TEMPLATE = 3
"""Steps charged for each character of a replacement, because each call splits it into parts."""
_UNBOUNDED = float("inf")


def _pattern(value: Value) -> Any:
    return regex.compiled(value)


def _charged_search(name: str, budget: Budget, pattern: Value, text: Value) -> Value:
    budget.search(pattern, text)
    return budget.item(LIBRARY[name].run(pattern, text))


@LibraryFunction(
    SECTIONS["Patterns"],
    (("re_search('[0-9]+', 'order 17 of 20')", "'17'"), ("re_search('[0-9]+', 'none')", "None")),
    type=TEXT,
    factor=1.0,
    checks={0: _pattern},
    charge=partial(_charged_search, "re_search"),
    may_be_none=True,
)
def re_search(pattern: Value, text: Value) -> str | None:
    """The first part of the text that the pattern matches, or None."""
    groups = regex.compiled(pattern).first(need_text(text, "re_search"))
    return None if groups is None else groups[0]


@LibraryFunction(
    SECTIONS["Patterns"],
    (("re_groups('([a-z]+)=([0-9]+)?', 'x=, b=2')", "['x', None]"),),
    type=ListOf(TEXT),
    # Groups may be nested.
    factor=_UNBOUNDED,
    checks={0: _pattern},
    charge=partial(_charged_search, "re_groups"),
)
def re_groups(pattern: Value, text: Value) -> list[str | None] | None:
    """The groups of the first match as a list, with None for each group that did not match; None if there is no match."""
    groups = regex.compiled(pattern).first(need_text(text, "re_groups"))
    return None if groups is None else groups[1:]


def _charged_sub(budget: Budget, pattern: Value, replacement: Value, text: Value) -> str:
    budget.search(pattern, text)
    budget.spend(_TEMPLATE * budget.size(replacement))
    return budget.item(_substitute(pattern, replacement, text, budget.spend))


@LibraryFunction(
    SECTIONS["Patterns"],
    ((r"re_sub('([a-z])([0-9])', '\\2\\1', 'a1 b2')", "'1a 2b'"),),
    type=TEXT,
    factor=_UNBOUNDED,
    checks={0: _pattern},
    charge=_charged_sub,
)
def re_sub(pattern: Value, replacement: Value, text: Value) -> str:
    r"""The text with all matches replaced. In the replacement, `\1` to `\9` are groups, `\0` is the match, `\\` a backslash."""
    return _substitute(pattern, replacement, text, lambda steps: None)


def _substitute(pattern: Value, replacement: Operand, text: Operand, spend: Callable[[int], None]) -> str:
    expression = regex.compiled(pattern)
    template = _template(need_text(replacement, "re_sub"), expression.groups)
    pieces: list[str] = []
    size = end = 0
    for match in expression.finditer(need_text(text, "re_sub")):
        # Each part of the replacement is looked up and counted at each match.
        spend(_MATCH + _PART * len(template))
        pieces.append(text[end : match.start()])
        pieces += [part if isinstance(part, str) else match[part] or "" for part in template]
        size += sum(map(len, pieces[-len(template) - 1 :]))
        if size > MAX_BYTES:
            raise size_error("re_sub()", size)
        end = match.end()
    pieces.append(text[end:])
    return "".join(pieces)


def _template(replacement: str, groups: int) -> list[str | int]:
    r"""Return the parts of a replacement: text, and numbers of groups for `\0` to `\9`."""
    parts: list[str | int] = []
    pieces = replacement.split("\\")
    parts.append(pieces[0])
    escaped = iter(pieces[1:])
    for piece in escaped:
        if not piece:
            # Two backslashes mean one, and the text after them is literal.
            parts.append("\\" + next(escaped, ""))
        elif piece[0] in "0123456789":
            if int(piece[0]) > groups:
                raise ValueError(f"re_sub(): the replacement names group {piece[0]}, but the pattern has {groups}")
            parts += [int(piece[0]), piece[1:]]
        else:
            raise ValueError(
                f"re_sub(): '\\{piece[0]}' in a replacement; write \\0 to \\9 for a group, \\\\ for a backslash"
            )
    return [part for part in parts if part != ""]


# JSON, base64 and URLs.

_CONTAINER, _ESCAPE = 64, 128
"""Bytes of memory: for an empty list or object, and for each `%XX` while a text is decoded."""


@LibraryFunction(SECTIONS["JSON, base64, URLs"], (("from_json('{\"a\": [1, null]}')", "{'a': [1, None]}"),), factor=8.0)
def from_json(text: Value) -> Value:
    """The value of a JSON text (or its bytes); other text is an error."""
    from streamkit.serdes.formats.json_text import from_text

    data = bytes_of(text, "from_json")
    containers = data.count(b"[") + data.count(b"{")
    size = containers * _CONTAINER + data.count(b",") * SLOT
    if size > MAX_TOTAL:
        raise size_error("from_json()", size, MAX_TOTAL)
    return from_text(data)


@LibraryFunction(
    SECTIONS["JSON, base64, URLs"], (("to_json({'a': [1, None]})", "'{\"a\":[1,null]}'"),), type=TEXT, factor=6.0
)
def to_json(value: Value) -> str:
    """The JSON text of a value, as the serde `json` writes it."""
    from streamkit.serdes.formats.json_text import to_text

    return written(value, lambda value: to_text(value).decode("utf-8", "surrogatepass"), "to_json()")


@LibraryFunction(
    SECTIONS["JSON, base64, URLs"], (("base64_encode('tea')", "'dGVh'"),), type=TEXT, factor=6.0, constant=4.0
)
def base64_encode(value: Value) -> str:
    """The base64 text of bytes, or of text in UTF-8."""
    from base64 import b64encode

    return bounded(b64encode(bytes_of(value, "base64_encode")).decode(), "base64_encode()")


@LibraryFunction(
    SECTIONS["JSON, base64, URLs"],
    (("base64_decode('dGVh')", "b'tea'"), ("base64_decode('_w').hex()", "'ff'")),
    type=BYTES,
    factor=1.0,
)
def base64_decode(text: Value) -> bytes:
    """The bytes of a base64 text in the standard (`+/`) or the URL-safe (`-_`) alphabet, with or without `=` at the end."""
    from base64 import b64decode

    plain = need_text(text, "base64_decode").rstrip("=").replace("-", "+").replace("_", "/")
    try:
        return b64decode(plain + "=" * (-len(plain) % 4), validate=True)
    except ValueError as error:
        raise ValueError(f"base64_decode(): not base64: {error}") from None


@LibraryFunction(SECTIONS["JSON, base64, URLs"], (("url_encode('a b/c')", "'a%20b%2Fc'"),), type=TEXT, factor=12.0)
def url_encode(text: Value) -> str:
    """The text percent-encoded: every character except letters, digits and `_.-~` becomes the `%XX` of its UTF-8 bytes."""
    data = bytes_of(text, "url_encode")
    if len(data) * 3 > MAX_BYTES:
        raise size_error("url_encode()", len(data) * 3)
    return quote(data, safe="")


@LibraryFunction(SECTIONS["JSON, base64, URLs"], (("url_decode('a%20b')", "'a b'"),), type=TEXT, factor=3.0)
def url_decode(text: Operand) -> str:
    r"""The text with each `%XX` decoded; bytes that are not UTF-8 become `\ufffd`."""
    size = need_text(text, "url_decode").count("%") * _ESCAPE
    if size > MAX_TOTAL:
        raise size_error("url_decode()", size, MAX_TOTAL)
    return unquote(text)


LIBRARY: dict[str, LibraryFunction] = {function.name: function for entries in SECTIONS.values() for function in entries}


BUILT_IN = {
    "len": ("len(value)", "The number of characters, members or fields."),
    "min": ("min(values[, key])", "The smallest value of a list, or of several arguments; `key` returns the value to compare."),
    "max": ("max(values[, key])", "The largest value of a list, or of several arguments; `key` returns the value to compare."),
    "sum": ("sum(values[, start])", "The sum of the numbers of a list."),
    "abs": ("abs(number)", "The number without its sign."),
    "round": ("round(number[, digits])", "The number rounded to a whole number, or to `digits` decimals; halves round to the even neighbour."),
    "int": ("int(value[, base])", "A whole number, from a number (without its fraction) or from text."),
    "float": ("float(value)", "A floating-point number, from a number or from text."),
    "str": ("str(value)", "The value as text."),
    "bool": ("bool(value)", "False for null, 0, and empty text, lists and objects; else True."),
    "sorted": ("sorted(values[, key, reverse])", "A list of the values in ascending order; `key` returns the value to compare."),
    "any": ("any(values)", "Whether any of the values is true."),
    "all": ("all(values)", "Whether all values are true."),
    "list": ("list(values)", "A list of the values."),
    "dict": ("dict(pairs)", "An object, from pairs of names and values."),
    "tuple": ("tuple(values)", "A tuple of the values."),
    "set": ("set(values)", "The distinct values, for `in` and for set operators."),
    "zip": ("zip(values, others)", "Pairs of the lists' members at the same position, up to the end of the shortest list."),
    "enumerate": ("enumerate(values[, start])", "The values with their numbers, from 0 or from `start`."),
    "range": ("range(start, stop[, step])", "The whole numbers from `start` (or 0) up to, but not including, `stop`."),
    "re_match": ("re_match(pattern, text)", "Whether the pattern matches the entire text."),
    "re_split": ("re_split(pattern, text)", "The pieces of the text between matches of the pattern."),
    "now": ("now()", "The current time in milliseconds."),
    "merge": ("merge(first, second)", "An object with the fields of all arguments; the last one wins if names are equal."),
    "header": ("header(name)", "The value of the record's last header with this name, as text; null if there is none."),
}  # fmt: skip
"""The functions outside the library: signature and documentation by name. Those of Python take the same arguments as there."""
