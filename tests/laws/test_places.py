"""An expression means the same in every place: as its twin in brackets, `[(EXPR)][0]`, on streams and tables."""

from __future__ import annotations

import ast
import json
from pathlib import Path
from typing import Any

import pytest

from streamkit import code
from streamkit.code import Code
from streamkit.errors import StreamkitError, TopologyError
from streamkit.expressions.translate import Piece
from streamkit.operators.core.operator import Example
from streamkit.plan import load
from streamkit.runtime.driver import Driver
from tests.conformance_cases import write_example
from tests.laws.comparing import compare, expressions, shown
from tests.laws.forms import FORMS, LEVELS, twin
from tests.laws.places import OUTER, PLACES, REFUSED, all_examples, declared, expressions_in

# Each form in each place is a topology of its own: thousands are compiled.
pytestmark = pytest.mark.slow

CACHES = [(0, True), (10_000_000, False)]
RUNS = [(name, *run) for name, place in PLACES.items() for run in CACHES if not run[0] or place.is_cached]


@pytest.mark.parametrize(("name", "cache_bytes", "all_forms"), RUNS)
def test_a_form_means_the_same_as_its_twin(tmp_path: Path, name: str, cache_bytes: int, all_forms: bool) -> None:
    place = PLACES[name]
    found = compare(place, tmp_path, cache_bytes, expressions(place, all_forms))
    assert found.different == []
    # The place is reached: what comes out depends on the expression, and is more than failures.
    assert len(found.distinct) >= 3
    assert found.rows >= 10


def test_the_law_is_about_every_place_that_is_declared(capsys: pytest.CaptureFixture[str]) -> None:
    places = declared()
    covered = {place.covers for place in PLACES.values()}
    for _, example in EXAMPLES:
        covered |= {place for place, _, _ in expressions_in(example.topology)}
    assert places - REFUSED <= covered, (
        "these options take an expression: name them in PLACES, or show them in an example"
    )
    assert {place.covers for place in PLACES.values()} <= places
    assert places > REFUSED
    count = sum(len(expressions(PLACES[name], all_forms)) for name, _, all_forms in RUNS)
    assert len(covered & places) + len(REFUSED) >= 40
    assert count >= 2500
    with capsys.disabled():
        print(f"\n{len(RUNS)} places and caches x forms: {count} comparisons", end="")


@pytest.mark.parametrize("place", sorted(REFUSED))
def test_what_is_refused_is_refused(tmp_path: Path, place: str) -> None:
    option = place.partition("/")[2]
    path = tmp_path / "topology.yaml"
    path.write_text(OUTER % option, encoding="utf-8")
    with pytest.raises(TopologyError, match="outer_join"):
        load(path)


def test_every_level_is_at_the_top_of_some_form() -> None:
    tops = set()
    for form in FORMS["any"].values():
        node: Any = ast.parse(form.format(a="a", b="b", c="c", d="d"), mode="eval").body
        tops.add(type(getattr(node, "op", node)).__name__)
    for wanted in (
        "IfExp Or And Not Compare BitOr BitXor BitAnd LShift RShift Add Sub Mult Div FloorDiv Mod USub UAdd Invert Pow",
        "Tuple List Dict ListComp DictComp GeneratorExp JoinedStr Constant Subscript Call",
    ):
        assert tops >= set(wanted.split())
    assert set(LEVELS) <= FORMS["any"].keys()


# -- The examples of the operators: a step that is new has one ------------------------------------------------------

EXAMPLES = [each for each in all_examples() if expressions_in(each[1].topology)]
BOOLEAN = "not (EXPR)"
DRESSED = ("(EXPR) if now() == 0 else None", "(EXPR) or None", "now() == 0 and (EXPR)", BOOLEAN)
WITH_ITEMS = {"step.flat_map/records", "step.flat_map_values/values"}
"""The options that a boolean can't be."""


@pytest.mark.parametrize("example", [each for _, each in EXAMPLES], ids=[name for name, _ in EXAMPLES])
def test_examples_mean_the_same_in_every_form(tmp_path: Path, example: Example) -> None:
    write_example(tmp_path, example)
    for place, text, replaced in expressions_in(example.topology):
        for form in DRESSED:
            dressed = form.replace("EXPR", text)
            if form == BOOLEAN and place in WITH_ITEMS:
                with pytest.raises(TopologyError, match="a boolean; expected a list"):
                    _outcome(tmp_path, replaced(dressed), example.input)
                continue
            made = [_outcome(tmp_path, replaced(each), example.input) for each in (dressed, twin(dressed))]
            assert made[0] == made[1], dressed


def _outcome(folder: Path, data: dict[str, Any], lines: str) -> list[Any]:
    """Return what a topology makes of records and tombstones in each of its topics."""
    data["config"] = {**data.get("config", {}), "processing.exception.handler": "continue"}
    path = folder / "topology.yaml"
    path.write_text(json.dumps(data), encoding="utf-8")
    made: list[Any] = []
    with Driver(load(path)) as driver:
        for record in _records(lines):
            try:
                made.append([shown(row) for row in driver.pipe(record)])
            except StreamkitError as error:
                # A tombstone that an example does not expect ends both in the same words.
                made.append(str(error))
                break
        made += [driver.dropped, sorted(driver.stores().items())]
    return made


def _records(lines: str) -> list[dict[str, Any]]:
    records = [json.loads(line) for line in lines.splitlines()]
    gone = [{**record, "value": None} for record in records if record.get("key") is not None]
    return [*records, *gone, *records]


# -- The law can fail -----------------------------------------------------------------------------------------------

_AT = Code.at
MUTANTS = {
    "not": (code.NOT, ("table filter_not", "table filter_not into a store")),
    "and": (code.AND, ("table filter", "table filter without a store", "table filter into a store")),
    "or": (code.OR, ("flat_map", "branch", "tables, outer")),
}


@pytest.mark.parametrize("lost", MUTANTS)
def test_a_lost_bracket_is_found(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lost: str) -> None:
    precedence, places = MUTANTS[lost]

    def careless(piece: Code, wanted: int) -> str:
        return piece.source if wanted == precedence else _AT(piece, wanted)

    # The translator of expressions keeps its brackets: what is lost is lost between expression and code.
    monkeypatch.setattr(Piece, "at", _AT, raising=False)
    monkeypatch.setattr(Code, "at", careless)
    for name in places:
        place, found = PLACES[name], []
        for form, text in expressions(place, all_forms=False).items():
            try:
                found += compare(place, tmp_path, 0, {form: text}).different
            except SyntaxError:
                found.append(form)
        assert found, name
