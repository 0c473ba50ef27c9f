"""The code writer: blocks, what follows them, and the lines of programs in tracebacks."""

from __future__ import annotations

import gc
import linecache
import pickle
import re
import traceback
from pathlib import Path
from typing import Any

import pytest

from streamkit.code import any_of, literal, symbol
from streamkit.compile.compiler import compile_sub_topology
from streamkit.compile.program import Listing
from streamkit.errors import ProcessingError
from streamkit.operators.codegen.code_writer import StatementWriter
from streamkit.plan import load
from streamkit.runtime.driver import Driver
from tests.cli.support import streamkit
from tests.compile.support import HEAD, driver_of, record

A, B = symbol("a"), symbol("b")


def written(gen: StatementWriter) -> str:
    return "\n".join(line.removeprefix("    ") for line in gen.body_lines)


def test_blocks_close_what_was_opened_in_them() -> None:
    gen = StatementWriter()
    with gen.when(any_of(A, B)):
        gen.only_where(A)
        gen.only_where(B)
        gen.assign(A, literal(1))
    with gen.otherwise(A), gen.each((A, B), any_of(A, B)):
        pass
    with gen.otherwise():
        gen.do(any_of(A, B))
    assert written(gen) == (
        "if a or b:\n    if a:\n        if b:\n            a = 1\n"
        "elif a:\n    for a, b in a or b:\n        pass\nelse:\n    a or b"
    )


def test_assignments_keep_needed_parentheses_only() -> None:
    gen = StatementWriter()
    either = any_of(A, B)
    gen.assign(A, either)
    gen.assign_each((A, B), (either, A))
    gen.assign_all((A, B), either)
    gen.unpack((A, B), either)
    gen.add_to(A, either)
    gen.returns(either)
    assert gen.body_lines == [
        "    a = a or b",
        "    a, b = a or b, a",
        "    a = b = a or b",
        "    a, b = a or b",
        "    a += a or b",
        "    return a or b",
    ]


def test_an_attempt_at_nothing_leaves_no_line() -> None:
    gen = StatementWriter()
    with gen.attempt() as attempt:
        pass
    assert attempt.empty
    assert gen.body_lines == []


def test_what_is_rehearsed_is_not_written() -> None:
    gen = StatementWriter()
    with gen.rehearsed():
        gen.only_where(A)
        gen.do(B)
    gen.do(A)
    assert gen.body_lines == ["    a"]


# -- Lines in tracebacks --

BODY = "p: {stream: in, steps: [{map_values: value + 1}, {map_values: {value: {call: 'mine:halve'}}}], to: out}"
MINE = "def halve(key, value):\n    return inner(value)\n\n\ndef inner(value):\n    return 1 / value\n"


def listed(name: str) -> set[str]:
    gc.collect()
    Listing("next", "")
    return {file for file in linecache.cache if file.startswith(f"<streamkit {name} ")}


def head(name: str) -> str:
    # A name that no other test has, some of whose programs may still be alive.
    return HEAD.replace("application: app", f"application: {name}")


def failing(folder: Path, name: str) -> ProcessingError:
    (folder / "mine.py").write_text(MINE, encoding="utf-8")
    with pytest.raises(ProcessingError) as caught:
        driver_of(folder, BODY, head=head(name)).pipe(record(-1))
    return caught.value


def test_a_traceback_has_the_generated_line(tmp_path: Path) -> None:
    error = failing(tmp_path, "shown")
    text = "".join(traceback.format_exception(error.__cause__))
    assert 'File "<streamkit shown sub-topology 0>", line ' in text
    assert re.search(r", in run\n    v_\d+ = _x_c_call_", text)
    assert "return inner(value)" in text
    assert "return 1 / value" in text
    linecache.checkcache()
    assert "".join(traceback.format_exception(error.__cause__)) == text


def test_lines_go_with_their_program(tmp_path: Path) -> None:
    error = failing(tmp_path, "passing")
    assert listed("passing") == {"<streamkit passing sub-topology 0>"}
    del error
    assert listed("passing") == set()


def test_lines_that_go_amid_a_look_at_all_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    class Lines(dict[str, Any]):
        """Loses a program once its names are listed, as in a garbage collection."""

        def keys(self) -> Any:
            names = list(super().keys())
            programs.clear()
            return names

    monkeypatch.setattr(linecache, "cache", Lines(linecache.cache))
    programs = [Listing("passing sub-topology 8", "a = 1\n")]
    linecache.checkcache()
    programs.clear()  # newer versions of Python copy all lines first
    assert listed("passing") == set()


def test_programs_of_one_name_have_their_own_lines() -> None:
    one, other = Listing("twin sub-topology 9", "a = 1\n"), Listing("twin sub-topology 9", "b = 2\n")
    assert linecache.getline(one.file, 1) == "a = 1\n"
    assert linecache.getline(other.file, 1) == "b = 2\n"
    del one
    assert listed("twin") == {other.file}
    del other
    assert listed("twin") == set()


def test_each_process_lists_what_it_binds(tmp_path: Path) -> None:
    # As on Spark's workers: the plan is shipped, and compiled where it runs.
    driver_of(tmp_path, "p: {stream: in, to: out}", head=head("shipped")).close()
    plan = pickle.loads(pickle.dumps(load(tmp_path / "topology.yaml")))
    program = compile_sub_topology(plan, plan.sub_topologies[0])
    assert program.name == "shipped sub-topology 0"
    assert listed("shipped") == set()
    with Driver(plan) as driver:
        assert listed("shipped") == {"<streamkit shipped sub-topology 0>"}
        assert len(driver.pipe(record(1))) == 1


def test_verbose_shows_the_generated_line_of_a_failing_step(tmp_path: Path) -> None:
    (tmp_path / "mine.py").write_text(MINE, encoding="utf-8")
    driver_of(tmp_path, BODY).close()
    (tmp_path / "in.jsonl").write_text('{"topic": "in", "key": "k", "value": -1, "timestamp": 5}\n', encoding="utf-8")
    arguments = ("try", "topology.yaml", "--input", "in.jsonl")
    quiet = streamkit(*arguments, cwd=tmp_path)
    assert quiet.err.count("\n") == 1
    verbose = streamkit("--verbose", *arguments, cwd=tmp_path)
    assert verbose.code == quiet.code == 1
    assert verbose.err.endswith(quiet.err)
    assert 'File "<streamkit app sub-topology 0>"' in verbose.err
    assert re.search(r"    v_\d+ = _x_c_call_", verbose.err)
    assert "    return 1 / value" in verbose.err
