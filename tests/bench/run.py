"""Compares streamkit, Kafka Streams in Java, a loop by hand and Quix Streams, one thread each, on one broker.

    python -m tests.bench.run [--quick] [--runs 3] [--only count] [--publish]

Each run of each program reads the same input topic from its start. The rate is that between the marker at the end of
the warm-up and the last one, by the broker's clock at the arrival of the markers, so that neither start nor JIT nor
the final flush count. Programs take turns; medians are printed, and saved with every single figure.

BENCH_BEFORE=/path/to/another/checkout/.venv/bin/python compares streamkit with that checkout in place of the other programs.
"""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from tests.bench import programs, report, scenarios
from tests.bench.measure import Bench, Measured
from tests.bench.scenarios import Scenario
from tests.broker.kafka_broker import Broker

RESULTS = Path(__file__).with_name("results")
DOCS = Path(__file__).parents[2] / "docs" / "benchmarks"
QUICK = 10


def bench(scenario: Scenario, broker: Bench, runs: int, with_quix: bool) -> list[dict[str, Any]]:
    """All runs of a scenario, the programs in turns."""
    found: dict[str, list[Measured]] = {program: [] for program in programs.of(scenario, with_quix)}
    for number in range(runs):
        for program, measured in found.items():
            measured.append(broker.run(program, scenario, f"{program.replace(' ', '-').lower()}-{number}"))
            print(f"  {scenario.name} run {number + 1}: {program} {measured[-1].rate:,.0f} records/s", flush=True)
    same = len({each.digest for measured in found.values() for each in measured}) == 1
    rates = {program: [each.rate for each in measured] for program, measured in found.items()}
    memory = {program: [each.memory_mb for each in measured] for program, measured in found.items()}
    results = [report.summary(scenario.name, scenario.title, rates, unit="records/s", **{"same output": same})]
    title = f"memory of: {scenario.title}"
    results.append(report.summary(f"{scenario.name}-memory", title, memory, "less", unit="MB"))
    if scenario.restores:
        seconds = {program: [each.restore_seconds or 0 for each in measured] for program, measured in found.items()}
        results.append(report.summary("restore", "restore 1 M keys, to first record", seconds, "less", unit="s"))
    return results


def starts(broker: Bench, runs: int) -> dict[str, Any]:
    """The time from start to first record out, the programs in turns."""
    scenario = next(each for each in scenarios.ALL if each.name == "count")
    seconds: dict[str, list[float]] = {programs.STREAMKIT: [], programs.JAVA: []}
    for number in range(runs):
        for program, found in seconds.items():
            found.append(broker.start_seconds(program, scenario, f"{program.replace(' ', '-').lower()}-{number}"))
            print(f"  start run {number + 1}: {program} {found[-1]:.2f} s", flush=True)
    return report.summary("start", "start to first record", seconds, "less", unit="s")


def options(arguments: list[str] | None) -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    quick = f"one run over a {QUICK}th of the input: shows that it works, no more"
    parser.add_argument("--quick", action="store_true", help=quick)
    parser.add_argument("--runs", type=int, default=3, help="runs of each program")
    names = [*(each.name for each in scenarios.ALL), "start"]
    parser.add_argument("--only", choices=names, action="append", help="only this one; may be repeated")
    parser.add_argument(
        "--no-quix", action="store_true", help="without Quix Streams, which is installed when asked for"
    )
    parser.add_argument(
        "--publish", action="store_true", help="write table and picture to docs/benchmarks, by --only among those there"
    )
    return parser.parse_args(arguments)


def main(arguments: list[str] | None = None) -> int:
    asked = options(arguments)
    chosen = [each for each in scenarios.ALL if not asked.only or each.name in asked.only]
    if asked.quick:
        chosen = [each.smaller(QUICK) for each in chosen]
    runs = 1 if asked.quick else asked.runs
    where = report.machine()
    print(where)
    results: list[dict[str, Any]] = []
    with Broker(heap="1g", measured=True) as broker:
        on_broker = Bench(broker.address)
        for each in chosen:
            results += bench(each, on_broker, runs, not asked.no_quix)
        if not asked.only or "start" in asked.only:
            results.append(starts(on_broker, runs))
    text = report.table(results)
    print(f"\n{text}\n\n{where}")
    save(results, text, where, RESULTS / ("quick" if asked.quick else "results"))
    if asked.publish:
        known = among_published(results) if asked.only else results
        save(known, report.table(known), where, DOCS / "results")
    return 0 if all(each.get("same output", True) for each in results) else 1


def among_published(results: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The published results with these in place of the earlier ones of the same names."""
    file = DOCS / "results.json"
    before = json.loads(file.read_text(encoding="utf-8"))["results"] if file.exists() else []
    fresh = {each["name"]: each for each in results}
    return [fresh.pop(each["name"], each) for each in before] + list(fresh.values())


def save(results: list[dict[str, Any]], text: str, where: str, place: Path) -> None:
    """Write the results as JSON, as a table and as a picture."""
    place.parent.mkdir(parents=True, exist_ok=True)
    data = json.dumps({"machine": where, "results": results}, indent=2)
    place.with_suffix(".json").write_text(data + "\n", encoding="utf-8")
    place.with_suffix(".md").write_text(f"{where}\n\n{text}\n", encoding="utf-8")
    if any(each["unit"] == "records/s" for each in results):
        place.with_suffix(".svg").write_text(report.picture(results), encoding="utf-8")
    print(f"saved as {place}.json, .md, .svg")


if __name__ == "__main__":
    sys.exit(main())
