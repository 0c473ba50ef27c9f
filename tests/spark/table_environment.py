"""What a process of tests needs beside the environment, fetched once: another PySpark, jars of table formats, a server of S3."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path

from streamkit.runtime.spark.spark_session import hadoop_version
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


MOTO = "5.2.5"
CONNECT = {"grpcio-status": "1.85.3", "zstandard": "0.25.0"}
"""Without what they need: `dev` has grpcio and protobuf."""
_S3A = """\
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <parent>
    <groupId>org.apache.hadoop</groupId><artifactId>hadoop-project</artifactId><version>{version}</version>
  </parent>
  <artifactId>jars</artifactId>
  <packaging>pom</packaging>
  <dependencies>
    <dependency>
      <groupId>org.apache.hadoop</groupId><artifactId>hadoop-aws</artifactId>
      <exclusions>
        <exclusion><groupId>software.amazon.awssdk</groupId><artifactId>bundle</artifactId></exclusion>
      </exclusions>
    </dependency>
    {modules}
  </dependencies>
</project>
"""
_MODULE = """\
<dependency>
      <groupId>software.amazon.awssdk</groupId><artifactId>{name}</artifactId>
      <version>${{aws-java-sdk-v2.version}}</version>
    </dependency>"""
_MODULES = ("s3", "s3-transfer-manager", "sts")
"""What S3A uses of the SDK; the bundle has all services of AWS."""


QUICK = {"JAVA_TOOL_OPTIONS": "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"}
"""For processes of Java that end before better code pays off."""


class NotFetched(RuntimeError):
    """A package could not be fetched; the text ends with what pip or Maven said."""


def environment(wanted: TableFormat) -> dict[str, str]:
    """Return the variables for a process of the same Python that has the format's PySpark in place of the installed one.

    JARS in it names the jars, as spark.jars takes them.
    """
    packages = _fetched(f"pyspark-{wanted.pyspark}", lambda folder: _install(folder, f"pyspark=={wanted.pyspark}"))
    jars = [_fetched(jar.replace(":", "-"), lambda folder, jar=jar: _copy(jar, folder)) for jar in wanted.jars]
    found = ",".join(str(path) for folder in jars for path in sorted(folder.glob("*.jar")))
    return {**os.environ, "PYTHONPATH": str(packages), "JARS": found, "TABLE_FORMAT": wanted.name}


def s3_environment() -> dict[str, str]:
    """Return the variables for a process of the same Python that has moto, a server of S3.

    JARS in it names the jars of s3a:// for the installed PySpark.
    """
    moto = _fetched(f"moto-{MOTO}", lambda folder: _install(folder, f"moto[s3]=={MOTO}", "flask", "flask-cors"))
    jars = _fetched(f"hadoop-aws-{hadoop_version()}", _copy_s3a)
    found = ",".join(map(str, sorted(jars.glob("*.jar"))))
    return {**os.environ, "PYTHONPATH": str(moto), "JARS": found}


def connect_environment() -> dict[str, str]:
    """Return the variables for a process of the same Python that has what a client of Spark Connect needs beside the extra `dev`."""
    wanted = [f"{name}=={version}" for name, version in CONNECT.items()]
    packages = _fetched("-".join(("connect", *CONNECT.values())), lambda folder: _install(folder, "--no-deps", *wanted))
    return {**os.environ, "PYTHONPATH": str(packages)}


def run_cases(name: str, variables: Mapping[str, str]) -> None:
    """Run the tests of a module of this folder in a process of their own, with these variables."""
    root = Path(__file__).parents[2]
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:xdist", "-p", "no:cacheprovider", "-W", "ignore"]
    cases = root / "tests" / "spark" / name
    done = subprocess.run(
        [*command, str(cases)], env={**variables, **QUICK}, cwd=root, capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stdout[-6000:] + done.stderr[-3000:]


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


def _install(folder: Path, *packages: str) -> None:
    options = ["--quiet", "--disable-pip-version-check", "--no-compile", "--target", str(folder)]
    _run([sys.executable, "-m", "pip", "install", *options, *packages])


def _copy(jar: str, folder: Path) -> None:
    require("mvn")
    folder.mkdir()
    # Not beside a pom.xml, which Maven would read.
    _run(["mvn", "-q", "-B", "dependency:copy", f"-Dartifact={jar}", f"-DoutputDirectory={folder}"], folder)


def _copy_s3a(folder: Path) -> None:
    require("mvn")
    folder.mkdir()
    modules = "".join(_MODULE.format(name=name) for name in _MODULES)
    (folder / "pom.xml").write_text(_S3A.format(version=hadoop_version(), modules=modules), encoding="utf-8")
    goal = ["dependency:copy-dependencies", "-DincludeScope=runtime", f"-DoutputDirectory={folder}"]
    _run(["mvn", "-q", "-B", *goal], folder)


def _run(command: list[str], folder: Path | None = None) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=folder)
    if done.returncode:
        raise NotFetched(f"{' '.join(command)}:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
