"""Growth of calls: built-in functions, methods, functions of the file."""

from __future__ import annotations

import ast
from functools import partial
from math import inf
from typing import TYPE_CHECKING

from streamkit.expressions.analysis.forms import ONE, Form, below, factor_of, most, scaled, total
from streamkit.expressions.analysis.value_kinds import is_container, is_number, is_text
from streamkit.expressions.evaluation.regex import is_literal
from streamkit.expressions.expression_limits import MAX_BYTES, MAX_RANGE
from streamkit.expressions.library.function_table import LIBRARY

if TYPE_CHECKING:
    from streamkit.expressions.analysis.growth import Reader
    from streamkit.expressions.functions import Function

_MUCH: Form = {(): MAX_BYTES}
_NUMBER = 40.0
"""Bytes of a large number in a list."""
_LISTS = frozenset(("sorted", "list", "dict", "tuple", "set", "zip", "enumerate"))
_SAME = frozenset(
    [
        "capitalize",
        "casefold",
        "lower",
        "lstrip",
        "removeprefix",
        "removesuffix",
        "rstrip",
        "strip",
        "swapcase",
        "title",
        "upper",
        "copy",
        "decode",
        "encode",
    ]
)
_PARTS = frozenset(["partition", "rpartition", "split", "rsplit", "splitlines", "items", "keys", "values"])
_SETS = frozenset(["union", "difference", "intersection", "symmetric_difference"])
_BACKWARD = frozenset(["rfind", "rindex", "rsplit", "rpartition", "strip", "lstrip", "rstrip"])
"""Methods whose time may be the product of the lengths of text and argument."""


def call(reader: Reader, node: ast.Call) -> Form:
    """Return the form of a call's result."""
    if isinstance(node.func, ast.Attribute):
        return _method(reader, node, node.func)
    name = node.func.id if isinstance(node.func, ast.Name) else ""
    function = reader.functions.get(name)
    if function is not None:
        return _function(reader, node, function)
    if name in ("abs", "round") or (name == "sum" and len(node.args) == 1 and not node.keywords):
        for argument in node.args:
            loop = isinstance(argument, (ast.GeneratorExp, ast.ListComp))
            reader.expect_number(argument.elt if loop else argument)  # type: ignore[attr-defined]
    if name in ("sorted", "min", "max"):
        return _ordered(reader, node, name)
    arguments = [reader.of(each) for each in node.args] + [reader.of(each.value) for each in node.keywords]
    given = total(*arguments)
    if name in LIBRARY:
        return _from_library(reader, node, arguments)
    if is_number(node):
        if name not in ("len", "now"):
            reader.add_work(given)
        return ONE
    if name == "range":
        return {(): _range(node)}
    if name == "sum":
        reader.add_work(given)
        return given
    if name == "str":
        reader.add_work(given, 1 / 8)
        return scaled(given, 1.0 if len(node.args) == 1 and is_text(node.args[0]) else 2.0)
    reader.add_work(given)
    if name in _LISTS:
        return scaled(given, 1.0 if node.args and is_container(node.args[0]) else 2.0)
    if name == "re_split":
        if not any(isinstance(each, ast.Constant) and is_literal(str(each.value)) for each in node.args[:1]):
            # A match takes microseconds, and each character may be one.
            reader.add_work({(): inf})
        return scaled(given, 2.0)
    if name in ("merge", "header"):
        return given
    return {(): inf}


def _from_library(reader: Reader, node: ast.Call, arguments: list[Form]) -> Form:
    function = LIBRARY[node.func.id]  # type: ignore[attr-defined]
    if function.name == "get" and len(node.args) > 1:
        path = node.args[1]
        found = arguments[0]
        if isinstance(path, ast.Constant) and isinstance(path.value, str):
            for part in path.value.split("."):
                found = below(found, f"#{part}" if part.isdigit() else part)
        return most(found, *arguments[2:])
    given = total(*arguments)
    reader.add_work({(): inf} if function.work == inf else scaled(given, function.work))
    if function.factor == inf:
        return {(): inf}
    return (
        total({(): function.constant}, scaled(given, function.factor)) if function.factor else {(): function.constant}
    )


def _range(node: ast.Call) -> float:
    found = [each.value for each in node.args if isinstance(each, ast.Constant) and type(each.value) is int]
    if len(found) != len(node.args) or not found:
        return _NUMBER * MAX_RANGE
    try:
        return _NUMBER * len(range(*found)) + 1.0
    except (TypeError, ValueError, OverflowError):
        return _NUMBER * MAX_RANGE


def _ordered(reader: Reader, node: ast.Call, name: str) -> Form:
    """`sorted`, `min` and `max`, which compare items or their keys."""
    items = [reader.of(each) for each in node.args]
    given = total(*items)
    reader.add_work(given, 16.0 if name == "sorted" else 1.0)
    for keyword in node.keywords:
        if isinstance(keyword.value, ast.Lambda):
            key = keyword.value
            made = reader.repeated(
                given, {ast.Name(each.arg): None for each in key.args.args}, partial(reader.of, key.body)
            )
            reader.add_work(made, 16.0 if name == "sorted" else 1.0)
        elif not isinstance(keyword.value, ast.Name) or keyword.value.id in reader.scope:
            given = total(given, reader.of(keyword.value))
    if name == "sorted":
        return given if is_container(node.args[0]) else scaled(given, 2.0)
    return most(*items) if len(items) > 1 else given


def _function(reader: Reader, node: ast.Call, function: Function) -> Form:
    arguments = [reader.of(each) for each in node.args]
    named = {each.arg: reader.of(each.value) for each in node.keywords}
    if function.expr is None:
        # The result of Python code counts as an input.
        return {(f"{function.name}()",): 1.0}
    outer = reader.scope
    headers = {"headers": outer["headers"]} if "headers" in outer else {}
    reader.scope = {**headers, **dict(zip(function.params, arguments, strict=False)), **named}  # type: ignore[dict-item]
    try:
        body = ast.parse(f"({function.expr}\n)", mode="eval").body
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return {(): inf}
    made = reader.of(body)
    reader.scope = outer
    return made


def _method(reader: Reader, node: ast.Call, function: ast.Attribute) -> Form:
    owner, name = reader.of(function.value), function.attr
    arguments = [reader.of(each) for each in node.args] + [reader.of(each.value) for each in node.keywords]
    first = node.args[0] if node.args else None
    if name == "get":
        known = isinstance(first, ast.Constant) and type(first.value) is str
        if first is not None:
            reader.add_hash_work(first, arguments[0])
        found = below(owner, first.value) if known else owner  # type: ignore[union-attr]
        return most(found, *arguments[1:])
    given = total(*arguments)
    if name in _BACKWARD and any(arguments):
        longest = len(first.value) if isinstance(first, ast.Constant) and isinstance(first.value, (str, bytes)) else 0
        if not longest and factor_of(given):
            reader.add_work({(): inf})
        reader.add_work(owner, max(longest, 1) / 8)
    else:
        reader.add_work(total(owner, given), 1 / 4)
    if is_number(node):
        return ONE
    if name in _SAME:
        return owner
    if name in _PARTS:
        return scaled(owner, 2.0)
    if name in _SETS:
        return total(owner, given)
    return _text(node, name, owner, given)


def _text(node: ast.Call, name: str, owner: Form, given: Form) -> Form:
    """Return the form of methods whose results may be much larger than their text."""
    literals = [each.value for each in node.args if isinstance(each, ast.Constant)]
    known = len(literals) == len(node.args)
    if name == "join" and not any(owner):
        return total(scaled(given, 1.0 + owner.get((), 0.0)), ONE)
    if name == "replace" and known and len(literals) >= 2:
        old, new = literals[0], literals[1]
        if isinstance(old, (str, bytes)) and isinstance(new, (str, bytes)) and old:
            return scaled(owner, max(1.0, len(new) / len(old)))
    if name in ("ljust", "rjust", "center", "zfill", "to_bytes") and known and literals and type(literals[0]) is int:
        return total(owner, {(): float(max(literals[0], 0))})
    if name == "expandtabs" and not node.args and not node.keywords:
        return scaled(owner, 8.0)
    if name in ("hex", "as_integer_ratio", "conjugate", "fromhex", "from_bytes"):
        return scaled(owner, 3.0) if name == "hex" else ONE
    if name in ("maketrans", "fromkeys"):
        return total(owner, scaled(given, 2.0))
    return _MUCH
