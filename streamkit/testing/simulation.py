"""`streamkit test --simulate`: plays a test in many histories, and finds what its output depends on."""

from __future__ import annotations

import io
import json
import logging
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Sequence
from contextlib import contextmanager, redirect_stderr, redirect_stdout
from dataclasses import dataclass, field, replace
from random import Random

from streamkit.errors import InvalidTopologyError
from streamkit.graph.physical_topology import StepRef
from streamkit.plan.model import Plan
from streamkit.runtime.records import RecordJson
from streamkit.runtime.tracing import Passed, Visit
from streamkit.serdes.plain import Json
from streamkit.spec.yaml_reader import flow
from streamkit.testing.case_file import Names, step_name
from streamkit.testing.case_runner import CAME, DETAIL, EXPECTED, Failure, Simulated
from streamkit.testing.cases import CRASH, FAULTS, LAST, REBALANCE, RESTART, Case, Simulation
from streamkit.testing.simulated_cluster import Cluster, Delivery, Event, Played, Programs, Segment, Sent

_MOST_EXPLAINED = 10
"""How many histories with a different output are explained for each test; the others are only counted."""
_MOST_TRIES = 300
_LONGEST = 300
"""Characters of a line that shows an event."""


@dataclass(frozen=True)
class _Finding:
    """What the output depends on. name: of the step, as `accept` has it; one, other: two histories with different output.

    ordered: whether the histories differ in the order of two records.
    """

    what: str
    name: str
    step: StepRef | None
    one: Played
    other: Played
    ordered: bool = False


def simulate(case: Case, plan: Plan, section: Simulation, count: int, seed: int) -> Simulated:
    """Play a test, which passes, in `count` histories; history n is drawn from `seed` + n."""
    reason = next((text for text, applies in _reasons(case) if applies), None)
    if reason is not None:
        return Simulated(skipped=reason)
    # Without a cache: when it forwards depends on commits alone, and it always forwards the last update of a key.
    config = plan.config.with_setting("statestore.cache.max.bytes", 0, "--simulate")
    with _silence():
        return _Simulation(case, replace(plan, config=config), section).run(count, seed)


def _reasons(case: Case) -> Iterator[tuple[str, bool]]:
    yield "it expects an error", any(phase.error is not None for phase in case.phases)
    yield "it reads a sample", any(action.sample is not None for phase in case.phases for action in phase.given)
    yield "it has no input", not any(action.record for phase in case.phases for action in phase.given)


@contextmanager
def _silence() -> Iterator[None]:
    """Discard what the user's code prints and logs: a test prints it once, not once in each history."""
    before = logging.root.manager.disable
    logging.disable()
    try:
        with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
            yield
    finally:
        logging.disable(before)


Result = tuple[str | None, dict[tuple[str, str], list[str]]]
"""The error that ended a history; and the values by topic or store and key, in order."""


class _Simulation:
    """One test: its records as segments, and the output of the history that all others are compared with."""

    def __init__(self, case: Case, plan: Plan, section: Simulation):
        self._case, self._plan, self._section = case, plan, section
        self._programs = Programs(plan)
        self._json = RecordJson(plan)
        self._names = Names(plan)
        self._segments = list(self._read_segments())
        self._topics = sorted({sent.row[0] for segment in self._segments for sent in segment.records})
        self._timed = {
            name
            for phase in case.phases
            for name, expectation in phase.expect.items()
            if any(record.fields.get("timestamp") is not None for record in expectation.records)
        }
        self._stores = sorted({name for phase in case.phases for name in phase.stores})
        safe = FAULTS if plan.config.exactly_once else (RESTART, REBALANCE)
        self._faults = safe if section.faults is None else section.faults

    def run(self, count: int, seed: int) -> Simulated:
        """Play the histories, and explain those whose output differs."""
        simulated = Simulated()
        findings: dict[str, tuple[_Finding, int]] = {}
        explained = different = 0
        try:
            base, again = self._play(self._segments, ()), self._play(self._segments, ())
        except InvalidTopologyError as error:
            return Simulated(skipped=f"{self._section.partitions} partitions can't be: {error}")
        if self._result(base) != self._result(again):
            return Simulated(1, [self._failure(self._chance(), "no history was played")])
        of_partitions = self._of_partitions()
        if of_partitions is not None:
            findings[of_partitions.name] = of_partitions, seed
        expected = self._result(base)
        for number in range(seed, seed + count):
            simulated.histories += 1
            played = self._play(self._segments, None, Random(number))
            if self._result(played) == expected:
                continue
            different += 1
            if explained < _MOST_EXPLAINED:
                explained += 1
                finding = self._explain(base, played, expected)
                findings.setdefault(finding.name, (finding, number))
        for name, (finding, number) in findings.items():
            if name in self._section.accept:
                simulated.accepted.append(name)
            else:
                often = f"{different} of {count} histories have a different output, first with --seed {number}"
                if finding is of_partitions:
                    often = f"- with 1 partition, + with {self._section.partitions}"
                simulated.failures.append(self._failure(finding, often))
        return simulated

    def _chance(self) -> _Finding:
        """Return the finding of a test whose output differs though nothing else does."""
        one, other = (self._play(self._segments, (), traced=True) for _ in range(2))
        what = (
            "two runs of the same history differ: take times from `context`, and ids and random numbers from the record"
        )
        return _Finding(what, *self._step(one, other), one, other)

    def _of_partitions(self) -> _Finding | None:
        """Return what differs between one partition and several, if anything does; the order is that of the test."""
        if self._section.partitions == 1:
            return None
        try:
            Cluster(self._programs, 1, self._topics).close()
        except InvalidTopologyError:
            return None  # its steps name other numbers of partitions

        def differs(segments: Sequence[Segment]) -> bool:
            return self._result(self._play(segments, (), partitions=1)) != self._result(self._play(segments, ()))

        if not differs(self._segments):
            return None
        segments = self._shrink_records(differs)
        one = self._play(segments, (), partitions=1, traced=True)
        other = self._play(segments, (), traced=True)
        what = "the output depends on which keys share a partition"
        return _Finding(what, *self._step(one, other), one, other)

    # -- Histories --

    def _read_segments(self) -> Iterator[Segment]:
        clock, number = self._case.clock, 0
        for phase in self._case.phases:
            records: list[Sent] = []
            for action in phase.given:
                if action.record is not None:
                    row = self._json.encode(action.record, clock, lambda topic: None)
                    records.append(Sent(number, row))
                    number += 1
                    continue
                yield Segment(tuple(records), action.advance_ms or 0, action.restart)
                records = []
                clock += action.advance_ms or 0
            yield Segment(tuple(records))

    def _play(
        self,
        segments: Sequence[Segment],
        events: Sequence[Event] | None,
        draw: Random | None = None,
        *,
        partitions: int | None = None,
        traced: bool = False,
    ) -> Played:
        section = self._section
        threads = (section.instances, section.threads)
        count = section.partitions if partitions is None else partitions
        cluster = Cluster(self._programs, count, self._topics, self._case.clock, threads, traced=traced)
        try:
            return cluster.play(segments, events, draw, self._faults if draw is not None else (), self._stores)
        finally:
            cluster.close()

    def _result(self, played: Played) -> Result:
        values: dict[tuple[str, str], list[str]] = defaultdict(list)
        for row in played.written:
            record = self._json.decode(row)
            name = self._names.entry(row[0])
            value: Json = record["value"]
            if name in self._timed:
                value = [value, record["timestamp"]]
            values[name, json.dumps(record["key"])].append(json.dumps(value))
        for name, key, value in played.rows:
            values[f"store {name}", json.dumps(key)].append(json.dumps(value))
        for (name, key), outputs in values.items():
            if key == "null" or name.startswith("store "):
                outputs.sort()  # records without a key have no order
            elif self._section.compare == LAST:
                del outputs[:-1]
        return played.error, dict(values)

    # -- Explaining --

    def _explain(self, base: Played, played: Played, expected: Result) -> _Finding:
        """Return what the output of a history depends on: the order of records, or something that happened to its tasks."""
        events = [event for event in played.events if event.source is not None or event.fault is not None]
        processed = sorted(played.deliveries, key=lambda delivery: delivery.processed)
        plain = [
            delivery.event.plain
            for delivery in processed
            if delivery.event.source is not None and delivery.event.fault is None
        ]
        if self._result(self._play(self._segments, plain)) != expected:
            return self._explain_order(
                [event.plain for event in base.events if event.source is not None], plain, expected
            )
        odd = _shrink(
            [number for number, event in enumerate(events) if event.fault is not None or event != event.plain],
            lambda kept: self._result(self._play(self._segments, _without(events, kept))) != expected,
        )
        history = _without(events, odd)

        def differs(segments: Sequence[Segment]) -> bool:
            return self._result(self._play(segments, plain)) != self._result(self._play(segments, history))

        segments = self._shrink_records(differs)
        one = self._play(segments, plain, traced=True)
        other = self._play(segments, history, traced=True)
        kinds = {events[number].fault or _GROUPING for number in odd}
        kinds = kinds - {_GROUPING} or kinds
        what = "the output differs after " + " and ".join(_AFTER[kind] for kind in sorted(kinds))
        return _Finding(what, *self._step(one, other), one, other)

    def _explain_order(self, first: Sequence[Event], last: Sequence[Event], expected: Result) -> _Finding:
        """Return the finding of two orders: between them are orders that differ by one exchange, and one of these matters."""

        def same(events: Sequence[Event]) -> bool:
            return self._result(self._play(self._segments, events)) == expected

        at = _search(len(last), lambda number: same(_begun(first, last, number)))
        before, moved = _begun(first, last, at), last[at]
        target = next((n for n in range(at, len(before)) if before[n].identity == moved.identity), len(before))
        rest = [event for number, event in enumerate(before) if number != target]
        steps = _search(target - at, lambda number: same([*rest[: target - number], moved, *rest[target - number :]]))
        orders = [[*rest[: target - n], moved, *rest[target - n :]] for n in (steps, steps + 1)]

        def differs(segments: Sequence[Segment]) -> bool:
            one, other = (self._result(self._play(segments, order)) for order in orders)
            return one != other

        segments = self._shrink_records(differs)
        one, other = (self._play(segments, order, traced=True) for order in orders)
        what = "the output depends on which of two records comes first"
        return _Finding(what, *self._step(one, other), one, other, ordered=True)

    def _shrink_records(self, differs: Callable[[Sequence[Segment]], bool]) -> list[Segment]:
        """Return the segments with the fewest records that still make a difference."""

        def kept(numbers: Collection[int]) -> list[Segment]:
            return [
                Segment(
                    tuple(sent for sent in segment.records if sent.number in numbers),
                    segment.advance_ms,
                    segment.restart,
                )
                for segment in self._segments
            ]

        everything = [sent.number for segment in self._segments for sent in segment.records]
        return kept(set(_shrink(everything, lambda numbers: differs(kept(set(numbers))))))

    def _step(self, one: Played, other: Played) -> tuple[str, StepRef | None]:
        """Return the name and place of the first step whose output differs for the same records."""
        nodes = {name: node for sub in self._plan.sub_topologies for name, node in sub.nodes.items()}
        ordered = [name for name in self._plan.node_order if name in nodes]
        ordered += [name for name in nodes if name not in ordered]
        work, other_work = (_Work.of(played, timed=bool(self._timed)) for played in (one, other))
        for differ in (_Work.makes_other, _Work.keeps_other, _Work.orders_other, _Work.gets_other):
            name = next((name for name in ordered if differ(work, other_work, name)), None)
            if name is not None and (origin := nodes[name].origin) is not None:
                return step_name(origin), origin
        (_, values), (_, other_values) = self._result(one), self._result(other)
        topics = [
            name for name, key in [*values, *other_values] if values.get((name, key)) != other_values.get((name, key))
        ]
        return topics[0] if topics else "error", None

    # -- Showing --

    def _failure(self, finding: _Finding, often: str) -> Failure:
        step = finding.step
        step_text = f": step {step.step} of pipeline {step.pipeline} ({step.position})" if step is not None else ""
        details = []
        if finding.ordered:
            pairs = zip(finding.one.deliveries, finding.other.deliveries, strict=False)
            first = next(((a, b) for a, b in pairs if a.row != b.row), None)
            details += [(DETAIL, f"{' or '.join(map(self._delivered, first))}")] if first is not None else []
        details.append((DETAIL, f"{often}; to accept this, write `simulate: {{accept: [{flow(finding.name)}]}}`"))
        for kind, played in ((EXPECTED, finding.one), (CAME, finding.other)):
            sign = "-" if kind == EXPECTED else "+"
            lines = [
                self._line(delivery)
                for delivery in played.deliveries
                if delivery.row or delivery.written or delivery.event.fault
            ]
            details += [(kind, _cut(f"{sign} {number}. {line}")) for number, line in enumerate(lines, 1)]
            if played.error is not None:
                details.append((kind, f"{sign} {played.error}"))
        return Failure(self._case.position, f"{finding.what}{step_text}", details=tuple(details))

    def _line(self, delivery: Delivery) -> str:
        event = delivery.event
        if event.fault is not None:
            return _HAPPENS[event.fault].format(task=event.task, thread=event.thread + 1)
        written = [
            f"{self._names.entry(row[0])} {self._record(row)}"
            for row in delivery.written
            if row[0] not in map(self._plan.internal_name, self._plan.internal_topics)
        ]
        makes = f" → {'; '.join(written)}" if written else ""
        if delivery.row is None:
            return f"at the end of the input{makes}"
        note = " (waits for the next record)" if event.hold else "" if event.commit else " (not committed)"
        return f"{self._delivered(delivery)}{note}{makes}"

    def _delivered(self, delivery: Delivery) -> str:
        assert delivery.row is not None
        key, value = self._json.decode_source(delivery.row[0], delivery.row[1], delivery.row[2])
        name = self._names.entry(delivery.row[0])
        shown = {"key": key} if delivery.number is None else {"key": key, "value": value, "timestamp": delivery.row[3]}
        kept = {field: part for field, part in shown.items() if part is not None}
        return f"{name} {flow(kept)}"

    def _record(self, row: tuple[object, ...]) -> str:
        record = self._json.decode(row)  # type: ignore[arg-type]
        fields = ("key", "value", "timestamp") if self._names.entry(str(row[0])) in self._timed else ("key", "value")
        return flow({name: record[name] for name in fields if record[name] is not None or name == "value"})


def _cut(line: str) -> str:
    return line if len(line) <= _LONGEST else line[: _LONGEST - 1] + "…"


_GROUPING = "grouping"
_AFTER = {
    RESTART: "a restart",
    REBALANCE: "a rebalance",
    CRASH: "a crash",
    _GROUPING: "another grouping of records into batches and commits",
}
_HAPPENS = {
    RESTART: "thread {thread} restarts",
    REBALANCE: "task {task} moves to thread {thread}",
    CRASH: "thread {thread} crashes, and starts again from its last commit",
}


def _without(events: Sequence[Event], odd: Collection[int]) -> list[Event]:
    """Return the events without faults and deferrals, except those with these numbers."""
    kept = set(odd)
    return [
        event if number in kept else event.plain
        for number, event in enumerate(events)
        if number in kept or event.fault is None
    ]


def _begun(first: Sequence[Event], last: Sequence[Event], count: int) -> list[Event]:
    """Return the order `first`, but with the first `count` events of `last` before all others."""
    taken = Counter(event.identity for event in last[:count])
    order = list(last[:count])
    for event in first:
        if taken[event.identity]:
            taken[event.identity] -= 1
        else:
            order.append(event)
    return order


def _search(last: int, holds: Callable[[int], bool]) -> int:
    """Return a number below `last` for which `holds` is true, but false for the next one. It is true for 0, and false for `last`.

    >>> _search(10, lambda number: number < 7)
    6
    """
    low, high = 0, last
    while high - low > 1:
        middle = (low + high) // 2
        if holds(middle):
            low = middle
        else:
            high = middle
    return low


def _shrink(items: Sequence[int], differs: Callable[[Sequence[int]], bool]) -> list[int]:
    """Return a subset of the items that still makes a difference, and from which no single item can be removed.

    After _MOST_TRIES, it is the smallest subset found so far.

    >>> _shrink(range(20), lambda kept: 3 in kept and 17 in kept)
    [3, 17]
    """
    kept = list(items)
    size, tries = max(1, len(kept) // 2), 0
    while True:
        at, removed = 0, False
        while at < len(kept) and (tries := tries + 1) <= _MOST_TRIES:
            fewer = kept[:at] + kept[at + size :]
            if differs(fewer):
                kept, removed = fewer, True
            else:
                at += size
        if (size == 1 and not removed) or tries > _MOST_TRIES:
            return kept
        size = max(1, size // 2)


Changes = dict[str, dict[str, list[str]]]
"""By node and key: the values, in order."""


@dataclass
class _Work:
    """What the nodes of a history received, forwarded, and kept in their stores."""

    timed: bool
    got: Changes = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    forwarded: Changes = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))
    kept: Changes = field(default_factory=lambda: defaultdict(lambda: defaultdict(list)))

    @classmethod
    def of(cls, played: Played, *, timed: bool) -> _Work:
        """Collect the visits of a traced history; `timed`: records that differ only in their timestamps are different."""
        work = cls(timed)
        for delivery in played.deliveries:
            for visit in delivery.visits:
                work._add(visit)
        return work

    def _add(self, visit: Visit) -> None:
        name = visit.node.name if visit.node is not None else ""
        if visit.record is not None:
            self._note(self.got[name], visit.record)
        for passed in visit.out:
            self._note(self.forwarded[name], passed)
        if visit.dropped or visit.failure:
            self.forwarded[name][""].append(f"{visit.dropped} {visit.failure}")
        for row in visit.rows:
            if not row.same:
                self.kept[name][json.dumps(row.key)].append(json.dumps(row.after))
        for below in visit.visits:
            self._add(below)

    def _note(self, changes: dict[str, list[str]], passed: Passed) -> None:
        time = passed.timestamp if self.timed else None
        changes[json.dumps(passed.key)].append(json.dumps([passed.value, passed.old, time]))

    def makes_other(self, other: _Work, name: str) -> bool:
        """Whether a node forwards different records for the same input."""
        return _same_records(self.got, other.got, name) and not _same_records(self.forwarded, other.forwarded, name)

    def keeps_other(self, other: _Work, name: str) -> bool:
        """Whether a node keeps different rows after the same input."""
        return _same_records(self.got, other.got, name) and {
            key: rows[-1] for key, rows in self.kept[name].items()
        } != {key: rows[-1] for key, rows in other.kept[name].items()}

    def orders_other(self, other: _Work, name: str) -> bool:
        """Whether a node reorders the records of a key that it received in the same order."""
        return self.got[name] == other.got[name] and self.forwarded[name] != other.forwarded[name]

    def gets_other(self, other: _Work, name: str) -> bool:
        """Whether a node receives different records, or receives them in a different order."""
        return self.got[name] != other.got[name]


def _same_records(one: Changes, other: Changes, name: str) -> bool:
    return {key: sorted(values) for key, values in one[name].items()} == {
        key: sorted(values) for key, values in other[name].items()
    }
