"""A job on a standalone cluster of a master and two workers, one of which is killed in the middle."""

from __future__ import annotations

import os
import random
import re
import signal
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from importlib.util import find_spec
from pathlib import Path

import pytest

import streamkit.errors
from tests.broker.support import kill, until
from tests.cli.support import command
from tests.spark.support import read_lines, write_lines

# Without a JVM pyspark is not installed, and the tests are skipped.
_SPEC = find_spec("pyspark")
HOME = Path(_SPEC.origin if _SPEC else "").parent
LINES = 12_000
# Five JVMs start on what may be two cores.
LONG_S = 400
_QUICK = os.environ["SPARK_SUBMIT_OPTS"].split()
"""What other JVMs of Spark have, too (tests/spark/archive.py)."""
_FIRST = next(HOME.glob("jars/slf4j-api-*.jar"), HOME)
_CLASSES = os.pathsep.join(map(str, (HOME / "conf", _FIRST, HOME / "jars" / "*")))
"""As Spark's own commands have it: an archive is for one class path."""
WORD_COUNT = """\
streamkit: 1
application: counting
topics: {lines: {value: string, partitions: 4}, counts: {value: long, partitions: 4}}
pipelines:
  words:
    stream: lines
    steps:
      - flat_map_values: {values: {call: "texts:words"}, value_serde: string}
      - group_by: {key: value, key_serde: string}
      - count
      - to_stream
    to: counts
"""
TEXTS = """\
import os
from importlib.util import find_spec
from pathlib import Path
from uuid import uuid4

import streamkit.errors

SEPARATOR = Path(__file__).with_name("separator.txt").read_text()
PLACE = Path(__file__).with_name("given" + ".txt").read_text()
# A link has its text at once, also in a worker that is killed.
os.symlink(f"{__file__} {streamkit.errors.__file__} {find_spec('streamkit._native') is not None}", f"{PLACE}/{uuid4()}")


def words(key, value):
    return value.split(SEPARATOR)
"""
"""A module that opens files beside it, one of which only `--files` sends, and tells from where it is and has streamkit."""
SMALL = {
    "spark.driver.memory": "512m",
    "spark.executor.memory": "512m",
    "spark.executor.cores": "1",
    "spark.executor.defaultJavaOptions": " ".join(_QUICK),
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
    "spark.ui.enabled": "false",
    # No task before both workers have their executors: otherwise one of them may do all the work.
    "spark.cores.max": "2",
    "spark.scheduler.minRegisteredResourcesRatio": "1.0",
    "spark.scheduler.maxRegisteredResourcesWaitingTime": f"{LONG_S}s",
}


# What Spark's own start scripts would set.
_VARIABLES = {"PYSPARK_PYTHON": sys.executable, "SPARK_HOME": str(HOME), "SPARK_SCALA_VERSION": "2.13"}


class Cluster:
    """A master and workers as processes; a worker's executors are in its process group."""

    def __init__(self, folder: Path):
        self._folder = folder
        self._processes: list[subprocess.Popen] = []
        self._start("master", "org.apache.spark.deploy.master.Master", "--host", "127.0.0.1", "--port", "0")
        found = until(lambda: re.search(r"spark://127\.0\.0\.1:\d+", self.log("master")), "the master is there")
        self.address = found.group()
        self.workers = [self._worker(f"worker{number}") for number in range(2)]
        until(lambda: self.log("master").count("Registering worker") == 2, "both workers are there")

    def log(self, name: str) -> str:
        return (self._folder / f"{name}.log").read_text()

    def shuffled(self, number: int) -> bool:
        """Whether a worker has written something that another stage is to read."""
        return any((self._folder / f"worker{number}-local").rglob("shuffle_*.data"))

    def kill(self, number: int) -> None:
        """Kill a worker with its executors."""
        os.killpg(self.workers[number].pid, signal.SIGKILL)

    def close(self) -> None:
        for process in self._processes:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()

    def _worker(self, name: str) -> subprocess.Popen:
        local, work = self._folder / f"{name}-local", self._folder / f"{name}-work"
        local.mkdir()
        options = ["--host", "127.0.0.1", "--cores", "1", "--memory", "600m", "--work-dir", str(work)]
        return self._start(
            name, "org.apache.spark.deploy.worker.Worker", *options, self.address, SPARK_LOCAL_DIRS=str(local)
        )

    def _start(self, name: str, main: str, *arguments: str, **variables: str) -> subprocess.Popen:
        with (self._folder / f"{name}.log").open("w") as log:
            process = subprocess.Popen(
                ["java", *_QUICK, "-Xmx256m", "-cp", _CLASSES, main, "--webui-port", "0", *arguments],
                stdout=log,
                stderr=log,
                env={**os.environ, **_VARIABLES, **variables},
                start_new_session=True,
            )
        self._processes.append(process)
        return process


@pytest.fixture
def cluster(tmp_path: Path) -> Iterator[Cluster]:
    folder = tmp_path / "cluster"
    folder.mkdir()
    found = Cluster(folder)
    yield found
    found.close()


def test_a_worker_is_killed(cluster: Cluster, tmp_path: Path) -> None:
    path, given, seen = tmp_path / "topology.yaml", tmp_path / "given.txt", tmp_path / "seen"
    path.write_text(WORD_COUNT)
    (tmp_path / "texts.py").write_text(TEXTS)
    (tmp_path / "separator.txt").write_text("-")
    seen.mkdir()
    given.write_text(str(seen))
    draw = random.Random(1)
    texts = ["-".join(f"w{draw.randrange(3000)}" for _ in range(8)) for _ in range(LINES)]
    lines = [{"value": text, "timestamp": number, "partition": number % 4} for number, text in enumerate(texts)]
    place, out = write_lines(tmp_path / "lines", lines), tmp_path / "out"
    settings = [text for name, value in SMALL.items() for text in ("--conf", f"{name}={value}")]
    options = ["--master", cluster.address, "--files", str(given), *settings]
    options += ["--input", f"lines={place.path}", "--output", f"counts={out}"]
    job = subprocess.Popen(
        # By a relative path: on the same machine, workers would find the module beside the file otherwise.
        command("submit", path.name, *options),
        cwd=tmp_path,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        env={**os.environ, "PYSPARK_PYTHON": sys.executable},
    )
    try:
        until(lambda: cluster.shuffled(0) or job.poll() is not None, "the first worker has written something", LONG_S)
        assert job.poll() is None, job.communicate()
        assert not (out / "_SUCCESS").exists()
        cluster.kill(0)
        output, errors = job.communicate(timeout=LONG_S)
    finally:
        kill([job])
    assert (job.returncode, output) == (0, ""), errors
    assert "sent to the workers: given.txt, separator.txt, texts.py" in errors.splitlines()
    # The driver and the workers have the same streamkit, and the workers a copy of the module.
    imported = [os.readlink(each).split() for each in seen.iterdir()]
    native = str(find_spec("streamkit._native") is not None)
    assert {tuple(others) for _, *others in imported} == {(streamkit.errors.__file__, native)}
    assert {str(tmp_path / "texts.py")} < {path for path, *_ in imported}
    found = read_lines(out)
    truth = Counter(word for text in texts for word in text.split("-"))
    assert {each["key"]: each["value"] for each in found} == truth
    assert len(found) == len(truth)
