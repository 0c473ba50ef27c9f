"""`validate` runs no code of a file; `validate --imports` and `run` import all of it, and name what is missing or does not fit."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.cli.support import streamkit

CODE = """\
from abc import ABC, abstractmethod
from pathlib import Path
Path(__file__).with_name("ran").touch()

class Serde:
    def encode(self, value): return b""
    def decode(self, data): return 1

class Mute:
    pass

class Idle:
    def init(self, context): pass

class Unfinished(ABC):
    @abstractmethod
    def process(self, record): ...

async def stream(value): yield value
def one(value): return value
def two(key, value): return value
def record(record, context): yield record
limit = 5
"""
FILE = """\
streamkit: 1
application: imports
config: {{bootstrap.servers: embedded, state.dir: {state}}}
functions:
  f: {{call: "code_of_test:one"}}
topics:
  in: {{value: {{call: "code_of_test:Serde"}}}}
  out: {{value: json}}
  keyed: {{key: {{windowed: {{call: "code_of_test:Serde"}}, size: 1m}}, value: json}}
pipelines:
  p:
    stream: in
    steps:
      - process: {{call: "code_of_test:record"}}
      - map_values: {{value: {{call: "code_of_test:two"}}}}
      - map_values: f(value)
    to: out
"""


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """A valid file whose module leaves a file when it is imported."""
    (tmp_path / "code_of_test.py").write_text(CODE)
    path = tmp_path / "topology.yaml"
    path.write_text(FILE.format(state=tmp_path / "state"))
    return path


def test_a_check_runs_no_code_unless_it_is_asked_to(file: Path) -> None:
    ran = file.with_name("ran")
    for command in (["validate"], ["validate", "--strict"], ["describe"], ["config"]):
        streamkit(*command, file)
        assert not ran.exists(), command
    done = streamkit("validate", file, "--imports")
    assert (done.code, done.out, done.err) == (0, "", "")
    assert ran.exists()


MISTAKES = [
    ('f: {call: "code_of_test:one"}', 'f: {call: "code_of_test:two"}', "16:21", "f(key, value) needs 'value'"),
    ('f: {call: "code_of_test:one"}', 'f: {call: "shutil:copyfile"}', "16:21", "f(src, dst, follow_symlinks) needs 'dst'"),
    ("f(value)", "f(value, 1)", "16:21", "f(value) takes 1 argument, 2 given"),
    ("f(value)", "f(valu=1)", "16:21", "f(value) has no argument 'valu'; did you mean 'value'?"),
    ("f(value)", "f(value, value=1)", "16:21", "f(value) gets 'value' twice, by position and by name"),
    ('f: {call: "code_of_test:one"}', 'f: {call: "no_module:one"}', "5:13", "there is no module 'no_module' beside the file"),
    ('in: {value: {call: "code_of_test:Serde"}}', 'in: {value: {call: "code_of_test:Serd"}}', "7:15", "no public 'Serd'; did you mean 'Serde'?"),
    ('in: {value: {call: "code_of_test:Serde"}}', 'in: {value: {call: "code_of_test:Mute"}}', "7:15", "needs the methods encode and decode"),
    ('{windowed: {call: "code_of_test:Serde"}', '{windowed: {call: "gone:Serde"}', "9:16", "there is no module 'gone'"),
    ('{call: "code_of_test:record"}', '{call: "collections:OrderedDict"}', "14:25", "class OrderedDict has no method process(self, record)"),
    ('{call: "code_of_test:record"}', '{call: "code_of_test:Idle"}', "14:25", "class Idle has no method process(self, record)"),
    ('- process: {call: "code_of_test:record"}', '- enrich: {call: "code_of_test:Idle"}', "14:24", "class Idle has no method __call__(self, argument)"),
    ('- process: {call: "code_of_test:record"}', '- enrich: {call: "code_of_test:stream"}', "14:24", "code_of_test:stream is an async generator; expected a result"),
    ('{call: "code_of_test:record"}', '{call: "code_of_test:Unfinished"}', "14:25", "class Unfinished has no method process"),
    ('{value: {call: "code_of_test:two"}}', '{value: {call: "math:pi"}}', "15:36", "math:pi is a value of type float and can't be called"),
]  # fmt: skip


@pytest.mark.parametrize(("good", "bad", "place", "message"), MISTAKES, ids=lambda each: each[:30])
def test_what_is_missing_or_does_not_fit(good: str, bad: str, place: str, message: str, file: Path) -> None:
    text = file.read_text()
    assert good in text
    file.write_text(text.replace(good, bad))
    done = streamkit("validate", file, "--imports")
    (line,) = done.out.splitlines()
    assert (done.code, line.startswith(f"{file}:{place}: "), message in line) == (1, True, True), line


def test_what_a_module_prints_is_no_part_of_the_report(file: Path) -> None:
    module = file.with_name("code_of_test.py")
    module.write_text("print('imported')\n" + module.read_text())
    done = streamkit("validate", file, "--imports", "--format", "json")
    assert (done.code, json.loads(done.out), "imported" in done.err) == (0, [], True)


def test_a_module_that_ends_the_process_can_not_be_imported(file: Path) -> None:
    module = file.with_name("code_of_test.py")
    module.write_text(module.read_text() + "raise SystemExit(3)\n")
    done = streamkit("validate", file, "--imports")
    assert done.code == 1
    assert "module 'code_of_test' can't be imported: SystemExit: 3" in done.out


def test_all_problems_come_at_once_those_of_the_file_too(file: Path) -> None:
    text = file.read_text().replace("code_of_test:Serde", "gone:Serde")
    file.write_text(text.replace("- map_values: f(value)", "- to_stream"))
    done = streamkit("validate", file, "--imports")
    assert done.code == 1
    assert done.out.count("there is no module 'gone'") == 2
    assert f"{file}:16:9: to_stream: " in done.out


def test_run_checks_before_anything_starts(file: Path) -> None:
    file.write_text(file.read_text().replace("code_of_test:record", "code_of_test:Idle"))
    done = streamkit("run", file, "--until-idle")
    assert done.code == 1
    assert (
        done.err.splitlines()[-1]
        == f"{file}:14:25: 'call' of 'process': class Idle has no method process(self, record)"
    )
    assert not (file.parent / "state").exists()
