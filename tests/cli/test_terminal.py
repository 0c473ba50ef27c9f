"""`run` at a terminal and in a pipe: the table, lines of text, lines of JSON."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from dataclasses import fields, replace
from io import StringIO
from pathlib import Path
from typing import Any

import pytest
from rich.console import Console

from streamkit.runtime.local.status_model import (
    ApplicationStatus,
    DropStatus,
    GroupStatus,
    InputStatus,
    PartitionStatus,
    RestoreStatus,
    TaskStatus,
    ThreadStatus,
    TopicStatus,
)
from streamkit_cli.commands.run import summary
from streamkit_cli.live import render
from tests.cli.support import LIMIT_S, UPPER, command, streamkit
from tests.requirements import terminal


@pytest.fixture
def upper(tmp_path: Path) -> Path:
    path = tmp_path / "upper.yaml"
    path.write_text(UPPER.format(state=tmp_path / "state"))
    streamkit("produce", path, "words", "--lines", stdin="a\nb\n")
    return path


BLANK = {"int": 0, "float": 0.0, "str": "", "tuple": (), "Mapping": {}, "bool": False, "GroupStatus": GroupStatus(())}


def made(kind: type, /, **given: object) -> Any:
    """Make a part of a snapshot whose other fields are empty: the table shows only some of what there is."""
    blank = {each.name: BLANK[str(each.type).partition("[")[0].partition(" ")[0]] for each in fields(kind)}
    return kind(**{**blank, **given})


def task(number: int, lag: int | None) -> TaskStatus:
    inputs = (made(PartitionStatus, topic="in", partition=number, lag=lag),)
    named = {"id": f"0_{number}", "kind": "active", "state": "RUNNING", "stores": ("counts",)}
    return made(TaskStatus, **named, processed=1234, rate=56.7, dropped=number, inputs=inputs)


def status(*tasks: TaskStatus, restoring: tuple[RestoreStatus, ...] = ()) -> ApplicationStatus:
    thread = made(ThreadStatus, name="app-1-StreamThread-1", state="RUNNING", error=None, tasks=tasks)
    topics = (
        made(TopicStatus, topic="in", consumed_rate=12.0, lag=7),
        made(TopicStatus, topic="out", produced_rate=5.0, lag=None),
    )
    inputs = tuple(made(InputStatus, topic="in", lag=part.lag) for each in tasks for part in each.inputs)
    parts = {"threads": (thread,), "restoring": restoring, "topics": topics, "inputs": inputs, "error": None}
    return made(ApplicationStatus, application="app", state="RUNNING", uptime_seconds=61.0, rate=56.7, **parts)


def drawn(state: ApplicationStatus, height: int = 40) -> list[str]:
    console = Console(file=StringIO(), width=120)
    console.print(render(state, height))
    return console.file.getvalue().splitlines()  # type: ignore[attr-defined]


def test_the_table_has_tasks_topics_and_restoring() -> None:
    restoring = made(RestoreStatus, task="0_0", store="counts", restored=250, total=1000, rate=50.0, eta_seconds=15.0)
    lines = drawn(status(task(0, 7), restoring=(restoring,)))
    assert lines[0].split() == ["app", "RUNNING", "up", "0:01:01", "57", "records/s", "lag", "7"]
    assert ["0_0", "StreamThread-1", "RUNNING", "57", "7", "1,234", "0", "counts"] in [line.split() for line in lines]
    assert ["in", "12", "0", "7"] in [line.split() for line in lines]
    # It is read by no task: its lag is not unknown, it has none.
    assert ["out", "0", "5", "-"] in [line.split() for line in lines]
    (bar,) = [line for line in lines if line.startswith("counts")]
    assert "250 of 1,000" in bar
    assert "0:00:15 left" in bar


def test_a_small_terminal_shows_the_tasks_that_are_most_behind() -> None:
    lines = drawn(status(*(task(number, number) for number in range(30))), height=20)
    assert len(lines) < 20
    assert any(line.startswith("0_29") for line in lines), lines
    assert any("more" in line for line in lines), lines


def test_what_is_unknown_is_no_number() -> None:
    assert "lag ?" in summary(status(task(0, None)))
    assert summary(status(task(0, 3))) == "app RUNNING: 1 task on 1 thread, 57 records/s, lag 3"


def test_what_is_wrong_is_on_the_first_lines() -> None:
    lost = made(InputStatus, topic="in", partition=3, state="UNOWNED", lag=5000)
    drop = made(DropStatus, task="0_1", reason="late", dropped=12, dead_letters=3, message="topic in, offset 7")
    state = replace(status(task(0, 7)), paused=True, drops=(drop,))
    state = replace(state, inputs=(*state.inputs, lost))
    lines = drawn(state)
    assert lines[0].split() == ["app", "PAUSED", "up", "0:01:01", "57", "records/s", "lag", "5,007"]
    assert lines[1].strip() == "1 of 2 inputs without an owner: in 3"
    (dropped,) = [line.split() for line in lines if line.startswith("late")]
    assert dropped == ["late", "0_1", "12", "3", "topic", "in,", "offset", "7"]
    assert summary(state).startswith("app PAUSED: ")
    assert summary(state).endswith("1 of 2 input partitions without an owner, 12 records dropped, 3 dead letters")


def test_a_terminal_shows_the_table(upper: Path) -> None:
    ours, theirs = terminal()
    process = subprocess.Popen(
        command("run", upper), stdin=theirs, stdout=theirs, stderr=theirs, env={**os.environ, "TERM": "xterm"}
    )
    os.close(theirs)
    seen = ""
    try:
        while "0_1" not in seen or "words-in" not in seen:
            seen += os.read(ours, 65536).decode(errors="replace")
        process.send_signal(signal.SIGTERM)
        # A terminal without a reader would block the process.
        while chunk := _read(ours):
            seen += chunk
        assert process.wait(LIMIT_S) == 0
    finally:
        process.kill()
        process.wait()
        os.close(ours)
    assert "upper" in seen
    assert "RECORDS/S" in seen
    assert "NOT_RUNNING" in seen


def _read(terminal: int) -> str:
    try:
        return os.read(terminal, 65536).decode(errors="replace")
    except OSError:
        return ""


def test_a_pipe_gets_lines(upper: Path) -> None:
    done = streamkit("run", upper, "--until-idle", "--log-level", "info")
    assert (done.code, done.out) == (0, "")
    assert "INFO state REBALANCING -> RUNNING" in done.err
    assert "\x1b" not in done.err


def test_a_job_that_ends_on_its_own_is_silent(upper: Path) -> None:
    environment = {name: value for name, value in os.environ.items() if name != "STREAMKIT_LOG_LEVEL"}
    done = subprocess.run(
        command("run", upper, "--until-idle"),
        capture_output=True,
        text=True,
        env=environment,
        check=False,
        timeout=LIMIT_S,
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")


def test_the_command_line_goes_before_the_environment(upper: Path) -> None:
    running = "state REBALANCING -> RUNNING"
    quiet = {"STREAMKIT_LOG_LEVEL": "error"}
    assert running not in streamkit("run", upper, "--until-idle", **quiet).err
    assert running in streamkit("--verbose", "run", upper, "--until-idle", **quiet).err
    assert running not in streamkit("--verbose", "run", upper, "--until-idle", "--log-level", "error").err


def test_lines_of_json(upper: Path) -> None:
    done = streamkit("run", upper, "--until-idle", "--log-level", "info", "--log-format", "json")
    lines = [json.loads(line) for line in done.err.splitlines()]
    assert {"time", "level", "logger", "thread", "message"} == lines[0].keys()
    assert "state REBALANCING -> RUNNING" in [line["message"] for line in lines]


def test_the_last_line_of_json_has_the_reason_of_the_end(upper: Path) -> None:
    streamkit("run", upper, "--until-idle")
    upper.write_text(upper.read_text().replace("value: string, partitions: 2}", "value: string, partitions: 3}", 1))
    done = streamkit("run", upper, "--until-idle", "--log-format", "json")
    last = json.loads(done.err.splitlines()[-1])
    assert (done.code, last["level"]) == (1, "error")
    assert "words-in has 2 partitions" in last["message"]


def test_a_summary_now_and_then(upper: Path) -> None:
    process = subprocess.Popen(
        command("run", upper, "--set", "log.summary.interval.ms=50", "--log-level", "info"),
        stderr=subprocess.PIPE,
        text=True,
    )
    assert process.stderr is not None
    try:
        assert any("upper RUNNING: 2 tasks on 1 thread" in line for line in process.stderr)
    finally:
        process.terminate()
        process.communicate(timeout=LIMIT_S)
    assert process.returncode == 0
