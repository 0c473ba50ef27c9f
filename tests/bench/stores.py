"""Compares the engines of persistent stores: the same topologies on one broker, with LevelDB and with RocksDB in turns.

    python -m tests.bench.stores [--quick] [--runs 3] [--publish]

Beside the rate of tests.bench.run it shows the CPU time of the processes, start and end included, which other work on
the machine hardly changes.
"""

from __future__ import annotations

import argparse
import json
import resource
import statistics
import sys
from dataclasses import replace
from typing import Any

from streamkit.state.engines.open_maps import is_installed
from tests.bench import report, scenarios
from tests.bench.measure import Bench
from tests.bench.programs import BY_ENGINE
from tests.bench.run import DOCS, QUICK
from tests.broker.kafka_broker import Broker

NAMES = ("count", "distinct", "tumbling")
COMPARED = {program: engine for program, engine in BY_ENGINE.items() if is_installed(engine)}
"""LevelDB has no wheels beyond Python 3.12."""


def compare(scenario: scenarios.Scenario, broker: Bench, runs: int) -> dict[str, Any]:
    """All runs of a scenario, the engines in turns."""
    found: dict[str, dict[str, list[float]]] = {
        program: {"records/s": [], "CPU s": [], "MB": []} for program in COMPARED
    }
    digests = set()
    for number in range(runs):
        for program, figures in found.items():
            before = cpu_seconds()
            measured = broker.run(program, scenario, f"{COMPARED[program]}-{number}")
            figures["records/s"].append(round(measured.rate))
            figures["CPU s"].append(round(cpu_seconds() - before, 2))
            figures["MB"].append(round(measured.memory_mb, 1))
            digests.add(measured.digest)
            last = {unit: values[-1] for unit, values in figures.items()}
            print(f"  {scenario.name} run {number + 1}: {program} {last}", flush=True)
    return {"name": scenario.name, "title": scenario.title, "same output": len(digests) == 1, "runs": found}


def cpu_seconds() -> float:
    """The CPU time of the processes that have ended: the broker still runs, so that it does not count."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def table(results: list[dict[str, Any]]) -> str:
    """A Markdown table of medians."""
    units = ("records/s", "CPU s", "MB")
    rows = ["| | " + " | ".join(f"{unit}, {name.split()[1]}" for unit in units for name in COMPARED) + " | output |"]
    rows.append("| --- |" + " ---: |" * (len(units) * len(COMPARED)) + " --- |")
    for each in results:
        cells = [f"{statistics.median(each['runs'][name][unit]):,g}" for unit in units for name in COMPARED]
        rows.append(f"| {each['title']} | {' | '.join(cells)} | {'same' if each['same output'] else 'DIFFERENT'} |")
    return "\n".join(rows)


def main() -> int:
    """Print the table; return 1 where the engines gave different output."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--quick", action="store_true", help=f"one run over a {QUICK}th of the input")
    parser.add_argument("--runs", type=int, default=3, help="runs of each engine")
    parser.add_argument("--publish", action="store_true", help="write engines.md and engines.json to docs/benchmarks")
    asked = parser.parse_args()
    # A restore would count among the CPU time.
    chosen = [replace(each, restores=False) for each in scenarios.ALL if each.name in NAMES]
    if asked.quick:
        chosen = [each.smaller(QUICK) for each in chosen]
    where = report.machine()
    print(where)
    with Broker(heap="1g", measured=True) as running:
        broker = Bench(running.address)
        results = [compare(each, broker, 1 if asked.quick else asked.runs) for each in chosen]
    print(f"\n{table(results)}")
    if asked.publish:
        where += f"; at the end {report.machine().rpartition(', ')[2]}"
        (DOCS / "engines.md").write_text(f"{where}\n\n{table(results)}\n", encoding="utf-8")
        data = json.dumps({"machine": where, "results": results}, indent=2)
        (DOCS / "engines.json").write_text(data + "\n", encoding="utf-8")
    return 0 if all(each["same output"] for each in results) else 1


if __name__ == "__main__":
    sys.exit(main())
