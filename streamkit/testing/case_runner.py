"""Runs cases on the driver of `try` and collects the failures."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

from streamkit.errors import Position, StreamkitError
from streamkit.plan.describe import describe
from streamkit.plan.model import Plan
from streamkit.runtime.driver import Driver, Remains
from streamkit.serdes.plain import Json
from streamkit.testing.case_file import Names
from streamkit.testing.cases import Case, Described, Expectation, Phase, Plain
from streamkit.testing.match_expected import Pair, align

Record = Mapping[str, Json]


@dataclass(frozen=True)
class Failure:
    """A difference from an expectation.

    position: of the expectation; what: the thing compared, in a few words. Of what follows, only what belongs to its kind
    is set: `expectation` with `pairs` for records and rows, `plain` or `described` with `actual` for single values.
    """

    position: Position
    what: str
    expectation: Expectation | None = None
    pairs: tuple[Pair, ...] = ()
    plain: Plain | None = None
    described: Described | None = None
    actual: Json = None


@dataclass
class Outcome:
    """The result of a case. printed: the records that each phase wrote, by the entry's name, for --update."""

    case: Case
    failures: list[Failure] = field(default_factory=list)
    printed: list[dict[str, list[Record]]] = field(default_factory=list)
    seconds: float = 0.0


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
        """Of drivers before a restart."""

    def run(self) -> None:
        case, failures = self._case, self._outcome.failures
        if case.describe is not None:
            failures.extend(_check_describe(case.describe, describe(self._plan, "text")))
        try:
            self._driver = self._open()
        except StreamkitError as error:
            failures.append(Failure(case.position, f"does not start: {error}"))
            return
        try:
            for phase in case.phases:
                before = self._dropped_total()
                printed: list[Record] = []
                ended_by = self._feed(phase, printed)
                self._compare(phase, printed, ended_by, self._dropped_total() - before)
                if ended_by is not None:
                    return
        finally:
            self._driver.close()

    def _open(self) -> Driver:
        return Driver(self._plan, self._remains, self._reached)

    def _dropped_total(self) -> int:
        assert self._driver is not None
        return self._dropped + self._driver.dropped

    def _feed(self, phase: Phase, printed: list[Record]) -> str | None:
        """Run the actions of a phase; return the text of the error that ended it."""
        for given in phase.given:
            assert self._driver is not None
            try:
                if given.restart:
                    self._dropped += self._driver.dropped
                    self._driver.close()
                    self._driver = self._open()
                elif given.advance_ms is not None:
                    printed += self._driver.advance(given.advance_ms)
                else:
                    assert given.record is not None
                    printed += self._driver.pipe(given.record)
            except StreamkitError as error:
                printed += self._driver.printed()
                if phase.error is None:
                    self._outcome.failures.append(Failure(given.position, f"processing fails here: {error}"))
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
