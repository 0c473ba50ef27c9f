"""A round of records ends when it has made much, however many records it was asked for, and nothing is lost by it."""

from __future__ import annotations

import threading
from pathlib import Path

import orjson
import pytest

from streamkit import rounds
from streamkit.compile.compiler import compile_sub_topology
from streamkit.plan import load
from streamkit.record import Columns, RecordBatch, TopicPartition
from streamkit.runtime.execution.queues import MAX_OUTPUT_ROWS, MAX_RUN
from streamkit.runtime.execution.store_opening import MemoryStores
from streamkit.runtime.execution.task import Task
from streamkit.runtime.execution.task_environment import TaskEnvironment, TaskSpec

TOPOLOGY = """
streamkit: 1
application: app
topics: {a: {value: json}, b: {value: json}, out: {value: json}}
pipelines:
  p:
    stream: %s
    steps:
      - %s
    to: out
"""
LONG = "x" * 40_000
"""A value that is noted when it is written."""


@pytest.fixture(autouse=True)
def short_rounds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "MOST", 100_000)


def task_of(folder: Path, step: str, topics: str = "a") -> Task:
    path = folder / "topology.yaml"
    path.write_text(TOPOLOGY % (topics, step), encoding="utf-8")
    plan = load(path)
    (sub,) = plan.sub_topologies
    inputs = tuple(TopicPartition(topic, 0) for topic in sub.source_topics)
    spec = TaskSpec("0_0", 0, sub, compile_sub_topology(plan, sub), inputs)
    stores = MemoryStores(plan)
    task = Task(spec, TaskEnvironment(plan, clock=lambda: 0, open_store=stores.open, partitions=lambda topic: 1))
    task.start({})
    return task


def batch(topic: str, values: list, times: list[int]) -> RecordBatch:
    count = len(values)
    data = [orjson.dumps(value) for value in values]
    return RecordBatch(topic, 0, Columns([b"k"] * count, data, times, [None] * count, list(range(count))))


def in_rounds(task: Task) -> list[list]:
    """Process everything; return the values that each round put out."""
    found = []
    while task.process(1_000):
        found.append([orjson.loads(row[2]) for row in task.output])
        del task.output[:]
    return found


def test_a_round_ends_with_the_record_that_makes_it_too_much(tmp_path: Path) -> None:
    task = task_of(tmp_path, "map_values: '[offset, value]'")
    task.add(batch("a", [LONG] * 10, [5, 1, 9, 2, 3, 4, 20, 6, 7, 8]))
    place, ends, times, commits = TopicPartition("a", 0), [], [], []
    while task.process(1_000):
        ends.append(len(task.output))
        times.append(task.stream_time())
        commits.append(task.prepare_commit(lambda partition: 10)[place].offset)
        task.post_commit()
    assert ends == [3, 6, 9, 10]
    assert times == [9, 9, 20, 20]
    assert commits == [3, 6, 9, 10]
    assert [orjson.loads(row[2])[0] for row in task.output] == list(range(10))


def test_the_time_that_is_committed_is_that_of_what_was_processed(tmp_path: Path) -> None:
    task, other = (task_of(tmp_path, "map_values: '[offset, value]'") for _ in range(2))
    task.add(batch("a", [LONG] * 4, [5, 1, 9, 20]))
    other.add(batch("a", [LONG] * 3, [5, 1, 9]))
    place = TopicPartition("a", 0)
    assert task.process(1_000) == other.process(1_000) == 3
    assert task.prepare_commit(lambda partition: 3)[place] == other.prepare_commit(lambda partition: 3)[place]


def test_records_of_two_topics_keep_their_order(tmp_path: Path) -> None:
    task = task_of(tmp_path, "map_values: '[timestamp, value]'", "[a, b]")
    task.add(batch("a", [LONG] * 20, [*range(0, 10), *range(50, 60)]))
    task.add(batch("b", [LONG] * 20, [*range(5, 15), *range(40, 50)]))
    task.set_lags(dict.fromkeys(task.inputs, 0))
    found = in_rounds(task)
    assert max(map(len, found)) == 3
    assert [each[0] for values in found for each in values] == sorted([*range(15), *range(5, 10), *range(40, 60)])


def test_many_small_results_end_a_round(tmp_path: Path) -> None:
    task = task_of(tmp_path, "flat_map_values: value")
    task.add(batch("a", [list(range(300))] * 4, [1, 2, 3, 4]))
    assert list(map(len, in_rounds(task))) == [300, 300, 300, 300]
    task = task_of(tmp_path, "flat_map: '[(key, each) for each in value]'")
    task.add(batch("a", [list(range(300))] * 4, [1, 2, 3, 4]))
    assert list(map(len, in_rounds(task))) == [300, 300, 300, 300]


def test_text_that_expressions_make_counts(tmp_path: Path) -> None:
    task = task_of(tmp_path, "filter: len('x' * 60000 + value) > 0")
    task.add(batch("a", ["y"] * 5, [1, 2, 3, 4, 5]))
    assert list(map(len, in_rounds(task))) == [2, 2, 1]


def test_a_round_ends_with_so_many_rows(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(rounds, "MOST", 1 << 40)
    task = task_of(tmp_path, "flat_map_values: '[1, 2, 3, 4, 5, 6, 7, 8]'")
    count = 3 * MAX_RUN
    task.add(batch("a", [0] * count, [1] * count))
    assert task.process(count) == MAX_RUN
    assert len(task.output) == 8 * MAX_RUN > MAX_OUTPUT_ROWS
    # An owner that takes the output later gets on, too.
    assert task.process(count) == MAX_RUN


def test_each_thread_has_its_own_round() -> None:
    ended: list[str] = []

    def other() -> None:
        rounds.begin(lambda: ended.append("other"))
        rounds.count_bytes(rounds.MOST + 1)

    rounds.begin(lambda: ended.append("this"))
    thread = threading.Thread(target=other)
    thread.start()
    thread.join()
    assert ended == ["other"]
    assert not rounds.is_full()
    rounds.begin(None)
