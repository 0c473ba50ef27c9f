"""`streamkit reset-offsets` on the embedded log: what it shows, what it changes, and what it refuses."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest

from streamkit.errors import StreamkitError, TransportError
from streamkit.plan import load
from streamkit.runtime.operations import reset
from streamkit.runtime.operations.opening import open_log
from streamkit.runtime.operations.topic_reading import Target
from streamkit.transport.embedded.embedded_clients import EmbeddedAdmin
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


def test_the_state_of_all_instances_is_deleted(tmp_path: Path) -> None:
    """As `run --processes` has them: their stores need not have changelogs, by which they would notice the reset."""
    path, state = tmp_path / "counting.yaml", tmp_path / "state"
    text = COUNTING.format(state=state)
    path.write_text(text.replace("count: counts", "count: {store: {name: counts, logging: false}}"))
    second = ("--set", f"state.dir={state}/instance-2", "--set", f"bootstrap.servers=embedded:{state}/embedded")
    streamkit("produce", path, "words", "--lines", stdin="a\nb\na\nc\n")
    assert streamkit("run", path, "--until-idle", *second).code == 0
    (other,) = shown(path)["other_instances"]
    assert other["directory"] == str(state / "instance-2" / "counting")
    assert f"in {other['directory']}:" in streamkit("reset-offsets", path, "--execute").out
    assert streamkit("run", path, "--until-idle", *second).code == 0
    assert counted(path) == [("a", 2), ("a", 2), ("b", 1), ("b", 1), ("c", 1), ("c", 1)]


def test_a_reset_that_fails_half_way_is_to_be_repeated(counting: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    plan = load(counting, env={})

    def fail(admin: EmbeddedAdmin, names: list[str]) -> None:
        raise TransportError("no right to delete")

    with closing(open_log(plan)) as log:
        found = reset.prepare(plan, log, Target(), reset.Choice())
        with monkeypatch.context() as patched:
            patched.setattr(EmbeddedAdmin, "delete_topics", fail)
            with pytest.raises(StreamkitError, match=r"no right to delete; offsets have moved.*repeat this command"):
                reset.execute(plan, log, found)
        reset.execute(plan, log, reset.prepare(plan, log, Target(), reset.Choice()))
    assert shown(counting)["internal_topics"] == []


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


SKIPPING = """\
streamkit: 1
application: skipping
config: {{bootstrap.servers: embedded, state.dir: {state}}}
topics:
  in: {{topic: in-put, value: json, timestamp: value.at, partitions: 1}}
  out: {{value: json}}
pipelines:
  p: {{stream: in, steps: [group_by_key, count: n, to_stream], to: out}}
"""
ONE_BY_ONE = ("--set", "max.poll.records=1", "--set", "commit.interval.ms=0")


@pytest.fixture
def failing(tmp_path: Path) -> Path:
    """An application that has stopped at the third of its four records."""
    path = tmp_path / "skipping.yaml"
    path.write_text(SKIPPING.format(state=tmp_path / "state"))
    lines = [json.dumps({"key": "k", "value": value}) for value in ({"at": 1}, {"at": 2}, {}, {"at": 4})]
    streamkit("produce", path, "in", stdin="\n".join(lines))
    done = streamkit("run", path, "--until-idle", *ONE_BY_ONE)
    assert done.code == 1
    assert "or skip this record with reset-offsets --skip in-put-0@2" in done.err
    return path


def test_skip_moves_the_group_past_exactly_one_record(failing: Path) -> None:
    found = shown(failing, "--skip", "in-put-0@2")
    assert [(each["before"], each["after"], each["role"]) for each in found["offsets"]] == [(2, 3, "input")]
    assert (found["executed"], found["internal_topics"], found["state"]["entries"]) == (False, [], [])
    assert streamkit("run", failing, "--until-idle").code == 1
    # The name of the entry is a name of the topic too.
    assert shown(failing, "--skip", "in-0@2", "--execute")["executed"]
    assert streamkit("run", failing, "--until-idle").code == 0
    out = streamkit("consume", failing, "out", "--until-idle").out.splitlines()
    assert json.loads(out[-1])["value"] == 3
    assert_one_clear_line(streamkit("reset-offsets", failing, "--skip", "in-0@2"), 1, "in-put-0@2 is behind the group")


@pytest.mark.parametrize(
    ("place", "code", "words"),
    [
        ("in-0@3", 1, "in-put-0@3 is not the next record of the group, which continues at in-put-0@2"),
        ("in-0@9", 1, "there is no record in-put-0@9: the partition ends at offset 4"),
        ("in-0@1", 1, "in-put-0@1 is behind the group, which continues at offset 2"),
        ("in-7@2", 2, "topic in-put has 1 partition, counted from 0"),
        ("inn-0@2", 2, "the application's group does not read topic inn; it reads in-put"),
        ("in@2", 2, "expected TOPIC-PARTITION@OFFSET"),
    ],
)
def test_skip_refuses_any_other_record(failing: Path, place: str, code: int, words: str) -> None:
    assert_one_clear_line(streamkit("reset-offsets", failing, "--execute", "--skip", place), code, words)
    assert shown(failing, "--skip", "in-0@2")["offsets"][0]["before"] == 2


def test_skip_stands_alone(failing: Path) -> None:
    for options in (("--shift-by", 1), ("--to-latest",), ("--input-topics", "in"), ("--internal-topics", "x")):
        assert streamkit("reset-offsets", failing, "--skip", "in-0@2", *options).code == 2


def test_skip_is_refused_while_the_group_is_active(running: Path) -> None:
    done = streamkit("reset-offsets", running, "--skip", "words-0@0", "--execute")
    assert_one_clear_line(done, 1, "is active with 1 member")


def test_topics_of_an_application_whose_name_begins_with_this_one_stay(counting: Path, tmp_path: Path) -> None:
    longer = tmp_path / "longer.yaml"
    longer.write_text(counting.read_text().replace("application: counting", "application: counting-eu"))
    assert streamkit("run", longer, "--until-idle").code == 0
    foreign = "counting-eu-counts-changelog"
    assert foreign in [row["topic"] for row in shown(longer)["internal_topics"]]
    assert [row["topic"] for row in shown(counting)["internal_topics"] if row["topic"].startswith("counting-eu-")] == []
    assert streamkit("reset-offsets", counting, "--execute").code == 0
    assert foreign in [row["topic"] for row in shown(longer)["internal_topics"]]
    named = shown(counting, "--internal-topics", foreign)["internal_topics"]
    assert [row["topic"] for row in named] == [foreign]
