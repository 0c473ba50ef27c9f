"""Measures how long an application is away after SIGKILL, by the number of its keys, beside Kafka Streams on one broker.

    python -m tests.bench.crash [--keys 10000,100000,1000000] [--runs 3]

One process counts by key under exactly-once, without standbys; its keys are there before it starts, in a changelog that it
restores first. It is killed with a transaction open, its member is removed
from the group, as the end of its session would do, and it is started again with the directory that it left. Printed are
the seconds from there to the first new record that is committed, and the records that it read from its changelog.
"""

from __future__ import annotations

import argparse
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path

from streamkit.transport import open_transport
from tests.bench import programs, report, topics
from tests.bench.inputs import START_MS, changelog, mark
from tests.bench.scenarios import EXACTLY_ONCE, Scenario
from tests.broker.kafka_broker import Broker

IN_FLIGHT = 1_000
"""Records that are written just before the kill."""
LIMIT_SECONDS = 900
LOOK_SECONDS = 0.01
"""Between two looks at the output: without a pause they would take a core from what is measured."""
_RESTORED = re.compile(r"restored (\d+) records? of")
"""What streamkit logs, and Peer.java prints, of a changelog."""


def measure(bootstrap: str, program: str, keys: int, tag: str) -> tuple[float, int]:
    """Return the seconds from the second start to the first new record, and the changelog records that were read."""
    scenario = Scenario("crash", "", ("distinct",), keys, 0, topology="count", settings=EXACTLY_ONCE)
    application = f"crash-{keys}-{tag}"
    names = {"bootstrap": bootstrap, "application": application, "input_1": f"{application}-in"}
    names |= {"output": f"{application}-out", "progress": f"{application}-progress"}
    topics.fill(bootstrap, names["input_1"], "right", 0, 1)
    topics.changelog(bootstrap, f"{application}-counts-changelog", changelog("count", keys), 1)
    topics.append(bootstrap, names["input_1"], (mark(keys), "", START_MS + keys))
    topics.create(bootstrap, names["output"], names["progress"])
    reader = topics.Reader(bootstrap)

    def has(number: int) -> Callable[[], bool]:
        return lambda: reader.count_of(names["progress"], mark(number), 100) > 0

    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        folder = Path(scratch)
        first = start(program, scenario, names, folder)
        try:
            wait(first, has(keys), folder)
            more = [(f"key-{number}", "again", START_MS + keys) for number in range(IN_FLIGHT)]
            topics.append(bootstrap, names["input_1"], *more)
        finally:
            first.kill()
            first.wait()
        topics.append(bootstrap, names["input_1"], (mark(keys + 1), "", START_MS + keys))
        remove_members(bootstrap, application)
        began = time.monotonic()
        second = start(program, scenario, names, folder)
        try:
            wait(second, has(keys + 1), folder)
            seconds = time.monotonic() - began
        finally:
            second.terminate()
            second.wait(LIMIT_SECONDS)
        said = _RESTORED.findall((folder / "log").read_text())
    reader.close()
    return seconds, sum(map(int, said))


def start(program: str, scenario: Scenario, names: dict[str, str], folder: Path) -> subprocess.Popen:
    """Start a program that goes on until it is told to end; what it says goes to `log` in its folder."""
    arguments, environment = programs.command(program, scenario, names, folder, stays=True)
    with (folder / "log").open("w") as log:
        return subprocess.Popen(arguments, stdout=log, stderr=log, env={**environment, "STREAMKIT_LOG_LEVEL": "info"})


def wait(process: subprocess.Popen, done: Callable[[], bool], folder: Path) -> None:
    """Wait until it is done. Raises RuntimeError with the end of the log where that takes too long, or the process ends."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while not done():
        time.sleep(LOOK_SECONDS)
        if process.poll() is not None or time.monotonic() > deadline:
            raise RuntimeError(f"no record came:\n{(folder / 'log').read_text()[-3000:]}")


def remove_members(bootstrap: str, application: str) -> None:
    """Remove the members of an application's group, as the end of their sessions would do."""
    transport = open_transport(bootstrap, {}, "unused")
    admin = transport.admin()
    admin.remove_members(application)
    admin.close()
    transport.close()


def main() -> int:
    """Print the medians by program and number of keys."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--keys", default="10000,100000,1000000", help="numbers of keys, with commas")
    parser.add_argument("--runs", type=int, default=3, help="runs of each program")
    asked = parser.parse_args()
    print(report.machine())
    rows = ["| keys | program | seconds to the first record | changelog records read |", "| ---: | --- | ---: | ---: |"]
    with Broker(heap="1g", measured=True) as broker:
        for keys in map(int, asked.keys.split(",")):
            found: dict[str, list[tuple[float, int]]] = {programs.STREAMKIT: [], programs.JAVA: []}
            for number in range(asked.runs):
                for program, runs in found.items():
                    tag = f"{program.replace(' ', '-').lower()}-{number}"
                    runs.append(measure(broker.address, program, keys, tag))
                    print(f"  {keys:,} keys, run {number + 1}: {program} {runs[-1]}", flush=True)
            for program, runs in found.items():
                seconds, read = (statistics.median(column) for column in zip(*runs, strict=True))
                rows.append(f"| {keys:,} | {program} | {seconds:.2f} | {read:,.0f} |")
    print("\n" + "\n".join(rows) + f"\n\nat the end {report.machine().rpartition(', ')[2]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
