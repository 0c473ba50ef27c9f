"""Jars and compiled classes of the Java programs in tests/: fetched and compiled once, then taken from a cache.

>>> command("fuzz/java", "Oracle")  # doctest: +SKIP
['java', …, '-cp', '…', 'Oracle']
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import tempfile
from pathlib import Path

from tests.requirements import require

_TESTS = Path(__file__).parent.parent
_POM = Path(__file__).with_name("pom.xml")
ANCHOR = _POM.read_text(encoding="utf-8").partition("<kafka.version>")[2].partition("<")[0]
"""The version of Kafka that streamkit follows."""
VERSION = "KAFKA_TEST_VERSION"
"""The environment's variable with another version of Kafka to run Java programs on, such as 4.1.0.

Its name does not begin with STREAMKIT_, because the command warns of settings that it does not know.
"""


class BuildFailed(RuntimeError):
    """Maven or the compiler failed; the text is what it said."""


def runs_older() -> bool:
    """Return whether the environment names another version than the anchor."""
    return os.environ.get(VERSION, ANCHOR) != ANCHOR


def command(sources: str, main: str, *options: str, kafka: str = "") -> list[str]:
    """The command that runs a main class of a folder below tests/; it is compiled when its sources changed.

    A folder with a pom.xml of its own has other jars. kafka: the version to run on; by default what the environment
    names, else that of the pom. Programs are compiled for the pom's version in any case. Raises MissingTool, BuildFailed.
    """
    require("java", "javac")
    folder = _TESTS / sources
    pom = folder / "pom.xml" if (folder / "pom.xml").exists() else _POM
    jars = _made(_jars(pom), lambda target: _fetch(pom, target))
    kafka = kafka or os.environ.get(VERSION, "")
    classes = _made(cache() / f"classes-{_digest(folder)}", lambda target: _compile(folder, jars, target))
    if kafka not in ("", ANCHOR) and "${kafka.version}" in pom.read_text(encoding="utf-8"):
        jars = _made(_jars(pom, kafka), lambda target: _fetch(pom, target, f"-Dkafka.version={kafka}"))
    return ["java", *options, "-cp", f"{classes}{os.pathsep}{jars}/*", main]


def cache() -> Path:
    """Return the folder of what is built or fetched once for the tests."""
    return Path(os.environ.get("STREAMKIT_TEST_CACHE") or Path.home() / ".cache" / "streamkit-tests")


def _jars(pom: Path = _POM, kafka: str = "") -> Path:
    return cache() / f"programs-{_digest(pom)}{kafka and '-'}{kafka}"


def _digest(path: Path) -> str:
    digest = hashlib.sha256(_POM.read_bytes())
    for file in sorted(path.glob("*.java")) if path.is_dir() else [path]:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


def _made(folder: Path, make) -> Path:
    """The folder, made first where it is missing: under another name, so that one broken off is not taken for whole."""
    if not folder.exists():
        folder.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(dir=folder.parent) as partial:
            target = Path(partial) / "made"
            target.mkdir()
            make(target)
            try:
                target.rename(folder)
            except OSError:
                if not folder.exists():
                    raise
    return folder


def _fetch(pom: Path, target: Path, *options: str) -> None:
    require("mvn")
    _run(["mvn", "-q", "-f", str(pom), "dependency:copy-dependencies", f"-DoutputDirectory={target}", *options])


def _compile(folder: Path, jars: Path, target: Path) -> None:
    files = [str(file) for file in sorted(folder.glob("*.java"))]
    _run(["javac", "--release", "17", "-nowarn", "-cp", f"{jars}/*", "-d", str(target), *files])


def _run(arguments: list[str]) -> None:
    done = subprocess.run(arguments, capture_output=True, text=True, check=False)
    if done.returncode:
        raise BuildFailed(f"{arguments[0]} failed:\n{done.stdout[-3000:]}{done.stderr[-3000:]}")
