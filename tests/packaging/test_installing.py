"""What is published installs and works: the source distribution and the wheel built from it, in empty environments."""

from __future__ import annotations

import shutil
import subprocess
import sys
import sysconfig
import tarfile
import zipfile
from email.parser import Parser
from importlib.machinery import EXTENSION_SUFFIXES
from pathlib import Path

import pytest
from packaging.requirements import Requirement

from tests.packaging.environments import GENERATED, ROOT, run

PYTHONS = ("3.11", "3.12", "3.13", "3.14")
ONLY_AS_SOURCE = {"spark"}
"""Extras with a package that is published without wheels (pyspark)."""
NO_WHEEL_FROM = {"leveldb": "3.13"}
OWN = f"{sys.version_info.major}.{sys.version_info.minor}"
COMMANDS = Path(sys.executable).parent
UV = COMMANDS / "uv"
MOST_BYTES = 5_000_000
PACKAGES = {
    "streamkit": "streamkit",
    "cli/streamkit_cli": "streamkit_cli",
    "topologies": "streamkit_cli/examples",
    "schemas": "streamkit_cli/schemas",
}
"""Folders of the project by what they are called where a wheel is installed."""


HAS_COMPILER = shutil.which("cc") is not None and Path(sysconfig.get_path("include"), "Python.h").exists()


@pytest.fixture(scope="module")
def published(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the source distribution, and the wheel that was built from it."""
    folder = tmp_path_factory.mktemp("published")
    source = folder / "source"
    shutil.copytree(ROOT, source, ignore=shutil.ignore_patterns(*GENERATED))
    # The test that installs the source distribution builds in isolation, with nothing but what the project says it needs.
    run(sys.executable, "-m", "build", "--no-isolation", "--outdir", folder / "dist", source)
    return folder / "dist"


def environment(folder: Path, *install: str | Path, python: str | Path = sys.executable) -> Path:
    """A new virtual environment with what is to be installed; return its folder of commands."""
    run(UV, "venv", "--quiet", "--python", python, folder)
    run(UV, "pip", "install", "--quiet", "--python", folder / "bin" / "python", *install)
    return folder / "bin"


def interpreter(version: str) -> Path | None:
    """An interpreter of this version that starts, on the path or of pyenv; None where there is none."""
    found = [shutil.which(f"python{version}"), *Path.home().glob(f".pyenv/versions/{version}.*/bin/python")]
    for path in filter(None, found):
        done = subprocess.run([path, "-c", "import ensurepip"], capture_output=True, check=False)
        if done.returncode == 0:
            return Path(path)
    return None


def test_the_wheel_works_in_an_empty_environment(published: Path, tmp_path: Path):
    (wheel,) = published.glob("*.whl")
    commands = environment(tmp_path / "wheel", wheel)
    assert run(commands / "streamkit", "--version").startswith("streamkit ")
    run(commands / "streamkit", "new", "words", cwd=tmp_path)
    assert "all passed" in run(commands / "streamkit", "test", tmp_path / "words")


@pytest.mark.parametrize("version", [each for each in PYTHONS if each != OWN and interpreter(each)] or [OWN])
def test_the_source_distribution_works_for_another_python(
    published: Path, monkeypatch: pytest.MonkeyPatch, tmp_path: Path, version: str
):
    """Of those that this machine has; a test below asks which packages the others get."""
    # The extension needs no speed here, and its compilation would take most of the time.
    monkeypatch.setenv("CFLAGS", "-O0")
    (source,) = published.glob("*.tar.gz")
    python = interpreter(version)
    assert python is not None
    run(UV, "build", "--quiet", "--wheel", "--python", python, "--out-dir", tmp_path, source)
    (wheel,) = tmp_path.glob("*.whl")
    tag = f"cp{version.replace('.', '')}"
    assert wheel.name.split("-")[2:4] == [tag, tag]
    commands = environment(tmp_path / "wheel", wheel, python=python)
    assert "441 different words" in run(commands / "streamkit", "demo", cwd=tmp_path)
    assert f"Python     {version}." in run(commands / "streamkit", "doctor")


def test_uvx_shows_a_first_result(published: Path, tmp_path: Path):
    (wheel,) = published.glob("*.whl")
    shown = run(UV, "tool", "run", "--python", sys.executable, "--from", wheel, "streamkit", "demo", cwd=tmp_path)
    assert "441 different words, 2029 in all" in shown


def test_what_is_published_passes_the_checks_of_an_index(published: Path):
    files = sorted(published.iterdir())
    run(sys.executable, "-m", "twine", "check", "--strict", *files)
    (wheel,) = published.glob("*.whl")
    run(COMMANDS / "check-wheel-contents", "--config", ROOT / "pyproject.toml", wheel)
    # A picture or a data set that slips in is found here; the files have 1.4 and 2.8 MB.
    assert all(path.stat().st_size < MOST_BYTES for path in files)


def test_every_module_and_data_file_is_in_the_wheel(published: Path):
    (wheel,) = published.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    expected = {
        path.relative_to(ROOT).as_posix().replace(top, package, 1)
        for top, package in PACKAGES.items()
        for path in (ROOT / top).rglob("*")
        if path.is_file() and "__pycache__" not in path.parts
        if path.suffix != ".so" and path.parent != ROOT / "streamkit" / "native"
    }
    assert expected <= names
    others = {name for name in names - expected if ".dist-info/" not in name and ".data/data/share/" not in name}
    # The extension is built where there is a compiler.
    assert others == ({f"streamkit/_native{EXTENSION_SUFFIXES[0]}"} if HAS_COMPILER else set())


def test_the_wheel_installs_man_pages_and_completions(published: Path):
    (wheel,) = published.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        shared = {name.partition(".data/data/share/")[2] for name in archive.namelist()} - {""}
    pages = {f"man/man1/{path.name}" for path in (ROOT / "deploy" / "man").iterdir()}
    assert shared == pages | {
        "bash-completion/completions/streamkit",
        "zsh/site-functions/_streamkit",
        "fish/vendor_completions.d/streamkit.fish",
    }


def test_the_source_distribution_has_what_builds_and_tests_need(published: Path):
    (source,) = published.glob("*.tar.gz")
    with tarfile.open(source) as archive:
        names = {name.partition("/")[2] for name in archive.getnames()}
    for file in (
        "Makefile",
        "CHANGELOG.md",
        "README.md",
        ".ci/run",
        "tests/conftest.py",
        "docs/language/README.md",
        "streamkit/native/link.h",
    ):
        assert file in names
    assert {"topologies/word-count/topology.yaml", "schemas/topology.schema.json", "tests/java/pom.xml"} <= names
    assert not [name for name in names if name.endswith(".pyc")]


@pytest.mark.parametrize("python", PYTHONS)
def test_wheels_are_there_for_every_python(published: Path, tmp_path: Path, python: str):
    (wheel,) = published.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [name for name in archive.namelist() if name.endswith(".dist-info/METADATA")]
        metadata = Parser().parsestr(archive.read(name).decode())
    extras = set(metadata.get_all("Provides-Extra", ())) - {"dev"} - ONLY_AS_SOURCE
    extras -= {extra for extra, first in NO_WHEEL_FROM.items() if PYTHONS.index(python) >= PYTHONS.index(first)}
    needed = set()
    for text in metadata.get_all("Requires-Dist", ()):
        requirement = Requirement(text)
        marker, requirement.marker = requirement.marker, None
        contexts = [{"python_version": python, "extra": extra} for extra in ("", *extras)]
        if marker is None or any(marker.evaluate(context) for context in contexts):
            needed.add(str(requirement))
    assert any(text.startswith("rocksdict") for text in needed), needed
    wanted = tmp_path / "wanted.txt"
    wanted.write_text("\n".join(sorted(needed)), encoding="utf-8")
    run(UV, "pip", "compile", "--quiet", "--only-binary", ":all:", "--python-version", python, wanted)
