"""A checked expression, as immutable data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from streamkit.code import ATOM, CONDITION, Code, symbol
from streamkit.errors import Position
from streamkit.expressions.growth import NONE, Growth
from streamkit.expressions.syntax import Locate


class Link(NamedTuple):
    """A name of generated code that stands for a function of the file: a lambda's source, or a Python callable."""

    name: str
    source: str | None = None
    call: Any = None


@dataclass(frozen=True)
class Expression:
    """An expression that is allowed, and the Python that stands for it; picklable.

    template, precedence: its source with the record's names between zero characters, and how tightly it binds. names: the record names that it uses (`now` and `headers` where `now()` and `header()` do).
    is_constant: whether it is the same for every record. result_kind: "int", "float", "str", "bool", "list",
    "dict" or "bytes" where that is certain, else None.
    """

    text: str
    position: Position | None = field(compare=False)
    names: frozenset[str]
    template: str = field(repr=False)
    precedence: int = field(repr=False)
    helpers: frozenset[str] = field(default=frozenset(), repr=False)
    links: tuple[Link, ...] = field(default=(), repr=False)
    is_constant: bool = False
    result_kind: str | None = None
    locate: Locate | None = field(default=None, compare=False, repr=False)
    """The way back to places in the file, as long as the file is at hand: it is not pickled."""
    growth: Growth = field(default=NONE, compare=False, repr=False)
    """How much it may make of its inputs, and how long it may take."""
    draws: bool = field(default=False, compare=False, repr=False)
    """Whether its source draws on a record's budget, under the name `_y_b`."""
    counted: Expression | None = field(default=None, compare=False, repr=False)
    """Its twin that draws on a record's budget, for programs that may make much; None where it can't make much anywhere."""

    @property
    def called(self) -> Any:
        """The reference of the callable that stands in the place of an expression; None for an expression."""
        ref = self.links[0].call if len(self.links) == 1 else None
        return ref if ref is not None and self.text == f"{ref.module}:{ref.attribute}" else None

    @property
    def runs_python(self) -> bool:
        """Whether any Python of the user's takes part, which may change what it is given."""
        return any(link.call is not None for link in self.links)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "locate": None}

    def code(self, bindings: Mapping[str, Code]) -> Code:
        """Return the piece of Python in which other pieces, mostly variables, stand for the record's names.

        `headers` is bound to something that gives a list or None, `now` to a callable. Raises KeyError for a name
        that has no binding, ValueError for a binding with quotes, since names may stand inside of an f-string.
        """
        parts = self.template.split("\0")
        for index in range(1, len(parts), 2):
            bound = bindings[parts[index]].at(ATOM)
            if any(mark in bound for mark in "\"'\\{}#"):
                raise ValueError(f"{bound} can't stand for the name {parts[index]}")
            parts[index] = bound
        return Code("".join(parts), self.precedence)

    def globals(self) -> dict[str, Any]:
        """Return what the source needs: helpers and functions, all under names that begin with `_x_`.

        Loads the Python callables. Raises TopologyError or StreamkitError where one is missing.
        """
        from streamkit.expressions.calls import load_callable
        from streamkit.expressions.core import HELPERS

        result: dict[str, Any] = {helper: HELPERS[helper] for helper in self.helpers}
        # Functions of the file see each other and their helpers, and no built-in of Python.
        inner: dict[str, Any] = {**HELPERS, "__builtins__": {}}
        for link in self.links:
            if link.source is None:
                inner[link.name] = result[link.name] = load_callable(link.call)
            else:
                inner[link.name] = result[link.name] = eval(link.source, inner)
        return result

    def function(self, parameters: Sequence[str] = ()) -> Callable[..., Any]:
        """Return the expression as a Python function of record names, for tools and tests.

        >>> from streamkit.expressions import parse
        >>> parse("value.a + 1", ("value",)).function(["value"])({"a": 2})
        3
        """
        bindings = {each: symbol(f"_n_{each}") for each in parameters}
        header = ", ".join(bound.source for bound in bindings.values())
        body = self.code(bindings).at(CONDITION)
        scope: dict[str, Any] = {"__builtins__": {}, **self.globals()}
        if self.draws:
            from streamkit.expressions.budget import Budget

            body = f"[{body} for _y_b in (_x_Budget(),)][0]"
            scope["_x_Budget"] = Budget
        return eval(f"lambda {header}: {body}", scope)
