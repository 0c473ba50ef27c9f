"""`--update`: what came out is written, and nothing else changes."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import yaml
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from streamkit.spec.yaml_reader import flow
from tests.testing.support import case, rewritten, run

GIVEN = """\
given:
  # the first order
  - {topic: orders, key: ann, value: {cents: 500, note: a}}
  - {topic: orders, key: bob, value: {cents: 2000, note: b}}   # large
"""


@pytest.mark.parametrize(
    ("before", "after"),
    [
        (
            "expect:\n  totals:   # sums\n    # of ann\n    - {key: ann, value: 1}  # one\n    - key: bob\n      value: 2  # two",
            "expect:\n  totals:   # sums\n    # of ann\n    - {key: ann, value: 500}  # one\n    - key: bob\n      value: 2000  # two",
        ),
        (
            "expect:\n  totals:\n    - {key: bob, value: 2000}  # last",
            "expect:\n  totals:\n    - {key: ann, value: 500}\n    - {key: bob, value: 2000}  # last",
        ),
        (
            "expect:\n  totals:\n    - {key: ann, value: 500}\n    - {key: eve, value: 1}\n    - {key: bob, value: 2000}",
            "expect:\n  totals:\n    - {key: ann, value: 500}\n    - {key: bob, value: 2000}",
        ),
        (
            "expect:\n  large:\n    - key: bob\n      value:\n        cents: 1   # much\n        note: b",
            "expect:\n  large:\n    - key: bob\n      value:\n        cents: 2000   # much\n        note: b",
        ),
        (
            "expect:\n  large:\n    - {value: {cents: 2000, note: b}}",
            "expect:\n  large:\n    - {key: bob, value: {cents: 2000, note: b}}",
        ),
        ("expect:\n  broken:\n    - {key: a, value: b}", "expect:\n  broken: []"),
        ("expect:\n  large: []  # none", "expect:\n  large:\n    - {key: bob, value: {cents: 2000, note: b}}  # none"),
        (
            "expect:\n  large:\n    partial: true\n    records:",
            "expect:\n  large:\n    partial: true\n    records:\n      - {key: bob, value: {cents: 2000, note: b}}",
        ),
        ("expect:\n  large:\n", "expect:\n  large:\n    - {key: bob, value: {cents: 2000, note: b}}"),
        ("expect: {large: }", "expect: {large: [{key: bob, value: {cents: 2000, note: b}}]}"),
        ("expect: {large}", "expect: {large: [{key: bob, value: {cents: 2000, note: b}}]}"),
        ("expect: {large: ~}", "expect: {large: [{key: bob, value: {cents: 2000, note: b}}]}"),
        ("expect: {large: []}   # none", "expect: {large: [{key: bob, value: {cents: 2000, note: b}}]}   # none"),
        ("expect: {large: {records: }}", "expect: {large: {records: [{key: bob, value: {cents: 2000, note: b}}]}}"),
        (
            "expect: {totals: [{key: ann, value: 0}, {key: bob, value: 0}]}",
            "expect: {totals: [{key: ann, value: 500}, {key: bob, value: 2000}]}",
        ),
        (
            "expect:\n  totals:\n    match: contains\n    records:\n      - {key: bob, value: 1}",
            "expect:\n  totals:\n    match: contains\n    records:\n      - {key: bob, value: 2000}",
        ),
        (
            "expect:\n  large:\n    partial: true\n    records:\n      - {value: {note: c}, timestamp: 7s}",
            "expect:\n  large:\n    partial: true\n    records:\n      - {value: {note: b}, timestamp: 0}",
        ),
        ("stores:\n  totals:\n    ann: 1\n    # nobody\n    eve: 1", "stores:\n  totals:\n    ann: 500\n    # nobody\n    bob: 2000"),
        ("stores: {totals: {ann: 1, bob: 2000}}", "stores: {totals: {ann: 500, bob: 2000}}"),
        (
            "expect:\n  totals:\n    - {key: eve, value: 5}  # gone",
            "expect:\n  totals:\n    - {key: ann, value: 500}  # gone\n    - {key: bob, value: 2000}",
        ),
        ("stores:\n  totals:\n    eve: 1", "stores:\n  totals:\n    ann: 500\n    bob: 2000"),
        ("dropped: 4  # why?", "dropped: 0  # why?"),
    ],
)  # fmt: skip
def test_only_what_differs_is_written(tmp_path: Path, before: str, after: str) -> None:
    assert rewritten(tmp_path, "# top\n" + case(GIVEN + before)) == "# top\n" + case(GIVEN + after)


def test_a_test_without_expectations_gets_them(tmp_path: Path) -> None:
    found = rewritten(tmp_path, case(GIVEN))
    assert found.startswith(case(GIVEN))
    expected = yaml.safe_load(found)["tests"]["t"]["expect"]
    assert set(expected) == {"totals", "per-minute", "large"}
    assert {"key": "bob", "value": 2000, "timestamp": 0} in expected["totals"]


@pytest.mark.parametrize("empty", ["expect:", "expect: {}", "expect: {}   # all"])
def test_an_empty_expect_is_filled(tmp_path: Path, empty: str) -> None:
    found = rewritten(tmp_path, case(f"{GIVEN}{empty}\ndropped: 1"))
    assert found.count("expect:") == 1
    found = rewritten(tmp_path, case(f"{empty}\n{GIVEN}"))
    assert found.count("expect:") == 1
    assert len(yaml.safe_load(found)["tests"]["t"]["expect"]) == 3


def test_a_test_for_which_nothing_comes_out_is_not_touched(tmp_path: Path) -> None:
    text = case("given: [{topic: orders, value: {cents: 0}}]")
    assert rewritten(tmp_path, text) == text


def test_a_file_without_a_last_newline_gets_whole_lines(tmp_path: Path) -> None:
    text = case(GIVEN + "expect:\n  totals:\n    - {key: ann, value: 500}").rstrip("\n")
    assert rewritten(tmp_path, text).endswith("- {key: ann, value: 500}\n        - {key: bob, value: 2000}")


def test_files_and_descriptions_are_written(tmp_path: Path) -> None:
    (tmp_path / "out.jsonl").write_text("")
    (tmp_path / "plan.txt").write_text("old")
    rewritten(tmp_path, case("describe: plan.txt\n" + GIVEN + "expect: {totals: {file: out.jsonl}}"))
    assert json.loads((tmp_path / "out.jsonl").read_text().splitlines()[1]) == {"key": "bob", "value": 2000}
    assert (tmp_path / "plan.txt").read_text().startswith("Topologies:\n   Sub-topology: 0\n")
    assert "Sub-topology: 0" in rewritten(tmp_path, case("describe: |\n  Topologies:\n   none"))


def test_an_expected_error_is_written(tmp_path: Path) -> None:
    given = "given:\n  - {topic: orders, key: eve, value: {cents: 9223372036854775808}}\n"
    assert "9223372036854775808" in rewritten(tmp_path, case(given + "error: other")).split("error:")[1]


def test_what_passes_is_not_touched(tmp_path: Path) -> None:
    text = case(GIVEN + "expect:\n  totals:   [ {value:   500, key: ann}, {key: bob, value: 2000} ]")
    assert rewritten(tmp_path, text) == text


def test_an_unexpected_error_stays_a_failure(tmp_path: Path) -> None:
    text = case("given:\n  - {topic: orders, key: eve, value: {cents: 9223372036854775808}}\nexpect: {totals: []}")
    assert run(tmp_path, text, update=True).failed


def test_records_behind_an_alias_are_left_alone(tmp_path: Path) -> None:
    text = case(
        GIVEN + "expect:\n  large: [&a {key: bob, value: {cents: 1}}]\n  totals:\n    - *a\n    - {key: bob, value: 1}"
    )
    result = run(tmp_path, text, update=True)
    assert result.failed
    assert "    - *a\n" in (tmp_path / "topology.test.yaml").read_text()


TEXTS = st.text(st.characters(exclude_categories=["Cs", "Cc"]), max_size=8)
DATA = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**60), 2**60) | st.floats(allow_nan=False, allow_infinity=False) | TEXTS,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(TEXTS, inner, max_size=3),
    max_leaves=8,
)


@given(st.dictionaries(TEXTS, DATA, max_size=4))
@settings(
    max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow], deadline=None
)
def test_whatever_came_out_is_read_again_as_it_is(tmp_path: Path, data: dict) -> None:
    text = case(
        f"given:\n  - {{topic: orders, key: a, value: {flow({'cents': 5000, 'data': data})}}}\nexpect:\n  large: []"
    )
    rewritten(tmp_path, text)


@pytest.mark.parametrize("expect", [", expect: {large: }", ", expect: ", ""])
def test_a_test_in_brackets_stays_in_its_line(expect: str, tmp_path: Path) -> None:
    given = "given: [{topic: orders, key: bob, value: {cents: 2000, note: b}}]"
    after = rewritten(tmp_path, f"tests:\n  t: {{{given}{expect}}}\n")
    assert after.startswith(f"tests:\n  t: {{{given}, expect: {{")
    assert len(after.splitlines()) == 2
    assert "large: [{key: bob, value: {cents: 2000, note: b}" in after
    assert rewritten(tmp_path, after) == after


BROKEN = "given:\n  - {topic: orders, key: ann, value: {note: a}}\n"
REASON = [
    ["__streams.errors.exception", "KeyError"],
    ["__streams.errors.message", "'cents'"],
    ["__streamkit.errors.step", "orders.filter"],
]


@pytest.mark.parametrize(
    "expect",
    [
        "",
        "expect:\n  broken: []\n",
        "expect:\n  broken:   # none\n",
        "expect: {broken: []}\n",
        "expect: {broken}\n",
        "expect: {}\n",
    ],
)
def test_a_dead_letter_is_written_with_its_reason(tmp_path: Path, expect: str) -> None:
    found = rewritten(tmp_path, case(BROKEN + expect))
    broken = yaml.safe_load(found)["tests"]["t"]["expect"]["broken"]
    assert broken["partial"] is True
    (record,) = broken["records"]
    assert (record["key"], record["value"], record["headers"]) == ("ann", {"base64": "eyJub3RlIjoiYSJ9"}, REASON)


def test_of_the_headers_that_a_test_names_only_those_are_written(tmp_path: Path) -> None:
    wrong = "[[__streams.errors.message, x]]"
    text = BROKEN + "expect:\n  broken:\n    partial: true\n    records:\n      - {key: ann, headers: HEADERS}  # why\n"
    found = rewritten(tmp_path, case(text.replace("HEADERS", wrong)))
    expected = yaml.safe_load(found)["tests"]["t"]["expect"]["broken"]["records"]
    assert expected == [{"key": "ann", "headers": [REASON[1]]}]
    assert "# why" in found
    kept = case(text.replace("HEADERS", "[[__streams.errors.exception, KeyError]]").replace("{key: ann", "{key: eve"))
    assert rewritten(tmp_path, kept) == kept.replace("{key: eve", "{key: ann")
