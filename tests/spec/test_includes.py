"""Sections of included files: merged, with the places of problems in the right file."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from streamkit import lint
from streamkit.errors import TopologyError, UsageError
from streamkit.plan import build, load
from streamkit.runtime.driver import run_case
from streamkit.runtime.spark.submission.request import contents_of, module_folders
from streamkit.spec import load as load_model

MAIN = """streamkit: 1
application: app
include: %s
topics: {out: {value: json}}
pipelines:
  p: {stream: orders, steps: [map_values: "more(twice(value))"], to: out}
"""
COMMON = """config: {commit.interval.ms: 50}
topics:
  orders: {value: long}
functions:
  twice: {params: [x], expr: x * 2}
  more: {call: "near:more"}
stores:
  seen: {type: key_value}
"""


@pytest.fixture
def shared(tmp_path: Path) -> Path:
    """A topology that includes a file in a folder of its own, with a module beside it."""
    (tmp_path / "shared").mkdir()
    (tmp_path / "shared/common.yaml").write_text(COMMON)
    (tmp_path / "shared/near.py").write_text("def more(x):\n    return x + 1\n")
    (tmp_path / "t.yaml").write_text(MAIN % "shared/common.yaml")
    return tmp_path


def problems(folder: Path) -> list[str]:
    with pytest.raises(TopologyError) as caught:
        load(folder / "t.yaml")
    return [str(problem).replace(f"{folder}/", "") for problem in caught.value.problems]


def test_entries_are_as_if_they_stood_in_the_file(shared: Path) -> None:
    plan = load(shared / "t.yaml")
    assert plan.config.commit_interval_ms == 50
    line = json.dumps({"topic": "orders", "key": "k", "value": 4, "timestamp": 0})
    assert [record["value"] for record in run_case(shared / "t.yaml", [line])[0]] == [9]


def test_a_cluster_gets_the_modules_of_all_folders(shared: Path) -> None:
    (shared / "own.py").write_text("")
    plan = load(shared / "t.yaml")
    assert module_folders(plan) == [shared, shared / "shared"]
    assert contents_of(shared / "shared") == {"near.py": shared / "shared" / "near.py"}
    (shared / "near.py").write_text("")
    with pytest.raises(UsageError, match=r"near.py and .*shared/near.py have one name"):
        module_folders(plan)


def test_a_file_that_several_include_counts_once(shared: Path) -> None:
    (shared / "t.yaml").write_text(MAIN % "[shared/common.yaml, other.yaml]")
    (shared / "other.yaml").write_text(
        "include: [shared/common.yaml, shared/../shared/common.yaml]\ntopics: {more: {}}\n"
    )
    assert list(load_model(shared / "t.yaml").topics) == ["orders", "more", "out"]


PROBLEMS = {
    "topics: {orders: {value: lang}}": [
        "shared/common.yaml:1:26: 'value' of the topic 'orders': no serde is called 'lang'"
    ],
    "topics: {orders: {}}\nfunctions: {twice: {params: [x], expr: y * 2}, more: {params: [x], expr: x}}": [
        "shared/common.yaml:2:40: unknown name 'y'"
    ],
    "pipelines: {}": ["shared/common.yaml:1:1: An included file has no key 'pipelines'"],
    "topics: [orders]": ["shared/common.yaml:1:9: 'topics' must be a mapping, not a list"],
    "topics: {orders: {}, out: {}}": ["t.yaml:4:10: 'out' is also at shared/common.yaml:1:22, in 'topics'"],
    "topics: {a: {}, a: {}}": ["shared/common.yaml:1:17: The key 'a' stands twice"],
    "topics: {": ["shared/common.yaml:2:1: Malformed YAML"],
    "config: {commit.interval: 5}": ["shared/common.yaml:1:10: "],
    "include: ../t.yaml": [
        "shared/common.yaml:1:10: Files include each other in a circle: t.yaml -> shared/common.yaml -> t.yaml"
    ],
    "include: common.yaml": ["in a circle: shared/common.yaml -> shared/common.yaml"],
    "include: none.yaml": ["shared/common.yaml:1:10: The included file can't be read: shared/none.yaml: No such file"],
    "include: [5]": ["shared/common.yaml:1:11: A file of 'include' must be text"],
    "- a": ["shared/common.yaml:1:1: An included file must be a mapping"],
}


@pytest.mark.parametrize("text", PROBLEMS)
def test_a_problem_names_the_included_file(shared: Path, text: str) -> None:
    (shared / "shared/common.yaml").write_text(text + "\n")
    found = problems(shared)
    for expected in PROBLEMS[text]:
        assert any(expected in each for each in found), found


@pytest.mark.parametrize("text", ["hello", "- a", "topics: [a]", "topics: {", "functions: f"])
def test_a_file_that_has_no_sections_is_the_only_problem(shared: Path, text: str) -> None:
    (shared / "shared/common.yaml").write_text(text)
    found = problems(shared)
    assert len(found) == 1
    assert found[0].startswith("shared/common.yaml:1:")


def test_bytes_that_are_no_text_are_a_problem_of_the_included_file(shared: Path) -> None:
    (shared / "shared/common.yaml").write_bytes(b"topics: {\xff}")
    assert problems(shared) == ["shared/common.yaml:1:10: The byte 0xff is not UTF-8"]


def test_only_regular_files_are_included(shared: Path) -> None:
    os.mkfifo(shared / "shared/pipe")
    (shared / "t.yaml").write_text(MAIN % '["shared/pipe", "a\\0b"]')
    assert problems(shared) == [
        "t.yaml:3:11: The included file can't be read: 'shared/pipe' is no regular file",
        "t.yaml:3:26: The included file can't be read: 'a\\x00b' is no regular file",
    ]


def test_problems_of_several_files_are_sorted_by_file(shared: Path) -> None:
    (shared / "shared/common.yaml").write_text("topics:\n  orders: {value: lang}\nstores: {seen: {}}\n")
    (shared / "t.yaml").write_text((MAIN % "shared/common.yaml").replace("to: out", "to: nowhere"))
    files = [each.partition(":")[0] for each in problems(shared)]
    assert sorted(files, key=files.index) == files
    assert set(files) == {"t.yaml", "shared/common.yaml"}


def test_rules_leave_what_other_topologies_may_use(shared: Path) -> None:
    model = load_model(shared / "t.yaml")
    assert [each for each in lint.check(model, build(model)) if each.code.startswith("unused")] == []
    (shared / "t.yaml").write_text((MAIN % "shared/common.yaml").replace("topics: {", "topics: {left: {}, "))
    model = load_model(shared / "t.yaml")
    assert [each.code for each in lint.check(model, build(model)) if "left" in each.message] == ["unused-topic"]


def test_an_empty_section_of_an_included_file_says_nothing(shared: Path) -> None:
    part = shared / "part.yaml"
    part.write_text("stores: {}\n")
    file = shared / "empty.yaml"
    file.write_text(
        "streamkit: 1\napplication: a\ninclude: part.yaml\ntopics: {in: {}}\npipelines: {p: {stream: in, to: in}}\n"
    )
    assert not load(file).stores
