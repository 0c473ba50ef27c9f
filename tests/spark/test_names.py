"""The names of jobs and stages on Spark's page, as its REST API gives them after a run."""

from __future__ import annotations

import json
import socket
from itertools import takewhile
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest

from streamkit.plan import load
from streamkit.runtime.spark.job_options import JobOptions, parse_place
from streamkit.runtime.spark.submission.lake_sample import sample_in
from streamkit.runtime.spark.submission.submit_job import submit
from streamkit.runtime.spark.work_names import WorkName, named
from tests.spark.incremental_runs import Runs, lines
from tests.spark.spark_page import SparkPage
from tests.spark.support import write_lines

JOIN = """\
streamkit: 1
application: shop
config: {bootstrap.servers: embedded}
topics:
  orders: {key: string, value: json, partitions: 2}
  users: {key: string, value: string}
  totals: {key: string, value: long, partitions: 2}
  names: {key: string, value: json}
pipelines:
  users: {global_table: users}
  totals:
    stream: orders
    steps:
      - group_by: value.shop
      - count
      - to_stream
    to: totals
  names:
    stream: orders
    steps:
      - join: {with: users, on: value.user, value: right}
    to: names
"""
TOTALS = JOIN.splitlines().index("    to: totals") + 1


@pytest.fixture
def page(spark: Any) -> SparkPage:
    return SparkPage(spark)


def test_jobs_and_stages_of_a_run(spark: Any, page: SparkPage, counting: Path, tmp_path: Path) -> None:
    place = write_lines(tmp_path / "lines.jsonl", lines(20))
    outputs = dict(parse_place(f"{topic}={tmp_path / topic},format=json", "--output") for topic in ("counts", "recent"))
    with page.watched():
        submit(load(counting), JobOptions({"lines": (place,)}, outputs), spark)
    first, second = page.jobs
    place_of = {topic: counting.read_text().splitlines().index(f"    to: {topic}") + 1 for topic in outputs}
    assert first["name"] == "incremental / sub-topology 1 / counts"
    assert first["description"] == f"incremental / counts ({counting}:{place_of['counts']})"
    assert second["name"] == "incremental / sub-topology 2 / recent"
    assert second["description"] == f"incremental / recent ({counting}:{place_of['recent']})"
    repartition = "incremental / sub-topology 0 / {}-repartition"
    assert page.names == [
        "incremental / lines / read",
        repartition.format("counts"),
        first["name"],
        repartition.format("KSTREAM-AGGREGATE-STATE-STORE-0000000009"),
        second["name"],
    ]
    steps = page.stages[1]["details"].splitlines()
    assert f"{counting}:11: pipeline words, step flat_map_values" in steps
    assert not any("pipeline recent" in step and "suppress" in step for step in steps)


def test_jobs_and_stages_of_incremental_runs(spark: Any, page: SparkPage, counting: Path, tmp_path: Path) -> None:
    runs = Runs(spark, counting, tmp_path / "job", ("lines",))
    for number in range(2):
        runs.add(lines(20, 20 * number))
        with page.watched():
            runs.run()
        assert all(name.startswith("incremental / ") for name in page.names), page.names
        assert [job["name"].removeprefix("incremental / ") for job in page.jobs] == [
            "sub-topologies 0, 1, 2 / positions and times",
            "sub-topologies 0, 1, 2 / rows of stores",
            "sub-topologies 0, 1, 2 / rows of stores",
            "sub-topologies 0, 1, 2 / other topics",
        ]
    assert "incremental / sub-topology 0 / counts-repartition + rows of stores / read" in page.names


def test_inputs_that_spark_looks_at_before(spark: Any, page: SparkPage, tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(JOIN)
    orders, users = tmp_path / "orders.jsonl", tmp_path / "users.csv"
    orders.write_text(json.dumps({"id": "1", "shop": "a", "user": "u", "at": 5}) + "\n")
    users.write_text("id,name,at\nu,Ann,1\n")
    inputs = [
        f"orders={orders},format=json,key=id,value=*,timestamp=at",
        f"users={users},key=id,value=name,timestamp=at",
    ]
    places = {topic: (place,) for topic, place in (parse_place(text, "--input") for text in inputs) if place}
    outputs = dict(
        parse_place(f"{topic}={tmp_path / topic},format=parquet", "--output") for topic in ("totals", "names")
    )
    with page.watched():
        submit(load(path), JobOptions(places, outputs), spark)
    names = [job["name"] for job in page.jobs]
    looks = list(takewhile(lambda name: name.endswith(" / look"), names))
    assert set(looks) == {"shop / orders / look", "shop / users / look"}
    # The count is a query of what the stage before it writes, which Spark runs in several jobs.
    assert list(dict.fromkeys(names[len(looks) :])) == [
        "shop / users / global table",
        "shop / sub-topology 2 / totals",
        "shop / sub-topology 1 / names",
    ]
    assert page.jobs[-2]["description"] == f"shop / totals ({path}:{TOTALS})"
    assert "shop / orders / read" in page.names
    with page.watched(), named(spark, WorkName.of("shop", "sample")):
        sample_in(spark, load(path), places, 1)
    assert {job["name"] for job in page.jobs} == {"shop / sample"}


def test_names_end_with_their_work(spark: Any, page: SparkPage) -> None:
    with page.watched():
        with named(spark, WorkName.of("a", "b")):
            spark.range(3).collect()
            with named(spark, WorkName.of("a", "c")):
                spark.range(3).toArrow()
            spark.range(3).count()
        spark.range(3).collect()
    assert {job["name"] for job in page.jobs[:-1]} == {"a / b", "a / c"}
    assert page.jobs[-1]["name"].startswith("collect at ")
    assert not page.jobs[-1].get("description")


def test_the_page_is_for_this_machine_alone(spark: Any) -> None:
    """Another address of this machine would answer if the page were bound to all of them."""
    found = urlsplit(spark.sparkContext.uiWebUrl)
    assert found.hostname == "127.0.0.1"
    with pytest.raises(ConnectionRefusedError):
        socket.create_connection(("127.0.0.2", found.port), 10)
