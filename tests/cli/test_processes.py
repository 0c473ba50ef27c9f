"""`run --processes`: instances share the work, are started again, and end with their supervisor."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path

import pytest

from streamkit.runtime.local import supervisor
from streamkit.runtime.local.supervisor import Supervisor
from tests.broker.support import until
from tests.cli.support import LIMIT_S, assert_one_clear_line, command, streamkit
from tests.ports import free_ports

TEXT = """\
streamkit: 1
application: wc
config: {{bootstrap.servers: embedded, state.dir: {state}, commit.interval.ms: 50}}
topics:
  lines: {{key: string, value: string, partitions: 4}}
  counts: {{key: string, value: long, partitions: 1}}
pipelines:
  words:
    stream: lines
    steps:
      - flat_map_values: {{values: value.split(), value_serde: string}}
      - group_by: {{key: value, key_serde: string}}
      - count: counts
      - to_stream
    to: counts
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "wc.yaml"
    path.write_text(TEXT.format(state=tmp_path / "state"))
    return path


def fill(file: Path, lines: int) -> None:
    text = "".join(f"all w{number % 10}\n" for number in range(lines))
    assert streamkit("produce", file, "lines", "--lines", stdin=text).code == 0


def counted(file: Path) -> int:
    """How many lines are counted so far: `all` is in each."""
    done = streamkit("consume", file, "counts", "--until-idle")
    values = [int(line.rsplit('"value":')[1].split(",")[0]) for line in done.out.splitlines() if '"key":"all"' in line]
    return max(values, default=0)


def children(process: subprocess.Popen) -> list[int]:
    task = Path(f"/proc/{process.pid}/task/{process.pid}/children")
    return [int(number) for number in task.read_text().split()]


def command_lines(process: subprocess.Popen) -> list[list[bytes]]:
    return [Path(f"/proc/{each}/cmdline").read_bytes().split(b"\0") for each in children(process)]


def alive(number: int) -> bool:
    try:
        return Path(f"/proc/{number}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_instances_share_the_work_until_idle(file: Path, tmp_path: Path) -> None:
    fill(file, 500)
    done = streamkit("run", file, "--processes", 2, "--until-idle", "--log-level", "info")
    assert done.code == 0
    assert counted(file) == 500
    # The first has the directory of a single process, the other its own in it; the log is shared.
    assert {each.name for each in (tmp_path / "state").iterdir()} == {"wc", "instance-2", "embedded"}
    assert {line[:4] for line in done.err.splitlines()} == {"1 | ", "2 | "}
    fill(file, 100)
    assert streamkit("run", file, "--until-idle").code == 0
    assert counted(file) == 600


def test_a_killed_instance_starts_again_and_a_killed_supervisor_leaves_none(file: Path) -> None:
    fill(file, 100)
    # The session of the one that is killed has to end.
    line = command("run", file, "--processes", 2, "--set", "consumer.session.timeout.ms=2000")
    process = subprocess.Popen(line, stderr=subprocess.PIPE)
    try:
        first = until(lambda: len(children(process)) == 2 and children(process), "two instances")
        until(lambda: counted(file) >= 100, "the first lines")
        os.kill(first[0], signal.SIGKILL)
        until(lambda: len(children(process)) == 2 and children(process) != first, "another instance")
        fill(file, 100)
        until(lambda: counted(file) >= 200, "the lines after it")
        left = children(process)
        process.kill()
        until(lambda: not any(map(alive, left)), "the instances end too")
    finally:
        process.kill()
        _, err = process.communicate(timeout=LIMIT_S)
    assert b"instance 1 ended with signal 9; it restarts in 1 s" in err


def test_a_hang_up_renews_instances_and_a_signal_ends_them_in_order(file: Path) -> None:
    fill(file, 100)
    process = subprocess.Popen(command("run", file, "--processes", 2), stderr=subprocess.PIPE)
    try:
        before = until(lambda: len(children(process)) == 2 and set(children(process)), "two instances")
        until(lambda: counted(file) == 100, "the lines")
        process.send_signal(signal.SIGHUP)
        until(lambda: len(children(process)) == 2 and not before & set(children(process)), "two others")
        process.terminate()
        _, err = process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
    assert (process.returncode, err) == (0, b"")
    assert counted(file) == 100


def test_a_failure_that_ends_the_application_ends_all_for_good(file: Path) -> None:
    file.write_text(file.read_text().replace("value.split()", "'[str(int(word)) for word in value.split()]'"))
    process = subprocess.Popen(
        command("run", file, "--processes", 2, "--on-thread-failure", "shutdown-application"),
        stderr=subprocess.PIPE,
        text=True,
    )
    try:
        until(lambda: len(children(process)) == 2, "two instances")
        assert streamkit("produce", file, "lines", "--lines", stdin="not-a-number\n").code == 0
        _, err = process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
    assert process.returncode == 1
    assert "requested that all instances stop; all instances stop" in err
    assert "restarts" not in err


def test_secrets_are_on_no_command_line(file: Path, tmp_path: Path) -> None:
    secret, token = "sesame-7f3a", tmp_path / "token"
    token.write_text(secret)
    settings = [
        "--set",
        f"sasl.password={secret}",
        f"--set=basic.auth.user.info=u:{secret}",
        "--set",
        "commit.interval.ms=100",
    ]
    ports = free_ports(1)[0]
    line = command("run", file, "--processes", 2, *settings, "--http", f"127.0.0.1:{ports}", "--http-token-file", token)
    process = subprocess.Popen(line, stderr=subprocess.PIPE)
    try:
        # Until it executes its own program, a child has the command line of its parent, to which the user gave the secret.
        lines = until(
            lambda: (
                len(found := command_lines(process)) == 2
                and not any(b"--processes" in each for each in found)
                and found
            ),
            "two instances",
        )
        fill(file, 100)
        until(lambda: counted(file) == 100, "the lines")
        process.terminate()
        _, err = process.communicate(timeout=LIMIT_S)
    finally:
        process.kill()
    assert (process.returncode, err) == (0, b"")
    for each in lines:
        assert b"run" in each, each
        assert secret.encode() not in b" ".join(each)
        assert b"--set" not in each


def test_a_mistake_in_the_file_is_reported_once(file: Path) -> None:
    file.write_text(file.read_text().replace("count: counts", "cound: counts"))
    done = streamkit("run", file, "--processes", 3)
    assert done.code == 1
    assert done.err.count("did you mean 'count'") == 1


def test_a_topology_from_stdin_is_refused(file: Path) -> None:
    assert_one_clear_line(streamkit("run", "-", "--processes", 2, stdin=file.read_text()), 2, "--processes", "stdin")


def supervised(*programs: str) -> tuple[int, str]:
    """Run programs of Python under a supervisor without signals: its exit code and what it passed on."""
    out = io.BytesIO()
    commands = [[sys.executable, "-c", program] for program in programs]
    code = Supervisor(commands, out, out).run(threading.Event(), threading.Event())
    return code, out.getvalue().decode()


def test_what_fails_again_and_again_ends_all(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(supervisor, "FIRST_PAUSE_S", 0.001)
    waits = "import os, signal; signal.pause()"
    code, out = supervised("print('no'); raise SystemExit(3)", waits)
    assert code == 3
    assert out == "1 | no\n" * (supervisor.MAX_FAILURES + 1)


def test_wrong_usage_is_not_tried_again() -> None:
    assert supervised("raise SystemExit(2)") == (2, "")


def test_output_is_merged_by_lines() -> None:
    code, out = supervised("print('a'); print('b', end='')", "print('x' * 200_000)")
    assert code == 0
    lines = out.splitlines()
    assert "1 | a" in lines
    assert "1 | b" in lines
    assert sum(len(line) - 4 for line in lines if line.startswith("2 | ")) == 200_000
