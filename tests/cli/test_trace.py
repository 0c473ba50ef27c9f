"""`try --trace` and `explain`: trees with the lines of the file, and JSON; a dead letter with the state of now."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.support import assert_one_clear_line, streamkit

ORDERS = """\
streamkit: 1
application: orders
config: {{bootstrap.servers: "embedded:{folder}/log", state.dir: "{folder}/state"}}
topics:
  orders: {{value: json, partitions: 2}}
  totals: {{value: long, partitions: 2}}
  broken: {{value: bytes, partitions: 1}}
pipelines:
  totals:
    stream: orders
    steps:
      - group_by: {{key: value.customer, key_serde: string}}
      - aggregate:
          initial: 0
          add: aggregate + value.cents
          store: totals
          value_serde: long
          on_error: {{dead_letter: broken}}
      - to_stream
    to: totals
"""
LINES = [
    {"topic": "orders", "key": "o1", "value": {"customer": "ann", "cents": 500}, "timestamp": 5, "partition": 1},
    {"topic": "orders", "key": "o2", "value": {"customer": "ann"}, "timestamp": 6, "partition": 1},
    {"topic": "orders", "key": "o3", "value": {"customer": "bob", "cents": 7}, "timestamp": 7, "partition": 0},
]
TREE = """\
stdin:1  {"topic": "orders", "key": "o1", "value": {"customer": "ann", "cents": 500}, "timestamp": 5, "partition": 1}
   10   stream: orders
            key "o1", value {"customer": "ann", "cents": 500}, timestamp 5
   12     - group_by: {key: value.customer, key_serde: string}  => kept
              key "o1" -> "ann"
   13       - aggregate:  => kept
   13         aggregate (totals-repartition-sink)  => written to orders-totals-repartition
                  key "ann", value {"customer": "ann", "cents": 500}, timestamp 5
   13   aggregate (totals-repartition-source)
            key "ann", value {"customer": "ann", "cents": 500}, timestamp 5
   13     aggregate (KSTREAM-AGGREGATE-0000000002)  => stored: the change is in the cache of the store until the commit
              store totals["ann"]: none -> 500
   13   aggregate (KSTREAM-AGGREGATE-0000000002)  => at the commit
            key "ann", value 500, timestamp 5
   19     - to_stream  => kept
   20       to: totals  => written to totals
                key "ann", value 500, timestamp 5

"""


@pytest.fixture
def orders(tmp_path: Path) -> Path:
    """A topology with a store behind a repartition topic, and dead letters."""
    path = tmp_path / "orders.yaml"
    path.write_text(ORDERS.format(folder=tmp_path))
    return path


def jsonl(*records: dict) -> str:
    return "".join(json.dumps(record) + "\n" for record in records)


def test_the_tree_has_the_lines_of_the_file(orders: Path) -> None:
    done = streamkit("try", orders, "--input", "-", "--trace", stdin=jsonl(LINES[0]))
    assert (done.code, done.err, done.out) == (0, "", TREE)


def untraced(record: dict) -> dict:
    """A record without the traceback of a dead letter, whose lines of generated code differ."""
    return {**record, "headers": [each for each in record.get("headers", ()) if "stacktrace" not in each[0]]}


def test_json_has_every_step_and_the_output(orders: Path) -> None:
    done = streamkit("try", orders, "--input", "-", "--trace", "--format", "json", stdin=jsonl(*LINES[:2]))
    first, second = map(json.loads, done.out.splitlines())
    assert (first["place"], first["record"]) == ("stdin:1", LINES[0])
    plain = streamkit("try", orders, "--input", "-", stdin=jsonl(*LINES[:2])).out.splitlines()
    output = [*first["output"], *second["output"]]
    assert list(map(untraced, output)) == [untraced(json.loads(line)) for line in plain]
    source, repartitioned, flushed = first["steps"]
    (grouped,) = source["steps"]
    assert (grouped["step"], grouped["line"], grouped["out"][0]["key"]) == ("group_by", 12, "ann")
    (stored,) = repartitioned["steps"]
    assert stored["stores"] == [{"store": "totals", "key": "ann", "before": None, "after": 500}]
    assert flushed["cause"] == "commit"
    failed = second["steps"][1]["steps"][0]
    assert (failed["result"], failed["reason"], failed["dead_letter"]) == (
        "failed",
        "field 'cents' is missing",
        "broken",
    )


def test_the_steps_before_a_failure_are_shown(orders: Path) -> None:
    orders.write_text(orders.read_text().replace("          on_error: {dead_letter: broken}\n", ""))
    done = streamkit("try", orders, "--input", "-", "--trace", stdin=jsonl(*LINES))
    assert done.code == 1
    assert "=> failed: field 'cents' is missing\n" in done.out
    assert done.err.startswith("streamkit: stdin:2: ")
    assert "stdin:3" not in done.out


def test_a_trace_of_what_json_does_not_have_is_json(orders: Path) -> None:
    line = '{"topic": "orders", "key": "o", "value": {"customer": "eve", "cents": [NaN, -Infinity]}, "timestamp": 5}'
    done = streamkit("try", orders, "--input", "-", "--trace", "--format", "json", stdin=line)

    def refuse(constant: str) -> None:
        raise AssertionError(constant)

    first = json.loads(done.out.splitlines()[0], parse_constant=refuse)
    assert first["record"]["value"]["cents"] == ["NaN", "-Infinity"]


def test_formats_of_a_trace_alone(orders: Path) -> None:
    assert_one_clear_line(streamkit("try", orders, "--input", "-", "--format", "text"), 2, "--trace")
    done = streamkit("try", orders, "--input", "-", "--format", "json", stdin=jsonl(LINES[0]))
    assert json.loads(done.out)["topic"] == "totals"


@pytest.fixture
def failed(orders: Path) -> Path:
    """The topology after a run in which the second of three records became a dead letter."""
    assert streamkit("produce", orders, stdin=jsonl(*LINES)).code == 0
    assert streamkit("run", orders, "--until-idle").code == 0
    return orders


def test_a_dead_letter_is_explained_with_the_state_of_now(failed: Path) -> None:
    done = streamkit("explain", failed, "--dead-letter", 0)
    assert (done.code, done.err) == (0, "")
    lines = done.out.splitlines()
    assert lines[0] == "broken-0@0: KeyError at totals.aggregate: 'cents'"
    assert "with the stores as their changelogs are now, not as they were when it failed" in lines[1]
    assert "=> failed: field 'cents' is missing; dead letter in broken" in done.out
    assert 'store totals["ann"]: 500' in done.out
    assert lines[-1] == "It fails again."
    before = streamkit("consume", failed, "broken", "--until-idle").out
    assert len(before.splitlines()) == 1


def test_a_changed_file_can_be_tried_on_a_dead_letter(failed: Path) -> None:
    failed.write_text(failed.read_text().replace("aggregate + value.cents", "'aggregate + value.get(\"cents\", 1)'"))
    done = streamkit("explain", failed, "--dead-letter", "broken-0@0", "--format", "json")
    found = json.loads(done.out)
    assert (done.code, found["fails"], found["dead_letter"]["offset"]) == (0, False, 0)
    assert "not as they were when it failed" in found["state"]
    assert found["place"].startswith("orders-repartition") or found["place"].startswith("orders-totals-repartition-")
    assert [(each["topic"], each["key"], each["value"]) for each in found["output"]] == [("totals", "ann", 501)]
    text = streamkit("explain", failed, "--dead-letter", 0).out
    assert 'store totals["ann"]: 500 -> 501' in text
    assert text.endswith("It does not fail now.\n")


def test_a_dead_letter_records_that_it_ended_the_application(failed: Path) -> None:
    failed.write_text(failed.read_text().replace("          on_error: {dead_letter: broken}\n", ""))
    done = streamkit("explain", failed, "--dead-letter", "broken-0@0")
    assert done.code == 0
    assert "It fails again, and ends the application: " in done.out


@pytest.mark.parametrize(
    ("place", "code", "words"),
    [
        ("7", 1, ["no dead letter at 7", "replay"]),
        ("broken-3@0", 1, ["no dead letter at broken-3@0"]),
        ("brokn-0@0", 1, ["no dead letter at brokn-0@0"]),
        ("last", 2, ["expected an offset, or TOPIC-PARTITION@OFFSET"]),
    ],
)
def test_other_places(place: str, code: int, words: list[str], failed: Path) -> None:
    assert_one_clear_line(streamkit("explain", failed, "--dead-letter", place), code, *words)


def test_an_offset_of_several_partitions_is_not_enough(failed: Path) -> None:
    text = failed.read_text()
    failed.write_text(
        text.replace("broken: {value: bytes", "more: {value: bytes, partitions: 1}\n  broken: {value: bytes")
    )
    letter = {"key": "k", "value": None}
    assert streamkit("produce", failed, "more", stdin=jsonl(letter)).code == 0
    failed.write_text(
        failed.read_text().replace(
            "- to_stream\n", "- to_stream\n      - filter: {if: value > 0, on_error: {dead_letter: more}}\n"
        )
    )
    done = streamkit("explain", failed, "--dead-letter", 0)
    assert_one_clear_line(done, 2, "several partitions have this offset", "broken-0@0", "more-0@0")
    done = streamkit("explain", failed, "--dead-letter", "more-0@0")
    assert_one_clear_line(done, 1, "the record at more-0@0 is not a dead letter", "it has no header")


def test_a_step_of_an_included_macro_is_shown_by_its_name(tmp_path: Path) -> None:
    (tmp_path / "macros.yaml").write_text("macros:\n  paid:\n    steps:\n      - filter: value.paid\n")
    file = tmp_path / "t.yaml"
    file.write_text(
        "streamkit: 1\napplication: a\ninclude: macros.yaml\ntopics: {in: {}, out: {}}\n"
        "pipelines:\n  p: {stream: in, steps: [paid], to: out}\n"
    )
    records = tmp_path / "in.jsonl"
    records.write_text('{"topic": "in", "key": "k", "value": {"paid": false}, "timestamp": 0}\n')
    done = streamkit("try", str(file), "--input", str(records), "--trace")
    assert (done.code, done.err) == (0, "")
    assert "    4     filter  => dropped: 'value.paid' is false" in done.out.splitlines()
