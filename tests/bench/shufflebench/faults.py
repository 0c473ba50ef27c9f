"""Instances of ShuffleBench that are killed while records come: how long records wait, what is lost, what is repeated."""

from __future__ import annotations

import itertools
import statistics
import subprocess
import tempfile
import threading
import time
from dataclasses import dataclass
from pathlib import Path

from tests.bench.shufflebench import load
from tests.bench.shufflebench.functions import STATE
from tests.bench.shufflebench.jobs import SELECTIVITY, Case, application, consumed, job
from tests.bench.side_by_side import BOTH, LIMIT_SECONDS, Job, Progress, command
from tests.broker.support import Log, until

GUARANTEES = ("exactly_once_v2", "at_least_once")
INSTANCES = 2
PARTITIONS = 4
PAUSE_SECONDS = 30
"""Between two kills, as published."""
LATE_MS = 1_000
"""A record whose result comes later than this has waited for the fault."""
SETTINGS: dict[str, object] = {"session.timeout.ms": 6_000, "heartbeat.interval.ms": 2_000, "commit.interval.ms": 100}
"""Of both programs. A killed member is noticed at the end of its session, for which 45 s are usual."""


@dataclass
class Found:
    """What a run under faults gave."""

    kills: int
    recovered: list[float]
    """Seconds from each kill to the last result that was late."""
    longest: list[float]
    """Seconds that the last record of a result waited at most, by kill."""
    records: int
    """That consumers had to get."""
    lost: int
    repeated: int
    wrong: int
    """Consumers with the right number of records, but not with the right ones."""


class Instances:
    """The processes of a program, each with a folder of its own."""

    def __init__(self, program: str, made: Job, folder: Path, address: str):
        self._program = program
        self._job = made
        self._folder = folder
        self._address = address
        self._processes: list[subprocess.Popen | None] = [None] * INSTANCES
        for number in range(INSTANCES):
            (folder / str(number)).mkdir()

    def start(self, number: int) -> None:
        """Start one of them."""
        own = self._folder / str(number)
        arguments, environment = command(self._program, self._job, own, self._address)
        with (own / "log").open("ab") as log:
            self._processes[number] = subprocess.Popen(arguments, stdout=log, stderr=log, env=environment)

    def kill(self, number: int) -> None:
        """End one of them at once."""
        process = self._processes[number]
        if process is not None and process.poll() is None:
            process.kill()
            process.wait()

    def look(self) -> None:
        """Raise RuntimeError where one has ended alone."""
        for number, process in enumerate(self._processes):
            if process is not None and process.poll() is not None:
                text = (self._folder / str(number) / "log").read_text(errors="replace")[-3000:]
                raise RuntimeError(f"instance {number} ended with exit code {process.returncode}:\n{text}")


def measure(program: str, case: Case, log: Log, guarantee: str, rate: int, minutes: float) -> Found:
    """Kill an instance every 30 s while records come, start it again at once, and compare what came out in the end."""
    # Results of the first records of a consumer would depend on the order of the partitions.
    settings = {**SETTINGS, "processing.guarantee": guarantee}
    name = application(program, guarantee[0], case, 0)
    made = job(case, name, f"in-{name}", settings, random_start=False)
    (topic,) = made.inputs
    load.create(log.address, topic, PARTITIONS)
    load.create(log.address, made.topics["output"], PARTITIONS)
    feeder = load.Feeder(log.address, topic, PARTITIONS, rate, minutes * 60)
    progress = Progress(log, made)
    kills: list[int] = []
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        instances = Instances(program, made, Path(scratch), log.address)
        try:
            for number in range(INSTANCES):
                instances.start(number)
            feeder.start()
            victims = itertools.cycle(range(INSTANCES))
            pause = threading.Event()
            following = time.monotonic() + PAUSE_SECONDS
            while feeder.writing:
                pause.wait(0.2)
                instances.look()
                if time.monotonic() >= following and feeder.writing:
                    following += PAUSE_SECONDS
                    victim = next(victims)
                    instances.kill(victim)
                    kills.append(time.time_ns() // 1_000_000)
                    instances.start(victim)
            feeder.end()
            until(lambda: _ended(progress, instances), "all is committed", LIMIT_SECONDS)
        finally:
            for number in range(INSTANCES):
                instances.kill(number)
    progress.close()
    return _judged(log, made, case, feeder.count, kills)


def _ended(progress: Progress, instances: Instances) -> bool:
    instances.look()
    return progress.look()[1]


def _judged(log: Log, made: Job, case: Case, count: int, kills: list[int]) -> Found:
    results = [(raw.timestamp, STATE.unpack_from(raw.value or b"")[3]) for raw in log.read(made.topics["output"])]
    recovered, longest = [], []
    for kill, following in itertools.pairwise([*kills, 1 << 62]):
        of_kill = [(arrived, arrived - ended) for arrived, ended in results if kill <= arrived < following]
        late = [arrived for arrived, delay in of_kill if delay > LATE_MS]
        recovered.append((max(late, default=kill) - kill) / 1000)
        longest.append(max((delay for _, delay in of_kill), default=0) / 1000)
    wanted = load.matches(count, case.rules, SELECTIVITY, case.exponent)
    found = consumed(log, made)
    pairs = [(wanted.get(key, (0, 0)), found.get(key, (0, 0))) for key in {*wanted, *found}]
    return Found(
        len(kills),
        recovered,
        longest,
        sum(number for number, _ in wanted.values()),
        sum(max(0, want[0] - have[0]) for want, have in pairs),
        sum(max(0, have[0] - want[0]) for want, have in pairs),
        sum(want[0] == have[0] and want[1] != have[1] for want, have in pairs),
    )


def table(log: Log, case: Case, guarantee: str, rate: int, minutes: float) -> list[str]:
    """The table of both programs, one after the other."""
    lines = [
        f"| {case.title}, {rate:,} records/s, {guarantee} | kills | seconds to recover, median (most) "
        "| longest wait of a record, s | records of consumers | lost | repeated | wrong sums |",
        "| --- | ---: | ---: | ---: | ---: | ---: | ---: | ---: |",
    ]
    for program in BOTH:
        found = measure(program, case, log, guarantee, rate, minutes)
        print(f"  {program} {found}", flush=True)
        seconds = f"{statistics.median(found.recovered):.1f} ({max(found.recovered):.1f})" if found.kills else ""
        lost = f"{found.lost} LOST" if found.lost else "0"
        wait = f"{max(found.longest, default=0):.1f}"
        cells = [program, found.kills, seconds, wait, f"{found.records:,}", lost, found.repeated, found.wrong]
        lines.append("| " + " | ".join(map(str, cells)) + " |")
    return lines
