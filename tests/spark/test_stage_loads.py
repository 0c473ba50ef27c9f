"""What `submit --dry-run` tells about the tasks of stages, and the warning that one task reads everything."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet
import pytest

from streamkit.plan import load
from streamkit.runtime.spark.job_options import JSON_LINES, JobOptions, Place
from streamkit.runtime.spark.rows.log_rows import Address
from streamkit.runtime.spark.submission.request import inputs_of
from streamkit.runtime.spark.submission.submit_job import Prepared, declared_counts, prepare
from tests.spark.support import write_lines

TOPOLOGY = """\
streamkit: 1
application: loads
config: {state.dir: STATE}
topics:
  orders: {key: string, value: json PARTITIONS}
  totals: {key: string, value: long}
pipelines:
  totals:
    stream: orders
    steps: [{group_by: 'value["user"]'}, count, to_stream]
    to: totals
"""


def prepared(folder: Path, partitions: str, *inputs: str) -> Prepared:
    """A job as --dry-run prepares it. partitions: those that the entry of the input declares."""
    path = folder / "topology.yaml"
    path.write_text(TOPOLOGY.replace(" PARTITIONS", partitions).replace("STATE", str(folder / "state")))
    plan = load(path)
    options = JobOptions(inputs_of(plan, [f"orders={text}" for text in inputs]))
    return prepare(plan, options, declared_counts(plan, options.inputs), creates=False)


def records(count: int) -> list[dict[str, Any]]:
    return [{"key": "k", "value": {"user": "ann"}, "timestamp": at} for at in range(count)]


def parquet(path: Path, count: int) -> Path:
    pyarrow.parquet.write_table(pa.table({"value": ["{}"] * count}), path)
    return path


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    """A folder with 10 rows in two files of Parquet, and hidden files."""
    folder = tmp_path / "lake"
    (folder / "day=1").mkdir(parents=True)
    (folder / "_old").mkdir()
    for name, count in (("a", 7), ("day=1/b", 3), ("_old/c", 100), (".d", 100)):
        parquet(folder / f"{name}.parquet", count)
    return folder


def test_one_task_reads_everything(lake: Path, tmp_path: Path) -> None:
    lines = write_lines(tmp_path / "in.jsonl", records(5)).path
    found = prepared(tmp_path, "", f"{lake},format=parquet", lines)
    assert found.warnings == (
        "orders: one task reads all its records unless they name partitions; `partitions: N` in its entry of topics, or a column partition, spreads them "
        "over N tasks",
    )
    first, second, reason, behind, third, *_ = found.describe()
    assert reason == "  not sql: orders is read record by record, not from columns"
    assert first.startswith("stage 1: sub-topology 0, 1 task: orders -> ")
    assert second == "  engine python; its one task reads all records: at most 15"
    assert behind.startswith("stage 2: ")
    assert third == "  engine python; largest task: not known before the stages that write its topics have run"


def test_fields_of_csv_are_text(tmp_path: Path) -> None:
    table = tmp_path / "in.csv"
    table.write_text("user,cents\nann,5\n")
    expected = "orders: all fields are text, since CSV has no types; with options.inferSchema=true Spark finds numbers"
    assert prepared(tmp_path, ", partitions: 4", f"{table},value=*,timestamp=0").warnings == (expected,)
    for known in (f"{table},value=user,timestamp=0", f"{table},value=*,timestamp=0,options.inferSchema=true"):
        assert prepared(tmp_path, ", partitions: 4", known).warnings == ()


def test_a_declared_number_of_partitions(lake: Path, tmp_path: Path) -> None:
    found = prepared(tmp_path, ", partitions: 4", f"{lake},format=parquet")
    assert found.warnings == ()
    assert found.describe()[1] == "  engine python; largest task: about 3 of 10 records, if keys spread evenly"
    assert prepared(tmp_path, ", partitions: 1", f"{lake},format=parquet").warnings == ()
    assert prepared(tmp_path, "", f"{lake},format=parquet,partition=p,value=v,timestamp=t").warnings == ()


def test_one_partition_that_is_cut_into_tasks(tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(
        "streamkit: 1\napplication: cut\ntopics: {orders: {key: string, value: json}, out: {key: string, value: json}}\n"
        "pipelines: {out: {stream: orders, steps: [{filter: value is not None}], to: out}}\n"
    )
    plan = load(path)
    lines = write_lines(tmp_path / "in.jsonl", records(10)).path
    options = JobOptions(
        inputs_of(plan, [f"orders={lines}"]), {"out": Place(str(tmp_path / "out"), JSON_LINES)}, parallelism=4
    )
    found = prepare(plan, options, declared_counts(plan, options.inputs), creates=False)
    assert found.warnings == ()
    assert found.describe()[1] == "  engine python; largest task: about 3 of 10 records, if keys spread evenly"


def test_what_only_spark_can_tell(tmp_path: Path) -> None:
    packed = tmp_path / "in.jsonl.gz"
    packed.write_bytes(b"not read here")
    for place in (f"{packed}", "lake.db.orders", "s3a://lake/orders,format=parquet"):
        found = prepared(tmp_path, ", partitions: 4", place)
        assert (
            found.describe()[1] == "  engine python; largest task: only Spark can determine how many records orders has"
        )


def test_ranges_of_the_log(tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(TOPOLOGY.replace(" PARTITIONS", "").replace("STATE", str(tmp_path / "state")))
    with Address.of(load(path)).opened() as transport:
        from streamkit.transport.log_interface import NewTopic

        transport.admin().create_topics([NewTopic("orders", 2, {}, 1)])
        producer = transport.producer()
        producer.send([("orders", None, b"{}", 1, None, at % 3 % 2) for at in range(9)])
        producer.flush()
        producer.close()
    assert prepared(tmp_path, "").describe()[1] == "  engine python; largest task: at most 6 of 9 records"
