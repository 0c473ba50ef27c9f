"""Functions over batches give what they give record by record, however long the runs are."""

from __future__ import annotations

import logging
from pathlib import Path
from typing import Any

import pytest

from streamkit.errors import ProcessingError, TopologyError
from streamkit.operators.kernels.batch_calls import maker, results_of
from streamkit.plan import load
from streamkit.runtime.execution.task import Task
from tests.calls.support import batch, outcome, task_of, write

MODULE = """
    import os
    from streamkit.record import Record

    SIZES = []

    def scaled(keys, values, *, by=10):
        SIZES.append(len(values))
        return [value * by for value in values]

    def small(keys, values):
        return [value % 3 != 0 for value in values]

    def large(keys, values):
        return [value > 90 for value in values]

    def parts(keys, values):
        return [range(value % 4) for value in values]

    def odd_fails(keys, values):
        return [ValueError(f"odd {value}") if value % 2 else value for value in values]

    async def asynchronous(keys, values):
        return values

    def raises(keys, values):
        raise RuntimeError("no model")

    class Ticks:
        def init(self, context):
            self.context = context
            context.schedule(10, "stream_time", self.tick)

        def process(self, record):
            return record

        def tick(self, time):
            self.context.forward(Record("timer", time, time))
            raise ValueError("after forward")

    def few(keys, values):
        return values[1:]

    def words(keys, values):
        return 5

    def doubled(keys, columns):
        return {"a": columns["a"] * 2, "b": columns["b"]}

    def plain(keys, column):
        return column + 1

    def rows(keys, table):
        import pyarrow.compute
        return pyarrow.compute.multiply(table["a"], 3)

    class Total:
        def __init__(self, start: int):
            self.total = start

        def __call__(self, keys, values):
            found = []
            for value in values:
                self.total += value
                found.append(self.total)
            return found

    class Latest:
        def init(self, context):
            self.context, self.store = context, context.store("kept")
            context.schedule(5, "stream_time", lambda time: Record("timer", time, time))

        def process(self, records):
            found = []
            for record in records:
                before = self.store.get(record.key) or 0
                self.store.put(record.key, before + record.value)
                found.append(record.replace(value=before))
            return found

    def other_key(records):
        return [record.replace(key="other") for record in records]

    def forwards(records, context):
        context.forward(records[0])

    class Position:
        def init(self, context):
            self.context = context

        def process(self, record):
            context = self.context
            return record.replace(value=[context.topic, context.offset, context.stream_time, context.timestamp, record.value])
"""

HEAD = """\
streamkit: 1
application: app
config: {statestore.cache.max.bytes: 0, CONFIG}
topics:
  in: {value: integer}
  out: {value: json}
  beside: {value: json}
  lost: {key: bytes, value: bytes}
stores: {kept: {type: key_value, value: integer, logging: false}}
pipelines:
"""

TOPOLOGIES = {
    "a chain": """
  p:
    stream: in
    steps:
      - map_values: {call: "user_code:scaled", batch: 4, value_serde: integer}
      - filter: {call: "user_code:small", batch: 3}
      - filter_not: {call: "user_code:large", batch: 100}
      - flat_map_values: {call: "user_code:parts", batch: 7, value_serde: integer}
    to: out
""",
    "arguments and a class": """
  p:
    stream: in
    steps:
      - map_values: {call: "user_code:scaled", batch: 4, with: {by: 3}, value_serde: integer}
      - map_values: {call: "user_code:Total", batch: 4, with: {start: 100}, value_serde: integer}
    to: out
""",
    "windows below": """
  p:
    stream: in
    steps:
      - map_values: {call: "user_code:scaled", batch: 5, value_serde: integer}
      - group_by_key
      - window: {tumbling: 4ms, grace: 1ms}
      - count
      - to_stream: {key: key.key}
    to: out
""",
    "a position below": """
  p:
    stream: in
    steps:
      - process_values: {call: "user_code:Position", value_serde: json}
      - map_values: {value: "value[4]", value_serde: integer}
      - map_values: {call: "user_code:scaled", batch: 6, value_serde: integer}
      - process_values: {call: "user_code:Position", value_serde: json}
    to: out
""",
    "a processor with a store and a timer": """
  p:
    stream: in
    steps:
      - process_values: {call: "user_code:Latest", batch: 6, stores: [kept], value_serde: json}
    to: out
""",
    "a sibling": """
  p: {stream: in}
  q:
    from: p
    steps: [{map_values: {call: "user_code:scaled", batch: 4, value_serde: json}}]
    to: out
  r: {from: p, to: beside}
""",
    "a merge below": """
  p: {stream: in}
  q: {from: p, steps: [{map_values: {call: "user_code:scaled", batch: 4, value_serde: integer}}]}
  r: {from: p, steps: [{merge: q}], to: out}
""",
    "the same topic beside": """
  p: {stream: in, to: out}
  q: {from: p, steps: [{map_values: {call: "user_code:scaled", batch: 4, value_serde: json}}], to: out}
""",
    "a topic by an expression": """
  p: {stream: in, to: out}
  q: {from: p, steps: [{map_values: {call: "user_code:scaled", batch: 4, value_serde: json}}], to: {route: "'out'"}}
""",
    "a store beside": """
  p:
    stream: in
    steps: [{process_values: {call: "user_code:Latest", batch: 6, stores: [kept], value_serde: integer}}]
    to: out
  q:
    from: p
    steps: [{process_values: {call: "user_code:Latest", stores: [kept], batch: 2, value_serde: integer}}]
    to: beside
""",
    "failures go on": """
  p:
    stream: in
    steps:
      - map_values: {call: "user_code:odd_fails", batch: 5, value_serde: json, on_error: {dead_letter: lost}}
    to: out
""",
    "sinks that refuse": """
  p:
    stream: in
    steps:
      - map_values: {call: "user_code:scaled", batch: 5, value_serde: json, on_error: continue}
    to: {topic: out, partition: "-1 if value > 50 else 0"}
""",
    "several caches above": """
  p:
    stream: in
    steps:
      - group_by_key
      - count
      - to_stream
      - map_values: {call: "user_code:scaled", batch: 5, value_serde: integer}
      - group_by_key
      - reduce: aggregate + value
      - to_stream
    to: out
""",
}
RECORDS = [(f"k{n % 3}".encode(), (n * 7 % 11).to_bytes(4, "big"), n + (5 if n % 5 == 0 else 0)) for n in range(40)]


@pytest.mark.parametrize("name", TOPOLOGIES)
def test_runs_of_any_length_give_the_same(name: str, tmp_path: Path) -> None:
    file = write(tmp_path, HEAD.replace("CONFIG", "client.id: a") + TOPOLOGIES[name], MODULE)
    expected = outcome(file, RECORDS, 1)
    assert sum(map(len, expected.values())) > 10
    for length in (3, 40):
        assert outcome(file, RECORDS, length) == expected


def test_caches_are_flushed_in_order(tmp_path: Path) -> None:
    head = HEAD.replace("statestore.cache.max.bytes: 0", "statestore.cache.max.bytes: 100000").replace(", CONFIG", "")
    file = write(tmp_path, head + TOPOLOGIES["several caches above"], MODULE)
    assert outcome(file, RECORDS, 1) == outcome(file, RECORDS, 40)


def sizes(file: Path) -> list[int]:
    outcome(file, RECORDS, 40)
    from streamkit.expressions import load_object
    from streamkit.operators.core.parsed_values import CallRef

    found = load_object(CallRef("user_code", "SIZES", str(file.parent)))
    assert isinstance(found, list)
    return found


def test_batches_are_full_until_the_run_ends(tmp_path: Path) -> None:
    file = write(tmp_path, HEAD.replace("CONFIG", "client.id: a") + TOPOLOGIES["windows below"], MODULE)
    assert sizes(file) == [5] * 8


@pytest.mark.parametrize("name", ["a merge below", "the same topic beside", "a topic by an expression"])
def test_order_that_would_depend_on_batches_gives_batches_of_one(
    name: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    file = write(tmp_path, HEAD.replace("CONFIG", "client.id: a") + TOPOLOGIES[name], MODULE)
    with caplog.at_level(logging.INFO, "streamkit.operators"):
        assert sizes(file) == [1] * 40
    (line,) = [each.getMessage() for each in caplog.records if "one record at a time" in each.getMessage()]
    assert "step map_values: one record at a time, since steps elsewhere write to a topic" in line


def one_step(folder: Path, step: str, config: str = "client.id: a") -> Path:
    return write(
        folder,
        HEAD.replace("CONFIG", config) + f"  p:\n    stream: in\n    steps:\n      - {step}\n    to: out\n",
        MODULE,
    )


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ('map_values: {call: "user_code:odd_fails", batch: 5}', "offset 2: odd 3 (key k2, value 3)"),
        ('map_values: {call: "user_code:asynchronous", batch: 5}', "offset 0: a function over batches can't be async"),
        ('map_values: {call: "user_code:raises", batch: 5}', "offset 0: RuntimeError: no model (user_code.py, line"),
        (
            'filter: {call: "user_code:few", batch: 5}',
            "offset 0: few returned 4 results for 5 records; expected one for each, in their order",
        ),
        (
            'flat_map_values: {call: "user_code:words", batch: 5}',
            "offset 0: a function over batches returns a list or columns, not int",
        ),
        (
            'process_values: {call: "user_code:other_key", batch: 5}',
            "offset 0: process_values may not change the key; use process",
        ),
        (
            'process_values: {call: "user_code:forwards", batch: 5}',
            "offset 0: process_values with batch forwards what the function returns for each record",
        ),
    ],
)
def test_failures_name_the_record_and_the_step(step: str, message: str, tmp_path: Path) -> None:
    task = task_of(one_step(tmp_path, step))
    task.add(batch([(f"k{n}".encode(), (n * 2 if n < 2 else n + 1).to_bytes(4, "big"), n) for n in range(5)]))
    with pytest.raises(ProcessingError) as caught:
        task.process(100)
    assert message in str(caught.value)
    assert f"pipeline p, step {step.partition(':')[0]}: topic in, partition 0," in str(caught.value)


def test_all_records_of_a_batch_that_fails_are_dropped_and_counted(tmp_path: Path) -> None:
    config = "processing.exception.handler: continue"
    task = task_of(one_step(tmp_path, 'map_values: {call: "user_code:few", batch: 5, value_serde: json}', config))
    task.add(batch(RECORDS[:12]))
    assert task.process(100) == 12
    assert (task.output, task.dropped_total) == ([], 12)


def ticking(folder: Path) -> Task:
    """Return a task whose timer forwards to a step that holds records back, and fails afterwards."""
    steps = "{process: user_code:Ticks}\n      - map_values: {call: user_code:scaled, batch: 100, value_serde: json}"
    return task_of(one_step(folder, steps, "processing.exception.handler: continue"))


def test_records_that_a_timer_forwarded_continue_although_it_fails(tmp_path: Path) -> None:
    task = ticking(tmp_path)
    task.add(batch([(b"k", bytes(4), 5), (b"k", bytes(4), 25)]))
    while task.has_records():
        task.process(100)
    task.punctuate_stream_time()
    assert [row[1] for row in task.output].count(b"timer") == task.dropped_total > 0
    task.close()


def test_a_commit_of_a_task_without_stores_forwards_what_is_held(tmp_path: Path) -> None:
    task = task_of(one_step(tmp_path, "map_values: {call: user_code:scaled, batch: 100, value_serde: json}"))
    replays = task._bound.replays
    assert replays is not None
    assert not task.stores
    replays._steps[0].add("k", 1, 5, (None, "in", 0, 5))
    task.flush_stores()
    assert [row[1] for row in task.output] == [b"k"]
    task.close()


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ("{call: 'user_code:doubled', batch: 9, as: numpy}", [{"a": 2, "b": "x"}, {"a": 4, "b": "y"}]),
        ("{call: 'user_code:doubled', batch: 9, as: pandas}", [{"a": 2, "b": "x"}, {"a": 4, "b": "y"}]),
        ("{call: 'user_code:rows', batch: 9, as: arrow}", [3, 6]),
    ],
)
def test_values_come_as_columns(step: str, expected: list[object], tmp_path: Path) -> None:
    pytest.importorskip(step.rpartition("as: ")[2].rstrip("}").replace("arrow", "pyarrow"))
    head = HEAD.replace("CONFIG", "client.id: a").replace("in: {value: integer}", "in: {value: json}")
    file = write(tmp_path, f"{head}  p: {{stream: in, steps: [{{map_values: {step}}}], to: out}}\n", MODULE)
    import json

    rows = outcome(file, [(b"k", b'{"a": 1, "b": "x"}', 0), (b"k", b'{"b": "y", "a": 2}', 0)], 2)["out"]
    assert [json.loads(row[2]) for row in rows] == expected


BIG = 2**60 + 1


@pytest.mark.parametrize(
    ("form", "values"),
    [
        ("numpy", [BIG, None]),
        ("numpy", [{"id": BIG}, {"id": 2.5}]),
        ("numpy", [2**63, -1]),
        ("numpy", [1, "a"]),
        ("numpy", [{"id": True}, {"id": 2}]),
        ("numpy", ["a\0", "b"]),
        ("numpy", [b"a\0", b"b"]),
        ("pandas", [BIG, None]),
        ("pandas", [{"id": BIG}, {"id": None}]),
    ],
)
def test_no_record_of_a_batch_changes_the_value_of_another(form: str, values: list[Any]) -> None:
    """Columns of one type have doubles for numbers, and text for all where one is text."""
    pytest.importorskip(form)
    found = results_of(maker(form)(values))
    assert [repr(value) for value in found] == [repr(value) for value in values]


def test_plain_values_are_one_column(tmp_path: Path) -> None:
    pytest.importorskip("numpy")
    file = one_step(tmp_path, 'map_values: {call: "user_code:plain", batch: 9, as: numpy}')
    assert [row[2] for row in outcome(file, RECORDS[:3], 3)["out"]] == [b"1", b"8", b"4"]


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ('map_values: {call: "user_code:scaled", batch: 0}', ":14:55: 'batch' of 'value' of 'map_values' must be"),
        ('map_values: {call: "user_code:scaled", as: numpy}', ":14:21: 'value' of 'map_values' needs 'batch'"),
        (
            'map_values: {call: "user_code:scaled", batch: 5, as: polars}',
            "must be arrow, pandas or numpy, not 'polars'",
        ),
        ('map_values: {call: "user_code:scaled", value: 5}', "takes either 'value' or 'call'"),
        ('process_values: {call: "user_code:other_key", as: numpy}', "`as` needs `batch`"),
        ("map_values: {batch: 5}", "The step 'map_values' needs 'value'"),
        ('map: {value: {call: "user_code:scaled", batch: 5}}', "has no key 'batch'; known are call, with"),
    ],
)
def test_mistakes(step: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(TopologyError) as caught:
        load(one_step(tmp_path, step))
    assert message in str(caught.value)


@pytest.mark.parametrize("step", ["map_values", "filter", "process_values"])
def test_batches_are_for_streams(step: str, tmp_path: Path) -> None:
    text = HEAD.replace("CONFIG", "client.id: a") + (
        f'  p: {{table: in, steps: [{{{step}: {{call: "user_code:scaled", batch: 5}}}}]}}\n'
    )
    with pytest.raises(TopologyError, match=f"{step}: `batch` is for streams; this step's upstream is a table"):
        load(write(tmp_path, text, MODULE))
