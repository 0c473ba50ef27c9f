"""Runs of a job in S3 whose store answers 503 to all requests for a minute, with the attempts and waits of Hadoop's defaults.

python -m tests.spark.busy_store --seconds 60
python -m tests.spark.busy_store --seconds 600 --set retry.throttle.limit=6
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import TYPE_CHECKING

from tests.cli.support import command
from tests.spark.incremental_runs import lines
from tests.spark.support import SETTINGS
from tests.spark.table_environment import QUICK, s3_environment

if TYPE_CHECKING:
    from tests.spark.s3_server import Outage, Server

POINTS = {
    "the input": "GET .*/lines/",
    "the output": "PUT .*/out/_run-",
    "the commit": "PUT .*/manifests/",
    "the copy": "COPY .*/out/run=",
}
"""By the part of a run, the first request that finds the store busy."""


class BusyRuns:
    """Runs of a count of words, each a command of its own."""

    def __init__(self, server: Server, folder: Path, patience: dict[str, str]):
        from tests.spark.object_store import CHECKPOINT, COUNTS, INPUT, OUTPUT

        self.server = server
        path = folder / "topology.yaml"
        path.write_text(COUNTS, encoding="utf-8")
        conf = {**SETTINGS, **server.settings(os.environ["JARS"], patience)}
        self._line = command(
            *("submit", path, "--master", "local[2]", "--emit", "updates", "--checkpoint", CHECKPOINT),
            *("--input", INPUT, "--output", OUTPUT),
            *(each for setting in conf.items() for each in ("--conf", "=".join(setting))),
        )
        self._added = 0

    def add(self) -> None:
        """Add a file of lines."""
        records = "".join(json.dumps(record) + "\n" for record in lines(10, 10 * self._added))
        self.server.put(f"lines/{self._added}.jsonl", records)
        self._added += 1

    def run(self, outage: Outage | None = None) -> tuple[float, str]:
        """Run what is new; return the seconds, and the last line of the command."""
        self.server.faults[:] = [outage] if outage else []
        began = time.monotonic()
        done = subprocess.run(self._line, env={**os.environ, **QUICK}, capture_output=True, text=True, check=False)
        self.server.faults.clear()
        last = (done.stderr.strip().splitlines() or [""])[-1]
        return time.monotonic() - began, f"exit code {done.returncode}: {last}" if done.returncode else ""

    def check(self) -> None:
        """Check that the counts are those of one job over all lines. Raises AssertionError."""
        found = self.server.objects("out/run=")
        records = [json.loads(line) for key in sorted(found) for line in found[key].splitlines()]
        words = [word for record in lines(10 * self._added) for word in record["value"].split()]
        expected = [(word, words[: at + 1].count(word)) for at, word in enumerate(words)]
        assert sorted((record["key"], record["value"]) for record in records) == sorted(expected)


def measure(runs: BusyRuns, seconds: float) -> None:
    """Print what becomes of a run whose store is busy from each point on, and of the run after one that ended."""
    from tests.spark.s3_server import Outage

    runs.add()
    usual, _ = runs.run()
    print(f"without an outage: {usual:.0f} s", flush=True)
    for name, pattern in POINTS.items():
        runs.add()
        outage = Outage(pattern, seconds=seconds)
        took, error = runs.run(outage)
        waited = time.monotonic() - (outage.began or 0)
        print(f"from {name} on: {outage.answered} answers of 503; {error or 'the run went on'}", flush=True)
        print(f"  {took:.0f} s, of which {waited:.0f} s from the first of these answers on", flush=True)
        if error:
            took, error = runs.run()
            print(f"  the next run: {error or 'done'} ({took:.0f} s)", flush=True)
    runs.check()
    print("the counts are those of one job over all lines", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--seconds", type=float, default=60)
    parser.add_argument("--set", action="append", default=[], metavar="NAME=VALUE", help="a setting of fs.s3a")
    given = parser.parse_args()
    if "JARS" not in os.environ:
        line = [sys.executable, "-m", "tests.spark.busy_store", *sys.argv[1:]]
        os.execve(sys.executable, line, s3_environment())
    from tests.spark.s3_server import Server

    with tempfile.TemporaryDirectory() as folder:
        patience = dict(text.split("=", 1) for text in given.set)
        measure(BusyRuns(Server(), Path(folder), patience), given.seconds)


if __name__ == "__main__":
    main()
