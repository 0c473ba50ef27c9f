"""The cases of test_object_store.py, which run in a process of their own with moto and the jars of S3A."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamkit.errors import TransportError
from streamkit.plan import load
from streamkit.runtime.spark.checkpoint.file_system import FileSystem
from streamkit.runtime.spark.submission.incremental import submit_next
from streamkit.runtime.spark.submission.job_options import JSON_LINES, REST, JobOptions, Place, parse_place
from streamkit.runtime.spark.submission.spark_session import Cluster, open_session
from streamkit.runtime.spark.submission.submit_job import submit
from tests.spark.incremental_runs import lines
from tests.spark.s3_server import BUCKET, Fault, Server
from tests.spark.support import SETTINGS, by_key, reprocess


@pytest.fixture(scope="module")
def server() -> Server:
    return Server()


@pytest.fixture(scope="module")
def spark(server: Server) -> Iterator[Any]:
    session = open_session(Cluster("local[2]", {**SETTINGS, **server.settings(os.environ["JARS"])}), "s3")
    yield session
    session.stop()


class Runs:
    """Runs of a job whose input, output and checkpoint are in a bucket."""

    def __init__(self, spark: Any, server: Server, path: Path):
        self.spark, self.server, self.path = spark, server, path
        self.said: list[str] = []

    def add(self, number: int) -> None:
        records = "".join(json.dumps(record) + "\n" for record in lines(10, 10 * number))
        self.server.put(f"lines/{number}.jsonl", records)

    def run(self, *faults: Fault) -> str | None:
        """Run what is new; return the error with which the run ended."""
        options = JobOptions(
            {"lines": (Place(f"s3a://{BUCKET}/lines", JSON_LINES),)},
            {REST: Place(f"s3a://{BUCKET}/out", JSON_LINES)},
            checkpoint=f"s3a://{BUCKET}/state",
            emit="updates",
        )
        self.server.faults[:] = faults
        try:
            submit_next(load(self.path), options, self.spark, self.said.append)
        except TransportError as error:
            return str(error)
        finally:
            self.server.faults.clear()
        return None

    def written(self) -> list[dict]:
        """The records that readers see, in the order of runs."""
        found = self.server.objects("out/run=")
        return [json.loads(line) for key in sorted(found) for line in found[key].splitlines()]

    def committed(self) -> list[str]:
        return [key for key in self.server.objects("state/manifests/") if not key.endswith("/")]


def test_outages(spark: Any, server: Server, counting: Path, tmp_path: Path) -> None:
    runs = Runs(spark, server, counting)
    runs.add(0)
    assert runs.run() is None
    assert "PUT /lake/state/manifests/000001.json If-None-Match" in server.seen
    # S3A repeats requests. The answer to the one that commits the run is lost, and its repetition is refused.
    runs.add(1)
    short = [Fault("", count=3, skip=skip) for skip in (5, 40)]
    assert runs.run(*short, Fault("PUT .*/manifests/000002.json", count=1, is_lost=True)) is None
    assert server.seen.count("PUT /lake/state/manifests/000002.json If-None-Match") == 2
    # The store stays away: while the run writes its output, at its commit, and while its files get their final names.
    before = runs.written()
    runs.add(2)
    for pattern in ("PUT .*/out/_run-000003", "PUT .*/manifests/"):
        error = runs.run(Fault(pattern))
        assert error is not None
        assert "reduce your request rate" in error
        assert "\n" not in error
        assert (len(runs.committed()), runs.written()) == (2, before)
    assert runs.run(Fault("COPY .*/out/run=000003", skip=1)) is not None
    assert len(runs.committed()) == 3
    assert runs.run() is None
    assert runs.said[-1] == "nothing is new since run 3"
    expected = reprocess(spark, load(counting), lines(30), tmp_path, emit="updates")
    assert by_key(runs.written()) == by_key(expected)
    assert not [key for key in server.objects("out/_") if "_run" in key]
    assert not server.objects("state/manifests/_")


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
