"""What a test compares, and what it says where that is not what came out."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamkit.api.topology_driver import TopologyDriver
from streamkit.plan import load
from tests.cli.support import streamkit
from tests.testing.support import case, failures

GIVEN = """\
given:
  - {topic: orders, key: ann, value: {cents: 500, note: a}, timestamp: 0}
  - {topic: orders, key: bob, value: {cents: 2000, note: b}, timestamp: 30s}
  - {topic: orders, key: ann, value: {cents: 100, note: c}, timestamp: 1970-01-01T00:01:10Z}
"""
TOTALS = "- {key: ann, value: 500}\n- {key: bob, value: 2000}\n- {key: ann, value: 600}"


def expect(topic: str, records: str, **options: object) -> str:
    rows = "".join(f"      {line}\n" for line in records.split("\n"))
    chosen = "".join(f"    {name}: {value}\n" for name, value in options.items())
    return case(f"{GIVEN}expect:\n  {topic}:\n{chosen}    records:\n{rows}")


@pytest.mark.parametrize(
    ("topic", "records", "options"),
    [
        ("totals", TOTALS, {}),
        ("totals", "- {key: ann, value: 600}\n- {key: ann, value: 500}\n- {key: bob, value: 2000}", {"match": "unordered"}),
        ("totals", "- {key: ann, value: 600}", {"match": "contains"}),
        ("totals", "- {value: 500}\n- {key: bob}\n- {timestamp: 70s}", {"partial": "true"}),
        ("large", "- {value: {note: b}}", {"partial": "true"}),
        ("large", "- {key: bob, value: {cents: 2000, note: b}, timestamp: 30000, headers: null}", {}),
        ("per-minute", "- {key: {key: ann, start: 60s, end: 2m}, value: 1}", {"match": "contains"}),
        ("broken", "[]", {}),
    ],
)  # fmt: skip
def test_what_comes_out_as_expected_passes(tmp_path: Path, topic: str, records: str, options: dict) -> None:
    assert failures(tmp_path, expect(topic, records, **options)) == []


@pytest.mark.parametrize(
    ("topic", "records", "options", "shown"),
    [
        ("totals", TOTALS.replace("2000", "2001"), {}, "value: expected 2001, came 2000"),
        ("totals", TOTALS.replace("500}", "true}"), {}, "value: expected true, came 500"),
        ("totals", TOTALS.replace("500}", "'500'}"), {}, 'value: expected "500", came 500'),
        ("totals", TOTALS + "\n- {key: eve, value: 1}", {}, "records: 4 expected, 3 came\n"),
        ("totals", "- {key: bob, value: 2000}", {}, "+ {key: ann, value: 600}"),
        ("totals", "- {key: bob, value: 2000}", {"match": "unordered"}, "+ {key: ann, value: 600}"),
        ("totals", "- {key: bob, value: 1}", {"match": "contains"}, "value: expected 1, came 2000"),
        ("large", "- {key: bob, value: {cents: 2000}}", {}, "value.note: is there, not expected: b"),
        ("large", "- {value: {cents: 2000, vat: 7}}", {"partial": "true"}, "value.vat: expected 7, is not there"),
        ("large", "- {value: {cents: 2000, note: b}}", {}, "key: expected null, came bob"),
        ("large", "- {key: bob, value: {cents: 2000, note: b}, timestamp: 31s}", {}, "expected 31000, came 30000"),
        ("large", "- {value: {note: b}, headers: [[a, b]]}", {"partial": "true"}, "headers: expected [a, b], came []"),
    ],
)
def test_a_difference_is_shown_where_it_is(tmp_path: Path, topic: str, records: str, options: dict, shown: str) -> None:
    [failure] = failures(tmp_path, expect(topic, records, **options))
    assert shown in failure


def test_a_failure_points_at_the_first_record_that_differs(tmp_path: Path) -> None:
    [failure] = failures(
        tmp_path, case(f"{GIVEN}expect:\n  totals:\n    " + TOTALS.replace("\n", "\n    ")).replace("600", "601")
    )
    assert failure.splitlines() == [
        "11:11: totals: records: 1 of 3 differ",
        "  {key: ann, value: 500}",
        "  {key: bob, value: 2000}",
        "- {key: ann, value: 601}   (line 11)",
        "+ {key: ann, value: 600}",
        "    value: expected 601, came 600",
    ]  # fmt: skip


def test_what_matches_far_from_a_difference_is_counted_only(tmp_path: Path) -> None:
    given = "".join(f"  - {{topic: orders, key: k{n}, value: {{cents: {n + 1}}}}}\n" for n in range(9))
    rows = "".join(f"    - {{key: k{n}, value: {n + 1 if n != 4 else 0}}}\n" for n in range(9))
    [failure] = failures(tmp_path, case(f"given:\n{given}expect:\n  totals:\n{rows}"))
    assert failure.count("… 2 as expected") == 2


def test_steps_compare_what_came_since_the_step_before(tmp_path: Path) -> None:
    steps = """
steps:
  - given: {orders: [{key: ann, value: {cents: 5}}]}
    expect: {totals: [{key: ann, value: 5}]}
    stores: {totals: {ann: 5}}
  - given: {orders: [{key: ann, value: {cents: 2}}]}
    expect: {totals: [{key: ann, value: 7}]}
    stores: {totals: {ann: 8}}
"""
    [failure] = failures(tmp_path, case(steps))
    assert failure.startswith("9:27: totals: rows: 1 of 1 differ")


def test_stores_are_compared_by_key(tmp_path: Path) -> None:
    stores = """\
stores:
  totals: [{key: bob, value: 2000}, {key: ann, value: 600}]
  minutes:
    match: contains
    records:
      - {key: {key: ann, start: 1m, end: 2m}, value: 1}
"""
    assert failures(tmp_path, case(GIVEN + stores)) == []
    [failure] = failures(tmp_path, case(GIVEN + "stores: {totals: {ann: 600}}"))
    assert "rows: 1 expected, 2 came" in failure


def test_a_restart_restores_stores_from_changelogs(tmp_path: Path) -> None:
    given = GIVEN + "  - {restart: true}\n  - {topic: orders, key: ann, value: {cents: 1}}\n"
    assert (
        failures(tmp_path, case(given + "expect: {totals: {match: contains, records: [{key: ann, value: 601}]}}")) == []
    )


CLOSED = """\
streamkit: 1
application: shop
topics: {orders: {value: string}, held: {value: string}, counts: {value: long}}
pipelines:
  held: {stream: orders, steps: [{process: {call: "held:Held"}}], to: held}
  counts: {stream: held, steps: [group_by_key, {count: counts}, to_stream], to: counts}
"""
HELD = """\
class Held:
    def init(self, context):
        self.context, self.records = context, []

    def process(self, record):
        self.records.append(record)

    def close(self):
        for record in self.records:
            self.context.forward(record)
"""


def test_what_processors_forward_when_they_are_closed_comes_at_a_restart_and_at_the_end(tmp_path: Path) -> None:
    (tmp_path / "held.py").write_text(HELD)
    steps = """
steps:
  - given: {orders: [{key: ann, value: a}]}
    expect: {held: []}
  - given: [{restart: true}]
    expect: {held: [{key: ann, value: a}], counts: [{key: ann, value: 1}]}
  - given: {orders: [{key: ann, value: b}]}
    expect: {held: [{key: ann, value: b}], counts: []}
"""
    assert failures(tmp_path, case(steps), CLOSED) == []
    lines = "".join(json.dumps({"topic": "orders", "key": "ann", "value": value}) + "\n" for value in "ab")
    with TopologyDriver(load(tmp_path / "topology.yaml")) as driver:
        for value in "ab":
            driver.pipe("orders", value, "ann")
        assert driver.read("held") == []
    assert [record.value for record in driver.read("held")] == ["a", "b"]
    done = streamkit("try", tmp_path / "topology.yaml", "--input", "-", stdin=lines)
    assert [json.loads(line)["value"] for line in done.out.splitlines()] == ["a", "b"]


def test_records_may_stand_in_files(tmp_path: Path) -> None:
    (tmp_path / "in.jsonl").write_text(
        '{"topic": "orders", "key": "a", "value": {"cents": 4}}\n\n{"advance_wall_clock": 5}\n'
    )
    (tmp_path / "out.jsonl").write_text('{"key": "a", "value": 4}\n')
    assert failures(tmp_path, case("given: [{file: in.jsonl}]\nexpect: {totals: {file: out.jsonl}}")) == []


ERROR = (
    "given:\n  - {topic: orders, key: ann, value: {cents: 1}}\n"
    "  - {topic: orders, key: eve, value: {cents: 9223372036854775808}}\n"
)


def test_settings_reach_the_topology_and_the_command_line_goes_first(tmp_path: Path) -> None:
    name = "processing.exception.handler"
    for settings in (f"set: {{{name}: continue}}\n" + case(ERROR), case(f"set: {{{name}: continue}}\n{ERROR}")):
        assert failures(tmp_path, settings) == []
        [failure] = failures(tmp_path, settings, **{name: "fail"})
        assert "processing fails here" in failure
        assert "sometimes" in failures(tmp_path, settings, **{name: "sometimes"})[0]


def test_a_dead_letter_fails_a_test_that_does_not_expect_it(tmp_path: Path) -> None:
    given = "given:\n  - {topic: orders, key: ann, value: {pounds: 1}}\n"
    [failure] = failures(tmp_path, case(given))
    assert failure.startswith("4:9: broken: a dead letter that is not expected: ")
    letter = "{match: contains, partial: true, records: [{key: ann, headers: [[__streams.errors.topic, shop.orders]]}]}"
    assert failures(tmp_path, case(f"{given}expect: {{broken: {letter}}}")) == []


def test_an_expected_error_ends_the_test(tmp_path: Path) -> None:
    text = case(ERROR + "error: step aggregate\nexpect: {totals: [{key: ann, value: 1}]}")
    assert failures(tmp_path, text) == []
    [failure] = failures(tmp_path, text.replace("error: step aggregate", "error: nonsense"))
    assert "error: another one came" in failure
    [failure] = failures(tmp_path, text.replace("    error: step aggregate\n", ""))
    assert failure.startswith("5:9: processing fails here: ")


def test_an_error_that_does_not_come_is_a_failure(tmp_path: Path) -> None:
    [failure] = failures(tmp_path, case(GIVEN + "error: boom"))
    assert failure == "7:12: error: processing went well\n- boom"


def test_dropped_records_are_counted(tmp_path: Path) -> None:
    late = GIVEN + "  - {topic: orders, key: ann, value: {cents: 1}, timestamp: 0}\n"
    assert failures(tmp_path, case(late + "dropped: 1")) == []
    assert failures(tmp_path, case(late + "dropped: 0")) == ["8:14: dropped: expected 0, came 1"]


def test_describe_is_compared_with_a_file_or_a_text(tmp_path: Path) -> None:
    [failure] = failures(tmp_path, case("describe: |\n  Topologies:\n     Sub-topology: 1"))
    assert failure.startswith("3:15: describe: the topology differs\n")
    shown = "\n".join(line[1:] for line in failure.splitlines() if line.startswith(("+", " ")))
    assert "Sub-topology: 0" in shown
    (tmp_path / "plan.txt").write_text("Topologies:\n")
    assert len(failures(tmp_path, case("describe: plan.txt"))) == 1


def test_the_clock_of_a_test_starts_at_its_setting(tmp_path: Path) -> None:
    given = "given: [{topic: orders, key: a, value: {cents: 1}}]\nexpect: {totals: [{key: a, value: 1, timestamp: 1767225600000}]}"
    assert failures(tmp_path, case("clock: 2026-01-01T00:00:00Z\n" + given)) == []
