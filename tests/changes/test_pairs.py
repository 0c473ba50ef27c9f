"""What `diff` finds for pairs of topologies."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamkit.changes import Finding, Form, Verdict, compare, form_of
from streamkit.plan import load
from tests.changes.pairs import PAIRS, Pair


def forms(pair: Pair, folder: Path) -> tuple[Form, Form]:
    found = []
    for name, text in (("old.yaml", pair.old), ("new.yaml", pair.new)):
        path = folder / name
        path.write_text(text, encoding="utf-8")
        found.append(form_of(load(path), name))
    return found[0], found[1]


def shown(found: list[Finding]) -> list[str]:
    return sorted(f"{each.verdict}: {each.subject} {each.name}" for each in found if each.verdict is not Verdict.SAFE)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)
def test_pair(pair: Pair, tmp_path: Path) -> None:
    found = compare(*forms(pair, tmp_path))
    assert shown(found) == sorted(pair.expected)
    for words in pair.notes:
        assert any(words in each.message for each in found), (words, found)


def test_there_are_enough_pairs() -> None:
    assert len(PAIRS) >= 40
    assert len({pair.name for pair in PAIRS}) == len(PAIRS)


def test_the_same_file_in_two_folders_is_the_same(tmp_path: Path) -> None:
    found = []
    for name in ("one", "two"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "topology.yaml").write_text(PAIRS[0].old, encoding="utf-8")
        found.append(form_of(load(tmp_path / name / "topology.yaml"), name))
    assert compare(*found) == []
