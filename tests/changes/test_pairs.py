"""What `diff` finds for pairs of topologies."""

from __future__ import annotations

from pathlib import Path

import pytest

from streamkit.changes.compare_versions import compare
from streamkit.changes.finding import Finding, Verdict
from streamkit.changes.of_plan import form_of
from streamkit.plan import load
from tests.changes.pairs import PAIRS
from tests.changes.versions import TOTALS, Pair, forms


def shown(found: list[Finding]) -> list[str]:
    return sorted(f"{each.verdict}: {each.subject} {each.name}" for each in found if each.verdict is not Verdict.SAFE)


@pytest.mark.parametrize("pair", PAIRS, ids=lambda pair: pair.name)
def test_pair(pair: Pair) -> None:
    found = compare(*forms(pair))
    assert shown(found) == sorted(pair.expected)
    for words in pair.notes:
        assert any(words in each.message for each in found), (words, found)


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        (
            "totals",
            "{name: totals, ttl: 1h}",
            "it has a ttl now, of 3600000 ms: rows without a write for that long",
        ),
        ("{name: totals, ttl: 1h}", "{name: totals, ttl: 10m}", "is 600000 ms: rows without a write for that long"),
        ("{name: totals, ttl: 1h}", "{name: totals, ttl: 10m}", "the start deletes those that are due by then"),
        ("{name: totals, ttl: 1h}", "{name: totals, ttl: 2h}", "rows stay longer from now on"),
        ("{name: totals, ttl: 1h}", "totals", "it no longer has a ttl (was 3600000 ms): no row is deleted from now on"),
    ],
)
def test_a_time_to_live_that_comes_changes_or_goes_is_safe(old: str, new: str, words: str) -> None:
    """Kafka Streams has no such thing, so that these are not among the pairs that are compared with it."""
    text = TOTALS.replace("store: totals", f"store: {old}")
    (found,) = compare(*forms(Pair("ttl", text, ((f"store: {old}", f"store: {new}"),))))
    assert (found.verdict, found.name) == (Verdict.SAFE, "totals")
    assert words in found.message


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
