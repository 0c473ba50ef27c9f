"""Rates of one application in several processes on one machine: count, word count and a stream-table join.

    python -m tests.bench.processes [--processes 1,2] [--rounds 3] [--partitions 16] [--times 6]

Each number of processes reads the same input from its start, in turns; medians count. Inputs are those of `python -m
tests.bench.run`, but longer, and every output is compared. The first half of the markers is the warm-up, whichever partitions
they are of: a process reads a million records before the next one has joined. Broker, processes and this one share the cores.
"""

from __future__ import annotations

import argparse
import statistics
import sys
from dataclasses import replace

from tests.bench import report, scenarios
from tests.bench.measure import Bench, Measured
from tests.bench.programs import STREAMKIT
from tests.broker.kafka_broker import Broker

NAMES = ("count", "words", "table")


def main(arguments: list[str] | None = None) -> int:
    """Print the table; 1 where outputs differ."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.bench.processes",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--processes", default="1,2", help="numbers of processes, with commas; the first is the base")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--partitions", type=int, default=16)
    parser.add_argument("--times", type=int, default=6, help="so many times the records of tests.bench.run")
    parser.add_argument("--only", choices=NAMES, action="append", help="only this one; may be repeated")
    asked = parser.parse_args(arguments)
    numbers = [int(number) for number in asked.processes.split(",")]
    print(report.machine())
    lines = ["| | " + " | ".join(f"{number} processes, records/s" for number in numbers) + " | ratio | output |"]
    lines.append("| --- |" + " ---: |" * (len(numbers) + 1) + " --- |")
    with Broker(heap="1g", measured=True) as broker:
        bench = Bench(broker.address)
        for known in (each for each in scenarios.ALL if each.name in (asked.only or NAMES)):
            records = known.records * asked.times
            base = replace(known, records=records, warm=records // 2, topology=known.program, by_share=True)
            # Partitions have no order among each other.
            compare = "any order" if base.compare == "ordered" else base.compare
            base = replace(base, partitions=asked.partitions, compare=compare)
            runs: dict[int, list[Measured]] = {number: [] for number in numbers}
            for turn in range(asked.rounds):
                for number, found in runs.items():
                    scenario = replace(base, name=f"{base.name}-{number}", processes=number)
                    found.append(bench.run(STREAMKIT, scenario, str(turn)))
                    print(f"  {known.name}, round {turn + 1}: {number} processes, {found[-1].rate:,.0f}", flush=True)
            rates = [statistics.median(each.rate for each in runs[number]) for number in numbers]
            same = len({each.digest for found in runs.values() for each in found}) == 1
            cells = [known.title, *(f"{rate:,.0f}" for rate in rates), f"{rates[-1] / rates[0]:.2f}"]
            lines.append("| " + " | ".join([*cells, "same" if same else "DIFFERENT"]) + " |")
    print("\n" + "\n".join(lines) + f"\n\nat the end {report.machine().rpartition(', ')[2]}")
    return int(any("DIFFERENT" in line for line in lines))


if __name__ == "__main__":
    sys.exit(main())
