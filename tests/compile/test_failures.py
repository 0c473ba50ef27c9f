"""What failing steps do: the message, and what goes on under `continue` and with dead letters."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from streamkit.errors import DeserializationError, ProcessingError
from streamkit.runtime.driver import Driver
from tests.cli.support import streamkit
from tests.compile.support import FIRST_LINE, driver_of, dropped, record

STEP = "p:\n  stream: in\n  steps:\n    - %s\n  to: %s"
CONTINUE = "processing.exception.handler: continue"

# step, topic, value, line below the head, step named, reason, key and value shown
MESSAGES: dict[str, tuple[str, str, Any, int, str, str, str]] = {
    "missing field": (
        "filter: value.amount > 3", "out", {"a": 1}, 4, "filter", "field 'amount' is missing", "key k, value {'a': 1}",
    ),
    "field of null": (
        "filter: value.amount > 3", "out", None, 4, "filter", "field 'amount' is read from an absent value (null)",
        "key k, value null",
    ),
    "field of text": (
        "map_values: value.amount", "out", "x", 4, "map_values", "field 'amount' is read from text", "key k, value 'x'",
    ),
    "field of a number": (
        "map_values: value.a.b", "out", {"a": 1}, 4, "map_values", "field 'b' is read from a whole number",
        "key k, value {'a': 1}",
    ),
    "comparison": (
        "filter: value.a > 3", "out", {"a": "x"}, 4, "filter", "text > a whole number can't be compared",
        "key k, value {'a': 'x'}",
    ),
    "calculation": (
        "map_values: value.a - 1", "out", {"a": "x"}, 4, "map_values", "text - a whole number can't be calculated",
        "key k, value {'a': 'x'}",
    ),
    "addition": (
        "map_values: value.a + 1", "out", {"a": "x"}, 4, "map_values", "text + a whole number can't be calculated",
        "key k, value {'a': 'x'}",
    ),
    "division": ("map_values: 1 / value", "out", 0, 4, "map_values", "division by zero", "key k, value 0"),
    "conversion": ("map_values: int(value)", "out", "7x", 4, "map_values", "'7x' is no whole number", "key k, value '7x'"),
    "method of null": (
        "map_values: value.lower()", "out", None, 4, "map_values", "an absent value (null) has no method lower",
        "key k, value null",
    ),
    "no pairs": (
        "flat_map: {records: '[1]'}", "out", 1, 4, "flat_map", "a pair is expected, found a whole number", "key k, value 1",
    ),
    "no list": (
        "flat_map_values: value", "out", 1, 4, "flat_map_values", "a list is expected, found a whole number",
        "key k, value 1",
    ),
    "wrong key at the sink": (
        "select_key: value.a", "out", {"a": 1}, 5, "to", "serde string takes text, not a whole number",
        "key 1, value {'a': 1}",
    ),
    "wrong value at the sink": (
        "map_values: value", "longs", "x", 5, "to", "serde long takes a whole number, not text: 'x'", "key k, value 'x'",
    ),
    "header": (
        "set_headers: {headers: {h: value.a}}", "out", {"a": 1}, 4, "set_headers",
        "header h must be text, bytes or null, not int", "key k, value {'a': 1}",
    ),
    "bounds": (
        "map_values: '\"x\" * value'", "out", 10**9, 4, "map_values",
        "the result of '*' has 1000000000 bytes; at most 10485760 are allowed", "key k, value 1000000000",
    ),
    "branch": (
        "branch: {when: {x: value.a, y: value.b}}", "", {"b": 1}, 4, "branch", "field 'a' is missing",
        "key k, value {'b': 1}",
    ),
}  # fmt: skip


def topology(step: str, to: str) -> str:
    return STEP % (step, to) if to else (STEP % (step, "")).removesuffix("\n  to: ")


@pytest.mark.parametrize("case", MESSAGES)
def test_the_message_of_a_failure(tmp_path: Path, case: str) -> None:
    step, to, value, line, name, reason, shown = MESSAGES[case]
    driver = driver_of(tmp_path, topology(step, to))
    with pytest.raises(ProcessingError) as caught:
        driver.pipe(record(value))
    assert str(caught.value) == (
        f"{tmp_path}/topology.yaml:{FIRST_LINE + line - 1}: pipeline p, step {name}: "
        f"topic in, partition 0, offset 0: {reason} ({shown})"
    )


@pytest.mark.parametrize("case", MESSAGES)
def test_continue_drops_the_record_and_counts_it(tmp_path: Path, case: str) -> None:
    step, to, value, *_ = MESSAGES[case]
    driver = driver_of(tmp_path, topology(step, to), CONTINUE)
    assert driver.pipe(record(value)) == []
    assert dropped(driver) == 1


def test_stderr_of_the_command_is_that_one_line(tmp_path: Path) -> None:
    driver_of(tmp_path, STEP % ("filter: value.amount > 3", "out"))
    (tmp_path / "in.jsonl").write_text(json.dumps(record({"a": 1})) + "\n", encoding="utf-8")
    done = streamkit("try", "topology.yaml", "--input", "in.jsonl", cwd=tmp_path)
    assert (done.code, done.out) == (1, "")
    assert done.err.count("\n") == 1
    assert (
        f"topology.yaml:{FIRST_LINE + 3}: pipeline p, step filter: topic in, partition 0, offset 0: "
        "field 'amount' is missing (key k, value {'a': 1})" in done.err
    )


STATEFUL = {
    "aggregate": (
        "group_by_key\n    - aggregate: {initial: '0', add: aggregate + value.x, value_serde: long}",
        [record({"y": 1})],
        "step aggregate: topic in, partition 0, offset 0: field 'x' is missing",
    ),
    "wrong type in a store": (
        "group_by_key\n    - aggregate: {initial: '0', add: aggregate + value.x, value_serde: long}",
        [record({"x": 1.5})],
        "step aggregate: topic in, partition 0, offset 0: serde long takes a whole number, not a number: 1.5",
    ),
    "reduce": (
        "group_by_key\n    - reduce: aggregate + value",
        [record(1), record("x")],
        "step reduce: topic in, partition 0, offset 1: a whole number + text can't be calculated",
    ),
    "windowed": (
        "group_by_key\n    - window: {tumbling: 1s}\n    - aggregate: {initial: '0', add: aggregate + value.x}",
        [record({})],
        "step aggregate: topic in, partition 0, offset 0: field 'x' is missing",
    ),
    "session merge": (
        "group_by_key\n    - window: {session: 1s}\n    - aggregate: {initial: '0', add: aggregate + value, merge: left.x}",
        [record(1), record(2)],
        "step aggregate: topic in, partition 0, offset 1: field 'x' is read from a whole number",
    ),
    "join": (
        "join: {with: {table: n}, value: left.a + right}",
        [record(3, topic="n"), record({"a": "x"})],
        "step join: topic in, partition 0, offset 0: text + a whole number can't be calculated",
    ),
    "stream join": (
        "join: {with: {stream: n}, value: left.a + right, within: 1s}",
        [record({"a": "x"}), record(3, topic="n")],
        "step join: topic n, partition 0, offset 0: text + a whole number can't be calculated",
    ),
    "foreign key": (
        "to_table\n    - join: {with: {table: n}, on: value.f, value: right}",
        [record({"g": 1})],
        "step join: topic in, partition 0, offset 0: field 'f' is missing",
    ),
    "suppress": (
        "to_table\n    - suppress: {until: 10s, max_records: 1, when_full: shut_down}",
        [record(1, "a"), record(2, "b")],
        "step suppress: topic in, partition 0, offset 1: KTABLE-SUPPRESS-",
    ),
}


@pytest.mark.parametrize("case", STATEFUL)
def test_stateful_steps_name_themselves(tmp_path: Path, case: str) -> None:
    steps, records, message = STATEFUL[case]
    driver = driver_of(tmp_path, f"p:\n  stream: in\n  steps:\n    - {steps}")
    for each in records[:-1]:
        driver.pipe(each)
    with pytest.raises(ProcessingError) as caught:
        driver.pipe(records[-1])
    assert f"pipeline p, {message}" in str(caught.value)
    assert "(key k" in str(caught.value) or case == "suppress"
    assert "\n" not in str(caught.value)


def values(found: list[dict]) -> list[tuple]:
    return [(each["topic"], each["value"]) for each in found]


FORKED = """
p: {stream: in}
q: {from: p, steps: [{map_values: 10 / value}], to: out}
r: {from: p, steps: [{map_values: value + 1}], to: other}
"""


def test_siblings_of_a_failing_step_go_on(tmp_path: Path) -> None:
    driver = driver_of(tmp_path, FORKED, CONTINUE)
    assert values(driver.pipe(record(0))) == [("other", 1)]
    assert values(driver.pipe(record(5))) == [("out", 2.0), ("other", 6)]
    assert dropped(driver) == 1


@pytest.mark.parametrize("step", ["flat_map_values: value", "flat_map: {records: '[(key, each) for each in value]'}"])
def test_the_next_items_go_on(tmp_path: Path, step: str) -> None:
    driver = driver_of(
        tmp_path, f"p: {{stream: in, steps: [{{{step}}}, {{map_values: 10 / value}}], to: out}}", CONTINUE
    )
    assert values(driver.pipe(record([5, 0, 10]))) == [("out", 2.0), ("out", 1.0)]
    assert dropped(driver) == 1


def test_a_failing_step_drops_what_is_below_it_only(tmp_path: Path) -> None:
    driver = driver_of(
        tmp_path,
        "p: {stream: in, steps: [{group_by_key: {}}, {count: counts}, to_stream, {map_values: 1 / (value - 2)}], to: out}",
        CONTINUE,
    )
    assert [values(driver.pipe(record(0))) for _ in range(3)] == [[("out", -1.0)], [], [("out", 1.0)]]
    assert driver.stores()["counts"] == [["k", 3]]


def test_a_step_may_answer_otherwise_than_the_application(tmp_path: Path) -> None:
    step = "{map_values: {value: 10 / value, on_error: %s}}"
    body = f"p: {{stream: in, steps: [{step}], to: out}}"
    assert driver_of(tmp_path, body % "continue").pipe(record(0)) == []
    with pytest.raises(ProcessingError, match="division by zero"):
        driver_of(tmp_path, body % "fail", CONTINUE).pipe(record(0))


def letter(driver: Driver, sent: dict) -> tuple[dict, dict]:
    [found] = driver.pipe(sent)
    return found, dict(map(tuple, found["headers"]))


def test_a_dead_letter_has_the_source_s_bytes_and_the_reason(tmp_path: Path) -> None:
    body = "p: {stream: in, steps: [{map_values: value + 1}, {map_values: {value: 10 / value, on_error: {dead_letter: lost}}}], to: out}"
    driver = driver_of(tmp_path, body)
    driver.pipe(record(4))
    found, headers = letter(driver, record(-1, timestamp=7))
    assert (found["topic"], found["key"], found["value"], found["timestamp"]) == (
        "lost", {"base64": "aw=="}, {"base64": "LTE="}, 7,
    )  # fmt: skip
    assert headers["__streams.errors.exception"] == "ZeroDivisionError"
    assert headers["__streams.errors.message"] == "division by zero"
    assert (headers["__streams.errors.topic"], headers["__streams.errors.partition"]) == ("in", "0")
    assert headers["__streams.errors.offset"] == "1"
    assert "ZeroDivisionError" in headers["__streams.errors.stacktrace"]
    assert dropped(driver) == 1


NULL_KEYS = {
    "count": "p: {stream: in, steps: [group_by_key, count]}",
    "window": "p: {stream: in, steps: [group_by_key, {window: {tumbling: 1s}}, count]}",
    "table": "p: {table: in, store: t}",
    "to_table": "p: {stream: in, steps: [to_table]}",
    "stream-table join": "p: {stream: in, steps: [{join: {with: {table: n}, value: left}}], to: out}",
    "stream-stream join": "p: {stream: in, steps: [{join: {with: {stream: n}, value: left, within: 1s}}], to: out}",
    "global join": "p: {stream: in, steps: [{join: {with: {global_table: n}, on: key, value: left}}], to: out}",
}


@pytest.mark.parametrize("case", NULL_KEYS)
def test_null_keys_are_dropped_and_counted(tmp_path: Path, case: str) -> None:
    driver = driver_of(tmp_path, NULL_KEYS[case])
    assert driver.pipe(record(1, None)) == []
    assert dropped(driver) == 1


def test_null_keys_of_a_left_join_are_not_dropped(tmp_path: Path) -> None:
    driver = driver_of(
        tmp_path, "p: {stream: in, steps: [{left_join: {with: {table: n}, value: '[left, right]'}}], to: out}"
    )
    assert values(driver.pipe(record(1, None))) == [("out", [1, None])]
    assert dropped(driver) == 0


UNREADABLE = [
    ("in", b"{", "serde json"),
    ("n", b"123", "pipeline p, step stream: .*: exactly 8 bytes are expected"),
]


@pytest.mark.parametrize(("topic", "data", "reason"), UNREADABLE)
def test_bytes_that_do_not_decode(tmp_path: Path, topic: str, data: bytes, reason: str) -> None:
    body = f"p: {{stream: {topic}, steps: [{{filter: 'True'}}], to: {'longs' if topic == 'n' else 'out'}}}"
    row = (topic, b"k", data, 5, None, None)
    with pytest.raises(DeserializationError, match=reason) as caught:
        driver_of(tmp_path, body)._pipe(row)
    assert f"topic {topic}, partition 0, offset 0" in str(caught.value)
    passing = driver_of(tmp_path, body, "deserialization.exception.handler: continue")
    passing._pipe(row)
    assert passing.printed() == []
    assert dropped(passing) == 1


@pytest.mark.parametrize(
    ("timestamp", "sent", "expected"),
    [
        ("value.t", {"t": 9}, 9),
        ("value.t", {"t": -1}, None),
        (
            "value.t",
            {"t": "x"},
            "the timestamp expression gave 'x', not a whole number of milliseconds; parse_time(TEXT) gives those of a time as text",
        ),
        ("value.t", {}, "the timestamp expression failed: field 't' is missing"),
        ("value.t", {"t": 2**63}, "the timestamp expression gave 9223372036854775808, which is beyond 64 bits"),
        ("timestamp + 1", {}, 6),
        ("offset", {}, 0),
        ("wallclock", {}, 1000),
    ],
)
def test_timestamps_from_the_record(tmp_path: Path, timestamp: str, sent: dict, expected: Any) -> None:
    head = "streamkit: 1\napplication: app\ntopics:\n  in: {timestamp: %s}\n  out: {}\npipelines:\n"
    driver = driver_of(tmp_path, "p: {stream: in, to: out}", head=head.replace("%s", timestamp))
    driver.advance(1000)
    if isinstance(expected, str):
        with pytest.raises(DeserializationError) as caught:
            driver.pipe(record(sent))
        assert str(caught.value).startswith(f"topic in, partition 0, offset 0: {expected} (key ")
    elif expected is None:
        assert driver.pipe(record(sent)) == []
        assert dropped(driver) == 1
    else:
        assert [each["timestamp"] for each in driver.pipe(record(sent))] == [expected]


@pytest.mark.parametrize("value", [{}, {"t": "x"}, {"t": 1.5}, {"t": 2**63}], ids=str)
def test_a_record_without_a_timestamp_goes_to_the_deserialization_handler(tmp_path: Path, value: dict) -> None:
    """Java ends with "Fatal user code error in TimestampExtractor callback" under every handler."""
    head = (
        "streamkit: 1\napplication: app\nconfig:\n  deserialization.exception.handler: continue\n"
        "  errors.dead.letter.queue.topic.name: dead\n"
        "topics:\n  in: {value: json, timestamp: value.t}\n  out: {value: json}\n  dead: {value: json}\npipelines:\n"
    )
    driver = driver_of(tmp_path, "p: {stream: in, to: out}", head=head)
    (letter,) = driver.pipe(record(value))
    assert (letter["topic"], letter["value"]) == ("dead", value)
    headers = dict(letter["headers"])
    assert headers["__streams.errors.exception"] == "streamkit.errors.TimestampError"
    assert (headers["__streams.errors.topic"], headers["__streams.errors.offset"]) == ("in", "0")
    assert dropped(driver) == 1
    assert [each["timestamp"] for each in driver.pipe(record({"t": 9}))] == [9]


@pytest.mark.parametrize(
    ("serdes", "row"),
    [
        ("{value: short, timestamp: abs(value)}", (b"a", b"\1")),
        ("{value: json, timestamp: value.t}", (b"a", b"{")),
        ("{key: long, value: json, timestamp: value.t}", (b"\1", b"{}")),
    ],
)
def test_no_timestamp_is_computed_for_a_record_that_does_not_decode(tmp_path: Path, serdes: str, row: tuple) -> None:
    """Java decodes both sides before it extracts the timestamp (RecordQueue.updateHead)."""
    head = f"streamkit: 1\napplication: app\n%stopics:\n  in: {serdes}\n  out: {{}}\npipelines:\n"
    body = "p: {stream: in, steps: [{map: {key: \"'k'\", value: 1}}], to: out}"
    failing = driver_of(tmp_path, body, head=head % "")
    with pytest.raises(DeserializationError):
        failing._pipe(("in", *row, 5, None, None))
    passing = driver_of(tmp_path, body, head=head % "config: {deserialization.exception.handler: continue}\n")
    passing._pipe(("in", *row, 5, None, None))
    assert passing.printed() == []
    assert dropped(passing) == 1


@pytest.mark.parametrize(
    ("policy", "expected"),
    [
        ("fail_on_invalid", "the timestamp -4 is negative"),
        ("log_and_skip", []),
        ("use_partition_time", [50]),
        ("wallclock", [0]),
    ],
)
def test_negative_timestamps(tmp_path: Path, policy: str, expected: Any) -> None:
    head = f"streamkit: 1\napplication: app\ntopics:\n  in: {{timestamp: {policy}}}\n  out: {{}}\npipelines:\n"
    driver = driver_of(tmp_path, "p: {stream: in, to: out}", head=head)
    driver.pipe(record(1, timestamp=50))
    if isinstance(expected, str):
        with pytest.raises(ProcessingError, match=expected):
            driver.pipe(record(1, timestamp=-4))
    else:
        assert [each["timestamp"] for each in driver.pipe(record(1, timestamp=-4))] == expected
