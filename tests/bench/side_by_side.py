"""Runs a program over what is on a broker and measures it by the offsets that its group commits.

The rate is that of the input records that are committed after the warm-up, until all input and all internal topics are
committed: everything that a record causes is flushed before its offset is committed. Start-up and warm-up count in no figure.
"""

from __future__ import annotations

import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from streamkit.record import TopicPartition
from tests.bench.programs import JAVA, STREAMKIT
from tests.broker.support import Log
from tests.java import build

LIMIT_SECONDS = 900
LOOK_SECONDS = 0.05
COMMIT_MS = 200
"""Between two commits: what the end of a run is known by, at most so late."""
PROGRAMS = (STREAMKIT, JAVA)


@dataclass(frozen=True)
class Job:
    """What a program does: its application, its files, and the topics under the names that topology and Java use."""

    application: str
    topology: Path
    java: tuple[str, ...]
    """Folder of the sources below tests/, main class and arguments before the file of properties."""
    topics: Mapping[str, str]
    inputs: tuple[str, ...]
    """Those of the topics that are read, by their names on the broker."""
    settings: Mapping[str, object]
    """Settings of Kafka Streams, for both programs."""
    parameters: Mapping[str, object]
    """Further values: variables of the topology, and properties that begin with `bench.` in Java."""


@dataclass
class Measured:
    """What a run gave."""

    rate: float
    """Input records a second, after the warm-up."""
    cpu_seconds: float
    """Of the process from its start until all is committed."""
    memory_mb: float
    """The process's largest resident set."""
    digest: str = ""


class Progress:
    """What the group of an application has committed of its topics."""

    def __init__(self, log: Log, job: Job):
        self._log = log
        self._job = job
        self._consumer = log.transport.consumer(job.application)
        self._admin = log.transport.admin()

    def look(self) -> tuple[int, bool]:
        """Return the committed input records, and whether all topics are committed up to their ends."""
        topics = self._admin.topics()
        internal = [
            name for name in topics if name.startswith(f"{self._job.application}-") and not name.endswith("-changelog")
        ]
        places = [
            TopicPartition(name, number)
            for name in (*self._job.inputs, *internal)
            for number in range(topics[name].partitions)
        ]
        # In this order: what is committed was flushed before, so what it made is in the ends.
        found = self._consumer.committed(places)
        ends = self._consumer.end_offsets(places)
        read = {place: found[place].offset if place in found else 0 for place in places}
        return sum(read[place] for place in places if place.topic in self._job.inputs), read == ends

    def close(self) -> None:
        """Close the clients."""
        self._consumer.close()
        self._admin.close()


def command(program: str, job: Job, folder: Path, address: str) -> tuple[list[str], dict[str, str]]:
    """The command line of a program and its environment; `folder`: for its state and its properties."""
    settings = {"commit.interval.ms": COMMIT_MS, **job.settings}
    if program == STREAMKIT:
        values = {"APPLICATION": job.application, "BOOTSTRAP": address, "STATE": str(folder / "state")}
        values |= {name.upper(): str(value) for name, value in {**job.topics, **job.parameters}.items()}
        sets = [f"--set={name}={value}" for name, value in settings.items()]
        return [sys.executable, "-m", "streamkit_cli", "run", str(job.topology), *sets], {**os.environ, **values}
    own = {"application.id": job.application, "bootstrap.servers": address, "state.dir": str(folder / "state")}
    own |= {name: str(value) for name, value in settings.items()}
    own |= {f"bench.{name}": str(value) for name, value in {**job.topics, **job.parameters}.items()}
    file = folder / "peer.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in own.items()))
    sources, main, *arguments = job.java
    return [*build.command(sources, main), *arguments, str(file)], dict(os.environ)


@contextmanager
def running(program: str, job: Job, folder: Path, address: str) -> Iterator[subprocess.Popen]:
    """A program's process, which ends in order; shows the end of its log when something fails."""
    arguments, environment = command(program, job, folder, address)
    with (folder / "log").open("ab+") as log:
        process = subprocess.Popen(arguments, stdout=log, stderr=log, env=environment)
        try:
            yield process
            process.terminate()
            process.wait(LIMIT_SECONDS)
        except BaseException:
            log.seek(0)
            sys.stderr.write(log.read().decode(errors="replace")[-3000:])
            raise
        finally:
            if process.poll() is None:
                process.kill()
                process.wait()


def measure(program: str, job: Job, log: Log, warm: int) -> Measured:
    """Run a program over all its input; `warm`: how many records count as warm-up."""
    progress = Progress(log, job)
    try:
        with (
            tempfile.TemporaryDirectory(prefix="bench-") as scratch,
            running(program, job, Path(scratch), log.address) as process,
        ):
            began, before, ended, total = _watched(process, progress, warm)
            cpu, memory = cpu_seconds(process.pid), peak_mb(process.pid)
    finally:
        progress.close()
    return Measured((total - before) / (ended - began), cpu, memory)


def _watched(process: subprocess.Popen, progress: Progress, warm: int) -> tuple[float, int, float, int]:
    """(seconds and records at the first commit behind the warm-up, seconds and records when all is committed)."""
    deadline = time.monotonic() + LIMIT_SECONDS
    first: tuple[float, int] | None = None
    while True:
        committed, done = progress.look()
        now = time.monotonic()
        if first is None and committed >= warm:
            first = now, committed
        if done:
            assert first is not None
            if now == first[0]:
                raise RuntimeError("all was committed at once: more records are needed")
            return *first, now, committed
        if now > deadline:
            raise TimeoutError(f"not done after {LIMIT_SECONDS} s: {committed} records are committed")
        try:
            process.wait(LOOK_SECONDS)
        except subprocess.TimeoutExpired:
            continue
        raise RuntimeError(f"the program ended early with exit code {process.returncode}")


def cpu_seconds(pid: int) -> float:
    """The CPU time that a process has used, its threads included."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def peak_mb(pid: int) -> float:
    """The largest resident set of a process."""
    lines = Path(f"/proc/{pid}/status").read_text().splitlines()
    return next((int(line.split()[1]) / 1024 for line in lines if line.startswith("VmHWM")), 0.0)


def row(title: str, runs: Mapping[str, Sequence[Measured]]) -> str:
    """A line of the table: medians of rates, their ratio, CPU seconds, memory, and whether all outputs are equal."""
    rates, cpu, memory = (
        {program: statistics.median(getattr(each, name) for each in found) for program, found in runs.items()}
        for name in ("rate", "cpu_seconds", "memory_mb")
    )
    same = len({each.digest for found in runs.values() for each in found}) == 1
    cells = [title, *(f"{rates[program]:,.0f}" for program in PROGRAMS), f"{rates[STREAMKIT] / rates[JAVA]:.2f}"]
    cells += [f"{cpu[program]:.1f}" for program in PROGRAMS] + [f"{memory[program]:.0f}" for program in PROGRAMS]
    return "| " + " | ".join([*cells, "same" if same else "DIFFERENT"]) + " |"


HEAD = (
    "| {} | streamkit, records/s | Kafka Streams, records/s | ratio | streamkit, CPU s | Kafka Streams, CPU s "
    "| streamkit, MB | Kafka Streams, MB | output |\n| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: | --- |"
)
"""The head of the table, for the title of its first column."""
