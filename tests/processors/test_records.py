"""Classes, functions and generators: what they are given, and what they forward."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamkit.errors import ProcessingError
from tests.processors.support import Running

ONE_STEP = """
pipelines:
  p:
    stream: in
    steps:
      - {step}: {{call: "user_code:{name}"}}
    to: out
"""


def one(folder: Path, module: str, name: str, step: str = "process", value: str = "string") -> Running:
    rest = ONE_STEP.format(step=step, name=name).replace('"}', '", value_serde: ' + value + "}")
    return Running(folder, module, rest, value)


def test_a_class_is_made_once_and_forwards(tmp_path: Path) -> None:
    module = """
        from pathlib import Path

        made = []

        class Upper:
            def __init__(self):
                made.append(self)

            def init(self, context):
                self.context = context

            def process(self, record):
                self.context.forward(record.replace(value=record.value.upper()))
                self.context.forward(record.replace(key="other", timestamp=record.timestamp + 1))

            def close(self):
                Path(__file__).with_name("closed").write_text(str(len(made)))
    """
    running = one(tmp_path, module, "Upper")
    assert running.send("k", "a", 5) == [("out", "k", "A", 5), ("out", "other", "a", 6)]
    assert running.send("k", "b", 3) == [("out", "k", "B", 3), ("out", "other", "b", 4)]
    running.driver.close()
    assert (tmp_path / "closed").read_text() == "1"


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        ("    for word in record.value.split():\n        yield record.replace(value=word)", ["to", "be"]),
        ("    return [record, record.replace(value='x')]", ["to be", "x"]),
        ("    return record", ["to be"]),
        ("    return None", []),
        ("    context.forward(record)", ["to be"]),
        ("    context.forward(record)\n    yield record.replace(value='after')", ["to be", "after"]),
    ],
)
@pytest.mark.parametrize("step", ["process", "process_values"])
def test_a_function_forwards_what_it_gives(tmp_path: Path, body: str, expected: list[str], step: str) -> None:
    running = one(tmp_path, f"def work(record, context):\n{body}\n", "work", step)
    assert running.send("k", "to be", 7) == [("out", "k", value, 7) for value in expected]


def test_a_function_may_do_without_the_context(tmp_path: Path) -> None:
    running = one(tmp_path, "def work(record):\n    yield record\n", "work")
    assert running.send(None, None) == [("out", None, None, 0)]


def test_a_class_whose_process_is_a_generator(tmp_path: Path) -> None:
    module = """
        class Twice:
            def process(self, record):
                yield record
                yield record
    """
    assert len(one(tmp_path, module, "Twice").send("k", "a")) == 2


def test_the_context_has_the_position_of_the_record(tmp_path: Path) -> None:
    module = """
        def work(record, context):
            facts = [context.task_id, context.application_id, context.topic, context.partition, context.offset,
                     context.stream_time, context.wall_clock, [list(h) for h in context.headers] == [["h", b"x"]],
                     record.headers == (("h", b"x"),)]
            yield record.replace(value=facts)
    """
    running = one(tmp_path, module, "work", value="json")
    running.advance(100)
    running.send("k", "a", 50)
    [found] = running.driver.pipe(
        {"topic": "in-topic", "key": "k", "value": "a", "timestamp": 20, "headers": [["h", "x"]]}
    )
    assert found["value"] == ["0_0", "app", "in-topic", 0, 1, 50, 100, True, True]
    assert found["headers"] == [["h", "x"]]


def test_headers_are_forwarded_as_the_record_has_them(tmp_path: Path) -> None:
    module = "def work(record):\n    yield record.replace(headers=record.headers + (('n', b'1'), ('e', None)))\n"
    running = one(tmp_path, module, "work")
    [found] = running.driver.pipe({"topic": "in-topic", "key": "k", "value": "a", "headers": [["h", "x"]]})
    assert found["headers"] == [["h", "x"], ["n", "1"], ["e", None]]


def test_records_cannot_be_changed(tmp_path: Path) -> None:
    running = one(tmp_path, "def work(record):\n    record.value = 1\n", "work")
    with pytest.raises(ProcessingError, match="cannot assign to field 'value'"):
        running.send("k", "a")


BRANCHED = """
pipelines:
  p:
    stream: in
    steps:
      - process: {call: "user_code:work", value_serde: string, name: work}
  left:
    from: p
    steps:
      - map_values: {value: '"left " + value', value_serde: string, name: left}
    to: out
  right:
    from: p
    steps:
      - map_values: {value: '"right " + value', value_serde: string, name: right}
    to: out
"""


def test_forwarding_to_one_child(tmp_path: Path) -> None:
    module = """
        def work(record, context):
            if record.value in ("left", "right"):
                context.forward(record, to=record.value)
            else:
                context.forward(record)
    """
    running = Running(tmp_path, module, BRANCHED)
    assert [row[2] for row in running.send("k", "right")] == ["right right"]
    assert [row[2] for row in running.send("k", "left")] == ["left left"]
    assert [row[2] for row in running.send("k", "x")] == ["left x", "right x"]


def test_forwarding_to_a_child_that_is_not_there(tmp_path: Path) -> None:
    running = Running(tmp_path, "def work(record, context):\n    context.forward(record, to='lef')\n", BRANCHED)
    with pytest.raises(ProcessingError, match=r"no child is called 'lef'; did you mean 'left'\?"):
        running.send("k", "a")


@pytest.mark.parametrize(
    ("body", "message"),
    [
        ("return 5", "a processor returns records or nothing, not int"),
        ("return 'text'", "a processor returns records or nothing, not str"),
        ("return {'key': 1}", "a processor returns records or nothing, not dict"),
        ("return ['text']", "forward takes a Record, not str"),
        ("context.forward('text')", "forward takes a Record, not str"),
        ("return record.replace(timestamp=-1)", "the timestamp of a record is -1; expected milliseconds since 1970"),
        ("return record.replace(timestamp=1.5)", "the timestamp of a record is 1.5; expected milliseconds"),
        ("return record.replace(timestamp=2**63)", f"the timestamp of a record is {2**63}; expected milliseconds"),
        ("return record.replace(headers=[('\\ud800', b'x')])", r"the header \('\\ud800', b'x'\) of a record is wrong"),
        ("return record.replace(headers=[('h', 'text')])", r"the header \('h', 'text'\).*expected \(name, bytes\)"),
        ("return record.replace(nothing=5)", "nothing"),
        ("context.store('seen')", "no store 'seen' is connected to this step; its stores: none"),
        ("context.schedule('1x', 'stream_time', print)", "schedule: the interval '1x' must be a duration such as"),
        ("context.schedule(0, 'stream_time', print)", "schedule: the interval 0 must be at least 1 ms"),
        ("context.schedule('1s', 'event_time', print)", "schedule takes stream_time or wall_clock, not 'event_time'"),
        ("context.schedule('1s', 'wall_clock', None)", "schedule takes a function to call back, not NoneType"),
        ("raise ValueError('no such luck')", "no such luck"),
        ("raise KeyError('field')", r"KeyError: 'field' \(user_code.py, line 2\)"),
    ],
)
def test_what_a_processor_does_wrong(tmp_path: Path, body: str, message: str) -> None:
    running = one(tmp_path, f"def work(record, context):\n    {body}\n", "work")
    with pytest.raises(ProcessingError, match=message) as caught:
        running.send("k", "a")
    text = str(caught.value)
    # The file's line, the step, and the record, in one line.
    assert "topology.yaml:14: pipeline p, " in text
    assert "topic in-topic, partition 0, offset 0" in text
    assert text.endswith(")")
    assert "\n" not in text


def test_a_value_that_the_sink_cannot_write(tmp_path: Path) -> None:
    running = one(tmp_path, "def work(record):\n    return record.replace(value=5)\n", "work")
    with pytest.raises(
        ProcessingError, match=r"topology.yaml:15: pipeline p, step to: .*: serde string takes text"
    ) as caught:
        running.send("k", "a")
    assert str(caught.value).endswith(": serde string takes text, not a whole number (key k, value 5)")


def test_process_values_may_not_change_the_key(tmp_path: Path) -> None:
    running = one(tmp_path, "def work(record):\n    yield record.replace(key='x')\n", "work", "process_values")
    with pytest.raises(ProcessingError, match="process_values may not change the key; use process"):
        running.send("k", "a")


def test_process_values_may_not_put_in_an_equal_key_of_another_type(tmp_path: Path) -> None:
    module = "def work(record):\n    yield record.replace(key=True)\n"
    rest = """
        pipelines:
          p:
            stream: in
            steps:
              - map: {key: "1 if value else key", key_serde: json}
              - process_values: {call: "user_code:work", value_serde: string}
            to: out
    """
    running = Running(tmp_path, module, rest)
    with pytest.raises(ProcessingError, match="may not change the key"):
        running.send("k", "a")


def test_process_below_process_repartitions_and_process_values_does_not(tmp_path: Path) -> None:
    rest = """
        pipelines:
          p:
            stream: in
            steps:
              - {step}: {{call: "user_code:work", value_serde: string}}
              - group_by_key
              - count
              - to_stream
            to: out
    """
    module = "def work(record):\n    yield record\n"
    changed = Running(tmp_path, module, rest.format(step="process"), "long")
    kept = Running(tmp_path, module, rest.format(step="process_values"), "long")
    assert changed.driver.plan.internal_topics.keys() - kept.driver.plan.internal_topics.keys()
    assert changed.send("k", "a") == kept.send("k", "a") == [("out", "k", 1, 0)]


@pytest.mark.parametrize(
    ("module", "message"),
    [
        (
            "class Base:\n    def __init__(self, x):\n        pass\nclass Work(Base):\n    def process(self, record):\n        pass\n",
            "the processor can't start: TypeError",
        ),
        (
            "class Work:\n    def init(self, context):\n        1 / 0\n    def process(self, record):\n        pass\n",
            "Zero",
        ),
        ("class Work:\n    pass\n", "class Work has no method process"),
        (
            "class Work:\n    def init(self, context):\n        context.store('x')\n    def process(self, r):\n        pass\n",
            "no store 'x' is connected to this step",
        ),
    ],
)
def test_a_processor_that_cannot_start(tmp_path: Path, module: str, message: str) -> None:
    with pytest.raises(ProcessingError, match=message) as caught:
        one(tmp_path, module, "Work")
    assert "pipeline p, step process" in str(caught.value)
    assert "topology.yaml:14" in str(caught.value)
