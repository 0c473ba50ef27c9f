"""Stages as Spark SQL against the DataFrame code that a user of Spark writes, the same stages in Python, and DuckDB, on the same files.

    python -m tests.bench.spark_engines --records 1000000,4000000 --keys even,half --masters local[1],local[2]

The history is Parquet with columns, as a lake has it. Twelve works: a count by key, a filter with a count by another key, a sum by key,
a count by key in windows of a minute, a filter with a join with a global table, a Python function of values, against a pandas UDF,
the last value by key, a count by key in closed windows, a join of two streams, a join of two tables, a merge of two streams with a
filter, and the filter with a count again, of values that are JSON text in one column.
`--works 3` chooses one. Five of them are also Python functions by hand, in `mapInArrow`. With the keys `half`, one key has half of the records, and with `one`, all, so that one partition has them. DuckDB, with as many threads, is the limit of what the machine does.
Programs take turns in one session for each master: the first round is cold, and the table has the medians of the others. CPU seconds are
those of all processes of the job: the JVM, its Python workers, and this one. Outputs are compared.
"""

from __future__ import annotations

import argparse
import itertools
import math
import os
import shutil
import statistics
import tempfile
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet

from streamkit.plan import load
from streamkit.runtime.spark.job_options import JobOptions
from streamkit.runtime.spark.spark_session import Cluster, open_session
from streamkit.runtime.spark.submission.request import inputs_of, outputs_of
from streamkit.runtime.spark.submission.submit_job import submit
from tests.bench import report, spark_by_hand

PARTITIONS = 4
HEAD = """\
streamkit: 1
application: engines
topics:
  orders: {value: json, partitions: PARTITIONS}
  items: {value: long}
  returns: {value: json, partitions: PARTITIONS}
  out: {key: KEY, value: long, partitions: 4}
functions:
  root: {call: "math:isqrt"}
pipelines:
TABLE
  out:
    FROM
    to: out
    steps:
"""
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True)
class Work:
    """The same work as steps of a topology and as code of a user; keys and values of the result are compared."""

    title: str
    steps: str
    frame: Callable[[Any, Any], Any]
    query: str
    """For DuckDB."""
    key: str = "string"
    partitions: int = PARTITIONS
    """Those of the orders: windows close by the times of one."""
    pipelines: str = ""
    """Those that the steps name, a line for each."""
    start: str = "stream: orders"
    has_text: bool = False
    """Whether the orders are JSON text in one column."""

    @property
    def other(self) -> str | None:
        """The topic that it reads beside the orders."""
        return next((topic for topic in ("items", "returns") if topic in self.steps + self.pipelines), None)


def _counted(rows: Any, items: Any) -> Any:
    from pyspark.sql import functions as sf

    return rows.groupBy(sf.col("user").alias("key")).agg(sf.count("*").alias("value"), sf.max("at").alias("timestamp"))


def _filtered(rows: Any, items: Any) -> Any:
    from pyspark.sql import functions as sf

    kept = rows.where((sf.col("amount") > 100) & sf.col("kind").isin("a", "b") & sf.col("item").isNotNull())
    return kept.groupBy(sf.col("item").alias("key")).agg(sf.count("*").alias("value"), sf.max("at").alias("timestamp"))


def _filtered_text(rows: Any, items: Any) -> Any:
    from pyspark.sql import functions as sf

    order = sf.from_json("payload", "item string, kind string, amount bigint").alias("order")
    return _filtered(rows.select("at", order).select("at", "order.*"), items)


def _summed(rows: Any, items: Any) -> Any:
    from pyspark.sql import functions as sf

    found = rows.groupBy(sf.col("user").alias("key"))
    return found.agg(sf.sum("amount").alias("value"), sf.max("at").alias("timestamp"))


def _windowed(rows: Any, items: Any) -> Any:
    from pyspark.sql import functions as sf

    found = rows.groupBy(sf.col("user").alias("key"), sf.window(sf.timestamp_millis("at"), "1 minute").alias("window"))
    counted = found.agg(sf.count("*").alias("value"), sf.max("at").alias("timestamp"))
    return counted.select("key", sf.col("window.start").alias("window_start"), "value", "timestamp")


def _joined(rows: Any, items: Any) -> Any:
    from pyspark.sql import functions as sf

    kept = rows.where(sf.col("amount") > 900).join(items, "item")
    return kept.select(sf.col("user").alias("key"), sf.col("weight").alias("value"), sf.col("at").alias("timestamp"))


def _last(rows: Any, items: Any) -> Any:
    from pyspark.sql import functions as sf

    found = rows.groupBy(sf.col("user").alias("key"))
    return found.agg(sf.max_by("amount", "at").alias("value"), sf.max("at").alias("timestamp"))


def _closed(rows: Any, items: Any) -> Any:
    from pyspark.sql import functions as sf

    last = rows.agg(sf.max("at").alias("last"))
    windows = _windowed(rows, items).crossJoin(sf.broadcast(last))
    is_closed = sf.unix_millis("window_start") + 60_000 <= sf.col("last") - 10_000
    return windows.where(is_closed).drop("last")


def _paired(rows: Any, returns: Any) -> Any:
    from pyspark.sql import functions as sf

    left, right = rows.alias("left"), returns.alias("right")
    is_near = sf.col("right.at").between(sf.col("left.at") - 60_000, sf.col("left.at") + 60_000)
    pairs = left.join(right, (sf.col("left.user") == sf.col("right.user")) & is_near)
    value, time = sf.col("left.amount") + sf.col("right.amount"), sf.greatest("left.at", "right.at")
    return pairs.select(sf.col("left.user").alias("key"), value.alias("value"), time.alias("timestamp"))


def _tables(rows: Any, returns: Any) -> Any:
    from pyspark.sql import functions as sf

    def latest(changes: Any, name: str) -> Any:
        last = [sf.max_by("amount", "at").alias(name), sf.max("at").alias(f"{name} at")]
        return changes.groupBy(sf.col("user").alias("key")).agg(*last)

    both = latest(rows, "left").join(latest(returns, "right"), "key")
    time = sf.greatest("left at", "right at").alias("timestamp")
    return both.select("key", sf.coalesce("left", "right").alias("value"), time)


def _merged(rows: Any, returns: Any) -> Any:
    from pyspark.sql import functions as sf

    kept = rows.unionByName(returns).where(sf.col("amount") > 100)
    return kept.select(sf.col("user").alias("key"), sf.col("amount").alias("value"), sf.col("at").alias("timestamp"))


def _rooted(rows: Any, items: Any) -> Any:
    from pyspark.sql import functions as sf

    root = sf.pandas_udf(lambda amounts: amounts.map(math.isqrt), "bigint")
    return rows.select(sf.col("user").alias("key"), root("amount").alias("value"), sf.col("at").alias("timestamp"))


WORKS = (
    Work(
        "count by key",
        "[group_by_key, count, to_stream]",
        _counted,
        'SELECT "user" AS key, count(*) AS value, max(orders."at") AS timestamp FROM orders GROUP BY 1',
    ),
    Work(
        "filter, count by another key",
        "[{filter: \"value.amount > 100 and value.kind in ['a', 'b']\"}, {group_by: value.item}, count, to_stream]",
        _filtered,
        'SELECT item AS key, count(*) AS value, max(orders."at") AS timestamp FROM orders '
        "WHERE amount > 100 AND kind IN ('a', 'b') AND item IS NOT NULL GROUP BY 1",
    ),
    Work(
        "sum by key",
        "[group_by_key, {aggregate: {initial: 0, add: aggregate + value.amount, value_serde: long}}, to_stream]",
        _summed,
        'SELECT "user" AS key, sum(amount)::bigint AS value, max(orders."at") AS timestamp FROM orders GROUP BY 1',
    ),
    Work(
        "count by key in windows",
        "[group_by_key, {window: {tumbling: 1m, grace: 10s}}, count, to_stream]",
        _windowed,
        'SELECT "user" AS key, epoch_ms(orders."at" // 60000 * 60000) AS window_start, count(*) AS value, max(orders."at") AS timestamp '
        "FROM orders GROUP BY ALL",
        "{windowed: string, size: 1m}",
    ),
    Work(
        "filter, join with a global table",
        "[{filter: value.amount > 900}, {join: {with: items, on: value.item, value: right, value_serde: long}}]",
        _joined,
        'SELECT "user" AS key, weight AS value, orders."at" AS timestamp FROM orders JOIN items USING (item) WHERE amount > 900',
        pipelines="  items: {global_table: items}",
    ),
    Work(
        "a Python function in map_values",
        "[{map_values: root(value.amount)}]",
        _rooted,
        'SELECT "user" AS key, floor(sqrt(amount))::bigint AS value, orders."at" AS timestamp FROM orders',
    ),
    Work(
        "last value by key",
        "[{map_values: value.amount}, group_by_key, {reduce: value}, to_stream]",
        _last,
        'SELECT "user" AS key, arg_max(amount, orders."at") AS value, max(orders."at") AS timestamp FROM orders GROUP BY 1',
    ),
    Work(
        "count by key in closed windows",
        "[group_by_key, {window: {tumbling: 1m, grace: 10s}}, count, {suppress: window_closes}, to_stream]",
        _closed,
        'SELECT "user" AS key, epoch_ms(orders."at" // 60000 * 60000) AS window_start, count(*) AS value, max(orders."at") AS timestamp '
        'FROM orders WHERE (orders."at" // 60000 + 1) * 60000 <= (SELECT max("at") FROM orders) - 10000 GROUP BY ALL',
        "{windowed: string, size: 1m}",
        partitions=1,
    ),
    Work(
        "join of two streams within a minute",
        "[{join: {with: returned, within: 1m, grace: 1s, value: left.amount + right.amount}}]",
        _paired,
        'SELECT a."user" AS key, a.amount + b.amount AS value, greatest(a."at", b."at") AS timestamp FROM orders a '
        'JOIN returns b ON a."user" = b."user" AND b."at" BETWEEN a."at" - 60000 AND a."at" + 60000',
        pipelines="  returned: {stream: returns}",
    ),
    Work(
        "join of two tables",
        "[{join: {with: returned, value_serde: long, value: "
        "right.amount if left.amount is None else left.amount}}, to_stream]",
        _tables,
        'SELECT key, coalesce(a.value, b.value) AS value, greatest(a."at", b."at") AS timestamp FROM '
        '(SELECT "user" AS key, arg_max(amount, "at") AS value, max("at") AS "at" FROM orders GROUP BY 1) a JOIN '
        '(SELECT "user" AS key, arg_max(amount, "at") AS value, max("at") AS "at" FROM returns GROUP BY 1) b USING (key)',
        pipelines="  ordered: {table: orders}\n  returned: {table: returns}",
        start="from: ordered",
    ),
    Work(
        "merge of two streams, filter",
        "[{merge: returned}, {filter: value.amount > 100}, {map_values: value.amount}]",
        _merged,
        'SELECT "user" AS key, amount AS value, "at" AS timestamp FROM (FROM orders UNION ALL FROM returns) WHERE amount > 100',
        pipelines="  returned: {stream: returns}",
    ),
    Work(
        "filter, count by another key, of JSON text",
        "[{filter: \"value.amount > 100 and value.kind in ['a', 'b']\"}, {group_by: value.item}, count, to_stream]",
        _filtered_text,
        "SELECT payload->>'item' AS key, count(*) AS value, max(texts.\"at\") AS timestamp FROM texts "
        "WHERE (payload->>'amount')::bigint > 100 AND payload->>'kind' IN ('a', 'b') AND payload->>'item' IS NOT NULL GROUP BY 1",
        has_text=True,
    ),
)


def make_history(spark: Any, folder: Path, records: int, keys: str) -> None:
    """Write orders, also as JSON text, and returns: a user of 100,000 at most, one of 1,000 items, a kind, an amount, a price and a note that no work reads.

    keys: even, half, so that one user has half of the orders, or one, who has all of them, in one partition. The items have a weight.
    """
    from pyspark.sql import functions as sf

    users = max(1, min(100_000, records // 10))
    even = f"pmod(xxhash64(id), {users})"
    user = {"even": even, "half": f"if(id % 2 = 0, 0, {even})", "one": "0"}[keys]
    for topic, first in (("orders", 0), ("returns", 1_000_000_007)):
        spark.range(0, records, 1, PARTITIONS).withColumn("at", sf.expr("1700000000000 + id")).withColumn(
            "id", sf.col("id") + first
        ).selectExpr(
            f"concat('user-', {user}) user",
            "concat('item-', pmod(xxhash64(id, 1), 1000)) item",
            "element_at(array('a', 'b', 'c'), cast(1 + pmod(id, 3) as int)) kind",
            "pmod(xxhash64(id, 2), 1000) amount",
            "rand(1) price",
            "concat('note ', id) note",
            "at",
        ).write.parquet(str(folder / topic))
    texts = spark.read.parquet(str(folder / "orders")).selectExpr("user", "to_json(struct(*)) payload", "at")
    texts.write.parquet(str(folder / "texts"))
    spark.range(0, 1000, 1, 1).selectExpr("concat('item-', id) item", "id * 3 weight").write.parquet(
        str(folder / "items")
    )


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


def by_user(work: Work, spark: Any, folder: Path, target: Path) -> None:
    """The work as a user of Spark writes it."""
    _write(work.frame, work, spark, folder, target)


def in_arrow(work: Work, spark: Any, folder: Path, target: Path) -> None:
    """The work as functions of Python by hand."""
    _write(spark_by_hand.FRAMES[work.title], work, spark, folder, target)


def _write(frame: Callable[[Any, Any], Any], work: Work, spark: Any, folder: Path, target: Path) -> None:
    other = None if work.other is None else spark.read.parquet(str(folder / work.other))
    rows = spark.read.parquet(str(folder / ("texts" if work.has_text else "orders")))
    frame(rows, other).write.parquet(str(target))


def by_engine(work: Work, spark: Any, folder: Path, target: Path, engine: str) -> None:
    """The work as a topology."""
    path = folder / "engines.yaml"
    head = HEAD.replace("KEY", work.key).replace("TABLE", work.pipelines).replace("FROM", work.start)
    path.write_text(head.replace("PARTITIONS", str(work.partitions)) + f"      {work.steps}\n")
    plan = load(path)
    streams = [topic for topic in ("orders", "returns") if topic in ("orders", work.other)]
    places = [f"{topic}={folder}/{topic},format=parquet,key=user,value=*,timestamp=at" for topic in streams]
    if work.has_text:
        places = [f"orders={folder}/texts,format=parquet,key=user,value=payload,timestamp=at"]
    if work.other == "items":
        places.append(f"items={folder}/items,format=parquet,key=item,value=weight,timestamp=0")
    lines: list[str] = []
    submit(
        plan,
        JobOptions(inputs_of(plan, places), outputs_of(plan, [f"out={target},format=parquet"]), engine=engine),
        spark,
        lines.append,
    )
    in_python = [line for line in lines if "not sql" in line or "after all" in line]
    assert engine == "python" or not in_python, lines


def by_duckdb(work: Work, spark: Any, folder: Path, target: Path) -> None:
    """The work as a query of DuckDB, with as many threads."""
    import duckdb

    target.mkdir()
    with duckdb.connect(config={"threads": spark.sparkContext.defaultParallelism}) as connection:
        for name in ("orders", "returns", "items", "texts"):
            connection.execute(f"CREATE VIEW {name} AS FROM '{folder}/{name}/*.parquet'")
        connection.execute(f"COPY ({work.query}) TO '{target}/part.parquet'")


PROGRAMS: dict[str, Callable[[Work, Any, Path, Path], None]] = {
    "DataFrame": by_user,
    "sql": lambda *arguments: by_engine(*arguments, "auto"),
    "python": lambda *arguments: by_engine(*arguments, "python"),
    "duckdb": by_duckdb,
    "mapInArrow": in_arrow,
}


def rows_of(target: Path) -> pa.Table:
    """The rows of an output: key, window, value, and the time in milliseconds, in the order of all of them."""
    rows = pyarrow.parquet.read_table(target)
    for name in ("window_start", "timestamp"):
        if name in rows.column_names and pa.types.is_timestamp(rows.schema.field(name).type):
            place = rows.column_names.index(name)
            rows = rows.set_column(place, name, rows[name].cast(pa.timestamp("ms")).cast(pa.int64()))
    names = [name for name in ("key", "window_start", "value", "timestamp") if name in rows.column_names]
    schema = pa.schema([(name, pa.string() if name == "key" else pa.int64()) for name in names])
    return rows.select(names).cast(schema).sort_by([(name, "ascending") for name in names])


@dataclass
class Times:
    """CPU and wall seconds of the rounds of a program, and its output of the first one."""

    rounds: list[tuple[float, float]]
    rows: pa.Table | None = None

    @property
    def warm(self) -> tuple[float, float]:
        """The medians without the first round."""
        cpu, wall = zip(*self.rounds[1:], strict=True)
        return statistics.median(cpu), statistics.median(wall)


def main() -> None:
    """Print a table of CPU seconds and wall time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", default="1000000", help="numbers, with commas")
    parser.add_argument("--keys", default="even", help="even, half, one, or several with commas")
    parser.add_argument("--masters", default="local[2]", help="with commas")
    parser.add_argument("--rounds", type=int, default=3, help="rounds that count, after the first one")
    parser.add_argument(
        "--programs", default=",".join(PROGRAMS), help="those that take turns, with commas; the first is the base"
    )
    parser.add_argument("--works", default=",".join(map(str, range(len(WORKS)))), help="their numbers, with commas")
    options = parser.parse_args()
    programs = options.programs.split(",")
    settings = {
        "spark.driver.memory": "2g",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": str(PARTITIONS),
    }
    print(report.machine())
    print(f"\nCPU seconds / wall seconds (CPU, against {programs[0]}); medians of {options.rounds} warm rounds\n")
    print(f"| records | keys | master | work | {' | '.join(programs)} |")
    print(f"| ---: | --- | --- | --- | {' | '.join(['---:'] * len(programs))} |")
    with tempfile.TemporaryDirectory() as name:
        for master in options.masters.split(","):
            spark = open_session(Cluster(master, settings), "engines")
            for records, keys in itertools.product(map(int, options.records.split(",")), options.keys.split(",")):
                folder = Path(name) / f"{records}-{keys}"
                if not folder.exists():
                    make_history(spark, folder, records, keys)
                for work in (WORKS[int(number)] for number in options.works.split(",")):
                    known = [each for each in programs if each != "mapInArrow" or work.title in spark_by_hand.FRAMES]
                    found = timed(work, spark, folder, known, options.rounds)
                    print(f"| {records:,} | {keys} | {master} | {work.title} | {cells(found, programs)} |", flush=True)
            spark.stop()
    print(f"\nat the end {report.machine().rpartition(', ')[2]}")


def timed(work: Work, spark: Any, folder: Path, programs: Sequence[str], rounds: int) -> dict[str, Times]:
    """Run programs by turns; the first round is cold."""
    found: dict[str, Times] = {program: Times([]) for program in programs}
    for _ in range(rounds + 1):
        for program, times in found.items():
            target = folder / "result"
            started, before = time.monotonic(), cpu_seconds(os.getpid())
            PROGRAMS[program](work, spark, folder, target)
            times.rounds.append((cpu_seconds(os.getpid()) - before, time.monotonic() - started))
            times.rows = rows_of(target) if times.rows is None else times.rows
            shutil.rmtree(target)
    return found


def cells(found: dict[str, Times], programs: Sequence[str]) -> str:
    """Return the cells of the programs; one whose output is not that of the first says so."""
    first = next(iter(found.values()))
    texts = []
    for program in programs:
        if program not in found:
            texts.append("")
            continue
        times = found[program]
        cpu, wall = times.warm
        different = "" if times.rows == first.rows else " DIFFERENT"
        texts.append(f"{cpu:.2f} / {wall:.2f} ({cpu / first.warm[0]:.2f}){different}")
    return " | ".join(texts)


if __name__ == "__main__":
    main()
