"""Every place where an expression may stand, found from what the operators and the language declare.

`declared` reads the JSON Schema, which is made from the operators' fields: a new option with an expression appears there
by itself. `all_examples` gives the places in the operators' own examples; `PLACES` adds tables, stores, windows and lookups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import Any

import yaml

from streamkit.operators import OPERATORS
from streamkit.operators.core.operator import Example
from streamkit.spec.language_reference import examples_of, examples_of_ends
from streamkit.spec.topology_schema import build
from tests.laws.place import Place
from tests.laws.places_of_streams import STREAMS, WHOLE
from tests.laws.places_of_tables import TABLES

_MAIN = {f"step.{name}": f"step.{name}/{operator.main}" for name, operator in OPERATORS.items() if operator.main}


@cache
def declared() -> set[str]:
    """Return the places that the language declares, as `step.filter/if` or `topic/timestamp`."""
    # Steps of a file with macros are the same steps.
    definitions = {name: body for name, body in build(OPERATORS)["$defs"].items() if not name.endswith(".macros")}
    found = {"/".join((name, *path)) for name, body in definitions.items() for path in _paths(body, ())}
    # Main options and bare predicates are short forms of an option.
    short = {**_MAIN, "branch": "branch/if", "listedBranch": "listedBranch/if"}
    # The expressions of generators are functions of their own, never joined with other code.
    return {short.get(place, place) for place in found if not place.startswith("generator/")} | {WHOLE}


def _paths(node: Any, path: tuple[str, ...]) -> Iterator[tuple[str, ...]]:
    if isinstance(node, list):
        for each in node:
            yield from _paths(each, path)
    elif isinstance(node, dict):
        if node.get("$ref") == "#/$defs/expression":
            yield path
        for name, each in node.items():
            for inner, body in each.items() if name == "properties" else ():
                yield from _paths(body, (*path, inner))
            if name != "properties":
                yield from _paths(each, path)


REFUSED = {"step.outer_join/on", "step.outer_join/partition", "step.outer_join/other_partition"}
"""Options that `outer_join` shares with `join` and that no topology can use."""

PLACES: dict[str, Place] = {**STREAMS, **TABLES}


def all_examples() -> list[tuple[str, Example]]:
    """Return the examples of the operators and of the language reference by name."""
    listed = [(name, each) for name, operator in OPERATORS.items() for each in examples_of(operator)]
    listed += [("sources and ends", each) for each in examples_of_ends()]
    return [(f"{name}: {each.title}" if each.title else name, each) for name, each in listed]


OUTER = """\
streamkit: 1
application: law
topics: {t: {}, u: {}}
pipelines:
  other: {table: u}
  p: {table: t, steps: [{outer_join: {with: other, '%s': key, value: left}}]}
"""


def expressions_in(topology: str) -> list[tuple[str, str, Callable[[str], dict[str, Any]]]]:
    """Return the expressions of a topology file: place, text, and a function that puts another text there."""
    found: list[tuple[str, str, Callable[[str], dict[str, Any]]]] = []
    data = _data(topology)
    for path, place in _steps(data):
        text = _at(data, path)
        if isinstance(text, (str, int, float)) and not isinstance(text, bool):
            found.append((place, str(text), partial(_replaced, topology, path)))
    return found


def _steps(data: dict[str, Any]) -> Iterator[tuple[tuple[Any, ...], str]]:
    """Yield path and place of everything that may be an expression of a step in the pipelines of a file."""
    places = declared()
    for pipeline, body in data["pipelines"].items():
        for index, step in enumerate(body.get("steps", ())):
            if isinstance(step, str):
                continue
            [(name, options)] = step.items()
            base = ("pipelines", pipeline, "steps", index, name)
            if not isinstance(options, dict):
                if _MAIN.get(f"step.{name}") in places:
                    yield base, _MAIN[f"step.{name}"]
                continue
            for option in options:
                if f"step.{name}/{option}" in places and not isinstance(options[option], (dict, list)):
                    yield (*base, option), f"step.{name}/{option}"


def _at(data: Any, path: tuple[Any, ...]) -> Any:
    for part in path:
        data = data[part]
    return data


def _replaced(topology: str, path: tuple[Any, ...], text: str) -> dict[str, Any]:
    data = _data(topology)
    _at(data, path[:-1])[path[-1]] = text
    return data


def _data(topology: str) -> dict[str, Any]:
    """Return the data of a file; `on` is an option and no boolean."""

    def named(part: Any) -> Any:
        if isinstance(part, dict):
            return {"on" if name is True else name: named(each) for name, each in part.items()}
        return [named(each) for each in part] if isinstance(part, list) else part

    return named(yaml.safe_load(topology))  # type: ignore[no-any-return]
