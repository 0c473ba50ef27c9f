"""Traces of records: they change nothing, and name what each step does."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from streamkit.compile.compiler import compile_sub_topology
from streamkit.errors import ProcessingError
from streamkit.plan import load
from streamkit.runtime.driver import Driver, Remains
from streamkit.runtime.tracing import Tracer, Visit
from tests.conformance_cases import every_case, plan_of


def run(case: Path, tracer: Tracer | None) -> tuple[Any, ...]:
    """Return output records, errors, rows of stores and changelogs of a case."""
    found: list[Any] = []
    with Driver(load(case / "topology.yaml"), Remains(), tracer=tracer) as driver:
        for line in (case / "input.jsonl").read_text().splitlines():
            if line.strip():
                try:
                    found += driver.pipe(json.loads(line))
                except ProcessingError as error:
                    found += [*driver.printed(), str(error)]
        return found, driver.stores(), driver.remains.changelogs, driver.dropped


@every_case
def test_records_stores_and_changelogs_are_the_same_with_a_trace(case: Path) -> None:
    tracer = Tracer(plan_of(case))
    assert run(case, tracer) == run(case, None)
    assert tracer.running is None
    assert any(each.result in ("written", "ended") for visit in tracer.take() for each in below(visit))


@every_case
def test_what_applications_run_reports_nothing(case: Path) -> None:
    plan = plan_of(case)
    for sub in plan.sub_topologies:
        program = compile_sub_topology(plan, sub)
        assert "trace." not in program.source
        assert "trace" not in program.namespace


def below(visit: Visit) -> list[Visit]:
    """Return a visit and all that it caused."""
    return [visit, *(each for child in visit.visits for each in below(child))]


HEAD = """\
streamkit: 1
application: app
topics:
  orders: {value: json}
  users: {value: json}
  out: {value: json}
  other: {value: json}
  broken: {value: bytes}
pipelines:
  p:
    stream: orders
    steps:
"""


def traced(folder: Path, steps: str, *records: dict[str, Any], head: str = HEAD) -> list[list[Visit]]:
    """Return the visits of each record; a line of `steps` is a step."""
    path = folder / "topology.yaml"
    path.write_text(head + "".join(f"      - {step}\n" for step in steps.splitlines()) + "    to: out\n")
    plan = load(path)
    tracer = Tracer(plan)
    found = []
    with Driver(plan, tracer=tracer) as driver:
        for record in records:
            driver.pipe(record if "advance_wall_clock" in record else {"topic": "orders", **record})
            found.append([each for visit in tracer.take() for each in below(visit)])
    return found


def by_step(visits: list[Visit]) -> dict[str, Visit]:
    """Return the last visit of each step."""
    return {
        visit.node.origin.step: visit for visit in visits if visit.node is not None and visit.node.origin is not None
    }


@pytest.mark.parametrize(
    ("steps", "record", "step", "result", "reason"),
    [
        ("filter: value.n > 1", {"value": {"n": 1}}, "filter", "dropped", "'value.n > 1' is false"),
        ("filter_not: value.n == 1", {"value": {"n": 1}}, "filter_not", "dropped", "'value.n == 1' is true"),
        ("flat_map_values: value.n", {"value": {"n": []}}, "flat_map_values", "dropped", "the step turns it into no records"),
        ("group_by: value.u\ncount\nto_stream", {"value": {"u": None}}, "count", "dropped", "its key is null"),
        ("group_by_key\ncount\nto_stream", {"value": 1}, "count", "dropped", "its key is null"),
        (
            "join: {with: {table: users}, value: right}",
            {"key": "a", "value": 1},
            "join",
            "dropped",
            "the table has no row with its key",
        ),
        (
            "join: {with: {stream: users}, within: 1m, value: right}",
            {"key": "a", "value": 1},
            "join",
            "dropped",
            "no record of the other side is within its time",
        ),
        (
            "group_by_key\nwindow: {tumbling: 1m, emit: on_close}\ncount\nto_stream: {key: key.key}",
            {"key": "a", "value": 1},
            "count",
            "stored",
            "its window is not closed, and emits on close",
        ),
        ("map_values: {value: value.n, on_error: continue}", {"value": {}}, "map_values", "failed", "field 'n' is missing"),
    ],
)  # fmt: skip
def test_a_step_that_forwards_nothing_has_a_reason(
    steps: str, record: dict[str, Any], step: str, result: str, reason: str, tmp_path: Path
) -> None:
    (visits,) = traced(tmp_path, steps, record)
    visit = by_step(visits)[step]
    assert (visit.result, (visit.reason or "")[: len(reason)]) == (result, reason)
    assert not any(
        each.result == "written" and each.node is not None and each.node.name.startswith("KSTREAM-SINK")
        for each in visits
    )


def test_a_late_record_is_named_so(tmp_path: Path) -> None:
    steps = "group_by_key\nwindow: {tumbling: 1m}\ncount\nto_stream: {key: key.key}"
    times = [{"key": "a", "value": 1, "timestamp": time} for time in (300_000, 0)]
    late = by_step(traced(tmp_path, steps, *times)[1])["count"]
    assert (late.result, late.reason) == ("dropped", "late: its window is closed, or its time has passed")


def test_keys_values_and_rows_before_and_after(tmp_path: Path) -> None:
    steps = (
        "select_key: value.u\ngroup_by_key\naggregate: {initial: 0, add: aggregate + value.n, store: sums}\nto_stream"
    )
    records = [{"key": "x", "value": {"u": "ann", "n": n}} for n in (1, 2)]
    _, visits = traced(tmp_path, steps, *records)
    selected = by_step(visits)["select_key"]
    assert selected.record is not None
    assert (selected.record.key, [each.key for each in selected.out]) == ("x", ["ann"])
    held = next(visit for visit in visits if visit.result == "stored")
    assert [(row.store, row.key, row.before, row.after) for row in held.rows] == [("sums", "ann", 1, 3)]
    flushed = next(visit for visit in visits if visit.cause == "commit")
    assert [(each.key, each.value, each.old) for each in flushed.out] == [("ann", 3, None)]
    assert [each.node.target for each in visits if each.result == "written"][-1] == "out"  # type: ignore[union-attr]


def test_a_row_that_is_only_read_is_shown(tmp_path: Path) -> None:
    steps = "join: {with: {table: users}, value: right.name}"
    user = {"topic": "users", "key": "a", "value": {"name": "Ann"}}
    _, visits = traced(tmp_path, steps, user, {"key": "a", "value": 1})
    (row,) = by_step(visits)["join"].rows
    assert row.same
    assert (row.key, row.before) == ("a", {"name": "Ann"})


def test_values_are_those_of_the_moment(tmp_path: Path) -> None:
    (tmp_path / "change.py").write_text("def change(record, context):\n    record.value['n'] = 2\n    yield record\n")
    (visits,) = traced(tmp_path, "process: {call: change:change}", {"value": {"n": 1}})
    process = by_step(visits)["process"]
    assert process.record is not None
    assert (process.record.value, process.out[0].value) == ({"n": 1}, {"n": 2})


def test_timers_and_children_by_name(tmp_path: Path) -> None:
    (tmp_path / "timed.py").write_text(
        "class Timed:\n"
        "    def init(self, context):\n"
        "        self.context = context\n"
        "        context.schedule('10s', 'wall_clock', self.fire)\n"
        "    def process(self, record):\n"
        "        self.last = record\n"
        "        self.context.store('seen').put(record.key, record.value)\n"
        "    def fire(self, time):\n"
        "        self.context.forward(self.last)\n"
    )
    head = HEAD.replace("pipelines:", "stores: {seen: {type: key_value, value: json}}\npipelines:")
    record, fired = traced(
        tmp_path,
        "process: {call: timed:Timed, stores: [seen]}",
        {"key": "a", "value": 5},
        {"advance_wall_clock": "10s"},
        head=head,
    )
    process = by_step(record)["process"]
    assert [(row.key, row.before, row.after) for row in process.rows] == [("a", None, 5)]
    assert [visit.cause for visit in fired if visit.record is None] == ["timer"]
    assert [each.result for each in fired][-1] == "written"


def test_records_that_suppress_holds_back_are_stored(tmp_path: Path) -> None:
    steps = "group_by_key\nwindow: {tumbling: 1m}\ncount\nsuppress: window_closes\nto_stream: {key: key.key}"
    (visits,) = traced(tmp_path, steps, {"key": "a", "value": 1})
    held = by_step(visits)["suppress"]
    assert (held.result, held.reason) == ("stored", "it is held back until its time, or until the buffer is full")


def test_dead_letters_and_the_failure_that_ends(tmp_path: Path) -> None:
    steps = "map_values: {value: value.n, on_error: {dead_letter: broken}}\nfilter: value / 0 > 1"
    with pytest.raises(ProcessingError):
        traced(tmp_path, steps, {"value": {"n": 1}})
    (visits,) = traced(tmp_path, steps, {"value": {}})
    failed = by_step(visits)["map_values"]
    assert (failed.result, failed.dead_letter) == ("failed", "broken")


def test_bytes_that_do_not_decode_are_a_visit_of_the_source(tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    config = "config: {deserialization.exception.handler: continue}\n"
    path.write_text(HEAD.replace("topics:", f"{config}topics:") + "      - filter: value.n > 1\n    to: out\n")
    plan = load(path)
    tracer = Tracer(plan)
    with Driver(plan, tracer=tracer) as driver:
        assert driver.pipe_row(("orders", b"k", b"{", 5, None, None)) == []
    (visit,) = tracer.take()
    assert (visit.result, visit.node.origin.step) == ("failed", "stream")  # type: ignore[union-attr]
    assert visit.record is not None
    assert visit.record.key == {"base64": "aw=="}
