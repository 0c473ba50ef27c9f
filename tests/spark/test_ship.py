"""What a job sends to the workers of a cluster: streamkit, modules, and the data files beside them."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

from streamkit import distribution
from streamkit.errors import UsageError
from streamkit.plan import load
from streamkit.runtime.spark.submission.request import contents_of, ship, zip_package

PACKAGE = Path(distribution.__file__).parent
_IMPORT = """\
import sys
sys.path.insert(1, sys.argv[1])
import streamkit, streamkit.errors
from importlib.util import find_spec
print(streamkit.__file__, streamkit.errors.__file__, find_spec("streamkit._native") is not None, streamkit.Record.__name__)
"""


def imported(archive: Path) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-c", _IMPORT, archive], capture_output=True, text=True, check=True, cwd=archive.parent
    )
    return done.stdout.split()


def test_an_installed_streamkit_of_the_same_version_is_used(tmp_path: Path) -> None:
    archive = zip_package(PACKAGE, tmp_path / "streamkit.zip")
    has_extension = str(any(PACKAGE.glob("_native*.so")))
    first, *others = imported(archive)
    assert first == f"{archive}/streamkit/__init__.py"
    assert others == [f"{PACKAGE}/errors.py", has_extension, "Record"]


def test_one_of_another_version_is_not(tmp_path: Path) -> None:
    archive = zip_package(PACKAGE, tmp_path / "streamkit.zip", "0.0.1")
    _, errors, _, _ = imported(archive)
    assert errors == f"{archive}/streamkit/errors.py"


def test_modules_and_the_files_that_they_name(tmp_path: Path) -> None:
    package = tmp_path / "rates"
    package.mkdir()
    (package / "__init__.py").touch()
    (package / "eu.json").write_text("{}")
    (tmp_path / "steps.py").write_text("PLACES = open(Path(__file__).with_name('places.csv'))\n")
    for name in ("places.csv", "orders.jsonl", "topology.yaml", ".env"):
        (tmp_path / name).touch()
    assert list(contents_of(tmp_path)) == ["places.csv", "rates/__init__.py", "rates/eu.json", "steps.py"]


def test_files_that_there_are_not(tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text("streamkit: 1\napplication: a\ntopics: {a: {}, b: {}}\npipelines: {a: {stream: a, to: b}}\n")
    plan = load(path)
    (tmp_path / "a.csv").touch()
    (tmp_path / "other").mkdir()
    (tmp_path / "other/a.csv").touch()
    for files, words in (
        (["nowhere.csv"], "--files nowhere.csv: no such file"),
        ([str(tmp_path / "a.csv"), str(tmp_path / "other/a.csv")], "has the same name"),
    ):
        with pytest.raises(UsageError, match=words):
            ship(_Remote(), plan, files)  # type: ignore[arg-type]


class _Remote:
    """A session of a cluster that nothing reaches."""

    class sparkContext:
        master = "spark://127.0.0.1:1"
