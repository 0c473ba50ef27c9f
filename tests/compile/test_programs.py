"""The programs: readable, the same in every process, and right for long, wide and mixed topologies."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from streamkit import serdes
from streamkit.compile.compiler import compile_sub_topology
from streamkit.plan import load
from streamkit.plan.model import Plan
from tests.cli.support import streamkit
from tests.compile.support import FIRST_LINE, driver_of, record
from tests.conformance_cases import FOLDER, every_case, plan_of


def sources(plan: Plan) -> list[str]:
    return [compile_sub_topology(plan, sub).source for sub in plan.sub_topologies]


def test_a_program_names_the_step_of_each_part(tmp_path: Path) -> None:
    driver_of(tmp_path, "p:\n  stream: in\n  steps:\n    - filter: value.a > 1\n    - map_values: value.b\n  to: out")
    [source] = sources(load(tmp_path / "topology.yaml"))
    assert f"# KSTREAM-FILTER-0000000001  (p: filter, line {FIRST_LINE + 3})" in source
    assert f"# KSTREAM-MAPVALUES-0000000002  (p: map_values, line {FIRST_LINE + 4})" in source
    assert f"# KSTREAM-SINK-0000000003  (p: to, line {FIRST_LINE + 5})" in source


@every_case
def test_programs_are_neither_wide_nor_deep(case: Path) -> None:
    for source in sources(plan_of(case)):
        lines = source.splitlines()
        assert [line for line in lines if (len(line) - len(line.lstrip())) // 4 > 40] == []
        assert [line for line in lines if " object at 0x" in line] == []
        compile(source, case.name, "exec")


def test_the_command_shows_the_program(tmp_path: Path) -> None:
    driver_of(tmp_path, "p: {stream: in, steps: [{filter: value.a > 1}], to: out}")
    done = streamkit("describe", "topology.yaml", "--format", "python", cwd=tmp_path)
    assert (done.code, done.err) == (0, "")
    assert "def bind(rt):" in done.out
    assert "KSTREAM-FILTER-0000000001" in done.out


def test_every_process_writes_the_same_programs() -> None:
    code = (
        "from tests.compile.test_programs import sources\nfrom tests.conformance_cases import CASES, plan_of\n"
        "for case in CASES: print(case.name, *sources(plan_of(case)), sep='\\n')"
    )
    found = {
        subprocess.run(
            [sys.executable, "-c", code],
            capture_output=True,
            check=True,
            cwd=FOLDER.parents[1],
            env={**os.environ, "PYTHONHASHSEED": seed},
        ).stdout
        for seed in ("0", "1", "77")
    }
    assert len(found) == 1


@pytest.mark.parametrize("count", [1, 29, 31, 100, 300])
def test_long_chains_run_every_step(tmp_path: Path, count: int) -> None:
    steps = ", ".join(["{map_values: value + 1}", "{filter: value > 0}"] * count)
    driver = driver_of(tmp_path, f"p: {{stream: in, steps: [{steps}], to: out}}")
    assert [each["value"] for each in driver.pipe(record(0))] == [count]


def test_each_of_sixty_branches_takes_its_records(tmp_path: Path) -> None:
    when = ", ".join(
        f"b{each}: {{if: value == {each}, steps: [{{map_values: value * 10}}], to: out}}" for each in range(60)
    )
    body = (
        f"p: {{stream: in, steps: [{{branch: {{when: {{{when}}}, default: rest}}}}]}}\nq: {{from: p.rest, to: other}}"
    )
    driver = driver_of(tmp_path, body)
    assert [(each["topic"], each["value"]) for each in driver.pipe(record(59))] == [("out", 590)]
    assert [(each["topic"], each["value"]) for each in driver.pipe(record(60))] == [("other", 60)]


def test_merges_of_many_streams(tmp_path: Path) -> None:
    names = [f"m{each}" for each in range(40)]
    parts = "\n".join(f"{name}: {{from: p, steps: [{{map_values: 'value + {at}'}}]}}" for at, name in enumerate(names))
    body = f"p: {{stream: in}}\n{parts}\nall: {{from: p, steps: [{{merge: [{', '.join(names)}]}}], to: out}}"
    driver = driver_of(tmp_path, body)
    assert sorted(each["value"] for each in driver.pipe(record(100))) == [100, *range(100, 140)]


def test_topics_of_one_source_are_read_with_their_own_serdes(tmp_path: Path) -> None:
    driver = driver_of(tmp_path, "p: {stream: [in, n, text], steps: [{map_values: str(value)}], to: out}")
    assert [each["value"] for each in driver.pipe(record({"a": 1}))] == ["{'a': 1}"]
    assert [each["value"] for each in driver.pipe(record(7, topic="n"))] == ["7"]
    assert [each["value"] for each in driver.pipe(record("x", topic="text"))] == ["x"]


def test_bytes_are_converted_if_serdes_differ(tmp_path: Path) -> None:
    driver = driver_of(tmp_path, "p: {stream: [in, text], to: out}")
    assert [each["value"] for each in driver.pipe(record({"a": 1}))] == [{"a": 1}]
    assert [each["value"] for each in driver.pipe(record("x", topic="text"))] == ["x"]


def test_patterns_read_what_matches_and_tell_the_topic(tmp_path: Path) -> None:
    driver = driver_of(
        tmp_path,
        "p: {stream: {pattern: 'logs-[0-9]+'}, steps: [{map_values: '[topic, partition, offset, value]'}], to: out}",
    )
    assert [each["value"] for each in driver.pipe(record(1, topic="logs-1"))] == [["logs-1", 0, 0, 1]]
    assert [each["value"] for each in driver.pipe(record(2, topic="logs-22"))] == [["logs-22", 0, 1, 2]]
    assert [each["value"] for each in driver.pipe(record(3, topic="logs-1"))] == [["logs-1", 0, 2, 3]]


@pytest.mark.parametrize("size", [0, 10_000_000])
def test_cached_aggregates_have_serdes_of_every_form(tmp_path: Path, size: int) -> None:
    driver = driver_of(
        tmp_path,
        """
        p:
          stream: in
          steps:
            - group_by_key
            - aggregate: {initial: '{"n": 0}', add: '{"n": aggregate.n + value}', store: s,
                          value_serde: {csv: {fields: {n: integer}}}}
            - to_stream
          to: out
        """,
        f"statestore.cache.max.bytes: {size}",
    )
    assert [each["value"] for each in driver.pipe(record(1)) + driver.pipe(record(2))] == [{"n": 1}, {"n": 3}]


TEXTS = [
    b"",
    b"plain",
    "zwölf 猫".encode(),
    b"\xff\xfe",
    b"\xc3",
    b"a\xe2\x82",
    b"\xed\xa0\x80",
    b"\xf0\x9f\x98",
    b"\x00",
]


@pytest.mark.parametrize("data", TEXTS)
@pytest.mark.parametrize(
    "steps",
    [
        "[]",
        "[{filter: 'True'}]",
        "[{filter: 'value is not None'}]",
        "[{map_values: {value: value, value_serde: string}}]",
    ],
)
def test_text_passes_through_as_if_it_were_decoded(tmp_path: Path, data: bytes, steps: str) -> None:
    driver = driver_of(
        tmp_path, f"p: {{stream: text, steps: {steps}, to: text2}}".replace("text2", "lost2"), head=TEXT_HEAD
    )
    rows: list[tuple] = []
    task = driver._task
    assert task is not None
    settle = driver._settle
    driver._settle = lambda: (rows.extend(task.output), settle())  # type: ignore[method-assign,assignment]
    driver._pipe(("text", data, data, 5, None, None))
    again = serdes.parse("string").decode(data).encode()
    assert [row[1:3] for row in rows] == [(again, again)]


TEXT_HEAD = """\
streamkit: 1
application: app
topics:
  text: {value: string}
  lost2: {value: string}
pipelines:
"""

JSONS = [(b'{"a": 1}', b'{"a":1}'), ('{"ä":"\\u00e4"}'.encode(), '{"ä":"ä"}'.encode()), (b" 1 ", b"1"), (b"null", None)]


@pytest.mark.parametrize(("data", "expected"), JSONS)
@pytest.mark.parametrize("steps", ["[]", "[{filter: 'True'}]", "[{map_values: value}]"])
def test_json_passes_through_as_if_it_were_decoded(
    tmp_path: Path, data: bytes, expected: bytes | None, steps: str
) -> None:
    driver = driver_of(tmp_path, f"p: {{stream: in, steps: {steps}, to: out}}")
    rows: list[tuple] = []
    task = driver._task
    assert task is not None
    settle = driver._settle
    driver._settle = lambda: (rows.extend(task.output), settle())  # type: ignore[method-assign,assignment]
    driver._pipe(("in", b"k", data, 5, None, None))
    assert [row[2] for row in rows] == [expected]
