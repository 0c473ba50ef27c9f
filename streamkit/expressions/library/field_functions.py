"""Fields of nested objects, and windowed keys."""

from __future__ import annotations

from streamkit.expressions.evaluation.budget import Budget
from streamkit.expressions.library.function_entry import LibraryFunction, need_integer
from streamkit.record import Key, Value, WindowedKey


def get(value: Value, path: Value, default: Value = None) -> Value:
    """Return the part of a value at a path, or the default where a part is absent or None."""
    found = value
    for part in path.split(".") if isinstance(path, str) else _parts(path):
        if isinstance(found, dict):
            found = found.get(part)
        elif isinstance(found, (list, tuple)):
            at = _place(part)
            found = found[at] if at is not None and at < len(found) else None
        elif isinstance(found, WindowedKey) and part in ("key", "start", "end"):
            found = getattr(found, part)
        else:
            found = None
        if found is None:
            return default
    return found


def _parts(path: Value) -> list[Value]:
    if not isinstance(path, (list, tuple)):
        raise TypeError(f"get() takes a path as text or as a list, not {type(path).__name__}")
    return list(path)


def _place(part: Value) -> int | None:
    if isinstance(part, str) and part.isascii() and part.isdigit() and len(part) < 10:
        return int(part)
    return part if type(part) is int and part >= 0 else None


def _charged_get(budget: Budget, value: Value, path: Value, default: Value = None) -> Value:
    # The result is a part of the value, which has been charged.
    budget.spend(1 + budget.size(path))
    return get(value, path, default)


def windowed_key(key: Key, start: Value, end: Value) -> WindowedKey:
    """Return a key with a window."""
    low, high = need_integer(start, "windowed_key"), need_integer(end, "windowed_key")
    if not 0 <= low <= high:
        raise ValueError("windowed_key() takes a start from 0 and an end that is no earlier")
    return WindowedKey(key, low, high)


ENTRIES = (
    LibraryFunction(
        "get",
        ("value", "path", "default"),
        get,
        "The part of a value at a path such as `a.b.0.c`: fields of objects and places of lists, from 0. Where a part is absent "
        "or null it gives `default`, None where that is absent. A list is a path too, for names with dots.",
        (
            ("get({'a': {'b': [1, 2]}}, 'a.b.1')", "2"),
            ("get({'a': None}, 'a.b.c', 0)", "0"),
            ("get({'x.y': 5}, ['x.y'])", "5"),
        ),
        optional=1,
        factor=1.0,
        work=0.0,
        charge=_charged_get,
    ),
    LibraryFunction(
        "windowed_key",
        ("key", "start", "end"),
        windowed_key,
        "A key with its window, for topics and tables with windowed keys; its parts are `.key`, `.start` and `.end` (ms).",
        (("windowed_key('ada', 0, 60000).end", "60000"),),
        factor=1.0,
        work=0.0,
    ),
)
