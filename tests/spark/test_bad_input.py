"""What goes wrong says so in one clear line."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from streamkit.errors import (
    ConfigError,
    DeserializationError,
    InvalidTopologyError,
    ProcessingError,
    TransportError,
    UsageError,
)
from streamkit.plan import load
from streamkit.runtime.spark.job_options import JSON_LINES, PARQUET, REST, JobOptions, Place, parse_place
from streamkit.runtime.spark.spark_session import Cluster, _settings, hadoop_version, name_files_as_python
from streamkit.runtime.spark.submission.request import inputs_of
from streamkit.runtime.spark.submission.submit_job import submit
from tests.cli.support import assert_one_clear_line, streamkit
from tests.ports import free_ports
from tests.spark.support import write_lines

HEAD = "streamkit: 1\napplication: bad\n"
DOUBLE = """\
topics: {numbers: {value: long}, doubles: {value: long}}
pipelines:
  doubles:
    stream: numbers
    steps:
      - map_values: {value: value * 2, value_serde: long}
    to: doubles
"""


def topology(folder: Path, text: str = DOUBLE, head: str = HEAD) -> Path:
    path = folder / "topology.yaml"
    path.write_text(head + text)
    return path


def run(spark: Any, path: Path, place: Place, folder: Path, **options: Any) -> None:
    submit(
        load(path), JobOptions({"numbers": (place,)}, {REST: Place(str(folder / "out"), JSON_LINES)}, **options), spark
    )


@pytest.mark.parametrize(
    ("line", "words"),
    [
        ("no json", ["numbers", "not JSON", "no json"]),
        ('{"value": "text", "timestamp": 1}', ["numbers", "value", "text"]),
        ('{"value": 1, "timestamp": "noon"}', ["timestamp", "noon", "milliseconds"]),
        ('{"value": 1, "timestamp": 1, "partition": -1}', ["partition is -1"]),
        ("[1]", ["expected an object"]),
        ('{"user": "ann", "amount": 7}', ["in:2: ", "unknown field 'user'", "value=* and timestamp=COLUMN"]),
    ],
)
def test_lines_that_are_no_records(line: str, words: list[str], spark: Any, tmp_path: Path) -> None:
    (tmp_path / "in").write_text(f'{{"value": 1, "timestamp": 1}}\n{line}\n')
    with pytest.raises(TransportError) as caught:
        run(spark, topology(tmp_path), Place(str(tmp_path / "in"), JSON_LINES), tmp_path)
    assert "\n" not in str(caught.value)
    assert all(word in str(caught.value) for word in words), caught.value
    assert not list((tmp_path / "out").glob("part*"))


def test_columns_that_are_missing(spark: Any, tmp_path: Path) -> None:
    spark.createDataFrame([(1, "x")], "value bigint, other string").write.parquet(str(tmp_path / "in"))
    with pytest.raises(TransportError, match=r"there is no column timestamp for .*,timestamp=COLUMN"):
        run(spark, topology(tmp_path), Place(str(tmp_path / "in"), PARQUET), tmp_path)


def test_bytes_that_do_not_decode(spark: Any, tmp_path: Path) -> None:
    frame = spark.createDataFrame([(bytearray(b"abc"), 1)], "value binary, timestamp bigint")
    frame.write.parquet(str(tmp_path / "in"))
    with pytest.raises(DeserializationError, match="topic numbers, partition 0, offset 0"):
        run(spark, topology(tmp_path), Place(str(tmp_path / "in"), PARQUET), tmp_path)


def test_a_failing_step(spark: Any, tmp_path: Path) -> None:
    path = topology(tmp_path, DOUBLE.replace("value * 2", "value // 0"))
    place = write_lines(tmp_path / "in", [{"value": 1, "timestamp": 1}])
    with pytest.raises(ProcessingError, match=r"topology.yaml:\d+: pipeline doubles, step map_values: .*zero"):
        run(spark, path, place, tmp_path)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (DOUBLE.replace("value * 2", "now()"), ["step map_values", "now()"]),
        (DOUBLE.replace("numbers: {value: long}", "numbers: {value: long, timestamp: wallclock}"), ["wallclock"]),
        (
            DOUBLE.replace("map_values: {value: value * 2, value_serde: long}", "process: {call: ticking:Tick}"),
            ["process"],
        ),
        (
            DOUBLE.replace("map_values: {value: value * 2, value_serde: long}", "process: {call: ticking:Late}"),
            ["step process", "no wall clock"],
        ),
    ],
)
def test_clocks_are_refused(text: str, words: list[str], spark: Any, tmp_path: Path) -> None:
    (tmp_path / "ticking.py").write_text(
        "class Tick:\n"
        "    def init(self, context):\n"
        "        context.schedule('1s', 'wall_clock', print)\n"
        "    def process(self, record):\n"
        "        return record\n"
        "class Late(Tick):\n"
        "    def init(self, context):\n"
        "        self.context = context\n"
        "    def process(self, record):\n"
        "        return record.replace(timestamp=self.context.wall_clock)\n"
    )
    path = topology(tmp_path, text)
    place = write_lines(tmp_path / "in", [{"value": 1, "timestamp": 1}])
    with pytest.raises((InvalidTopologyError, ProcessingError)) as caught:
        run(spark, path, place, tmp_path)
    assert all(word in str(caught.value) for word in words), caught.value
    assert "topology.yaml" in str(caught.value)


def test_a_route_into_what_is_read(spark: Any, tmp_path: Path) -> None:
    path = topology(tmp_path, DOUBLE.replace("to: doubles", "to: {route: '\"numbers\"'}"))
    place = write_lines(tmp_path / "in", [{"value": 1, "timestamp": 1}])
    with pytest.raises(ProcessingError, match="a route chose topic numbers, which the file also reads"):
        run(spark, path, place, tmp_path)


def test_object_stores_that_spark_does_not_know(spark: Any, tmp_path: Path) -> None:
    for path, words in (
        ("s3a://lake/lines", f"spark.jars.packages=org.apache.hadoop:hadoop-aws:{hadoop_version()}"),
        ("s3://lake/lines", "write s3a://"),
    ):
        with pytest.raises(TransportError, match=words):
            run(spark, topology(tmp_path), Place(path, JSON_LINES), tmp_path)


def test_a_directory_that_exists(tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    (tmp_path / "out" / "mine").touch()
    place = write_lines(tmp_path / "in", [])
    done = streamkit(
        "submit", topology(tmp_path), "--input", f"numbers={place.path}", "--output", f"doubles={tmp_path / 'out'}"
    )
    assert_one_clear_line(done, 1, "doubles", "exists", "--overwrite")


def test_inputs_and_outputs_that_there_are_not(tmp_path: Path) -> None:
    path = topology(tmp_path)
    assert_one_clear_line(streamkit("submit", path, "--input", "numbers=nowhere"), 2, "nowhere", "no such file")
    assert_one_clear_line(streamkit("submit", path, "--input", "number=x"), 2, "number", "did you mean 'numbers'")
    assert_one_clear_line(streamkit("submit", path, "--output", "double=x"), 2, "double", "did you mean 'doubles'")
    assert_one_clear_line(streamkit("submit", path, "--emit", "all"), 2, "--emit", "updates or final")
    done = streamkit("submit", path, "--input", "number=x", "--input", "numbers=nowhere", "--output", "double=x")
    assert (done.code, done.out) == (2, "")
    assert [line.split("; ")[0] for line in done.err.splitlines()] == [
        f"streamkit: {path} has no topic 'number'",
        f"streamkit: {path} has no topic 'double'",
        "streamkit: --input numbers=nowhere: no such file or directory",
    ]


def test_a_description_checks_the_columns_of_parquet(tmp_path: Path) -> None:
    pq.write_table(pa.table({"n": [1], "at": [1]}), tmp_path / "in.parquet")
    text = f"numbers={tmp_path}/in.parquet,key=m,value=n,timestamp=att"
    done = streamkit("submit", topology(tmp_path), "--dry-run", "--input", text, "--output", f"doubles={tmp_path}/out")
    assert (done.code, done.out) == (1, "")
    assert done.err.splitlines() == [
        f"streamkit: {tmp_path}/in.parquet: key=m: no such column; it has n, at",
        f"streamkit: {tmp_path}/in.parquet: timestamp=att: no such column; did you mean 'at'?",
    ]


def test_a_master_that_is_away(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    place = write_lines(tmp_path / "in", [])
    line = ["submit", topology(tmp_path), "--input", f"numbers={place.path}", "--output", f"doubles={tmp_path / 'out'}"]
    done = streamkit(*line, "--master", f"spark://127.0.0.1:{port}")
    assert_one_clear_line(done, 1, "no Spark master answers", port)
    done = streamkit(*line, "--master", "locl")
    assert_one_clear_line(done, 2, "--master locl: expected local[*], spark://HOST:PORT")
    done = streamkit(*line, "--master", "local[1]", JAVA_HOME="/nowhere")
    assert_one_clear_line(done, 1, "Java 17", "/nowhere")


def test_an_old_java(tmp_path: Path) -> None:
    java = tmp_path / "bin" / "java"
    java.parent.mkdir()
    java.write_text("#!/bin/sh\necho 'openjdk version \"11.0.2\" 2019' >&2\n")
    java.chmod(0o755)
    place = write_lines(tmp_path / "in", [])
    done = streamkit(
        *("submit", topology(tmp_path), "--master", "local[1]"),
        *("--input", f"numbers={place.path}", "--output", f"doubles={tmp_path / 'out'}"),
        JAVA_HOME=str(tmp_path),
    )
    assert_one_clear_line(done, 1, "Java 17 or newer", "Java 11")


def test_names_of_files_in_the_locale_c(spark: Any, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Java would pass over files whose names are not ASCII."""
    monkeypatch.setenv("LC_ALL", "C")
    name_files_as_python()
    told = subprocess.run(["java", "-XshowSettings:properties", "-version"], capture_output=True, text=True, check=True)
    assert "sun.jnu.encoding = UTF-8" in told.stderr
    assert _settings(Cluster("spark://a:1"), False)["spark.executorEnv.LC_ALL"] == "C.UTF-8"
    # A driver that spark-submit has started.
    system = spark._jvm.java.lang.System
    before = system.setProperty("sun.jnu.encoding", "ANSI_X3.4-1968")
    try:
        with pytest.raises(ConfigError, match=r"would pass over others; set LC_ALL=C\.UTF-8 before spark-submit"):
            run(spark, topology(tmp_path), write_lines(tmp_path / "in", []), tmp_path)
    finally:
        system.setProperty("sun.jnu.encoding", before)


@pytest.mark.parametrize("name", ["a[1].jsonl", "a{1}.jsonl", "a?.jsonl"])
def test_a_name_that_spark_takes_for_a_pattern(name: str, spark: Any, tmp_path: Path) -> None:
    write_lines(tmp_path / "a1.jsonl", [])
    place = write_lines(tmp_path / name, [{"value": 1, "timestamp": 1}])
    with pytest.raises(UsageError, match=r"it is the name of a file or directory, and Spark takes it for a pattern"):
        run(spark, topology(tmp_path), place, tmp_path)


def test_two_runs_of_a_task_at_a_time_do_not_write_to_the_log(spark: Any, tmp_path: Path) -> None:
    options = JobOptions({"numbers": (write_lines(tmp_path / "in", []),)}, {"doubles": None})
    conf = spark._jsparkSession.sessionState().conf()
    conf.setConfString("spark.speculation", "true")
    try:
        with pytest.raises(ConfigError, match=r"^spark\.speculation=true: .*older records follow newer ones"):
            submit(load(topology(tmp_path)), options, spark)
    finally:
        conf.unsetConf("spark.speculation")


def test_a_place_is_a_topic_a_path_and_a_format() -> None:
    assert parse_place("a=b.parquet", "--input") == ("a", Place("b.parquet", PARQUET))
    for name in ("orc", "ORC", "org.apache.spark.sql.execution.datasources.orc.OrcFileFormat"):
        assert parse_place(f"a=b,format={name}", "--input") == ("a", Place("b", "orc"))
    for wrong in ("=x", "a=", "a=b,color=red"):
        with pytest.raises(UsageError):
            parse_place(wrong, "--input")


def test_an_input_on_the_log_that_the_file_writes_too(tmp_path: Path) -> None:
    again = "  again:\n    stream: doubles\n    to: numbers\n"
    plan = load(topology(tmp_path, DOUBLE + again))
    assert inputs_of(plan, ["doubles=/a"]) == {"doubles": (Place("/a", JSON_LINES),)}
    with pytest.raises(UsageError, match=r"--input doubles: the file writes this topic too.*--input doubles=PATH"):
        inputs_of(plan, ["doubles"])
    assert inputs_of(load(topology(tmp_path)), ["numbers"]) == {}


def test_the_command(streamkit_here: Any, tmp_path: Path) -> None:
    path = topology(tmp_path)
    place = write_lines(tmp_path / "in", [{"key": None, "value": number, "timestamp": number} for number in range(5)])
    line = ["submit", path, "--input", f"numbers={place.path}", "--output", f"doubles={tmp_path / 'out'}"]
    shown = streamkit(*line, "--dry-run")
    assert (shown.code, shown.err) == (0, "")
    warning, stage, *_ = shown.out.splitlines()
    assert warning.startswith("numbers: one task reads all its records unless they name partitions; `partitions: N`")
    assert stage == "stage 1: sub-topology 0, 1 task: numbers -> doubles"
    done = streamkit_here(*line, "--master", "local[1]", "--conf", "spark.ui.enabled=false")
    assert (done.code, done.out) == (0, "")
    # Where it takes long, lines of progress come before.
    assert done.err.splitlines()[-1] == f"doubles: written to {tmp_path / 'out'}"
    texts = [part.read_text() for part in (tmp_path / "out").glob("part-*")]
    values = [json.loads(text)["value"] for text in "".join(texts).splitlines()]
    assert values == [0, 2, 4, 6, 8]
