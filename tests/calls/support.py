"""Topologies with Python modules, run by a task over runs of a chosen length."""

from __future__ import annotations

import textwrap
from collections import defaultdict
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from streamkit.compile.compiler import compile_sub_topology
from streamkit.plan import load
from streamkit.record import Columns, OutputTuple, RecordBatch, TopicPartition
from streamkit.runtime.driver import merged
from streamkit.runtime.execution.handlers import Handlers
from streamkit.runtime.execution.store_opening import MemoryStores
from streamkit.runtime.execution.task import Task
from streamkit.runtime.execution.task_environment import TaskEnvironment, TaskSpec

Input = tuple[bytes, bytes, int]
"""Key, value, timestamp."""


def write(folder: Path, topology: str, module: str) -> Path:
    """Write a topology and its module; return the file of the topology."""
    (folder / "user_code.py").write_text(textwrap.dedent(module), encoding="utf-8")
    file = folder / "topology.yaml"
    file.write_text(textwrap.dedent(topology), encoding="utf-8")
    return file


def task_of(file: Path, **environment: Any) -> Task:
    """Return the started task of a topology of one sub-topology."""
    plan = load(file)
    sub = merged(plan)
    assert sub is not None
    inputs = tuple(TopicPartition(topic, 0) for topic in sub.source_topics)
    given = TaskEnvironment(
        plan,
        clock=lambda: 0,
        open_store=MemoryStores(plan).open,
        partitions=lambda topic: 1,
        handlers=Handlers.of(plan.config),
        **environment,
    )
    task = Task(TaskSpec("0_0", 0, sub, compile_sub_topology(plan, sub), inputs), given)
    task.start({})
    return task


def batch(records: Sequence[Input], first: int = 0, topic: str = "in") -> RecordBatch:
    """Return records as a batch of partition 0; each has a header with its offset."""
    keys, values, timestamps = (list(column) for column in zip(*records, strict=True))
    offsets = list(range(first, first + len(records)))
    headers = [[("at", str(offset).encode())] for offset in offsets]
    return RecordBatch(topic, 0, Columns(keys, values, timestamps, headers, offsets))


def outcome(file: Path, records: Sequence[Input], length: int) -> dict[str, list[OutputTuple]]:
    """Return what a topology writes to each topic, where the task gets so many records at once."""
    task = task_of(file)
    for start in range(0, len(records), length):
        task.add(batch(records[start : start + length], start))
        while task.has_records():
            task.process(10_000)
    task.flush_stores()
    task.close()
    written = defaultdict(list)
    for row in task.output:
        written[row[0]].append(row)
    return dict(written)
