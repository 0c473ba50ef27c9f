"""What a rule is, and what it looks at."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from streamkit.errors import Position
from streamkit.operators.fields import Step
from streamkit.plan.model import Plan
from streamkit.spec.model import TopologyModel

Place = tuple[Position, str]
"""Where a rule is broken, and the sentence that says how."""


@dataclass(frozen=True)
class Rule:
    """A rule for topologies that are valid.

    code: its name; summary: what it finds; why: what goes wrong otherwise; bad, good: topologies that break it and don't.
    """

    code: str
    summary: str
    why: str
    bad: str
    good: str
    find: Callable[[Subject], Iterable[Place]]


@dataclass(frozen=True)
class Finding:
    """A place that breaks a rule."""

    code: str
    position: Position
    message: str

    def __str__(self) -> str:
        return f"{self.position}: {self.message} [{self.code}]"


class Subject:
    """A topology as its file has it and as its plan, with what several rules ask."""

    def __init__(self, model: TopologyModel, plan: Plan):
        self.model = model
        self.plan = plan
        self.lines = model.text.splitlines()

    @cached_property
    def parts(self) -> list[Any]:
        """Everything that pipelines are made of: steps, references, sinks, expressions."""
        return list(_walk(tuple(self.model.pipelines.values())))

    @cached_property
    def steps(self) -> list[Step]:
        """All steps, those of branches included."""
        return [part for part in self.parts if isinstance(part, Step)]

    def line(self, position: Position) -> str:
        """Return the text of a line."""
        return self.lines[position.line - 1] if position.line <= len(self.lines) else ""


def _walk(value: Any) -> Iterator[Any]:
    """Yield a value and everything inside it that a file describes."""
    yield value
    inner: Iterable[Any] = ()
    if hasattr(value, "__dataclass_fields__"):
        inner = [getattr(value, name) for name in value.__dataclass_fields__ if "position" not in name]
    elif isinstance(value, Mapping):
        inner = value.values()
    elif isinstance(value, tuple | list | frozenset):
        inner = value
    for each in inner:
        if not isinstance(each, str | bytes | int | float | None):
            yield from _walk(each)
