"""A task takes the records of several topics in the same order, with the same results, merged or one queue at a time."""

from __future__ import annotations

import tempfile
from functools import cache
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamkit.compile.compiler import compile_sub_topology
from streamkit.compile.program import Program
from streamkit.operators.core.task_services import EmitIntervals
from streamkit.plan import load
from streamkit.plan.model import Plan
from streamkit.record import Columns, RecordBatch, TopicPartition
from streamkit.runtime.execution import queues
from streamkit.runtime.execution.handlers import Handlers
from streamkit.runtime.execution.queues import Idling
from streamkit.runtime.execution.store_opening import MemoryStores
from streamkit.runtime.execution.task import Task
from streamkit.runtime.execution.task_environment import TaskEnvironment, TaskSpec
from tests.runtime.fakes import Clock

TOPOLOGY = """
streamkit: 1
application: app
config: {statestore.cache.max.bytes: %d}
topics: {a: {value: json}, bb: {value: json}, rows: {value: json}, out: {value: json}}
stores:
  seen: {type: key_value, value: json}
pipelines:
  table: {table: rows, store: table}
  left: {stream: a}
  right: {stream: bb}
  all: {from: left, steps: [{merge: right}]}
  joined:
    from: right
    steps: [{outer_join: {with: left, value: '[left, right]', within: 3ms, grace: 1ms}}]
    to: out
  both:
    from: all
    steps: [group_by_key, {window: {tumbling: 5ms, grace: 2ms}}, {count: counts}, {suppress: window_closes}, to_stream,
            {map: {key: key.key, value: '[key.start, value]', key_serde: string, value_serde: json}}]
    to: out
  totals:
    from: all
    steps: [group_by_key, {aggregate: {initial: '0', add: 'aggregate + 1', store: totals, value_serde: json}}, to_stream]
    to: out
  looked_up:
    from: left
    steps: [{map_values: '[value, topic, offset]'}, {left_join: {with: table, value: '[left, right]'}},
            {process_values: {call: 'timed:Timed'}}]
    to: out
"""
CODE = """
class Timed:
    def init(self, context):
        self.context, self.fired = context, 0
        context.schedule("7ms", "stream_time", self.tick)

    def tick(self, time):
        self.fired += 1

    def process(self, record):
        yield record.replace(value=[record.value, self.fired, self.context.stream_time])
"""
"""Its results show when its timer has fired, and the stream time at each record."""
TOPICS = ("a", "bb", "rows")
VALUES = (b"1", b"{", b"[2]", None)
FOLDER = tempfile.TemporaryDirectory(prefix="streamkit-merged-")

records = st.lists(
    st.tuples(st.sampled_from((b"k", b"l", None)), st.sampled_from(VALUES), st.integers(0, 25)), min_size=1, max_size=25
)
steps = st.lists(
    st.one_of(
        st.tuples(st.sampled_from(TOPICS), records),
        st.tuples(st.just("process"), st.integers(1, 40)),
        st.just(("commit", 0)),
    ),
    max_size=14,
)


@cache
def program(cache_bytes: int) -> tuple[Plan, Program]:
    folder = Path(FOLDER.name)
    (folder / "timed.py").write_text(CODE, encoding="utf-8")
    path = folder / f"{cache_bytes}.yaml"
    path.write_text(TOPOLOGY % cache_bytes, encoding="utf-8")
    plan = load(path)
    (sub,) = plan.sub_topologies
    return plan, compile_sub_topology(plan, sub)


def task_of(cache_bytes: int, idling: Idling, group: type[queues.PartitionGroup]) -> Task:
    plan, code = program(cache_bytes)
    (sub,) = plan.sub_topologies
    spec = TaskSpec("0_0", 0, sub, code, tuple(TopicPartition(topic, 0) for topic in sub.source_topics))
    environment = TaskEnvironment(
        plan,
        clock=Clock(1000),
        open_store=MemoryStores(plan).open,
        partitions=lambda topic: 1,
        handlers=Handlers(deserialization="continue"),
        emit_intervals=EmitIntervals(0, 0),
        idling=idling,
        group=group,
    )
    task = Task(spec, environment)
    task.start({})
    return task


class OneQueue(queues.PartitionGroup):
    """Gives the records of one queue at a time."""

    def next_merged(self, limit: int, due: int | None = None) -> None:
        return None


def left_by(task: Task, offsets: dict[str, int]) -> list[Any]:
    """What can be seen of a task: its output, its time, its drops and the heads of its queues."""
    output, task.output[:] = list(task.output), []
    heads = [task.head_offset(place) for place in task.inputs]
    drops = [(each.reason, each.dropped, each.message) for each in task.drops.view()]
    return [output, task.stream_time(), drops, heads, task.taken(), task.consumed(), offsets]


def apply(task: Task, step: tuple[str, Any], ends: dict[str, int]) -> list[Any]:
    what, argument = step
    found: Any = None
    if what == "process":
        task.set_lags(dict.fromkeys(task.inputs, 0))
        found = task.process(argument)
    elif what == "commit":
        found = task.prepare_commit(lambda place: ends.get(place.topic, 0))
        task.post_commit()
    else:
        first, ends[what] = ends.get(what, 0), ends.get(what, 0) + len(argument)
        keys, values, times = (list(column) for column in zip(*argument, strict=True))
        headers = [[("at", str(at).encode())] for at in times]
        task.add(RecordBatch(what, 0, Columns(keys, values, times, headers, list(range(first, ends[what])))))
    return [found, *left_by(task, dict(ends))]


@pytest.mark.parametrize(("cache_bytes", "idle_ms"), [(0, -1), (400, 0)])
@settings(deadline=None, max_examples=60)
@given(steps=steps)
def test_merged_runs_leave_what_runs_of_one_queue_leave(cache_bytes: int, idle_ms: int, steps: list) -> None:
    seen, rows = [], []
    for group in (queues.PartitionGroup, OneQueue):
        task, ends = task_of(cache_bytes, Idling(idle_ms), group), dict[str, int]()
        seen.append([apply(task, step, ends) for step in [*steps, ("process", 1_000), ("commit", 0)]])
        rows.append({name: list(store.rows()) for name, store in task.stores.items()})
        task.close()
    assert seen[0] == seen[1]
    assert repr(rows[0]) == repr(rows[1])


def test_interleaved_records_are_one_run() -> None:
    task = task_of(0, Idling(-1), queues.PartitionGroup)
    for topic, start in (("a", 0), ("bb", 1)):
        apply(task, (topic, [(b"k", b"1", time) for time in range(start, 2_000, 2)]), {})
    group = task._group
    run = group.next_merged(10_000)
    assert run is not None
    assert run.order is not None
    assert len(run.order) == 1_999  # the last one of bb waits for the next head of a
    assert run.order[:4] == [0, 1, 0, 1]
    assert group.next_merged(10_000) is None


def test_long_rows_of_one_queue_are_runs_of_their_own() -> None:
    task = task_of(0, Idling(-1), queues.PartitionGroup)
    for topic, start in (("a", 0), ("bb", 100)):
        apply(task, (topic, [(b"k", b"1", time) for time in range(start, start + 100)]), {})
    assert task._group.next_merged(10_000) is None
