"""streamkit and Kafka Streams agree on random topologies; STREAMKIT_FUZZ_N and STREAMKIT_FUZZ_SEED choose others."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from streamkit.operators import OPERATORS
from streamkit.operators.core.fields import CALL_KEYS
from tests.fuzz import forms, held, java_side
from tests.fuzz.compare import Answer, differences
from tests.fuzz.generate import Case, draw
from tests.fuzz.processors import OPERATIONS, READING
from tests.fuzz.run import compare, run
from tests.fuzz.shrink import shrink

N = int(os.environ.get("STREAMKIT_FUZZ_N", "200"))
SEED = int(os.environ.get("STREAMKIT_FUZZ_SEED", "7000"))
HELD_N = max(48, N // 4)
REFUSED_AT_MOST = 0.1


@pytest.mark.usefixtures("java")
def test_random_topologies_do_what_kafka_streams_does(tmp_path: Path):
    counts: Counter = Counter()
    failures = [f"{failure.name}: {failure.differences[0]}" for failure in run(range(SEED, SEED + N), tmp_path, counts)]
    assert not failures, "\n\n".join(failures[:5])
    assert counts["refused by Java"] <= REFUSED_AT_MOST * N
    assert counts["records"] > N


@pytest.mark.usefixtures("java")
def test_full_caches_let_go_of_the_same_entries_as_those_of_kafka_streams(tmp_path: Path):
    for seed in range(HELD_N):
        held.write(SEED + seed, tmp_path / f"case-{seed:05d}")
    with java_side.Oracle() as oracle:
        oracle.run(tmp_path)
    counts: Counter = Counter()
    found = {folder.name: compare(folder, counts) for folder in sorted(tmp_path.iterdir())}
    assert not {name: differences[0] for name, differences in found.items() if differences}
    assert counts["accepted"] == HELD_N
    assert counts["records"] > 10 * HELD_N


def test_every_step_option_and_form_is_drawn():
    forms.drawn.clear()
    seen: set[str] = set()
    for seed in range(SEED, SEED + 2000):
        for pipeline in draw(seed).topology["pipelines"].values():
            seen |= options_of(pipeline.get("steps", []))
    # Java has no steps to compare those of streamkit with: tests/operators/test_extensions.py has a model of each.
    compared = {name: step for name, step in OPERATORS.items() if not step.is_extension}
    known = {f"{name}.{field.name}" for name, step in compared.items() for field in step.fields}
    # Java has no arguments of calls and no functions over batches: tests/calls compares them with calls of single records.
    known -= {
        f"{name}.{key}" for name, step in compared.items() for key in CALL_KEYS if (key, step.main) != ("call", "call")
    }
    # Two tables are joined by a foreign key, and that join has no outer form.
    assert known - seen == {f"outer_join.{name}" for name in ("on", "partition", "other_partition")}
    shapes = {f"{kind}: {name}" for kind, shapes in forms.FORMS.items() for name in shapes}
    shapes |= {f"iterable: {name}" for name in forms.ITERABLES}
    shapes |= {f"condition: {name}" for name in (*forms.TRUTHS, *forms.CHAINED, *forms.TRUE_OR_NOT)}
    shapes |= {f"script: {word.partition('_')[0]}" for words in OPERATIONS.values() for word in words}
    shapes |= {f"script beside: {kind}, step" for kind in READING} | {"script beside: key_value, global", "script: to"}
    assert shapes <= forms.drawn.keys()


def options_of(steps: list) -> set[str]:
    """The options of steps as `STEP.OPTION`, those of branches included."""
    found: set[str] = set()
    for step in steps:
        name, body = (step, {}) if isinstance(step, str) else next(iter(step.items()))
        main = OPERATORS[name].main
        if not isinstance(body, dict) or (main != "call" and set(body) == {"call"}):
            body = {main: body}
        found |= {f"{name}.{option}" for option in body}
        branches = body.get("when", [])
        for branch in branches.values() if isinstance(branches, dict) else branches:
            if isinstance(branch, dict):
                found |= options_of(branch.get("steps", []))
    return found


def test_a_seed_gives_the_same_case():
    assert draw(11) == draw(11)
    assert draw(11).text() == draw(11).text()


def test_shrinking_keeps_what_fails_and_drops_the_rest():
    topology = {
        "topics": {"in1": {}, "in2": {}},
        "pipelines": {"p1": {"stream": "in1", "steps": ["peek", {"filter": "key"}]}, "p2": {"stream": "in2"}},
    }
    case = Case(topology, [{"topic": "in1", "key": n, "value": n} for n in range(20)])

    def fails(candidate: Case) -> bool:
        steps = candidate.topology["pipelines"].get("p1", {}).get("steps", [])
        return {"filter": "key"} in steps and any(line["key"] == 13 for line in candidate.input)

    small = shrink(case, fails)
    assert small.topology["pipelines"] == {"p1": {"stream": "in1", "steps": [{"filter": "key"}]}}
    assert list(small.topology["topics"]) == ["in1"]
    assert [line["key"] for line in small.input] == [13]


def test_differences_are_found_in_every_part_of_an_answer():
    record = {"topic": "out", "key": "a", "value": 1, "timestamp": 2}
    java = Answer("text", [record], {"s": [["a", 1]]}, {"s": 1})
    assert not differences(java, Answer("text\n", [dict(record)], {"s": [["a", 1]], "more": []}, {"s": 1, "more": 5}))
    for other in (
        Answer("other", [record], {"s": [["a", 1]]}),
        Answer("text", [{**record, "value": True}], {"s": [["a", 1]]}),
        Answer("text", [{**record, "value": 1.0}], {"s": [["a", 1]]}),
        Answer("text", [], {"s": [["a", 1]]}),
        Answer("text", [record], {"s": []}),
        Answer("text", [record], {"s": [["a", 1]]}, {"s": 2}),
        Answer("text", [record], {"s": [["a", 1]]}, {"s": 1}, 1),
        Answer(stage="build", error="no"),
        Answer("text", stage="run", error="no"),
    ):
        assert differences(java, other)


def test_changelogs_compare_in_order():
    first, second, last = ["log", "61", "01", 5, []], ["log", "62", None, 6, []], ["log", "61", None, 7, []]
    java = Answer(changelogs=[first, second, last])
    assert not differences(java, Answer(changelogs=[first, second, last]))
    for other in (
        Answer(changelogs=[second, first, last]),
        Answer(changelogs=[first, second]),
        Answer(changelogs=[[*first[:4], [["h", "1"]]], second, last]),
        Answer(changelogs=[first, second, last, ["more", "61", "01", 5, []]]),
    ):
        assert differences(java, other)


def test_a_subscription_of_a_timer_s_record_may_name_another_partition_and_nothing_else():
    java = Answer(changelogs=[["log", "61", "0103aabbffffffff", 5, []]])
    assert not differences(java, Answer(changelogs=[["log", "61", "0103aabb00000000", 5, []]]))
    for other in ("0103aabb00000001", "0103aabc00000000", None):
        assert differences(java, Answer(changelogs=[["log", "61", other, 5, []]]))
    assert differences(Answer(changelogs=[["log", "61", "0103aabb00000001", 5, []]]), java)
