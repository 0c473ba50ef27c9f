"""Bounds of the size of an expression's result and of its time, derived from its syntax tree.

A form is a bound that is linear in the sizes of inputs: a factor for each path into them, and a constant. Sizes count
characters of text, entries of containers and numbers. Paths distinguish separate parts of an input, so that an object
of ten fields of a record is as large as the record, and not ten times as large.
"""

from __future__ import annotations

import ast
from collections.abc import Callable, Iterable, Mapping
from math import inf
from typing import TYPE_CHECKING, NamedTuple

from streamkit.expressions.analysis import growth_calls
from streamkit.expressions.analysis.forms import ONE, Form, Path, below, each_of, factor_of, most, scaled, total
from streamkit.expressions.analysis.value_kinds import is_number, is_safe_key, is_text
from streamkit.expressions.expression_limits import MAX_BYTES, MAX_TOTAL

if TYPE_CHECKING:
    from streamkit.expressions.functions import Function

MOST_VISITS = 20_000
MOST_TIMES = 32
"""How many times as large as a record's input its values may be without being counted."""
MOST_BYTES = MAX_TOTAL
"""Bytes that may be made in addition without being counted."""
MOST_WORK = 256
"""Elementary steps for each unit of a record's input without being counted."""
SMALL = 20_000
_CONSTANT_STEPS = 100_000
"""How many steps that do not depend on the input count as one for each unit of it."""
_SHORT = frozenset(("timestamp", "partition", "offset", "partitions", "topic"))
_NUMBERS = (ast.Div, ast.FloorDiv, ast.Pow, ast.LShift, ast.RShift)


class Growth(NamedTuple):
    """Bounds of an expression. size: by name, how many times an input may be in the result; constant: the size of the rest.

    work: elementary steps for each unit of an input's size, of all names together.
    """

    size: Mapping[str, float]
    constant: float
    work: float

    @property
    def factor(self) -> float:
        """How many times as large as each of its inputs the result may be."""
        return sum(self.size.values())

    @property
    def is_none(self) -> bool:
        """Whether the result is no larger than its inputs, and made in constant time."""
        return self.factor <= 1 and self.constant <= SMALL and self.work <= 0.1

    @property
    def is_bounded(self) -> bool:
        """Whether an evaluation needs no charges to a budget."""
        return self.factor <= MOST_TIMES and self.constant <= MOST_BYTES and self.work <= MOST_WORK


NONE = Growth({}, 0.0, 0.0)
UNBOUNDED = Growth({}, inf, inf)


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
        found: Form = method(node)
        return found

    def add_work(self, form: Form, factor: float = 1.0) -> None:
        """Add work in proportion to a form."""
        self.work = total(self.work, scaled(form, factor))

    # -- Leaves --

    def on_Constant(self, node: ast.Constant) -> Form:
        return {(): 1.0 + len(node.value)} if isinstance(node.value, (str, bytes)) else ONE

    def on_Name(self, node: ast.Name) -> Form:
        return self.scope.get(node.id, ONE)

    def on_Attribute(self, node: ast.Attribute) -> Form:
        return self._field(self.of(node.value), node.attr)

    def _field(self, owner: Form, name: str) -> Form:
        found = below(owner, name)
        if self._certain:
            self._read.update(found)
        return found

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
        """Add the work of hashing a part: a tuple does not keep its hash."""
        if not is_safe_key(node) and not is_number(node):
            self.add_work(form)

    def on_JoinedStr(self, node: ast.JoinedStr) -> Form:
        parts = [
            scaled(self.of(part.value), 1.0 if is_text(part.value) and part.conversion < 0 else 2.0)
            if isinstance(part, ast.FormattedValue)
            else self.of(part)
            for part in node.values
        ]
        made = total(*parts)
        self.add_work(made, 1 / 16)
        return made

    # -- Operators --

    def expect_number(self, *nodes: ast.AST) -> None:
        """Record that parts are numbers, or the expression fails (Core.expect_number)."""
        self._numeric.update(id(node) for node in nodes)

    def on_BinOp(self, node: ast.BinOp) -> Form:
        numeric = id(node) in self._numeric
        if numeric or isinstance(node.op, (ast.Sub, *_NUMBERS[:2])):
            self.expect_number(node.left, node.right)
        left, right = self.of(node.left), self.of(node.right)
        if isinstance(node.op, _NUMBERS) or is_number(node) or (numeric and isinstance(node.op, ast.Mult)):
            return ONE
        if isinstance(node.op, (ast.Sub, ast.BitAnd)):
            # Of sets; the difference of numbers is a number.
            self.add_work(total(left, right), 1 / 8)
            return left
        if isinstance(node.op, ast.Mult):
            return self._product(node, left, right)
        if isinstance(node.op, ast.Mod):
            return self._format(node, left, right)
        made = total(left, right)
        self.add_work(made, 1 / 16)
        return made

    def _product(self, node: ast.BinOp, left: Form, right: Form) -> Form:
        for one, other in ((node.left, right), (node.right, left)):
            if isinstance(one, ast.Constant) and type(one.value) is int and one.value <= 8:
                made = scaled(other, max(one.value, 1))
                self.add_work(made, 1 / 16)
                return made
        return {(): MAX_BYTES}

    def _format(self, node: ast.BinOp, left: Form, right: Form) -> Form:
        text = node.left.value if isinstance(node.left, ast.Constant) else None
        if isinstance(text, str) and not any(character in "0123456789*(" for character in text):
            made = total(left, scaled(right, 2))
            self.add_work(made, 1 / 16)
            return made
        return {(): MAX_BYTES}

    def on_UnaryOp(self, node: ast.UnaryOp) -> Form:
        if not isinstance(node.op, ast.Not):
            self.expect_number(node.operand)
        self.of(node.operand)
        return ONE

    def on_BoolOp(self, node: ast.BoolOp) -> Form:
        first = self.of(node.values[0])
        return most(first, *self.of_conditional(node.values[1:]))

    def of_conditional(self, nodes: Iterable[ast.AST]) -> list[Form]:
        """Return the forms of parts that may not be evaluated."""
        certain, self._certain = self._certain, False
        found = [self.of(node) for node in nodes]
        self._certain = certain
        return found

    def on_IfExp(self, node: ast.IfExp) -> Form:
        if id(node) in self._numeric:
            self.expect_number(node.body, node.orelse)
        self.of(node.test)
        return most(*self.of_conditional((node.body, node.orelse)))

    def on_Compare(self, node: ast.Compare) -> Form:
        operands = [self.of(each) for each in (node.left, *node.comparators)]
        for operator, left, right in zip(node.ops, operands, operands[1:], strict=False):
            if isinstance(operator, (ast.In, ast.NotIn)):
                self.add_work(total(right, scaled({path: each for path, each in left.items() if path}, 1 / 8)))
            elif not isinstance(operator, (ast.Is, ast.IsNot)) and _varies(left) and _varies(right):
                # A comparison reads no more than the smaller one has.
                self.add_work(self._nearer(left, right), 1 / 8)
        return ONE

    def _nearer(self, left: Form, right: Form) -> Form:
        """Return the bound that depends on the item of the innermost loop alone, if one of the two does."""
        return left if all(not path or path[0] == self._item for path in left) else right

    # -- Containers --

    def on_List(self, node: ast.List | ast.Tuple) -> Form:
        return total(ONE, *[self.of(each) for each in node.elts])

    on_Tuple = on_List

    def on_Set(self, node: ast.Set) -> Form:
        parts = [self.of(each) for each in node.elts]
        for each, form in zip(node.elts, parts, strict=True):
            self.add_hash_work(each, form)
        return total(ONE, *parts)

    def on_Starred(self, node: ast.Starred) -> Form:
        made = self.of(node.value)
        self.add_work(made, 1 / 4)
        return made

    def on_Dict(self, node: ast.Dict) -> Form:
        parts: list[Form] = [{(): 1.0}]
        for key, value in zip(node.keys, node.values, strict=True):
            made = self.of(value)
            if key is None:
                self.add_work(made, 1 / 4)
                parts.append(made)
            elif isinstance(key, ast.Constant):
                length = len(key.value) if isinstance(key.value, (str, bytes)) else 1
                parts += [{(): 1 + length / 16}, made]
            else:
                parts += [self.of(key), made]
                self.add_hash_work(key, parts[-2])
        return total(*parts)

    # -- Loops --

    def on_ListComp(self, node: ast.ListComp | ast.SetComp | ast.GeneratorExp) -> Form:
        return self._loop(node.generators, [node.elt])

    on_SetComp = on_GeneratorExp = on_ListComp

    def on_DictComp(self, node: ast.DictComp) -> Form:
        return self._loop(node.generators, [node.key, node.value])

    def _loop(self, clauses: list[ast.comprehension], results: list[ast.expr]) -> Form:
        if not clauses:
            return total(*[self.of(each) for each in results])
        first, rest = clauses[0], clauses[1:]
        items = self.of(first.iter)

        def body() -> Form:
            for test in first.ifs:
                self.of(test)
            if rest or first.ifs:
                certain, self._certain = self._certain, self._certain and not first.ifs
                made = self._loop(rest, results)
                self._certain = certain
                return made
            return self._loop(rest, results)

        return self.repeated(items, {first.target: None}, body)

    def repeated(self, items: Form, targets: Mapping[ast.expr, None], body: Callable[[], Form]) -> Form:
        """Return the form of the results of `body` for all items, with names bound to parts of the item."""
        outer, work, read, certain, item = self.scope, self.work, self._read, self._certain, self._item
        self._locals += 1
        root = self._item = f"~{self._locals}"
        self.scope, self.work, self._read, self._certain = dict(outer), {}, set(), True
        for target in targets:
            self.bind(target, {(root,): 1.0})
        made = body()
        fields = sum(1 for path in self._read if path[:1] == (root,))
        inner, self.work = self.work, work
        self.scope, self._read, self._certain, self._item = outer, read, certain, item
        self.add_work(each_of(inner, items, root, fields))
        return each_of(made, items, root, fields)

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
        return growth_calls.call(self, node)

    def on_Lambda(self, node: ast.Lambda) -> Form:
        # Python code of the user may call it any number of times.
        self.add_work({(): inf})
        return ONE


def _varies(form: Form) -> bool:
    return any(form)
