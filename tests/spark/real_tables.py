"""The cases of test_real_tables.py, which run in a process of their own with the PySpark of a table format."""

from __future__ import annotations

import json
import os
import shutil
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from streamkit.errors import StreamkitError
from streamkit.plan import load
from streamkit.runtime.spark.checkpoint import run_outputs as table_outputs
from streamkit.runtime.spark.checkpoint.job_checkpoint import Checkpoint
from streamkit.runtime.spark.job_options import JobOptions, parse_place
from streamkit.runtime.spark.rows.file_system import FileSystem
from streamkit.runtime.spark.rows.files import check_unchanged, open_files
from streamkit.runtime.spark.spark_session import Cluster, open_session
from streamkit.runtime.spark.submission.incremental import submit_next
from streamkit.runtime.spark.submission.submit_job import submit
from streamkit.runtime.spark.tables import table_writing
from streamkit.runtime.spark.tables.table_target import TableTarget
from tests.spark.spark_page import UI, SparkPage
from tests.spark.support import SETTINGS, write_lines
from tests.spark.table_environment import FORMATS

FORMAT = FORMATS[os.environ["TABLE_FORMAT"]]
TOPOLOGY = """\
streamkit: 1
application: lake
topics:
  changes: {key: string, value: string, partitions: 2}
  events: {key: json, value: json, partitions: 2}
  latest: {key: string, value: string}
  copies: {key: json, value: json}
  counts: {key: {windowed: json, size: 10s}, value: long}
pipelines:
  latest: {table: changes, steps: [to_stream], to: latest}
  copies: {stream: events, to: copies}
  counts:
    from: copies
    steps: [group_by_key, {window: {tumbling: 10s, grace: 0ms}}, count, to_stream]
    to: counts
"""


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session with the catalog `lake` of Iceberg, or with Delta in Spark's own catalog."""
    assert version("pyspark") == FORMAT.pyspark
    folder = tmp_path_factory.mktemp("lake")
    own = {
        "iceberg": {
            "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
            "spark.sql.catalog.lake.type": "hadoop",
            "spark.sql.catalog.lake.warehouse": str(folder),
            # Spark's own catalog is that of Hive.
            "spark.sql.catalogImplementation": "hive",
            "spark.hadoop.javax.jdo.option.ConnectionURL": "jdbc:derby:memory:hive;create=true",
            "spark.hadoop.datanucleus.schema.autoCreateAll": "true",
            "spark.hadoop.hive.metastore.schema.verification": "false",
        },
        "delta": {
            "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
            "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
            "spark.databricks.delta.snapshotPartitions": "1",
            # Of Delta's own queries, which read a few rows each, compiling takes a third of the time.
            "spark.sql.codegen.wholeStage": "false",
            "spark.sql.codegen.factoryMode": "NO_CODEGEN",
            # What a session has for other jobs must not lose rows of this one.
            "spark.sql.sources.partitionOverwriteMode": "dynamic",
            "spark.sql.files.ignoreMissingFiles": "true",
        },
    }
    places = {"spark.jars": os.environ["JARS"], "spark.sql.warehouse.dir": str(folder / "warehouse")}
    session = open_session(Cluster("local[2]", {**SETTINGS, **UI, **places, **own[FORMAT.name]}), "tables")
    # The database of Hive would write it to the working directory.
    session._jvm.java.lang.System.setProperty("derby.stream.error.file", str(folder / "derby.log"))
    yield session
    session.stop()


@pytest.fixture
def table(request: pytest.FixtureRequest) -> str:
    """The name of a table that no other test has."""
    name: str = request.node.name.replace("test_", "").partition("[")[0]
    return f"lake.db.{name}" if FORMAT.name == "iceberg" else f"spark_catalog.default.{name}"


@pytest.fixture
def job(spark: Any, tmp_path: Path) -> Any:
    """A function that runs records through the topology; outputs as after --output."""
    path = tmp_path / "topology.yaml"
    path.write_text(TOPOLOGY)

    def run(topic: str, records: list[tuple], *outputs: str, **options: Any) -> list[str]:
        said: list[str] = []
        rows = [{"key": key, "value": value, "timestamp": time} for key, value, time in records]
        inputs = {
            each: (write_lines(tmp_path / each, rows if each == topic else []),) for each in ("changes", "events")
        }
        places = dict(parse_place(output, "--output") for output in outputs)
        submit(load(path), JobOptions(inputs, places, **options), spark, said.append)
        return said

    return run


def rows(spark: Any, table: str, columns: str) -> list[tuple]:
    """What a reader finds, sorted."""
    return sorted(map(tuple, spark.sql(f"SELECT {columns} FROM {table}").collect()), key=repr)


def test_merged(spark: Any, job: Any, table: str) -> None:
    said = job("changes", [("a", "1", 1), ("b", "2", 2), ("a", "3", 3), ("c", "4", 4)], f"latest={table}")
    assert said[-1] == f"latest: merged into {table}"
    assert rows(spark, table, "key, value, unix_millis(timestamp)") == [("a", "3", 3), ("b", "2", 2), ("c", "4", 4)]
    assert "deleted" not in spark.table(table).columns
    # A deletion of a key that is there, of one that is not, an update and a new key.
    job("changes", [("a", None, 5), ("z", None, 6), ("b", "7", 7), ("d", "8", 8)], f"latest={table}", emit="updates")
    assert rows(spark, table, "key, value") == [("b", "7"), ("c", "4"), ("d", "8")]


def test_appended(spark: Any, job: Any, table: str) -> None:
    said = job("events", [("k", {"n": 1}, 1), ("k", {"n": 1}, 1)], f"copies={table},key=string,value=n int")
    assert said[-1] == f"copies: appended to {table}"
    assert rows(spark, table, "key, value_n") == [("k", 1), ("k", 1)]
    # Those of a table are appended where the user wants the history of its changes.
    job("changes", [("k", None, 3)], f"latest={table},mode=append")
    assert rows(spark, table, "value, deleted") == [(None, None)] * 2 + [(None, True)]


def test_windows(spark: Any, job: Any, table: str) -> None:
    output, columns = f"counts={table},key=a int,b string", "key_a, key_b, unix_millis(window_start) div 1000, value"
    # Two records of JSON that are two keys on the log, 1 and 1.0, and one key of the table.
    last = ({"a": 1.0, "b": "x"}, 1, 12_000)
    job("events", [*(({"a": 1, "b": "x"}, 1, at * 1000) for at in range(12)), last], output)
    assert rows(spark, table, columns) == [(1, "x", 0, 10), (1, "x", 10, 1)]
    job("events", [({"a": 2, "b": "x"}, 1, 0), *[({"a": 1, "b": "x"}, 1, 11_000)] * 3], output)
    assert rows(spark, table, columns) == [(1, "x", 0, 10), (1, "x", 10, 3), (2, "x", 0, 1)]


def test_an_older_version_of_a_table_and_one_without_its_files(spark: Any, tmp_path: Path, table: str) -> None:
    (tmp_path / "topology.yaml").write_text(TOPOLOGY)
    spark.sql(f"CREATE TABLE {table} (id int, at timestamp) USING {FORMAT.name}")
    for number in (1, 2):
        spark.sql(f"INSERT INTO {table} VALUES ({number}, timestamp_seconds({number}))")
    if FORMAT.name == "iceberg":
        version = spark.sql(f"SELECT snapshot_id FROM {table}.snapshots ORDER BY committed_at LIMIT 1").collect()[0][0]
    else:
        version = 1

    def run(out: str, options: str) -> None:
        _, place = parse_place(f"events={table},value=id,key=id,timestamp=at{options}", "--input")
        inputs = {"events": (place,), "changes": (write_lines(tmp_path / "changes", []),)}
        outputs = dict([parse_place(f"copies={tmp_path}/{out}", "--output")])
        submit(load(tmp_path / "topology.yaml"), JobOptions(inputs, outputs), spark)

    run("out", f",options.versionAsOf={version}")
    written = [json.loads(line)["value"] for file in (tmp_path / "out").glob("part-*") for line in file.open()]
    assert written == [1]
    for file in spark.table(table).inputFiles()[:1]:
        Path(file.removeprefix("file:")).unlink()
        with pytest.raises(StreamkitError, match=r"was deleted while the job read it|Failed to open input stream"):
            run("other", "")


def test_all_outputs_have_one_version_of_a_table(spark: Any, table: str) -> None:
    is_iceberg, name = FORMAT.name == "iceberg", table.rpartition(".")[2]
    view = f"{name}_seen"
    spark.sql(f"CREATE TABLE {table} (id int) USING {FORMAT.name}")
    spark.sql(f"INSERT INTO {table} VALUES (1)")
    lake = (
        spark.conf.get("spark.sql.catalog.lake.warehouse") + "/db"
        if is_iceberg
        else spark.conf.get("spark.sql.warehouse.dir")
    )
    path = f"{lake}/{name}"

    def opened(place: str) -> Any:
        _, parsed = parse_place(f"events={place},value=id,timestamp=id", "--input")
        assert parsed is not None
        return open_files(spark, parsed)

    table_input, path_input = opened(f"{table},format=table"), opened(f"{path},format={FORMAT.name}")
    spark.sql(f"ALTER TABLE {table} ADD COLUMNS (n int)")
    spark.table(table).createOrReplaceTempView(view)
    view_input, wider = (opened(f"{name},format=table") for name in (view, table))
    for each in (table_input, path_input, view_input, wider):
        check_unchanged(each)
    spark.sql(f"INSERT INTO {table} VALUES (2, 3)")
    for each in (table_input, path_input):
        check_unchanged(each)
        assert each.source.count() == 1
    # Iceberg has no commit with the columns of the table that was opened last.
    for each in (view_input, wider) if is_iceberg else (view_input,):
        assert each.source.count() == 2
        with pytest.raises(
            StreamkitError, match=rf"^{each.place.path}: the table, or one that it reads, was changed while the job"
        ):
            check_unchanged(each)


def test_a_condition_by_which_a_table_would_leave_out_rows(spark: Any, table: str) -> None:
    kept = {"zero = 0": 3, "zero > 5": 1, "text > '\uffff'": 3}
    spark.sql(f"CREATE TABLE {table} (zero double, text string) USING {FORMAT.name}")
    for rows_of_file in (", ".join(["(-0.0D, '\U0001f600'), (5.0D, 'a')"] * 3), "(double('NaN'), '\ud7ff')"):
        spark.sql(f"INSERT INTO {table} SELECT /*+ COALESCE(1) */ * FROM VALUES {rows_of_file}")
    for condition, count in kept.items():
        _, place = parse_place(
            f"events={table},format=table,value=text,timestamp=0,order=0,where={condition}", "--input"
        )
        assert place is not None
        assert open_files(spark, place).frame.count() == count, condition


@pytest.mark.skipif(FORMAT.name != "iceberg", reason="Spark's own catalog is that of Delta")
def test_text_that_hive_reads_is_refused(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "text").mkdir()
    (tmp_path / "text/a").write_text("1,7\n2,seven\n3,5,extra\n")
    text = f"STORED AS TEXTFILE LOCATION '{tmp_path}/text'"
    spark.sql(f"CREATE EXTERNAL TABLE hive_text (id int, n int) ROW FORMAT DELIMITED FIELDS TERMINATED BY ',' {text}")
    spark.sql("CREATE VIEW hive_view AS SELECT * FROM hive_text")
    for name in ("hive_text", "hive_view"):
        _, place = parse_place(f"events={name},format=table,value=n,timestamp=id", "--input")
        assert place is not None
        with pytest.raises(StreamkitError, match=rf"^{name}: Hive reads fields of text that do not fit as nulls"):
            open_files(spark, place)


@pytest.mark.skipif(FORMAT.name != "delta", reason="the reader of Avro is with the jars of Delta")
def test_avro_files_with_different_columns_are_refused(spark: Any, tmp_path: Path) -> None:
    """Spark takes the columns of one file for those of all, and leaves out the others without a word."""
    (tmp_path / "topology.yaml").write_text(TOPOLOGY)
    for day, columns in (("1", "1 AS a"), ("2", "2 AS a, 3 AS b")):
        spark.sql(f"SELECT {columns}, 0L AS timestamp").coalesce(1).write.format("avro").save(
            f"{tmp_path}/in/day={day}"
        )

    def run(*inputs: str) -> None:
        places = [parse_place(f"events={each}", "--input")[1] for each in inputs]
        changes = write_lines(tmp_path / "changes", [])
        outputs = dict([parse_place(f"copies={tmp_path}/out", "--output")])
        submit(
            load(tmp_path / "topology.yaml"),
            JobOptions({"events": tuple(places), "changes": (changes,)}, outputs),
            spark,
        )

    with pytest.raises(StreamkitError, match=r"has other columns than .*, such as b \(int\)"):
        run(f"{tmp_path}/in,value=*")
    run(f"{tmp_path}/in/day=1,value=*", f"{tmp_path}/in/day=2,value=*")
    written = [json.loads(line)["value"] for file in (tmp_path / "out").glob("part-*") for line in file.open()]
    assert sorted(written, key=str) == [{"a": 1, "timestamp": 0}, {"a": 2, "b": 3, "timestamp": 0}]


def test_columns_are_added_and_other_topics_have_the_bytes_of_the_log(spark: Any, job: Any, table: str) -> None:
    job("events", [("k", {"a": 1}, 1)], f"copies={table},key=string,value=a int", f"*={table}_rest,columns=log")
    rest = [(row.topic, bytes(row.key), row.timestamp) for row in spark.table(f"{table}_rest").collect()]
    assert rest == [("counts", b'"k"' + bytes(8), 1)]
    spark.sql(f"ALTER TABLE {table} ADD COLUMNS (mine string)")
    job("events", [("k", {"a": 2, "b": ["x"]}, 2)], f"copies={table},key=string,value=a int,b array<string>")
    assert rows(spark, table, "value_a, value_b, mine") == [(1, None, None), (2, ["x"], None)]


def test_replaced(spark: Any, job: Any, table: str) -> None:
    spark.sql(
        f"CREATE TABLE {table} (key string, value string, timestamp timestamp) USING {FORMAT.name} PARTITIONED BY (key)"
    )
    spark.sql(f"INSERT INTO {table} VALUES ('a', '1', timestamp_seconds(1)), ('b', '2', timestamp_seconds(2))")
    job("changes", [("c", "3", 3), ("d", None, 4)], f"latest={table}", overwrite=True)
    assert rows(spark, table, "key, value") == [("c", "3")]
    job("changes", [], f"latest={table},mode=overwrite")
    assert rows(spark, table, "key, value") == []


def test_a_path(spark: Any, job: Any, tmp_path: Path) -> None:
    output = f"latest={tmp_path}/my tables/of-today,format={FORMAT.name}"
    job("changes", [("a", "1", 1), ("b", "2", 2)], output)
    job("changes", [("a", None, 1), ("b", "3", 2)], output)
    found = spark.read.format(FORMAT.name).load(f"{tmp_path}/my tables/of-today").select("key", "value")
    assert [tuple(row) for row in found.collect()] == [("b", "3")]


def test_partitions_and_order(spark: Any, job: Any, table: str) -> None:
    output = f"latest={table},partition_by=day(timestamp),bucket(4,key),sort_by=value"
    if FORMAT.name == "delta":
        with pytest.raises(
            StreamkitError, match=r"partition_by=days\(timestamp\): Delta can be partitioned only by columns"
        ):
            job("changes", [], f"{output},format=delta")
        output = f"latest={table},format=delta,partition_by=key"
    job("changes", [("a", "2", 1), ("b", "1", 2)], output)
    assert rows(spark, table, "key, value") == [("a", "2"), ("b", "1")]
    if FORMAT.name == "delta":
        with pytest.raises(StreamkitError, match=r"key is '' in a row, which a partition can't represent"):
            job("changes", [("", "3", 3), ("b", "4", 4)], output)
        assert rows(spark, table, "key, value") == [("a", "2"), ("b", "1")]
        # Two times that are the same one in New York.
        spark.conf.set("spark.sql.session.timeZone", "America/New_York")
        times = [(f"k{hour}", "5", 1793509200000 + 3_600_000 * hour) for hour in (0, 1)]
        job("changes", times, f"latest={table}_times,format=delta,partition_by=timestamp")
        spark.conf.set("spark.sql.session.timeZone", "UTC")
        assert rows(spark, f"{table}_times", "key, value, unix_millis(timestamp)") == times
    described = [tuple(row)[:2] for row in spark.sql(f"DESCRIBE TABLE EXTENDED {table}").collect()]
    if FORMAT.name == "delta":
        assert described[described.index(("# Partition Information", "")) + 2][0] == "key"
    else:
        assert {("Part 0", "days(timestamp)"), ("Part 1", "bucket(4, key)")} <= set(described)
        properties = dict(map(tuple, spark.sql(f"SHOW TBLPROPERTIES {table}").collect()))
        assert properties["sort-order"] == "value ASC NULLS FIRST"


def test_refused_before_anything_is_written(spark: Any, job: Any, table: str, tmp_path: Path) -> None:
    def refused(words: str, output: str, other: str = f"copies={table}_first,key=string,value=string") -> None:
        # The outputs before it would be written first.
        with pytest.raises(StreamkitError, match=words) as caught:
            job("changes", [("a", "1", 1)], other, output)
        assert "\n" not in str(caught.value)
        assert not spark.catalog.tableExists(f"{table}_first")

    using = f"USING {FORMAT.name}"
    spark.sql(f"CREATE TABLE {table} (key int, value string) {using}")
    refused("column key is of type int in the table, and the job writes string; key=TYPE", f"latest={table}")
    spark.sql(f"CREATE TABLE {table}_strict (key string, value string, mine int NOT NULL) {using}")
    refused("has a column mine that must not be null.*DROP NOT NULL", f"latest={table}_strict")
    spark.sql(f"CREATE TABLE {table}_owned (key string) {using} TBLPROPERTIES ('streamkit.checkpoint' = 'x')")
    refused("belongs to another job", f"latest={table}_owned")
    if FORMAT.name == "delta":
        refused("there is no database spark_catalog.sea: CREATE DATABASE", "latest=spark_catalog.sea.t,format=delta")
        spark.sql(f"CREATE TABLE {table}_placed (key string) {using} LOCATION '{tmp_path}/placed'")
        refused(
            "is the same table", f"latest={table}_placed", other=f"copies={tmp_path}/placed,format=delta,key=string"
        )
    refused("Spark has no catalog sea, which sea.db.latest names", "latest=sea.db.latest")
    spark.createDataFrame([("a",)], "key string").createOrReplaceTempView("seen")
    refused("it is a table of no format", "latest=seen,format=table")
    *names, first = f"{table}_first".split(".")
    refused(
        f"latest={names[0]}.`{names[1]}`.{first}: --output copies={table}_first is the same table",
        f"latest={names[0]}.`{names[1]}`.{first},format={FORMAT.name},mode=append",
    )
    refused("copies is a stream: mode=append", f"copies={table}_new,mode=merge")
    refused("of type map<string,int>.*does not compare", f"counts={table}_new,key=map<string,int>")
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "mine").touch()
    refused(
        "there is mine, and no table of|Delta table .* doesn't exist", f"latest={tmp_path}/full,format={FORMAT.name}"
    )
    if FORMAT.name == "iceberg":
        refused("spark_catalog does not determine its format; add format=iceberg", "latest=new,format=table")


def test_null_in_a_key(spark: Any, job: Any, table: str) -> None:
    records = [({"a": 1, "b": 1}, 1, 0), ({"a": None, "b": 1}, 1, 1)]
    with pytest.raises(StreamkitError, match="a record has null as key_a, but the rows of a table need keys"):
        job("events", records, f"counts={table},key=a int,b int")
    assert not spark.catalog.tableExists(table)


BOTH = """\
streamkit: 1
application: lake
topics:
  changes: {key: string, value: string, partitions: 1}
  events: {key: json, value: json, partitions: 1}
  latest: {key: string, value: string}
  copies: {key: json, value: json}
pipelines:
  latest: {table: changes, steps: [to_stream], to: latest}
  copies: {stream: events, to: copies}
"""


def changes_of(number: int) -> list[dict]:
    """The changes and deletions of some keys that a file has."""
    return [
        {"key": f"k{at % 5}", "value": None if (at + number) % 4 == 0 else f"{number}-{at}", "timestamp": at}
        for at in range(10 * number, 10 * number + 10)
    ]


def expected(files: int) -> list[list[tuple]]:
    """The rows of both tables after the first files."""
    last = {each["key"]: each for number in range(files) for each in changes_of(number)}
    latest = [(key, each["value"], each["timestamp"]) for key, each in last.items() if each["value"] is not None]
    return [sorted(each, key=repr) for each in (latest, [(at % 3, at, 1000 * at) for at in range(10 * files)])]


class Runs:
    """Runs with a checkpoint from files of changes and a table of events to a merged and an appended table."""

    def __init__(self, spark: Any, folder: Path, table: str):
        self.spark, self.folder, self.table = spark, folder, table
        self.path = folder / "topology.yaml"
        self.path.write_text(BOTH)
        (folder / "changes").mkdir()
        spark.sql(f"CREATE TABLE {table}_events (id int, n int, at timestamp) USING {FORMAT.name}")
        self.checkpoint = folder / "checkpoint"
        self.said: list[str] = []

    def add(self, number: int) -> None:
        """Add a file of changes and deletions of some keys, and events."""
        write_lines(self.folder / "changes" / f"{number}", changes_of(number))
        events = ", ".join(f"({at % 3}, {at}, timestamp_seconds({at}))" for at in range(10 * number, 10 * number + 10))
        self.spark.sql(f"INSERT INTO {self.table}_events VALUES {events}")

    def options(self, checkpoint: Path) -> JobOptions:
        outputs = [f"latest={self.table}_latest", f"copies={self.table}_copies,key=int,value=int"]
        inputs = [
            f"changes={self.folder}/changes",
            f"events={self.table}_events,key=id,value=n,timestamp=at,format=table",
        ]
        return JobOptions(
            {topic: (place,) for topic, place in (parse_place(text, "--input") for text in inputs)},
            dict(parse_place(f"{output},format={FORMAT.name}", "--output") for output in outputs),
            checkpoint=str(checkpoint),
        )

    def run(self, checkpoint: Path | None = None) -> None:
        submit_next(load(self.path), self.options(checkpoint or self.checkpoint), self.spark, self.said.append)

    def found(self) -> list[list[tuple]]:
        """The rows of both tables."""
        return [
            rows(self.spark, f"{self.table}_{name}", "key, value, unix_millis(timestamp)")
            for name in ("latest", "copies")
        ]

    def history(self) -> list[list[int]]:
        """The runs that the commits of rows name, of each table."""
        return [self._runs_of(f"{self.table}_{name}") for name in ("latest", "copies")]

    def _runs_of(self, table: str) -> list[int]:
        if FORMAT.name == "iceberg":
            current = f"SELECT snapshot_id FROM {table}.history WHERE is_current_ancestor"
            found = self.spark.sql(
                f"SELECT summary['streamkit.run'] run FROM {table}.snapshots WHERE snapshot_id IN ({current}) "
                "ORDER BY committed_at"
            )
            return [int(row.run) for row in found.collect()]
        commits = self.spark.sql(f"DESCRIBE HISTORY {table}").orderBy("version").collect()
        return [int(json.loads(row.userMetadata)["streamkit.run"]) for row in commits if row.userMetadata]


def ends(*_: object) -> None:
    """Ends a run as a signal would."""
    raise KeyboardInterrupt


def ended(runs: Runs, monkeypatch: pytest.MonkeyPatch, place: Any, name: str, function: Any = ends) -> None:
    """Run with a function in place of another one, which ends the run."""
    with monkeypatch.context() as patch:
        patch.setattr(place, name, function)
        with pytest.raises(KeyboardInterrupt):
            runs.run()


def test_each_run_is_one_commit(spark: Any, tmp_path: Path, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    runs, page = Runs(spark, tmp_path, table), SparkPage(spark)
    runs.add(0)
    with page.watched():
        runs.run()
    # Which thread prepares a stage of a query is a matter of luck, and those of Spark's pools have no name for it.
    assert [name for name in page.names if not name.startswith(("lake / ", "run at ThreadPoolExecutor"))] == []
    changes = {f"latest / merged into {table}_latest", f"copies / appended to {table}_copies", "checkpoint / look"}
    assert changes <= {job["name"].removeprefix("lake / ") for job in page.jobs}
    assert runs.history() == [[1], [1]]
    before = runs.found()
    # Before the commit of run 2: nothing has changed, and the run is repeated with more to read.
    runs.add(1)
    if FORMAT.name == "iceberg":  # before the commit a run does nothing that depends on the format
        ended(runs, monkeypatch, Checkpoint, "publish")
        assert (runs.history(), runs.found()) == ([[1], [1]], before)
    runs.add(2)
    # After it, before the commit of the second table.
    write = table_outputs.write_table
    written: list[str] = []

    def one(spark: Any, target: Any, *given: Any) -> None:
        written.append(target.topic)
        ends() if len(written) > 1 else write(spark, target, *given)

    ended(runs, monkeypatch, table_outputs, "write_table", one)
    assert sorted(runs.history()) == [[1], [1, 2]]
    # After the commit of that table, which the checkpoint then does not know of.
    delete = FileSystem.delete

    def dies(files: Any, path: str) -> None:
        ends() if "rows of" in path else delete(files, path)

    ended(runs, monkeypatch, FileSystem, "delete", dies)
    assert runs.history() == [[1, 2], [1, 2]]
    runs.add(3)
    runs.run()
    assert runs.history() == [[1, 2, 3], [1, 2, 3]]
    assert not list(runs.checkpoint.glob("tables/*"))
    assert runs.found() == expected(4)

    def refused(words: str, **given: Any) -> None:
        with pytest.raises(StreamkitError, match=words):
            runs.run(**given)

    spark.sql(f"DELETE FROM {table}_events WHERE n = 3")
    refused(f"{table}_events: .*, which run 1 has read, is missing; a run can read rows that were added to a table")
    refused(f"{table}_latest: the table belongs to another job .lake, --checkpoint ", checkpoint=tmp_path / "other")
    manifest = runs.checkpoint / "manifests" / "000003.json"
    manifest.rename(tmp_path / "away")
    refused("the table has run 3, and the last manifest is that of run 2; put the manifest back")
    (tmp_path / "away").rename(manifest)
    spark.sql(f"ALTER TABLE {table}_copies UNSET TBLPROPERTIES ('streamkit.checkpoint')")
    refused("copies: the table has no property streamkit.checkpoint")
    if FORMAT.name == "iceberg":
        changed = table_writing._loaded(spark, f"{table}_latest")
        changed.manageSnapshots().rollbackTo(changed.currentSnapshot().parentId()).commit()
    else:
        last = spark.sql(f"DESCRIBE HISTORY {table}_latest").agg({"version": "max"}).collect()[0][0]
        spark.sql(f"RESTORE TABLE {table}_latest TO VERSION AS OF {last - 1}")
    refused("latest: the table was set back to a state before rows that earlier runs wrote")
    spark.sql(f"DROP TABLE {table}_latest")
    refused("latest: there is no such table, which earlier runs wrote")


@pytest.mark.skipif(FORMAT.name != "iceberg", reason="Delta itself refuses a run that it has")
def test_expired_snapshots(spark: Any, tmp_path: Path, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """A run ended after its commit of a table, whose history then no longer has that commit."""
    runs = Runs(spark, tmp_path, table)
    delete = FileSystem.delete

    def dies(files: Any, path: str) -> None:
        ends() if path.endswith("rows of copies") else delete(files, path)

    def expire(name: str, *, with_another: bool = True) -> None:
        if with_another:
            spark.sql(f"INSERT INTO {name} SELECT * FROM {name} LIMIT 0")
        loaded = table_writing._loaded(spark, name)
        loaded.expireSnapshots().expireOlderThan(loaded.currentSnapshot().timestampMillis() + 1).retainLast(1).commit()

    for run in (1, 2):
        runs.add(run)
        ended(runs, monkeypatch, FileSystem, "delete", dies)
        # The oldest snapshot that is left is the one of the run, or is of the input.
        expire(f"{table}_copies", with_another=False)
        expire(f"{table}_events")
        runs.run()
        assert runs.history()[1] == [run]
    runs.add(3)
    ended(runs, monkeypatch, FileSystem, "delete", dies)
    expire(f"{table}_copies")
    before = runs.found()
    with pytest.raises(
        StreamkitError, match=r"_copies: it is unknown whether the table has the rows of run 3"
    ) as caught:
        runs.run()
    assert "\n" not in str(caught.value)
    assert runs.found() == before
    # As the message says: rows that the table does not have are inserted, and those that it has are deleted from the checkpoint.
    (waiting,) = runs.checkpoint.glob("tables/*/rows of copies")
    statement = str(caught.value).partition("run INSERT")[2].partition(";")[0]
    spark.sql(f"INSERT{statement}")
    assert len(runs.found()[1]) == len(before[1]) + 10
    shutil.rmtree(waiting)
    runs.run()
    assert runs.said[-1] == "nothing is new since run 3"
    assert spark.sql(f"SELECT summary['streamkit.run'] FROM {table}_latest.snapshots").count() == 3


@pytest.mark.skipif(FORMAT.name != "iceberg", reason="Delta itself refuses a run that it has")
def test_a_run_that_two_writers_append_is_there_once(spark: Any, table: str, monkeypatch: pytest.MonkeyPatch) -> None:
    target = TableTarget("copies", table, "iceberg", {"key": "string"})

    def write(run: int) -> None:
        frame = spark.createDataFrame([(f"of run {run}",)], "key string")
        table_writing.write_table(spark, target, frame, table_writing.Stamp("a", "job", run))

    def after_another(spark: Any, name: str, stamp: Any) -> None:
        spark.sql(f"INSERT INTO {name} VALUES ('other')")
        publish(spark, name, stamp)

    write(1)
    write(1)
    assert rows(spark, table, "key") == [("of run 1",)]
    publish = table_writing._publish
    with monkeypatch.context() as patch:
        patch.setattr(table_writing, "_publish", after_another)
        # The staged rows of this writer are not the next commit of the table.
        write(2)
        assert table_writing.last_run(spark, target, "a") == 2
        write(2)
        patch.setattr(table_writing, "_publish", ends)
        with pytest.raises(KeyboardInterrupt):
            write(3)
    assert table_writing.last_run(spark, target, "a") == 2
    write(3)
    found = ["of run 1", "of run 2", "of run 3", "other", "other"]
    assert rows(spark, table, "key") == [(each,) for each in found]
    assert table_writing.last_run(spark, target, "a") == 3
