"""Runs the tests of files, rewrites them on request, and counts their coverage."""

from __future__ import annotations

import json
import os
import time
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from streamkit.errors import Problem, StreamkitError, TopologyError, UsageError
from streamkit.plan import load as load_plan
from streamkit.plan.model import Plan
from streamkit.runtime.execution.dead_letters import PREFIX, STEP, is_dead_letter
from streamkit.serdes.plain import Document, Json
from streamkit.spec.yaml_nodes import Node, Source, compose
from streamkit.spec.yaml_reader import core, flow, flow_key
from streamkit.testing.case_file import SUFFIXES, load
from streamkit.testing.case_runner import Failure, Outcome, Pair, run_case, same
from streamkit.testing.cases import CONTAINS, RECORD_FIELDS, Case, CaseFile, Described, Expectation, Phase


@dataclass
class FileResult:
    """The result of one file. problems: mistakes in it, so that no test ran."""

    path: Path
    outcomes: list[Outcome] = field(default_factory=list)
    problems: list[Problem] = field(default_factory=list)
    rewritten: bool = False

    @property
    def failed(self) -> bool:
        """Whether anything is wrong."""
        return bool(self.problems) or any(outcome.failures for outcome in self.outcomes)


class Session:
    """Runs files. only: the part of a test's name, or of its file's, that is run; update: write the actual results into the file.

    histories: in how many each test that passes is simulated; seed: of the first one.
    """

    def __init__(
        self,
        plans: Plans,
        only: str = "",
        update: bool = False,
        coverage: bool = False,
        histories: int = 0,
        seed: int = 1,
    ):
        self._plans = plans
        self._only = only.lower()
        self._update = update
        self.reached: dict[Path, tuple[Plan, Counter[str]]] = {}
        """By topology: a plan of it, and how many records reached each node; filled under coverage only."""
        self._coverage = coverage
        self._histories = histories
        self._seed = seed

    def run(self, files: list[Path]) -> Iterator[FileResult]:
        """Yield the result of each file when it has run."""
        for path in files:
            yield self._file(path)

    def _file(self, path: Path) -> FileResult:
        try:
            file = load(path, self._plans)
            result = self._run(file)
            return self._updated(file, result) if self._update else result
        except TopologyError as error:
            return FileResult(path, problems=error.problems)

    def _updated(self, file: CaseFile, result: FileResult) -> FileResult:
        text = updated(file, result.outcomes)
        # Read and run before it is written, so that a valid file is never replaced by an invalid one.
        again = self._run(load(file.path, self._plans, text))
        if text != file.source.text:
            try:
                file.path.write_text(text, encoding="utf-8", newline="")
            except OSError as error:
                raise UsageError(f"{file.path}: {error.strerror}") from error
            again.rewritten = True
        return again

    def _run(self, file: CaseFile) -> FileResult:
        result = FileResult(file.path)
        for case in file.cases:
            if self._only and self._only not in f"{file.path}::{case.name}".lower():
                continue
            result.outcomes.append(self.outcome_of(file, case))
        return result

    def outcome_of(self, file: CaseFile, case: Case) -> Outcome:
        """Run one case of a file. Raises TopologyError for a topology that the case's settings make invalid."""
        try:
            plan = self._plans(file.topology, file.environment, case.settings)
        except TopologyError:
            raise
        except StreamkitError as error:
            outcome = Outcome(case)
            outcome.failures.append(Failure(case.position, str(error)))
            return outcome
        reached = None
        if self._coverage:
            reached = self.reached.setdefault(file.topology.resolve(), (plan, Counter()))[1]
        outcome = run_case(case, plan, reached)
        if self._histories and not outcome.failures:
            # Few runs simulate.
            from streamkit.testing.simulation import simulate

            began = time.perf_counter()
            outcome.simulated = simulate(case, plan, file.simulation, self._histories, self._seed)
            outcome.failures += outcome.simulated.failures
            outcome.seconds += time.perf_counter() - began
        return outcome


# Writes the actual results into a test file. It changes only what differs, so that comments and layout stay.

PROPOSED = ("key", "value", "timestamp")
"""Fields of records that are written if the test expects nothing yet; of dead letters the headers too."""
_REASON = (f"{PREFIX}exception", f"{PREFIX}message", STEP)
"""The headers of a dead letter that are written: others name lines of code and the time."""


@dataclass(frozen=True)
class Edit:
    """Text that replaces the text from `start` to `end` (offsets)."""

    start: int
    end: int
    text: str


def updated(file: CaseFile, outcomes: Iterable[Outcome]) -> str:
    """Return a test file's text with the outcomes as its expectations; writes the other files that it names.

    A test that compares nothing yet gets an `expect` with the whole output. An error that the test does not expect stays a
    failure. Raises UsageError.
    """
    writer = _Writer(file.source)
    for outcome in outcomes:
        for failure in outcome.failures:
            writer.failure(failure)
        for phase, printed in zip(outcome.case.phases, outcome.printed, strict=False):
            if phase.given and not phase.expects_something and outcome.case.describe is None:
                writer.propose(phase, printed)
    return writer.text()


class _Writer:
    """Collects edits of one text."""

    def __init__(self, source: Source):
        self._text = source.text
        self._edits: list[Edit] = []
        self._flows = flow_spans(compose(source, []))
        """The spans of collections in brackets, in which a value stays in its line."""

    def text(self) -> str:
        """Return the text with all edits; of those that overlap, the first in file order counts."""
        pieces, done = [], 0
        for edit in sorted(self._edits, key=lambda edit: (edit.start, edit.end)):
            if edit.start >= done:
                pieces += [self._text[done : edit.start], edit.text]
                done = edit.end
        return "".join([*pieces, self._text[done:]])

    def failure(self, failure: Failure) -> None:
        """Replace an expected value by the actual one."""
        if failure.expectation is not None:
            self._expectation(failure.expectation, failure.pairs)
        elif failure.plain is not None and failure.actual is not None:
            value = failure.actual
            self._replace(failure.plain.node, flow(value) if isinstance(value, int) else json.dumps(value))
        elif failure.described is not None:
            self._describe(failure.described, failure.actual)

    def propose(self, phase: Phase, printed: Mapping[str, list[Mapping[str, Json]]]) -> None:
        """Write `expect` below the input of a phase; write nothing without output."""
        if not printed:
            return
        node = phase.node
        first = node.value[0][0]
        indent = " " * (first.position.column - 1)
        there = next(((key, value) for key, value in node.value if key.value == "expect"), None)
        if self._in_flow(first.start):
            self._propose_in_line(node, there, printed)
            return
        rows = [f"{indent}expect:"]
        for topic, records in printed.items():
            rows.append(f"{indent}  {flow_key(topic)}:")
            rows += [f"{indent}    {row}" for row in _proposed_rows(records)]
        if there is None:
            _, end = self._span(node.start, real_end(node))
            self._insert_line(end, "\n".join(rows))
        else:
            begin = self._text.index(":", there[0].end) + 1
            self._edits.append(Edit(begin, max(begin, real_end(there[1])), "\n" + "\n".join(rows[1:])))

    def _propose_in_line(
        self, node: Node, there: tuple[Node, Node] | None, printed: Mapping[str, list[Mapping[str, Json]]]
    ) -> None:
        """Write `expect` in a test that is written in brackets."""
        topics = [f"{flow_key(topic)}: {_proposed(records)}" for topic, records in printed.items()]
        text = f"{{{', '.join(topics)}}}"
        if there is None:
            end = node.value[-1][1].end
            self._edits.append(Edit(end, end, f", expect: {text}"))
        else:
            self._write_value(*there, text)

    def _write_value(self, key: Node, value: Node, text: str) -> None:
        """Write the value of a key in brackets, which may have none, or not even a colon."""
        rest = self._text[key.end :]
        if not rest.lstrip().startswith(":"):
            self._edits.append(Edit(key.end, key.end, f": {text}"))
            return
        begin = key.end + rest.index(":") + 1
        self._edits.append(Edit(begin, max(begin, real_end(value)), f" {text}"))

    def _in_flow(self, offset: int) -> bool:
        return any(start < offset < end for start, end in self._flows)

    # -- Expectations ----------------------------------------------------------------------------------------------

    def _expectation(self, expectation: Expectation, pairs: tuple[Pair, ...]) -> None:
        if expectation.file is not None:
            _write_file(expectation, pairs)
        elif expectation.node is expectation.records_node and not expectation.records and _has_letters(pairs):
            self._dead_letters(expectation, pairs)
        elif expectation.records_node.kind == "mapping" and not _fit_mapping(pairs):
            self._as_list(expectation, pairs)
        elif self._is_block(expectation.records_node) and expectation.records_node.value:
            self._items(expectation, pairs)
        else:
            self._rewrite(expectation, pairs)

    def _dead_letters(self, expectation: Expectation, pairs: tuple[Pair, ...]) -> None:
        """Write dead letters with their reasons in place of an empty list."""
        node = expectation.records_node
        records = [pair.actual for pair in pairs if pair.actual is not None]
        if self._in_flow(expectation.key.start):
            self._write_value(expectation.key, node, _proposed(records, ("key", "value")))
            return
        begin = self._behind_colon(expectation)
        indent = "\n" + " " * (expectation.key.position.column - 1 + 2)
        text = "".join(indent + row for row in _proposed_rows(records, ("key", "value")))
        self._edits.append(
            Edit(begin, max(begin, real_end(node)) if node.value or node.kind != "scalar" else begin, text)
        )

    def _items(self, expectation: Expectation, pairs: tuple[Pair, ...]) -> None:
        """Change, drop and add the items of a block list or mapping one by one."""
        node = expectation.records_node
        rows = node.kind == "mapping"
        first = node.value[0][0] if rows else node.value[0]
        indent = self._line_indent(first.start)
        after = self._line_start(first.start)
        fields = _given_fields(expectation)
        for pair in pairs:
            if pair.expected is None:
                assert pair.actual is not None
                row = _row(pair.actual) if rows else f"- {flow(_shown(pair.actual, fields, expectation.partial))}"
                self._insert_line(after, indent + row)
                continue
            item = pair.expected.node
            assert item is not None
            if not node.start <= item.start < node.end:
                # An alias: its anchor belongs to another place of the file, so the test stays failed.
                continue
            start, end = self._span(self._offset(pair.expected.position.line), real_end(item))
            after = end
            if pair.actual is None:
                if expectation.match != CONTAINS:
                    self._edits.append(Edit(start, end, ""))
            elif not pair.equal and rows:
                self._replace(item, flow(pair.actual["value"]))
            elif not pair.equal:
                self._record(item, pair, expectation)
        self._finish_empty(expectation, pairs)

    def _as_list(self, expectation: Expectation, pairs: tuple[Pair, ...]) -> None:
        """Write a store's rows as a list in place of a mapping."""
        node = expectation.records_node
        kept = [self._result(pair, _given_fields(expectation), expectation) for pair in pairs]
        items = [flow(item) for item in kept if item is not None]
        if self._is_block(node):
            text = ("\n" + self._line_indent(node.start)).join(f"- {item}" for item in items)
        else:
            text = f"[{', '.join(items)}]"
        self._edits.append(Edit(node.start, real_end(node), text))

    def _finish_empty(self, expectation: Expectation, pairs: tuple[Pair, ...]) -> None:
        """Write an empty list if every item is removed, since an empty value would be null."""
        if all(pair.actual is None for pair in pairs) and expectation.match != CONTAINS:
            end = self._behind_colon(expectation)
            self._edits.append(Edit(end, end, " []"))

    def _behind_colon(self, expectation: Expectation) -> int:
        """Return the offset after the colon of the key of the records."""
        key = self._key_of_records(expectation)
        return key.end + self._text[key.end :].index(":") + 1

    def _key_of_records(self, expectation: Expectation) -> Node:
        node = expectation.records_node
        if expectation.node is node:
            return expectation.key
        key: Node = next(node_key for node_key, value in expectation.node.value if value is node)
        return key

    def _record(self, item: Node, pair: Pair, expectation: Expectation) -> None:
        """Change the fields of a record that differ, each in its place."""
        assert pair.expected is not None
        assert pair.actual is not None
        present = {key.value: value for key, value in item.value}
        needed = [name for name in ("key", "value") if pair.actual.get(name) is not None and name not in present]
        if (needed and not expectation.partial) or not _owned(item):
            fields = _given_fields(expectation) | present.keys()
            self._replace(item, flow(_shown(pair.actual, fields, expectation.partial)))
            return
        for name, node in present.items():
            wanted, came = pair.expected.fields.get(name), pair.actual.get(name)
            if name == "timestamp" and wanted is None:
                continue
            if name == "headers" and expectation.partial:
                self._some_headers(node, wanted or [], came or [])
            elif not same(wanted, came, expectation.partial):
                self._value(node, came, expectation.partial)

    def _some_headers(self, node: Node, wanted: Document, came: Document) -> None:
        """Replace the headers that a test names, if they differ."""
        if all(header in came for header in wanted):
            return
        names = [name for name, _ in wanted]
        self._replace(node, flow([header for header in came if header[0] in names]))

    def _value(self, node: Node, value: Document, partial: bool) -> None:
        """Replace a value, or, if it keeps its fields, only the fields that differ."""
        if node.kind == "mapping" and isinstance(value, dict) and _owned(node):
            present = {key.value: item for key, item in node.value}
            fits = present.keys() <= value.keys() if partial else present.keys() == value.keys()
            if fits and present:
                for name, item in present.items():
                    if not same(_plain_data(item), value[name], partial):
                        self._value(item, value[name], partial)
                return
        self._replace(node, flow(value))

    def _rewrite(self, expectation: Expectation, pairs: tuple[Pair, ...]) -> None:
        """Write the list again: one that is empty, or in one line."""
        node = expectation.records_node
        rows = node.kind == "mapping"
        fields = _given_fields(expectation)
        kept = [self._result(pair, fields, expectation) for pair in pairs]
        items = [item for item in kept if item is not None]
        start, end = node.start, real_end(node)
        if node.kind != "scalar" and node.value:
            opening, closing = ("{", "}") if rows else ("[", "]")
            pieces = [_row(item) if rows else flow(item) for item in items]
            self._edits.append(Edit(start, end, opening + ", ".join(pieces) + closing))
            return
        if self._in_flow(expectation.key.start) or self._in_flow(node.start):
            self._write_value(self._key_of_records(expectation), node, _listed(items))
            return
        if node.kind == "scalar":
            start = self._behind_colon(expectation)
            end = max(end, start) if node.value else start
        else:
            while self._text[start - 1] == " ":
                start -= 1
        parent = expectation.key if expectation.node is node else expectation.node.value[0][0]
        indent = "\n" + " " * (parent.position.column - 1 + 2)
        self._edits.append(Edit(start, end, "".join(indent + "- " + flow(item) for item in items)))

    def _result(self, pair: Pair, fields: set[str], expectation: Expectation) -> Mapping[str, Json] | None:
        if pair.equal and pair.expected is not None:
            return pair.expected.fields
        if pair.actual is None:
            return pair.expected.fields if expectation.match == CONTAINS and pair.expected else None
        return _shown(pair.actual, fields, expectation.partial)

    def _describe(self, described: Described, text: str) -> None:
        if described.file is not None:
            try:
                described.file.write_text(text.rstrip("\n") + "\n", encoding="utf-8")
            except OSError as error:
                raise UsageError(f"{described.file}: {error.strerror}") from error
            return
        indent = "\n" + self._line_indent(described.node.start) + "  "
        block = "|" + "".join(indent + line if line else "\n" for line in text.rstrip("\n").split("\n"))
        self._edits.append(Edit(described.node.start, real_end(described.node), block))

    # -- Text ------------------------------------------------------------------------------------------------------

    def _insert_line(self, offset: int, line: str) -> None:
        begins = offset == 0 or self._text[offset - 1] == "\n"
        self._edits.append(Edit(offset, offset, f"{line}\n" if begins else f"\n{line}"))

    def _replace(self, node: Node, text: str) -> None:
        gap = "" if self._text[node.start - 1 : node.start] in (" ", "[", "{", "\n", "") else " "
        self._edits.append(Edit(node.start, real_end(node), gap + text))

    def _is_block(self, node: Node) -> bool:
        return node.kind != "scalar" and self._text[node.start : node.start + 1] not in ("[", "{")

    def _line_start(self, offset: int) -> int:
        return self._text.rfind("\n", 0, offset) + 1

    def _line_indent(self, offset: int) -> str:
        start = self._line_start(offset)
        line = self._text[start:offset]
        return line[: len(line) - len(line.lstrip())]

    def _offset(self, line: int) -> int:
        """Return where a line (from 1) begins."""
        offset = 0
        for _ in range(line - 1):
            offset = self._text.index("\n", offset) + 1
        return offset

    def _span(self, start: int, end: int) -> tuple[int, int]:
        """Return the whole lines from one offset to another."""
        newline = self._text.find("\n", end)
        return self._line_start(start), len(self._text) if newline < 0 else newline + 1


def flow_spans(node: Node | None) -> list[tuple[int, int]]:
    """Return the starts and ends of all collections in brackets below a node."""
    if node is None or node.kind == "scalar":
        return []
    if node.source.text[node.start : node.start + 1] in ("[", "{"):
        return [(node.start, node.end)]
    inside = [part for pair in node.value for part in pair] if node.kind == "mapping" else node.value
    return [span for part in inside for span in flow_spans(part)]


def _listed(items: Iterable[Mapping[str, Json]]) -> str:
    return f"[{', '.join(map(flow, items))}]"


def real_end(node: Node) -> int:
    """Return where a node's text ends; the parser's end of a block is where the next thing begins."""
    text = node.source.text
    if node.kind == "scalar":
        return node.start + len(text[node.start : node.end].rstrip("\n ")) if node.style in ("|", ">") else node.end
    if text[node.start : node.start + 1] in ("[", "{"):
        return node.end
    if not node.value:
        return node.start
    last = node.value[-1]
    return max(map(real_end, last)) if isinstance(last, tuple) else real_end(last)


def _owned(node: Node) -> bool:
    """Return whether all parts of a node are in its text, and none is an alias."""
    inside = [part for pair in node.value for part in pair] if node.kind == "mapping" else node.value
    return node.kind == "scalar" or all(node.start <= part.start <= node.end and _owned(part) for part in inside)


def _plain_data(node: Node) -> Json:
    """Return a node's data; texts in quotes stay texts."""
    if node.kind == "scalar":
        return core(node.value) if node.plain else node.value
    if node.kind == "list":
        return [_plain_data(item) for item in node.value]
    return {key.value: _plain_data(value) for key, value in node.value}


def _given_fields(expectation: Expectation) -> set[str]:
    """Return the fields that new records get: those that the others have."""
    names = set() if expectation.partial and expectation.records else {"key", "value"}
    for record in expectation.records:
        names |= record.fields.keys()
    return names


def _has_letters(pairs: tuple[Pair, ...]) -> bool:
    return any(pair.actual is not None and is_dead_letter(pair.actual.get("headers")) for pair in pairs)


def _proposed_rows(records: Sequence[Mapping[str, Document]], fields: Sequence[str] = PROPOSED) -> list[str]:
    """Return the lines of a topic's records; dead letters have their reasons, and `partial` for their other headers."""
    if not any(is_dead_letter(record.get("headers")) for record in records):
        return [f"- {flow(_shown(record, fields))}" for record in records]
    items = [f"  - {flow(_shown(record, (*fields, 'headers'), partial=True))}" for record in records]
    return ["partial: true", "records:", *items]


def _proposed(records: Sequence[Mapping[str, Document]], fields: Sequence[str] = PROPOSED) -> str:
    """Return the same in one line."""
    if not any(is_dead_letter(record.get("headers")) for record in records):
        return _listed(_shown(record, fields) for record in records)
    listed = _listed(_shown(record, (*fields, "headers"), partial=True) for record in records)
    return f"{{partial: true, records: {listed}}}"


def _shown(record: Mapping[str, Document], fields: Collection[str], partial: bool = False) -> dict[str, Json]:
    """Return the fields of a record that are written, in their usual order; absent ones but a tombstone are left out.

    partial: other headers may come, so that a dead letter is written with its reason alone.
    """
    headers = record.get("headers")
    if partial and is_dead_letter(headers):
        record = {**record, "headers": [header for header in headers or () if header[0] in _REASON]}
    return {
        name: record.get(name)
        for name in RECORD_FIELDS
        if name in fields and (record.get(name) is not None or name == "value")
    }


def _fit_mapping(pairs: tuple[Pair, ...]) -> bool:
    """Return whether the actual rows can be written by key: keys of a mapping are scalars, no two with the same text."""
    keys = [pair.actual["key"] for pair in pairs if pair.actual is not None]
    texts = {key if isinstance(key, str) else flow(key) for key in keys}
    return len(texts) == len(keys) and not any(isinstance(key, dict | list) for key in keys)


def _row(record: Mapping[str, Json]) -> str:
    return f"{flow(record['key'])}: {flow(record['value'])}"


def _write_file(expectation: Expectation, pairs: tuple[Pair, ...]) -> None:
    assert expectation.file is not None
    fields = _given_fields(expectation)
    came = [pair.actual for pair in pairs if pair.actual is not None]
    lines = [json.dumps(_shown(record, fields, expectation.partial), ensure_ascii=False) + "\n" for record in came]
    try:
        expectation.file.write_text("".join(lines), encoding="utf-8")
    except OSError as error:
        raise UsageError(f"{expectation.file}: {error.strerror}") from error


# Finds test files, and builds their plans.

PASSED_OVER = ("node_modules", "__pycache__")


def find(paths: Iterable[str]) -> list[Path]:
    """Return the test files of paths: files as they are, those beside a topology, all below a folder; each once.

    Hidden folders are passed over. Raises UsageError for a path without any.
    """
    files: dict[Path, None] = {}
    for name in paths:
        path = Path(name)
        if path.is_dir():
            below = sorted(_below(path))
            if not below:
                raise UsageError(f"{path}: no tests below it; their names end in {SUFFIXES[0]}")
        elif not path.exists():
            raise UsageError(f"{path}: no such file or folder")
        elif path.name.endswith(SUFFIXES):
            below = [path]
        else:
            below = [path.with_name(path.stem + suffix) for suffix in SUFFIXES]
            below = [candidate for candidate in below if candidate.is_file()]
            if not below:
                raise UsageError(f"{path} has no tests: there is no {path.stem}{SUFFIXES[0]} beside it")
        files.update(dict.fromkeys(below))
    return list(files)


def _below(folder: Path) -> Iterable[Path]:
    for root, folders, files in os.walk(folder):
        folders[:] = [name for name in folders if not name.startswith(".") and name not in PASSED_OVER]
        yield from (Path(root, name) for name in files if name.endswith(SUFFIXES))


class Plans:
    """The plans of topologies, each built once for the same settings.

    variables: for `${NAME}`, below those of a test file; overrides: settings that override those of the tests.
    """

    def __init__(self, variables: Mapping[str, str], overrides: Mapping[str, Json]):
        self.variables = variables
        self._overrides = overrides
        self._built: dict[tuple[Path, tuple[tuple[str, str], ...], str], Plan] = {}

    def __call__(self, topology: Path, environment: Mapping[str, str], settings: Mapping[str, Json]) -> Plan:
        """Return the plan of a topology. Raises TopologyError, UsageError, ConfigError."""
        wanted = {**settings, **self._overrides}
        key = (topology, tuple(sorted(environment.items())), repr(sorted(wanted.items(), key=lambda item: item[0])))
        if key not in self._built:
            plan = self._built[key] = load_plan(topology, {**self.variables, **environment}, wanted)
            if plan.registry is not None:
                # Before the records of a test are checked: that encodes them.
                plan.registry.start_dry_run()
        return self._built[key]
