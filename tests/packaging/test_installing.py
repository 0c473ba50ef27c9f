"""What is published installs and works: the source distribution and the wheel built from it, in empty environments."""

from __future__ import annotations

import shutil
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


def environment(folder: Path, pip: Path, *install: str | Path) -> Path:
    """A new virtual environment with what is to be installed, by a pip outside of it; return its folder of commands."""
    run(sys.executable, "-m", "venv", "--without-pip", folder)
    command = (sys.executable, pip, "--python", folder / "bin" / "python", "--disable-pip-version-check")
    run(*command, "install", "-q", "--no-compile", *install)
    return folder / "bin"


@pytest.fixture(scope="module")
def newest_pip(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The newest pip, which reads the long lists of an index in a third of the time that one of 2023 takes."""
    folder = tmp_path_factory.mktemp("pip")
    pip = (sys.executable, "-m", "pip", "--disable-pip-version-check")
    run(*pip, "install", "-q", "--target", folder, "--only-binary=:all:", "pip")
    return folder / "pip"


def assert_works(commands: Path, folder: Path) -> None:
    folder.mkdir()
    assert run(commands / "streamkit", "--version").startswith("streamkit ")
    run(commands / "streamkit", "new", "words", cwd=folder)
    topology = folder / "words" / "topology.yaml"
    assert "all passed" in run(commands / "streamkit", "test", topology.parent)
    settings = ("--set", "bootstrap.servers=embedded", "--set", f"state.dir={folder / 'state'}")
    run(commands / "streamkit", "run", topology, "--until-idle", *settings)


def test_the_wheel_works_in_an_empty_environment_and_the_source_distribution_too(
    published: Path, newest_pip: Path, tmp_path: Path
):
    (wheel,) = published.glob("*.whl")
    (source,) = published.glob("*.tar.gz")
    commands = environment(tmp_path / "wheel", newest_pip, wheel)
    assert_works(commands, tmp_path / "by-wheel")
    # The same dependencies again would only cost time.
    other = environment(tmp_path / "source", newest_pip, "--no-deps", source)
    (packages,) = (tmp_path / "wheel").glob("lib/python*/site-packages")
    (own,) = (tmp_path / "source").glob("lib/python*/site-packages")
    (own / "dependencies.pth").write_text(f"{packages}\n", encoding="utf-8")
    assert_works(other, tmp_path / "by-source")


def test_every_module_and_data_file_is_in_the_wheel(published: Path):
    (wheel,) = published.glob("*.whl")
    with zipfile.ZipFile(wheel) as archive:
        names = set(archive.namelist())
    expected = {
        path.relative_to(ROOT).as_posix().replace("cli/", "streamkit_cli/", 1 if top == "cli" else 0)
        for top in ("streamkit", "cli")
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
def test_wheels_are_there_for_every_python(published: Path, newest_pip: Path, python: str, tmp_path: Path):
    """Markers are evaluated here: pip takes those of the Python that it runs on."""
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
    assert any(text.startswith("plyvel" if python < "3.13" else "rocksdict") for text in needed), needed
    run(
        *(sys.executable, newest_pip, "install", "--dry-run", "--ignore-installed", "--only-binary=:all:", "-q"),
        *("--disable-pip-version-check", "--python-version", python, "--target", tmp_path, *sorted(needed)),
    )
