"""Runs cases on the driver of `try`, compares their records, and collects the failures."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import copysign, isfinite

from streamkit.errors import Position, StreamkitError
from streamkit.plan.describe import describe
from streamkit.plan.model import Plan
from streamkit.runtime.driver import Driver, Remains
from streamkit.serdes.formats.json_text import to_text
from streamkit.serdes.plain import Document, Json
from streamkit.testing.case_file import Names
from streamkit.testing.cases import CONTAINS, ORDERED, Case, Described, Expectation, Expected, Given, Phase, Plain

Record = Mapping[str, Document]
SAME, EXPECTED, CAME, DETAIL = "same", "expected", "came", "detail"
"""The kinds of lines below a failure."""


@dataclass(frozen=True)
class Failure:
    """A difference from an expectation.

    position: of the expectation; what: the thing compared, in a few words. Only the fields of its kind
    are set: `expectation` with `pairs` for records and rows, `plain` or `described` with `actual` for single values, `details`
    (lines with their kinds) for a simulation.
    """

    position: Position
    what: str
    expectation: Expectation | None = None
    pairs: tuple[Pair, ...] = ()
    plain: Plain | None = None
    described: Described | None = None
    actual: Document = None
    details: tuple[tuple[str, str], ...] = ()


@dataclass
class Simulated:
    """The result of a test's histories. `skipped`: why there are none; `accepted`: the accepted steps on which they depend."""

    histories: int = 0
    failures: list[Failure] = field(default_factory=list)
    accepted: list[str] = field(default_factory=list)
    skipped: str | None = None


@dataclass
class Outcome:
    """The result of a case. printed: the records that each phase wrote, by the entry's name, for --update.

    simulated: None without --simulate, and if the case itself fails.
    """

    case: Case
    failures: list[Failure] = field(default_factory=list)
    printed: list[dict[str, list[Record]]] = field(default_factory=list)
    seconds: float = 0.0
    simulated: Simulated | None = None


def run_case(case: Case, plan: Plan, reached: Counter[str] | None = None) -> Outcome:
    """Run one case; `reached` counts records by node."""
    outcome = Outcome(case)
    began = time.perf_counter()
    _Run(case, plan, reached, outcome).run()
    outcome.seconds = time.perf_counter() - began
    return outcome


class _Run:
    """One case as it runs."""

    def __init__(self, case: Case, plan: Plan, reached: Counter[str] | None, outcome: Outcome):
        self._case = case
        self._plan = plan
        self._names = Names(plan)
        self._reached = reached
        self._outcome = outcome
        self._remains = Remains(clock=case.clock)
        self._driver: Driver | None = None
        self._dropped = 0
        """The count of drivers before a restart."""

    def run(self) -> None:
        case, failures = self._case, self._outcome.failures
        if case.describe is not None:
            failures.extend(_check_describe(case.describe, describe(self._plan, "text")))
        before_samples = len(failures)
        phases = [replace(phase, given=tuple(self._given(phase))) for phase in case.phases]
        if len(failures) > before_samples:
            return
        try:
            self._driver = self._open()
        except StreamkitError as error:
            failures.append(Failure(case.position, f"does not start: {error}"))
            return
        try:
            for phase in phases:
                before = self._dropped_total()
                printed: list[Record] = []
                ended_by = self._feed(phase, phase is phases[-1], printed)
                self._compare(phase, printed, ended_by, self._dropped_total() - before)
                if ended_by is not None:
                    return
        finally:
            self._driver.close()

    def _given(self, phase: Phase) -> Iterator[Given]:
        """Yield the given input, with each sample replaced by its records."""
        for action in phase.given:
            if action.sample is None:
                yield action
                continue
            from streamkit.runtime.spark.submission.lake_sample import sample

            job = action.sample.job
            try:
                records = sample(self._plan, job.options.inputs, action.sample.limit, job.cluster)
            except StreamkitError as error:
                self._outcome.failures.append(Failure(action.position, f"the sample can't be read: {error}"))
                continue
            yield from (Given(action.position, record) for record in records)

    def _open(self) -> Driver:
        return Driver(self._plan, self._remains, self._reached)

    def _dropped_total(self) -> int:
        assert self._driver is not None
        return self._dropped + self._driver.dropped

    def _feed(self, phase: Phase, is_last: bool, printed: list[Record]) -> str | None:
        """Run the actions of a phase, and close the processors after the last one; return the text of the error that ended it."""
        assert self._driver is not None
        position, failing = phase.position, "processing fails here"
        try:
            for action in phase.given:
                position = action.position
                if action.restart:
                    printed += self._driver.finish()
                    self._dropped += self._driver.dropped
                    self._driver.close()
                    self._driver = self._open()
                    printed += self._driver.printed()
                elif action.advance_ms is not None:
                    printed += self._driver.advance(action.advance_ms)
                else:
                    assert action.record is not None
                    printed += self._driver.pipe(action.record)
            if is_last:
                position, failing = phase.position, "closing the processors fails"
                printed += self._driver.finish()
        except StreamkitError as error:
            printed += self._driver.printed()
            if phase.error is None:
                self._outcome.failures.append(Failure(position, f"{failing}: {error}"))
            return str(error)
        return None

    def _compare(self, phase: Phase, printed: list[Record], error: str | None, dropped: int) -> None:
        assert self._driver is not None
        failures = self._outcome.failures
        if phase.error is not None and (error is None or phase.error.value not in error):
            what = "error: processing went well" if error is None else f"error: another one came: {error}"
            failures.append(Failure(phase.error.position, what, plain=phase.error, actual=error))
        by_topic: dict[str, list[Record]] = {}
        for record in printed:
            by_topic.setdefault(self._names.entry(record["topic"]), []).append(record)
        self._outcome.printed.append(by_topic)
        for name, expectation in phase.expect.items():
            failures.extend(_check(expectation, by_topic.get(name, [])))
        failures.extend(self._unexpected_dead_letters(phase, by_topic))
        if phase.stores:
            rows = self._driver.stores()
            for name, expectation in phase.stores.items():
                failures.extend(_check(expectation, [{"key": key, "value": value} for key, value in rows[name]]))
        if phase.dropped is not None and phase.dropped.value != dropped:
            what = f"dropped: expected {phase.dropped.value}, came {dropped}"
            failures.append(Failure(phase.dropped.position, what, plain=phase.dropped, actual=dropped))

    def _unexpected_dead_letters(self, phase: Phase, by_topic: Mapping[str, list[Record]]) -> Iterator[Failure]:
        for topic in sorted(self._names.dead_letters):
            name = self._names.entry(topic)
            for record in by_topic.get(name, ()) if name not in phase.expect else ():
                headers = dict(record.get("headers") or ())
                kind, message = (headers.get(f"__streams.errors.{name}") for name in ("exception", "message"))
                reason = f"{kind}: {message}" if message else kind
                where = phase.given[0].position if phase.given else phase.position
                yield Failure(where, f"{name}: a dead letter that is not expected: {reason}", actual=record)


def _check(expectation: Expectation, actual: list[Record]) -> Iterator[Failure]:
    pairs = align(expectation, actual)
    wrong = [pair for pair in pairs if not pair.equal]
    if not wrong:
        return
    first = next((pair.expected.position for pair in wrong if pair.expected is not None), expectation.key.position)
    came, wanted = len(actual), len(expectation.records)
    things = "record" if expectation.kind == "topic" else "row"
    count = f"{wanted} expected, {came} came" if came != wanted else f"{len(wrong)} of {wanted} differ"
    title = f"{expectation.name}: {things}s: {count}"
    yield Failure(first, title, expectation=expectation, pairs=tuple(pairs))


def _check_describe(described: Described, text: str) -> Iterator[Failure]:
    if described.text.strip() != text.strip():
        yield Failure(described.node.position, "describe: the topology differs", described=described, actual=text)


# Compares expected with actual records: equality of JSON data, and the pairs of records.

MOST_COMPARISONS = 1_000_000
_MISSING = object()


@dataclass(frozen=True)
class Pair:
    """An expected record and the actual one that it is compared with; one of them may be None."""

    expected: Expected | None
    actual: Mapping[str, Document] | None
    equal: bool


def same(expected: Document, actual: Document, partial: bool = False) -> bool:
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
    expectation: Expectation, expected: Expected, actual: Mapping[str, Document]
) -> list[tuple[str, object, object]]:
    """Return the differences of a record: (path, expected, actual)."""
    pairs: list[tuple[str, object, object]] = []
    fields = expected.fields
    for name in ("key", "value"):
        if name in fields or not expectation.partial:
            _walk(fields.get(name), actual.get(name), expectation.partial, name, pairs)
    if fields.get("timestamp") is not None:
        _walk(fields["timestamp"], actual.get("timestamp"), False, "timestamp", pairs)
    if "headers" in fields:
        wanted, came = fields["headers"] or [], actual.get("headers") or []
        if expectation.partial:
            pairs += [("headers", header, came) for header in wanted if header not in came]
        elif wanted != came:
            pairs.append(("headers", wanted, came))
    return pairs


def _walk(expected: object, actual: object, partial: bool, path: str, pairs: list[tuple[str, object, object]]) -> None:
    if not isinstance(expected, dict) or not isinstance(actual, dict):
        if not same(expected, actual, partial):
            pairs.append((path, expected, actual))
        return
    for name, value in expected.items():
        if name in actual:
            _walk(value, actual[name], partial, f"{path}.{name}", pairs)
        else:
            pairs.append((f"{path}.{name}", value, _MISSING))
    if not partial:
        pairs += [(f"{path}.{name}", _MISSING, value) for name, value in actual.items() if name not in expected]


def is_missing(value: object) -> bool:
    """Return whether a side of a difference has no value there."""
    return value is _MISSING


def align(expectation: Expectation, actual: Sequence[Mapping[str, Document]]) -> list[Pair]:
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
    """Pair as many as fit (augmenting paths); among the rest, pair those with the same key."""
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
    start: int,
    expected: Sequence[Expected],
    actual: Sequence[Mapping[str, Json]],
    fits: Fits,
    taken: dict[int, int],
) -> None:
    """Find an actual record for one more expected record, and move others if necessary; without recursion."""
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
