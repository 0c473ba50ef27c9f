"""No topology exhausts the machine by what its expressions make of a record, or by how long they take."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

from tests.compile.attacks import ATTACKS, SPACE
from tests.compile.support import driver_of, dropped, record

MOST_MEMORY = 500_000
"""kB"""
NO_END = 300
"""Seconds after which a process is taken for one without an end."""
BOUNDS = ("more than", "at most", "longer than")


def test_every_attack_ends_in_one_error_at_its_step(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "tests.compile.attacks", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=NO_END, check=True)
    *lines, memory = done.stdout.splitlines()
    found = {line["name"]: line["error"] for line in map(json.loads, lines)}
    assert found.keys() == ATTACKS.keys()
    for name, error in found.items():
        assert error.startswith(f"{tmp_path}/topology.yaml:"), name
        assert "pipeline " in error, name
        assert any(bound in error for bound in BOUNDS), (name, error)
        assert "\n" not in error
    assert int(memory) < MOST_MEMORY


def test_an_application_ends_in_the_same_error(tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(ATTACKS["lists of lists"].topology(), encoding="utf-8")
    code = (
        "import resource, sys\n"
        f"resource.setrlimit(resource.RLIMIT_AS, ({2 * SPACE}, {2 * SPACE}))\n"
        "import runpy\n"
        "runpy.run_module('streamkit_cli', run_name='__main__')\n"
    )
    environment = {**os.environ, "STREAMKIT_STATE_DIR": str(tmp_path / "state")}

    def streamkit(*arguments: str, text: str = "") -> subprocess.CompletedProcess[str]:
        command = [sys.executable, "-c", code, *arguments]
        return subprocess.run(
            command,
            input=text,
            capture_output=True,
            text=True,
            timeout=NO_END,
            check=False,
            env=environment,
            cwd=tmp_path,
        )

    assert streamkit("produce", str(path), text='{"topic": "in", "key": "k", "value": "x"}\n').returncode == 0
    done = streamkit("run", str(path), "--until-idle")
    assert done.returncode == 1, done.stderr
    assert "the record makes more than 67108864 bytes (expression.max.bytes)" in done.stderr
    assert "step map_values" in done.stderr


CHAIN = """
p:
  stream: in
  steps:
    - map_values: {value: value + value%s}
    - map_values: value + value
    - map_values: value + value
    - map_values: value + value
    - map_values: value + value
  to: out
"""


def test_on_error_may_drop_a_record_beyond_the_budget(tmp_path: Path) -> None:
    pipelines = CHAIN.replace("%s", "").replace(
        "- map_values: value + value", "- map_values: {value: value + value, on_error: continue}"
    )
    driver = driver_of(
        tmp_path, pipelines.replace("{value: value + value}", "value + value"), "expression.max.bytes: 1000000"
    )
    found = [driver.pipe(record("x" * size)) for size in (10, 30_000, 10)]
    assert [len(output[0]["value"]) if output else None for output in map(list, found)] == [320, None, 320]
    assert dropped(driver) == 1


@pytest.mark.parametrize(("setting", "value"), [("expression.max.bytes", "65536"), ("expression.max.steps", "10000")])
def test_settings_bound_a_record(tmp_path: Path, setting: str, value: str) -> None:
    driver = driver_of(tmp_path, CHAIN.replace("%s", ""), f"{setting}: {value}, processing.exception.handler: continue")
    assert list(driver.pipe(record("x" * 100)))
    assert not list(driver.pipe(record("x" * 40_000)))


def test_each_held_back_record_has_a_budget_of_its_own(tmp_path: Path) -> None:
    steps = "".join("    - map_values: '{a: value.a + value.a}'\n".replace("{a:", '{"a":') for _ in range(5))
    pipelines = "t:\n  table: in\n  steps:\n    - suppress: 10s\n" + steps + "    - to_stream\n  to: out\n"
    driver = driver_of(tmp_path, pipelines, "expression.max.bytes: 200000")
    for at in range(20):
        assert not list(driver.pipe(record({"a": "x" * 1000}, key=f"k{at}", timestamp=at)))
    found = list(driver.pipe(record({"a": "x"}, key="last", timestamp=60_000)))
    assert [len(each["value"]["a"]) for each in found] == [32_000] * 20


def test_a_row_that_outgrows_max_request_size_fails_its_record_and_stays(tmp_path: Path) -> None:
    pipelines = """
    p:
      stream: in
      steps:
        - group_by_key
        - aggregate: {initial: "[]", add: "[*aggregate, value]"}
        - to_stream
      to: out
    """
    settings = "max.request.size: 100000, processing.exception.handler: continue"
    driver = driver_of(tmp_path, pipelines, settings)
    found = [list(driver.pipe(record("x" * size))) for size in (60_000, 50_000, 30_000)]
    assert [[len(text) for text in each[0]["value"]] if each else None for each in found] == [
        [60_000],
        None,
        [60_000, 30_000],
    ]
