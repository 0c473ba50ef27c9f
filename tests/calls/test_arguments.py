"""Arguments of calls: checked by the signature without running the module, and passed as their parameters take them."""

from __future__ import annotations

import pickle
from pathlib import Path

import pytest

from streamkit.errors import ProcessingError, StreamkitError, TopologyError
from streamkit.plan import load
from streamkit.runtime.driver import Driver
from tests.calls.support import write

MODULE = """
    from datetime import timedelta

    def scaled(key, value, by: float, *, more=0):
        return value * by + more

    class Within:
        def __init__(self, within: timedelta, names: list = (), note: str | None = None):
            self.within, self.names, self.note = within, names, note

        def process(self, record):
            return record.replace(value=[self.within.total_seconds(), list(self.names), self.note])

    def recorded(record, context, mark):
        return record.replace(value=[context.offset, mark])

    def anything(key, value, **arguments):
        return arguments

    def one(key):
        return key

    class Marked:
        def __init__(self, mark: str):
            self.mark = mark

        def encode(self, value):
            return f"{self.mark}{value}".encode()

        def decode(self, data):
            return data.decode()[1:]

    SEEN = []

    def see(key, value, mark):
        SEEN.append((value, mark))

    class Kept:
        def __init__(self, by: int):
            self.by = by

        def init(self, context):
            self.store = context.store("kept")

        def process(self, record):
            self.store.put(record.key, record.value * self.by)
"""
HEAD = """\
streamkit: 1
application: app
topics:
  in: {value: integer}
  out: {value: json}
  numbers: {value: integer}
  marked: {value: {call: "user_code:Marked", with: {mark: "!"}}}
functions:
  thrice: {call: "user_code:scaled", with: {by: 3, more: 1}}
stores: {kept: {type: key_value, value: integer}}
pipelines:
"""


def results(folder: Path, step: str) -> list[object]:
    file = write(folder, f"{HEAD}  p: {{stream: in, steps: [{step}], to: out}}\n", MODULE)
    with Driver(load(file)) as driver:
        return [record["value"] for record in driver.pipe({"topic": "in", "key": "k", "value": 2})]


@pytest.mark.parametrize(
    ("step", "expected"),
    [
        ('map_values: {call: "user_code:scaled", with: {by: 2.5}}', 5.0),
        ('map_values: {value: {call: "user_code:scaled", with: {by: 2, more: 4}}, name: n}', 8),
        ('map_values: "thrice(key, value)"', 7),
        ('map_values: {call: "user_code:anything", with: {a: [1, {b: null}]}}', {"a": [1, {"b": None}]}),
        ('process: {call: "user_code:Within", with: {within: 90s}, value_serde: json}', [90.0, [], None]),
        (
            'process: {call: "user_code:Within", with: {within: 1m, names: [a], note: x}, value_serde: json}',
            [60.0, ["a"], "x"],
        ),
        ('process_values: {call: "user_code:recorded", with: {mark: m}, value_serde: json}', [0, "m"]),
    ],
)
def test_arguments_reach_the_callable(step: str, expected: object, tmp_path: Path) -> None:
    assert results(tmp_path, "{" + step + "}") == [expected]


def test_a_serde_a_store_of_a_topic_and_for_each_take_arguments(tmp_path: Path) -> None:
    rest = """\
  p: {stream: in, steps: [{map_values: {value: str(value), value_serde: string}}], to: marked}
  q: {from: p, for_each: {call: "user_code:see", with: {mark: 5}}}
  r: {read_only_store: numbers, store: kept, process: {call: "user_code:Kept", with: {by: 2}}}
"""
    plan = load(write(tmp_path, HEAD + rest, MODULE))
    with Driver(pickle.loads(pickle.dumps(plan))) as driver:
        assert [record["topic"] for record in driver.pipe({"topic": "in", "key": "k", "value": 2})] == ["marked"]
        driver.pipe({"topic": "numbers", "key": "k", "value": 4})
        assert driver.stores()["kept"] == [["k", 8]]


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (
            'process: {call: "user_code:Within"}',
            ":12:44: 'call' of 'process': Within needs 'within'; write with: {within:",
        ),
        ('process: {call: "user_code:Within", with: {withn: 1s, within: 1s}}', ":71: "),
        (
            'process: {call: "user_code:Within", with: {withn: 1s, within: 1s}}',
            "Within has no argument 'withn'; did you mean 'within'?",
        ),
        (
            'process: {call: "user_code:Within", with: {within: soon}}',
            "'within' of Within must be a duration such as 100ms, 30s, 5m, 1h, 7d, PT5M or an integer of milliseconds, "
            "not 'soon'",
        ),
        ('process: {call: "user_code:Within", with: {within: 1s, names: a}}', "must be a list, not 'a'"),
        ('map_values: {call: "user_code:scaled", with: {by: true}}', "'by' of scaled must be a number, not True"),
        ('map_values: {call: "user_code:scaled", with: {key: 1, by: 1}}', "'key' of scaled is passed by the step"),
        ('map_values: {call: "user_code:one"}', "one takes key, but gets 2 arguments: key, value"),
        ('map_values: {call: "user_code:scalde"}', "module 'user_code' has no 'scalde'; did you mean 'scaled'?"),
        ("map_values: {value: thrice(key), with: {by: 3}}", "needs 'call': it has the arguments of a callable"),
        ('peek: {call: "user_code:one", with: {a: 1}}', "one has no argument 'a'; it takes none"),
        ('process_values: {call: "user_code:Kept"}', "Kept needs 'by'; write with: {by: …}"),
        ('process: {call: "user_code:Within", with: 5}', "'with' must be a mapping, not the number 5"),
    ],
)
def test_mistakes_have_positions_and_run_nothing(step: str, message: str, tmp_path: Path) -> None:
    text = f"{HEAD}  p: {{stream: in, steps: [{{{step}}}], to: out}}\n"
    file = write(tmp_path, text, MODULE + "\n    raise SystemExit('the module runs')\n")
    # The serde of the head makes its object at once, so it is left out here.
    file.write_text(file.read_text().replace('  marked: {value: {call: "user_code:Marked", with: {mark: "!"}}}\n', ""))
    with pytest.raises(TopologyError) as caught:
        load(file)
    assert message.replace(":12:", ":11:") in str(caught.value)


def test_a_module_elsewhere_is_checked_when_the_application_starts(tmp_path: Path) -> None:
    step = "{map_values: {call: 'base64:b64encode', with: {altchar: x}}}"
    file = write(tmp_path, f"{HEAD}  p: {{stream: in, steps: [{step}], to: out}}\n", MODULE)
    plan = load(file)
    with pytest.raises(
        (TopologyError, ProcessingError, StreamkitError), match="has no argument 'altchar'; did you mean"
    ):
        Driver(plan)


@pytest.mark.parametrize("folder", ["one", "two"])
def test_equal_calls_with_other_arguments_do_not_mix(folder: str, tmp_path: Path) -> None:
    steps = ", ".join(
        f'{{map_values: {{call: "user_code:scaled", with: {{by: {by}}}, value_serde: json}}}}' for by in (2, 3)
    )
    assert results(tmp_path, steps) == [12]
