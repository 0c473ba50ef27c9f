"""ShuffleBench beside Kafka Streams and Flink on one broker: throughput, latency, and instances that are killed.

    python -m tests.bench.shufflebench [throughput|latency|faults] [--cases 1000:0,100000:1] [--rounds 3]
                                       [--programs streamkit,java,heap,rocksdb]

Records have 1 KiB, the rules match 20 % of them, each consumer has a state of 1 KiB and a result for each tenth of its
records. A case is a number of rules and the exponent of their shares: 0 for equal ones, 1 for Zipf's law.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
from pathlib import Path

from tests.bench import report
from tests.bench.shufflebench import faults, load
from tests.bench.shufflebench.functions import STATE
from tests.bench.shufflebench.jobs import Case, application, digest, job
from tests.bench.side_by_side import LIMIT_SECONDS, PROGRAMS, Measured, Progress, measure, running, tables
from tests.broker.kafka_broker import Broker
from tests.broker.support import Log, until

CASES = "1000:0,100000:0,1000:1,100000:1"
WARM_PART = 4
"""Which part of the records, or of the seconds, is for the warm-up."""


def throughput(log: Log, cases: list[Case], programs: list[str], rounds: int, records: int) -> list[str]:
    """Rates over records that are on the broker; the programs in turns."""
    topic = f"shuffle-input-{records}"
    load.create(log.address, topic, by_broker=False)
    load.fill(log.address, topic, records)
    measured: dict[str, dict[str, list[Measured]]] = {}
    for case in cases:
        runs = measured[case.title] = {program: [] for program in programs}
        for number in range(rounds):
            for program, found in runs.items():
                made = job(case, application(program, "rate", case, number), topic, {}, bounded=True)
                load.create(log.address, made.topics["output"])
                found.append(measure(program, made, log, records // WARM_PART))
                found[-1].digest = digest(log.read(made.topics["output"]))
                print(f"  {case.title}, round {number + 1}: {program} {found[-1]}", flush=True)
    return [tables(f"{records:,} records", measured)]


def delays(program: str, case: Case, log: Log, number: int, rate: int, seconds: int) -> list[int]:
    """Sorted milliseconds from the arrival of a consumer's last record on the broker to that of its result."""
    made = job(
        case, application(program, "latency", case, number), f"in-{application(program, 'latency', case, number)}", {}
    )
    (topic,) = made.inputs
    load.create(log.address, topic)
    load.create(log.address, made.topics["output"])
    feeder = load.Feeder(log.address, topic, 1, rate, seconds)
    progress = Progress(log, made)
    with (
        tempfile.TemporaryDirectory(prefix="bench-") as scratch,
        running(program, made, Path(scratch), log.address),
    ):
        feeder.start()
        feeder.end()
        until(lambda: progress.look()[1], "all is committed", LIMIT_SECONDS)
    progress.close()
    found = [(raw.timestamp, STATE.unpack_from(raw.value or b"")[3]) for raw in log.read(made.topics["output"])]
    warm = min(ended for _, ended in found) + seconds * 1000 // WARM_PART
    return sorted(arrived - ended for arrived, ended in found if ended >= warm)


def latency(log: Log, cases: list[Case], programs: list[str], rounds: int, rate: int, seconds: int) -> list[str]:
    """Percentiles of the delays at a steady rate, medians of the rounds; the programs in turns."""
    lines = [f"| {rate:,} records/s | program | p50 ms | p99 ms | results |", "| --- | --- | ---: | ---: | ---: |"]
    for case in cases:
        runs: dict[str, list[tuple[int, int, int]]] = {program: [] for program in programs}
        for number in range(rounds):
            for program, found in runs.items():
                each = delays(program, case, log, number, rate, seconds)
                found.append((each[len(each) // 2], each[len(each) * 99 // 100], len(each)))
                print(f"  {case.title}, round {number + 1}: {program} {found[-1]}", flush=True)
        for program, found in runs.items():
            p50, p99, results = (statistics.median(column) for column in zip(*found, strict=True))
            lines.append(f"| {case.title} | {program} | {p50:,.0f} | {p99:,.0f} | {results:,.0f} |")
    return lines


def options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.shufflebench",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    kinds = ("throughput", "latency", "faults")
    parser.add_argument("kinds", nargs="*", default=[], metavar="KIND", help=f"of {', '.join(kinds)}; default: all")
    parser.add_argument("--cases", default=CASES, help="RULES:EXPONENT with commas; latency and faults take the first")
    parser.add_argument(
        "--programs", default=",".join(PROGRAMS), help="with commas; default: all; faults: always the first two"
    )
    parser.add_argument("--rounds", type=int, default=3, help="runs of each program; of faults one")
    parser.add_argument("--records", type=int, default=600_000, help="throughput: records on the broker")
    parser.add_argument("--rate", type=int, default=2_000, help="latency and faults: records a second")
    parser.add_argument("--seconds", type=int, default=40, help="latency: how long records come")
    parser.add_argument("--minutes", type=float, default=3, help="faults: how long records come")
    parser.add_argument("--guarantee", choices=faults.GUARANTEES, default=faults.GUARANTEES[0], help="faults")
    asked = parser.parse_args(arguments)
    if wrong := [each for each in asked.kinds if each not in kinds]:
        parser.error(f"no such kind: {wrong[0]}; there are {', '.join(kinds)}")
    asked.kinds = asked.kinds or list(kinds)
    if wrong := [each for each in asked.programs.split(",") if each not in PROGRAMS]:
        parser.error(f"no such program: {wrong[0]}; there are {', '.join(PROGRAMS)}")
    asked.programs = [PROGRAMS[each] for each in asked.programs.split(",")]
    return asked


def main(arguments: list[str] | None = None) -> int:
    """Print the tables; 1 where outputs differ or records are lost."""
    asked = options(arguments)
    cases = [
        Case(int(rules), float(exponent))
        for rules, _, exponent in (each.partition(":") for each in asked.cases.split(","))
    ]
    print(report.machine())
    lines: list[str] = []
    with Broker(heap="1g", measured=True) as broker:
        log = Log(broker.address)
        if "throughput" in asked.kinds:
            lines += ["", *throughput(log, cases, asked.programs, asked.rounds, asked.records)]
        if "latency" in asked.kinds:
            lines += ["", *latency(log, cases[:1], asked.programs, asked.rounds, asked.rate, asked.seconds)]
        if "faults" in asked.kinds:
            lines += ["", *faults.table(log, cases[0], asked.guarantee, asked.rate, asked.minutes)]
        log.close()
    print("\n".join(lines) + f"\n\nat the end {report.machine().rpartition(', ')[2]}")
    return int(any("DIFFERENT" in line or "LOST" in line for line in lines))


if __name__ == "__main__":
    sys.exit(main())
