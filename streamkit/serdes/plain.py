"""The JSON form of plain data that holds bytes, dates or decimals, and the form of values in messages."""

from __future__ import annotations

import base64
import json
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from streamkit.errors import SerdeError
from streamkit.record import Key, Operand, Value

Json: TypeAlias = "bool | int | float | str | Sequence[Json] | Mapping[str, Json] | None"
"""A JSON document, or a YAML file's data."""

Document: TypeAlias = Any
"""A JSON document whose shape another place has checked: a schema that a library reads, or what this program wrote."""


def plain(value: Value) -> Json:
    """Return the JSON form of decoded data: bytes as {"base64": …}, other values that JSON does not have as text.

    >>> plain({"a": [b"x", 1]})
    {'a': [{'base64': 'eA=='}, 1]}
    """
    if isinstance(value, dict):
        return {str(name): plain(item) for name, item in value.items()}
    if isinstance(value, (list, tuple)):
        return [plain(item) for item in value]
    if isinstance(value, bytes):
        return {"base64": base64.b64encode(value).decode()}
    return value if value is None or isinstance(value, (str, int, float)) else str(value)


def unplain(data: Json) -> Value:
    """Return the decoded data of its JSON form. Raises SerdeError for malformed base64."""
    if isinstance(data, dict):
        if set(data) == {"base64"}:
            try:
                return base64.b64decode(data["base64"], validate=True)
            except (ValueError, TypeError) as error:
                raise SerdeError(f"not base64: {data['base64']!r}") from error
        return {name: unplain(item) for name, item in data.items()}
    return [unplain(item) for item in data] if isinstance(data, list) else data


def json_of_line(line: str) -> Json:
    """Return the document of a line of JSON Lines. Raises SerdeError."""
    try:
        document: Json = json.loads(line)
    except json.JSONDecodeError as error:
        is_cut_off = error.pos >= len(line.rstrip()) and line.lstrip().startswith(("{", "["))
        hint = "; write each record on one line" if is_cut_off else ""
        raise SerdeError(f"not JSON: {error.msg} at character {error.pos + 1}{hint}") from None
    except (ValueError, RecursionError) as error:
        raise SerdeError(f"not JSON: {error}") from None
    return document


TEXTS = ("string", "uuid")
"""Serdes whose JSON form is text: users write a key of theirs without quotes."""


def json_of_key(text: str) -> Json:
    """Return the JSON of a key of any other serde as users write it: JSON, or text without quotes."""
    try:
        key: Json = json.loads(text)
    except (ValueError, RecursionError):
        return text
    return key


# Values in messages: the beginning of their `repr`, without making the rest of it.

_LEVELS = 30
_BRACKETS = {list: ("[", "]"), tuple: ("(", ")"), set: ("{", "}"), frozenset: ("frozenset({", "})"), dict: ("{", "}")}


def shown(value: Value, longest: int) -> str:
    """Return `repr` of a value if that has at most so many characters, else its beginning and `…`.

    The time depends on that number alone, also for values that are huge since their parts are shared.

    >>> shown({"a": [1, "b"]}, 80), shown(list(range(1000)), 10)
    ("{'a': [1, 'b']}", '[0, 1, 2,…')
    """
    pieces: list[str] = []
    length = 0
    for piece in _pieces(value, longest, 0):
        pieces.append(piece)
        length += len(piece)
        if length > longest:
            return "".join(pieces)[: longest - 1] + "…"
    return "".join(pieces)


def _pieces(value: Operand, longest: int, level: int) -> Iterator[str]:
    kind = value.__class__
    if kind is str or kind is bytes:
        # One more character, since the quotes of a text that fits depend on all of it.
        yield repr(value if len(value) <= longest else value[: longest + 1])
    elif kind is int and value.bit_length() > 10_000:
        yield f"an integer of {value.bit_length()} bits"
    elif kind not in _BRACKETS:
        yield _own(value)
    elif level == _LEVELS:
        yield "…"
    elif not value:
        yield repr(value)
    else:
        first, last = _BRACKETS[kind]
        yield first
        yield from _fields(value, longest, level) if kind is dict else _items(value, longest, level)
        yield ",)" if kind is tuple and len(value) == 1 else last


def _items(items: Iterable[Value], longest: int, level: int) -> Iterator[str]:
    for number, item in enumerate(items):
        if number:
            yield ", "
        yield from _pieces(item, longest, level + 1)


def _fields(value: dict[Key, Value], longest: int, level: int) -> Iterator[str]:
    for number, (name, item) in enumerate(value.items()):
        if number:
            yield ", "
        yield from _pieces(name, longest, level + 1)
        yield ": "
        yield from _pieces(item, longest, level + 1)


def _own(value: Value) -> str:
    """Return the `repr` of an object of any class, whose own `__repr__` may fail."""
    try:
        return repr(value)
    except Exception:
        return object.__repr__(value)
