"""The results of tests: failures as lines of text, JUnit XML, and the steps that no test reached."""

from __future__ import annotations

import difflib
import re
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from unicodedata import normalize
from xml.etree import ElementTree as xml

from streamkit.errors import Position
from streamkit.graph.physical_topology import StepRef
from streamkit.operators.steps.stateless.branch import Branch
from streamkit.operators.steps.stateless.filter import Filter
from streamkit.plan.model import Plan, PlanNode
from streamkit.serdes.plain import Json
from streamkit.spec.yaml_reader import flow
from streamkit.testing.case_runner import CAME, DETAIL, EXPECTED, SAME, Failure, Pair, differences, is_missing
from streamkit.testing.cases import Expectation
from streamkit.testing.suite import FileResult

CONTEXT = 2
"""The number of matching records shown before and after each one that differs."""
LONGEST = 300
NEAR = 10
"""The number of characters shown before and after the first one that differs."""


@dataclass(frozen=True)
class Line:
    """A line below a failure's head; kind: SAME, EXPECTED, CAME or DETAIL."""

    kind: str
    text: str


def head(failure: Failure) -> str:
    """Return the line `FILE:LINE:COL: MISTAKE`."""
    return f"{failure.position}: {failure.what}"


def body(failure: Failure) -> Iterator[Line]:
    """Yield the lines below the head."""
    if failure.expectation is not None:
        yield from _records(failure.expectation, failure.pairs)
    elif failure.described is not None:
        expected, came = failure.described.text.strip().splitlines(), failure.actual.strip().splitlines()
        for line in list(difflib.unified_diff(expected, came, lineterm="", n=CONTEXT))[2:]:
            yield Line({"-": EXPECTED, "+": CAME}.get(line[:1], SAME), line)
    elif failure.plain is not None and isinstance(failure.plain.value, str):
        yield Line(EXPECTED, f"- {failure.plain.value}")
        if failure.actual is not None:
            yield Line(CAME, f"+ {failure.actual}")
    elif failure.details:
        yield from (Line(kind, line) for kind, line in failure.details)
    elif isinstance(failure.actual, dict):
        yield Line(CAME, f"+ {_short(_fields(failure.actual))}")


def text(failure: Failure) -> str:
    """Return a failure as plain text."""
    return "\n".join([head(failure), *(line.text for line in body(failure))])


def _records(expectation: Expectation, pairs: tuple[Pair, ...]) -> Iterator[Line]:
    wrong = [number for number, pair in enumerate(pairs) if not pair.equal]
    shown = {near for number in wrong for near in range(number - CONTEXT, number + CONTEXT + 1)}
    hidden = 0
    for number, pair in enumerate(pairs):
        if number not in shown:
            hidden += 1
            continue
        if hidden:
            yield Line(SAME, f"  … {hidden} as expected")
            hidden = 0
        yield from _pair(expectation, pair)
    if hidden:
        yield Line(SAME, f"  … {hidden} as expected")


def _pair(expectation: Expectation, pair: Pair) -> Iterator[Line]:
    if pair.equal and pair.expected is not None:
        yield Line(SAME, f"  {_short(pair.expected.fields)}")
        return
    if pair.expected is not None:
        yield Line(EXPECTED, f"- {_short(pair.expected.fields)}   (line {pair.expected.position.line})")
    if pair.actual is not None:
        names = pair.expected.fields if pair.expected is not None else {}
        yield Line(CAME, f"+ {_short(_fields(pair.actual, names))}")
    if pair.expected is not None and pair.actual is not None:
        for path, expected, came in differences(expectation, pair.expected, pair.actual):
            yield Line(DETAIL, f"    {path}: {_change(expected, came)}")


def _change(expected: object, came: object) -> str:
    if is_missing(came):
        return f"expected {_short(expected)}, is not there"
    if is_missing(expected):
        return f"is there, not expected: {_short(came)}"
    shown, other = _short(expected), _short(came)
    if (
        isinstance(expected, str)
        and isinstance(came, str)
        and (shown == other or normalize("NFKC", expected) == normalize("NFKC", came))
    ):
        return _difference_in_text(expected, came)
    return f"expected {shown}, came {other}"


def _difference_in_text(expected: str, came: str) -> str:
    """Show where two texts that look equal differ: in the Unicode normal form, or beyond the part that is shown."""
    both = zip(expected, came, strict=False)
    first = next((at for at, (one, other) in enumerate(both) if one != other), min(len(expected), len(came)))
    start = max(0, first - NEAR)
    shown, other = (ascii(text[start : first + NEAR]) for text in (expected, came))
    return f"expected {shown}, came {other}, at character {first + 1}"


def _fields(record: Mapping[str, Json], wanted: Collection[str] = ()) -> dict[str, Json]:
    """Return the fields of a record to show: key, value, and all other fields of the expectation."""
    names = [name for name in ("key", "value", "timestamp", "headers") if name in ("key", "value") or name in wanted]
    return {name: record[name] for name in names if record.get(name) is not None}


def _short(value: object) -> str:
    shown = flow(value)
    return shown if len(shown) <= LONGEST else shown[: LONGEST - 1] + "…"


# Results as JUnit XML, the form that CI systems read.

# What XML 1.0 can't hold.
_ILLEGAL = re.compile("[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")


def junit(results: Iterable[FileResult]) -> bytes:
    """Return the document, with one suite per file and one case per test. A file that can't be read is a case with an error."""
    root = xml.Element("testsuites")
    totals = {"tests": 0, "failures": 0, "errors": 0}
    for result in results:
        suite = xml.SubElement(root, "testsuite", name=str(result.path))
        counts = _suite(suite, result)
        for name, count in counts.items():
            suite.set(name, str(count))
            totals[name] += count
        suite.set("time", f"{sum(outcome.seconds for outcome in result.outcomes):.3f}")
    for name, count in totals.items():
        root.set(name, str(count))
    xml.indent(root)
    text: bytes = xml.tostring(root, encoding="utf-8", xml_declaration=True)
    return text + b"\n"


def _suite(suite: xml.Element, result: FileResult) -> dict[str, int]:
    for problem in result.problems:
        case = xml.SubElement(suite, "testcase", classname=str(result.path), name=str(problem.position))
        xml.SubElement(case, "error", message=_legal(problem.message)).text = _legal(str(problem))
    failures = 0
    for outcome in result.outcomes:
        case = xml.SubElement(suite, "testcase", classname=str(result.path), name=_legal(outcome.case.name))
        case.set("file", str(result.path))
        case.set("line", str(outcome.case.position.line))
        case.set("time", f"{outcome.seconds:.3f}")
        if outcome.failures:
            failures += 1
            message = _legal(head(outcome.failures[0]))
            details = "\n\n".join(map(text, outcome.failures))
            xml.SubElement(case, "failure", message=message).text = _legal(details)
    tests = len(result.outcomes) + len(result.problems)
    return {"tests": tests, "failures": failures, "errors": len(result.problems)}


def _legal(value: str) -> str:
    return _ILLEGAL.sub("�", value)


# The steps and branches of a topology that no test reached.


@dataclass(frozen=True)
class Gap:
    """Something that no record reached."""

    position: Position
    text: str

    def __str__(self) -> str:
        return f"{self.position}: {self.text}{self.position.note}"


@dataclass(frozen=True)
class Coverage:
    """The number of steps that create nodes, and how many of them received a record; gaps in file order."""

    steps: int
    reached: int
    gaps: tuple[Gap, ...]

    @property
    def percent(self) -> float:
        """The percentage of steps that were reached."""
        return 100.0 * self.reached / self.steps if self.steps else 100.0


def coverage(plan: Plan, reached: Counter[str]) -> Coverage:
    """Return the coverage of a plan's steps, from the counts of records by node."""
    counts: Counter[StepRef] = Counter()
    gaps = []
    for sub in plan.sub_topologies:
        for node in sub.nodes.values():
            if node.origin is not None:
                counts[node.origin] += reached[node.name]
        gaps += [
            gap for node in sub.nodes.values() if reached[node.name] for gap in _one_sided(node, sub.nodes, reached)
        ]
    for step, count in counts.items():
        if not count:
            gaps.append(Gap(step.position, f"pipeline {step.pipeline}: {step.step} was never reached"))
    unique = sorted(dict.fromkeys(gaps), key=lambda gap: (gap.position.line, gap.position.column, gap.text))
    return Coverage(len(counts), sum(count > 0 for count in counts.values()), tuple(unique))


def _one_sided(node: PlanNode, nodes: Mapping[str, PlanNode], reached: Counter[str]) -> Iterator[Gap]:
    """Yield the gap of a filter that passed all records or none, and the gaps of branches without a record."""
    if node.origin is None:
        return
    processor, origin = node.processor, node.origin
    where = f"pipeline {origin.pipeline}: {origin.step}"
    if isinstance(processor, Filter):
        # A child with other parents counts their records too.
        passed = [reached[child] for child in node.children if len(nodes[child].parents) == 1]
        if passed and not passed[0]:
            yield Gap(origin.position, f"{where} let no record pass")
        elif passed and passed[0] == reached[node.name]:
            yield Gap(origin.position, f"{where} dropped no record")
    elif isinstance(processor, Branch):
        for target in (*processor.targets, *([processor.default] if processor.default else ())):
            if not reached[target]:
                name = target.removeprefix(node.name)
                yield Gap(origin.position, f"{where}: no record took the branch {name!r}")
