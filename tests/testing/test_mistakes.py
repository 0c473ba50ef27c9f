"""Mistakes in test files: all at once, each at its place, with the nearest name."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.testing.support import case, failures, write


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("", "1:1: The file is empty; a test file begins with 'tests:'"),
        ("- a", "1:1: A test file must be a mapping that has 'tests', not a list"),
        ("test: {}", "1:1: A test file has no key 'test'; did you mean 'tests'?"),
        ("tests: {}", "1:8: 'tests' needs at least one test"),
        ("tests: {a: 3}", "1:12: The test 'a' must be a mapping, not the number 3"),
        ("topology: x.yaml\n" + case("given: []"), "There is no file"),
        ("topology: topolgy.yaml\n" + case("given: []"), "did you mean 'topology.yaml'?"),
        (case("expcet: {}"), "3:5: The test 't' has no key 'expcet'; did you mean 'expect'?"),
        (case("given: [{topic: order, value: 1}]"), "does not read a topic 'order'; did you mean 'orders'?"),
        (case("given: [{topic: totals, value: 1}]"), "3:21: The topology does not read a topic 'totals'; known are orders"),
        (case("given: [{value: 1}]"), "3:13: A record needs 'topic', unless it has one of"),
        (case("given: [{topic: orders, val: 1}]"), "3:29: A record has no key 'val'; did you mean 'value'?"),
        (case("given: [{topic: orders, key: 3}]"), "3:13: The record does not fit: key for topic shop.orders: "),
        (case("given: [{topic: orders, timestamp: soon}]"), "3:40: 'timestamp' must be milliseconds, a duration since 0"),
        (case("given: [{advance_wall_clock: soon}]"), "3:34: 'advance_wall_clock' must be a duration"),
        (case("given: [{file: none.jsonl}]"), "none.jsonl: No such file or directory"),
        (case("given: [{sample: {limit: 0}}]"), "3:30: 'limit' must be a whole number of at least 1"),
        (case("given: [{sample: {limit: 2}}]"), "3:22: 'sample' needs 'job'"),
        (case("given: [{sample: {job: none.yaml}}]"), "none.yaml: No such file or directory"),
        (case("given: {order: []}"), "3:13: The topology does not read a topic 'order'; did you mean 'orders'?"),
        (case("expect: {total: []}"), "3:14: The topology does not write a topic 'total'; did you mean 'totals'?"),
        (case("expect: {orders: []}"), "3:14: The topology does not write a topic 'orders'"),
        (case("expect: {totals: {match: exact, records: []}}"), "3:30: 'match' must be ordered, unordered or contains"),
        (case("expect: {totals: {match: ordered}}"), "3:22: What is expected of 'totals' needs either 'records' or 'file'"),
        (case("expect: {totals: [3]}"), "3:23: A record must be a mapping of key, value, timestamp, headers, not the"),
        (case("stores: {total: []}"), "3:14: There is no store 'total'; did you mean 'totals'?"),
        (case("describe: none.txt"), "3:15: There is no file"),
        (case("clock: noon"), "3:12: 'clock' must be milliseconds"),
        (case("dropped: -1"), "3:14: 'dropped' must be a whole number of at least 0"),
        (case("steps: []\ngiven: []"), "4:12: 'given' can't be combined with 'steps'; put it into one of the steps"),
        (case("steps: [{error: a}, {}]"), "3:21: An error ends the application, so no step may follow it"),
        (case("given: []\ngiven: []"), "4:5: The key 'given' stands twice; the first is in line 3"),
        ("tests: {a: {given: }}", "1:9: The test 'a' is empty; it needs 'given' and 'expect'"),
        ("tests: {a: }", "1:9: The test 'a' is empty; it needs 'given' and 'expect'"),
        (case("set: {commit.interval: 3}\ngiven: []"), "3:10: There is no setting 'commit.interval'"),
        ("set: {commit.interval: 3}\n" + case("given: []"), "1:6: "),
    ],
)  # fmt: skip
def test_a_mistake_is_reported_at_its_place(tmp_path: Path, text: str, problem: str) -> None:
    found = failures(tmp_path, text)
    assert any(problem in each for each in found), found


def test_all_mistakes_are_reported_at_once(tmp_path: Path) -> None:
    text = case("given: [{topic: a}, {topic: b}]\nexpect: {c: []}\nstores: {d: []}")
    assert len(failures(tmp_path, text)) == 4


def test_a_job_file_without_a_sample(tmp_path: Path) -> None:
    text = case("given: [{sample: {job: job.yaml}}]")
    job = tmp_path / "job.yaml"
    job.write_text("topology: topology.yaml\nemit: all\n")
    assert failures(tmp_path, text) == [f"{job}:2:7: 'emit' must be updates or final, not 'all'"]
    job.write_text("topology: topology.yaml\n")
    assert failures(tmp_path, text) == ["3:28: job.yaml has no inputs in files or tables to take a sample from"]
    (tmp_path / "other.yaml").write_text(
        "streamkit: 1\napplication: other\ntopics: {bills: {value: json}}\npipelines: {bills: {stream: bills}}\n"
    )
    job.write_text("topology: other.yaml\ninputs: {bills: lake.db.bills}\n")
    assert failures(tmp_path, text) == ["3:28: The topology does not read a topic 'bills'; known are orders"]


def test_a_bad_line_of_a_file_is_named(tmp_path: Path) -> None:
    path = tmp_path / "in.jsonl"
    for line, problem in (
        ("{", "is not JSON"),
        ("[]", "is not JSON: expected an object"),
        ('{"value": 1}', "has no topic"),
        ('{"topic": "orders", "key": 1}', "does not fit"),
    ):
        path.write_text('{"topic": "orders"}\n' + line)
        found = failures(tmp_path, case("given: [{file: in.jsonl}]"))
        assert len(found) == 1
        assert "Line 2" in found[0]
        assert problem in found[0]


def test_mistakes_of_the_topology_are_reported_too(tmp_path: Path) -> None:
    write(tmp_path, "")
    broken = (tmp_path / "topology.yaml").read_text().replace("group_by_key", "group_by_kee")
    (tmp_path / "other.yaml").write_text(broken)
    found = failures(tmp_path, "topology: other.yaml\n" + case("given: []"))
    assert "other.yaml:24:9: " in found[0]


def test_variables_are_not_replaced_in_tests(tmp_path: Path) -> None:
    text = case(
        "given: [{topic: orders, key: '${HOME}', value: {cents: 1}}]\nexpect: {totals: [{key: '${HOME}', value: 1}]}"
    )
    assert failures(tmp_path, text) == []
