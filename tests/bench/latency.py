"""The time from a record's append to its input topic to the append of its result, at a steady rate, beside Kafka Streams.

    python -m tests.bench.latency [--rate 2000] [--seconds 30] [--rounds 3] [--partitions 1] [--only moved] [--guarantee exactly_once_v2]

Brokers stamp both records as they append them, so that no clock of a program counts. Caches are off, and each record has one
result. The programs take turns; the first quarter of the seconds warms up.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import threading
import time
from pathlib import Path

from confluent_kafka import Producer

from tests.bench import report
from tests.bench.programs import JAVA, STREAMKIT
from tests.bench.shufflebench.load import create
from tests.bench.side_by_side import LIMIT_SECONDS, Job, Progress, cpu_seconds, running
from tests.broker.kafka_broker import Broker
from tests.broker.support import Log, until

JAVA_AT_ONCE = "Kafka Streams, linger.ms=0"
PROGRAMS: dict[str, dict[str, object]] = {STREAMKIT: {}, JAVA: {}, JAVA_AT_ONCE: {"producer.linger.ms": 0}}
GUARANTEES = ("at_least_once", "exactly_once_v2")
WARM_PART = 4
KEYS = 1000
TICK_SECONDS = 0.001
IDLE_SECONDS = 10.0

HEAD = """\
streamkit: 1
application: ${APPLICATION}
config: {bootstrap.servers: "${BOOTSTRAP}", state.dir: "${STATE}"}
topics:
  input: {topic: "${INPUT_1}", value: string}
  right: {topic: "${INPUT_2}", value: string}
  out: {topic: "${OUTPUT}", value: string}
pipelines:
  results:
    stream: input
    to: out
    steps:
"""
CASES = {
    "filter": ("filter", ["filter: value[0] < 'n'"]),
    "latest": ("reduce", ["group_by_key", "reduce: {add: value, store: latest}", "to_stream"]),
    "moved": (
        "reduce behind a repartition topic",
        [
            "select_key: {key: 'value[5:8]', key_serde: string}",
            "group_by_key",
            "reduce: {add: value, store: latest}",
            "to_stream",
        ],
    ),
    "pairs": ("join of two streams", ["join: {with: {stream: right}, within: 1s, value: left, value_serde: string}"]),
}
"""By case its title and its steps; the Java program has the same ones."""


class Feeder:
    """Writes records at a steady rate, each tick a few, without a linger."""

    def __init__(self, log: Log, topics: tuple[str, ...], rate: int, seconds: float):
        self._producer = Producer({"bootstrap.servers": log.address, "linger.ms": 0, "log_level": 3})
        self._topics = topics
        self._rate = rate
        self._count = int(rate * seconds)

    def run(self) -> None:
        """Write them all."""
        pause, began = threading.Event(), time.monotonic()
        for number in range(self._count):
            while number > (time.monotonic() - began) * self._rate:
                self._producer.poll(0)
                pause.wait(TICK_SECONDS)
            key = number if len(self._topics) > 1 else number % KEYS
            for topic in self._topics:
                self._producer.produce(topic, b"%08d" % number, b"%d" % key, timestamp=1_700_000_000_000 + number)
        self._producer.flush()


def measure(program: str, case: str, log: Log, number: int, asked: argparse.Namespace) -> tuple[list[int], float]:
    """Run a program; return the sorted milliseconds of its records, and the share of a core that it takes when idle."""
    tag = f"{case}-{asked.guarantee[:2]}-{list(PROGRAMS).index(program)}-{number}"
    names = {"input_1": f"in-{tag}", "input_2": f"right-{tag}", "output": f"out-{tag}"}
    for topic in names.values():
        create(log.address, topic, asked.partitions)
    inputs = tuple(names[each] for each in (("input_1", "input_2") if case == "pairs" else ("input_1",)))
    settings = {"processing.guarantee": asked.guarantee, "commit.interval.ms": 100, "statestore.cache.max.bytes": 0}
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        file = Path(scratch) / "latency.yaml"
        file.write_text(HEAD + "".join(f"      - {step}\n" for step in CASES[case][1]))
        made = Job(
            f"latency-{tag}",
            file,
            ("bench/java", "Peer", case),
            names,
            inputs,
            {**settings, **PROGRAMS[program]},
            {},
        )
        progress = Progress(log, made)
        kind = STREAMKIT if program == STREAMKIT else JAVA
        with running(kind, made, Path(scratch), log.address) as process:
            Feeder(log, inputs, asked.rate, asked.seconds).run()
            expected = int(asked.rate * asked.seconds)
            until(lambda: len(log.read(names["output"])) >= expected, "all results are there", LIMIT_SECONDS)
            before = cpu_seconds(process.pid)
            threading.Event().wait(IDLE_SECONDS)
            idle = (cpu_seconds(process.pid) - before) / IDLE_SECONDS
        progress.close()
    appended: dict[bytes, int] = {}
    for topic in inputs:
        appended.update((raw.value or b"", raw.timestamp) for raw in log.read(topic))
    results = {raw.value or b"": raw.timestamp for raw in log.read(names["output"])}
    warm = min(appended.values()) + asked.seconds * 1000 // WARM_PART
    assert results.keys() == appended.keys()
    return sorted(results[value] - at for value, at in appended.items() if at >= warm), idle


def table(log: Log, case: str, asked: argparse.Namespace) -> list[str]:
    """The rows of a case, medians of the rounds."""
    runs: dict[str, list[tuple[float, ...]]] = {program: [] for program in asked.programs}
    for number in range(asked.rounds):
        for program, found in runs.items():
            delays, idle = measure(program, case, log, number, asked)
            points = tuple(delays[int(len(delays) * part)] for part in (0.5, 0.99, 0.999))
            found.append((*points, 100 * idle))
            print(f"  {CASES[case][0]}, round {number + 1}: {program} {found[-1]}", flush=True)
    return [
        f"| {CASES[case][0]} | {program} | "
        + " | ".join(f"{statistics.median(column):,.4g}" for column in zip(*found, strict=True))
        + " |"
        for program, found in runs.items()
    ]


def options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=2_000, help="records a second")
    parser.add_argument("--partitions", type=int, default=1, help="partitions of each topic")
    parser.add_argument("--seconds", type=int, default=30, help="how long records come")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each program")
    parser.add_argument("--only", choices=list(CASES), action="append", help="only this one; may be repeated")
    parser.add_argument("--program", choices=list(PROGRAMS), action="append", dest="programs", help="only this one")
    parser.add_argument("--guarantee", choices=GUARANTEES, default=GUARANTEES[0])
    asked = parser.parse_args(arguments)
    asked.programs = asked.programs or list(PROGRAMS)
    return asked


def main(arguments: list[str] | None = None) -> int:
    """Print the table."""
    asked = options(arguments)
    print(report.machine())
    lines = [
        f"| {asked.rate:,} records/s, {asked.guarantee} | program | p50 ms | p99 ms | p99.9 ms | CPU idle % |",
        "| --- | --- | ---: | ---: | ---: | ---: |",
    ]
    with Broker(heap="1g", measured=True) as broker:
        log = Log(broker.address)
        for case in asked.only or CASES:
            lines += table(log, case, asked)
        log.close()
    print("\n".join(lines) + f"\n\nat the end {report.machine().rpartition(', ')[2]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
