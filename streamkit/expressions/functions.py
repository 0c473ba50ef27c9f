"""The functions of a file: checked together, used by name in its expressions."""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, replace
from types import MappingProxyType

from streamkit.errors import Problem
from streamkit.expressions.calls import CallableRef
from streamkit.expressions.expression import Function, Link, Linked
from streamkit.expressions.piece import IMPURE, LAZY
from streamkit.expressions.syntax import Source
from streamkit.expressions.translate import BUDGET, FUNCTIONS, CountedTranslator, Translator

_DEEPEST = 50
_BUILT_IN = frozenset(FUNCTIONS)


@dataclass(frozen=True, eq=False)
class _Functions(Mapping[str, Function]):
    """The functions of a file, and those of installed packages."""

    own: dict[str, Function]
    installed: Mapping[str, Function]

    def __getitem__(self, name: str) -> Function:
        if name in self.own or name in _BUILT_IN:
            return self.own[name]
        return self.installed[name]

    def __iter__(self) -> Iterator[str]:
        yield from self.own
        yield from self.installed

    def __len__(self) -> int:
        return len(self.own) + len(self.installed)


class Library(Mapping[str, Linked]):
    """All functions of a file, each checked once, on first use.

    `problems` contains the problems of all functions; an expression that uses such a function reports them too. installed: those of
    installed packages, which are searched for names that neither the file nor the language has.
    """

    def __init__(
        self,
        functions: Mapping[str, Function] | None = None,
        installed: Mapping[str, Function] = MappingProxyType({}),
        counts: bool = False,
    ):
        self.functions = _Functions(dict(functions or {}), installed)
        self.counts = counts
        self._counted: Library | None = None
        self._linked: dict[str, Linked] = {}
        self._path: list[str] = []
        self._problems: list[Problem] = []

    @property
    def counted(self) -> Library:
        """The same functions, translated with charges to a record's budget."""
        if self._counted is None:
            self._counted = Library(self.functions.own, self.functions.installed, counts=True)
        return self._counted

    def add(self, function: Function) -> str:
        """Add a function that a topology in Python passes; return its name, which no other function has."""
        name, number = function.name, 2
        while name in _BUILT_IN or self.functions.own.get(name, function).call != function.call:
            name, number = f"{function.name}{number}", number + 1
        for library in (self, self.counted):
            library.functions.own[name] = replace(function, name=name)
        return name

    @property
    def problems(self) -> list[Problem]:
        """Every problem of every function."""
        for name in self.functions.own:
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
        operations=translator.operations(tree),
        uses_budget=translator.uses_budget,
    )


def _impure(translator: Translator) -> bool:
    return any(link.call is not None for link in translator.links.values())
