"""Values in messages: the beginning of their `repr`, without making the rest of it."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from streamkit.record import Key, Value

_LEVELS = 30
_BRACKETS = {list: ("[", "]"), tuple: ("(", ")"), set: ("{", "}"), frozenset: ("frozenset({", "})"), dict: ("{", "}")}


def shown(value: Value, longest: int) -> str:
    """Return `repr` of a value where that has at most so many characters, else its beginning and `…`.

    The time depends on that number alone, also for values that are huge since their parts are shared.

    >>> shown({"a": [1, "b"]}, 80), shown(list(range(1000)), 10)
    ("{'a': [1, 'b']}", '[0, 1, 2,…')
    """
    made: list[str] = []
    length = 0
    for piece in _pieces(value, longest, 0):
        made.append(piece)
        length += len(piece)
        if length > longest:
            return "".join(made)[: longest - 1] + "…"
    return "".join(made)


def _pieces(value: Value, longest: int, level: int) -> Iterator[str]:
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
