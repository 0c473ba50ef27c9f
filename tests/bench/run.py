"""Compares the throughput of streamkit, Kafka Streams in Java and a loop by hand, one thread each, on one broker.

    python -m tests.bench.run [--quick] [--runs 3] [--only stateless]

Each run of each program reads the same input topic from its start. The rate is that between the marker at the end of
the warm-up and the last one, by the broker's clock at the arrival of the markers, so that neither start nor JIT nor
the final flush count. Programs take turns; the medians are printed and saved with every single rate.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from tests.bench import scenarios, topics
from tests.bench.scenarios import Scenario
from tests.broker.kafka_broker import Broker
from tests.java import build

PROGRAMS = ("streamkit", "java", "by hand")
RESULTS = Path(__file__).with_name("results")
QUICK = 10
LIMIT_SECONDS = 900
POLL_SECONDS = 0.3


def command(program: str, scenario: Scenario, names: dict[str, str], folder: Path) -> list[str]:
    """The command line of a program."""
    if program == "java":
        places = [names["bootstrap"], names["application"], str(folder / "state")]
        return [
            *build.command("bench/java", "Peer"),
            scenario.name,
            *places,
            names["input"],
            names["output"],
            names["progress"],
        ]
    if program == "streamkit":
        file = folder / "topology.yaml"
        file.write_text(scenario.yaml.format(**names, state=folder / "state"), encoding="utf-8")
        return [sys.executable, "-m", "streamkit_cli", "run", str(file), "--until-idle"]
    places = [names["bootstrap"], names["application"], names["input"], names["output"], names["progress"]]
    return [sys.executable, "-m", "tests.bench.by_hand", scenario.name, *places]


def measure(program: str, scenario: Scenario, bootstrap: str, source: str, tag: str) -> tuple[float, str]:
    """Run a program over the whole input; returns (lines a second, digest of its output)."""
    application = f"bench-{scenario.name}-{tag}"
    names = {"bootstrap": bootstrap, "application": application, "input": source}
    names |= {"output": f"{application}-out", "progress": f"{application}-progress"}
    measured = names["output" if scenario.measured_on == "out" else "progress"]
    topics.create(bootstrap, names["output"], names["progress"])
    reader = topics.Reader(bootstrap)
    with tempfile.TemporaryDirectory(prefix="bench-") as scratch:
        folder = Path(scratch)
        with (folder / "log").open("w+") as log:
            process = subprocess.Popen(command(program, scenario, names, folder), stdout=log, stderr=log)
            try:
                wait(process, program, reader, measured, f"{scenarios.MARK}{scenario.lines:07d}")
            except BaseException:
                process.kill()
                process.wait()
                log.seek(0)
                sys.stderr.write(log.read()[-3000:])
                raise
    times = topics.marks(reader, measured)
    found = topics.result(reader, names["output"], scenario.last_per_key)
    reader.close()
    seconds = (times[scenario.lines] - times[scenario.warm]) / 1000
    return (scenario.lines - scenario.warm) / seconds, found


def wait(process: subprocess.Popen, program: str, reader: topics.Reader, topic: str, last: str) -> None:
    """Wait until the last marker has arrived and the program has ended; Kafka Streams needs to be told to."""
    deadline = time.monotonic() + LIMIT_SECONDS
    while reader.last(topic) != last:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{program} did not finish in {LIMIT_SECONDS} s")
        try:
            process.wait(POLL_SECONDS)
        except subprocess.TimeoutExpired:
            continue
        if reader.last(topic) != last:
            raise RuntimeError(f"{program} ended early with exit code {process.returncode}")
    if program == "java":
        process.terminate()
    process.wait(120)


def bench(scenario: Scenario, bootstrap: str, runs: int) -> dict:
    """All runs of a scenario, the programs in turns."""
    source = f"lines-{scenario.lines}"
    rates: dict[str, list[float]] = {program: [] for program in PROGRAMS}
    digests: dict[str, set[str]] = {program: set() for program in PROGRAMS}
    for number in range(runs):
        for program in PROGRAMS:
            tag = f"{program.replace(' ', '-')}-{number}"
            rate, found = measure(program, scenario, bootstrap, source, tag)
            rates[program].append(round(rate))
            digests[program].add(found)
            print(f"  {scenario.name} run {number + 1}: {program} {rate:,.0f} lines/s", flush=True)
    medians = {program: statistics.median(each) for program, each in rates.items()}
    return {
        "scenario": scenario.name,
        "title": scenario.title,
        "lines": scenario.lines - scenario.warm,
        "rates": rates,
        "median": medians,
        "streamkit / java": round(medians["streamkit"] / medians["java"], 3),
        "streamkit / by hand": round(medians["streamkit"] / medians["by hand"], 3),
        "same output": len(set.union(*digests.values())) == 1,
    }


def machine() -> str:
    """What the numbers were taken on."""
    model = platform.processor() or platform.machine()
    cpuinfo = Path("/proc/cpuinfo")
    if cpuinfo.exists():
        names = [
            line.split(":", 1)[1].strip() for line in cpuinfo.read_text().splitlines() if line.startswith("model name")
        ]
        model = names[0] if names else model
    java = subprocess.run(["java", "-version"], capture_output=True, text=True, check=False).stderr.splitlines()
    release = java[0] if java else "no Java"
    return (
        f"{model}, {os.cpu_count()} CPUs, Python {platform.python_version()}, {release}, load {os.getloadavg()[0]:.1f}"
    )


def table(results: list[dict]) -> str:
    lines = [
        f"{'median lines/s':<28}{'streamkit':>12}{'java':>12}{'by hand':>12}{'/ java':>9}{'/ by hand':>11}  output"
    ]
    for each in results:
        cells = "".join(f"{each['median'][program]:>12,.0f}" for program in PROGRAMS)
        ratios = f"{each['streamkit / java']:>9.2f}{each['streamkit / by hand']:>11.2f}"
        lines.append(f"{each['title']:<28}{cells}{ratios}  {'same' if each['same output'] else 'DIFFERENT'}")
    return "\n".join(lines)


def main(arguments: list[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument(
        "--quick", action="store_true", help=f"one run over a {QUICK}th of the input: shows that it works, no more"
    )
    parser.add_argument("--runs", type=int, default=3, help="runs of each program")
    parser.add_argument(
        "--only", choices=[each.name for each in scenarios.ALL], action="append", help="only this scenario"
    )
    options = parser.parse_args(arguments)
    chosen = [each for each in scenarios.ALL if not options.only or each.name in options.only]
    if options.quick:
        chosen = [each.smaller(QUICK) for each in chosen]
    where = machine()
    print(where)
    build.command("bench/java", "Peer")
    with Broker(heap="1g") as broker:
        for count in sorted({each.lines for each in chosen}):
            print(f"writing {count:,} lines", flush=True)
            topics.fill(broker.address, f"lines-{count}", count)
        results = [bench(each, broker.address, 1 if options.quick else options.runs) for each in chosen]
    print(f"\n{table(results)}\n{where}")
    RESULTS.mkdir(exist_ok=True)
    file = RESULTS / ("quick.json" if options.quick else "results.json")
    file.write_text(json.dumps({"machine": where, "results": results}, indent=2) + "\n", encoding="utf-8")
    print(f"saved as {file}")
    return 0 if all(each["same output"] for each in results) else 1


if __name__ == "__main__":
    sys.exit(main())
