"""The log, the metrics and the output of user code, and the frames of its failures."""

from __future__ import annotations

import gc
import json
import logging
import weakref
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from prometheus_client.exposition import generate_latest

from streamkit.errors import ProcessingError, StreamkitError
from streamkit.expressions import load_object
from streamkit.http.prometheus import UserCodeMetrics
from streamkit.operators.core.parsed_values import CallRef
from streamkit.runtime.execution.task import Task
from streamkit.user_metrics import TaskMetrics, UserMetrics
from streamkit_cli.commands.try_ import try_
from tests.calls.support import batch, task_of, write

MODULE = """
    print("loaded")

    class Work:
        def init(self, context):
            self.context = context
            self.seen = context.metrics.counter("seen")
            self.last = context.metrics.gauge("last")
            self.work = context.metrics.timer("work")

        def process(self, record):
            with self.work.time():
                self.seen.add(2)
                self.last.set(record.value)
            print("value", record.value)
            self.context.log.info("saw %d", record.value)
            return self.checked(record)

        def checked(self, record):
            if record.value == 13:
                raise ValueError("thirteen")
            return record

    LOADED = []

    def loads(record):
        import weakref
        loaded = {1, 2}
        LOADED.append(weakref.ref(loaded))
        raise ValueError("loaded")
"""
TOPOLOGY = """\
streamkit: 1
application: app
topics: {in: {value: integer}, out: {value: integer}}
pipelines:
  p: {stream: in, steps: [{process: {call: "user_code:Work", value_serde: integer}}], to: out}
"""


def processed(folder: Path, *numbers: int) -> Task:
    task = task_of(write(folder, TOPOLOGY, MODULE))
    task.add(batch([(b"k", number.to_bytes(4, "big"), 0) for number in numbers]))
    task.process(100)
    return task


def exposed(task: Task) -> str:
    view = SimpleNamespace(id="0_0", metrics=task.metrics.view())
    thread = SimpleNamespace(name="thread-1", counters=SimpleNamespace(view=SimpleNamespace(tasks=[view])))
    application: Any = SimpleNamespace(threads=[thread])
    return generate_latest(UserCodeMetrics(application)).decode()


def test_metrics_of_user_code_are_in_the_text_for_prometheus(tmp_path: Path) -> None:
    text = exposed(processed(tmp_path, 3, 4))
    assert 'streamkit_user_seen_total{task_id="0_0",thread_id="thread-1"} 4.0' in text
    assert 'streamkit_user_last{task_id="0_0",thread_id="thread-1"} 4.0' in text
    assert 'streamkit_user_work_seconds_count{task_id="0_0",thread_id="thread-1"} 2.0' in text


@pytest.mark.parametrize(
    ("use", "message"),
    [
        (lambda metrics: metrics.counter("a b"), "the name of a metric 'a b' must be made of letters"),
        (lambda metrics: metrics.gauge("c"), "the metric 'c' is already a counter, not a gauge"),
        (lambda metrics: metrics.counter("c").add(-1), "a counter can't be reduced by 1; use a gauge"),
    ],
)
def test_mistakes_with_metrics(use: Any, message: str) -> None:
    metrics = UserMetrics(TaskMetrics())
    metrics.counter("c")
    with pytest.raises(StreamkitError, match=message):
        use(metrics)


def test_equal_names_are_one_metric() -> None:
    tasks = TaskMetrics()
    metrics = UserMetrics(tasks)
    metrics.counter("c").add()
    metrics.counter("c").add(2)
    metrics.gauge("g").add(-1)
    metrics.timer("t").record(0.5)
    assert [(each.name, each.number, each.count) for each in tasks.view()] == [("c", 3, 0), ("g", -1, 0), ("t", 0.5, 1)]


def test_the_log_names_task_and_node(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.INFO, "streamkit.user"):
        processed(tmp_path, 3)
    assert [(each.name, each.getMessage()) for each in caplog.records if each.name == "streamkit.user"] == [
        ("streamkit.user", "task 0_0, KSTREAM-PROCESSOR-0000000001: saw 3")
    ]


def test_what_user_code_prints_does_not_reach_the_output_of_try(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path, TOPOLOGY, MODULE)
    records = tmp_path / "in.jsonl"
    records.write_text('{"topic": "in", "key": "k", "value": 3}\n')
    try_(str(file), [str(records)])
    out, err = capsys.readouterr()
    assert [json.loads(line)["value"] for line in out.splitlines()] == [3]
    assert err.splitlines() == ["loaded", "value 3", "INFO task 0_0, KSTREAM-PROCESSOR-0000000001: saw 3"]


def test_a_dropped_record_keeps_nothing_that_its_function_loaded(tmp_path: Path) -> None:
    topology = TOPOLOGY.replace("value_serde: integer}", "value_serde: integer, on_error: continue}")
    task = task_of(write(tmp_path, topology.replace("Work", "loads"), MODULE))
    task.add(batch([(b"k", (1).to_bytes(4, "big"), 0)]))
    task.process(100)
    gc.collect()
    assert [each() for each in loaded(tmp_path)] == [None]
    assert "ValueError: loaded (user_code.py, line" in task.drops.view()[0].message


def loaded(folder: Path) -> list[weakref.ref[object]]:
    found = load_object(CallRef("user_code", "LOADED", str(folder)))
    assert isinstance(found, list)
    return found


def test_a_failure_names_the_frames_of_user_code(tmp_path: Path) -> None:
    with pytest.raises(ProcessingError) as caught:
        processed(tmp_path, 13)
    assert "ValueError: thirteen (user_code.py, line 17, in process; user_code.py, line 21, in checked)" in str(
        caught.value
    )
