"""What `consume` prints: internal topics, records that do not decode, and the formats for people."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.consuming import TOPOLOGY, consumed, produced
from tests.cli.support import assert_one_clear_line, streamkit


@pytest.fixture(scope="module")
def processed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """An application that has processed a few records."""
    folder = tmp_path_factory.mktemp("processed")
    path = folder / "clicks.yaml"
    path.write_text(TOPOLOGY.format(state=folder / "state"))
    produced(
        path,
        "clicks",
        *({"key": "u", "value": {"page": page}, "timestamp": 7, "partition": 0} for page in ("a", "a")),
    )
    produced(path, "users", {"key": {"key": "k", "start": 0}, "value": "ada", "timestamp": 61_000})
    for n in (5, 8):
        produced(path, "scores", {"key": "k", "value": {"page": "p", "n": n}, "timestamp": n})
        assert streamkit("run", path, "--until-idle").code == 0
    return path


@pytest.mark.parametrize(
    ("topic", "expected"),
    [
        ("counts-repartition", [("a", {"page": "a"}), ("a", {"page": "a"})]),
        ("clicks-counts-repartition", [("a", {"page": "a"}), ("a", {"page": "a"})]),
        ("counts-changelog", [("a", 2)]),
        ("per-minute-changelog", [({"key": "ada", "start": 60_000, "end": 120_000}, 1)]),
        ("sums-changelog", [("p", 5), ("p", 8)]),
        ("clicks-in", [("u", {"page": "a"}), ("u", {"page": "a"})]),
    ],
)
def test_internal_topics_are_decoded(topic: str, expected: list, processed: Path) -> None:
    found = consumed(processed, "--tail", 10, topic=topic)
    assert [(record["key"], record["value"]) for record in found] == expected


def test_changes_of_a_table_have_the_new_and_the_old_value(processed: Path) -> None:
    found = consumed(processed, "--tail", 10, topic="sums-repartition")
    assert found[0]["value"] == {"new": 5, "old": None}
    assert found[-1]["value"]["new"] == 8
    assert {"new", "old"} == found[-1]["value"].keys()
    assert 5 in [record["value"]["old"] for record in found]


def test_internal_topics_are_searched_by_key_and_expression(processed: Path) -> None:
    assert len(consumed(processed, "--tail", 1, "--key", "ada", topic="per-minute-changelog")) == 1
    assert len(consumed(processed, "--tail", 1, "--where", "key.start == 60000", topic="per-minute-changelog")) == 1
    assert consumed(processed, "--tail", 1, "--key", "bob", topic="per-minute-changelog") == []


def test_the_nearest_internal_topic_is_named(processed: Path) -> None:
    done = streamkit("consume", processed, "count-changelog", "--tail", 1)
    assert_one_clear_line(done, 2, "'count-changelog'", "'counts-changelog'")


@pytest.fixture
def odd(processed: Path, tmp_path: Path) -> Path:
    """The application's file with another serde: the values of clicks are no longer text that it takes."""
    path = tmp_path / "odd.yaml"
    text = processed.read_text().replace("clicks-in, key: string, value: json", "clicks-in, key: string, value: long")
    path.write_text(text.replace("value.page, key_serde", "str(value), key_serde"))
    return path


def test_a_key_is_decoded_beside_a_value_that_is_not(odd: Path) -> None:
    found = consumed(odd, "--tail", 1, "--key", "u")
    assert (found[0]["key"], found[0]["value"]) == ("u", {"base64": "eyJwYWdlIjoiYSJ9"})
    assert found[0]["error"].startswith("value: serde long")
    assert len(consumed(odd, "--tail", 5, "--where", "key == 'u'")) == 2
    done = streamkit("consume", odd, "clicks", "--tail", 5, "--where", "value > 1")
    assert (done.code, done.out) == (0, "")
    assert "2 of the records" in done.err
    assert "serde long" in done.err


def test_a_table_has_offsets_and_times(processed: Path, odd: Path) -> None:
    done = streamkit("consume", processed, "clicks", "--until-idle", "--format", "table", "--partition", 0)
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        "PARTITION  OFFSET  TIME                      KEY  HEADERS  VALUE",
        '        0       0  1970-01-01T00:00:00.007Z  "u"  -        {"page":"a"}',
        '        0       1  1970-01-01T00:00:00.007Z  "u"  -        {"page":"a"}',
    ]
    done = streamkit("consume", odd, "clicks", "--tail", 1, "--format", "table")
    assert '{"base64":"eyJwYWdlIjoiYSJ9"}; value: serde long' in done.out


def test_blocks_have_one_part_a_line(processed: Path) -> None:
    record = {"key": "[x]", "value": {"page": "é"}, "timestamp": 9, "partition": 1, "headers": [["h", "x"]]}
    produced(processed, "clicks", record)
    done = streamkit("consume", processed, "clicks", "--tail", 1, "--format", "pretty")
    assert (done.code, done.err) == (0, "")
    assert done.out.splitlines() == [
        "clicks-in-1@0  1970-01-01T00:00:00.009Z",
        '  key:     "[x]"',
        '  headers: [["h", "x"]]',
        "  value:   {",
        '             "page": "é"',
        "           }",
    ]


def test_no_record_is_no_output(processed: Path) -> None:
    for form in ("json", "pretty", "table"):
        done = streamkit("consume", processed, "pairs", "--offset", "latest", "--until-idle", "--format", form)
        assert (done.code, done.out) == (0, "")


def test_what_is_printed_goes_in_again(processed: Path, tmp_path: Path) -> None:
    path = tmp_path / "again.yaml"
    path.write_text(TOPOLOGY.format(state=tmp_path / "state"))
    lines = consumed(processed, "--until-idle", topic="users")
    produced(path, "users", *({**each, "topic": "users"} for each in lines))
    assert json.dumps(consumed(path, "--until-idle", topic="users")) == json.dumps(lines)


def test_pretty_and_table_show_what_a_dead_letter_means(tmp_path: Path) -> None:
    path = tmp_path / "bills.yaml"
    path.write_text(
        f"streamkit: 1\napplication: bills\nconfig: {{state.dir: {tmp_path / 'state'}}}\n"
        "topics:\n  bills: {key: long, value: json, partitions: 1}\n  out: {key: long, value: json, partitions: 1}\n"
        "  lost: {key: bytes, value: bytes, partitions: 1}\n"
        "pipelines:\n  p:\n    stream: bills\n    steps: [{map_values: {value: value.cents, on_error: {dead_letter: lost}}}]\n    to: out\n"
    )
    failing = {"key": 7, "value": {"euro": 1}, "timestamp": 7, "headers": [["h", "x"]]}
    produced(path, "bills", failing, {"key": 8, "value": "x", "timestamp": 9})
    assert streamkit("run", path, "--until-idle").code == 0
    lines = streamkit("consume", path, "lost", "--limit", 1, "--format", "pretty").out.splitlines()
    assert lines[:4] == [
        "lost-0@0  1970-01-01T00:00:00.007Z",
        "  failed:  KeyError: 'cents'",
        "  step:    p.map_values",
        "  read at: bills-0@0",
    ]
    assert lines[4].startswith("  time:    20")
    assert lines[5:] == [
        "  key:     7",
        '  headers: [["h", "x"]]',
        "  value:   {",
        '             "euro": 1',
        "           }",
    ]
    row = streamkit("consume", path, "lost", "--until-idle", "--format", "table").out.splitlines()[1]
    assert row.split("Z  ")[1] == """7    h="x"    {"euro":1}; KeyError: 'cents' at p.map_values, read at bills-0@0"""
    rows = streamkit("replay", path).out.splitlines()[1:3]
    assert [row.split("  p.map_values")[0].split("Error  ")[1].strip() for row in rows] == [
        "cents",
        "string indices must be integers, not 'str'",
    ]
