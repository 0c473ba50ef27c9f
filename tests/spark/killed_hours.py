"""Hourly runs of a job into Iceberg, Delta or S3, whose drivers get SIGKILL at random points: equal to one run.

python -m tests.spark.killed_hours iceberg --seed 1 --hours 6
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import random
import signal
import subprocess
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeAlias

from tests.cli.support import command
from tests.spark.support import SETTINGS
from tests.spark.table_environment import FORMATS, QUICK, environment, s3_environment

TOPOLOGY = """\
streamkit: 1
application: hours
topics:
  changes: {key: string, value: string, partitions: 2}
  events: {key: string, value: long, partitions: 2}
  latest: {key: string, value: string}
  copies: {key: string, value: long, partitions: 2}
  counts: {key: {windowed: string, size: 10s}, value: long}
pipelines:
  latest: {table: changes, steps: [to_stream], to: latest}
  copies: {stream: events, to: copies}
  counts:
    from: copies
    steps: [group_by_key, {window: {tumbling: 10s, grace: 0ms}}, count, to_stream]
    to: counts
"""
KEYS = {"latest": ("key",), "copies": (), "counts": ("key", "window_start")}
"""The columns by which the rows of an output are told apart; none where each record is a row."""
HOUR_MS = 3_600_000
_LONGEST_S = 3.0
Step: TypeAlias = tuple[str, Callable[[], bool]]
_COMMITTED_HERE = "manifests/{run:06}.json"


def records(topic: str, hour: int) -> list[dict]:
    """The records of an hour: changes and deletions of few keys, or events, some of them in a window of the hour before."""
    draw = random.Random(f"{topic} {hour}")
    found = []
    for at in range(40):
        value = f"{hour}-{at}" if topic == "changes" else at
        is_deletion = topic == "changes" and draw.random() < 0.2
        when = hour * HOUR_MS + at * 700
        found.append({"key": f"k{draw.randrange(9)}", "value": None if is_deletion else value, "timestamp": when})
    return found


class Lake:
    """Inputs and checkpoint on this machine, and outputs in tables of a format."""

    def __init__(self, name: str, folder: Path):
        self.name, self.folder = name, folder
        self.place = str(folder)
        (folder / "topology.yaml").write_text(TOPOLOGY)
        for topic in ("changes", "events"):
            (folder / topic).mkdir()

    def settings(self) -> dict[str, str]:
        own = {
            "iceberg": {
                "spark.sql.catalog.lake": "org.apache.iceberg.spark.SparkCatalog",
                "spark.sql.catalog.lake.type": "hadoop",
                "spark.sql.catalog.lake.warehouse": str(self.folder / "lake"),
            },
            "delta": {
                "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
                "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
                "spark.databricks.delta.snapshotPartitions": "1",
            },
        }[self.name]
        return {**SETTINGS, "spark.jars": os.environ["JARS"], **own}

    def output(self, topic: str, name: str) -> str:
        """Where a topic is written to, as --output takes it. name: of the job."""
        return f"lake.{name}.{topic}" if self.name == "iceberg" else f"{self.folder}/{name}/{topic},format=delta"

    def rows(self, spark: Any, topic: str, name: str) -> list[dict]:
        """The rows that readers see."""
        place = self.output(topic, name).partition(",")[0]
        frame = spark.table(place) if self.name == "iceberg" else spark.read.format("delta").load(place)
        return [row.asDict() for row in frame.collect()]

    def runs(self, spark: Any, topic: str) -> list[int]:
        """The runs that the commits of a table name, in their order."""
        place = self.output(topic, "hours").partition(",")[0]
        if self.name == "iceberg":
            sql = f"SELECT summary['streamkit.run'] run FROM {place}.snapshots ORDER BY committed_at"
            return [int(row.run) for row in spark.sql(sql).collect()]
        commits = spark.sql(f"DESCRIBE HISTORY delta.`{place}`").orderBy("version").collect()
        return [int(json.loads(row.userMetadata)["streamkit.run"]) for row in commits if row.userMetadata]

    def put(self, topic: str, hour: int, text: str) -> None:
        (self.folder / topic / f"{hour}.jsonl").write_text(text)

    def step(self, draw: random.Random, run: int, kill: Callable[[], None]) -> Step:
        """Return a step of the next run, and what tells that it is there."""
        state, tables = self.folder / "state" / "state", self.folder / "state" / "tables"
        manifest = self.folder / "state" / _COMMITTED_HERE.format(run=run)
        return draw.choice(
            [
                ("start", lambda: True),
                ("state", lambda: any(state.glob(f"folder={run:06}-*"))),
                ("rows", lambda: any(tables.glob(f"{run:06}-*/*"))),
                ("last rows", lambda: len(list(tables.glob(f"{run:06}-*/*/_SUCCESS"))) == len(KEYS)),
                ("commit", manifest.exists),
                ("a table", lambda: manifest.exists() and len(list(tables.glob(f"{run:06}-*/*"))) < len(KEYS)),
            ]
        )

    def is_committed(self, run: int) -> bool:
        return (self.folder / "state" / _COMMITTED_HERE.format(run=run)).exists()


class Bucket(Lake):
    """Inputs, outputs and checkpoint in a bucket of S3. Its server kills a run at one of the requests that it sends."""

    def __init__(self, folder: Path, server: Any = None):
        from tests.spark.s3_server import BUCKET, Fault, Server

        super().__init__("s3", folder)
        self._server, self._fault = server or Server(), Fault
        self.place = f"s3a://{BUCKET}"

    def settings(self) -> dict[str, str]:
        return {**SETTINGS, **self._server.settings(os.environ["JARS"])}

    def output(self, topic: str, name: str) -> str:
        return f"{self.place}/{name}/{topic},format=parquet"

    def rows(self, spark: Any, topic: str, name: str) -> list[dict]:
        """The rows that are left of all that the runs have written, the last of each key."""
        place = self.output(topic, name).partition(",")[0]
        found = sorted((row.asDict() for row in spark.read.parquet(place).collect()), key=lambda row: row.get("run", 0))
        if KEYS[topic]:
            found = list({tuple(row[name] for name in KEYS[topic]): row for row in found}.values())
        left = [row for row in found if not row.get("deleted")]
        return [{name: value for name, value in row.items() if name not in ("run", "deleted")} for row in left]

    def runs(self, spark: Any, topic: str) -> list[int]:
        (listing,) = self._server.objects(f"hours/{topic}/_manifest.json").values()
        listed = [each["run"] for each in json.loads(listing)["runs"]]
        folders = {key.split("/")[2] for key in self._server.objects(f"hours/{topic}/run=")}
        assert sorted(folders) == [f"run={run:06}" for run in listed]
        assert not self._server.objects(f"hours/{topic}/_run-")
        return listed

    def put(self, topic: str, hour: int, text: str) -> None:
        self._server.put(f"{topic}/{hour}.jsonl", text)

    def step(self, draw: random.Random, run: int, kill: Callable[[], None]) -> Step:
        pattern, most = draw.choice(
            [
                ("", 300),
                (f"PUT .*/_run-{run:06}", 4),
                (f"COPY .*/_run-{run:06}", 6),
                (f"PUT .*/folder={run:06}", 4),
                ("PUT .*/manifests/", 1),
                (f"COPY .*/run={run:06}", 6),
                (f"DELETE .*/_run-{run:06}|POST", 6),
                ("PUT .*/_manifest.json", 3),
            ]
        )
        return self.at(pattern, draw.randrange(most), draw, kill)

    def at(self, pattern: str, skip: int, draw: random.Random, kill: Callable[[], None]) -> Step:
        """Return the step of a request: after `skip` others with its pattern."""
        # The request itself is done in one of two cases: a process may end before or after that.
        self._server.faults[:] = [self._fault(pattern, count=1, skip=skip, is_lost=draw.random() < 0.5, then=kill)]
        return f"request {skip} of '{pattern}'", lambda: False

    def is_committed(self, run: int) -> bool:
        return bool(self._server.objects("state/" + _COMMITTED_HERE.format(run=run)))

    def calm(self) -> None:
        """Let all requests pass."""
        self._server.faults.clear()


def lake_of(name: str, folder: Path) -> Lake:
    """Return what the hours are written to. Its process has the variables of `variables`."""
    return Bucket(folder) if name == "s3" else Lake(name, folder)


def variables(name: str) -> dict[str, str]:
    """Return the variables of a process for iceberg, delta or s3."""
    return s3_environment() if name == "s3" else environment(FORMATS[name])


def places(lake: Lake, name: str) -> tuple[list[str], list[str]]:
    """The inputs and the outputs of a job, as the command takes them."""
    inputs = [f"{topic}={lake.place}/{topic},format=json" for topic in ("changes", "events")]
    return inputs, [f"{topic}={lake.output(topic, name)}" for topic in KEYS]


def submit_line(lake: Lake, name: str, checkpoint: bool) -> list[str]:
    """The command of a job over what there is."""
    inputs, outputs = places(lake, name)
    options = [each for setting in lake.settings().items() for each in ("--conf", "=".join(setting))]
    options += [each for place in inputs for each in ("--input", place)]
    options += [each for place in outputs for each in ("--output", place)]
    options += ["--checkpoint", f"{lake.place}/state"] if checkpoint else []
    return command("submit", lake.folder / "topology.yaml", "--master", "local[2]", *options)


def finish(lake: Lake, name: str = "hours", checkpoint: bool = True) -> None:
    """Run a job to its end."""
    done = subprocess.run(
        submit_line(lake, name, checkpoint), env={**os.environ, **QUICK}, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


def kill_one(lake: Lake, draw: random.Random, run: int) -> str:
    """Start the next run, and kill it at a random point; return what happened."""
    process = subprocess.Popen(
        submit_line(lake, "hours", True),
        start_new_session=True,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.PIPE,
        env={**os.environ, **QUICK},
        text=True,
    )

    def kill() -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)

    errors: list[str] = []
    ended = threading.Event()
    waiting = threading.Thread(target=lambda: (errors.append(process.communicate()[1]), ended.set()))
    waiting.start()
    name, is_there = lake.step(draw, run, kill)
    after = draw.uniform(0, _LONGEST_S)
    while not is_there() and not ended.wait(0.05):
        pass
    ended.wait(after)
    if not isinstance(lake, Bucket):
        kill()
    waiting.join()
    if isinstance(lake, Bucket):
        lake.calm()
    assert process.returncode in (0, -signal.SIGKILL), errors
    killed = "killed" if process.returncode else "ended before the kill"
    return f"{killed} at {name}, {'committed' if lake.is_committed(run) else 'not committed'}"


def add(lake: Lake, hour: int) -> None:
    """Add the records of an hour."""
    for topic in ("changes", "events"):
        lake.put(topic, hour, "".join(json.dumps(record) + "\n" for record in records(topic, hour)))


def run_hours(lake: Lake, seed: int, hours: int) -> None:
    """Run hour after hour, each with up to two kills before a run that ends. Raises AssertionError."""
    draw = random.Random(seed)
    for hour in range(hours):
        add(lake, hour)
        for _ in range(draw.choice((1, 1, 2))):
            began = time.monotonic()
            print(f"hour {hour + 1}: {kill_one(lake, draw, hour + 1)} ({time.monotonic() - began:.0f} s)", flush=True)
        began = time.monotonic()
        finish(lake)
        print(f"hour {hour + 1}: done ({time.monotonic() - began:.0f} s)", flush=True)


def check(lake: Lake, hours: int, spark: Any) -> None:
    """Check that the outputs are those of one job over all hours, and have each run once. Raises AssertionError."""
    for topic in KEYS:
        found, expected = (
            Counter(tuple(sorted(row.items())) for row in lake.rows(spark, topic, name)) for name in ("hours", "once")
        )
        assert found == expected, f"{topic}: lost {expected - found}, doubled or wrong {found - expected}"
        assert lake.runs(spark, topic) == list(range(1, hours + 1)), (topic, lake.runs(spark, topic))
        print(f"{topic}: {found.total()} rows as in one run, runs {lake.runs(spark, topic)}", flush=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("into", choices=(*FORMATS, "s3"))
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--hours", type=int, default=6)
    given = parser.parse_args()
    if "JARS" not in os.environ:
        os.execve(
            sys.executable, [sys.executable, "-m", "tests.spark.killed_hours", *sys.argv[1:]], variables(given.into)
        )
    from streamkit.runtime.spark.spark_session import Cluster, open_session

    with tempfile.TemporaryDirectory() as folder:
        lake = lake_of(given.into, Path(folder))
        run_hours(lake, given.seed, given.hours)
        finish(lake, "once", checkpoint=False)
        spark = open_session(Cluster("local[2]", lake.settings()), "check")
        check(lake, given.hours, spark)
        spark.stop()


if __name__ == "__main__":
    main()
