"""Stand-ins for what other packages provide: a hand-written program, and a plan with only what a task asks of it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

from streamkit.compile.program import BoundProgram
from streamkit.config import Config
from streamkit.record import Columns, RecordBatch, TopicPartition
from streamkit.runtime.execution.task import Task
from streamkit.runtime.execution.task_environment import TaskEnvironment, TaskSpec


class Clock:
    """A clock that moves when told to."""

    def __init__(self, now: int = 0):
        self.now = now

    def __call__(self) -> int:
        return self.now


@dataclass
class FakeProgram:
    """Copies every record to topic "out"; `seen` notes each run's offsets, by topic."""

    topics: tuple[str, ...] = ("in",)
    policies: dict[str, str] = field(default_factory=dict)
    extractors: dict[str, Any] = field(default_factory=dict)
    init: Callable[[Any], None] = lambda rt: None
    close: Callable[[Any], None] = lambda rt: None
    on_record: Callable[[Any, Any, int], None] | None = None
    sinks: dict[str, str] = field(default_factory=dict)
    nodes: tuple = (SimpleNamespace(name="node-0", origin=None, on_error=None),)
    seen: list[tuple[str, list[int]]] = field(default_factory=list)
    here: tuple | None = None

    def bind(self, rt: Any) -> BoundProgram:
        def source(topic: str) -> Any:
            def run(keys, values, timestamps, headers, offsets, partition):
                self.seen.append((topic, list(offsets)))
                for key, value, time, header, offset in zip(keys, values, timestamps, headers, offsets, strict=True):
                    self.here = (topic, partition, offset)
                    if self.on_record is not None:
                        self.on_record(rt, value, time)
                    rt.output.append(("out", key, value, time, header, None))

            return run

        return BoundProgram(
            sources={topic: source(topic) for topic in self.topics},
            patterns={},
            extractors=self.extractors,
            timestamp_policies=self.policies,
            init=lambda: self.init(rt),
            close=lambda: self.close(rt),
            position=lambda: self.here,
        )


def make_task(program: FakeProgram, clock: Clock | None = None, **environment: Any) -> Task:
    """Return a started task "0_0" without stores over partition 0 of the program's topics."""
    sub = SimpleNamespace(id=0, stores=(), is_global=False, nodes={})
    plan: Any = SimpleNamespace(application="app", config=Config("app"), stores={}, changelog_name=lambda name: None)
    inputs = tuple(TopicPartition(topic, 0) for topic in program.topics)
    spec = TaskSpec("0_0", 0, sub, program, inputs)  # type: ignore[arg-type]
    task = Task(
        spec,
        TaskEnvironment(
            plan,
            clock=clock or Clock(),
            open_store=lambda spec, name, services: None,
            partitions=lambda topic: 1,
            **environment,
        ),
    )
    task.start({})
    return task


def batch(topic: str, times: list[int], first_offset: int = 0, partition: int = 0) -> RecordBatch:
    """Return records with these timestamps, whose values are their offsets as text."""
    offsets = list(range(first_offset, first_offset + len(times)))
    values = [str(offset).encode() for offset in offsets]
    return RecordBatch(
        topic, partition, Columns([None] * len(times), values, list(times), [None] * len(times), offsets)
    )
