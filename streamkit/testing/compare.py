"""Compares what is expected with what came out: equality of JSON data, and which record stands for which."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import copysign, isfinite
from typing import Any

from streamkit.serdes.json_text import to_text
from streamkit.testing.model import CONTAINS, ORDERED, Expectation, Expected

MOST_COMPARISONS = 1_000_000
_MISSING = object()


@dataclass(frozen=True)
class Pair:
    """An expected record and the one that stands for it; one of them is None where there is none."""

    expected: Expected | None
    actual: Mapping[str, Any] | None
    equal: bool


def same(expected: Any, actual: Any, partial: bool = False) -> bool:
    """Tell whether JSON data are the same; `partial`: objects may have more fields than expected.

    >>> same({"a": 1}, {"a": 1, "b": 2}, partial=True), same(1, True), same(1, 1.0)
    (True, False, True)
    >>> same(0.0, -0.0), same(float("nan"), "NaN")
    (False, True)
    """
    if isinstance(expected, dict) and isinstance(actual, dict):
        if not partial and expected.keys() != actual.keys():
            return False
        return all(name in actual and same(value, actual[name], partial) for name, value in expected.items())
    if isinstance(expected, list) and isinstance(actual, list):
        return len(expected) == len(actual) and all(map(lambda e, a: same(e, a, partial), expected, actual))
    if isinstance(expected, bool) != isinstance(actual, bool):
        return False
    if isinstance(expected, float) and not isfinite(expected):
        # In JSON such a number is a text, "NaN" for one; YAML also has .nan for it.
        return to_text(expected) == to_text(actual)
    # Zero has a sign, as it has in bytes.
    return expected == actual and (expected != 0 or copysign(1, expected) == copysign(1, actual))


def differences(expectation: Expectation, expected: Expected, actual: Mapping[str, Any]) -> list[tuple[str, Any, Any]]:
    """Return the places at which a record differs: (path, expected, what came)."""
    found: list[tuple[str, Any, Any]] = []
    fields = expected.fields
    for name in ("key", "value"):
        if name in fields or not expectation.partial:
            _walk(fields.get(name), actual.get(name), expectation.partial, name, found)
    if fields.get("timestamp") is not None:
        _walk(fields["timestamp"], actual.get("timestamp"), False, "timestamp", found)
    if "headers" in fields:
        wanted, came = fields["headers"] or [], actual.get("headers") or []
        if expectation.partial:
            found += [("headers", header, came) for header in wanted if header not in came]
        elif wanted != came:
            found.append(("headers", wanted, came))
    return found


def _walk(expected: Any, actual: Any, partial: bool, path: str, found: list[tuple[str, Any, Any]]) -> None:
    if not isinstance(expected, dict) or not isinstance(actual, dict):
        if not same(expected, actual, partial):
            found.append((path, expected, actual))
        return
    for name, value in expected.items():
        if name in actual:
            _walk(value, actual[name], partial, f"{path}.{name}", found)
        else:
            found.append((f"{path}.{name}", value, _MISSING))
    if not partial:
        found += [(f"{path}.{name}", _MISSING, value) for name, value in actual.items() if name not in expected]


def is_missing(value: Any) -> bool:
    """Tell whether a side of a difference has nothing at its place."""
    return value is _MISSING


def align(expectation: Expectation, actual: Sequence[Mapping[str, Any]]) -> list[Pair]:
    """Return which actual record stands for which expected one, in an order for reading.

    Other records of `contains` are left out: they may come.
    """

    def fits(one: Expected, other: Mapping[str, Any]) -> bool:
        return not differences(expectation, one, other)

    if expectation.match == ORDERED:
        return _in_order(expectation.records, actual, fits)
    pairs = _in_any_order(expectation.records, actual, fits)
    return [pair for pair in pairs if pair.expected or expectation.match != CONTAINS]


Fits = Callable[[Expected, Mapping[str, Any]], bool]


def _in_order(expected: Sequence[Expected], actual: Sequence[Mapping[str, Any]], fits: Fits) -> list[Pair]:
    start = 0
    while start < min(len(expected), len(actual)) and fits(expected[start], actual[start]):
        start += 1
    end = 0
    while end < min(len(expected), len(actual)) - start and fits(expected[-1 - end], actual[-1 - end]):
        end += 1
    pairs = [Pair(one, other, True) for one, other in zip(expected[:start], actual[:start], strict=True)]
    pairs += _between(expected[start : len(expected) - end], actual[start : len(actual) - end], fits)
    last = zip(expected[len(expected) - end :], actual[len(actual) - end :], strict=True)
    return pairs + [Pair(one, other, True) for one, other in last]


def _between(expected: Sequence[Expected], actual: Sequence[Mapping[str, Any]], fits: Fits) -> list[Pair]:
    """Pair along the longest common subsequence; what lies between its members is paired in order."""
    if len(expected) * len(actual) > MOST_COMPARISONS:
        return _gap(expected, actual)
    matched = [[fits(one, other) for other in actual] for one in expected]
    longest = [[0] * (len(actual) + 1) for _ in range(len(expected) + 1)]
    for i in range(len(expected) - 1, -1, -1):
        for j in range(len(actual) - 1, -1, -1):
            one_more = longest[i + 1][j + 1] + 1 if matched[i][j] else 0
            longest[i][j] = max(one_more, longest[i + 1][j], longest[i][j + 1])
    pairs: list[Pair] = []
    i = j = from_i = from_j = 0
    while i < len(expected) and j < len(actual):
        if matched[i][j] and longest[i][j] == longest[i + 1][j + 1] + 1:
            pairs += _gap(expected[from_i:i], actual[from_j:j])
            pairs.append(Pair(expected[i], actual[j], True))
            i, j = i + 1, j + 1
            from_i, from_j = i, j
        elif longest[i + 1][j] >= longest[i][j + 1]:
            i += 1
        else:
            j += 1
    return pairs + _gap(expected[from_i:], actual[from_j:])


def _gap(expected: Sequence[Expected], actual: Sequence[Mapping[str, Any]]) -> list[Pair]:
    both = min(len(expected), len(actual))
    pairs = [Pair(one, other, False) for one, other in zip(expected[:both], actual[:both], strict=True)]
    pairs += [Pair(one, None, False) for one in expected[both:]]
    return pairs + [Pair(None, other, False) for other in actual[both:]]


def _in_any_order(expected: Sequence[Expected], actual: Sequence[Mapping[str, Any]], fits: Fits) -> list[Pair]:
    """Pair as many as fit (augmenting paths); of the others, those with the same key."""
    taken: dict[int, int] = {}
    for i in range(len(expected)):
        _assign(i, expected, actual, fits, taken)
    by_expected = {i: j for j, i in taken.items()}
    free = [j for j in range(len(actual)) if j not in taken]
    pairs = []
    for i, one in enumerate(expected):
        if i in by_expected:
            pairs.append(Pair(one, actual[by_expected[i]], True))
            continue
        near = next((j for j in free if same(one.fields.get("key"), actual[j].get("key"))), None)
        if near is not None:
            free.remove(near)
        pairs.append(Pair(one, None if near is None else actual[near], False))
    return pairs + [Pair(None, actual[j], False) for j in free]


def _assign(
    start: int, expected: Sequence[Expected], actual: Sequence[Mapping[str, Any]], fits: Fits, taken: dict[int, int]
) -> None:
    """Find an actual record for one more expected record, moving others where that is needed; without recursion."""
    came_from: dict[int, tuple[int, int | None]] = {}
    waiting: list[tuple[int, int | None]] = [(start, None)]
    while waiting:
        i, through = waiting.pop()
        for j, other in enumerate(actual):
            if j in came_from or not fits(expected[i], other):
                continue
            came_from[j] = (i, through)
            if j not in taken:
                step: int | None = j
                while step is not None:
                    taken[step], step = came_from[step]
                return
            waiting.append((taken[j], j))
