"""`run` with several topologies: separate applications in one process, with one page."""

from __future__ import annotations

import json
import signal
import subprocess
from pathlib import Path
from urllib.request import urlopen

import pytest

from tests.broker.support import until
from tests.cli.support import LIMIT_S, assert_one_clear_line, command, streamkit
from tests.ports import free_ports

TOPOLOGY = """streamkit: 1
application: {name}
config: {{state.dir: {state}}}
topics: {{in: {{value: json, partitions: 1}}, {name}-out: {{value: json, partitions: 1}}}}
pipelines:
  p: {{stream: in, steps: [map_values: {step}], to: {name}-out}}
"""


@pytest.fixture
def files(tmp_path: Path) -> list[Path]:
    """Two topologies that read one topic of an embedded log."""
    for name, step in (("one", "value + 1"), ("two", "value * 10")):
        text = TOPOLOGY.format(name=name, step=step, state=tmp_path / "state")
        (tmp_path / f"{name}.yaml").write_text(text)
    assert streamkit("produce", tmp_path / "one.yaml", "in", stdin='{"value": 4}\n{"value": 5}\n').code == 0
    return [tmp_path / "one.yaml", tmp_path / "two.yaml"]


def values(file: Path, topic: str) -> list[int]:
    done = streamkit("consume", file, topic, "--until-idle")
    return [json.loads(line)["value"] for line in done.out.splitlines()]


def test_each_is_an_application_of_its_own(files: list[Path]) -> None:
    done = streamkit("run", *files, "--until-idle")
    assert (done.code, done.out) == (0, "")
    assert values(files[0], "one-out") == [5, 6]
    assert values(files[1], "two-out") == [40, 50]


@pytest.mark.parametrize("form", ["text", "json"])
def test_lines_of_the_log_name_the_application(files: list[Path], form: str) -> None:
    done = streamkit("run", *files, "--until-idle", "--log-level", "info", "--log-format", form)
    for name in ("one", "two"):
        lines = done.err.splitlines()
        if form == "json":
            shown = [each["message"] for each in map(json.loads, lines) if each["application"] == name]
        else:
            shown = [line.partition(f" INFO {name}: ")[2] for line in lines if f" INFO {name}: " in line]
        assert (shown[0], shown[-1]) == ("state CREATED -> REBALANCING", "state PENDING_SHUTDOWN -> NOT_RUNNING")


def test_one_page_shows_all_and_a_signal_ends_all(files: list[Path]) -> None:
    port = _free_ports()
    line = command("run", *files, "--http", f"127.0.0.1:{port}")
    with subprocess.Popen(line, stderr=subprocess.PIPE, text=True) as process:
        try:
            until(
                lambda: [each["state"] for each in _applications(port)] == ["RUNNING", "RUNNING"],
                "both applications run",
            )
            found = {each["application"]: each for each in _applications(port)}
            assert {name: each["address"] for name, each in found.items()} == {
                "one": f"127.0.0.1:{port + 1}",
                "two": f"127.0.0.1:{port + 2}",
            }
            for name, each in found.items():
                status = json.load(urlopen(f"http://{each['address']}/status?scope=local"))
                assert name in json.dumps(status)
            refused = streamkit("status", f"http://127.0.0.1:{port}")
            assert_one_clear_line(refused, 1, *(f"{name} at http://{each['address']}" for name, each in found.items()))
        finally:
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=LIMIT_S)
        assert process.returncode == 0


def _applications(port: int) -> list[dict]:
    try:
        with urlopen(f"http://127.0.0.1:{port}/applications") as answer:
            found: list[dict] = json.load(answer)
            return sorted(found, key=lambda each: each["application"])
    except OSError:
        return []


def _free_ports() -> int:
    """Return a port whose next two are free as well."""
    while True:
        port, *others = free_ports(3)
        if others == [port + 1, port + 2]:
            return port


def test_the_failure_of_one_ends_the_others_in_order(files: list[Path]) -> None:
    text = files[1].read_text()
    files[1].write_text(text.replace("value * 10", "value.missing"))
    done = streamkit("run", *files)
    assert done.code == 1
    assert "two.yaml" in done.err
    assert "the application two failed, so the others were stopped" in done.err
    assert "Traceback" not in done.err
    assert values(files[0], "one-out") in ([], [5, 6])


def test_mistakes_of_all_files_are_reported_together(files: list[Path]) -> None:
    for file in files:
        file.write_text(file.read_text().replace("map_values", "map_value"))
    done = streamkit("run", *files)
    assert done.code == 1
    assert f"{files[0]}:6:" in done.err
    assert f"{files[1]}:6:" in done.err


def test_what_does_not_go_together_is_one_line(files: list[Path]) -> None:
    files[1].write_text(files[0].read_text())
    assert_one_clear_line(streamkit("run", *files), 2, "define the same application, one; give each its own name")
    assert_one_clear_line(streamkit("run", *files, "--processes", "2"), 2, "--processes runs one topology")
    assert_one_clear_line(streamkit("run", *files, "--live"), 2, "--live shows only one application")
    assert_one_clear_line(streamkit("run", files[0], "-"), 2, "stdin can hold only one topology")
