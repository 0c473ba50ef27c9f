"""`process_values` on tables: its context, timers and mistakes; values are compared with Java in tests/conformance."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

from streamkit.errors import ProcessingError, StreamkitError, TopologyError
from tests.processors.support import Running

REST = """\
stores:
  seen: {{type: key_value, value: long}}
pipelines:
  p:
    table: in
    steps:
      - process_values: {{{options}, value_serde: string}}
      - to_stream
    to: out
"""


def running(folder: Path, module: str, options: str = 'call: "user_code:f"') -> Running:
    return Running(folder, module, REST.format(options=options))


def test_a_function_takes_key_and_value(tmp_path):
    run = running(tmp_path, "def f(key, value): return None if value is None else key + value")
    assert run.send("a", "1", 5) == [("out", "a", "a1", 5)]
    assert run.send("a", None, 6) == [("out", "a", None, 6)]


def test_a_class_is_made_once_with_a_context_and_closed(tmp_path):
    module = """
        class f:
            made = []
            def init(self, context):
                self.made.append("init")
                self.context = context
            def transform(self, key, value):
                return f"{len(self.made)} {self.context.topic} {self.context.timestamp} {self.context.stream_time}"
            def close(self):
                with open(__file__ + ".closed", "w") as file:
                    file.write(repr(self.made))
    """
    run = running(tmp_path, module)
    assert run.send("a", "1", 5) == [("out", "a", "1 in-topic 5 5", 5)]
    assert run.send("a", "1", 3) == [("out", "a", "1 in-topic 3 5", 3)]
    run.driver.close()
    assert (tmp_path / "user_code.py.closed").read_text() == "['init']"


def test_timers_use_stores_and_give_no_records(tmp_path):
    module = """
        class f:
            def init(self, context):
                self.seen = context.store("seen")
                context.schedule("10s", "wall_clock", self.forget)
            def transform(self, key, value):
                return str(self.seen.put_if_absent(key, 1))
            def forget(self, now):
                self.seen.delete("a")
    """
    run = running(tmp_path, module, 'call: "user_code:f", stores: seen')
    assert [run.send("a", "1", time)[0][2] for time in (1, 2)] == ["None", "1"]
    assert run.advance(10_000) == []
    assert run.send("a", "1", 3)[0][2] == "None"


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (
            "from streamkit.record import Record\ndef f(key, value, context): context.forward(Record(key, value, 0))",
            "process_values of a table can't forward records; what it returns is the row's new value",
        ),
        (
            "from streamkit.record import Record\ndef f(key, value): return Record(key, value, 0)",
            "process_values of a table returns the row's new value, not a record",
        ),
    ],
)
def test_a_table_gives_values_only(tmp_path, module, message):
    with pytest.raises(ProcessingError, match=re.escape(message)):
        running(tmp_path, module).send("a", "1")


def test_a_class_needs_transform(tmp_path):
    module = "class f:\n    def process(self, record): return record"
    with pytest.raises(StreamkitError, match=r"class f has no method transform\(self, key, value\)"):
        running(tmp_path, module).send("a", "1")


def test_what_a_join_computes_cannot_use_stores(tmp_path):
    rest = """\
        stores:
          seen: {type: key_value, value: long}
        pipelines:
          counted:
            table: in
            steps:
              - process_values: {call: "user_code:f", stores: [seen]}
          p:
            stream: more
            steps:
              - join: {with: counted, value: left}
            to: out
    """
    with pytest.raises(TopologyError, match="give the result a `store`") as caught:
        Running(tmp_path, "def f(key, value): return value", rest)
    (problem,) = caught.value.problems
    assert (problem.position.line, problem.position.column) == (15, 55)


def test_a_stream_has_no_store(tmp_path):
    rest = """\
        pipelines:
          p:
            stream: in
            steps:
              - process_values: {call: "user_code:f", store: s}
            to: out
    """
    with pytest.raises(TopologyError, match="process_values: `store` is for tables; this step's upstream is a stream"):
        Running(tmp_path, "def f(record): return record", rest)


def test_a_callable_joins_the_values_of_a_foreign_key(tmp_path):
    rest = """
        pipelines:
          p:
            table: in
            steps:
              - join: {with: {table: more}, on: value, value: {call: "user_code:f"}, value_serde: string}
              - to_stream
            to: out
    """
    run = Running(tmp_path, "def f(left, right): return left + right", rest)
    run.send("a", "x", 5)
    assert run.send("x", "1", 6, topic="more") == [("out", "a", "x1", 6)]
