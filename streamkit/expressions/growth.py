"""Bounds of the size of an expression's result and of its time, derived from its syntax tree.

A form is a bound that is linear in the sizes of inputs: a factor for each path into them, and a constant. A unit of size
is a character of text, or a word of 8 bytes in a container or number. Paths distinguish separate parts of an input: an
object of ten fields of a record counts as one record, not as ten.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from functools import partial
from math import inf

from streamkit.expressions.budget import MAX_BYTES, MAX_RANGE
from streamkit.expressions.expression import UNBOUNDED, Function, Growth
from streamkit.expressions.function_entry import CALL, WORK
from streamkit.expressions.function_table import LIBRARY
from streamkit.expressions.helpers import ALLOWED, PRODUCTS
from streamkit.expressions.regex import PatternError, is_literal, weight

MOST_VISITS = 20_000
_CONSTANT_STEPS = 400_000
"""The number of steps, independent of the input, that count as one step per unit of input."""
_SHORT = frozenset(("timestamp", "partition", "offset", "partitions", "topic"))
_SMALL_POWER = 8
_NUMBERS = (ast.Div, ast.FloorDiv, ast.Pow, ast.LShift, ast.RShift)


def growth_of(tree: ast.expr, names: Iterable[str], functions: Mapping[str, Function]) -> Growth:
    """Return the bounds of a checked expression; `functions` are those of the file (expressions.Function)."""
    reader = Reader(names, functions)
    try:
        size = reader.of(tree)
    except RecursionError:
        return UNBOUNDED
    work = sum(factor_of(reader.work).values()) + reader.work.get((), 0.0) / _CONSTANT_STEPS
    return Growth(factor_of(size), size.get((), 0.0), work)


class Reader:
    """Visits an expression: `of` returns the form of a part's size, `work` is the sum of the forms of its steps."""

    def __init__(self, names: Iterable[str], functions: Mapping[str, Function]):
        self.functions = functions
        self.scope: dict[str, Form] = {name: ONE if name in _SHORT else {(name,): 1.0} for name in names}
        self.work: Form = {}
        self._numeric: set[int] = set()
        self._lazy: set[int] = set()
        self._visits = 0
        self._locals = 0
        self._item = ""
        self._certain = True
        self._read: set[Path] = set()

    def of(self, node: ast.AST) -> Form:
        """Return the form of a part's size."""
        self._visits += 1
        if self._visits > MOST_VISITS:
            self.add_work({(): inf})
            return {(): inf}
        self.add_work(ONE)
        method = getattr(self, f"on_{type(node).__name__}", None)
        if method is None:
            return {(): inf}
        form: Form = method(node)
        return form

    def read(self, node: ast.AST) -> Form:
        """Return the form of a part that is consumed item by item, so that only one item is in memory."""
        self._lazy.add(id(node))
        return self.of(node)

    def is_read(self, node: ast.AST) -> bool:
        """Return whether a part is consumed by `read`."""
        return id(node) in self._lazy

    def add_work(self, form: Form, factor: float = 1.0) -> None:
        """Add work in proportion to a form."""
        self.work = total(self.work, scaled(form, factor))

    # -- Leaves --

    def on_Constant(self, node: ast.Constant) -> Form:
        if isinstance(node.value, int):
            return {(): 1.0 + node.value.bit_length() // 64}
        return {(): 1.0 + len(node.value)} if isinstance(node.value, (str, bytes)) else ONE

    def on_Name(self, node: ast.Name) -> Form:
        return self.scope.get(node.id, ONE)

    def on_Attribute(self, node: ast.Attribute) -> Form:
        return self._field(self.of(node.value), node.attr)

    def _field(self, owner: Form, name: str) -> Form:
        field = below(owner, name)
        if self._certain:
            self._read.update(field)
        return field

    def on_Subscript(self, node: ast.Subscript) -> Form:
        owner, index = self.of(node.value), node.slice
        if isinstance(index, ast.Constant) and type(index.value) is str:
            return self._field(owner, index.value)
        if isinstance(index, ast.Constant) and type(index.value) is int and index.value >= 0:
            return below(owner, f"#{index.value}")
        if isinstance(index, ast.Slice):
            for bound in (index.lower, index.upper, index.step):
                if bound is not None:
                    self.of(bound)
            self.add_work(owner, 1 / 32)
        else:
            self.add_hash_work(index, self.of(index))
        return owner

    def add_hash_work(self, node: ast.AST, form: Form) -> None:
        """Add the work of hashing a part, at each use, because a tuple does not cache its hash."""
        if not is_safe_key(node) and not is_number(node):
            self.add_work(form)

    def on_JoinedStr(self, node: ast.JoinedStr) -> Form:
        parts = [
            scaled(self.of(part.value), 1.0 if is_text(part.value) and part.conversion < 0 else 2.0)
            if isinstance(part, ast.FormattedValue)
            else self.of(part)
            for part in node.values
        ]
        self.add_work(total(*parts), 1 / 4)
        return total(HEADER, *parts)

    # -- Operators --

    def expect_number(self, *nodes: ast.AST) -> None:
        """Record that parts are numbers in every evaluation that does not fail (Core.expect_number)."""
        self._numeric.update(id(node) for node in nodes)

    def on_BinOp(self, node: ast.BinOp) -> Form:
        numeric = id(node) in self._numeric or is_number(node)
        if numeric or isinstance(node.op, (ast.Sub, *_NUMBERS[:2])):
            self.expect_number(node.left, node.right)
        left, right = self.of(node.left), self.of(node.right)
        if isinstance(node.op, _NUMBERS) or is_number(node) or (numeric and isinstance(node.op, (ast.Mult, ast.Mod))):
            return self._number(node, left, right)
        if isinstance(node.op, (ast.Sub, ast.BitAnd)):
            # On sets, the result is a part of the left operand; on numbers, it is a number.
            self.add_work(total(left, right), 1 / 8)
            return left
        if isinstance(node.op, ast.Mult):
            return self._product(node, left, right)
        if isinstance(node.op, ast.Mod):
            return self._format(node, left, right)
        self.add_work(total(left, right), 1 / 16)
        return total(HEADER, left, right)

    def _number(self, node: ast.BinOp, left: Form, right: Form) -> Form:
        """Return the form of a number; numbers in the input have one character per digit."""
        exponent = node.right.value if isinstance(node.right, ast.Constant) else None
        if isinstance(node.op, ast.Div) or isinstance(exponent, float):
            return NUMBER
        if isinstance(node.op, (ast.Pow, ast.LShift)) and not (isinstance(exponent, int) and exponent <= _SMALL_POWER):
            self.add_work(LONGEST)
            return LONGEST
        times = max(exponent, 1) if isinstance(node.op, ast.Pow) and isinstance(exponent, int) else 1
        operands = total(scaled(left, times), right)
        self.add_work({(): operands.get((), 0.0)})
        if isinstance(node.op, ast.FloorDiv):
            self.add_work(operands, 1 / 64)
        return total(NUMBER, scaled(operands, 1 / 16))

    def _product(self, node: ast.BinOp, left: Form, right: Form) -> Form:
        for one, other in ((node.left, right), (node.right, left)):
            if isinstance(one, ast.Constant) and type(one.value) is int and one.value <= 8:
                product = scaled(other, max(one.value, 1))
                self.add_work(product, 1 / 16)
                return product
        return {(): MAX_BYTES}

    def _format(self, node: ast.BinOp, left: Form, right: Form) -> Form:
        self.add_work({(): CALL})
        text = node.left.value if isinstance(node.left, ast.Constant) else None
        if isinstance(text, str) and not any(character in "0123456789*(" for character in text):
            text_form = total(HEADER, left, scaled(right, 2))
            self.add_work(text_form, 1 / 16)
            return text_form
        return {(): MAX_BYTES}

    def on_UnaryOp(self, node: ast.UnaryOp) -> Form:
        if not isinstance(node.op, ast.Not):
            self.expect_number(node.operand)
        operand = self.of(node.operand)
        return ONE if isinstance(node.op, ast.Not) else total(NUMBER, scaled(operand, 1 / 16))

    def on_BoolOp(self, node: ast.BoolOp) -> Form:
        first = self.of(node.values[0])
        return maximum(first, *self.of_conditional(node.values[1:]))

    def of_conditional(self, nodes: Iterable[ast.AST]) -> list[Form]:
        """Return the forms of parts that may not be evaluated."""
        certain, self._certain = self._certain, False
        forms = [self.of(node) for node in nodes]
        self._certain = certain
        return forms

    def on_IfExp(self, node: ast.IfExp) -> Form:
        if id(node) in self._numeric:
            self.expect_number(node.body, node.orelse)
        self.of(node.test)
        return maximum(*self.of_conditional((node.body, node.orelse)))

    def on_Compare(self, node: ast.Compare) -> Form:
        operands = [self.of(operand) for operand in (node.left, *node.comparators)]
        for operator, left, right in zip(node.ops, operands, operands[1:], strict=False):
            if isinstance(operator, (ast.In, ast.NotIn)):
                self.add_work(total(right, scaled({path: size for path, size in left.items() if path}, 1 / 8)))
            elif not isinstance(operator, (ast.Is, ast.IsNot)) and _varies(left) and _varies(right):
                # A comparison reads no more than the smaller operand.
                self.add_work(self._nearer(left, right), 1 / 4)
        return ONE

    def _nearer(self, left: Form, right: Form) -> Form:
        """Return the form that depends only on the innermost loop's item, if one does; else the right one."""
        return left if all(not path or path[0] == self._item for path in left) else right

    # -- Containers --

    def on_List(self, node: ast.List | ast.Tuple) -> Form:
        return total(HEADER, *[self.of(element) for element in node.elts])

    on_Tuple = on_List

    def on_Set(self, node: ast.Set) -> Form:
        parts = [self.of(element) for element in node.elts]
        for element, form in zip(node.elts, parts, strict=True):
            self.add_hash_work(element, form)
        return total(SET, *parts)

    def on_Starred(self, node: ast.Starred) -> Form:
        form = self.of(node.value)
        self.add_work(form, 1 / 4)
        return form

    def on_Dict(self, node: ast.Dict) -> Form:
        parts: list[Form] = [{(): OBJECT + ENTRY * len(node.keys)}]
        for key, value in zip(node.keys, node.values, strict=True):
            form = self.of(value)
            if key is None:
                self.add_work(form, 1 / 4)
                parts.append(form)
            elif isinstance(key, ast.Constant):
                length = len(key.value) if isinstance(key.value, (str, bytes)) else 1
                parts += [{(): length / 16}, form]
            else:
                parts += [self.of(key), form]
                self.add_hash_work(key, parts[-2])
        return total(*parts)

    # -- Loops --

    def on_ListComp(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> Form:
        header = HEADER if isinstance(node, ast.ListComp) else SET if isinstance(node, ast.SetComp) else ONE
        return total(header, self._loop(node.generators, [node.elt]))

    on_SetComp = on_GeneratorExp = on_ListComp

    def on_DictComp(self, node: ast.DictComp) -> Form:
        entry: Form = {(): ENTRY}
        return total(EMPTY, self._loop(node.generators, [node.key, node.value], entry))

    def _loop(self, clauses: list[ast.comprehension], results: list[ast.expr], entry: Form | None = None) -> Form:
        if not clauses:
            return total(entry or {}, *[self.of(result) for result in results])
        first, rest = clauses[0], clauses[1:]
        items = self.read(first.iter)

        def body() -> Form:
            for test in first.ifs:
                self.of(test)
            if rest or first.ifs:
                certain, self._certain = self._certain, self._certain and not first.ifs
                inside = self._loop(rest, results, entry)
                self._certain = certain
                return inside
            return self._loop(rest, results, entry)

        return self.repeated(items, {first.target: None}, body)

    def repeated(self, items: Form, targets: Mapping[ast.expr, None], body: Callable[[], Form]) -> Form:
        """Return the form of the results of `body` for all items, with names bound to parts of the item."""
        outer, work, read, certain, item = self.scope, self.work, self._read, self._certain, self._item
        self._locals += 1
        root = self._item = f"~{self._locals}"
        self.scope, self.work, self._read, self._certain = dict(outer), {}, set(), True
        for target in targets:
            self.bind(target, {(root,): 1.0})
        result = body()
        fields = sum(1 for path in self._read if path[:1] == (root,))
        inner, self.work = self.work, work
        self.scope, self._read, self._certain, self._item = outer, read, certain, item
        self.add_work(for_each_item(inner, items, root, fields))
        return for_each_item(result, items, root, fields)

    def bind(self, target: ast.AST, form: Form) -> None:
        """Bind a loop's names; several names are separate parts of the item."""
        if isinstance(target, ast.Name):
            self.scope[target.id] = form
        elif isinstance(target, (ast.Tuple, ast.List)):
            for index, part in enumerate(target.elts):
                self.bind(part, below(form, f"#{index}") if not isinstance(part, ast.Starred) else form)
        elif isinstance(target, ast.Starred):
            self.bind(target.value, form)

    # -- Calls --

    def on_Call(self, node: ast.Call) -> Form:
        return call(self, node)

    def on_Lambda(self, node: ast.Lambda) -> Form:
        # Python code of the user may call it any number of times.
        self.add_work({(): inf})
        return ONE


def _varies(form: Form) -> bool:
    return any(form)


# Growth of calls: built-in functions, methods, functions of the file.

_LARGEST: Form = {(): MAX_BYTES}
_NUMBER = 40.0
"""Bytes of a large number in a list."""
_LISTS = frozenset(("sorted", "list", "dict", "tuple", "set", "zip", "enumerate"))
_AS_LONG_TEXT = frozenset(("capitalize", "casefold", "decode", "lower", "swapcase", "title", "upper")) | {
    *("lstrip", "removeprefix", "removesuffix", "rstrip", "strip"),
}
"""Methods of text whose results are text of about its length, or shorter."""
_SAME = _AS_LONG_TEXT | {"copy", "encode"}
_PARTS = frozenset(["partition", "rpartition", "split", "rsplit", "splitlines", "items", "keys", "values"])
_READING = frozenset(("sum", "any", "all", "dict"))
"""Functions that consume an iterator without keeping its items."""
_SETS = frozenset(["union", "difference", "intersection", "symmetric_difference"])


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
    of = reader.read if name in _READING else reader.of
    arguments = [of(keyword) for keyword in node.args] + [reader.of(keyword.value) for keyword in node.keywords]
    inputs = total(*arguments)
    if name in LIBRARY:
        return _from_library(reader, node, arguments)
    if is_number(node):
        if name == "re_match":
            _add_search(reader, node, arguments)
        elif name not in ("len", "now"):
            reader.add_work(inputs)
        return NUMBER if name in ("len", "now") else total(NUMBER, scaled(inputs, 1 / 16))
    if name == "range":
        return {(): _range(node)}
    if name == "sum":
        reader.add_work(inputs)
        return inputs
    if name == "str":
        reader.add_work(inputs, 1 / 2)
        return total(HEADER, scaled(inputs, 1.0 if len(node.args) == 1 and is_text(node.args[0]) else 2.0))
    reader.add_work(inputs)
    if name in _LISTS:
        items = scaled(inputs, 1.0 if node.args and is_container(node.args[0]) else PIECES)
        if name in ("zip", "enumerate"):
            return items if reader.is_read(node) else scaled(items, PAIR)
        return total(SET if name == "set" else EMPTY if name == "dict" else HEADER, items)
    if name == "re_split":
        if not any(isinstance(pattern, ast.Constant) and is_literal(str(pattern.value)) for pattern in node.args[:1]):
            # A match takes microseconds, and each character may be a match.
            reader.add_work({(): inf})
        reader.add_work({(): CALL})
        return total(HEADER, scaled(inputs, PIECES))
    if name in ("merge", "header"):
        return inputs
    return {(): inf}


def _from_library(reader: Reader, node: ast.Call, arguments: list[Form]) -> Form:
    function = LIBRARY[node.func.id]  # type: ignore[attr-defined]
    if function.name == "get" and len(node.args) > 1:
        path = node.args[1]
        part = arguments[0]
        if isinstance(path, ast.Constant) and isinstance(path.value, str):
            for name in path.value.split("."):
                part = below(part, f"#{name}" if name.isdigit() else name)
        return maximum(part, *arguments[2:])
    inputs = total(*arguments)
    if function.name == "re_search":
        _add_search(reader, node, arguments)
    else:
        reader.add_work(total({(): CALL}, scaled(inputs, WORK)))
    if function.factor == inf:
        return {(): inf}
    constant: Form = {(): function.constant + _NUMBER / 8}
    return total(constant, scaled(inputs, function.factor)) if function.factor else constant


def _add_search(reader: Reader, node: ast.Call, arguments: list[Form]) -> None:
    """Add the work of a search for a pattern; it is unbounded if the pattern is not a constant."""
    pattern = node.args[0] if node.args else None
    work: Form = {(): inf}
    if isinstance(pattern, ast.Constant) and isinstance(pattern.value, str):
        with suppress(PatternError):
            work = scaled(total(*arguments[1:]), weight(pattern.value) / 4)
    reader.add_work(total({(): CALL}, work))


def _range(node: ast.Call) -> float:
    bounds = [
        argument.value for argument in node.args if isinstance(argument, ast.Constant) and type(argument.value) is int
    ]
    if len(bounds) != len(node.args) or not bounds:
        return _NUMBER * MAX_RANGE
    try:
        return _NUMBER * len(range(*bounds)) + 1.0
    except (TypeError, ValueError, OverflowError):
        return _NUMBER * MAX_RANGE


def _ordered(reader: Reader, node: ast.Call, name: str) -> Form:
    """`sorted`, `min` and `max`, which compare items or their keys."""
    items = [reader.of(argument) for argument in node.args]
    inputs = total(*items)
    reader.add_work(inputs, 16.0 if name == "sorted" else 1.0)
    for keyword in node.keywords:
        if isinstance(keyword.value, ast.Lambda):
            key = keyword.value
            keys = reader.repeated(
                inputs, {ast.Name(argument.arg): None for argument in key.args.args}, partial(reader.of, key.body)
            )
            reader.add_work(keys, 16.0 if name == "sorted" else 1.0)
        elif not isinstance(keyword.value, ast.Name) or keyword.value.id in reader.scope:
            inputs = total(inputs, reader.of(keyword.value))
    if name == "sorted":
        return inputs if is_container(node.args[0]) else scaled(inputs, 2.0)
    return maximum(*items) if len(items) > 1 else inputs


def _function(reader: Reader, node: ast.Call, function: Function) -> Form:
    arguments = [reader.of(argument) for argument in node.args]
    named = {keyword.arg: reader.of(keyword.value) for keyword in node.keywords}
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
    result = reader.of(body)
    reader.scope = outer
    return result


def _method(reader: Reader, node: ast.Call, function: ast.Attribute) -> Form:
    owner, name = reader.of(function.value), function.attr
    arguments = [reader.of(argument) for argument in node.args] + [
        reader.of(argument.value) for argument in node.keywords
    ]
    first = node.args[0] if node.args else None
    if name == "get":
        known = isinstance(first, ast.Constant) and type(first.value) is str
        if first is not None:
            reader.add_hash_work(first, arguments[0])
        field = below(owner, first.value) if known else owner  # type: ignore[union-attr]
        return maximum(field, *arguments[1:])
    inputs = total(*arguments)
    if name in PRODUCTS and any(arguments):
        longest = len(first.value) if isinstance(first, ast.Constant) and isinstance(first.value, (str, bytes)) else 0
        if not longest and factor_of(inputs):
            reader.add_work({(): inf})
        reader.add_work(owner, max(longest, 1) / 8)
    else:
        reader.add_work(total(owner, inputs), 1 / 4)
    if is_number(node):
        return ONE
    if name in _SAME:
        return total(HEADER, owner)
    if name in _PARTS:
        return total(HEADER, scaled(owner, PIECES))
    if name in _SETS:
        return total(SET, owner, inputs)
    return _text(node, name, owner, inputs)


def _text(node: ast.Call, name: str, owner: Form, inputs: Form) -> Form:
    """Return the form of methods whose results may be much larger than their text."""
    literals = [argument.value for argument in node.args if isinstance(argument, ast.Constant)]
    known = len(literals) == len(node.args)
    if name == "join" and not any(owner):
        return total(scaled(inputs, 1.0 + owner.get((), 0.0)), ONE)
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
        return total({(): OBJECT + ENTRY}, owner, scaled(inputs, ENTRY))
    return _LARGEST


# Forms: bounds that are linear in the sizes of inputs, as factors by path; the empty path is a constant.

Path = tuple[str, ...]
Form = dict[Path, float]

ONE: Form = {(): 1.0}
HEADER: Form = {(): 7.0}
"""The overhead of a text, a list or a tuple, in words."""
SET: Form = {(): 27.0}
NUMBER: Form = {(): 4.0}
LONGEST: Form = {(): 72.0}
"""The size of an integer of MAX_BITS, in words."""
OBJECT, ENTRY = 16.0, 3.0
"""The overhead of an object, and of each of its entries, in words."""
EMPTY: Form = {(): OBJECT}
PAIR = 4.0
"""The overhead of `zip` and `enumerate` per item, in words: a tuple."""
PIECES = 3.0
"""The size of split text, in words per character: a piece of two characters and a separator takes nine words."""


def total(*forms: Form) -> Form:
    """Return the sum of forms.

    >>> total({("a",): 1.0}, {("a",): 1.0, (): 3.0})
    {('a',): 2.0, (): 3.0}
    """
    result: Form = {}
    for form in forms:
        for path, factor in form.items():
            result[path] = result.get(path, 0.0) + factor
    return result


def maximum(*forms: Form) -> Form:
    """Return the maximum of forms, path by path."""
    result: Form = {}
    for form in forms:
        for path, factor in form.items():
            result[path] = max(result.get(path, 0.0), factor)
    return result


def scaled(form: Form, factor: float) -> Form:
    """Return a form times a factor."""
    return {path: size * factor for path, size in form.items()} if factor != 1.0 else form


def below(form: Form, part: str) -> Form:
    """Return the form of a named part of a value with this form."""
    return {(*path, part) if path else path: factor for path, factor in form.items()}


def for_each_item(body: Form, items: Form, root: str, fields: int) -> Form:
    """Return the form for all items, where `body` is the form for one item.

    root: the first part of paths into an item; fields: the minimum number of different fields of an item. The constant part
    counts once per item, and the size of the items bounds their number.
    """
    result: Form = {}
    least = 1.0 + 2.0 * fields
    for path, factor in body.items():
        if path and path[0] == root:
            for item, count in items.items():
                inside = (*item, "*", *path[1:]) if item else item
                result[inside] = result.get(inside, 0.0) + factor * count
        elif path:
            # A value from outside the loop, once per item: bounded only if the number of items is constant.
            known = items.get((), 0.0) if not any(items) else inf
            result[path] = result.get(path, 0.0) + factor * known
        else:
            for item, count in items.items():
                result[item] = result.get(item, 0.0) + factor * count / (least if item else 1.0)
    return result


def factor_of(form: Form) -> dict[str, float]:
    """Return the maximum factor of a form for each input. Separate parts of an input do not add up.

    >>> factor_of({("v", "a"): 1.0, ("v", "b"): 1.0, ("v",): 1.0, (): 7.0})
    {'v': 2.0}
    """
    result: dict[str, float] = {}
    for path in form:
        if path:
            along = sum(form.get(path[:length], 0.0) for length in range(1, len(path) + 1))
            result[path[0]] = max(result.get(path[0], 0.0), along)
    return result


# The kind of value of a part of an expression, if its syntax determines it.


_NUMBER_CALLS = frozenset(
    (
        *("len", "abs", "round", "int", "float", "bool", "any", "all", "re_match", "now"),
        *(function.name for function in LIBRARY.values() if function.kind in ("int", "number")),
    )
)
_TEXT_FUNCTIONS = frozenset(
    ("str", "header", *(function.name for function in LIBRARY.values() if function.kind == "str"))
)
_TEXT = _AS_LONG_TEXT | {"expandtabs", "join", "ljust", "replace", "rjust", "zfill"}
_CONTAINERS = frozenset(("sorted", "list", "dict", "tuple", "set", "zip", "enumerate", "range", "merge", "re_split"))
_NUMBER_METHODS = {name for name in ALLOWED if name.startswith("is")} | frozenset(
    ("count", "endswith", "find", "index", "rfind", "rindex", "startswith", "bit_count", "bit_length")
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
            return node.func.id in _NUMBER_CALLS or one
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
    """Return whether no input can force hash collisions among a part's values: the hashes are salted, or constant."""
    return isinstance(node, (ast.JoinedStr, ast.Constant)) or (is_text(node) and not is_number(node))
