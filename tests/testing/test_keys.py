"""Keys that look alike in a test: `true`, `1` and `"1"` are three, and zero has a sign."""

from __future__ import annotations

from pathlib import Path

import pytest
import yaml

from tests.testing.support import case, failures, rewritten

TOPOLOGY = """\
streamkit: 1
application: app
topics:
  in: {key: json, value: json}
  doubles: {key: double, value: json}
  out: {key: json, value: long}
  numbers: {key: double, value: json}
pipelines:
  p:
    stream: in
    steps:
      - group_by_key
      - count: n
      - to_stream
    to: out
  numbers: {stream: doubles, to: numbers}
"""
KEYS = ("1", '"1"', "1.5", "true", "-0.0", "0.0", "{a: [1]}")
GIVEN = "given:\n" + "".join(f"  - {{topic: in, key: {key}, value: 1}}\n" for key in KEYS)


@pytest.mark.parametrize("match", ["ordered", "unordered"])
@pytest.mark.parametrize(
    ("key", "wrong"), [("1", "true"), ("true", "1"), ('"1"', "1"), ("-0.0", "0.0"), ("{a: [1]}", "{a: [true]}")]
)
def test_one_key_does_not_stand_for_another(tmp_path: Path, match: str, key: str, wrong: str) -> None:
    def test_file_of(keys: tuple[str, ...]) -> str:
        rows = "".join(f"      - {{key: {each}, value: 1}}\n" for each in keys)
        return case(f"{GIVEN}expect:\n  out:\n    match: {match}\n    records:\n{rows}")

    assert failures(tmp_path, test_file_of(KEYS), TOPOLOGY) == []
    other = tuple(wrong if each == key else each for each in KEYS)
    assert failures(tmp_path, test_file_of(other), TOPOLOGY) != []


@pytest.mark.parametrize("stores", ["stores:\n  n:   # rows\n    5: 1", "stores: {n: {5: 1}}"])
def test_rows_whose_keys_a_mapping_cannot_hold_become_a_list(tmp_path: Path, stores: str) -> None:
    found = yaml.safe_load(rewritten(tmp_path, case(GIVEN + stores), TOPOLOGY))["tests"]["t"]["stores"]["n"]
    assert sorted(repr(row["key"]) for row in found) == sorted(repr(yaml.safe_load(key)) for key in KEYS)


@pytest.mark.parametrize("text", [".nan", "NaN", '"NaN"'])
def test_what_is_not_a_number_is_expected_by_either_name(tmp_path: Path, text: str) -> None:
    given = "given: [{topic: doubles, key: .nan, value: 1}, {topic: doubles, key: -.inf, value: 1}]\n"
    expect = f"expect: {{numbers: [{{key: {text}, value: 1}}, {{key: -.inf, value: 1}}]}}"
    assert failures(tmp_path, case(given + expect), TOPOLOGY) == []
    assert failures(tmp_path, case(given + expect.replace("-.inf", ".inf")), TOPOLOGY) != []


@pytest.mark.parametrize(
    ("wanted", "came", "shown"),
    [
        ("caf\u00e9", "cafe\u0301", r"key: expected 'caf\xe9', came 'cafe\u0301', at character 4"),
        (400 * "x" + "1", 400 * "x" + "2", "key: expected 'xxxxxxxxxx1', came 'xxxxxxxxxx2', at character 401"),
    ],
)
def test_a_difference_that_cannot_be_seen_is_shown(tmp_path: Path, wanted: str, came: str, shown: str) -> None:
    given = f"given: [{{topic: in, key: {came}, value: 1}}]\n"
    found = failures(tmp_path, case(f"{given}expect: {{out: [{{key: {wanted}, value: 1}}]}}"), TOPOLOGY)
    assert shown in found[0]
