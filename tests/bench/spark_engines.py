"""Stages as Spark SQL against the same stages in Python and the DataFrame code that a user of Spark writes, on the same files.

    python -m tests.bench.spark_engines --records 1000000 --rounds 3

The history is Parquet with columns, as a lake has it. Four works: a count by key, a filter with a count by another key, a sum by key,
and a count by key in windows of a minute. `--works 3` chooses one.
Programs take turns in one session: the first round is cold, the medians of the others are warm. CPU seconds are those of all processes of
the job: the JVM, its Python workers, and this one. Outputs are compared.
"""

from __future__ import annotations

import argparse
import os
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from streamkit.plan import load
from streamkit.runtime.spark.job_options import JobOptions
from streamkit.runtime.spark.spark_session import Cluster, open_session
from streamkit.runtime.spark.submission.request import inputs_of, outputs_of
from streamkit.runtime.spark.submission.submit_job import submit
from tests.bench import report

PARTITIONS = 4
HEAD = """\
streamkit: 1
application: engines
topics:
  orders: {value: json, partitions: 4}
  out: {key: KEY, value: long, partitions: 4}
pipelines:
  out:
    stream: orders
    to: out
    steps:
"""
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Work:
    """The same work as steps of a topology and as code of a user; keys and values of the result are compared."""

    title: str
    steps: str
    frame: Callable[[Any], Any]
    key: str = "string"


def _counted(rows: Any) -> Any:
    from pyspark.sql import functions as sf

    return rows.groupBy(sf.col("user").alias("key")).agg(sf.count("*").alias("value"), sf.max("at").alias("timestamp"))


def _filtered(rows: Any) -> Any:
    from pyspark.sql import functions as sf

    kept = rows.where((sf.col("amount") > 100) & sf.col("kind").isin("a", "b") & sf.col("item").isNotNull())
    return kept.groupBy(sf.col("item").alias("key")).agg(sf.count("*").alias("value"), sf.max("at").alias("timestamp"))


def _summed(rows: Any) -> Any:
    from pyspark.sql import functions as sf

    found = rows.groupBy(sf.col("user").alias("key"))
    return found.agg(sf.sum("amount").alias("value"), sf.max("at").alias("timestamp"))


def _windowed(rows: Any) -> Any:
    from pyspark.sql import functions as sf

    found = rows.groupBy(sf.col("user").alias("key"), sf.window(sf.timestamp_millis("at"), "1 minute").alias("window"))
    counted = found.agg(sf.count("*").alias("value"), sf.max("at").alias("timestamp"))
    return counted.select("key", sf.col("window.start").alias("window_start"), "value", "timestamp")


WORKS = (
    Work("count by key", "[group_by_key, count, to_stream]", _counted),
    Work(
        "filter, count by another key",
        "[{filter: \"value.amount > 100 and value.kind in ['a', 'b']\"}, {group_by: value.item}, count, to_stream]",
        _filtered,
    ),
    Work(
        "sum by key",
        "[group_by_key, {aggregate: {initial: 0, add: aggregate + value.amount, value_serde: long}}, to_stream]",
        _summed,
    ),
    Work(
        "count by key in windows",
        "[group_by_key, {window: {tumbling: 1m, grace: 10s}}, count, to_stream]",
        _windowed,
        "{windowed: string, size: 1m}",
    ),
)


def make_history(spark: Any, path: Path, records: int) -> None:
    """Write orders: a user of 100,000 at most, one of 1,000 items, a kind, an amount, a price and a note that no work reads."""
    users = max(1, min(100_000, records // 10))
    spark.range(0, records, 1, PARTITIONS).selectExpr(
        f"concat('user-', pmod(xxhash64(id), {users})) user",
        "concat('item-', pmod(xxhash64(id, 1), 1000)) item",
        "element_at(array('a', 'b', 'c'), cast(1 + pmod(id, 3) as int)) kind",
        "pmod(xxhash64(id, 2), 1000) amount",
        "rand(1) price",
        "concat('note ', id) note",
        "1700000000000 + id at",
    ).write.parquet(str(path))


def cpu_seconds(root: int) -> float:
    """The CPU time of a process and of all that it has started, those that ended and were waited for too."""
    parents: dict[int, int] = {}
    ticks: dict[int, int] = {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue
        number = int(stat.parent.name)
        parents[number], ticks[number] = int(fields[1]), sum(map(int, fields[11:15]))
    tree = {root}
    while found := {number for number, parent in parents.items() if parent in tree} - tree:
        tree |= found
    return sum(ticks.get(number, 0) for number in tree) / TICKS


def by_user(work: Work, spark: Any, source: Path, target: Path) -> None:
    """The work as a user of Spark writes it."""
    work.frame(spark.read.parquet(str(source))).write.parquet(str(target))


def by_engine(work: Work, spark: Any, source: Path, target: Path, engine: str) -> None:
    """The work as a topology."""
    path = source.parent / "engines.yaml"
    path.write_text(HEAD.replace("KEY", work.key) + f"      {work.steps}\n")
    plan = load(path)
    inputs = inputs_of(plan, [f"orders={source},format=parquet,key=user,value=*,timestamp=at"])
    lines: list[str] = []
    submit(
        plan, JobOptions(inputs, outputs_of(plan, [f"out={target},format=parquet"]), engine=engine), spark, lines.append
    )
    assert engine == "python" or not [line for line in lines if "not sql" in line or "after all" in line], lines


PROGRAMS: dict[str, Callable[[Work, Any, Path, Path], None]] = {
    "DataFrame": by_user,
    "sql": lambda *arguments: by_engine(*arguments, "auto"),
    "python": lambda *arguments: by_engine(*arguments, "python"),
}


def rows_of(spark: Any, target: Path) -> list[tuple[Any, ...]]:
    """The rows of an output: key, window, value, and the time in milliseconds."""
    frame = spark.read.parquet(str(target))
    time_of = "timestamp" if dict(frame.dtypes)["timestamp"] == "bigint" else "unix_millis(timestamp)"
    windows = ["window_start"] if "window_start" in frame.columns else []
    return sorted(map(tuple, frame.selectExpr("key", *windows, "value", time_of).collect()))


def main() -> None:
    """Print a table of CPU seconds and wall time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=3, help="rounds that count, after the first one")
    parser.add_argument(
        "--programs", default=",".join(PROGRAMS), help="those that take turns, with commas; the first is the base"
    )
    parser.add_argument("--works", default=",".join(map(str, range(len(WORKS)))), help="their numbers, with commas")
    options = parser.parse_args()
    programs = {name: PROGRAMS[name] for name in options.programs.split(",")}
    settings = {
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": str(PARTITIONS),
    }
    print(report.machine())
    spark = open_session(Cluster("local[2]", settings), "engines")
    print(f"\n{options.records:,} records, `local[2]`; CPU seconds / wall seconds\n")
    print(
        "| work | program | cold | warm | CPU, against the first | output |\n| --- | --- | ---: | ---: | ---: | --- |"
    )
    with tempfile.TemporaryDirectory() as name:
        source = Path(name) / "orders"
        make_history(spark, source, options.records)
        for number, work in ((int(each), WORKS[int(each)]) for each in options.works.split(",")):
            times: dict[str, list[tuple[float, float]]] = {program: [] for program in programs}
            results: dict[str, list[tuple[Any, ...]]] = {}
            for turn in range(options.rounds + 1):
                for program, run in programs.items():
                    target = Path(name) / f"{program}-{number}-{turn}"
                    started, before = time.monotonic(), cpu_seconds(os.getpid())
                    run(work, spark, source, target)
                    times[program].append((cpu_seconds(os.getpid()) - before, time.monotonic() - started))
                    results[program] = rows_of(spark, target)
            show(work, times, results)
    spark.stop()
    print(f"\nat the end {report.machine().rpartition(', ')[2]}")


def show(work: Work, times: dict[str, list[tuple[float, float]]], results: dict[str, list[tuple[Any, ...]]]) -> None:
    """Print the lines of one work."""
    first = next(iter(times))
    base = statistics.median(cpu for cpu, _ in times[first][1:])
    for program, found in times.items():
        cold, warm = found[0], [statistics.median(each) for each in zip(*found[1:], strict=True)]
        same = "same" if results[program] == results[first] else "DIFFERENT"
        cells = [
            work.title,
            program,
            f"{cold[0]:.1f} / {cold[1]:.1f}",
            f"{warm[0]:.2f} / {warm[1]:.2f}",
            f"{warm[0] / base:.2f}",
        ]
        print(f"| {' | '.join([*cells, same])} |", flush=True)


if __name__ == "__main__":
    main()
