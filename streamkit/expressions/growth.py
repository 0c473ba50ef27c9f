"""What the syntax of an expression shows of its value: its kind, and how many times as large as each of its inputs it may be.

A flow has the parts of the inputs that a value is made of: by path into an input, how many times its size. Paths distinguish
parts that do not overlap, so that an object of ten fields of a record is as large as the record, and not ten times as large.
Values that the budget is charged for flow nowhere (translate.py).
"""

from __future__ import annotations

import ast
from collections.abc import Iterable, Mapping
from math import inf

from streamkit.expressions import methods
from streamkit.expressions.expression import Function
from streamkit.expressions.function_table import LIBRARY

Path = tuple[str, ...]
Flow = dict[Path, float]

_MOST_VISITS = 20_000
_SHORT = frozenset(("timestamp", "partition", "offset", "partitions", "topic"))
_NUMBERS = (ast.Div, ast.FloorDiv, ast.Pow, ast.LShift, ast.RShift, ast.Mult)
_LISTS = frozenset(("sorted", "list", "dict", "tuple", "set", "zip", "enumerate"))
_PARTS = frozenset(("partition", "rpartition", "split", "rsplit", "splitlines", "items", "keys", "values"))
_ESCAPED = 2.0
"""How many times as long a value is as text: quotes and backslashes in containers are escaped."""


def times_of(tree: ast.expr, names: Iterable[str], functions: Mapping[str, Function]) -> dict[str, float]:
    """Return by name how many times as large as that input the result is; `functions` are those of the file."""
    reader = _Reader(names, functions)
    try:
        return _factors(reader.of(tree))
    except (RecursionError, _TooMany):
        return {"": inf}


class _TooMany(Exception):
    """Functions call each other so often that the whole tree is not visited."""


class _Reader:
    """Visits an expression: `of` returns the flow into a part."""

    def __init__(self, names: Iterable[str], functions: Mapping[str, Function]):
        self.functions = functions
        self.scope: dict[str, Flow] = {name: {} if name in _SHORT else {(name,): 1.0} for name in names}
        self._visits = 0
        self._loops = 0

    def of(self, node: ast.AST) -> Flow:
        """Return the flow into a part; numbers have none."""
        self._visits += 1
        if self._visits > _MOST_VISITS:
            raise _TooMany
        method = getattr(self, f"on_{type(node).__name__}", None)
        if method is None or is_number(node):
            return {}
        found: Flow = method(node)
        return found

    def all(self, nodes: Iterable[ast.AST]) -> Flow:
        """Return the flow into several parts together."""
        return _total(*map(self.of, nodes))

    def on_Name(self, node: ast.Name) -> Flow:
        return self.scope.get(node.id, {})

    def on_Attribute(self, node: ast.Attribute) -> Flow:
        return _below(self.of(node.value), node.attr)

    def on_Subscript(self, node: ast.Subscript) -> Flow:
        owner, index = self.of(node.value), node.slice
        known = isinstance(index, ast.Constant) and (
            type(index.value) is str or (type(index.value) is int and index.value >= 0)
        )
        return _below(owner, str(index.value)) if known else owner  # type: ignore[attr-defined]

    def on_JoinedStr(self, node: ast.JoinedStr) -> Flow:
        parts = [part for part in node.values if isinstance(part, ast.FormattedValue)]
        return _total(
            *[
                _scaled(self.of(each.value), 1.0 if is_text(each.value) and each.conversion < 0 else _ESCAPED)
                for each in parts
            ]
        )

    def on_BinOp(self, node: ast.BinOp) -> Flow:
        if isinstance(node.op, _NUMBERS):
            return {}
        if isinstance(node.op, ast.Mod):
            return _scaled(self.of(node.right), _ESCAPED) if is_plain_format(node) else {}
        if isinstance(node.op, (ast.Sub, ast.BitAnd)):
            return self.of(node.left)
        return self.all((node.left, node.right))

    def on_BoolOp(self, node: ast.BoolOp) -> Flow:
        return _most(*map(self.of, node.values))

    def on_IfExp(self, node: ast.IfExp) -> Flow:
        return _most(self.of(node.body), self.of(node.orelse))

    def on_List(self, node: ast.List | ast.Tuple | ast.Set) -> Flow:
        return self.all(node.elts)

    on_Tuple = on_Set = on_List

    def on_Starred(self, node: ast.Starred) -> Flow:
        return self.of(node.value)

    def on_Dict(self, node: ast.Dict) -> Flow:
        return self.all((*filter(None, node.keys), *node.values))

    # -- Loops --

    def on_ListComp(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> Flow:
        return self._loop(node.generators, [node.elt])

    on_SetComp = on_GeneratorExp = on_ListComp

    def on_DictComp(self, node: ast.DictComp) -> Flow:
        return self._loop(node.generators, [node.key, node.value])

    def _loop(self, clauses: list[ast.comprehension], results: list[ast.expr]) -> Flow:
        if not clauses:
            return self.all(results)
        items, outer = self.of(clauses[0].iter), self.scope
        self._loops += 1
        root = f"~{self._loops}"
        self.scope = dict(outer)
        self._bind(clauses[0].target, {(root,): 1.0})
        made = self._loop(clauses[1:], results)
        self.scope = outer
        # What does not depend on the item is charged in each round.
        inside = [(path[1:], factor) for path, factor in made.items() if path[0] == root]
        return _total(
            *[{(*item, "*", *rest): factor * count} for item, count in items.items() for rest, factor in inside]
        )

    def _bind(self, target: ast.AST, flow: Flow) -> None:
        if isinstance(target, ast.Name):
            self.scope[target.id] = flow
        elif isinstance(target, (ast.Tuple, ast.List)):
            for index, part in enumerate(target.elts):
                self._bind(part, flow if isinstance(part, ast.Starred) else _below(flow, str(index)))
        elif isinstance(target, ast.Starred):
            self._bind(target.value, flow)

    # -- Calls --

    def on_Call(self, node: ast.Call) -> Flow:
        if isinstance(node.func, ast.Attribute):
            return self._method(node, node.func)
        name = node.func.id if isinstance(node.func, ast.Name) else ""
        if name in self.functions:
            return self._function(node, self.functions[name])
        if name == "get":
            return self._get(node)
        given = self.all(node.args)
        if name == "header":
            return {("headers", ast.unparse(node)): 1.0}
        if name in LIBRARY:
            return {} if LIBRARY[name].grows else _scaled(given, LIBRARY[name].factor)
        if name == "str":
            return _scaled(given, 1.0 if is_text(node.args[0]) else _ESCAPED) if node.args else {}
        if name in _LISTS and node.args:
            given = _total(
                given, *[self.of(each.value) for each in node.keywords if each.arg not in ("key", "default")]
            )
            return _scaled(given, 1.0 if is_container(node.args[0]) else 2.0)
        if name in ("min", "max"):
            return _most(given, *[self.of(each.value) for each in node.keywords if each.arg == "default"])
        return _scaled(given, 2.0) if name == "re_split" else {} if name == "range" else given

    def _get(self, node: ast.Call) -> Flow:
        found = self.of(node.args[0])
        path = node.args[1]
        if isinstance(path, ast.Constant) and isinstance(path.value, str):
            for part in path.value.split("."):
                found = _below(found, part)
        return _most(found, *map(self.of, node.args[2:]))

    def _function(self, node: ast.Call, function: Function) -> Flow:
        if function.expr is None:
            # The result of Python code counts as an input.
            return {(f"{function.name}()",): 1.0}
        outer = self.scope
        given = dict(zip(function.params, map(self.of, node.args), strict=False))
        named = {str(each.arg): self.of(each.value) for each in node.keywords}
        headers = {"headers": outer["headers"]} if "headers" in outer else {}
        self.scope = {**headers, **given, **named}
        found = self.of(ast.parse(f"({function.expr}\n)", mode="eval").body)
        self.scope = outer
        return found

    def _method(self, node: ast.Call, function: ast.Attribute) -> Flow:
        owner, name = self.of(function.value), function.attr
        first = node.args[0] if node.args else None
        if name == "get":
            known = isinstance(first, ast.Constant) and type(first.value) is str
            return _most(_below(owner, first.value) if known else owner, *map(self.of, node.args[1:]))  # type: ignore[union-attr]
        if methods.grows(node, name):
            return {}
        if name in _PARTS:
            return _scaled(owner, 2.0)
        given = _total(owner, self.all(node.args), *[self.of(each.value) for each in node.keywords])
        return _scaled(given, methods.factor(node, name))


# Flows


def _total(*flows: Flow) -> Flow:
    result: Flow = {}
    for flow in flows:
        for path, factor in flow.items():
            result[path] = result.get(path, 0.0) + factor
    return result


def _most(*flows: Flow) -> Flow:
    """Return a flow that is at least each of the given ones."""
    result: Flow = {}
    for flow in flows:
        for path, factor in flow.items():
            result[path] = max(result.get(path, 0.0), factor)
    return result


def _scaled(flow: Flow, factor: float) -> Flow:
    return {path: each * factor for path, each in flow.items()} if factor != 1.0 else flow


def _below(flow: Flow, part: str) -> Flow:
    """Return the flow into a named part of a value."""
    return {(*path, part): factor for path, factor in flow.items()}


def _factors(flow: Flow) -> dict[str, float]:
    """Return by input how many times its size a flow is at most: separate parts of an input do not add up.

    >>> _factors({("v", "a"): 1.0, ("v", "b"): 1.0, ("v",): 1.0})
    {'v': 2.0}
    """
    result: dict[str, float] = {}
    for path in flow:
        along = sum(flow.get(path[:length], 0.0) for length in range(1, len(path) + 1))
        result[path[0]] = max(result.get(path[0], 0.0), along)
    return result


# The kind of value of a part, as far as its syntax shows it.

_NUMBER_FUNCTIONS = frozenset(
    (
        *("len", "abs", "round", "int", "float", "bool", "any", "all", "re_match", "now"),
        *(each.name for each in LIBRARY.values() if each.kind in ("int", "number")),
    )
)
_TEXT_FUNCTIONS = frozenset(("str", "header", *(each.name for each in LIBRARY.values() if each.kind == "str")))
_TEXT_METHODS = frozenset(
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
_CONTAINER_FUNCTIONS = frozenset(
    ("sorted", "list", "dict", "tuple", "set", "zip", "enumerate", "range", "merge", "re_split")
)
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
            return node.func.id in _NUMBER_FUNCTIONS or one
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
        return (isinstance(node.func, ast.Attribute) and node.func.attr in _TEXT_METHODS) or is_number(node)
    if isinstance(node, ast.IfExp):
        return is_text(node.body) and is_text(node.orelse)
    return isinstance(node, ast.JoinedStr) or (isinstance(node, ast.Name) and node.id == "topic") or is_number(node)


def is_container(node: ast.AST) -> bool:
    """Return whether the value of a part is a container or an iterator, unless it fails; text is no container."""
    if isinstance(node, ast.Call):
        if isinstance(node.func, ast.Name):
            return node.func.id in _CONTAINER_FUNCTIONS
        return isinstance(node.func, ast.Attribute) and node.func.attr in ("items", "keys", "values", "split")
    if isinstance(node, ast.BinOp):
        return isinstance(node.op, ast.Add) and (is_container(node.left) or is_container(node.right))
    return isinstance(
        node, (ast.List, ast.Tuple, ast.Set, ast.Dict, ast.ListComp, ast.SetComp, ast.DictComp, ast.GeneratorExp)
    )


def is_safe_key(node: ast.AST) -> bool:
    """Return whether input can't choose equal hashes for a part's values: they are salted, or there are few of them."""
    return isinstance(node, (ast.JoinedStr, ast.Constant)) or (is_text(node) and not is_number(node))


def is_plain_format(node: ast.BinOp) -> bool:
    """Return whether the text that `%` makes is about as long as its parts: the format is a literal without widths."""
    text = node.left.value if isinstance(node.left, ast.Constant) else None
    return isinstance(node.op, ast.Mod) and isinstance(text, str) and set(text).isdisjoint("0123456789*(")
