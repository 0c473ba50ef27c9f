"""The kind of value of a part of an expression, if its syntax determines it."""

from __future__ import annotations

import ast

from streamkit.expressions.function_table import LIBRARY

_NUMBERS = frozenset(
    (
        *("len", "abs", "round", "int", "float", "bool", "any", "all", "re_match", "now"),
        *(each.name for each in LIBRARY.values() if each.kind in ("int", "number")),
    )
)
_TEXT_FUNCTIONS = frozenset(("str", "header", *(each.name for each in LIBRARY.values() if each.kind == "str")))
_TEXT = frozenset(
    [
        "capitalize",
        "casefold",
        "expandtabs",
        "join",
        "ljust",
        "lower",
        "lstrip",
        "removeprefix",
        "removesuffix",
        "replace",
        "rjust",
        "rstrip",
        "strip",
        "swapcase",
        "title",
        "upper",
        "zfill",
        "decode",
    ]
)
_CONTAINERS = frozenset(("sorted", "list", "dict", "tuple", "set", "zip", "enumerate", "range", "merge", "re_split"))
_NUMBER_METHODS = frozenset(
    [
        "count",
        "endswith",
        "find",
        "index",
        "isalnum",
        "isalpha",
        "isascii",
        "isdigit",
        "islower",
        "isspace",
        "istitle",
        "isupper",
        "rfind",
        "rindex",
        "startswith",
        "isdecimal",
        "isidentifier",
        "isnumeric",
        "isprintable",
        "bit_count",
        "bit_length",
        "is_integer",
        "isdisjoint",
        "issubset",
        "issuperset",
    ]
)


def is_number(node: ast.AST) -> bool:
    """Return whether the value of a part is a number or a boolean, unless it fails."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, (int, float))
    if isinstance(node, (ast.Compare, ast.UnaryOp)):
        return True
    if isinstance(node, ast.BinOp):
        return _is_number_operation(node)
    if isinstance(node, (ast.IfExp, ast.BoolOp)):
        parts = (node.body, node.orelse) if isinstance(node, ast.IfExp) else tuple(node.values)
        return all(map(is_number, parts))
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name):
            one = node.func.id == "sum" and len(node.args) == 1 and not node.keywords
            return node.func.id in _NUMBERS or one
        return isinstance(node.func, ast.Attribute) and node.func.attr in _NUMBER_METHODS
    return False


def _is_number_operation(node: ast.BinOp) -> bool:
    left, right = is_number(node.left), is_number(node.right)
    if isinstance(node.op, (ast.Div, ast.FloorDiv, ast.Pow, ast.LShift, ast.RShift)):
        return True
    if isinstance(node.op, ast.Mod):
        return left
    if isinstance(node.op, ast.Mult):
        return (left and right) or _is_float(node.left) or _is_float(node.right)
    return left or right


def _is_float(node: ast.AST) -> bool:
    return (isinstance(node, ast.Constant) and isinstance(node.value, float)) or (
        isinstance(node, ast.BinOp) and isinstance(node.op, ast.Div)
    )


def is_text(node: ast.AST) -> bool:
    """Return whether the value of a part is text or a number, unless it fails."""
    if isinstance(node, ast.Constant):
        return isinstance(node.value, str) or is_number(node)
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name):
            return node.func.id in _TEXT_FUNCTIONS or is_number(node)
        return (isinstance(node.func, ast.Attribute) and node.func.attr in _TEXT) or is_number(node)
    if isinstance(node, ast.IfExp):
        return is_text(node.body) and is_text(node.orelse)
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Name) and node.id == "topic") or is_number(node)


def is_container(node: ast.AST) -> bool:
    """Return whether the value of a part is a container or an iterator, unless it fails; text is not a container."""
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name):
            return node.func.id in _CONTAINERS
        return isinstance(node.func, ast.Attribute) and node.func.attr in ("items", "keys", "values", "split")
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Add) and (is_container(node.left) or is_container(node.right))
    return isinstance(
        node, (ast.List, ast.Tuple, ast.Set, ast.Dict, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
    )


def is_safe_key(node: ast.AST) -> bool:
    """Return whether input can't choose equal hashes for a part's values: they are salted, or there are few of them."""
    return isinstance(node, (ast.JoinedStr, ast.Constant)) or (is_text(node) and not is_number(node))
