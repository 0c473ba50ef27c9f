"""A place where an expression stands, and the pipelines around it."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any


@dataclass(frozen=True)
class Place:
    """Where an expression stands. covers: declared places; body: pipelines of one expression, in which EXPR is the
    expression and N its number; shared: pipelines that all expressions use.

    operands: what a, b, c and d are in the forms. takes: what the place takes (forms.FORMS).
    """

    covers: str
    body: str
    operands: tuple[str, str, str, str] = ("value", "key", "value == 1", "key == 'k1'")
    takes: str = "any"
    shared: str = ""
    topics: str = ""
    functions: str = ""
    options: dict[str, Any] = field(default_factory=dict)
    brief: bool = False
    """Whether one form of each level must do: running all takes long, or the code is that of another place."""

    @property
    def is_cached(self) -> bool:
        """Whether a cache changes how the place is reached."""
        return "STORE" in self.body and "with: other, 'on'" not in self.body


STREAM = "base: {stream: s}"
TABLE = "base: {table: t, store: rows}"
BARE = "base: {table: t}"
LISTS = ("[value, key]", "[key]", "value == 1", "key == 'k1'")
PAIRS = ("[(key, value)]", "[('k9', key), (value, key)]", "value == 1", "key == 'k1'")
TEXT = ("str(value)", "str(key)", "value == 1", "key == 'k1'")
JOINED = ("[left, right]", "right", "left != 1", "key == 'k1'")
ADDED = ("value", "str(aggregate)[-9:]", "value == 1", "aggregate == 1")
MERGED = ("str(left)[-9:]", "str(right)[-9:]", "left == 1", "right == 1")
WHEN = ("value", "(key == 'k0')", "value == 1", "key == 'k1'")
BOTH = "base: {table: t, store: rows}\nother: {table: u, store: others}"


def stream(steps: str, to: str = "out-N") -> str:
    """Return the pipeline of steps on the stream."""
    return f"p-N: {{from: base, steps: [{steps}], to: {to}}}"


def table(steps: str) -> str:
    """Return the pipeline of steps on a table, whose changes come out."""
    return stream(f"{steps}, to_stream")


def windowed(window: str, step: str) -> str:
    """Return the pipeline of an aggregation by windows."""
    return stream(
        f"group_by_key, {{window: {{{window}}}}}, {step}, to_stream, {{map: {{key: str(key), value: value}}}}"
    )
