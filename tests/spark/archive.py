"""The archive of Spark's classes: `python -m tests.spark.archive` runs the job whose classes it gets."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

from tests.java import archives

_SUBMIT = "SPARK_SUBMIT_OPTS"
# Of the CPU time of a JVM that runs small jobs of Spark for some minutes the second compiler would take a third.
# Without it the JVM reserves 48 MB for code, which hundreds of jobs fill; tasks then fail.
_QUICK = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC -XX:ReservedCodeCacheSize=240m"


def configure() -> None:
    """Let processes of Spark that this one starts use the archive, as soon as it is there."""
    os.environ.setdefault("SPARK_LAUNCHER_OPTS", _QUICK)
    os.environ.setdefault(_SUBMIT, " ".join([_QUICK, *(archives.options(found) if (found := _archive()) else [])]))


def make() -> None:
    """Make the archive if it is missing, and is what processes use: those with another PySpark go without."""
    found = _archive()
    if found and str(found) in os.environ[_SUBMIT]:
        archives.make(found, _train)


def _archive() -> Path | None:
    spark = find_spec("pyspark")
    if spark is None or spark.origin is None:
        return None
    # Beside the jars, which it is of no use without.
    return archives.archive(Path(spark.origin).parent / "jars", Path(sys.prefix))


def _train(option: str) -> None:
    variables = {**os.environ, _SUBMIT: f"{_QUICK} {option}"}
    subprocess.run([sys.executable, "-m", __name__], env=variables, capture_output=True, check=True)


def _main() -> None:
    from streamkit.plan import load
    from streamkit.runtime.spark.spark_session import Cluster, open_session
    from tests.spark.incremental_runs import PARQUET, TOPOLOGY, Runs, lines
    from tests.spark.support import SETTINGS

    spark = open_session(Cluster("local[2]", SETTINGS), "archive")
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "topology.yaml"
        path.write_text(TOPOLOGY, encoding="utf-8")
        runs = Runs(spark, path, Path(folder), load(path).sub_topologies[0].source_topics, PARQUET)
        runs.add(lines(10))
        runs.run()
        spark.read.parquet(str(runs.out)).count()
    spark.stop()


if __name__ == "__main__":
    _main()
