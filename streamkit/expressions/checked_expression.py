"""Checked expressions as immutable data."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from streamkit.code import ATOM, CONDITION, Code, symbol
from streamkit.errors import Position
from streamkit.expressions.analysis.growth import NONE, Growth
from streamkit.expressions.syntax import Locate

if TYPE_CHECKING:
    from streamkit.expressions.calls import CallableRef
    from streamkit.record import Value


class Link(NamedTuple):
    """A function of the file under its name in generated code: a lambda's source, or a Python callable."""

    name: str
    source: str | None = None
    call: CallableRef | None = None


@dataclass(frozen=True)
class Expression:
    """An expression that was checked, and its Python source; picklable.

    template, precedence: its source with the record's names between zero characters, and its precedence. names: the record
    names that it uses (`now` for `now()`, `headers` for `header()`).
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
    """Maps places in the text to the file; not pickled."""
    growth: Growth = field(default=NONE, compare=False, repr=False)
    """Bounds of the size of its result and of its time."""
    draws: bool = field(default=False, compare=False, repr=False)
    """Whether its source charges a record's budget, under the name `_y_b`."""
    counted: Expression | None = field(default=None, compare=False, repr=False)
    """The same expression with charges to a record's budget, for programs whose values may be large; None where its result
    is never larger than its inputs."""

    @property
    def called(self) -> CallableRef | None:
        """The reference of a callable in place of an expression; None for an expression."""
        ref = self.links[0].call if len(self.links) == 1 else None
        return ref if ref is not None and self.text == f"{ref.module}:{ref.attribute}" else None

    @property
    def runs_python(self) -> bool:
        """Whether it calls Python code of the user, which may change its arguments."""
        return any(link.call is not None for link in self.links)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "locate": None}

    def code(self, bindings: Mapping[str, Code]) -> Code:
        """Return the piece of Python with other pieces, mostly variables, in place of the record's names.

        `headers` is bound to a list or None, `now` to a callable. Raises KeyError for a name without a binding,
        ValueError for a binding with quotes, since names may be inside an f-string.
        """
        parts = self.template.split("\0")
        for index in range(1, len(parts), 2):
            bound = bindings[parts[index]].at(ATOM)
            if any(mark in bound for mark in "\"'\\{}#"):
                raise ValueError(f"{bound} can't stand for the name {parts[index]}")
            parts[index] = bound
        return Code("".join(parts), self.precedence)

    def globals(self) -> dict[str, object]:
        """Return the globals of the source: helpers and functions, all under names that begin with `_x_`.

        Loads the Python callables. Raises TopologyError or StreamkitError where one is missing.
        """
        from streamkit.expressions.calls import load_callable
        from streamkit.expressions.translation.core import HELPERS

        result: dict[str, object] = {helper: HELPERS[helper] for helper in self.helpers}
        # Functions of the file have each other and their helpers, and no built-in of Python.
        inner: dict[str, object] = {**HELPERS, "__builtins__": {}}
        for link in self.links:
            if link.call is not None:
                inner[link.name] = result[link.name] = load_callable(link.call)
            else:
                inner[link.name] = result[link.name] = eval(str(link.source), inner)
        return result

    def function(self, parameters: Sequence[str] = ()) -> Callable[..., Value]:
        """Return the expression as a Python function of record names, for tools and tests.

        >>> from streamkit.expressions import parse
        >>> parse("value.a + 1", ("value",)).function(["value"])({"a": 2})
        3
        """
        bindings = {each: symbol(f"_n_{each}") for each in parameters}
        header = ", ".join(bound.source for bound in bindings.values())
        body = self.code(bindings).at(CONDITION)
        scope: dict[str, object] = {"__builtins__": {}, **self.globals()}
        if self.draws:
            from streamkit.expressions.evaluation.budget import Budget

            body = f"[{body} for _y_b in (_x_Budget(),)][0]"
            scope["_x_Budget"] = Budget
        function: Callable[..., Value] = eval(f"lambda {header}: {body}", scope)
        return function
