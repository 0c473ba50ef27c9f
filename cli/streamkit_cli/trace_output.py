"""Writes what each step made of a record: an indented tree with the lines of the file, or JSON Lines."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

from streamkit.graph.physical_topology import StepRef
from streamkit.plan.model import Plan, SinkNode, SourceNode
from streamkit.runtime.tracing import BATCH, COMMIT, EXPIRY, TIMER, Passed, RowChange, Visit
from streamkit.serdes.plain import Json
from streamkit_cli.options import Format
from streamkit_cli.record_lines import json_line

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
        """Write the tree of an input record; `place`: where it was read. The output stands in the tree."""
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
        for each in visit.visits:
            yield from self._visit(each, depth + 1)

    def _place(self, visit: Visit) -> tuple[str, str]:
        """Return the number and the text of the line of the file that a visit's node comes from.

        A further node of the same step is shown by its name.
        """
        node = visit.node
        origin = node.origin if node is not None else None
        if node is None or origin is None:
            return "", node.name if node is not None else "a source"
        line = origin.position.line
        if self._nodes.setdefault(origin, node.name) != node.name:
            return str(line), f"{origin.step} ({node.name})"
        text = self._lines[line - 1].strip() if line <= len(self._lines) else origin.step
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
    """Writes one object a record."""

    def __init__(self, plan: Plan, facts: Mapping[str, Json]):
        self._plan = plan
        self._facts = facts

    def write(self, place: str, record: Mapping[str, Json], visits: Sequence[Visit], output: Sequence[Json]) -> None:
        """Write the object of an input record."""
        steps = [self._visit(visit) for visit in visits]
        # An input line may hold NaN and infinities, which JSON does not have: they become text, as in keys and values.
        given = json.loads(json.dumps(record), parse_constant=str)
        sys.stdout.write(
            json_line({**self._facts, "place": place, "record": given, "steps": steps, "output": list(output)})
        )

    def _visit(self, visit: Visit) -> dict[str, Json]:
        node, origin = visit.node, getattr(visit.node, "origin", None)
        found: dict[str, Json] = {"node": node.name if node is not None else None}
        if origin is not None:
            position = origin.position
            found.update(
                pipeline=origin.pipeline,
                step=origin.step,
                file=position.file,
                line=position.line,
                column=position.column,
            )
        if isinstance(node, SinkNode):
            found["topic"] = self._plan.internal_name(node.topic) if node.topic is not None else None
        return {
            **found,
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
            "steps": [self._visit(each) for each in visit.visits],
        }


def _data(passed: Passed) -> dict[str, Json]:
    return {"key": passed.key, "value": passed.value, "old": passed.old, "timestamp": passed.timestamp}


def _shown(passed: Passed) -> str:
    old = f" (was {_text(passed.old)})" if passed.old is not None else ""
    return f"key {_text(passed.key)}, value {_text(passed.value)}{old}, timestamp {passed.timestamp}"


def _difference(before: Passed, after: Passed, *, all_parts: bool) -> str:
    """Return the parts of a record that a step changed; of several records all keys and values."""
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
