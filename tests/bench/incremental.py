"""Hourly runs of an incremental batch job, each as a process like one of cron, against one job over all hours.

    python -m tests.bench.incremental --hours 20 --lines 100000

Counts words: each hour is a Parquet file of lines of ten words, drawn evenly from a vocabulary of a million. The state nears that
size within the first hours. A job without a checkpoint over the hours so far, as cron would start it otherwise, is
the comparison. Prints seconds of processes, the start of Spark included.
"""

from __future__ import annotations

import argparse
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from streamkit.runtime.spark.submission.spark_session import Cluster, open_session

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
SETTINGS = {"spark.ui.enabled": "false", "spark.sql.shuffle.partitions": "4", "spark.driver.memory": "2g"}


def main() -> None:
    """Print a line for each hour of interest."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--hours", type=int, default=20)
    parser.add_argument("--lines", type=int, default=100_000, help="of an hour")
    parser.add_argument("--words", type=int, default=1_000_000, help="of the vocabulary")
    parser.add_argument(
        "--whole", default="1,5,20", help="the hours after which one job over everything is measured, too"
    )
    parser.add_argument("--master", default="local[2]")
    options = parser.parse_args()
    whole = {int(hour) for hour in options.whole.split(",")}
    with tempfile.TemporaryDirectory(prefix="streamkit-bench-") as name:
        folder = Path(name)
        (folder / "topology.yaml").write_text(TOPOLOGY)
        (folder / "later").mkdir()
        (folder / "lines").mkdir()
        _make_hours(folder / "later", options)
        for hour in range(1, options.hours + 1):
            file = f"{hour:02}.parquet"
            os.rename(folder / "later" / file, folder / "lines" / file)
            taken = _submit(folder, options.master, "counts", "--checkpoint", str(folder / "checkpoint"))
            line = f"hour {hour:2}: {taken:6.1f} s for the hour, load {os.getloadavg()[0]:.1f}"
            if hour in whole:
                line += f"; {_submit(folder, options.master, f'whole-{hour}'):6.1f} s for all hours in one job"
            print(line, flush=True)


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


def _submit(folder: Path, master: str, output: str, *more: str) -> float:
    """Run the command; return its seconds."""
    conf = [part for name, value in SETTINGS.items() for part in ("--conf", f"{name}={value}")]
    command = [
        *(
            str(Path(sys.executable).with_name("streamkit")),
            "submit",
            str(folder / "topology.yaml"),
            "--master",
            master,
            *conf,
        ),
        *("--input", f"lines={folder / 'lines'},format=parquet", "--output", f"counts={folder / output}", *more),
    ]
    started = time.monotonic()
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        raise SystemExit(f"{' '.join(command)}: {done.stderr}")
    return time.monotonic() - started


if __name__ == "__main__":
    main()
