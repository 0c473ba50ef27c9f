"""`streamkit try` runs given records in memory, `streamkit explain` a dead letter; what each step does, as text or JSON."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import redirect_stdout
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, TextIO

import typer

from streamkit.errors import SerdeError, StateError, StreamkitError, UsageError
from streamkit.graph.physical_topology import StepRef
from streamkit.plan.model import Plan, SinkNode, SourceNode
from streamkit.runtime.tracing import BATCH, COMMIT, EXPIRY, TIMER, Passed, RowChange, Tracer, Visit
from streamkit.serdes.plain import Json
from streamkit_cli.command_process import user_log, user_output
from streamkit_cli.commands.submit import SampleConf, SampleLimit, check_sample_options, is_place, sample_of
from streamkit_cli.loading import STDIN, load_plan, opened, refuse_stdin
from streamkit_cli.options import EnvFile, File, Format, Settings, Shown
from streamkit_cli.record_lines import input_lines, input_name, json_line

if TYPE_CHECKING:
    from streamkit.runtime.driver import Driver
    from streamkit.runtime.execution.dead_letters import DeadLetter

Input = Annotated[
    list[str],
    typer.Option(
        "--input",
        metavar="RECORDS",
        help="Records as JSON Lines, - is stdin; or TOPIC=PLACE as in submit, of which Spark reads a sample. Repeatable.",
        show_default=False,
    ),
]
Stores = Annotated[str | None, typer.Option("--stores", metavar="FILE", help="Write the rows of every store to FILE.")]
Trace = Annotated[
    bool,
    typer.Option("--trace", help="Show what each step does with each record, instead of the output."),
]
TraceForm = Annotated[
    Format | None,
    typer.Option("--format", help="Records are JSON Lines; --trace prints a tree (text) or JSON Lines."),
]


def try_(
    file: File,
    records: Input,
    stores: Stores = None,
    trace: Trace = False,
    form: TraceForm = None,
    limit: SampleLimit = None,
    conf: SampleConf = None,
    settings: Settings = None,
    env_file: EnvFile = None,
) -> None:
    """Run a topology in memory over records.

    The output is printed as JSON Lines. There is one partition, a commit after every record, and a clock that only
    lines {"advance_wall_clock": "5s"} advance. --trace shows each record's path through the lines of the file: where it
    is kept, where it is dropped and why, keys and values in and out, rows of stores before and after.

    Examples:
        streamkit try orders.yaml --input orders.jsonl
        streamkit try orders.yaml --input - --trace < orders.jsonl
    """
    from streamkit.runtime.driver import Driver, Remains

    if form is Format.text and not trace:
        raise UsageError("--format text needs --trace; records are JSON Lines")
    if STDIN in records:
        refuse_stdin(file)
    check_sample_options(records, limit, conf)
    places = list(filter(is_place, records))
    # All places together are one sample, at the position of the first of them.
    sources = [(input_name(path), input_lines(path)) for path in records if not is_place(path)]
    before = records.index(places[0]) if places else 0
    with user_output() as stdout, user_log():
        plan = load_plan(file, settings, env_file)
        if places:
            sources.insert(before, ("sample", map(json_line, sample_of(plan, places, limit, conf))))
        tracer = Tracer(plan) if trace else None
        with Driver(plan, Remains(logs=False), tracer=tracer) as driver:
            try:
                for name, lines in sources:
                    if tracer is None:
                        _run(driver, lines, name, stdout)
                    else:
                        _trace(driver, tracer, lines, name, (form or Format.text, stdout))
                _finish(driver, tracer, form or Format.text, stdout)
            except UsageError as error:
                # A bad line is an error of the records, not of the usage.
                raise SerdeError(str(error)) from error
            if stores is not None:
                _write_stores(stores, driver.stores())


def _run(driver: Driver, lines: Iterable[str], name: str, stdout: TextIO) -> None:
    from streamkit.runtime.driver import run_lines

    for record in run_lines(driver, lines, name):
        stdout.write(json_line(record))


def _finish(driver: Driver, tracer: Tracer | None, form: Format, stdout: TextIO) -> None:
    """Close the processors, and print what they have forwarded."""
    printed = driver.finish()
    if tracer is None:
        stdout.writelines(map(json_line, printed))
    elif printed:
        with redirect_stdout(stdout):
            trace_writer(driver.plan, form)("at the end", {}, tracer.take(), printed)


def _trace(driver: Driver, tracer: Tracer, lines: Iterable[str], name: str, output: tuple[Format, TextIO]) -> None:
    """Print the trace of each line; for a failing line, also the trace of the steps before the failure."""
    from streamkit.runtime.driver import pipe_at, record_of_line

    form, stdout = output
    writer = trace_writer(driver.plan, form)

    def write(place: str, record: Mapping[str, Json], visits: list[Visit], printed: list[dict[str, Json]]) -> None:
        with redirect_stdout(stdout):
            writer(place, record, visits, printed)

    tracer.take()  # visits of timers at the start
    for number, line in enumerate(lines, 1):
        if not line.strip():
            continue
        place = f"{name}:{number}"
        record = record_of_line(line, place)
        try:
            printed = pipe_at(driver, record, place)
        except StreamkitError:
            write(place, record, tracer.take(), driver.printed())
            raise
        write(place, record, tracer.take(), printed)


def _write_stores(path: str, stores: Mapping[str, object]) -> None:
    try:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(stores, file, ensure_ascii=False)
            file.write("\n")
    except OSError as error:
        raise StateError(f"{path}: {error.strerror}") from error


# `streamkit explain`: what the steps of a file do with a record that failed.


Letter = Annotated[
    str,
    typer.Option(
        "--dead-letter",
        metavar="PLACE",
        help="The dead letter of the record: its offset, or TOPIC-PARTITION@OFFSET as replay shows it.",
        show_default=False,
    ),
]
STATE = (
    "The record goes through the file as it is now, with the stores as their changelogs are now, not as they were when "
    "it failed. Nothing is written."
)


def explain(
    file: File,
    letter: Letter,
    form: Shown = Format.text,
    settings: Settings = None,
    env_file: EnvFile = None,
) -> None:
    """Show what each step does with a record that failed and became a dead letter.

    Prints the tree of try --trace for the record's original bytes, with the state that is on the log now: the stores
    are read from their changelogs into memory. The application may be running; nothing is written.

    Examples:
        streamkit explain orders.yaml --dead-letter 3
        streamkit explain orders.yaml --dead-letter broken-0@3 --format json
    """
    from streamkit.runtime.dead_letter_trace import explain, find_letter

    plan = load_plan(file, settings, env_file)
    with opened(plan, creates=False) as transport:
        dead = find_letter(plan, transport, letter)
        explanation = explain(plan, transport, dead)
    record, fails = _record(plan, dead), explanation.failure is not None or any(map(_fails, explanation.visits))
    if form is Format.text:
        print(f"{_name(dead)}: {dead.error}{f' at {dead.step}' if dead.step else ''}: {dead.message}\n{STATE}\n")
    write = trace_writer(
        plan, form, {} if form is Format.text else {"dead_letter": _letter_facts(dead), "state": STATE, "fails": fails}
    )
    write(f"{dead.topic}-{dead.partition}@{dead.offset}", record, explanation.visits, explanation.output)
    if form is Format.text:
        end = f", and ends the application: {explanation.failure}" if explanation.failure else "."
        print(f"It fails again{end}" if fails else "It does not fail now.")


def _fails(visit: Visit) -> bool:
    return visit.failure is not None or any(map(_fails, visit.visits))


def _name(dead: DeadLetter) -> str:
    return f"{dead.place.topic}-{dead.place.partition}@{dead.place_offset}"


def _record(plan: Plan, dead: DeadLetter) -> dict[str, Json]:
    from streamkit.runtime.records import RecordJson, headers_to_json

    key, value = RecordJson(plan).decode_source(dead.topic, dead.key, dead.value)
    headers = {"headers": headers_to_json(dead.headers)} if dead.headers else {}
    return {"topic": dead.topic, "key": key, "value": value, "timestamp": dead.timestamp, **headers}


def _letter_facts(dead: DeadLetter) -> dict[str, Json]:
    return {
        "topic": dead.place.topic,
        "partition": dead.place.partition,
        "offset": dead.place_offset,
        "error": dead.error,
        "message": dead.message,
        "step": dead.step,
    }


# What each step did with a record: an indented tree with the lines of the file, or JSON Lines.


_CAUSES = {
    BATCH: "at the end of the batch",
    COMMIT: "at the commit",
    TIMER: "from a timer",
    EXPIRY: "where a row's ttl ended",
}
_STEP_WIDTH = 72
"""Characters of a line of the file; the rest is cut."""
_VALUE_WIDTH = 160
"""Characters of a key or a value in text; JSON has all of it."""


Writer = Callable[[str, Mapping[str, Json], Sequence[Visit], Sequence[Json]], None]
"""Writes the place of an input record, the record, the visits that it caused, and the records that came out."""


def trace_writer(plan: Plan, form: Format, facts: Mapping[str, Json] | None = None) -> Writer:
    """Return the writer of a format; `facts`: further fields of JSON objects."""
    return TraceText(plan).write if form is Format.text else TraceJson(plan, facts or {}).write


class TraceText:
    """Writes records as trees."""

    def __init__(self, plan: Plan):
        path = Path(plan.file)
        self._plan = plan
        self._lines = path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
        self._nodes: dict[StepRef, str] = {}
        """The first node of each step that the record visited."""

    def write(self, place: str, record: Mapping[str, Json], visits: Sequence[Visit], output: Sequence[Json]) -> None:
        """Write the tree of an input record; `place`: where it was read. The tree contains the output."""
        self._nodes = {}
        sys.stdout.write(f"{place}  {_text(record)}\n")
        for visit in visits:
            for line in self._visit(visit, 1):
                sys.stdout.write(line + "\n")
        if not visits:
            sys.stdout.write("      no step reads it\n")
        sys.stdout.write("\n")

    def _visit(self, visit: Visit, depth: int) -> Iterator[str]:
        indent = "  " * depth
        number, step = self._place(visit)
        yield f"{number:>5} {indent}{step}{self._verdict(visit)}"
        yield from (f"{'':>5} {indent}    {line}" for line in self._details(visit))
        for child in visit.visits:
            yield from self._visit(child, depth + 1)

    def _place(self, visit: Visit) -> tuple[str, str]:
        """Return the number and the text of the line of the file that a visit's node comes from.

        A further node of the same step is shown by its name.
        """
        node = visit.node
        origin = node.origin if node is not None else None
        if node is None or origin is None:
            return "", node.name if node is not None else "a source"
        line, is_own = origin.position.line, origin.position.file == self._plan.file
        if self._nodes.setdefault(origin, node.name) != node.name:
            return str(line), f"{origin.step} ({node.name})"
        text = self._lines[line - 1].strip() if is_own and line <= len(self._lines) else origin.step
        return str(line), text if len(text) <= _STEP_WIDTH else text[: _STEP_WIDTH - 1] + "…"

    def _verdict(self, visit: Visit) -> str:
        reason = visit.reason
        if visit.cause is not None:
            return f"  => {_CAUSES[visit.cause]}"
        if visit.result == "written" and isinstance(visit.node, SinkNode):
            return f"  => written to {self._topic(visit.node)}"
        if isinstance(visit.node, SourceNode) and visit.out:
            return ""
        if visit.result == "forwarded":
            return "  => kept" if len(visit.out) == 1 else f"  => {len(visit.out)} records"
        if visit.result == "ended":
            return ""
        letter = f"; dead letter in {visit.dead_letter}" if visit.dead_letter else ""
        return f"  => {visit.result}{f': {reason}' if reason else ''}{letter}"

    def _topic(self, node: SinkNode) -> str:
        return self._plan.internal_name(node.topic) if node.topic is not None else node.target

    def _details(self, visit: Visit) -> Iterator[str]:
        if visit.record is not None and (isinstance(visit.node, SourceNode) or visit.node is None):
            yield _shown(visit.record)
        for number, passed in enumerate(visit.out):
            many = f"{number + 1}: " if len(visit.out) > 1 else ""
            if visit.record is None or isinstance(visit.node, SourceNode):
                if visit.record is None:
                    yield many + _shown(passed)
            elif passed != visit.record:
                yield many + _difference(visit.record, passed, all_parts=bool(many))
        if isinstance(visit.node, SinkNode) and visit.record is not None:
            yield _shown(visit.record)
        for row in visit.rows:
            yield _row(row)
        for store in visit.unread:
            yield f"store {store}: too many rows to compare"


class TraceJson:
    """Writes one object per record."""

    def __init__(self, plan: Plan, facts: Mapping[str, Json]):
        self._plan = plan
        self._facts = facts

    def write(self, place: str, record: Mapping[str, Json], visits: Sequence[Visit], output: Sequence[Json]) -> None:
        """Write the object of an input record."""
        steps = [self._visit(visit) for visit in visits]
        # An input line may contain NaN and infinities, which JSON does not have: they become text, as in keys and values.
        input_record = json.loads(json.dumps(record), parse_constant=str)
        sys.stdout.write(
            json_line({**self._facts, "place": place, "record": input_record, "steps": steps, "output": list(output)})
        )

    def _visit(self, visit: Visit) -> dict[str, Json]:
        node, origin = visit.node, getattr(visit.node, "origin", None)
        facts: dict[str, Json] = {"node": node.name if node is not None else None}
        if origin is not None:
            position = origin.position
            facts.update(
                pipeline=origin.pipeline,
                step=origin.step,
                file=position.file,
                line=position.line,
                column=position.column,
            )
        if isinstance(node, SinkNode):
            facts["topic"] = self._plan.internal_name(node.topic) if node.topic is not None else None
        return {
            **facts,
            "cause": visit.cause,
            "in": None if visit.record is None else _data(visit.record),
            "result": visit.result,
            "reason": visit.reason,
            "dead_letter": visit.dead_letter,
            "out": [_data(passed) for passed in visit.out],
            "stores": [
                {"store": row.store, "key": row.key, "before": row.before, "after": row.after} for row in visit.rows
            ],
            "not_compared": visit.unread,
            "steps": [self._visit(child) for child in visit.visits],
        }


def _data(passed: Passed) -> dict[str, Json]:
    return {"key": passed.key, "value": passed.value, "old": passed.old, "timestamp": passed.timestamp}


def _shown(passed: Passed) -> str:
    old = f" (was {_text(passed.old)})" if passed.old is not None else ""
    return f"key {_text(passed.key)}, value {_text(passed.value)}{old}, timestamp {passed.timestamp}"


def _difference(before: Passed, after: Passed, *, all_parts: bool) -> str:
    """Return the parts of a record that a step changed; for several records, all keys and values."""
    parts = []
    for name in ("key", "value", "timestamp"):
        one, other = getattr(before, name), getattr(after, name)
        if one != other:
            parts.append(f"{name} {_text(one)} -> {_text(other)}" if not all_parts else f"{name} {_text(other)}")
    if before.old != after.old:
        parts.append(f"old value {_text(after.old)}")
    return ", ".join(parts) or "the same record"


def _row(row: RowChange) -> str:
    if row.same:
        return f"store {row.store}[{_text(row.key)}]: {_text(row.before)}"
    return f"store {row.store}[{_text(row.key)}]: {_absent(row.before)} -> {_absent(row.after)}"


def _absent(value: Json) -> str:
    return "none" if value is None else _text(value)


def _text(value: Json) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= _VALUE_WIDTH else text[: _VALUE_WIDTH - 1] + "…"
