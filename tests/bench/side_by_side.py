"""Runs a program over what is on a broker and measures it by the offsets that its group commits.

The rate is that of the input records that are committed after the warm-up, until all input and all internal topics are
committed: everything that a record causes is flushed before its offset is committed. Start-up and warm-up count in no rate.
Flink commits offsets for nobody's use: it reads up to the end that its topics have, and its rate is that of the records
that it reads after the warm-up, until its job has ended.
"""

from __future__ import annotations

import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, replace
from pathlib import Path

from streamkit.record import TopicPartition
from tests.bench.programs import JAVA, STREAMKIT
from tests.broker.support import Log
from tests.java import build

LIMIT_SECONDS = 900
LOOK_SECONDS = 0.05
COMMIT_MS = 200
"""Between two commits: what the end of a run is known by, at most so late."""
BOTH = (STREAMKIT, JAVA)
FLINK = {"Flink (heap)": "hashmap", "Flink (RocksDB)": "rocksdb"}
"""Flink with each kind of state: the values are those of state.backend.type."""
PROGRAMS = {"streamkit": STREAMKIT, "java": JAVA, **dict(zip(("heap", "rocksdb"), FLINK, strict=True))}
"""By their names among the options."""
EXACTLY_ONCE = "exactly_once_v2"


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
    flink: tuple[str, ...] = ()
    """Folder of the sources below tests/, main class and arguments before the file of properties."""


@dataclass
class Measured:
    """What a run gave."""

    rate: float
    """Input records a second, after the warm-up."""
    per_core: float
    """Input records a second of CPU time, of the process from its start until all is committed."""
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
    own = {f"bench.{name}": str(value) for name, value in {**job.topics, **job.parameters}.items()}
    if program in FLINK:
        own |= {"bench.bootstrap": address, **_flink(program, job, folder)}
    else:
        own |= {"application.id": job.application, "bootstrap.servers": address, "state.dir": str(folder / "state")}
        own |= {name: str(value) for name, value in settings.items()}
    file = folder / "peer.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in own.items()))
    sources, main, *arguments = job.flink if program in FLINK else job.java
    return [*build.command(sources, main), *arguments, str(file)], dict(os.environ)


def _flink(program: str, job: Job, folder: Path) -> dict[str, str]:
    """Settings of Flink: those of Nexmark's own suite for its SQL, and one core as the others have."""
    exactly = job.settings.get("processing.guarantee") == EXACTLY_ONCE
    return {
        "parallelism.default": "1",
        "state.backend.type": FLINK[program],
        "execution.checkpointing.dir": (folder / "checkpoints").as_uri(),
        "execution.checkpointing.incremental": "true",
        "execution.checkpointing.mode": "EXACTLY_ONCE" if exactly else "AT_LEAST_ONCE",
        # Results of exactly-once appear with a checkpoint, as with a commit of the others; else it is for restarts only.
        "execution.checkpointing.interval": f"{COMMIT_MS if exactly else 1000} ms",
        "execution.checkpointing.checkpoints-after-tasks-finish.enabled": str(exactly).lower(),
        "io.tmp.dirs": str(folder),
        "taskmanager.memory.managed.size": "512m",
        "table.local-time-zone": "UTC",
        "table.exec.mini-batch.enabled": "true",
        "table.exec.mini-batch.allow-latency": "2 s",
        "table.exec.mini-batch.size": "50000",
        "table.optimizer.distinct-agg.split.enabled": "true",
        "bench.guarantee": "exactly-once" if exactly else "at-least-once",
        "bench.application": job.application,
    }


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
    if program in FLINK:
        return _to_the_end(program, replace(job, parameters={**job.parameters, "warm": warm}), log)
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
    return Measured((total - before) / (ended - began), total / cpu, memory)


def _to_the_end(program: str, job: Job, log: Log) -> Measured:
    """Run a program that ends with its input, and says when its warm-up was over and when all was done."""
    total = sum(sum(log.ends(topic)) for topic in job.inputs)
    deadline = time.monotonic() + LIMIT_SECONDS
    cpu, memory = 0.0, 0.0
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as scratch,
        running(program, job, Path(scratch), log.address) as process,
    ):
        while process.poll() is None:
            if time.monotonic() > deadline:
                raise TimeoutError(f"not done after {LIMIT_SECONDS} s")
            # Its process remains in the system's table until the next poll.
            cpu, memory = cpu_seconds(process.pid), max(memory, peak_mb(process.pid))
            with suppress(subprocess.TimeoutExpired):
                process.wait(LOOK_SECONDS)
        said = dict(re.findall(r"^(warm|end) (\d+ \d+)$", (Path(scratch) / "log").read_text(), re.MULTILINE))
        if process.returncode or said.keys() != {"warm", "end"}:
            raise RuntimeError(f"the program failed with exit code {process.returncode}")
    before, began = map(int, said["warm"].split())
    ended = int(said["end"].split()[1])
    return Measured((total - before) * 1000 / (ended - began), total / cpu, memory)


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


def tables(title: str, found: Mapping[str, Mapping[str, Sequence[Measured]]]) -> str:
    """Medians of the runs of all works by program: rates with streamkit's multiple, and what they cost."""
    programs = list(dict.fromkeys(program for runs in found.values() for program in runs))
    rates = [f"| {title} | {', records/s | '.join(programs)}, records/s | output |"]
    rates.append("| --- |" + " ---: |" * len(programs) + " --- |")
    costs = [
        f"| {title} | {', records per CPU s | '.join(programs)}, records per CPU s | {', MB | '.join(programs)}, MB |"
    ]
    costs.append("| --- |" + " ---: |" * 2 * len(programs))
    for name, runs in found.items():
        rate, per_core, memory = (
            {program: statistics.median(getattr(each, field) for each in runs[program]) for program in runs}
            for field in ("rate", "per_core", "memory_mb")
        )
        same = len({each.digest for measured in runs.values() for each in measured}) == 1
        multiples = {program: f" ({rate[STREAMKIT] / rate[program]:.2f})" for program in rate if STREAMKIT in rate}
        multiples[STREAMKIT] = ""
        cells = [f"{rate[each]:,.0f}{multiples.get(each, '')}" if each in rate else "–" for each in programs]
        rates.append("| " + " | ".join([name, *cells, "same" if same else "DIFFERENT"]) + " |")
        cells = [f"{column[each]:,.0f}" if each in runs else "–" for column in (per_core, memory) for each in programs]
        costs.append("| " + " | ".join([name, *cells]) + " |")
    return "\n".join([*rates, "", *costs])
