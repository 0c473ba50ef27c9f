"""Runs one program over one scenario and measures it, by the broker's clock."""

from __future__ import annotations

import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from shutil import rmtree

from tests.bench import programs, topics
from tests.bench.inputs import MARKS, START_MS, mark
from tests.bench.scenarios import Scenario

LIMIT_SECONDS = 900
POLL_SECONDS = 0.3
QUICK_POLL_SECONDS = 0.02


@dataclass
class Measured:
    """What a run gave."""

    rate: float
    """Records a second, between the marker at the end of the warm-up and the last one."""
    digest: str
    memory_mb: float
    """The process's largest resident set."""
    restore_seconds: float | None = None
    """From start to the first record out, with a changelog to read before it."""


class Bench:
    """A broker with inputs on it."""

    def __init__(self, bootstrap: str):
        self._bootstrap = bootstrap
        self._filled: set[str] = set()

    def run(self, program: str, scenario: Scenario, tag: str) -> Measured:
        """Run a program once over the whole input."""
        names = self._names(scenario, f"bench-{scenario.name}-{tag}")
        measured = names["output" if scenario.measured_on == "out" else "progress"]
        reader = topics.Reader(self._bootstrap)
        last = mark(scenario.records)
        # Control records of transactions stand between the markers.
        back = 3 * MARKS * scenario.partitions

        def done() -> bool:
            return reader.count_of(measured, last, back) >= scenario.partitions

        with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
            folder = Path(scratch)
            with _running(program, scenario, names, folder) as process:
                memory = _wait(process, program, done)
                if process.poll() is None and program not in programs.ENDS_ALONE:
                    process.terminate()
                process.wait(LIMIT_SECONDS)
            seconds = _seconds(reader, measured, scenario)
            digest = topics.result(reader, names["output"], scenario.compare)
            restored = self._restore(program, scenario, names, folder, reader) if scenario.restores else None
        reader.close()
        return Measured((scenario.records - scenario.warm) / seconds, digest, memory, restored)

    def start_seconds(self, program: str, scenario: Scenario, tag: str) -> float:
        """Return the time from the start of a program to its first record out, with one record to read."""
        names = self._names(scenario, f"start-{tag}", empty=True)
        topics.append(self._bootstrap, names["input_1"], ("@0000001", "@0000001", START_MS))
        reader = topics.Reader(self._bootstrap)
        out = names["output" if scenario.measured_on == "out" else "progress"]
        with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
            seconds = self._until_out(program, scenario, names, Path(scratch), reader, out)
        reader.close()
        return seconds

    def _restore(
        self, program: str, scenario: Scenario, names: Mapping[str, str], folder: Path, reader: topics.Reader
    ) -> float:
        rmtree(folder / "state", ignore_errors=True)
        number = scenario.records + 1
        topics.append(self._bootstrap, names["input_1"], (mark(number), mark(number), START_MS + number))
        return self._until_out(program, scenario, names, folder, reader, names["progress"])

    def _until_out(
        self,
        program: str,
        scenario: Scenario,
        names: Mapping[str, str],
        folder: Path,
        reader: topics.Reader,
        topic: str,
    ) -> float:
        before = reader.end(topic)
        started = time.monotonic()
        with _running(program, scenario, names, folder, stays=True) as process:
            _wait(process, program, lambda: reader.end(topic) > before, QUICK_POLL_SECONDS)
            seconds = time.monotonic() - started
            process.terminate()
            process.wait(LIMIT_SECONDS)
        return seconds

    def _names(self, scenario: Scenario, application: str, empty: bool = False) -> dict[str, str]:
        names = {"bootstrap": self._bootstrap, "application": application}
        names |= {"output": f"{application}-out", "progress": f"{application}-progress"}
        topics.create(self._bootstrap, names["output"], names["progress"])
        for number, name in enumerate(scenario.inputs, 1):
            if empty:
                topic = f"{application}-in"
                topics.fill(self._bootstrap, topic, "right", 0, 1)
            else:
                topic = f"{name}-{scenario.records}-{scenario.partitions}"
                # A restore adds a record of its own to its input.
                topic = f"{application}-{topic}" if scenario.restores else topic
            if not empty and topic not in self._filled:
                topics.fill(self._bootstrap, topic, name, scenario.records, scenario.partitions)
                self._filled.add(topic)
            names[f"input_{number}"] = topic
        return names


def _seconds(reader: topics.Reader, topic: str, scenario: Scenario) -> float:
    """The time between the end of the warm-up and the last marker."""
    if scenario.by_share:
        times = topics.mark_times(reader, topic)
        began, ended = times[len(times) * scenario.warm // scenario.records], times[-1]
    else:
        marks = topics.marks(reader, topic)
        began, ended = marks[scenario.warm][0], marks[scenario.records][1]
    # A quick run may end in the millisecond in which its warm-up did.
    return max(1, ended - began) / 1000


@contextmanager
def _running(
    program: str, scenario: Scenario, names: Mapping[str, str], folder: Path, stays: bool = False
) -> Iterator[subprocess.Popen]:
    """A program's process, which is ended where that was not done; shows the end of its log when something fails."""
    arguments, environment = programs.command(program, scenario, names, folder, stays)
    with (folder / "log").open("w+") as log:
        process = subprocess.Popen(arguments, stdout=log, stderr=log, env=environment)
        try:
            yield process
        except BaseException:
            log.seek(0)
            sys.stderr.write(log.read()[-3000:])
            raise
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def _wait(
    process: subprocess.Popen, program: str, done: Callable[[], bool], poll_seconds: float = POLL_SECONDS
) -> float:
    """Wait until all is done; returns the largest resident set that was seen, in megabytes."""
    deadline = time.monotonic() + LIMIT_SECONDS
    memory = 0.0
    while not done():
        if time.monotonic() > deadline:
            raise TimeoutError(f"{program} did not finish in {LIMIT_SECONDS} s")
        memory = max(memory, _peak_mb(process.pid))
        try:
            process.wait(poll_seconds)
        except subprocess.TimeoutExpired:
            continue
        if not done():
            raise RuntimeError(f"{program} ended early with exit code {process.returncode}")
    return max(memory, _peak_mb(process.pid))


def _peak_mb(pid: int) -> float:
    try:
        status = Path(f"/proc/{pid}/status").read_text()
    except OSError:
        return 0.0
    return next((int(line.split()[1]) / 1024 for line in status.splitlines() if line.startswith("VmHWM")), 0.0)
