"""Incremental jobs on Spark whose drivers and workers are killed at random times, and at one certain point.

STREAMKIT_KILLS=N lets N jobs run, each in one to six parts and with a kill in each part, which take minutes.
"""

from __future__ import annotations

import contextlib
import os
import random
import signal
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from streamkit.plan import load
from tests.broker.support import until
from tests.cli.support import command
from tests.conformance_cases import FOLDER, parse
from tests.spark.as_one import check_as_one, cut
from tests.spark.incremental_runs import Runs, lines
from tests.spark.support import SETTINGS

JOBS = int(os.environ.get("STREAMKIT_KILLS", "0"))
SHORTEST_S, LONGEST_S = 2.0, float(os.environ.get("STREAMKIT_KILLS_WITHIN_S", "20"))
"""The seconds after which a run is killed: at least, and at most."""
MOST_PARTS = 6
CHOSEN = (
    "suppress-tumbling-final",
    "foreign-key-join-left",
    "stream-global-join",
    "session-merges",
    "stream-join-outer",
)
"""The cases of half of the jobs; the others count words."""


def killed(runs: Runs, when: Callable[[subprocess.Popen], None], worker: bool = False) -> str:
    """Start the next run as a command of its own, and kill it, or one of its workers, after `when`.

    Return when it has ended: what was killed, and what the run had written then.
    """
    conf = [each for name, value in SETTINGS.items() for each in ("--conf", f"{name}={value}")]
    inputs = [each for name in runs.topics for each in ("--input", f"{name}={runs.folder / name},format=json")]
    line = command(
        *("submit", runs.path, "--master", "local[1]", *conf, "--emit", "updates", "--checkpoint", runs.checkpoint),
        *(*inputs, "--output", f"*={runs.out}"),
    )
    number = runs.last_run() + 1
    errors = runs.folder / "stderr"
    with errors.open("w") as file:
        process = subprocess.Popen(line, start_new_session=True, stdout=subprocess.DEVNULL, stderr=file)
    when(process)
    workers = workers_of(process.pid) if worker else []
    if process.poll() is not None:
        what = "nothing"
    elif workers:
        what = "a worker"
        with contextlib.suppress(ProcessLookupError):
            os.kill(workers[0], signal.SIGKILL)
    else:
        what = "the driver"
        os.killpg(process.pid, signal.SIGKILL)
    written = written_by(runs, number)
    process.wait()
    last = errors.read_text(encoding="utf-8").strip().rpartition("\n")[2]
    return f"{what} killed, {written}; exit code {process.returncode}{': ' if last else ''}{last}"


def written_by(runs: Runs, number: int) -> str:
    """How far a run is, by what it has written."""
    places = {
        "committed, with its final folders": runs.out / f"run={number:06}",
        "committed": runs.checkpoint / "manifests" / f"{number:06}.json",
    }
    found = next((name for name, path in places.items() if path.exists()), None)
    if found is None and list(runs.out.glob(f"_run-{number:06}-*")):
        found = "writing outputs"
    if found is None and list((runs.checkpoint / "state").glob(f"folder={number:06}-*")):
        found = "writing state"
    return found or "nothing written"


def workers_of(session: int) -> list[int]:
    """The Python workers of a driver that leads a session; they have a process group of their own."""
    found = []
    for stat in Path("/proc").glob("[0-9]*/stat"):
        with contextlib.suppress(OSError):
            fields = stat.read_text().rpartition(")")[2].split()
            if int(fields[3]) == session and "pyspark.daemon" in (stat.parent / "cmdline").read_text():
                found.append(int(stat.parent.name))
    return sorted(found, reverse=True)


def test_a_driver_that_is_killed(spark: Any, counting: Path, tmp_path: Path) -> None:
    runs = Runs(spark, counting, tmp_path / "runs", ("lines",))
    runs.add(lines(30))
    runs.run()
    before, output = runs.content(), runs.written()
    runs.add(lines(30, 30))

    def writing(process: subprocess.Popen) -> None:
        until(lambda: list(runs.out.glob("_run-000002-*")) or process.poll() is not None, "the second run writes")

    killed(runs, writing)
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

    def after_a_while(process: subprocess.Popen) -> None:
        with contextlib.suppress(subprocess.TimeoutExpired):
            process.wait(draw.uniform(SHORTEST_S, LONGEST_S))

    for number, part in enumerate(parts, 1):
        runs.add(part)
        before, run = runs.written(), runs.last_run()
        print(f"  part {number}: {killed(runs, after_a_while, worker=draw.random() < 0.5)}, runs: {runs.last_run()}")
        assert runs.last_run() > run or runs.written() == before
        if draw.random() < 0.5:
            runs.run()
    runs.run()
    check_as_one(runs, plan, records)


if JOBS:
    test_kills_at_random_times = pytest.mark.parametrize("seed", range(JOBS))(kill_at_random_times)
