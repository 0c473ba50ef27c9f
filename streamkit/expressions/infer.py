"""Infers the type of an expression from the known types, and reports fields that no value has.

Where a type is not certain it is ANY, which has every field: a reported field fails for every record.
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from functools import lru_cache

from streamkit.errors import Problem
from streamkit.expressions.expression import Expression
from streamkit.expressions.function_table import LIBRARY
from streamkit.expressions.syntax import Source
from streamkit.expressions.types import (
    ANY,
    BOOLEAN,
    BYTES,
    INTEGER,
    NOTHING,
    NUMBER,
    TEXT,
    ListOf,
    MapOf,
    OneOf,
    Record,
    Type,
    WindowedKey,
    field_names,
    item,
    member,
    one_of,
)
from streamkit.suggestions import did_you_mean

_CONSTANTS: dict[type, Type] = {
    str: TEXT,
    bool: BOOLEAN,
    int: INTEGER,
    float: NUMBER,
    bytes: BYTES,
    type(None): NOTHING,
}
_CALLS: dict[str, Type] = {
    "len": INTEGER,
    "int": INTEGER,
    "str": TEXT,
    "float": NUMBER,
    "bool": BOOLEAN,
    "now": INTEGER,
    **{function.name: function.type for function in LIBRARY.values()},
}


def infer(expression: Expression, names: Mapping[str, Type], problems: list[Problem]) -> Type:
    """Return the type of an expression whose names have these types (absent ones: ANY), and add problems."""
    source = Source(expression.text, expression.position, expression.locate)
    tree, tested = _tree(expression.text)
    if tree is None:  # a Python callable, whose text is its name
        return ANY
    reader = _TypeReader(source, names, tested)
    type_ = reader.of(tree)
    problems.extend(reader.problems)
    return type_


@lru_cache(maxsize=20_000)
def _tree(text: str) -> tuple[ast.expr | None, set[object]]:
    """Return the tree of an expression and the names that it tests for; nothing changes them."""
    tree = Source(text, None).parse([])
    return tree, set() if tree is None else _tested_names(tree)


def _tested_names(tree: ast.AST) -> set[object]:
    """Return the names that the expression itself tests for, as in `"user" in value`; these fields may be absent."""
    names: set[object] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Compare) and any(isinstance(operator, (ast.In, ast.NotIn)) for operator in node.ops):
            names.update(part.value for part in ast.walk(node) if isinstance(part, ast.Constant))
    return names


class _TypeReader:
    """Visits one expression; `scope` has the types of the bound names."""

    def __init__(self, source: Source, scope: Mapping[str, Type], tested_names: set[object]):
        self.source = source
        self.scope = dict(scope)
        self.tested_names = tested_names
        self.problems: list[Problem] = []

    def of(self, node: ast.AST) -> Type:
        """Return the type of a part."""
        method = getattr(self, f"on_{type(node).__name__}", None)
        if method is not None:
            type_: Type = method(node)
            return type_
        for child in ast.iter_child_nodes(node):
            self.of(child)
        return ANY

    def all_of(self, nodes: Iterable[ast.AST]) -> list[Type]:
        """Return the types of several parts."""
        return [self.of(node) for node in nodes]

    # -- Fields --

    def field(self, owner: Type, name: str, place: ast.AST) -> Type:
        """Return the type of a field, and report one that no value has."""
        type_ = member(owner, name)
        if type_ is not None or name in self.tested_names:
            return type_ or ANY
        known = field_names(owner)
        hint = did_you_mean(name, known, f"it has {', '.join(known)}" if known else "")
        self.problems.append(Problem(self.source.place(place), f"{owner.word} has no field {name!r}{hint}"))
        return ANY

    def on_Attribute(self, node: ast.Attribute) -> Type:
        return self.field(self.of(node.value), node.attr, node)

    def on_Subscript(self, node: ast.Subscript) -> Type:
        owner, index = self.of(node.value), node.slice
        if isinstance(index, ast.Constant) and isinstance(index.value, str):
            return self.field(owner, index.value, index)
        self.of(index)
        if isinstance(index, ast.Slice):
            return owner if isinstance(owner, ListOf) or owner is TEXT else ANY
        if isinstance(owner, MapOf):
            return owner.value
        return item(owner) if isinstance(owner, ListOf) else ANY

    # -- Names and calls --

    def on_Name(self, node: ast.Name) -> Type:
        return self.scope.get(node.id, ANY)

    def on_Call(self, node: ast.Call) -> Type:
        arguments = self.all_of(node.args)
        self.all_of(keyword.value for keyword in node.keywords)
        if isinstance(node.func, ast.Attribute):
            return _method(self.of(node.func.value), node)
        if not isinstance(node.func, ast.Name):
            return ANY
        name = node.func.id
        if name == "merge" and arguments and not any(isinstance(argument, ast.Starred) for argument in node.args):
            return _merged(arguments)
        if name == "get" and name not in self.scope:
            return _got(arguments, node.args)
        if name == "windowed_key" and arguments:
            return WindowedKey(arguments[0])
        if name in ("sorted", "list", "set") and len(arguments) == 1:
            return ListOf(item(arguments[0]))
        return ANY if name in self.scope else _CALLS.get(name, ANY)

    def on_Lambda(self, node: ast.Lambda) -> Type:
        outer = self.scope
        self.scope = {**outer, **{argument.arg: ANY for argument in node.args.args}}
        self.of(node.body)
        self.scope = outer
        return ANY

    # -- Literals --

    def on_Constant(self, node: ast.Constant) -> Type:
        return _CONSTANTS.get(type(node.value), ANY)

    def on_JoinedStr(self, node: ast.JoinedStr) -> Type:
        self.all_of(node.values)
        return TEXT

    def on_Dict(self, node: ast.Dict) -> Type:
        parts: list[Type] = []
        for key, value in zip(node.keys, node.values, strict=True):
            type_ = self.of(value)
            if key is None:
                parts.append(type_)
                continue
            self.of(key)
            is_field = isinstance(key, ast.Constant) and isinstance(key.value, str)
            parts.append(Record("the object", {key.value: type_}) if is_field else ANY)  # type: ignore[attr-defined]
        return _merged(parts) if parts else ANY

    def on_List(self, node: ast.List | ast.Set) -> Type:
        return ListOf(one_of(self.all_of(node.elts))) if node.elts else ListOf(ANY)

    on_Set = on_List

    # -- Operators --

    def on_IfExp(self, node: ast.IfExp) -> Type:
        self.of(node.test)
        return one_of([self.of(node.body), self.of(node.orelse)])

    def on_Compare(self, node: ast.Compare) -> Type:
        self.all_of([node.left, *node.comparators])
        return BOOLEAN

    def on_BoolOp(self, node: ast.BoolOp) -> Type:
        return one_of(self.all_of(node.values))

    # -- Loops --

    def on_ListComp(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> Type:
        outer = self._enter(node.generators)
        type_ = ListOf(self.of(node.elt))
        self.scope = outer
        return type_

    on_SetComp = on_GeneratorExp = on_ListComp

    def on_DictComp(self, node: ast.DictComp) -> Type:
        outer = self._enter(node.generators)
        self.of(node.key)
        type_ = MapOf(self.of(node.value))
        self.scope = outer
        return type_

    def _enter(self, generators: list[ast.comprehension]) -> dict[str, Type]:
        """Bind the loops' names, and return the scope around them."""
        outer = self.scope
        for generator in generators:
            one = item(self.of(generator.iter))
            self.scope = dict(self.scope)
            if isinstance(generator.target, ast.Name):
                self.scope[generator.target.id] = one
            else:
                self.scope.update((part.id, ANY) for part in ast.walk(generator.target) if isinstance(part, ast.Name))
            self.all_of(generator.ifs)
        return outer


def _method(owner: Type, node: ast.Call) -> Type:
    assert isinstance(node.func, ast.Attribute)
    name, first = node.func.attr, node.args[0] if node.args else None
    if name == "get" and isinstance(first, ast.Constant) and isinstance(first.value, str) and len(node.args) == 1:
        return member(owner, first.value) or ANY
    if name == "values" and isinstance(owner, MapOf):
        return ListOf(owner.value)
    return ListOf(TEXT) if name == "keys" and isinstance(owner, (Record, MapOf)) else ANY


def _got(arguments: list[Type], nodes: list[ast.expr]) -> Type:
    """Return the type of `get(value, path, default)`; an absent field is not a mistake."""
    path = nodes[1] if len(nodes) > 1 else None
    if not (isinstance(path, ast.Constant) and isinstance(path.value, str)):
        return ANY
    type_ = arguments[0]
    for part in path.value.split("."):
        inside = item(type_) if isinstance(type_, ListOf) and part.isdigit() else member(type_, part)
        type_ = inside or ANY
    return one_of([type_, *arguments[2:]])


def _merged(parts: list[Type]) -> Type:
    """Return the type of an object with the fields of several; later ones win."""
    if any(isinstance(part, OneOf) or not isinstance(part, Record) for part in parts):
        return ANY
    records = [part for part in parts if isinstance(part, Record)]
    fields = {name: type_ for record in records for name, type_ in record.fields.items()}
    return Record("the object", fields, closed=all(record.closed for record in records))


def type_of_text(text: str, names: Mapping[str, Type]) -> Type:
    """Return the type of an expression's text, ANY if it is none; for a part of an expression that is being typed."""
    source = Source(text, None)
    tree = source.parse([])
    return ANY if tree is None else _TypeReader(source, names, set()).of(tree)
