"""Commands that only look write nothing, not even a directory; and what they refuse before anything runs."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from streamkit import load
from streamkit.errors import UnknownStoreError
from tests.cli.support import assert_one_clear_line, streamkit

COPY = """\
streamkit: 1
application: copy
config: {errors.dead.letter.queue.topic.name: dead, state.dir: STATE}
topics:
  in: {value: json, partitions: 2}
  out: {value: json}
  dead: {key: bytes, value: bytes}
pipelines:
  p: {stream: in, steps: [group_by_key, count: n, to_stream, {map_values: {value: "{'n': value}", value_serde: json}}], to: out}
"""


@pytest.fixture
def copy(tmp_path: Path) -> Path:
    path = tmp_path / "copy.yaml"
    path.write_text(COPY.replace("STATE", str(tmp_path / "state")))
    return path


@pytest.mark.parametrize(
    "line",
    [
        "lag FILE",
        "status FILE",
        "status FILE --check",
        "topics list FILE",
        "transactions FILE --end",
        "reset-offsets FILE",
        "reset-offsets FILE --dry-run",
        "reset-offsets FILE --skip in-0@0",
        "replay FILE",
        "explain FILE --dead-letter dead-0@0",
        "migrate FILE FILE",
        "diff FILE FILE --running",
        "doctor FILE",
        "consume FILE out --until-idle",
        "submit FILE --dry-run",
        "submit FILE --input in=FILE --dry-run",
        "evolve FILE FILE",
    ],
)
def test_commands_that_look_write_nothing(copy: Path, line: str) -> None:
    done = streamkit(*(copy if word == "FILE" else word for word in line.split()))
    assert "Traceback" not in done.err
    assert [each.name for each in copy.parent.iterdir()] == ["copy.yaml"]


def test_a_check_of_the_status_fails_where_no_member_runs(copy: Path) -> None:
    assert streamkit("status", copy).code == 0
    done = streamkit("status", copy, "--check")
    assert (done.code, done.err) == (1, "streamkit: the group has no members\n")
    assert streamkit("status", copy, "--max-lag", 1).code == 2


def test_two_entries_of_one_topic_are_a_mistake(copy: Path) -> None:
    copy.write_text(copy.read_text().replace("pipelines:", "  again: {topic: in, value: string}\npipelines:"))
    done = streamkit("validate", copy)
    assert done.code == 1
    words = f"{copy}:8:3: The topics 'again' and 'in' ({copy}:5:3) are both 'in' on the log; write one entry"
    assert words in done.out + done.err


@pytest.mark.parametrize("number", ["NaN", "Infinity", "-Infinity", "1e400"])
@pytest.mark.parametrize("command", ["produce", "try"])
def test_numbers_that_json_does_not_have(copy: Path, command: str, number: str) -> None:
    line = f'{{"topic": "in", "key": "k", "value": {{"a": [{number}]}}}}'
    options = (copy, "--input", "-") if command == "try" else (copy,)
    assert_one_clear_line(streamkit(command, *options, stdin=line), 1, "JSON has no NaN and no infinite number")


@pytest.mark.parametrize("partition", [9, 2, -1, "0", True, 1.0])
def test_a_partition_that_the_topic_does_not_have(copy: Path, partition: object) -> None:
    line = json.dumps({"topic": "in", "key": "k", "value": {}, "partition": partition})
    done = streamkit("try", copy, "--input", "-", stdin=line)
    assert_one_clear_line(done, 1, f"partition is {partition!r}; topic in has 2 partitions, counted from 0")


def test_a_wrong_setting_of_the_command_line_is_wrong_usage(copy: Path) -> None:
    for command in ("validate", "describe", "lag"):
        done = streamkit(command, copy, "--set", "num.stream.threads=two")
        assert_one_clear_line(done, 2, "--set: num.stream.threads must be a whole number, not 'two'")


def test_async_functions_and_missing_modules_are_found_without_an_import(copy: Path) -> None:
    (copy.parent / "mine.py").write_text(
        "raise SystemExit('imported')\n\nasync def each(record):\n    return record\n\n"
        "class Each:\n    async def process(self, record):\n        return record\n"
    )
    steps = "{process: 'mine:each'}, {process: 'mine:Each'}, {process: 'nowhere.near:Each'}, {process: 'json:loads'}"
    copy.write_text(copy.read_text().replace("steps: [", f"steps: [{steps}, "))
    done = streamkit("validate", copy)
    lines = done.out.splitlines()
    assert (done.code, len(lines)) == (1, 3), done
    assert "'call' of 'process': each is `async`" in lines[0]
    assert "'call' of 'process': Each.process is `async`" in lines[1]
    assert "there is no module 'nowhere.near' beside the file or on the Python path" in lines[2]


def test_a_store_that_does_not_exist_is_named_by_the_driver(copy: Path) -> None:
    with load(copy).driver() as running:
        assert running.stores["n"] == []
        assert "m" not in running.stores
        with pytest.raises(UnknownStoreError, match=r"there is no store 'counts'; the topology has n$"):
            running.stores["counts"]


def test_times_follow_the_rate(copy: Path) -> None:
    text = copy.read_text()
    copy.write_text(f"{text}generators:\n  in: {{value: '{{\"n\": sequence}}', every: 1s}}\n")
    options = ("generate", copy, "--stdout", "--start", "1000", "--count", 5)

    def times(*rate: object) -> list[int]:
        return [json.loads(line)["timestamp"] for line in streamkit(*options, *rate).out.splitlines()]

    assert times() == [1000, 2000, 3000, 4000, 5000]
    assert times("--rate", "100/s") == [1000, 1010, 1020, 1030, 1040]
