"""The functions of a file: checked together, used by name in its expressions."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, NamedTuple

from streamkit.code import ATOM, CONDITION, Code, symbol
from streamkit.errors import Position, Problem
from streamkit.expressions.calls import CallableRef, load_callable
from streamkit.expressions.growth import NONE, Growth
from streamkit.expressions.piece import IMPURE, LAZY
from streamkit.expressions.syntax import Locate, Source

if TYPE_CHECKING:
    from streamkit.expressions.translate import Translator
    from streamkit.record import Value


@dataclass(frozen=True)
class Function:
    """A function as the file has it: either `expr` over `params`, or `call`, a reference to a Python callable."""

    name: str
    params: tuple[str, ...] = ()
    expr: str | None = None
    call: CallableRef | None = None
    position: Position = field(default=Position("<functions>", 1, 1), compare=False)
    """The place of the name, for problems of the function itself."""
    expr_position: Position | None = field(default=None, compare=False)
    locate: Locate | None = field(default=None, compare=False)


class Linked:
    """A function ready for use in expressions; `name` is the one in generated code."""

    params: tuple[str, ...] = ()
    call: CallableRef | None = None
    links: tuple[Link, ...] = ()
    helpers: frozenset[str] = frozenset()
    names: frozenset[str] = frozenset()
    kind: str | None = None
    flags = 0
    cost = 1
    uses_budget = False
    problems: tuple[Problem, ...] = ()

    def __init__(self, name: str, **fields: object):
        self.name = name
        for field_name, value in fields.items():
            setattr(self, field_name, value)

    @property
    def broken(self) -> bool:
        """Whether the function has problems, which every expression that uses it has too."""
        return bool(self.problems)


_DEEPEST = 50


class Library(Mapping[str, Linked]):
    """All functions of a file, each checked once, on first use.

    `problems` has those of all functions; expressions that use a function with problems report the same ones.
    """

    def __init__(self, functions: Mapping[str, Function] | None = None, counts: bool = False):
        self.functions = dict(functions or {})
        self.counts = counts
        self._counted: Library | None = None
        self._linked: dict[str, Linked] = {}
        self._path: list[str] = []
        self._problems: list[Problem] = []

    @property
    def counted(self) -> Library:
        """The same functions, translated with charges to a record's budget."""
        if self._counted is None:
            self._counted = Library(self.functions, counts=True)
        return self._counted

    @property
    def problems(self) -> list[Problem]:
        """Every problem of every function."""
        for name in self.functions:
            self.get(name)
        return self._problems

    def __iter__(self) -> Iterator[str]:
        return iter(self.functions)

    def __len__(self) -> int:
        return len(self.functions)

    def __getitem__(self, name: str) -> Linked:
        function = self.functions[name]
        if name in self._path:
            cycle = " -> ".join([*self._path[self._path.index(name) :], name])
            return self._broken(function, f"functions call each other in a circle: {cycle}")
        if len(self._path) > _DEEPEST:
            return self._broken(function, f"functions call each other over {_DEEPEST} levels deep")
        if name not in self._linked:
            self._path.append(name)
            try:
                self._linked[name] = self._link(function)
            finally:
                self._path.pop()
        return self._linked[name]

    def _broken(self, function: Function, message: str) -> Linked:
        problem = Problem(function.position, message)
        self._problems.append(problem)
        return Linked(function.name, problems=(problem,))

    def _link(self, function: Function) -> Linked:
        if function.call is not None:
            name = f"_x_c_{_mark(function.name, reference_key(function.call))}"
            return Linked(name, call=function.call, links=(Link(name, call=function.call),))
        before = len(self._problems)
        self._check_params(function)
        source = Source(function.expr or "", function.expr_position or function.position, function.locate)
        linked = _translated(function, source, self, self._problems)
        linked.problems = tuple(dict.fromkeys(self._problems[before:]))
        self._problems[before:] = [each for each in linked.problems if each not in self._problems[:before]]
        return linked

    def _check_params(self, function: Function) -> None:
        seen: set[str] = set()
        for param in function.params:
            if not isinstance(param, str) or not param.isidentifier() or param.startswith("_"):
                self._problems.append(Problem(function.position, f"{param!r} can't be a parameter's name"))
            elif param in seen:
                self._problems.append(Problem(function.position, f"parameter {param!r} stands twice"))
            seen.add(param)


def reference_key(call: CallableRef) -> str:
    """Return a text that identifies a callable with its arguments."""
    arguments = "".join(f":{each.name}={each.data}" for each in call.arguments)
    return f"{call.folder}:{call.module}:{call.attribute}{arguments}"


def _mark(name: str, text: str) -> str:
    # Generated code puts the functions of all its expressions into one namespace.
    return f"{name}_{zlib.crc32(text.encode('utf-8', 'surrogatepass')):08x}"


def _translated(function: Function, source: Source, library: Library, problems: list[Problem]) -> Linked:
    from streamkit.expressions.translate import BUDGET, CountedTranslator, Translator

    tree = source.parse(problems)
    if tree is None:
        return Linked(function.name)
    scope = {param: f"_y_p_{index}" for index, param in enumerate(function.params)}
    kind = CountedTranslator if library.counts else Translator
    translator = kind(("headers",), library, source.place, scope)
    piece = translator.translate(tree)
    problems += translator.problems
    hidden = frozenset(piece.refs - set(scope.values()))
    parameters = [*scope.values(), *[f"_y_h_{name}" for name in sorted(hidden)]]
    if translator.uses_budget:
        parameters.append(BUDGET)
    text = piece.source
    for name in hidden:
        text = text.replace(f"\0{name}\0", f"_y_h_{name}")
    text = f"lambda {', '.join(parameters)}: {text}"
    name = f"_x_f_{_mark(function.name, text + ''.join(sorted(translator.links)))}"
    return Linked(
        name,
        params=function.params,
        links=(*translator.links.values(), Link(name, source=text)),
        helpers=frozenset(translator.helpers),
        names=hidden,
        kind=piece.kind,
        flags=piece.flags & ~LAZY & ~(0 if _impure(translator) else IMPURE),
        cost=1 + translator.calls,
        uses_budget=translator.uses_budget,
    )


def _impure(translator: Translator) -> bool:
    return any(link.call is not None for link in translator.links.values())


# Checked expressions as immutable data.


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
        from streamkit.expressions.translate import HELPERS

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
            from streamkit.expressions.budget import Budget

            body = f"[{body} for _y_b in (_x_Budget(),)][0]"
            scope["_x_Budget"] = Budget
        function: Callable[..., Value] = eval(f"lambda {header}: {body}", scope)
        return function
