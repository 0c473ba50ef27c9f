"""A rule of the linter, its findings, and the topology that it checks."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeGuard

from streamkit.errors import Position
from streamkit.operators.core.parsed_values import Step
from streamkit.plan.model import Plan
from streamkit.spec.topology_model import TopologyModel

Place = tuple[Position, str]
"""The position where a topology breaks a rule, and the message about it."""


@dataclass(frozen=True)
class Rule:
    """A rule for valid topologies.

    code: its name; summary: what it finds; why: the consequence of breaking it; bad, good: a topology that breaks it, and one that does not;
    is_mistake: what it finds is certainly wrong, so that `validate` reports it without `--strict` too.
    """

    code: str
    summary: str
    why: str
    bad: str
    good: str
    find: Callable[[Subject], Iterable[Place]]
    is_mistake: bool = False


@dataclass(frozen=True)
class Finding:
    """A place that breaks a rule."""

    code: str
    position: Position
    message: str

    def __str__(self) -> str:
        return f"{self.position}: {self.message} [{self.code}]"


class Subject:
    """A topology as a file and as a plan, with the views of it that several rules share."""

    def __init__(self, model: TopologyModel, plan: Plan):
        self.model = model
        self.plan = plan
        self.source_lines = model.text.splitlines()

    @cached_property
    def parts(self) -> list[object]:
        """All parts of the pipelines: steps, references, sinks, expressions."""
        return list(_walk(tuple(self.model.pipelines.values())))

    @cached_property
    def steps(self) -> list[Step]:
        """All steps, those of branches included."""
        return [part for part in self.parts if isinstance(part, Step)]

    def is_own(self, position: Position | None) -> TypeGuard[Position]:
        """Return whether a place is in the file itself: what an included file has may be for other topologies."""
        return position is not None and position.file not in self.model.included

    def line(self, position: Position) -> str:
        """Return the text of a line."""
        lines = self.lines_of(position.file)
        return lines[position.line - 1] if position.line <= len(lines) else ""

    def lines_of(self, file: str) -> list[str]:
        """Return the lines of the topology's file, or of one that it includes."""
        return self.model.included[file].splitlines() if file in self.model.included else self.source_lines


def _walk(value: object) -> Iterator[object]:
    """Yield a value and everything inside it that comes from the file."""
    yield value
    inner: Iterable[object] = ()
    if hasattr(value, "__dataclass_fields__"):
        inner = [getattr(value, name) for name in value.__dataclass_fields__ if "position" not in name]
    elif isinstance(value, Mapping):
        inner = value.values()
    elif isinstance(value, tuple | list | frozenset):
        inner = value
    for each in inner:
        if not isinstance(each, str | bytes | int | float | None):
            yield from _walk(each)
