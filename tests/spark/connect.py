"""The cases of test_connect.py, which run in a process of their own with the libraries of a client of Spark Connect."""

from __future__ import annotations

import io
import os
import re
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pyspark
import pytest

from streamkit.errors import ConfigError, StreamkitError, TransportError, UsageError
from streamkit.plan import load
from streamkit.runtime.spark.job_options import JobOptions, parse_place
from streamkit.runtime.spark.rows import file_system
from streamkit.runtime.spark.rows.files import open_files
from streamkit.runtime.spark.spark_session import Cluster, open_session
from streamkit.runtime.spark.submission import job_progress
from streamkit.runtime.spark.submission.incremental import submit_next
from streamkit.runtime.spark.submission.request import ship
from streamkit.runtime.spark.submission.submit_job import submit
from tests.broker.support import until
from tests.spark.support import SETTINGS, write_lines
from tests.spark.test_stage_output import HOLDING, HOLDS

TOPOLOGY = """\
streamkit: 1
application: words
topics: {lines: {value: string}, counts: {value: long}}
pipelines:
  counts:
    stream: lines
    steps:
      - flat_map_values: {values: {call: "texts:words"}, value_serde: string}
      - group_by: value
      - count: counts
      - to_stream
    to: counts
"""
TEXTS = """\
def words(key, value):
    with open({gate!r}) as gate:
        gate.readline()
    return value.split()
"""
"""A module that waits for a line of a pipe."""


@pytest.fixture(scope="module")
def spark(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Any]:
    """A session of a server in a process of its own."""
    log = tmp_path_factory.mktemp("server") / "log"
    own = {"spark.connect.grpc.binding.address": "127.0.0.1", "spark.connect.grpc.binding.port": "0"}
    conf = [text for name, value in {**SETTINGS, **own}.items() for text in ("--conf", f"{name}={value}")]
    main = "org.apache.spark.sql.connect.service.SparkConnectServer"
    with log.open("w") as out:
        server = subprocess.Popen(
            [f"{Path(pyspark.__file__).parent}/bin/spark-submit", "--master", "local[1]", *conf, "--class", main],
            stdout=out,
            stderr=out,
            env={**os.environ, "PYSPARK_PYTHON": sys.executable, "SPARK_LOCAL_IP": "127.0.0.1", "LC_ALL": "C.UTF-8"},
            start_new_session=True,
        )
    try:
        started = until(
            lambda: server.poll() is not None or re.search(r"server started at: (127\.0\.0\.1:\d+)", log.read_text()),
            "the server is there",
        )
        assert started is not True, log.read_text()
        session = open_session(Cluster(f"sc://{started[1]}"), "connect")
        yield session
        session.stop()
    finally:
        os.killpg(server.pid, signal.SIGKILL)
        server.wait()


def options_of(folder: Path, **more: Any) -> JobOptions:
    write_lines(folder / "lines.jsonl", [{"key": "a", "value": "tea or tea", "timestamp": 1}])
    topic, place = parse_place(f"lines={folder / 'lines.jsonl'}", "--input")
    output = parse_place(f"counts={folder / 'out'},format=parquet", "--output")
    assert place is not None
    return JobOptions({topic: (place,)}, dict([output]), **more)


def test_a_job_with_a_module_shows_its_progress(spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(job_progress, "_LINE_SECONDS", 0.1)
    path, gate, shown = tmp_path / "topology.yaml", tmp_path / "gate", io.StringIO()
    path.write_text(TOPOLOGY)
    (tmp_path / "texts.py").write_text(TEXTS.format(gate=str(gate)))
    os.mkfifo(gate)
    plan, failures = load(path), list[StreamkitError]()
    # A worker on this machine would import it from here.
    ship(spark, plan)

    def run() -> None:
        try:
            submit(plan, options_of(tmp_path), spark)
        except StreamkitError as error:
            failures.append(error)

    running = threading.Thread(target=run)
    # With both ends open, the pipe lets neither the test nor a worker wait for the other one.
    ends = os.open(gate, os.O_RDWR)
    try:
        with job_progress.show_progress(spark, shown):
            running.start()
            until(lambda: " tasks, " in shown.getvalue() or not running.is_alive(), "a line of progress is there")
            os.write(ends, b"\n")
            running.join()
    finally:
        os.close(ends)
    assert not failures
    line = shown.getvalue().splitlines()[0]
    assert re.fullmatch(r"stage \d+ of Spark: 0/1 tasks, [\d,]+ bytes(, [\d,]+/s)?, \d+ s", line), line
    found = spark.read.parquet(str(tmp_path / "out")).select("key", "value").collect()
    assert sorted(map(tuple, found)) == [("or", 1), ("tea", 2)]


def test_a_checkpoint_is_refused(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(TOPOLOGY.replace('{call: "texts:words"}', "value.split()"))
    with pytest.raises(UsageError) as caught:
        submit_next(load(path), options_of(tmp_path, checkpoint=str(tmp_path / "state")), spark)
    assert str(caught.value) == (
        "--checkpoint needs access to files, which Spark Connect does not provide; use another master"
    )
    assert not (tmp_path / "state").exists()
    assert not (tmp_path / "out").exists()


def test_a_server_that_would_pass_over_names_of_files(
    spark: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(TOPOLOGY.replace('{call: "texts:words"}', "value.split()"))
    monkeypatch.setattr(file_system, "_ASCII", ("UTF-8",))
    with pytest.raises(
        ConfigError, match=r"as ASCII in this locale.*set LC_ALL=C\.UTF-8 before the server of Spark Con"
    ):
        submit(load(path), options_of(tmp_path), spark)
    assert not (tmp_path / "out").exists()


def test_what_processors_forward_in_close_is_written(spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(HOLDS.replace("TO}", "held}"))
    (tmp_path / "holding.py").write_text(HOLDING)
    submit(load(path), options_of(tmp_path), spark)
    assert list(map(tuple, spark.read.parquet(str(tmp_path / "out")).select("key", "value").collect())) == [("a", 1)]


def test_text_of_a_table_that_spark_would_lose(spark: Any, tmp_path: Path) -> None:
    (tmp_path / "table").mkdir()
    (tmp_path / "table" / "a.csv").write_bytes("1;ä\n2;é\n".encode("latin-1"))
    spark.sql(
        f"CREATE TABLE over_connect (n INT, v STRING) USING csv OPTIONS (sep ';') LOCATION '{tmp_path}/table'"
    ).collect()
    _, place = parse_place("lines=over_connect,format=table,value=v,timestamp=0,order=n", "--input")
    assert place is not None
    with pytest.raises(TransportError, match=r"/table/a\.csv:1: the text is not UTF-8"):
        open_files(spark, place)
