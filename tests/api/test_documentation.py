"""docs/python.md is true: its files are written, its examples run, its test passes, and mypy --strict accepts its code."""

from __future__ import annotations

import doctest
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest

import streamkit
from streamkit import plugins
from streamkit.operators import STEPS
from tests.docs.pages import Block, blocks

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "python.md"
PAGES = (PAGE, PAGE.with_name("from-quix-and-faust.md"))


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder with the files of the page."""
    for block in on_page():
        if "file" in block.options:
            (tmp_path / block.options["file"]).write_text(block.text, encoding="utf-8")
    monkeypatch.chdir(tmp_path)
    return tmp_path


@pytest.fixture
def installed(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """The package of the page, installed: its entry points and its module."""
    project = tomllib.loads((folder / "pyproject.toml").read_text(encoding="utf-8"))["project"]
    lines = []
    for group, points in project["entry-points"].items():
        lines += [f"[{group}]", *(f"{name} = {value}" for name, value in points.items())]
    metadata = folder / f"{project['name'].replace('-', '_')}-{project['version']}.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text(f"Name: {project['name']}\nVersion: {project['version']}\n", encoding="utf-8")
    (metadata / "entry_points.txt").write_text("\n".join(lines), encoding="utf-8")
    monkeypatch.syspath_prepend(folder)
    _forget_plugins()
    yield
    _forget_plugins()


def _forget_plugins() -> None:
    plugins.load.cache_clear()
    plugins.references.cache_clear()
    STEPS._added = None


def on_page(page: Path = PAGE) -> list[Block]:
    return list(blocks(page, f"docs/{page.name}"))


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_the_examples_do_what_the_page_shows(folder: Path, installed: None, page: Path):
    found = on_page(page)
    text = "\n".join(block.text for block in found if block.language == "python" and "file" not in block.options)
    test = doctest.DocTestParser().get_doctest(text, {}, f"docs/{page.name}", str(page), 0)
    assert len(test.examples) > 10
    shown: list[str] = []
    runner = doctest.DocTestRunner(optionflags=doctest.ELLIPSIS)
    runner.run(test, out=shown.append)
    assert not shown, "".join(shown)


def test_the_pytest_plugin_runs_tests_of_both_kinds(folder: Path):
    (folder / "visits.test.yaml").write_text(
        "tests:\n"
        "  once:\n"
        "    given: [{topic: visits, value: {id: '1', page: /a}, timestamp: 5}]\n"
        "    expect: {counts: [{key: /a, value: 1}]}\n"
        "  wrong:\n"
        "    given: [{topic: visits, value: {id: '1', page: /a}, timestamp: 5}]\n"
        "    expect: {counts: [{key: /a, value: 2}]}\n",
        encoding="utf-8",
    )
    done = pytest_in(folder)
    assert done.returncode == 1
    assert "2 passed" in done.stdout
    assert "1 failed" in done.stdout
    assert "visits.test.yaml: wrong" in done.stdout
    assert "Traceback" not in done.stdout


def test_mistakes_in_a_test_file_are_shown_with_their_places(folder: Path):
    (folder / "visits.test.yaml").write_text("tests:\n  once: {givn: []}\n", encoding="utf-8")
    done = pytest_in(folder)
    assert "visits.test.yaml:2:10" in done.stdout
    assert done.returncode == 2


def pytest_in(folder: Path) -> subprocess.CompletedProcess[str]:
    environment = {name: value for name, value in os.environ.items() if not name.startswith("PYTEST")}
    command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "--rootdir", str(folder), str(folder)]
    return subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)


def test_types_are_strict_for_users(folder: Path):
    (folder / "service.py").write_text(
        "import streamkit\n"
        "from streamkit import Processor, Record, Serde\n"
        "from visits import Deduplicate\n\n"
        "processor: Processor = Deduplicate()\n\n\n"
        "class Reversed:\n"
        "    def encode(self, value: str) -> bytes:\n"
        "        return value[::-1].encode()\n\n"
        "    def decode(self, data: bytes) -> str:\n"
        "        return data.decode()[::-1]\n\n\n"
        "serde: Serde = Reversed()\n\n\n"
        "def count(path: str) -> list[Record]:\n"
        "    topology = streamkit.load(path)\n"
        "    if topology.problems:\n"
        "        raise streamkit.TopologyError(topology.problems)\n"
        "    with topology.driver() as driver:\n"
        "        driver.pipe('visits', {}, key='a')\n"
        "        return driver.read('counts')\n\n\n"
        "table = streamkit.Topology('built').stream('in').filter(lambda v: v > 1).group_by('value').count('counts')\n"
        "table.to_stream().to('out', value='long')\n"
        "table.window(tumbling='1h')\n"
        "streamkit.Topology('built').stream('in').sample('half')\n"
        "streamkit.Topology('built').stream('in').group_by('value').window(tumbling=[1])\n"
        "streamkit.Topology('built').stream('in').group_by()\n"
        "wrong: int = streamkit.load('x').describe()\n",
        encoding="utf-8",
    )
    options = ("--strict", "--follow-imports=silent", "--cache-dir", str(folder / "cache"))
    # As a package in site-packages is seen; an editable installation is not found by mypy.
    environment = {**os.environ, "MYPYPATH": str(ROOT)}
    command = [sys.executable, "-m", "mypy", *options, "."]
    done = subprocess.run(command, cwd=folder, capture_output=True, text=True, check=False, env=environment)
    errors = [line for line in done.stdout.splitlines() if ": error:" in line]
    # The last five lines are mistakes: the types of the package are seen, and those of the methods of steps.
    expected = [
        '"Table" has no attribute "window"',
        'Argument 1 to "sample" of "Stream" has incompatible type "str"; expected "float"',
        'Argument "tumbling" to "window" of "GroupedStream" has incompatible type "list[int]"',
        'Missing positional argument "key" in call to "group_by" of "Stream"',
        "Incompatible types in assignment",
    ]
    assert [
        line.partition(": error: ")[2][: len(each)] for line, each in zip(errors, expected, strict=True)
    ] == expected


def test_importing_imports_nothing_heavy():
    code = "import sys; before = set(sys.modules); import streamkit; print(sorted(set(sys.modules) - before))"
    found = subprocess.run([sys.executable, "-c", code], check=True, capture_output=True, text=True).stdout
    assert "streamkit" in found
    assert not re.search(r"'(streamkit\.|yaml|typer|orjson|dataclasses|asyncio|confluent)", found), found


def test_every_name_is_there_and_on_the_page():
    text = PAGE.read_text(encoding="utf-8")
    for name in streamkit.__all__:
        assert getattr(streamkit, name) is not None
        assert name in text or name in ("Position", "Problem"), name
    assert set(streamkit.__all__) <= set(dir(streamkit))
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        _ = streamkit.nothing  # type: ignore[attr-defined]


def test_a_notebook_shows_the_drawing_or_the_mistakes(folder: Path):
    shown = streamkit.load("visits.yaml")._repr_html_()
    assert shown.startswith("<svg ")
    assert "by-page" in shown
    wrong = streamkit.load("streamkit: 1\napplication: a\npipelines: {p: {stream: a, to: <b>}}\n")
    assert "&lt;text&gt;:3:" in wrong._repr_html_()
    assert "<b>" not in wrong._repr_html_()
    assert repr(wrong).startswith("<Topology with ")
