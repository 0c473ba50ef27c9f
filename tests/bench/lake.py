"""A topology over a lake: from Iceberg tables of users and orders to Iceberg tables, compared with queries of Spark SQL.

    python -m tests.bench.lake --rows 10000000

Plain Spark creates the inputs: orders, partitioned by day, a hundred for each user; 2% of them name users that do not exist. One
`streamkit submit` joins orders with users, sums the revenue of each country and day behind a repartition, and aggregates the sessions
of each user. Plain Spark then reads the output tables and compares them with queries over the inputs, which share nothing with the
topology. Prints the seconds of each part, the CPU seconds of the command, and the first rows of each table. Exits with 1 if a table
differs. Fetches PySpark and Iceberg once, as the tests do.
"""

from __future__ import annotations

import argparse
import os
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from pathlib import Path
from typing import Any

from tests.cli.support import command
from tests.spark.table_environment import ICEBERG, environment

MASTER = "local[2]"
DAYS, GAP_MS, ORDERS_OF_A_USER = 30, 6 * 3_600_000, 100
BEGIN = "2026-01-01 00:00:00"
TOPOLOGY = """\
streamkit: 1
application: lake
topics:
  orders: {key: long, value: json, partitions: 4}
  users: {key: long, value: string, partitions: 4}
  enriched: {key: long, value: json}
  revenue: {key: {windowed: string, size: 1d}, value: json}
  visits: {key: {session_windowed: long}, value: json}
pipelines:
  users: {table: users}
  enriched:
    stream: orders
    steps:
      - select_key: {key: value.user_id, key_serde: long}
      - join: {with: users, value: '{"order_id": left.order_id, "country": right, "cents": left.cents}'}
    to: enriched
  revenue:
    from: enriched
    steps:
      - select_key: {key: value.country, key_serde: string}
      - repartition: {partitions: 2, name: countries, key_serde: string}
      - group_by_key: {}
      - window: {tumbling: 1d, grace: 1d}
      - aggregate:
          initial: '{"orders": 0, "cents": 0}'
          add: '{"orders": aggregate.orders + 1, "cents": aggregate.cents + value.cents}'
      - to_stream
    to: revenue
  visits:
    from: enriched
    steps:
      - group_by_key: {}
      - window: {session: 6h, grace: 1d}
      - aggregate:
          initial: '{"orders": 0, "cents": 0}'
          add: '{"orders": aggregate.orders + 1, "cents": aggregate.cents + value.cents}'
          merge: '{"orders": left.orders + right.orders, "cents": left.cents + right.cents}'
      - to_stream
    to: visits
"""
SUMS = "value=orders bigint,cents bigint"
OUTPUTS = {
    "enriched": "lake.out.enriched,value=order_id bigint,country string,cents bigint",
    "revenue": f"lake.out.revenue,{SUMS},partition_by=month(window_start)",
    "visits": f"lake.out.visits,{SUMS}",
}
JOINED = "SELECT o.*, u.country FROM lake.shop.orders o JOIN lake.shop.users u ON o.user_id = u.id"
EXPECTED = {
    "enriched": (
        "key, value_order_id, value_country, value_cents, timestamp",
        f"SELECT user_id, order_id, country, cents, at FROM ({JOINED})",
    ),
    "revenue": (
        "key, window_start, value_orders, value_cents",
        f"SELECT country, date_trunc('DAY', at), count(*), sum(cents) FROM ({JOINED}) GROUP BY 1, 2",
    ),
    "visits": (
        "key, window_start, window_end, value_orders, value_cents",
        f"""
        SELECT user_id, min(at), max(at), count(*), sum(cents) FROM (
          SELECT *, sum(is_new) OVER (PARTITION BY user_id ORDER BY at ROWS UNBOUNDED PRECEDING) number FROM (
            SELECT *, if(unix_millis(at) - lag(unix_millis(at)) OVER (PARTITION BY user_id ORDER BY at) <= {GAP_MS}, 0, 1) is_new
            FROM ({JOINED})))
        GROUP BY user_id, number
        """,
    ),
}
"""For each topic: the columns of its table to compare, and the query over the inputs that returns the same rows."""


def settings(folder: Path) -> dict[str, str]:
    """Return the settings of Spark, which the job shares with plain Spark."""
    return {
        "spark.jars": os.environ["JARS"],
        "spark.driver.memory": "3g",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
        "spark.sql.shuffle.partitions": "4",
        "spark.sql.session.timeZone": "UTC",
        "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
        "spark.sql.catalog.lake.type": "hadoop",
        "spark.sql.catalog.lake.warehouse": str(folder / "lake"),
    }


def make_lake(spark: Any, rows: int) -> None:
    """Create the tables of users and orders. Their columns are hashes of ids, and no two orders have the same time."""
    users = max(rows // ORDERS_OF_A_USER, 1)
    step = DAYS * 86_400_000 // rows
    spark.sql("CREATE TABLE lake.shop.users (id bigint, country string, since timestamp) USING iceberg")
    spark.sql(
        "INSERT INTO lake.shop.users SELECT id, concat('c', pmod(hash(id), 40)), timestamp'2025-12-01' + id * interval 1 second "
        f"FROM range({users})"
    )
    spark.sql(
        "CREATE TABLE lake.shop.orders (order_id bigint, user_id bigint, cents bigint, at timestamp) USING iceberg "
        "PARTITIONED BY (days(at))"
    )
    # 2% of the orders are of users that do not exist.
    spark.sql(
        f"INSERT INTO lake.shop.orders SELECT id, pmod(xxhash64(id), {users + users // 50 + 1}), pmod(hash(id, 1), 10000), "
        f"timestamp_millis(unix_millis(timestamp'{BEGIN}') + id * {step}) FROM range({rows})"
    )


def submit_line(folder: Path) -> list[str]:
    """Return the command of the job."""
    options = [each for setting in settings(folder).items() for each in ("--conf", "=".join(setting))]
    options += ["--input", "orders=lake.shop.orders,key=order_id,value=order_id,user_id,cents,timestamp=at"]
    options += ["--input", "users=lake.shop.users,key=id,value=country,timestamp=since"]
    options += [each for topic, place in OUTPUTS.items() for each in ("--output", f"{topic}={place}")]
    return command("submit", folder / "topology.yaml", "--master", MASTER, *options)


def compare(spark: Any, topic: str) -> tuple[int, int, int]:
    """Return the number of rows of a topic's table, of those that only the table has, and of those that only the query has."""
    columns, query = EXPECTED[topic]
    table = f"SELECT {columns} FROM lake.out.{topic}"
    only_table, only_query = (
        spark.sql(f"SELECT count(*) FROM ({one} EXCEPT ALL {other})").first()[0]
        for one, other in ((table, query), (query, table))
    )
    return spark.table(f"lake.out.{topic}").count(), only_table, only_query


@contextmanager
def plain_spark(folder: Path) -> Iterator[Any]:
    """Open a session of Spark that knows the lake, and nothing of streamkit."""
    from pyspark.sql import SparkSession

    builder = SparkSession.builder.master(MASTER)
    for name, value in settings(folder).items():
        builder = builder.config(name, value)
    spark = builder.getOrCreate()
    spark.sparkContext.setLogLevel("ERROR")
    try:
        yield spark
    finally:
        spark.stop()


def timed(name: str, function: Callable[[], Any]) -> Any:
    """Call a function, print its seconds, and return its result."""
    started = time.monotonic()
    result = function()
    print(f"{name}: {time.monotonic() - started:.1f} s, load {os.getloadavg()[0]:.1f}", flush=True)
    return result


def run(folder: Path, rows: int) -> bool:
    """Create the lake, run the job, and compare its tables. Return whether all are equal."""
    from tests.bench.incremental import run_measured

    (folder / "topology.yaml").write_text(TOPOLOGY)
    with plain_spark(folder) as spark:
        timed("lake", lambda: make_lake(spark, rows))
    cost = timed("job", lambda: run_measured(submit_line(folder), folder / "job.log"))
    print(f"job: {cost.cpu_seconds:.1f} CPU s", flush=True)
    is_equal = True
    with plain_spark(folder) as spark:
        for topic in EXPECTED:
            spark.sql(f"SELECT * FROM lake.out.{topic} LIMIT 3").show(truncate=False)
            count, only_table, only_query = timed(f"check of {topic}", partial(compare, spark, topic))
            print(f"{topic}: {count} rows; {only_table} only in the table, {only_query} only in the query", flush=True)
            is_equal = is_equal and only_table == only_query == 0
    return is_equal


def main() -> int:
    """Return the exit code."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rows", type=int, default=1_000_000, help="the number of orders")
    parser.add_argument("--folder", type=Path, help="an empty directory for the tables, which stay there")
    options = parser.parse_args()
    if "JARS" not in os.environ:
        os.execve(sys.executable, [sys.executable, "-m", "tests.bench.lake", *sys.argv[1:]], environment(ICEBERG))
    if options.folder:
        return int(not run(options.folder, options.rows))
    with tempfile.TemporaryDirectory(prefix="streamkit-bench-") as name:
        return int(not run(Path(name), options.rows))


if __name__ == "__main__":
    raise SystemExit(main())
