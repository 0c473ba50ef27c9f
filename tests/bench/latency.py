"""The time from a record's append to its input topic to the append of its result, at a steady rate, beside Kafka Streams.

    python -m tests.bench.latency [--rate 2000] [--seconds 4] [--warm 3] [--rounds 3] [--partitions 1] [--idle 0]
                                  [--only moved] [--guarantee exactly_once_v2] [--program streamkit] [--peaks 50]

Without options: all works, at least once and exactly once, with commits each 100 ms, in 15 minutes. It prints the table of
docs/benchmarks. Brokers stamp both records as they append them, so that no clock of a program counts; a consumer that reads
only committed records sees results of exactly-once after the next commit. Caches are off, and each record has one result. The
programs take turns within each round; a run counts `warm` seconds after its first result, for so many seconds.
With --peaks, each group of slower results is printed with the time by which the feeder itself was late then: a machine that
stops for a moment delays both.
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
from tests.bench.side_by_side import LIMIT_SECONDS, Job, cpu_seconds, running
from tests.broker.kafka_broker import Broker
from tests.broker.support import Log, until

JAVA_AT_ONCE = "Kafka Streams, linger.ms=0"
PROGRAMS: dict[str, dict[str, object]] = {STREAMKIT: {}, JAVA: {}, JAVA_AT_ONCE: {"producer.linger.ms": 0}}
GUARANTEES = ("at_least_once", "exactly_once_v2")
KEYS = 1000
TICK_SECONDS = 0.001
LATE_SECONDS = 0.01
"""A feeder's tick that comes so much later is noted."""
APART_MS = 200
"""Slow results that are appended within it are one peak."""

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
    """Writes records at a steady rate until it is stopped, each tick a few, without a linger."""

    def __init__(self, log: Log, topics: tuple[str, ...], rate: int):
        self._producer = Producer({"bootstrap.servers": log.address, "linger.ms": 0, "log_level": 3})
        self._topics = topics
        self._rate = rate
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)
        self.late: list[tuple[float, float]] = []
        """The late ticks: milliseconds since the epoch, and by how many."""

    def __enter__(self) -> Feeder:
        self._thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        number, began = 0, time.monotonic()
        last = began
        while not self._stop.wait(TICK_SECONDS):
            now = time.monotonic()
            if now - last > LATE_SECONDS:
                self.late.append((time.time() * 1000, (now - last) * 1000))
            last = now
            self._producer.poll(0)
            while number <= (time.monotonic() - began) * self._rate:
                key = number if len(self._topics) > 1 else number % KEYS
                for topic in self._topics:
                    self._producer.produce(topic, b"%08d" % number, b"%d" % key, timestamp=1_700_000_000_000 + number)
                number += 1
        self._producer.flush()


def measure(program: str, guarantee: str, case: str, log: Log, number: int, asked: argparse.Namespace) -> list[float]:
    """Run a program; return the quantiles of its milliseconds, and the percentage of a core that it takes when idle if that is asked."""
    tag = f"{case}-{guarantee[:2]}-{list(PROGRAMS).index(program)}-{number}"
    names = {"input_1": f"in-{tag}", "input_2": f"right-{tag}", "output": f"out-{tag}"}
    for topic in names.values():
        create(log.address, topic, asked.partitions)
    inputs = tuple(names[each] for each in (("input_1", "input_2") if case == "pairs" else ("input_1",)))
    settings = {"processing.guarantee": guarantee, "commit.interval.ms": 100, "statestore.cache.max.bytes": 0}
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
        kind = STREAMKIT if program == STREAMKIT else JAVA
        with running(kind, made, Path(scratch), log.address) as process:
            with Feeder(log, inputs, asked.rate) as feeder:
                until(lambda: any(log.ends(names["output"])), "the first result is there", LIMIT_SECONDS)
                first = time.time() * 1000
                threading.Event().wait(asked.warm + asked.seconds)
            appended: dict[bytes, int] = {}
            for topic in inputs:
                appended.update((raw.value or b"", raw.timestamp) for raw in log.read(topic))
            until(lambda: len(log.read(names["output"])) >= len(appended), "all results are there", LIMIT_SECONDS)
            before = cpu_seconds(process.pid)
            threading.Event().wait(asked.idle)
            idle = [100 * (cpu_seconds(process.pid) - before) / asked.idle] if asked.idle else []
    results = {raw.value or b"": raw.timestamp for raw in log.read(names["output"])}
    assert results.keys() == appended.keys()
    began = first + asked.warm * 1000
    if asked.peaks:
        slow = sorted((results[value], results[value] - at) for value, at in appended.items() if at >= began)
        print_peaks([each for each in slow if each[1] > asked.peaks], feeder.late, began)
    delays = sorted(results[value] - at for value, at in appended.items() if at >= began)
    return [delays[int(len(delays) * part)] for part in (0.5, 0.99, 0.999)] + idle


def print_peaks(slow: list[tuple[int, int]], late: list[tuple[float, float]], began: float) -> None:
    """Print each group of slow results, given by their time and their delay, with the longest wait of the feeder in it."""
    groups: list[list[tuple[int, int]]] = []
    for at, delay in slow:
        if not groups or at - groups[-1][-1][0] > APART_MS:
            groups.append([])
        groups[-1].append((at, delay))
    for group in groups:
        start, end = min(at - delay for at, delay in group), group[-1][0]
        waits = [by for when, by in late if start - by <= when <= end + by]
        print(
            f"    at {(start - began) / 1000:.2f} s ({time.strftime('%H:%M:%S', time.gmtime(start / 1000))}): {len(group)} results,"
            f" up to {max(delay for _, delay in group)} ms; the feeder late by up to {max(waits, default=0):.0f} ms",
            flush=True,
        )


def table(log: Log, asked: argparse.Namespace) -> list[str]:
    """The rows of all works, medians of the rounds."""
    keys = [(each, case, program) for each in asked.guarantees for case in asked.only for program in asked.programs]
    runs: dict[tuple[str, str, str], list[list[float]]] = {key: [] for key in keys}
    for number in range(asked.rounds):
        for (guarantee, case, program), found in runs.items():
            found.append(measure(program, guarantee, case, log, number, asked))
            print(f"  {CASES[case][0]}, {guarantee}, round {number + 1}: {program} {found[-1]}", flush=True)
    return [
        f"| {CASES[case][0]} | {guarantee} | {program} | "
        + " | ".join(f"{statistics.median(column):,.4g}" for column in zip(*found, strict=True))
        + " |"
        for (guarantee, case, program), found in runs.items()
    ]


def options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rate", type=int, default=2_000, help="records a second")
    parser.add_argument("--partitions", type=int, default=1, help="partitions of each topic")
    parser.add_argument("--seconds", type=int, default=4, help="how long records count")
    parser.add_argument("--warm", type=int, default=3, help="the seconds after the first result that do not count")
    parser.add_argument("--idle", type=int, default=0, help="seconds without records in which CPU time is measured")
    parser.add_argument("--rounds", type=int, default=3, help="runs of each program")
    parser.add_argument("--peaks", type=int, default=0, help="print results that took more milliseconds, by groups")
    parser.add_argument("--only", choices=list(CASES), action="append", help="only this one; may be repeated")
    parser.add_argument("--program", choices=list(PROGRAMS), action="append", dest="programs", help="only this one")
    parser.add_argument("--guarantee", choices=GUARANTEES, action="append", dest="guarantees", help="only this one")
    asked = parser.parse_args(arguments)
    asked.programs = asked.programs or list(PROGRAMS)
    asked.guarantees = asked.guarantees or list(GUARANTEES)
    asked.only = asked.only or list(CASES)
    return asked


def main(arguments: list[str] | None = None) -> int:
    """Print the table."""
    asked = options(arguments)
    print(report.machine())
    columns = ["p50 ms", "p99 ms", "p99.9 ms", *(["CPU idle %"] if asked.idle else [])]
    lines = [
        f"| {asked.rate:,} records/s | guarantee | program | {' | '.join(columns)} |",
        "| --- | --- | --- |" + " ---: |" * len(columns),
    ]
    with Broker(heap="1g", measured=True) as broker:
        log = Log(broker.address)
        lines += table(log, asked)
        log.close()
    print("\n".join(lines) + f"\n\nat the end {report.machine().rpartition(', ')[2]}")
    return 0


if __name__ == "__main__":
    sys.exit(main())
