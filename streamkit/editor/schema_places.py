"""What may stand at a place of a file, and its documentation: read from the JSON Schemas that the declarations generate."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache

from streamkit.editor.cursor import Path
from streamkit.serdes.plain import Document
from streamkit.spec.topology_schema import Schema, with_plugins

_DEEPEST = 12
"""References and alternatives within each other that are followed at one place."""


@dataclass(frozen=True)
class Place:
    """The schemas that apply at a place, with the names of definitions through which they were found."""

    root: Schema
    schemas: tuple[Schema, ...]
    definitions: frozenset[str]

    @property
    def keys(self) -> dict[str, str]:
        """The keys that a mapping may have here, with their documentation."""
        found: dict[str, str] = {}
        for schema in self.schemas:
            for name, each in schema.get("properties", {}).items():
                if name not in found or not found[name]:
                    found[name] = self._documentation(each)
        return found

    @property
    def words(self) -> dict[str, str]:
        """The words that a value may be here, and how they are called."""
        found: dict[str, str] = {}
        for schema in self.schemas:
            for word in [*schema.get("enum", ()), *([schema["const"]] if "const" in schema else [])]:
                found.setdefault(_written(word), "")
            if schema.get("type") == "boolean":
                found |= {"true": "", "false": ""}
        return found

    @property
    def documentation(self) -> str:
        """What the value here means."""
        return next((str(each["description"]) for each in self.schemas if each.get("description")), "")

    def below(self, name: str | None) -> Place:
        """Return the place of a key's value, or of the items of a list for None."""
        found = []
        for schema in self.schemas:
            inner = schema.get("items") if name is None else schema.get("properties", {}).get(name)
            if inner is None and name is not None:
                inner = schema.get("additionalProperties")
            if isinstance(inner, dict):
                found.append(inner)
        return _place(self.root, found)

    def _documentation(self, schema: Schema) -> str:
        return schema.get("description") or _place(self.root, [schema]).documentation


def _written(word: Document) -> str:
    return str(word).lower() if isinstance(word, bool) else str(word)


def _place(root: Schema, schemas: list[Schema]) -> Place:
    found, names = list[Schema](), set[str]()
    for schema in schemas:
        for each, name in _alternatives(root, schema, 0):
            found.append(each)
            names.update(name)
    return Place(root, tuple(found), frozenset(names))


def _alternatives(root: Schema, schema: Schema, depth: int) -> Iterator[tuple[Schema, list[str]]]:
    """Yield a schema and all that it refers to, with the names of definitions."""
    yield schema, []
    if depth > _DEEPEST:
        return
    inner = [*schema.get("anyOf", ()), *(schema[key] for key in ("then",) if key in schema)]
    name = str(schema.get("$ref", "")).removeprefix("#/$defs/")
    if name:
        inner.append(root["$defs"][name])
    for each in inner:
        for found, names in _alternatives(root, each, depth + 1):
            yield found, [name, *names] if name else names


@lru_cache(maxsize=1)
def _topology_schema() -> Schema:
    return with_plugins({})


@lru_cache(maxsize=1)
def _test_schema() -> Schema:
    from streamkit.testing.case_schema import build

    return build()


def place_in_topology(path: Path) -> Place:
    """Return the place of a path in a topology; the steps of its macros are not in it."""
    return _at(_topology_schema(), path)


def place_in_test(path: Path) -> Place:
    """Return the place of a path in a test file."""
    return _at(_test_schema(), path)


def _at(schema: Schema, path: Path) -> Place:
    place = _place(schema, [schema])
    for name in path:
        place = place.below(name)
    return place
