"""`streamkit reset-offsets` on the embedded log: what it shows, what it changes, and what it refuses."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.cli.support import LIMIT_S, assert_one_clear_line, command, streamkit

COUNTING = """\
streamkit: 1
application: counting
config: {{bootstrap.servers: embedded, state.dir: {state}, commit.interval.ms: 100}}
topics:
  words: {{topic: words-in, key: string, value: string, partitions: 2}}
  counts: {{key: string, value: long}}
pipelines:
  counting:
    stream: words
    steps:
      - group_by: {{key: value, key_serde: string}}
      - count: counts
      - to_stream
    to: counts
"""


@pytest.fixture
def counting(tmp_path: Path) -> Path:
    """An application that has counted four words."""
    path = tmp_path / "counting.yaml"
    path.write_text(COUNTING.format(state=tmp_path / "state"))
    streamkit("produce", path, "words", "--lines", stdin="a\nb\na\nc\n")
    assert streamkit("run", path, "--until-idle").code == 0
    return path


@pytest.fixture
def running(counting: Path) -> Iterator[Path]:
    """The same, and a process that runs it."""
    process = subprocess.Popen(command("run", counting))
    try:
        streamkit("produce", counting, "words", "--lines", stdin="d\n")
        streamkit("consume", counting, "counts", "--max", 4)
        yield counting
    finally:
        process.terminate()
        assert process.wait(LIMIT_S) == 0


def counted(path: Path) -> list[tuple]:
    lines = streamkit("consume", path, "counts", "--until-idle").out.splitlines()
    return sorted((record["key"], record["value"]) for record in map(json.loads, lines))


def shown(path: Path, *options: object) -> dict:
    done = streamkit("reset-offsets", path, "--format", "json", *options)
    assert done.code == 0, done
    return json.loads(done.out)


def test_nothing_changes_without_execute(counting: Path) -> None:
    before = shown(counting)
    assert before["executed"] is False
    assert sum(each["before"] or 0 for each in before["offsets"]) == 4
    assert {each["after"] for each in before["offsets"]} == {0}
    names = {each["topic"] for each in before["internal_topics"]}
    assert names == {"counting-counts-repartition", "counting-counts-changelog"}
    assert before["state"]["entries"]
    assert shown(counting, "--dry-run") == before


def test_after_a_reset_everything_is_counted_again(counting: Path) -> None:
    assert counted(counting) == [("a", 2), ("b", 1), ("c", 1)]
    done = streamkit("reset-offsets", counting, "--execute")
    assert (done.code, done.err) == (0, "")
    after = shown(counting)
    assert (after["internal_topics"], after["state"]["entries"]) == ([], [])
    assert {each["before"] for each in after["offsets"]} <= {0, None}
    assert streamkit("run", counting, "--until-idle").code == 0
    # Had the state stayed, a would be counted on from 2.
    assert counted(counting) == [("a", 2), ("a", 2), ("b", 1), ("b", 1), ("c", 1), ("c", 1)]


def test_the_table_has_the_figures(counting: Path) -> None:
    done = streamkit("reset-offsets", counting, "--to-latest")
    assert done.code == 0
    assert "add --execute" in done.out
    rows = [line.split() for line in done.out.splitlines() if line.startswith("words-in")]
    assert [row[:3] for row in rows] == [["words-in", "0", "input"], ["words-in", "1", "input"]]


def test_a_running_application_is_left_alone(running: Path) -> None:
    assert_one_clear_line(streamkit("reset-offsets", running, "--execute"), 1, "running")
    assert_one_clear_line(streamkit("reset-offsets", running, "--execute", "--force"), 1, "running")
    dry = streamkit("reset-offsets", running)
    assert "Active members" in dry.out
    assert_one_clear_line(dry, 1, "active")


def test_a_topic_that_is_written_and_read_is_skipped(counting: Path) -> None:
    text = counting.read_text()
    counting.write_text(text + "  again:\n    stream: counts\n    steps: [peek: {do: value}]\n")
    roles = {each["topic"]: (each["role"], each["after"]) for each in shown(counting)["offsets"]}
    assert roles["counts"] == ("intermediate", 3)
    assert roles["words-in"] == ("input", 0)


@pytest.mark.parametrize(
    ("options", "words"),
    [
        (["--to-latest", "--to-offset", 1], ["--to-latest", "--to-offset"]),
        (["--dry-run", "--execute"], ["--execute"]),
        (["--to-datetime", "yesterday"], ["yesterday", "2025-01-31T08:00:00Z"]),
        (["--by-duration", "5 minutes"], ["5 minutes"]),
        (["--by-duration", "9" * 20], ["is too long"]),
        (["--input-topics", "wrods"], ["wrods", "words-in"]),
        (["--internal-topics", "words-in"], ["words-in", "counting-counts-changelog"]),
        (["--from-file", "/no/such.csv"], ["/no/such.csv"]),
    ],
)
def test_wrong_usage(options: list, words: list[str], counting: Path) -> None:
    assert_one_clear_line(streamkit("reset-offsets", counting, "--execute", *options), 2, *words)


@pytest.mark.parametrize(("text", "place"), [("words,0", ":1:1"), ("words,0,0\nwords,x,1", ":2:1"), ("", "empty")])
def test_a_file_of_offsets_that_is_none(text: str, place: str, counting: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.csv"
    plan.write_text(text)
    assert_one_clear_line(streamkit("reset-offsets", counting, "--from-file", plan), 2, plan, place)


def test_a_file_of_offsets_for_another_application(counting: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.csv"
    plan.write_text("elsewhere,0,1\n")
    assert_one_clear_line(streamkit("reset-offsets", counting, "--from-file", plan), 2, "elsewhere,0")


def test_partitions_that_the_file_does_not_name_stay(counting: Path, tmp_path: Path) -> None:
    plan = tmp_path / "plan.csv"
    plan.write_text("words,1,0\n")
    first, second = shown(counting, "--from-file", plan)["offsets"]
    assert (first["partition"], first["after"], first["note"]) == (0, None, "not in the file")
    assert (second["partition"], second["after"]) == (1, 0)


def test_an_application_that_never_ran(tmp_path: Path) -> None:
    path = tmp_path / "counting.yaml"
    path.write_text(COUNTING.format(state=tmp_path / "state"))
    found = shown(path, "--execute")
    assert (found["offsets"], found["missing_topics"]) == ([], ["words-in"])
    assert_one_clear_line(streamkit("reset-offsets", path, "--input-topics", "words"), 1, "words-in")


def test_the_address_and_a_properties_file_go_before_the_topology(counting: Path, tmp_path: Path) -> None:
    elsewhere = f"embedded:{tmp_path / 'elsewhere'}"
    assert shown(counting, "--bootstrap-server", elsewhere)["missing_topics"] == ["words-in"]
    properties = tmp_path / "client.properties"
    properties.write_text(f"# comment\n! another\n\nbootstrap.servers = \\\n  {elsewhere}\npoll.ms:5\n")
    assert shown(counting, "--config-file", properties)["missing_topics"] == ["words-in"]
    assert shown(counting, "--config-file", properties, "--set", "bootstrap.servers=embedded")["missing_topics"] == []
    assert_one_clear_line(streamkit("reset-offsets", counting, "--config-file", "/no/such"), 2, "/no/such")
