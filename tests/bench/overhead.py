"""What measuring costs: the CPU time of a task with and without latencies (KIP-613), and with and without OpenTelemetry.

    python -m tests.bench.overhead [--passes N] [--only latency|otel]

Two tasks of one topology process the same batches in turn, in rounds of some milliseconds, each first in every other round.
Time is the CPU time of the thread. Each pass begins with new tasks and repeats the same rounds; the least time of each round
counts, so that other work on the machine shows little. A figure is the sum of these times with, against the sum without. The
median of the ratios of all rounds is printed beside; it is near the figure on a machine that does nothing else. There is no
log and no client in these rounds: within an application the same cost is a smaller part of the whole.

For OpenTelemetry spans go to a collector in a process of its own. The CPU time of the exporter's threads is printed beside.
"""

from __future__ import annotations

import argparse
import multiprocessing
import os
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from multiprocessing.connection import Connection
from statistics import median

from streamkit.compile.compiler import compile_sub_topology
from streamkit.plan import load
from streamkit.plan.model import Plan
from streamkit.record import RecordBatch, TopicPartition
from streamkit.runtime.execution.store_opening import MemoryStores
from streamkit.runtime.execution.task import Task
from streamkit.runtime.execution.task_environment import TaskEnvironment, TaskSpec
from streamkit.runtime.local.status_model import ApplicationStatus, GroupStatus
from streamkit.runtime.local.stream_thread import MAX
from streamkit.runtime.telemetry.open_telemetry import Telemetry
from tests.bench.engine import ENVIRONMENT, TOPOLOGIES, batches

CASES = {"stateless": "lines", "count": "lines", "tumbling": "events"}
"""By topology: its input."""
RECORDS, ROUND = 200_000, 4
"""Records of a pass, and batches of a round."""
PASSES = 12

Make = Callable[[Plan], Task]


def plain(plan: Plan) -> Task:
    """A task that measures nothing, as `try` has it."""
    return _task(plan, measured=False)


def measured(plan: Plan) -> Task:
    """A task that measures latencies, as applications have it."""
    return _task(plan, measured=True)


def traced(telemetry: Telemetry) -> Make:
    """Tasks of an application with `otel.enabled`."""
    return lambda plan: _task(plan, measured=True, telemetry=telemetry)


def _task(plan: Plan, *, measured: bool, telemetry: Telemetry | None = None) -> Task:
    (sub,) = plan.sub_topologies
    inputs = tuple(TopicPartition(topic, 0) for topic in sub.source_topics)
    spec = TaskSpec("0_0", 0, sub, compile_sub_topology(plan, sub, measures_latency=measured), inputs)
    environment = TaskEnvironment(
        plan,
        clock=lambda: int(time.time() * 1000),
        open_store=MemoryStores(plan).open,
        partitions=lambda topic: 1,
        tracing=None if telemetry is None else telemetry.tracing,
        measures_latency=measured,
    )
    task = Task(spec, environment)
    task.start({})
    return task


def measure(name: str, off: Make, on: Make, passes: int) -> list[list[tuple[float, float]]]:
    """The CPU times of each round of each pass, without and with."""
    plan = load(TOPOLOGIES / f"{name}.yaml", env=ENVIRONMENT)
    inputs = batches("one", CASES[name], RECORDS)
    found = []
    for number in range(passes):
        tasks, rounds = (off(plan), on(plan)), []
        for start in range(0, len(inputs), ROUND):
            part, seconds = inputs[start : start + ROUND], [0.0, 0.0]
            for each in (0, 1) if (number + start // ROUND) % 2 else (1, 0):
                seconds[each] = _seconds(tasks[each], part)
            rounds.append((seconds[0], seconds[1]))
        for task in tasks:
            task.close()
        found.append(rounds)
    return found


def _seconds(task: Task, part: list[RecordBatch]) -> float:
    started = time.thread_time()
    for batch in part:
        task.add(batch)
        while task.process(MAX):
            _written(task)
    task.prepare_commit(lambda partition: 0)
    _written(task)
    task.post_commit()
    return time.thread_time() - started


def _written(task: Task) -> None:
    """Count the output rows, as LocalTask.count_output does."""
    rows = task.output
    if rows:
        topics = [row[0] for row in rows]
        same = topics.count(topics[0])
        counts = {topics[0]: same} if same == len(topics) else Counter(topics)
        task.record_written(counts, topics, rows)
        del rows[:]


@contextmanager
def exporting() -> Iterator[Telemetry]:
    """The exporters of an application, and a collector in a process of its own."""
    here, there = multiprocessing.get_context("spawn").Pipe()
    collector = multiprocessing.get_context("spawn").Process(target=_collect, args=(there,), daemon=True)
    collector.start()
    os.environ["OTEL_EXPORTER_OTLP_ENDPOINT"] = here.recv()
    telemetry = Telemetry("bench", "0", _no_status)
    try:
        yield telemetry
    finally:
        telemetry.close()
        here.send(None)
        print(f"  the collector received {here.recv():,} spans")
        collector.join()


def _no_status() -> ApplicationStatus:
    figures = dict.fromkeys(("threads", "stores", "restoring", "topics", "inputs", "drops"), ())
    return ApplicationStatus("bench", "0", "RUNNING", False, None, 0.0, 0.0, group=GroupStatus(()), **figures)


def _collect(pipe: Connection) -> None:
    from tests.telemetry.collector import collecting

    with collecting() as collector:
        pipe.send(collector.endpoint)
        pipe.recv()
        pipe.send(len(collector.spans))


def report(name: str, found: list[list[tuple[float, float]]]) -> None:
    """Print the overhead of a case."""
    least = [[min(each[side] for each in same) for same in zip(*found, strict=True)] for side in (0, 1)]
    middle = median(on / off for each in found for off, on in each)
    print(
        f"  {name:<10} {_percent(sum(least[1]) / sum(least[0]))}   (median of {sum(map(len, found))} rounds "
        f"{_percent(middle)}; {RECORDS / sum(least[0]):,.0f} records/s without)",
        flush=True,
    )


def _percent(ratio: float) -> str:
    return f"{100 * (ratio - 1):+.1f} %"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--passes", type=int, default=PASSES)
    parser.add_argument("--only", choices=["latency", "otel"])
    asked = parser.parse_args()
    if asked.only != "otel":
        print("latencies on, against off:")
        for name in CASES:
            report(name, measure(name, plain, measured, asked.passes))
    if asked.only != "latency":
        print("OpenTelemetry on, against off:")
        with exporting() as telemetry:
            others, began = time.process_time() - time.thread_time(), time.monotonic()
            for name in CASES:
                report(name, measure(name, measured, traced(telemetry), asked.passes))
            others, seconds = time.process_time() - time.thread_time() - others, time.monotonic() - began
            print(f"  the exporter's threads took {100 * others / seconds:.2f} % of a core")


if __name__ == "__main__":
    main()
