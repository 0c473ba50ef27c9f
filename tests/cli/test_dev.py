"""`streamkit dev`: restarts after valid changes, shows mistakes, keeps what runs, and ends in order."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamkit.errors import TransportError, UsageError
from streamkit_cli.commands.dev import (
    VERSION,
    Change,
    Development,
    DevelopmentBroker,
    Options,
    development_settings,
    fetch_jars,
    free_port,
    require_valid_options,
)
from tests.broker.kafka_broker import jars
from tests.cli.support import LIMIT_S, assert_one_clear_line, command, streamkit

TOPOLOGY = """\
streamkit: 1
application: shop
topics:
  orders: {key: string, value: string, partitions: 1}
  shown:  {key: string, value: string, partitions: 1}
pipelines:
  shown:
    stream: orders
    steps:
      - map_values: {value: value.upper()}
    to: shown
"""
GENERATORS = """
generators:
  orders: {key: "'k'", value: "'made'", every: 1s}
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    path = tmp_path / "shop.yaml"
    path.write_text(TOPOLOGY)
    return path


@pytest.fixture
def started() -> Iterator[list[Development]]:
    """Those that a test has made, which end after it."""
    made: list[Development] = []
    yield made
    for each in made:
        each.close()


def development(file: Path, started: list[Development], rate: str | None = None) -> Development:
    made = Development(str(file), Options(development_settings(str(file), {}), None, None, rate))
    started.append(made)
    return made


def shown(file: Path, count: int) -> list[str]:
    """The values of the first records of the output, once there are so many."""
    settings = [part for pair in development_settings(str(file), {}).items() for part in ("--set", "=".join(pair))]
    done = streamkit("consume", file, "shown", "--limit", str(count), *settings)
    assert done.code == 0, done.err
    return [json.loads(line)["value"] for line in done.out.splitlines()]


def produce(file: Path, value: str) -> None:
    settings = [part for pair in development_settings(str(file), {}).items() for part in ("--set", "=".join(pair))]
    record = json.dumps({"topic": "orders", "key": "k", "value": value})
    assert streamkit("produce", file, *settings, stdin=record).code == 0


@pytest.mark.process
def test_valid_changes_restart_and_mistakes_do_not(
    file: Path, started: list[Development], capfd: pytest.CaptureFixture[str]
):
    dev = development(file, started)
    assert dev.look() is Change.STARTED
    assert dev.look() is Change.NOTHING
    produce(file, "a")
    assert shown(file, 1) == ["A"]
    first = dev.process
    capfd.readouterr()

    file.write_text(TOPOLOGY.replace("to: shown", "to: shwon"))
    assert dev.look() is Change.MISTAKES
    out, err = capfd.readouterr()
    assert out.startswith(f"{file}:11:9: There is no topic 'shwon'")
    assert err == f"streamkit: {file} has mistakes; the version before it keeps running\n"
    assert dev.process == first

    file.write_text(TOPOLOGY.replace("value.upper()", "value + '!'"))
    assert dev.look() is Change.RESTARTED
    assert dev.process not in (None, first)
    produce(file, "b")
    assert shown(file, 2) == ["A", "b!"]


@pytest.mark.process
def test_an_application_that_ends_starts_again_after_a_change_of_its_python(
    file: Path, started: list[Development], tmp_path: Path, capfd: pytest.CaptureFixture[str]
):
    file.write_text(TOPOLOGY.replace("{value: value.upper()}", "{call: shout:shout}"))
    module = tmp_path / "shout.py"
    module.write_text("def shout(key, value):\n    raise ValueError(value)\n")
    dev = development(file, started)
    assert dev.look() is Change.STARTED
    produce(file, "a")
    assert dev._application is not None
    assert dev._application.wait(LIMIT_S) == 1
    assert dev.look() is Change.ENDED
    assert "has ended with exit code 1; it starts again after the next change" in capfd.readouterr().err
    module.write_text("def shout(key, value):\n    return value * 2\n")
    assert dev.look() is Change.RESTARTED
    assert shown(file, 1) == ["aa"]


@pytest.mark.process
def test_generators_run(file: Path, started: list[Development], capfd: pytest.CaptureFixture[str]):
    file.write_text(TOPOLOGY + GENERATORS)
    assert development(file, started, "100/s").look() is Change.STARTED
    assert shown(file, 3) == ["MADE"] * 3
    assert capfd.readouterr().err.endswith(f"streamkit: {file} runs; its generators write 100/s\n")


@pytest.mark.process
def test_ctrl_c_ends_all_in_order(file: Path):
    line = [*command(), "dev", file.name, "--http", "127.0.0.1:0"]
    with subprocess.Popen(line, cwd=file.parent, stderr=subprocess.PIPE, text=True, start_new_session=True) as process:
        assert process.stderr is not None
        while "runs; its page: http://127.0.0.1:0" not in process.stderr.readline():
            assert process.poll() is None
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        assert process.wait(LIMIT_S) == 0
    assert "Traceback" not in rest


def test_the_page_has_a_port_of_its_own_where_8080_is_taken():
    with socket.create_server(("127.0.0.1", 0)) as taken:
        assert free_port(taken.getsockname()[1]) != taken.getsockname()[1]


def test_a_broker_runs_with_the_topology(file: Path):
    cache = file.parent / "cache" / "streamkit"
    cache.mkdir(parents=True)
    (cache / f"kafka-{VERSION}").symlink_to(jars(VERSION))
    file.write_text(TOPOLOGY.replace(", partitions: 1", "") + GENERATORS)
    line = [*command(), "dev", file.name, "--kafka", "--http", "127.0.0.1:0"]
    environment = {**os.environ, "XDG_CACHE_HOME": str(cache.parent)}
    with subprocess.Popen(
        line, cwd=file.parent, stderr=subprocess.PIPE, text=True, start_new_session=True, env=environment
    ) as process:
        assert process.stderr is not None
        said = process.stderr.readline()
        assert said.startswith("streamkit: a Kafka broker runs at 127.0.0.1:"), said
        broker = said.split()[-1]
        # The topics exist from here on.
        assert "runs; its page" in process.stderr.readline()
        settings = ("--set", f"bootstrap.servers={broker}")
        done = streamkit("consume", file, "shown", "--limit", "1", *settings)
        assert json.loads(done.out)["value"] == "MADE", done
        process.send_signal(signal.SIGINT)
        rest = process.stderr.read()
        assert process.wait(LIMIT_S) == 0
    assert "Traceback" not in rest
    host, _, port = broker.rpartition(":")
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection((host, int(port)))


def test_what_a_broker_lacks_is_named(
    file: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    done = streamkit("dev", file, "--kafka", "--set", "bootstrap.servers=localhost:9092")
    assert_one_clear_line(done, 2, "leave --set bootstrap.servers out")
    programs = tmp_path / "programs"
    programs.mkdir()
    monkeypatch.setenv("PATH", str(programs))
    with pytest.raises(UsageError, match="there is no java on the path"):
        DevelopmentBroker(tmp_path / "broker").start(threading.Event())
    with pytest.raises(UsageError, match="there is no mvn on the path"):
        fetch_jars(tmp_path / "jars")
    maven = programs / "mvn"
    maven.write_text("#!/bin/sh\necho '[ERROR] Could not transfer artifact'\nexit 1\n")
    maven.chmod(0o755)
    with pytest.raises(TransportError, match=f"could not fetch Kafka {VERSION}: Could not transfer artifact"):
        fetch_jars(tmp_path / "jars")
    assert [each.name for each in tmp_path.iterdir() if each.name.startswith("jars")] == []
    java = programs / "java"
    java.write_text("#!/bin/sh\necho 'java.lang.IllegalStateException: no room'\nexit 1\n")
    java.chmod(0o755)
    maven.write_text('#!/bin/sh\nfor each; do case $each in -Doutput*) /bin/mkdir "${each#*=}"; esac; done\n')
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    with pytest.raises(TransportError, match=r"did not start: java\.lang\.IllegalStateException: no room \(its log: "):
        DevelopmentBroker(tmp_path / "broker").start(threading.Event())
    assert capsys.readouterr().err.count("Maven fetches Kafka") == 2


def test_options_that_no_change_mends_end_the_command(file: Path):
    wrong = Options(development_settings(str(file), {"no.such.setting": "1"}), None, None, None)
    with pytest.raises(UsageError, match=r"no\.such\.setting"):
        require_valid_options(str(file), wrong)
    file.write_text("streamkit: 1\n")
    require_valid_options(str(file), Options(development_settings(str(file), {}), None, None, None))
    for arguments, problem in ((("-",), "needs a topology file"), ((file, "--rate", "fast"), "--rate fast")):
        done = streamkit("dev", *arguments)
        assert done.code == 2
        assert problem in done.err
