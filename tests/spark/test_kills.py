"""Incremental jobs on Spark whose drivers and workers are killed at random points, and at one certain point.

STREAMKIT_KILLS=N lets N jobs run, each in one to six parts and with two kills in each part; these take minutes.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamkit.errors import StreamkitError
from streamkit.plan import load
from tests.broker.support import until
from tests.cli.support import command
from tests.conformance_cases import FOLDER, parse
from tests.spark.as_one import check_as_one, cut
from tests.spark.incremental_runs import Runs, lines
from tests.spark.support import SETTINGS

JOBS = int(os.environ.get("STREAMKIT_KILLS", "0"))
ENVIRONMENT = {name: text for name, text in os.environ.items() if not name.startswith("STREAMKIT_KILLS")}
MOST_PARTS = 6
LONGEST_S = 2.0
"""The most seconds between the step of a run at which it is killed and the kill."""
CHOSEN = (
    "suppress-tumbling-final",
    "foreign-key-join-left",
    "stream-global-join",
    "session-merges",
    "stream-join-outer",
)
"""The cases of half of the jobs; the others count words."""


class Step:
    """A step of the next run: its start, its first worker, its state, its outputs, or its commit."""

    def __init__(self, runs: Runs, draw: random.Random):
        number = runs.last_run() + 1
        self.name, self._is_there = draw.choice(
            [
                ("start", lambda driver: True),
                ("worker", lambda driver: bool(workers_of(driver))),
                ("state", lambda driver: any((runs.checkpoint / "state").glob(f"folder={number:06}-*"))),
                ("output", lambda driver: any(runs.out.glob(f"_run-{number:06}-*"))),
                ("commit", lambda driver: (runs.checkpoint / "manifests" / f"{number:06}.json").exists()),
            ]
        )
        self._after = draw.uniform(0, LONGEST_S)

    def wait(self, driver: int, ended: threading.Event) -> None:
        """Return a moment after the run has come to the step, or when it has ended."""
        while not self._is_there(driver) and not ended.wait(0.1):
            pass
        ended.wait(self._after)


def kill_driver(runs: Runs, step: Callable[[int, threading.Event], None]) -> str:
    """Start the next run as a command of its own, and kill it after `step`; return its exit code and error as text."""
    conf = [each for name, value in SETTINGS.items() for each in ("--conf", f"{name}={value}")]
    inputs = [each for name in runs.topics for each in ("--input", f"{name}={runs.folder / name},format=json")]
    line = command(
        *("submit", runs.path, "--master", "local[1]", *conf, "--emit", "updates", "--checkpoint", runs.checkpoint),
        *(*inputs, "--output", f"*={runs.out}"),
    )
    errors = runs.folder / "stderr"
    with errors.open("w") as file:
        process = subprocess.Popen(
            line, start_new_session=True, stdout=subprocess.DEVNULL, stderr=file, env=ENVIRONMENT
        )
    ended = threading.Event()
    waiting = threading.Thread(target=lambda: (process.wait(), ended.set()))
    waiting.start()
    step(process.pid, ended)
    if not ended.is_set():
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    waiting.join()
    return f"{process.returncode} {errors.read_text(encoding='utf-8').strip()}".rstrip()


def kill_worker(runs: Runs, step: Callable[[int, threading.Event], None]) -> str:
    """Run what is new in this process, and kill its newest worker after `step`; return the error of the run."""
    ended, errors = threading.Event(), []

    def run() -> None:
        try:
            runs.run()
        except StreamkitError as error:
            errors.append(str(error))
        finally:
            ended.set()

    running = threading.Thread(target=run)
    running.start()
    step(os.getpid(), ended)
    for worker in workers_of(os.getpid())[:1]:
        with contextlib.suppress(ProcessLookupError):
            os.kill(worker, signal.SIGKILL)
    running.join()
    runs.spark.catalog.clearCache()
    return "".join(errors)


def workers_of(driver: int) -> list[int]:
    """The Python workers of a driver, the newest first."""
    parents, workers = {}, []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            number = int(stat.parent.name)
            parents[number] = int(stat.read_text().rpartition(")")[2].split()[1])
            if "pyspark.daemon" in (stat.parent / "cmdline").read_text():
                workers.append(number)

    def is_below(process: int) -> bool:
        return process == driver or (process in parents and is_below(parents[process]))

    return sorted(filter(is_below, workers), reverse=True)


def test_a_driver_that_is_killed(spark: Any, counting: Path, tmp_path: Path) -> None:
    runs = Runs(spark, counting, tmp_path / "runs", ("lines",))
    runs.add(lines(30))
    runs.run()
    before, output = runs.content(), runs.written()
    runs.add(lines(30, 30))

    def writing(driver: int, ended: threading.Event) -> None:
        until(lambda: list(runs.out.glob("_run-000002-*")) or ended.is_set(), "the second run writes")

    kill_driver(runs, writing)
    if runs.last_run() == 1:  # else it was faster than the signal
        assert before.items() <= runs.content().items()
        assert runs.written() == output
    runs.run()
    assert runs.last_run() == 2
    check_as_one(runs, load(counting), lines(60))


def kill_at_random_times(seed: int, spark: Any, counting: Path, tmp_path: Path) -> None:
    draw = random.Random(seed)
    path, records = counting, lines(60)
    if draw.random() < 0.5:
        case = FOLDER / draw.choice(CHOSEN)
        path = case / "topology.yaml"
        records = [each for each in parse((case / "input.jsonl").read_text(encoding="utf-8")) if "topic" in each]
    plan = load(path)
    parts = cut(plan, records, draw, draw.randint(1, MOST_PARTS))
    print(f"seed {seed}: {path.parent.name}, {len(parts)} parts")
    runs = Runs(spark, path, tmp_path / "runs", tuple(sorted({record["topic"] for record in records})))

    for number, part in enumerate(parts, 1):
        runs.add(part)
        run = runs.last_run()
        for kill in draw.choices([kill_driver, kill_worker], k=2):
            before, step = runs.written(), Step(runs, draw)
            error = kill(runs, step.wait)
            counts = runs.last_run() > run
            print(f"  part {number}, {kill.__name__} after {step.name}: {counts=} {error}", flush=True)
            if counts:
                break
            assert runs.written() == before
        if draw.random() < 0.5:
            runs.run()
    runs.run()
    check_as_one(runs, plan, records)


if JOBS:
    test_kills_at_random_times = pytest.mark.parametrize("seed", range(JOBS))(kill_at_random_times)
