"""The cases of test_object_store.py, which run in a process of their own with moto and the jars of S3A."""

from __future__ import annotations

import json
import os
import signal
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamkit.errors import TransportError
from streamkit.plan import load
from streamkit.runtime.spark.job_options import JobOptions, parse_place
from streamkit.runtime.spark.rows.file_system import FileSystem
from streamkit.runtime.spark.spark_session import Cluster, open_session
from streamkit.runtime.spark.submission.incremental import submit_next
from streamkit.runtime.spark.submission.lake_sample import sample_in
from streamkit.runtime.spark.submission.submit_job import submit
from tests.cli.support import command
from tests.spark.incremental_runs import lines
from tests.spark.s3_server import BUCKET, Fault, Server
from tests.spark.support import SETTINGS

COUNTS = """\
streamkit: 1
application: words
topics: {lines: {value: string, partitions: 2}, counts: {value: long, partitions: 2}}
pipelines:
  counts:
    stream: lines
    steps:
      - flat_map_values: {values: value.split(), value_serde: string}
      - group_by: value
      - count: counts
      - to_stream
    to: counts
"""
INPUT, OUTPUT = f"lines=s3a://{BUCKET}/lines,format=json", f"counts=s3a://{BUCKET}/out"
CHECKPOINT = f"s3a://{BUCKET}/words"


@pytest.fixture(scope="module")
def server() -> Server:
    return Server()


@pytest.fixture(scope="module")
def spark(server: Server) -> Iterator[Any]:
    session = open_session(Cluster("local[2]", {**SETTINGS, **server.settings(os.environ["JARS"])}), "s3")
    yield session
    session.stop()


class Runs:
    """Runs of a count of words, whose input, output and checkpoint are in a bucket."""

    def __init__(self, spark: Any, server: Server, path: Path):
        self.spark, self.server, self.path = spark, server, path
        self.said: list[str] = []
        path.write_text(COUNTS, encoding="utf-8")

    def add(self, number: int) -> None:
        records = "".join(json.dumps(record) + "\n" for record in lines(10, 10 * number))
        self.server.put(f"lines/{number}.jsonl", records)

    def run(self, *faults: Fault) -> str | None:
        """Run what is new; return the error with which the run ended."""
        (topic, place), (output, out) = (parse_place(*each) for each in ((INPUT, "--input"), (OUTPUT, "--output")))
        assert place is not None
        options = JobOptions({topic: (place,)}, {output: out}, checkpoint=CHECKPOINT, emit="updates")
        self.server.faults[:] = faults
        try:
            submit_next(load(self.path), options, self.spark, self.said.append)
        except TransportError as error:
            self.server.wait_for_requests()
            return str(error)
        finally:
            self.server.faults.clear()
        return None

    def kill(self, pattern: str) -> None:
        """Run what is new as a command of its own, and kill it at its second request with a pattern."""
        conf = {**SETTINGS, **self.server.settings(os.environ["JARS"])}
        line = command(
            *("submit", self.path, "--master", "local[2]", "--emit", "updates", "--checkpoint", CHECKPOINT),
            *("--input", INPUT, "--output", OUTPUT),
            *(each for setting in conf.items() for each in ("--conf", "=".join(setting))),
        )
        process = subprocess.Popen(line, start_new_session=True, stderr=subprocess.PIPE, text=True)
        kill = Fault(pattern, count=1, skip=1, then=lambda: os.killpg(process.pid, signal.SIGKILL))
        self.server.faults[:] = [kill]
        _, errors = process.communicate()
        self.server.wait_for_requests()
        self.server.faults.clear()
        assert process.returncode == -signal.SIGKILL, errors

    def written(self) -> list[tuple[str, int]]:
        """The counts that readers see, in the order of runs."""
        found = self.server.objects("out/run=")
        records = [json.loads(line) for key in sorted(found) for line in found[key].splitlines()]
        return [(record["key"], record["value"]) for record in records]

    def committed(self) -> list[str]:
        return [key for key in self.server.objects("words/manifests/") if not key.endswith("/")]


def test_outages_and_a_kill(spark: Any, server: Server, tmp_path: Path) -> None:
    """`python -m tests.spark.killed_hours s3` kills runs of six hours at random requests."""
    runs = Runs(spark, server, tmp_path / "topology.yaml")
    # S3A repeats requests. The answer to the one that commits the run is lost, and its repetition is refused.
    runs.add(0)
    short = [Fault("", count=3, skip=skip) for skip in (5, 40)]
    assert runs.run(*short, Fault("PUT .*/manifests/000001.json", count=1, is_lost=True)) is None
    assert server.seen.count("PUT /lake/words/manifests/000001.json If-None-Match") == 2
    # The store stays away, from the input, the output or the commit on.
    before = runs.written()
    runs.add(1)
    for pattern in ("GET .*/lines/", "PUT .*/out/_run-000002", "PUT .*/manifests/"):
        error = runs.run(Fault(pattern))
        assert error is not None
        assert "reduce your request rate" in error
        assert "\n" not in error
        assert (len(runs.committed()), runs.written()) == (1, before)
    # From the second part on that it copies: the run is committed, and what it wrote waits for the next one.
    error = runs.run(Fault("COPY .*/out/run=000002/part", skip=1))
    assert error is not None
    assert "reduce your request rate" in error
    assert "\n" not in error
    assert len(runs.committed()) == 2
    assert len(before) < len(runs.written()) < 2 * len(before)
    assert server.objects("out/_run-000002")
    assert runs.run() is None
    assert runs.said[-1] == "nothing is new since run 2"
    runs.add(2)
    runs.kill("COPY .*/out/run=000003/part")
    assert len(runs.committed()) == 3
    assert runs.run() is None
    assert runs.said[-1] == "nothing is new since run 3"
    words = [word for record in lines(30) for word in record["value"].split()]
    expected = [(word, words[: at + 1].count(word)) for at, word in enumerate(words)]
    assert sorted(runs.written()) == sorted(expected)
    assert not [key for key in server.objects("out/_") if "_run" in key]
    assert not server.objects("words/manifests/_")


def test_a_run_that_another_one_overtook(spark: Any, server: Server) -> None:
    files, path = FileSystem(spark), f"s3a://{BUCKET}/other/1.json"
    overtaken = Fault("PUT .*/other/1.json", count=1, then=lambda: server.put("other/1.json", "theirs"))
    server.faults[:] = [Fault("PUT .*/nothing"), overtaken]
    assert not files.publish(path, "mine", "token")
    assert server.objects("other/") == {"other/1.json": "theirs"}


def test_columns(spark: Any, server: Server, tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(
        "streamkit: 1\napplication: copies\ntopics: {orders: {key: string, value: json}, copies: {key: string, value: json}}\n"
        "pipelines: {copies: {stream: orders, to: copies}}\n"
    )
    rows = spark.createDataFrame([("a", 1, "x y"), ("b", 2, "z")], "user string, amount int, day string")
    rows.write.partitionBy("day").parquet(f"s3a://{BUCKET}/orders")
    _, place = parse_place(
        f"orders=s3a://{BUCKET}/orders,key=user,value=amount,day,timestamp=0,order=amount", "--input"
    )
    output = parse_place(f"copies=s3a://{BUCKET}/copies,format=parquet,value=amount int,day string", "--output")
    submit(load(path), JobOptions({"orders": (place,)}, dict([output])), spark)
    found = spark.read.parquet(f"s3a://{BUCKET}/copies").select("key", "value_amount", "value_day").collect()
    assert sorted(map(tuple, found)) == [("a", 1, "x y"), ("b", 2, "z")]
    _, of_files = parse_place(f"orders=s3a://{BUCKET}/orders,key=user,value=amount,timestamp=0", "--input")
    for limit in (1, 2):
        records = sample_in(spark, load(path), {"orders": (of_files,)}, limit)
        assert [record["value"] for record in records] == [1, 2][:limit]
