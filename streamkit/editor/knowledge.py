"""What is known at a cursor: names of the file, and the types of keys and values at a step."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from streamkit.editor.analysis import TEST, TEST_SUFFIXES, Analysis
from streamkit.editor.cursor import Cursor, Path
from streamkit.editor.project import Project, identity
from streamkit.editor.schema_places import Place, place_in_test, place_in_topology
from streamkit.editor.texts import Text
from streamkit.expressions.types import ANY, INTEGER, TEXT, ListOf, MapOf, Record, Type, field_names
from streamkit.operators import STEPS
from streamkit.operators.core.fields import STREAM_NAMES, Expr, StoreNames
from streamkit.operators.core.operator import Types
from streamkit.plan.assemble import BuiltStep
from streamkit.spec.topology_model import TopologyModel

TOPIC_KEYS = ("stream", "table", "global_table", "global_store", "read_only_store", "dead_letter", "to", "topic")
"""Keys whose values are entries of `topics`."""
_KNOWN_TYPES = {"timestamp": INTEGER, "offset": INTEGER, "partition": INTEGER, "partitions": INTEGER, "topic": TEXT}


@dataclass(frozen=True)
class Knowledge:
    """What is known of a file at a cursor."""

    text: Text
    cursor: Cursor
    place: Place
    analysis: Analysis | None
    model: TopologyModel | None

    @property
    def step(self) -> str | None:
        """The step whose options are around the cursor."""
        path = self.cursor.path
        places = [at for at, name in enumerate(path[:-1]) if name is None and path[at - 1 : at] == ("steps",)]
        return path[places[-1] + 1] if places else None

    @property
    def is_step(self) -> bool:
        """Whether the name of a step belongs here."""
        return self.cursor.path[-2:] == ("steps", None) and self.cursor.path[:1] != ("tests",)

    def names(self) -> list[str]:
        """Return the names of other parts of the file that belong here: topics, pipelines, stores."""
        model, path = self.model, self.cursor.path
        if model is None:
            return []
        if self.cursor.is_key:
            return list(model.topics) if path[-1:] in (("generators",), ("given",), ("expect",)) else []
        key = next((name for name in reversed(path) if name is not None), "")
        if self._is_topic(path, key):
            return list(model.topics)
        if "pipelineReference" in self.place.definitions:
            return _pipelines(model)
        operator = STEPS.get(self.step or "")
        kinds = [field.kind for field in operator.fields if field.name == key] if operator is not None else []
        return list(model.stores) if kinds and isinstance(kinds[0], StoreNames) else []

    def _is_topic(self, path: Path, key: str) -> bool:
        if path[:1] == ("tests",):
            return key == "topic"
        return path[:1] == ("pipelines",) and key in TOPIC_KEYS and (key != "topic" or "to" in path)

    @property
    def is_expression(self) -> bool:
        """Whether the value here is an expression."""
        return not self.cursor.is_key and "expression" in self.place.definitions and not self.is_step

    def expression_names(self) -> dict[str, Type]:
        """Return the names in the expression here, with their types."""
        operator = STEPS.get(self.step or "")
        last = next((name for name in reversed(self.cursor.path) if name is not None), "")
        names: tuple[str, ...] = STREAM_NAMES
        if operator is not None:
            chosen = [
                field for field in operator.fields if field.name == (operator.main if last == operator.name else last)
            ]
            names = next((field.kind.names for field in chosen if isinstance(field.kind, Expr)), names)
        types = self.types()
        known: dict[str, Type] = {**_KNOWN_TYPES, "key": types.key, "value": types.value}
        return {name: known.get(name, ANY) for name in names}

    def types(self) -> Types:
        """Return the types of key and value before the step at the cursor, as of the latest analysis."""
        found = self.analysis
        if found is None or self.cursor.path[:1] != ("pipelines",):
            return Types()
        line, pipeline = self._line_then(found.text), self.cursor.path[1]
        above = _above(found.built, pipeline, line, self._column())
        if above is None:
            return Types()
        return above.after if above.before is None or above.position.column >= self._column() else above.before

    def _column(self) -> int:
        """Return the column (from 1) of the name of the step at the cursor."""
        for number in range(self.cursor.line, -1, -1):
            match = re.match(r"\s*- +", self.text.line(number))
            if match is not None:
                return match.end() + 1
        return 1

    def _line_then(self, then: Text) -> int:
        """Return the line (from 1) of the cursor in the analysed version: lines below an edit may have moved."""
        line = self.cursor.line
        if then.text == self.text.text:
            return line + 1
        moved = len(then.line_offsets) - len(self.text.line_offsets)
        same = next((at for at in range(line + 1) if then.line(at) != self.text.line(at)), None)
        return line + 1 if same is None or same == line else line + moved + 1


def _above(built: list[BuiltStep], pipeline: str | None, line: int, column: int) -> BuiltStep | None:
    """Return the source or step whose result reaches the step at a place: the nearest one above in its list or around it."""
    found = [each for each in built if each.pipeline == pipeline and each.position.within is None]
    before = [each for each in found if each.position.line < line]
    listed = [each for each in before if each.before is not None and each.position.column <= column]
    sources = [each for each in found if each.before is None]
    return max(listed, key=lambda each: each.position.line, default=sources[0] if sources else None)


def _pipelines(model: TopologyModel) -> list[str]:
    found = []
    for name, pipeline in model.pipelines.items():
        last = pipeline.steps[-1] if pipeline.steps else None
        branches = last.get("when") if last is not None and last.operator == "branch" else None
        default = last.get("default") if last is not None and branches else None
        found += [f"{name}.{each.name}" for each in branches or ()] or [name]
        found += [f"{name}.{default}"] if isinstance(default, str) else []
    return found


def know(project: Project, uri: str, text: Text, cursor: Cursor) -> Knowledge:
    """Return what is known at a cursor."""
    is_test = text.file.endswith(TEST_SUFFIXES)
    analysis = project.analyses.get(identity(text.file))
    found = project.valid(uri) if is_test else analysis or project.analysis(uri)
    model = found.model if found is not None else None
    if model is None:
        good = project.valid(uri)
        model = good.model if good is not None else None
    place = place_in_test(cursor.path) if is_test else place_in_topology(cursor.path)
    return Knowledge(text, cursor, place, found if found is None or found.kind != TEST else None, model)


def describe_type(type_: Type, depth: int = 0) -> str:
    """Return a type with its fields.

    >>> describe_type(Record("order", {"id": INTEGER, "names": ListOf(TEXT)}))
    'order {id: a whole number, names: a list of text}'
    """
    names = field_names(type_)
    if isinstance(type_, ListOf):
        return f"a list of {describe_type(type_.item, depth)}"
    if isinstance(type_, MapOf):
        return f"a map of {describe_type(type_.value, depth)}"
    if not isinstance(type_, Record) or not names or depth > 1:
        return type_.word if type_ is not ANY else "any value"
    fields: Mapping[str, Type] = type_.fields
    return f"{type_.word} {{{', '.join(f'{name}: {describe_type(each, depth + 1)}' for name, each in fields.items())}}}"
