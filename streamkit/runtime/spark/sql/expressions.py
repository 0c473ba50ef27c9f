"""Expressions of steps as typed SQL. Whatever SQL does not give exactly as Python does is refused, with its place."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from streamkit.errors import UntranslatableError
from streamkit.expressions import Expression
from streamkit.expressions.syntax import Source
from streamkit.runtime.spark.sql.terms import (
    BOOLEAN,
    INTEGER,
    LARGEST,
    NOTHING,
    NUMBER,
    OBJECT,
    TEXT,
    WINDOWED,
    Guard,
    Term,
    literal,
    object_of,
)

_ORDERS: dict[type[ast.cmpop], str] = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_ARITHMETIC: dict[type[ast.operator], str] = {ast.Add: "try_add", ast.Sub: "try_subtract", ast.Mult: "try_multiply"}
_MOST_MEMBERS = 1000
"""Constants beside `in`: a condition for each of them."""
_MOST_MADE = 24 << 20
"""Bytes that the expressions of one record may make together: Python counts up to two for each, and ends at 64 MiB."""
_PART, _READ = 64, 8
"""Bytes that a part of an expression counts, and of how many bytes of text that it reads and does not make one counts."""
_LONGEST_SQL = 20_000
"""Characters of a value with its guards: a step that names a value twice doubles them."""
_DIGITS = 20
"""Bytes of a whole number of 64 bits as text, which is longer than None."""


@dataclass
class Made:
    """The most bytes that the steps of a stage make of one record."""

    size: int = 0

    @property
    def fits(self) -> bool:
        """Whether Python takes as much of one record."""
        return self.size <= _MOST_MADE


def parse(expression: Expression) -> tuple[ast.expr, Source]:
    """Return the tree of an expression, and the places in it. Raises UntranslatableError if it calls functions of the user.

    The file may define a function that has the name of one of the language, and takes its place.
    """
    source = Source(expression.text, expression.position, expression.locate)
    tree = None if expression.links else source.parse([])
    if tree is None:
        at = source.position
        what = "is a function of Python" if expression.called is not None else "calls a function of the file"
        raise UntranslatableError(f"{at.file}:{at.line}: {expression.text} {what}")
    return tree, source


def translate(expression: Expression, names: Mapping[str, Term], made: Made | None = None) -> Term:
    """Return an expression as SQL. Raises UntranslatableError with the part and its line.

    names: the parts of the record; made: what other expressions make of it, to which this one adds.
    """
    tree, source = parse(expression)
    return Translator(source, names, made).of(tree)


def translate_condition(expression: Expression, names: Mapping[str, Term], made: Made | None = None) -> Term:
    """Return the truth of an expression as SQL, as `translate`."""
    tree, source = parse(expression)
    return Translator(source, names, made).condition(tree)


class Translator:
    """Translates one expression."""

    def __init__(self, source: Source, names: Mapping[str, Term], made: Made | None = None):
        self._source = source
        self._names = names
        self._made = Made() if made is None else made

    def of(self, node: ast.AST) -> Term:
        """Return a part of the expression as SQL. Raises UntranslatableError."""
        method: Callable[[ast.AST], Term] | None = getattr(self, f"on_{type(node).__name__}", None)
        if method is None:
            return self.refuse(node, "it has no exact form in SQL")
        return self.limited(node, method(node))

    def limited(self, node: ast.AST, term: Term) -> Term:
        """Return a part if it passes no limit of Python's, or of SQL. Raises UntranslatableError."""
        is_made = isinstance(node, (ast.BinOp, ast.JoinedStr, ast.Dict))
        self._made.size += _PART + (term.size if is_made else term.size // _READ if term.kind == TEXT else 0)
        if term.size > LARGEST or not self._made.fits:
            return self.refuse(node, "a record's texts may make it too large for Python")
        if len(term.sql) + sum(len(each.sql) for each in term.guards) > _LONGEST_SQL:
            return self.refuse(node, f"it has more than {_LONGEST_SQL:,} characters in SQL")
        return term

    def refuse(self, node: ast.AST, reason: str) -> Term:
        """Raise UntranslatableError for a part."""
        at = self._source.place(node)
        raise UntranslatableError(f"{at.file}:{at.line}: {ast.unparse(node)}: {reason}")

    def guard(self, node: ast.AST, sql: str, reason: str) -> Guard:
        """Return a guard whose reason names a part of the expression."""
        at = self._source.place(node)
        return Guard(sql, f"{at.file}:{at.line}: {ast.unparse(node)}: {reason}")

    def _all_present(self, node: ast.AST, terms: Sequence[Term]) -> list[Guard]:
        """Return what holds if no operand is null: Python's operators fail at None."""
        return [self.guard(node, f"({each.sql} IS NOT NULL)", "an operand is null") for each in terms if each.nullable]

    # -- Parts of the record --

    def on_Name(self, node: ast.Name) -> Term:
        found = self._names.get(node.id)
        if found is not None and found.kind == WINDOWED:
            return self.refuse(node, "only its fields are columns")
        return self.refuse(node, "only the key and the value of a record are columns") if found is None else found

    def on_Attribute(self, node: ast.Attribute) -> Term:
        return self._field(node, self._owner(node.value), node.attr)

    def on_Subscript(self, node: ast.Subscript) -> Term:
        name = node.slice.value if isinstance(node.slice, ast.Constant) else None
        if not isinstance(name, str):
            return self.refuse(node, "only fields of objects by their names are columns")
        return self._field(node, self._owner(node.value), name)

    def _owner(self, node: ast.expr) -> Term:
        """Return what a part names a field of: a windowed key has fields, and is no value itself."""
        found = self._names.get(node.id) if isinstance(node, ast.Name) else None
        return found if found is not None and found.kind == WINDOWED else self.of(node)

    def _field(self, node: ast.AST, owner: Term, name: str) -> Term:
        if owner.kind not in (OBJECT, WINDOWED):
            return self.refuse(node, f"{owner.kind} has no fields")
        found = owner.fields.get(name)
        if found is None:
            return self.refuse(
                node, f"there is no column {name}, or one of a type that SQL does not treat as Python does"
            )
        return replace(found, guards=(*owner.guards, *self._all_present(node, [owner]), *found.guards))

    def on_Call(self, node: ast.Call) -> Term:
        """`value.get("name")`: a column has the field in each row, so that a default is evaluated and never used."""
        method, name = node.func, node.args[0] if node.args else None
        is_get = isinstance(method, ast.Attribute) and method.attr == "get" and not node.keywords
        if not is_get or len(node.args) > 2 or not (isinstance(name, ast.Constant) and isinstance(name.value, str)):
            return self.refuse(node, "only get(NAME) of an object has an exact form in SQL")
        assert isinstance(method, ast.Attribute)
        owner = self.of(method.value)
        guards = [guard for each in node.args[1:] for guard in self.of(each).guards]
        return self._field(node, replace(owner, guards=(*owner.guards, *guards)), name.value)

    # -- Literals --

    def on_Constant(self, node: ast.Constant) -> Term:
        value = node.value
        found = literal(value) if value is None or isinstance(value, (str, int, float)) else None
        return (
            self.refuse(node, "constants are text, numbers, whole ones of 64 bits, True, False and None")
            if found is None
            else found
        )

    def on_Dict(self, node: ast.Dict) -> Term:
        fields: dict[str, Term] = {}
        guards: list[Guard] = []
        for key, item in zip(node.keys, node.values, strict=True):
            if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
                return self.refuse(node, "the names of an object's fields must be constants")
            found = self.of(item)
            guards += found.guards
            fields[key.value] = found.without_guards()
        return object_of(fields, guards) if fields else self.refuse(node, "it has no fields")

    def on_JoinedStr(self, node: ast.JoinedStr) -> Term:
        parts: list[str] = []
        guards: list[Guard] = []
        size = 0
        for each in node.values:
            is_plain = isinstance(each, ast.FormattedValue) and each.conversion == -1 and each.format_spec is None
            if not (is_plain or isinstance(each, ast.Constant)):
                return self.refuse(node, "only plain values in braces have an exact form in SQL")
            found = self.of(each.value if isinstance(each, ast.FormattedValue) else each)
            if found.kind not in (TEXT, INTEGER):
                return self.refuse(node, f"{found.kind} in braces has no exact form in SQL")
            guards += found.guards
            size += max(found.size, _DIGITS)
            text = found.sql if found.kind == TEXT else f"CAST({found.sql} AS STRING)"
            parts.append(f"coalesce({text}, 'None')" if found.nullable else text)
        return Term(TEXT, f"concat({', '.join(parts)})" if parts else "''", guards=tuple(guards), size=size)

    # -- Operators --

    def on_UnaryOp(self, node: ast.UnaryOp) -> Term:
        if isinstance(node.op, ast.Not):
            operand = self.condition(node.operand)
            return Term(BOOLEAN, f"(NOT {operand.sql})", guards=operand.guards)
        value = node.operand.value if isinstance(node.operand, ast.Constant) else None
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and isinstance(node.op, ast.USub)
        found = literal(-value) if isinstance(value, (int, float)) and is_number else None
        return self.refuse(node, "it has no exact form in SQL") if found is None else found

    def on_BinOp(self, node: ast.BinOp) -> Term:
        left, right = self.of(node.left), self.of(node.right)
        guards = [*left.guards, *right.guards]
        if left.kind == right.kind == TEXT and isinstance(node.op, ast.Add):
            present = self._all_present(node, [left, right])
            sql, size = f"concat({left.sql}, {right.sql})", left.size + right.size
            return Term(TEXT, sql, guards=(*guards, *present), size=size)
        function = _ARITHMETIC.get(type(node.op))
        if function is None or not left.kind == right.kind == INTEGER:
            return self.refuse(node, f"an operator of {left.kind} and {right.kind} that SQL does not have exactly")
        result = f"{function}({left.sql}, {right.sql})"
        fits = self.guard(node, f"({result} IS NOT NULL)", "an operand is null, or the result has over 64 bits")
        return Term(INTEGER, result, guards=(*guards, fits))

    def on_BoolOp(self, node: ast.BoolOp) -> Term:
        """`and` and `or` as a value: an operand rather than its truth, so that all must be booleans."""
        terms = [self.of(each) for each in node.values]
        if any(each.kind != BOOLEAN or each.nullable for each in terms):
            return self.refuse(node, "an operand of and, or is no boolean, or may be null")
        return _joined(node, terms)

    def condition(self, node: ast.expr) -> Term:
        """Return the truth of a part, which is never null if its guards hold. Raises UntranslatableError."""
        if isinstance(node, ast.BoolOp):
            return self.limited(node, _joined(node, [self.condition(each) for each in node.values]))
        found = self.of(node)
        return Term(BOOLEAN, found.truth, guards=found.guards)

    def on_IfExp(self, node: ast.IfExp) -> Term:
        test, body, other = self.condition(node.test), self.of(node.body), self.of(node.orelse)
        kinds = {body.kind, other.kind} - {NOTHING}
        if len(kinds) != 1 or OBJECT in kinds:
            return self.refuse(node, "its two values are of different kinds, or objects")
        inside = [guard.under(test.sql) for guard in body.guards]
        outside = [guard.under(f"NOT {test.sql}") for guard in other.guards]
        sql = f"if({test.sql}, {body.sql}, {other.sql})"
        guards, size = (*test.guards, *inside, *outside), max(body.size, other.size)
        return Term(kinds.pop(), sql, body.nullable or other.nullable, guards, size=size)

    # -- Comparisons --

    def on_Compare(self, node: ast.Compare) -> Term:
        """A comparison, also of several: an operand is evaluated only if the comparisons before it are true."""
        left = self.of(node.left)
        conditions: list[str] = []
        guards = list(left.guards)
        for operator, operand in zip(node.ops, node.comparators, strict=True):
            if isinstance(operator, (ast.In, ast.NotIn)):
                right, condition, own = left, self._member(node, left, operand), list[Guard]()
                condition = condition if isinstance(operator, ast.In) else f"(NOT {condition})"
            else:
                right = self.of(operand)
                condition, own = self._pair(node, left, operator, right)
            guards += [each.under(" AND ".join(conditions)) if conditions else each for each in (*right.guards, *own)]
            conditions.append(condition)
            left = right.without_guards()
        return Term(BOOLEAN, f"({' AND '.join(conditions)})", guards=tuple(guards))

    def _pair(self, node: ast.Compare, left: Term, operator: ast.cmpop, right: Term) -> tuple[str, list[Guard]]:
        """Return the condition of one comparison, and what must hold for it."""
        if NOTHING in (left.kind, right.kind) and isinstance(operator, (ast.Is, ast.IsNot, ast.Eq, ast.NotEq)):
            condition = (left if right.kind == NOTHING else right).is_null
            return (condition if isinstance(operator, (ast.Is, ast.Eq)) else f"(NOT {condition})"), []
        # Spark makes a double of a whole number beside one: exactly only for constants.
        whole = next((each for each in (left, right) if each.kind == INTEGER), None)
        is_mixed = {left.kind, right.kind} == {INTEGER, NUMBER} and whole is not None and whole.is_double
        if (
            (left.kind != right.kind and not is_mixed)
            or left.kind == OBJECT
            or isinstance(operator, (ast.Is, ast.IsNot))
        ):
            self.refuse(node, f"{left.kind} is compared with {right.kind}")
        if isinstance(operator, (ast.Eq, ast.NotEq)):
            condition = f"({left.sql} <=> {right.sql})"
            return (condition if isinstance(operator, ast.Eq) else f"(NOT {condition})"), []
        if left.kind == BOOLEAN or type(operator) not in _ORDERS:
            self.refuse(node, f"an order of {left.kind} is no comparison that SQL has exactly")
        return f"({left.sql} {_ORDERS[type(operator)]} {right.sql})", self._all_present(node, [left, right])

    def _member(self, node: ast.Compare, left: Term, operand: ast.expr) -> str:
        """Return the condition that a value is among constants."""
        items = operand.elts if isinstance(operand, (ast.List, ast.Tuple, ast.Set)) else []
        if not 0 < len(items) <= _MOST_MEMBERS or not all(isinstance(each, ast.Constant) for each in items):
            self.refuse(node, "only a list of constants beside in has an exact form in SQL")
        found = [self.of(each) for each in items]
        if any(each.kind not in (left.kind, NOTHING) for each in found) or left.kind in (OBJECT, NOTHING):
            self.refuse(node, f"{left.kind} is looked for among values of another kind")
        return f"({' OR '.join(f'({left.sql} <=> {each.sql})' for each in found)})"


def _joined(node: ast.BoolOp, terms: Sequence[Term]) -> Term:
    """Return conditions joined by `and` or `or`: the next is evaluated only if those before do not decide."""
    word = "AND" if isinstance(node.op, ast.And) else "OR"
    guards = list(terms[0].guards)
    before = terms[0].sql
    for each in terms[1:]:
        guards += [guard.under(before if word == "AND" else f"NOT ({before})") for guard in each.guards]
        before = f"{before} {word} {each.sql}"
    return Term(BOOLEAN, f"({before})", guards=tuple(guards))
