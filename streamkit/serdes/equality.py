"""Equality of values as Java's Object.equals defines it, which differs from Python's `==`."""

from __future__ import annotations

from math import copysign

from streamkit.record import Value


def same(one: Value, other: Value) -> bool:
    """Return whether two values are equal in Java: a number equals no number of another type, and no boolean.

    The order of an object's fields does not count (JsonNode.equals); 0.0 is not equal to -0.0, and NaN equals itself
    (Double.equals). Values that are not plain data compare by their own `==`.

    >>> same(1, True), same(1, 1.0), same(0.0, -0.0), same({"a": 1, "b": 2}, {"b": 2, "a": 1})
    (False, False, False, True)
    """
    if one is other:
        return True
    kind = one.__class__
    if kind is not other.__class__:
        # Every serde encodes lists and tuples alike.
        return isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)) and _same_items(one, other)
    if kind is str or kind is int or kind is bytes:
        return bool(one == other)
    if kind is float:
        if one != one or one == 0:
            return other != other if one != one else other == 0 and copysign(1, one) == copysign(1, other)
        return bool(one == other)
    if isinstance(one, dict):
        return len(one) == len(other) and all(name in other and same(item, other[name]) for name, item in one.items())
    if isinstance(one, (list, tuple)):
        return _same_items(one, other)
    return bool(one == other)


def _same_items(one: Value, other: Value) -> bool:
    return len(one) == len(other) and all(map(same, one, other))
