"""The engine alone, without a log: its speed as a ratio to a plain Python loop of the same meaning in the same process.

    python -m tests.bench.engine [--record]

Exit code 1 where a ratio has fallen below half of the recorded one. Time is that of the thread, and the best of several
turns counts on both sides, so that other work on the machine shows little.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from streamkit.compile.compiler import compile_sub_topology
from streamkit.plan import load
from streamkit.record import Columns, RecordBatch, TopicPartition
from streamkit.runtime.execution.store_opening import MemoryStores
from streamkit.runtime.execution.task import Task
from streamkit.runtime.execution.task_environment import TaskEnvironment, TaskSpec
from tests.bench import loops
from tests.bench.inputs import MAKE

RECORDED = Path(__file__).with_name("engine.json")
TOPOLOGIES = Path(__file__).with_name("topologies")
RECORDS, BATCH, TURNS = 40_000, 2_000, 5
MARGIN = 0.5
ENVIRONMENT = {"BOOTSTRAP": "embedded", "STATE": "unused", "APPLICATION": "bench"} | {
    "INPUT_1": "one",
    "INPUT_2": "two",
    "OUTPUT": "out",
    "PROGRESS": "progress",
}
CASES: dict[str, tuple[tuple[str, ...], Callable]] = {
    "stateless": (("lines",), loops.stateless),
    "count": (("lines",), loops.count),
    "json": (("requests",), loops.add_field),
    "tumbling": (("events",), loops.tumbling),
    "sliding": (("events",), loops.sliding),
    "session": (("events",), loops.session),
    "table": (("visits", "users"), loops.table),
    "streams": (("left", "right"), loops.streams),
}
"""By topology: the inputs, and the loop."""


def batches(topic: str, name: str, count: int = RECORDS) -> list[RecordBatch]:
    """An input as batches of bytes."""
    records = list(MAKE[name](count))
    found = []
    for start in range(0, len(records), BATCH):
        part = records[start : start + BATCH]
        keys, values = [key.encode() for key, _, _ in part], [value.encode() for _, value, _ in part]
        offsets = list(range(start, start + len(part)))
        found.append(
            RecordBatch(topic, 0, Columns(keys, values, [at for _, _, at in part], [None] * len(part), offsets))
        )
    return found


def feed(inputs: list[list[RecordBatch]]) -> Iterator[RecordBatch]:
    """The batches of all inputs in the order of their first records, as a log would give them."""
    return iter(sorted((batch for each in inputs for batch in each), key=lambda batch: batch.timestamps[0]))


def engine_seconds(name: str, inputs: list[list[RecordBatch]]) -> float:
    """The time that the task of a topology takes, its commit included."""
    task = _task(name)
    try:
        started = time.thread_time()
        _process(task, feed(inputs))
        task.prepare_commit(lambda partition: 0)
        task.post_commit()
        return time.thread_time() - started
    finally:
        task.close()


def _task(name: str) -> Task:
    plan = load(TOPOLOGIES / f"{name}.yaml", env=ENVIRONMENT)
    (sub,) = plan.sub_topologies
    inputs = tuple(TopicPartition(topic, 0) for topic in sub.source_topics)
    spec = TaskSpec("0_0", 0, sub, compile_sub_topology(plan, sub), inputs)
    stores = MemoryStores(plan)
    task = Task(spec, TaskEnvironment(plan, clock=lambda: 0, open_store=stores.open, partitions=lambda topic: 1))
    task.start({})
    return task


def _process(task: Task, batches: Iterator[RecordBatch]) -> None:
    for batch in batches:
        task.add(batch)
        while task.process(1_000):
            del task.output[:]


def loop_seconds(loop: Callable[[list[RecordBatch], list[Any]], None], inputs: list[list[RecordBatch]]) -> float:
    """The time that the plain loop takes."""
    started = time.thread_time()
    loop(list(feed(inputs)), [])
    return time.thread_time() - started


def ratios() -> dict[str, float]:
    """The engine's speed by topology, the loop's being 1."""
    found = {}
    for name, (sources, loop) in CASES.items():
        inputs = [batches(topic, source) for topic, source in zip(("one", "two"), sources, strict=False)]
        engine, plain = [], []
        for _ in range(TURNS):
            engine.append(engine_seconds(name, inputs))
            plain.append(loop_seconds(loop, inputs))
        found[name] = round(min(plain) / min(engine), 3)
        count = sum(len(batch) for each in inputs for batch in each)
        print(f"{name:<10} {count / min(engine):>12,.0f} records/s {found[name]:>8.3f} of the loop", flush=True)
    return found


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--record", action="store_true", help="write the ratios as those to compare with")
    asked = parser.parse_args(arguments)
    found = ratios()
    if asked.record:
        RECORDED.write_text(json.dumps(found, indent=2) + "\n", encoding="utf-8")
        return 0
    before = json.loads(RECORDED.read_text(encoding="utf-8"))
    slower = [name for name, ratio in found.items() if ratio < before[name] * MARGIN]
    for name in slower:
        print(
            f"{name}: {found[name]:.3f} of the loop's speed, {before[name]:.3f} when it was recorded", file=sys.stderr
        )
    return 1 if slower else 0


if __name__ == "__main__":
    sys.exit(main())
