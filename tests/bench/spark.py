"""`make bench-spark`: a batch job against a PySpark job of the same meaning written by hand, warm, on the same files.

    python -m tests.bench.spark --records 2000000 --rounds 3

The history is Parquet with the bytes of the log, as a lake keeps topics: orders of random keys, half as many keys as records.
Both filter, sum by key with the time of the last record, and write JSON Lines. `--rates 1,8` also gives the times for so many
million records, and the most memory that a worker has had up to then.
"""

from __future__ import annotations

import argparse
import os
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

from streamkit.plan import load
from streamkit.runtime.spark.job_options import JSON_LINES, PARQUET, JobOptions, Place
from streamkit.runtime.spark.spark_session import Cluster, open_session
from streamkit.runtime.spark.submission.submit_job import submit

PARTITIONS = 4
TOPOLOGY = """\
streamkit: 1
application: bench
topics: {sales: {value: json, partitions: 4}, sums: {value: long, partitions: 4}}
pipelines:
  sums:
    stream: sales
    steps:
      - filter: value.amount > 100
      - group_by_key
      - aggregate: {initial: 0, add: aggregate + value.amount, value_serde: long}
      - to_stream
    to: sums
"""


def make_history(spark: Any, path: Path, records: int) -> None:
    """Write a topic's records as Parquet."""
    key = f"concat('k', cast(pmod(xxhash64(id), {max(1, records // 2)}) as string))"
    value = "concat('{\"user\":\"u', pmod(xxhash64(id, 1), 1000), '\",\"amount\":', pmod(xxhash64(id, 2), 1000), '}')"
    rows = spark.range(0, records, 1, PARTITIONS).selectExpr(f"{key} k", f"{value} v", "id")
    rows.selectExpr(
        "cast(k as binary) key",
        "cast(v as binary) value",
        "1700000000000 + id timestamp",
        f"cast(pmod(xxhash64(k), {PARTITIONS}) as int) partition",
        "id offset",
    ).write.parquet(str(path))


def by_hand(spark: Any, source: Path, target: Path) -> None:
    """The job as one writes it in PySpark: decode and filter, shuffle by key, sum in a dict."""
    rows = spark.read.parquet(str(source)).select("key", "value", "timestamp")
    kept = rows.mapInArrow(_filtered, "key binary, amount bigint, timestamp bigint")
    kept.repartition(PARTITIONS, "key").mapInArrow(_summed, "value string").write.text(str(target))


def _filtered(batches: Iterable[Any]) -> Iterator[Any]:
    import orjson
    import pyarrow as pa

    for batch in batches:
        keys: list[bytes] = []
        amounts: list[int] = []
        times: list[int] = []
        for key, value, timestamp in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            amount = orjson.loads(value)["amount"]
            if amount > 100:
                keys.append(key)
                amounts.append(amount)
                times.append(timestamp)
        yield pa.RecordBatch.from_pydict({"key": pa.array(keys, pa.binary()), "amount": amounts, "timestamp": times})


def _summed(batches: Iterable[Any]) -> Iterator[Any]:
    import orjson
    import pyarrow as pa

    sums: dict[bytes, int] = {}
    last: dict[bytes, int] = {}
    for batch in batches:
        for key, amount, timestamp in zip(*(column.to_pylist() for column in batch.columns), strict=True):
            sums[key] = sums.get(key, 0) + amount
            if timestamp > last.get(key, -1):
                last[key] = timestamp
    found = list(sums.items())
    for start in range(0, len(found), 20_000):
        lines = [
            orjson.dumps({"topic": "sums", "key": key.decode(), "value": value, "timestamp": last[key]}).decode()
            for key, value in found[start : start + 20_000]
        ]
        yield pa.RecordBatch.from_pydict({"value": lines})


def by_streamkit(spark: Any, source: Path, target: Path) -> None:
    """The same as a topology."""
    path = target.parent / "bench.yaml"
    path.write_text(TOPOLOGY)
    places = {"sales": (Place(str(source), PARQUET),)}, {"sums": Place(str(target), JSON_LINES)}
    submit(load(path), JobOptions(*places), spark)


def timed(job: Callable[[Any, Path, Path], None], spark: Any, source: Path, folder: Path) -> float:
    started = time.monotonic()
    job(spark, source, folder / f"{job.__name__}-{time.monotonic_ns()}")
    return time.monotonic() - started


def worker_megabytes() -> int:
    """The most memory that any of Spark's Python workers has had."""
    highest = 0
    for status in Path("/proc").glob("[0-9]*/status"):
        try:
            if b"pyspark.daemon" in (status.parent / "cmdline").read_bytes():
                line = next(line for line in status.read_text().splitlines() if line.startswith("VmHWM"))
                highest = max(highest, int(line.split()[1]) // 1024)
        except (OSError, StopIteration):
            continue
    return highest


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--records", type=int, default=2_000_000)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--rates", default="", help="millions of records, separated by commas")
    options = parser.parse_args()
    settings = {
        "spark.driver.memory": "1g",
        "spark.ui.enabled": "false",
        "spark.sql.shuffle.partitions": str(PARTITIONS),
    }
    spark = open_session(Cluster(f"local[{os.cpu_count()}]", settings), "bench")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        source = folder / "history"
        make_history(spark, source, options.records)
        best = {by_hand: float("inf"), by_streamkit: float("inf")}
        for _ in range(options.rounds + 1):
            for job in best:
                best[job] = min(best[job], timed(job, spark, source, folder))
        hand, own = best.values()
        print(f"{options.records} records: by hand {hand:.1f} s, streamkit {own:.1f} s: {hand / own:.2f} of its speed")
        print(f"a Python worker used at most {worker_megabytes()} MB")
        for millions in filter(None, options.rates.split(",")):
            part = folder / f"history-{millions}"
            make_history(spark, part, int(float(millions) * 1_000_000))
            own, most = timed(by_streamkit, spark, part, folder), worker_megabytes()
            print(
                f"{millions} M records: {own:.1f} s, at most {most} MB (by hand {timed(by_hand, spark, part, folder):.1f} s)"
            )
    spark.stop()


if __name__ == "__main__":
    main()
