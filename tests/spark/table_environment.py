"""An older PySpark with the jars of a table format, for which no build of the newest PySpark exists; fetched once."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from tests.requirements import require


@dataclass(frozen=True)
class TableFormat:
    """A table format: the release of PySpark that it was built for, and its jars as Maven names them."""

    name: str
    pyspark: str
    jars: tuple[str, ...]


ICEBERG = TableFormat("iceberg", "4.1.4", ("org.apache.iceberg:iceberg-spark-runtime-4.1_2.13:1.12.0",))
DELTA = TableFormat(
    "delta",
    "4.2.1",
    ("io.delta:delta-spark_4.2_2.13:4.4.0", "io.delta:delta-storage:4.4.0", "org.apache.spark:spark-avro_2.13:4.2.0"),
)
"""With Spark's own reader of Avro, whose jar is not part of PySpark either."""
FORMATS = {each.name: each for each in (ICEBERG, DELTA)}


class NotFetched(RuntimeError):
    """A package could not be fetched; the text ends with what pip or Maven said."""


def environment(wanted: TableFormat) -> dict[str, str]:
    """Return the variables for a process of the same Python that has the format's PySpark in place of the installed one.

    JARS in it names the jars, as spark.jars takes them.
    """
    packages = _fetched(f"pyspark-{wanted.pyspark}", lambda folder: _install(wanted.pyspark, folder))
    jars = [_fetched(jar.replace(":", "-"), lambda folder, jar=jar: _copy(jar, folder)) for jar in wanted.jars]
    found = ",".join(str(path) for folder in jars for path in sorted(folder.glob("*.jar")))
    return {**os.environ, "PYTHONPATH": str(packages), "JARS": found, "TABLE_FORMAT": wanted.name}


def _fetched(name: str, fetch: Callable[[Path], None]) -> Path:
    cache = os.environ.get("STREAMKIT_TEST_CACHE") or Path.home() / ".cache" / "streamkit-tests"
    folder = Path(cache) / name
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        # Under another name first: a fetch that breaks off, or two sessions at once, leave no half of one.
        with tempfile.TemporaryDirectory(dir=folder.parent) as partial:
            made = Path(partial) / "made"
            fetch(made)
            try:
                made.rename(folder)
            except OSError:
                if not folder.exists():
                    raise
    return folder


def _install(version: str, folder: Path) -> None:
    options = ["--quiet", "--disable-pip-version-check", "--no-compile", "--target", str(folder)]
    _run([sys.executable, "-m", "pip", "install", *options, f"pyspark=={version}"])


def _copy(jar: str, folder: Path) -> None:
    require("mvn")
    folder.mkdir()
    # Not beside a pom.xml, which Maven would read.
    _run(["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={jar}", f"-DoutputDirectory={folder}"], folder)


def _run(command: list[str], folder: Path | None = None) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode:
        raise NotFetched(f"{' '.join(command)}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
