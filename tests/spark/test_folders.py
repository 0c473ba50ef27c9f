"""Folders NAME=VALUE of inputs: columns of all rows, with a pattern and a checkpoint too, or an error."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pyarrow
import pyarrow.orc
import pytest

from streamkit.errors import TransportError
from streamkit.plan import load
from streamkit.runtime.spark.job_options import JSON_LINES, JobOptions, Place, parse_place
from streamkit.runtime.spark.rows import files
from streamkit.runtime.spark.submission.incremental import submit_next
from tests.spark.test_tables import COPY, copied


def put(path: Path, text: str) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)


def test_a_pattern_has_the_columns_of_folders_in_each_run(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(COPY.replace("KEY", "string").replace("VALUE", "json"))
    topic, place = parse_place(f"orders={tmp_path}/lake/*,value=*,timestamp=0,format=json", "--input")
    assert place is not None
    out, state = tmp_path / "out", str(tmp_path / "state")
    expected = []
    for run in (1, 2):
        put(tmp_path / f"lake/e[u] %/dt=2026-01-0{run}/x.json", f'{{"n":{run}}}\n')
        options = JobOptions({topic: (place,)}, {"out": Place(str(out), JSON_LINES)}, checkpoint=state)
        submit_next(load(path), options, spark)
        (file,) = (out / f"run=00000{run}").glob("part-*")
        expected.append({"n": run, "dt": f"2026-01-0{run}"})
        assert json.loads(file.read_text())["value"] == expected[-1]
    found = copied(spark, f"{tmp_path}/lake/*,value=*,timestamp=0,format=json", tmp_path)
    assert [record["value"] for record in found] == expected


@pytest.mark.parametrize("settings", ["", ",value=*,timestamp=0"])
def test_a_file_beside_folders_of_partitions(settings: str, spark: Any, tmp_path: Path) -> None:
    put(tmp_path / "lake/dt=2026-01-01/x.json", '{"value":1,"timestamp":1}\n')
    put(tmp_path / "lake/y.json", '{"value":2,"timestamp":2}\n')
    with pytest.raises(TransportError, match=r"Spark does not read .*/lake/y\.json: .* beside folders NAME=VALUE"):
        copied(spark, f"{tmp_path}/lake,format=json{settings}", tmp_path)
    found = copied(spark, f"{tmp_path}/lake/*,format=json{settings}", tmp_path)
    assert len(found) == 2


def test_two_directories_with_folders_of_partitions(spark: Any, tmp_path: Path) -> None:
    for region in ("eu", "us"):
        put(tmp_path / f"lake/{region}/dt=2026-01-01/x.json", '{"n":1}\n')
    with pytest.raises(TransportError, match=r"/lake/eu and .*/lake/us have folders NAME=VALUE, .* its own --input"):
        copied(spark, f"{tmp_path}/lake/*,format=json,value=*,timestamp=0", tmp_path)


@pytest.mark.parametrize("over_connect", [False, True])
def test_a_column_of_files_that_their_folders_have_too(
    over_connect: bool, spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Spark would take that of the folders without a word."""
    if over_connect:
        monkeypatch.setattr(files, "classic_context", lambda spark: None)
    put(tmp_path / "lake/dt=2026-01-01/x.json", '{"n":1,"dt":"2026-01-02"}\n')
    place = f"{tmp_path}/lake,format=json,value=*,timestamp=0"
    with pytest.raises(TransportError, match=r"column dt is in the files, and in the names of their folders dt=VALUE"):
        copied(spark, place, tmp_path)
    monkeypatch.undo()
    found = copied(spark, f"{place},options.recursiveFileLookup=true", tmp_path)
    assert [record["value"] for record in found] == [{"dt": "2026-01-02", "n": 1}]


@pytest.mark.parametrize("name", ["7d", "0x1p3", "9007199254740993.5"])
def test_a_folder_with_a_name_that_spark_reads_as_another_number(name: str, spark: Any, tmp_path: Path) -> None:
    for folder in ("__HIVE_DEFAULT_PARTITION__", "1.50", name):
        put(tmp_path / f"lake/span={folder}/x.json", '{"n":1}\n')
    place = f"{tmp_path}/lake,format=json,value=*,timestamp=0"
    with pytest.raises(
        TransportError, match=f"the folder span={name}: Spark would read another number; .*=false reads text"
    ):
        copied(spark, place, tmp_path)
    (tmp_path / f"lake/span={name}/x.json").unlink()
    assert [record["value"]["span"] for record in copied(spark, place, tmp_path)] == [1.5, None]


def test_the_folder_of_a_table_with_a_history(spark: Any, tmp_path: Path) -> None:
    """Its files have deleted rows too, until they are cleaned up."""
    put(tmp_path / "lake/x.json", '{"n":1}\n')
    put(tmp_path / "lake/_delta_log/00000000000000000000.json", "{}\n")
    with pytest.raises(TransportError, match=r"/lake: it is a table of delta, .*; format=delta reads the table"):
        copied(spark, f"{tmp_path}/lake,format=json,value=*,timestamp=0", tmp_path)


def test_an_option_that_leaves_out_files(spark: Any, tmp_path: Path) -> None:
    for name in ("a.json", "b.csv"):
        put(tmp_path / "lake" / name, '{"n":1}\n')
    settings = "format=json,value=*,timestamp=0,options.pathGlobFilter=*.json"
    with pytest.raises(
        TransportError, match=r"options\.pathGlobFilter leaves out .*/b\.csv; a pattern in the path sel"
    ):
        copied(spark, f"{tmp_path}/lake,{settings}", tmp_path)


@pytest.mark.parametrize("part", ["dt=2026-01-01", "dt=2026-01-01/x.json", "*/*.json"])
@pytest.mark.parametrize("kind", ["delta", "iceberg"])
def test_a_part_of_a_table_with_a_history(kind: str, part: str, spark: Any, tmp_path: Path) -> None:
    data = tmp_path / ("lake/data" if kind == "iceberg" else "lake")
    put(data / "dt=2026-01-01/x.json", '{"n":1}\n')
    put(tmp_path / ("lake/metadata/v1.metadata.json" if kind == "iceberg" else "lake/_delta_log/0.json"), "{}\n")
    with pytest.raises(
        TransportError, match=rf"a part of a table of {kind}, .*; .*/lake,format={kind} reads the table, and"
    ):
        copied(spark, f"{data}/{part},format=json,value=*,timestamp=0", tmp_path)


def test_a_file_that_a_stream_did_not_list(spark: Any, tmp_path: Path) -> None:
    """Spark reads only what the list of a stream has; another job may have added files."""
    place = f"{tmp_path}/lake,value=n,timestamp=0,format=json"
    put(tmp_path / "lake/part-0.json", '{"n":1}\n')
    file = {"path": f"file://{tmp_path}/lake/part-0.json", "size": 8, "isDir": False, "modificationTime": 0}
    listed = file | {"blockReplication": 1, "blockSize": 1 << 20, "action": "add"}
    put(tmp_path / "lake/_spark_metadata/0", f"v1\n{json.dumps(listed)}")
    assert len(copied(spark, place, tmp_path)) == 1
    put(tmp_path / "lake/part-1.json", '{"n":2}\n')
    with pytest.raises(
        TransportError, match=r"does not read .*/lake/part-1\.json, because the stream .* such as .*/part-\*"
    ):
        copied(spark, place, tmp_path)
    assert len(copied(spark, place.replace("/lake,", "/lake/part-*,"), tmp_path)) == 2


def test_a_text_in_a_folder_that_spark_does_not_read(spark: Any, tmp_path: Path) -> None:
    put(tmp_path / "lake/x.txt", "a\n")
    put(tmp_path / "lake/more/y.txt", "b\n")
    with pytest.raises(TransportError, match=r"Spark does not read .*/more/y\.txt"):
        copied(spark, f"{tmp_path}/lake,format=text,value=value,timestamp=0,order=0", tmp_path, value="string")


@pytest.mark.parametrize(("codec", "settings"), [("lz4", ""), ("snappy", ",value=n,timestamp=0,format=json")])
def test_a_compression_whose_damaged_files_seem_complete(codec: str, settings: str, spark: Any, tmp_path: Path) -> None:
    line = f"""concat('{{"value":', id, ',"timestamp":', xxhash64(id) % 99 + 99, '{',"n":1' if settings else ""}}}')"""
    lines = spark.range(100_000).selectExpr(line)
    lines.coalesce(1).write.option("compression", codec).text(str(tmp_path / "lake"))
    (file,) = (tmp_path / "lake").glob(f"*.{codec}")
    file.write_bytes(file.read_bytes()[: file.stat().st_size // 2])
    (file.parent / f".{file.name}.crc").unlink()
    with pytest.raises(TransportError, match=rf"\.{codec} may be incomplete: .* compress text as \.gz"):
        copied(spark, f"{tmp_path}/lake{settings}", tmp_path)


def test_a_folder_beside_folders_of_partitions(spark: Any, tmp_path: Path) -> None:
    """Spark has a setting by which it passes over such folders."""
    for folder in ("dt=2026-01-01", "other"):
        put(tmp_path / "lake" / folder / "x.json", '{"n":1}\n')
    setting = "spark.sql.files.ignoreInvalidPartitionPaths"
    spark.conf.set(setting, "true")
    try:
        with pytest.raises(TransportError, match=r"give each directory its own --input"):
            copied(spark, f"{tmp_path}/lake,format=json,value=*,timestamp=0", tmp_path)
    finally:
        spark.conf.unset(setting)


def test_columns_of_orc_are_read_by_their_names(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "lake").mkdir()
    for number, names in enumerate(("ab", "ba")):
        pyarrow.orc.write_table(pyarrow.table({name: [name] for name in names}), tmp_path / f"lake/{number}.orc")
    name, hadoop = "orc.force.positional.evolution", spark._jsc.hadoopConfiguration()
    hadoop.set(name, "true")
    try:
        found = copied(spark, f"{tmp_path}/lake,value=a,timestamp=0", tmp_path, value="string")
    finally:
        hadoop.unset(name)
    assert [record["value"] for record in found] == ["a", "a"]


def test_conditions_by_which_orc_and_tables_of_files_would_leave_out_rows(spark: Any, tmp_path: Path) -> None:
    row = "-0.0D AS zero, date'1500-02-01' AS day, '\uffff' AS text"
    twice = spark.sql(f"SELECT {row}").union(spark.sql(f"SELECT {row}")).coalesce(1)
    for kind in ("orc", "parquet"):
        twice.write.saveAsTable(f"zeros_{kind}", format=kind, path=str(tmp_path / kind))
    try:
        for condition in (
            *("zero >= 0", "zero <=> 0", "day = date'1500-02-01'", "day < make_date(1500, 2, 2)"),
            *("text < '😀'", r"text < '\U0001f600'", "text < decode(X'f09f9880', 'UTF-8')"),
        ):
            for place in (f"{tmp_path}/orc", *(f"zeros_{kind},format=table,order=day" for kind in ("orc", "parquet"))):
                found = copied(spark, f"{place},value=text,timestamp=0,where={condition}", tmp_path, value="string")
                assert len(found) == 2, (condition, place)
    finally:
        for kind in ("orc", "parquet"):
            spark.sql(f"DROP TABLE zeros_{kind}")


def test_lines_that_are_longer_than_hadoop_is_told_to_read(spark: Any, tmp_path: Path) -> None:
    put(tmp_path / "in.jsonl", json.dumps({"value": "x" * 200, "timestamp": 1}))
    name, hadoop = "mapreduce.input.linerecordreader.line.maxlength", spark._jsc.hadoopConfiguration()
    hadoop.set(name, "100")
    try:
        assert len(copied(spark, f"{tmp_path}/in.jsonl", tmp_path)) == 1
    finally:
        hadoop.unset(name)
