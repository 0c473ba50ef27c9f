"""Hourly runs of an incremental batch job, each as a process like one of cron, against one job over all hours so far.

    python -m tests.bench.incremental

Counts words: each hour is a Parquet file of lines of ten words, drawn evenly from a vocabulary of a million, so that the state nears
a million keys within the first hours. Prints a table in Markdown, for the hours of `--whole`: the seconds and the CPU seconds of the
run of that hour, and of one job without a checkpoint over the hours up to then. Both are those of all processes of the command, the
start of Spark included. stderr has a line for each hour.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

from streamkit.runtime.spark.spark_session import Cluster, open_session

TOPOLOGY = """\
streamkit: 1
application: hourly
topics: {lines: {value: string, partitions: 4}, counts: {value: long, partitions: 4}}
pipelines:
  words:
    stream: lines
    steps:
      - flat_map_values: {values: value.split(), value_serde: string}
      - group_by: value
      - count: words
      - to_stream
    to: counts
"""
WORDS_IN_A_LINE = 10
SAMPLED_S = 0.2
"""The seconds between two readings of the CPU time of processes: the last reading of each counts."""
SETTINGS = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "4", "spark.driver.memory": "2g"}


class Cost(NamedTuple):
    """What a command took."""

    seconds: float
    cpu_seconds: float


def main() -> None:
    """Print the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=int, default=20)
    parser.add_argument("--lines", type=int, default=100_000, help="of an hour")
    parser.add_argument("--words", type=int, default=1_000_000, help="of the vocabulary")
    parser.add_argument("--whole", default="1,5,20", help="the hours in the table")
    parser.add_argument("--master", default="local[2]")
    options = parser.parse_args()
    shown = {int(hour) for hour in options.whole.split(",")}
    rows = []
    with tempfile.TemporaryDirectory(prefix="streamkit-bench-") as name:
        folder = Path(name)
        (folder / "topology.yaml").write_text(TOPOLOGY)
        (folder / "later").mkdir()
        (folder / "lines").mkdir()
        _make_hours(folder / "later", options)
        for hour in range(1, options.hours + 1):
            file = f"{hour:02}.parquet"
            os.rename(folder / "later" / file, folder / "lines" / file)
            cost = _submit(folder, options.master, "counts", "--checkpoint", str(folder / "checkpoint"))
            load = os.getloadavg()[0]
            print(f"hour {hour}: {cost.seconds:.1f} s, {cost.cpu_seconds:.1f} CPU s, load {load:.1f}", file=sys.stderr)
            if hour in shown:
                whole = _submit(folder, options.master, f"whole-{hour}")
                rows.append((hour, *cost, *whole, load))
    print("| hour | s of its run | CPU s | s of one job over all hours | CPU s | load |")
    print("| ---: | ---: | ---: | ---: | ---: | ---: |")
    for hour, *numbers in rows:
        print(f"| {hour} | {' | '.join(f'{number:.1f}' for number in numbers)} |")


def _make_hours(folder: Path, options: argparse.Namespace) -> None:
    spark = open_session(Cluster(options.master, SETTINGS), "bench")
    for hour in range(1, options.hours + 1):
        words = ", ".join(
            f"concat('w', cast(pmod(xxhash64(id, {hour}, {at}), {options.words}) as string))"
            for at in range(WORDS_IN_A_LINE)
        )
        rows = spark.range(0, options.lines, 1, 1).selectExpr(
            f"concat_ws(' ', {words}) value", f"1700000000000 + {hour} * 3600000 + id timestamp"
        )
        part = folder / f"{hour}"
        rows.write.parquet(str(part))
        os.rename(next(part.glob("*.parquet")), folder / f"{hour:02}.parquet")
    spark.stop()


def _submit(folder: Path, master: str, output: str, *more: str) -> Cost:
    """Run the command."""
    conf = [part for name, value in SETTINGS.items() for part in ("--conf", f"{name}={value}")]
    command = [
        *(sys.executable, "-m", "streamkit_cli", "submit", str(folder / "topology.yaml"), "--master", master, *conf),
        *("--input", f"lines={folder / 'lines'},format=parquet", "--output", f"counts={folder / output}", *more),
    ]
    return run_measured(command, folder / "submit.log")


def run_measured(command: list[str], log: Path) -> Cost:
    """Run a command; raise SystemExit with what it printed where it fails."""
    started = time.monotonic()
    with log.open("w") as out:
        process = subprocess.Popen(command, stdout=out, stderr=out, start_new_session=True)
    ticks: dict[int, int] = {}
    while True:
        ticks.update(_ticks(process.pid))
        try:
            code = process.wait(timeout=SAMPLED_S)
            break
        except subprocess.TimeoutExpired:
            continue
    if code:
        raise SystemExit(f"{' '.join(command)}: {log.read_text()}")
    return Cost(time.monotonic() - started, sum(ticks.values()) / os.sysconf("SC_CLK_TCK"))


def _ticks(session: int) -> dict[int, int]:
    """Return the CPU time so far of each process of a session, which Spark's Python workers stay in."""
    found = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        if int(fields[3]) == session:
            found[int(stat.parent.name)] = int(fields[11]) + int(fields[12])
    return found


if __name__ == "__main__":
    main()
