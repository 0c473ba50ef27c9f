"""Compares expected with actual records: equality of JSON data, and the pairs of records."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from math import copysign, isfinite

from streamkit.serdes.formats.json_text import to_text
from streamkit.serdes.plain import Json
from streamkit.testing.cases import CONTAINS, ORDERED, Expectation, Expected

MOST_COMPARISONS = 1_000_000
_MISSING = object()


@dataclass(frozen=True)
class Pair:
    """An expected record and the actual one that it is compared with; one of them may be None."""

    expected: Expected | None
    actual: Mapping[str, Json] | None
    equal: bool


def same(expected: Json, actual: Json, partial: bool = False) -> bool:
    """Return whether JSON data are equal; `partial`: objects may have more fields than expected.

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
        # Such a number is a text in JSON, for example "NaN"; YAML also has .nan.
        return to_text(expected) == to_text(actual)
    # Zero has a sign, as in the bytes of a double.
    return expected == actual and (expected != 0 or copysign(1, expected) == copysign(1, actual))


def differences(
    expectation: Expectation, expected: Expected, actual: Mapping[str, Json]
) -> list[tuple[str, object, object]]:
    """Return the differences of a record: (path, expected, actual)."""
    found: list[tuple[str, object, object]] = []
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


def _walk(expected: object, actual: object, partial: bool, path: str, found: list[tuple[str, object, object]]) -> None:
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


def is_missing(value: object) -> bool:
    """Return whether a side of a difference has no value there."""
    return value is _MISSING


def align(expectation: Expectation, actual: Sequence[Mapping[str, Json]]) -> list[Pair]:
    """Return the pairs of expected and actual records, in the order in which they are shown.

    With `contains` actual records without an expected one are left out.
    """

    def fits(one: Expected, other: Mapping[str, Json]) -> bool:
        return not differences(expectation, one, other)

    if expectation.match == ORDERED:
        return _in_order(expectation.records, actual, fits)
    pairs = _in_any_order(expectation.records, actual, fits)
    return [pair for pair in pairs if pair.expected or expectation.match != CONTAINS]


Fits = Callable[[Expected, Mapping[str, Json]], bool]


def _in_order(expected: Sequence[Expected], actual: Sequence[Mapping[str, Json]], fits: Fits) -> list[Pair]:
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


def _between(expected: Sequence[Expected], actual: Sequence[Mapping[str, Json]], fits: Fits) -> list[Pair]:
    """Pair along the longest common subsequence; the records between its members are paired in order."""
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


def _gap(expected: Sequence[Expected], actual: Sequence[Mapping[str, Json]]) -> list[Pair]:
    both = min(len(expected), len(actual))
    pairs = [Pair(one, other, False) for one, other in zip(expected[:both], actual[:both], strict=True)]
    pairs += [Pair(one, None, False) for one in expected[both:]]
    return pairs + [Pair(None, other, False) for other in actual[both:]]


def _in_any_order(expected: Sequence[Expected], actual: Sequence[Mapping[str, Json]], fits: Fits) -> list[Pair]:
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
    start: int, expected: Sequence[Expected], actual: Sequence[Mapping[str, Json]], fits: Fits, taken: dict[int, int]
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
