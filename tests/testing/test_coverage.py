"""`--coverage`: what no record reached is named, and applications are not touched by the counting."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

from streamkit.compile.compiler import compile_sub_topology
from streamkit.plan import load
from streamkit.testing.failure_report import Coverage, coverage
from streamkit.testing.suite import Plans, Session
from tests.testing.support import case, write

ONE = "given: [{topic: orders, key: a, value: {cents: 5}}]"
ALL = "given: {orders: [{key: a, value: {cents: 0}}, {key: a, value: {cents: 5}}, {key: a, value: {cents: 5000}}]}"


def covered(folder: Path, *files: str) -> Coverage:
    paths = []
    for number, text in enumerate(files):
        paths.append(write(folder, text).rename(folder / f"{number}.test.yaml"))
    session = Session(Plans({}, {}), coverage=True)
    assert [result for result in session.run(paths) if result.failed] == []
    [(plan, reached)] = session.reached.values()
    return coverage(plan, reached)


def texts(found: Coverage) -> list[str]:
    return [f"{gap.position.line}: {gap.text}" for gap in found.gaps]


def test_steps_and_branches_without_records_are_named(tmp_path: Path) -> None:
    found = covered(tmp_path, case(ONE))
    assert texts(found) == [
        "13: pipeline orders: filter dropped no record",
        "17: pipeline large: branch: no record took the branch 'large'",
        "17: pipeline large: branch: no record took the branch 'refund'",
        "19: pipeline large: to was never reached",
        "20: pipeline large: to was never reached",
    ]
    assert (found.steps, found.reached) == (11, 9)
    assert round(found.percent) == 82


def test_the_tests_of_all_files_count_together(tmp_path: Path) -> None:
    found = covered(tmp_path, case(ONE), case(ALL))
    assert texts(found) == [
        "17: pipeline large: branch: no record took the branch 'refund'",
        "20: pipeline large: to was never reached",
    ]


def test_without_records_every_step_is_named(tmp_path: Path) -> None:
    found = covered(tmp_path, case("given: []"))
    assert found.reached == 0
    assert len(found.gaps) == found.steps == 11


def test_applications_do_not_count(tmp_path: Path) -> None:
    write(tmp_path, "")
    plan = load(tmp_path / "topology.yaml")
    for sub in plan.sub_topologies:
        plain, counted = compile_sub_topology(plan, sub), compile_sub_topology(plan, sub, Counter())
        extra = [line for line in counted.source.splitlines() if "reached" in line]
        assert len(extra) >= len(sub.nodes)
        assert [line for line in counted.source.splitlines() if "reached" not in line] == plain.source.splitlines()
