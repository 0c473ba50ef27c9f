"""Checked expressions as immutable data: their Python source, the bounds of their growth, and functions of the file."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from math import inf
from typing import NamedTuple

from streamkit.code import ATOM, CONDITION, Code, symbol
from streamkit.errors import Position, Problem
from streamkit.expressions.budget import MAX_TOTAL, Budget
from streamkit.expressions.calls import CallableRef, load_callable
from streamkit.expressions.counting import COUNTING
from streamkit.expressions.function_table import LIBRARY
from streamkit.expressions.helpers import HELPERS as _BUILTIN_HELPERS
from streamkit.expressions.helpers import METHOD_HELPERS
from streamkit.expressions.syntax import Locate
from streamkit.record import Operand, Value

HELPERS: dict[str, Callable[..., Value]] = {
    **_BUILTIN_HELPERS,
    **METHOD_HELPERS,
    **{f"_x_{function.name}": function.run for function in LIBRARY.values()},
    **COUNTING,
}
"""The functions that generated expressions call, by their names in generated code."""
MOST_TIMES = 24
"""The maximum growth factor, relative to the input record, that needs no accounting."""
MOST_BYTES = MAX_TOTAL
"""The maximum number of bytes, in addition to the grown input, that needs no accounting."""
MOST_WORK = 64
"""The maximum number of elementary steps per unit of the input record that needs no accounting."""
SMALL = 20_000


class Growth(NamedTuple):
    """Bounds of an expression.

    size: by name, how many copies of an input the result may contain; constant: the size of everything else in the result.
    work: elementary steps per unit of input, summed over all names.
    """

    size: Mapping[str, float]
    constant: float
    work: float

    @property
    def factor(self) -> float:
        """The number of copies of inputs that the result may contain, summed over all inputs."""
        return sum(self.size.values())

    @property
    def is_none(self) -> bool:
        """Whether the result is hardly larger than the inputs, and takes constant time."""
        return self.factor <= 1.5 and self.constant <= SMALL and self.work <= 0.1

    @property
    def is_bounded(self) -> bool:
        """Whether an evaluation needs no charges to a budget."""
        return self.factor <= MOST_TIMES and self.constant <= MOST_BYTES and self.work <= MOST_WORK


NONE = Growth({}, 0.0, 0.0)
UNBOUNDED = Growth({}, inf, inf)


@dataclass(frozen=True)
class Expression:
    """A checked expression and its Python source; picklable.

    template: its source, with NUL characters around the names of the record's parts; precedence: that of the source. names:
    the record's parts that it uses (`now` for `now()`, `headers` for `header()`). is_constant: whether the value is the same
    for every record. result_kind: "int", "float", "str", "bool", "list", "dict" or "bytes" if it is certain, else None.
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
    """The bounds of the result's size and of the evaluation's time."""
    draws: bool = field(default=False, compare=False, repr=False)
    """Whether its source charges a record's budget, under the name `_y_b`."""
    counted: Expression | None = field(default=None, compare=False, repr=False)
    """The variant that charges a record's budget, for programs whose values may be large; None if the result is never
    larger than the inputs."""

    @property
    def called(self) -> CallableRef | None:
        """The reference to a callable that replaces the expression; None if there is an expression."""
        ref = self.links[0].call if len(self.links) == 1 else None
        return ref if ref is not None and self.text == f"{ref.module}:{ref.attribute}" else None

    @property
    def runs_python(self) -> bool:
        """Whether it calls Python code of the user, which may change its arguments."""
        return any(link.call is not None for link in self.links)

    def __getstate__(self) -> dict[str, object]:
        return {**self.__dict__, "locate": None}

    def code(self, bindings: Mapping[str, Code]) -> Code:
        """Return the piece of Python in which `bindings`, mostly variables, replace the names of the record's parts.

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

        Loads the Python callables. Raises TopologyError or StreamkitError if one is missing.
        """
        result: dict[str, object] = {helper: HELPERS[helper] for helper in self.helpers}
        # Functions of the file can call each other and their helpers, but no built-in of Python.
        inner: dict[str, object] = {**HELPERS, "__builtins__": {}}
        for link in self.links:
            if link.call is not None:
                inner[link.name] = result[link.name] = load_callable(link.call)
            else:
                inner[link.name] = result[link.name] = eval(str(link.source), inner)
        return result

    def function(self, parameters: Sequence[str] = ()) -> Callable[..., Operand]:
        """Return the expression as a Python function of record names, for tools and tests.

        >>> from streamkit.expressions import parse
        >>> parse("value.a + 1", ("value",)).function(["value"])({"a": 2})
        3
        """
        bindings = {name: symbol(f"_n_{name}") for name in parameters}
        header = ", ".join(bound.source for bound in bindings.values())
        body = self.code(bindings).at(CONDITION)
        scope: dict[str, object] = {"__builtins__": {}, **self.globals()}
        if self.draws:
            body = f"[{body} for _y_b in (_x_Budget(),)][0]"
            scope["_x_Budget"] = Budget
        function: Callable[..., Value] = eval(f"lambda {header}: {body}", scope)
        return function


class Link(NamedTuple):
    """A function of the file, by its name in generated code: a lambda's source, or a Python callable."""

    name: str
    source: str | None = None
    call: CallableRef | None = None


@dataclass(frozen=True)
class Function:
    """A function as written in the file: either `expr` over `params`, or `call`, a reference to a Python callable."""

    name: str
    params: tuple[str, ...] = ()
    expr: str | None = None
    call: CallableRef | None = None
    position: Position = field(default=Position("<functions>", 1, 1), compare=False)
    """The place of the name, for problems of the function itself."""
    expr_position: Position | None = field(default=None, compare=False)
    locate: Locate | None = field(default=None, compare=False)


@dataclass(frozen=True)
class Linked:
    """A function that expressions can use; `name` is its name in generated code."""

    name: str
    params: tuple[str, ...] = ()
    call: CallableRef | None = None
    links: tuple[Link, ...] = ()
    helpers: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    kind: str | None = None
    flags: int = 0
    cost: int = 1
    operations: int = 0
    uses_budget: bool = False
    problems: tuple[Problem, ...] = ()

    @property
    def broken(self) -> bool:
        """Whether the function has problems; every expression that uses it then has them too."""
        return bool(self.problems)
