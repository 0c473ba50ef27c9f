"""The contracts of produce, consume and run on the embedded log, and where no broker answers."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from tests.cli.support import LIMIT_S, UPPER, Done, assert_one_clear_line, command, streamkit
from tests.ports import free_ports


@pytest.fixture
def upper(tmp_path: Path) -> Path:
    """A valid topology file on an embedded log of its own."""
    path = tmp_path / "upper.yaml"
    path.write_text(UPPER.format(state=tmp_path / "state"))
    return path


def records(out: str) -> list[dict]:
    return [json.loads(line) for line in out.splitlines()]


def test_records_go_in_and_come_out(upper: Path) -> None:
    lines = (
        '{"key": "k", "value": "straße", "timestamp": 7, "headers": [["h", "x"], ["b", {"base64": "/w=="}]]}\n'
        '{"topic": "words-in", "key": "k", "value": null, "timestamp": 8}\n'
        '{"topic": "words", "key": null, "value": "z", "timestamp": 9, "partition": 1}\n'
    )
    done = streamkit("produce", upper, "words", stdin=lines)
    assert (done.code, done.out, done.err) == (0, "", "")
    done = streamkit("consume", upper, "words", "--until-idle")
    assert (done.code, done.err) == (0, "")
    found = sorted(records(done.out), key=lambda record: record["timestamp"])
    assert [record["value"] for record in found] == ["straße", None, "z"]
    assert {record["topic"] for record in found} == {"words-in"}
    assert found[0]["headers"] == [["h", "x"], ["b", {"base64": "/w=="}]]
    assert found[0]["partition"] == found[1]["partition"]
    assert found[2]["partition"] == 1


def test_timestamps_are_written_as_in_test_files(upper: Path) -> None:
    times = [7, "90s", "PT2M", "1970-01-01T00:03:00Z", "1970-01-01T01:04:00+01:00", "1970-01-01T00:05"]
    lines = "".join(json.dumps({"value": "a", "timestamp": time, "partition": 0}) + "\n" for time in times)
    done = streamkit("produce", upper, "words", stdin=lines)
    assert (done.code, done.err) == (0, "")
    found = records(streamkit("consume", upper, "words", "--until-idle").out)
    assert [record["timestamp"] for record in found] == [7, 90_000, 120_000, 180_000, 240_000, 300_000]


def test_the_folder_beside_the_file_is_named_at_first_use(tmp_path: Path) -> None:
    path = tmp_path / "upper.yaml"
    path.write_text(UPPER.format(state="").replace(", state.dir: ", ""))
    place = tmp_path / ".streamkit"
    first, second = (streamkit("produce", path, "words", "--lines", stdin="a\n") for _ in range(2))
    assert (first.code, first.err) == (0, f"streamkit: the log and the state are kept in {place} (state.dir)\n")
    assert (second.code, second.err) == (0, "")
    assert place.is_dir()


def test_run_until_idle_processes_everything_once(upper: Path) -> None:
    streamkit("produce", upper, "words", "--lines", stdin="a\nb\nc\n")
    for _ in range(2):
        done = streamkit("run", upper, "--until-idle")
        assert (done.code, done.out, done.err) == (0, "", "")
    done = streamkit("consume", upper, "loud", "--until-idle", "--lines")
    assert sorted(done.out.split()) == ["A", "B", "C"]


def test_the_embedded_log_has_whatever_topic_is_written(upper: Path) -> None:
    upper.write_text(upper.read_text().replace(", partitions: 2", ""))
    streamkit("produce", upper, "words", "--lines", stdin="a\nb\n")
    assert streamkit("run", upper, "--until-idle").code == 0
    done = streamkit("consume", upper, "loud", "--until-idle", "--lines")
    assert (done.code, done.out) == (0, "A\nB\n")


def test_consume_ends_after_max(upper: Path) -> None:
    streamkit("produce", upper, "words", "--lines", stdin="".join(f"{n}\n" for n in range(2500)))
    for most in (0, 1, 2300):
        done = streamkit("consume", upper, "words", "--max", most)
        assert (done.code, len(done.out.splitlines())) == (0, most)


def test_run_ends_in_order_by_signal(upper: Path) -> None:
    for round_, number in enumerate((signal.SIGTERM, signal.SIGINT), 1):
        streamkit("produce", upper, "words", "--lines", stdin="a\n")
        process = subprocess.Popen(command("run", upper), stdout=subprocess.PIPE, stderr=subprocess.PIPE)
        # What run has written is there: it is up and has processed.
        assert streamkit("consume", upper, "loud", "--max", round_, "--lines").out == "A\n" * round_
        process.send_signal(number)
        out, err = process.communicate(timeout=LIMIT_S)
        assert (process.returncode, out, err) == (0, b"", b"")
    assert streamkit("consume", upper, "loud", "--until-idle", "--lines").out == "A\n" * 2


def test_consume_follows_until_a_signal(upper: Path) -> None:
    streamkit("produce", upper, "words", "--lines", stdin="a\n")
    process = subprocess.Popen(command("consume", upper, "words", "--lines"), stdout=subprocess.PIPE)
    assert process.stdout is not None
    assert process.stdout.readline() == b"a\n"
    streamkit("produce", upper, "words", "--lines", stdin="b\n")
    assert process.stdout.readline() == b"b\n"
    process.send_signal(signal.SIGTERM)
    assert process.wait(LIMIT_S) == 0
    process.stdout.close()


def test_topics_are_named_as_the_file_names_them(upper: Path) -> None:
    for name in ("produce", "consume"):
        assert_one_clear_line(streamkit(name, upper, "wrds"), 2, "'wrds'", "'words'")


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        (b"nonsense", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b'{"value":', "; write each record on one line"),
        (b'"text"', "object"),
        (b'{"value": 5}', "value"),
        (b'{"value": "a", "partition": 2}', "partition is 2; topic words has 2 partitions, counted from 0"),
        (b'{"value": "a", "partition": true}', "partition"),
        (b'{"value": "a", "timestamp": 1.5}', "timestamp"),
        (b'{"value": "a", "timestamp": -1}', "timestamp is -1; Kafka takes none before 1970"),
        (b'{"value": "a", "timestamp": "1969-12-31T23:59:59Z"}', "Kafka takes none before 1970"),
        (b'{"value": "a", "timestamp": "yesterday"}', "a time such as 2025-01-31T08:00:00Z"),
        (b'{"value": "a", "vlaue": "b"}', "vlaue"),
        (b'{"value": "a", "topic": "words-out"}', "words-out"),
        (b'{"value": "\xff"}', "UTF-8"),
    ],
)
def test_a_bad_line_is_named_and_what_came_before_is_written(line: bytes, reason: str, upper: Path) -> None:
    done = streamkit("produce", upper, "words", stdin=b'{"value": "first"}\n' + line + b'\n{"value": "third"}\n')
    assert_one_clear_line(done, 1, "stdin:2: ", reason, "records written before it: 1")
    assert streamkit("consume", upper, "words", "--until-idle", "--lines").out == "first\n"


def test_a_record_that_fails_ends_run_and_is_not_lost(upper: Path) -> None:
    streamkit("produce", upper, "words", stdin='{"key": "k", "value": "a"}\n{"key": "k", "value": null}\n')
    for _ in range(2):
        done = streamkit("run", upper, "--until-idle")
        assert_one_clear_line(done, 1, f"{upper}:", "shout", "map_values", "words-in", "offset 1")
        assert "'on_error' of the step or processing.exception.handler: continue" in done.err
    assert "the application has not started" in streamkit("lag", upper).out
    text = upper.read_text().replace("value: value.upper()", "value: (value or 'none').upper()")
    upper.write_text(text)
    assert streamkit("run", upper, "--until-idle").code == 0
    assert "NONE" in streamkit("consume", upper, "loud", "--until-idle", "--lines").out.split()


def test_the_handler_continue_continues(upper: Path) -> None:
    streamkit("produce", upper, "words", stdin='{"key": "k", "value": null}\n{"key": "k", "value": "a"}\n')
    done = streamkit("run", upper, "--until-idle", "--set", "processing.exception.handler=continue")
    assert done.code == 0
    assert streamkit("consume", upper, "loud", "--until-idle", "--lines").out == "A\n"


def test_two_processes_on_one_state_directory(upper: Path, tmp_path: Path) -> None:
    streamkit("produce", upper, "words", "--lines", stdin="a\n")
    first = subprocess.Popen(command("run", upper))
    try:
        streamkit("consume", upper, "loud", "--max", 1)
        assert_one_clear_line(streamkit("run", upper, "--until-idle"), 1, tmp_path / "state")
    finally:
        first.terminate()
        assert first.wait(LIMIT_S) == 0


@pytest.mark.parametrize("state", ["/proc/streamkit", "/dev/null/streamkit"])
def test_a_state_directory_that_cannot_be_made(state: str, tmp_path: Path) -> None:
    path = tmp_path / "upper.yaml"
    path.write_text(UPPER.format(state=state))
    for arguments in (("produce", path, "words"), ("consume", path, "words", "--until-idle"), ("run", path)):
        assert_one_clear_line(streamkit(*arguments), 1, state)


def test_a_topic_with_another_partition_count(upper: Path) -> None:
    streamkit("produce", upper, "words", "--lines", stdin="a\n")
    upper.write_text(upper.read_text().replace("value: string, partitions: 2}", "value: string, partitions: 3}", 1))
    assert_one_clear_line(streamkit("run", upper, "--until-idle"), 1, "words-in", "2", "3")


@pytest.fixture
def closed_port() -> str:
    """An address where no program listens."""
    return f"127.0.0.1:{free_ports(1)[0]}"


def test_a_broker_that_does_not_answer(closed_port: str, upper: Path) -> None:
    # All at once: each waits for its time-out.
    run = ("run", upper, "--until-idle", "--log-level", "error", "--set", "task.timeout.ms=0")
    commands = [run, ("produce", upper, "words"), ("consume", upper, "words")]
    with ThreadPoolExecutor() as pool:
        for done in pool.map(lambda each: streamkit(*each, "--set", f"bootstrap.servers={closed_port}"), commands):
            # After 2 s a first line has what was tried (test_silence.py).
            lines = [line for line in done.err.splitlines() if "no answer from" not in line]
            assert_one_clear_line(Done(done.code, done.out, "\n".join(lines)), 1, closed_port)


def test_a_reader_that_goes_away_is_no_traceback(upper: Path) -> None:
    streamkit("produce", upper, "words", "--lines", stdin="".join(f"{n}\n" for n in range(20_000)))
    reading, writing = os.pipe()
    with os.fdopen(writing, "wb") as pipe:
        process = subprocess.Popen(command("consume", upper, "words"), stdout=pipe, stderr=subprocess.PIPE)
    with os.fdopen(reading, "rb") as read:
        read.read(10)
    _, err = process.communicate(timeout=LIMIT_S)
    assert err == b""
