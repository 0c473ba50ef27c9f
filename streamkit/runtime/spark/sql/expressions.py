"""Translates expressions of steps into typed SQL. Refuses each part whose result in SQL might differ from Python's, with its position."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from streamkit.errors import UntranslatableError
from streamkit.expressions import Expression
from streamkit.expressions.calls import CallableRef
from streamkit.expressions.syntax import Source
from streamkit.expressions.translate import call_name
from streamkit.runtime.spark.sql.terms import (
    BOOLEAN,
    COLUMN_TYPES,
    INTEGER,
    LARGEST,
    LIST,
    LOWEST,
    NESTED,
    NOTHING,
    NUMBER,
    OBJECT,
    TEXT,
    UNREAD,
    WINDOWED,
    Guard,
    Term,
    list_of,
    literal,
    object_of,
    quoted_text,
)

_ORDERS: dict[type[ast.cmpop], str] = {ast.Lt: "<", ast.LtE: "<=", ast.Gt: ">", ast.GtE: ">="}
_ARITHMETIC: dict[type[ast.operator], str] = {ast.Add: "try_add", ast.Sub: "try_subtract", ast.Mult: "try_multiply"}
_OF_DOUBLES: dict[type[ast.operator], str] = {**_ARITHMETIC, ast.Div: "try_divide"}
_FINITE = "CAST('Infinity' AS DOUBLE)"
_BEYOND = "CAST('9223372036854775808' AS DOUBLE)"
"""The smallest positive number beyond the 64-bit integers."""
_LARGEST_DOUBLE = 1 << 53
"""Whole numbers up to this limit are exact as doubles, so that their quotient is rounded only once, as in Python."""
_SPACES = "".join(map(chr, filter(lambda code: chr(code).isspace(), range(1 << 16))))
_TRIMS = {"strip": "BOTH", "lstrip": "LEADING", "rstrip": "TRAILING"}
_TESTS = ("startswith", "endswith")
_CASES = ("upper", "lower")
_MOST_MEMBERS = 1000
"""The maximum number of constants after `in`; each of them becomes a condition."""
_MOST_MADE = 24 << 20
"""Bytes that the expressions of one record may make together: Python counts up to two for each, and ends at 64 MiB."""
_PART, _READ = 64, 8
"""Bytes that a part of an expression counts, and of how many bytes of text that it reads and does not make one counts."""
_LONGEST_SQL = 20_000
"""Characters of a value with its guards: a step that names a value twice doubles them."""
_BEHIND = 1 << 30
"""A place behind the end of every text."""
_LONGEST_SPLIT = 1 << 12
"""The maximum size of a text that is split, in bytes, so that Python can process all of its records together."""
MOST_ITEMS = _LONGEST_SPLIT + 1
_DIGITS = 20
"""Bytes of a whole number of 64 bits as text, which is longer than None."""


@dataclass
class Footprint:
    """The most bytes that the steps of a stage make of one record. times: records that a step may make of one.

    The size of a text that each of these has is that of all of them together.
    """

    size: int = 0
    times: int = 1

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


@dataclass(frozen=True)
class Call:
    """A call of a user's function, whose result depends only on its arguments. shown: the call in messages."""

    ref: CallableRef
    arguments: tuple[Term, ...]
    shown: str


def translate_call(expression: Expression, names: Mapping[str, Term], footprint: Footprint | None) -> Call | None:
    """Return an expression that is one call of a Python function of the file; None for another one.

    Raises UntranslatableError for arguments that have no exact form, or that the function might change.
    """
    source = Source(expression.text, expression.position, expression.locate)
    tree = source.parse([]) if len(expression.links) == 1 else None
    ref = expression.links[0].call if expression.links else None
    if ref is None or not isinstance(tree, ast.Call) or not isinstance(tree.func, ast.Name) or tree.keywords:
        return None
    called = [node.id for argument in tree.args for node in ast.walk(argument) if isinstance(node, ast.Name)]
    is_known = expression.links[0].name == call_name(tree.func.id, ref)
    if not tree.args or not is_known or tree.func.id in called:
        return None
    translator = Translator(source, names, footprint)
    arguments = tuple(map(translator.of, tree.args))
    for node, term in zip(tree.args, arguments, strict=True):
        if term.kind not in COLUMN_TYPES:
            translator.refuse(node, f"{term.kind} is no column")
    at = source.position
    return Call(ref, arguments, f"{at.file}:{at.line}: {expression.text}")


@dataclass(frozen=True)
class Items:
    """The items of a list. sql: an array of them; item: each of them, without SQL."""

    sql: str
    item: Term
    guards: tuple[Guard, ...]


def translate(expression: Expression, names: Mapping[str, Term], footprint: Footprint | None = None) -> Term:
    """Return an expression as SQL. Raises UntranslatableError with the part and its line.

    names: the parts of the record; footprint: what other expressions make of it, to which this one adds.
    """
    tree, source = parse(expression)
    return Translator(source, names, footprint).of(tree)


def translate_condition(expression: Expression, names: Mapping[str, Term], footprint: Footprint | None = None) -> Term:
    """Return the truth of an expression as SQL, as `translate`."""
    tree, source = parse(expression)
    return Translator(source, names, footprint).condition(tree)


class Translator:
    """Translates one expression."""

    def __init__(self, source: Source, names: Mapping[str, Term], footprint: Footprint | None):
        self._source = source
        self._names = names
        self._footprint = Footprint() if footprint is None else footprint

    def of(self, node: ast.AST) -> Term:
        """Return a part of the expression as SQL. Raises UntranslatableError."""
        method: Callable[[ast.AST], Term] | None = getattr(self, f"on_{type(node).__name__}", None)
        if method is None:
            return self.refuse(node, "it has no exact form in SQL")
        return self.limited(node, method(node))

    def limited(self, node: ast.AST, term: Term) -> Term:
        """Return a part if it passes no limit of Python's, or of SQL. Raises UntranslatableError."""
        is_made = isinstance(node, (ast.BinOp, ast.JoinedStr, ast.Dict, ast.List, ast.Call, ast.Slice))
        self._footprint.size += _PART * self._footprint.times + (
            term.size if is_made else term.size // _READ if term.kind == TEXT else 0
        )
        if term.size > LARGEST or not self._footprint.fits:
            return self.refuse(node, "a record's texts may make it too large for Python")
        if len(term.sql) + sum(len(guard.sql) for guard in term.guards) > _LONGEST_SQL:
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
        return [self.guard(node, f"({term.sql} IS NOT NULL)", "an operand is null") for term in terms if term.nullable]

    # -- Parts of the record --

    def on_Name(self, node: ast.Name) -> Term:
        term = self._names.get(node.id)
        if term is not None and term.kind == WINDOWED:
            return self.refuse(node, "only its fields are columns")
        if term is not None and term.kind == UNREAD:
            return self.refuse(node, "a stage in Python writes it, with a serde of values of any type")
        return self.refuse(node, "only the key and the value of a record are columns") if term is None else term

    def on_Attribute(self, node: ast.Attribute) -> Term:
        return self._field(node, self._owner(node.value), node.attr)

    def on_Subscript(self, node: ast.Subscript) -> Term:
        if isinstance(node.slice, ast.Slice):
            return self._sliced(node, node.slice)
        name = node.slice.value if isinstance(node.slice, ast.Constant) else None
        owner = self._owner(node.value)
        if owner.kind == LIST and type(name) is int and 0 <= name < len(owner.fields):
            name = str(name)
        elif not isinstance(name, str) or owner.kind == LIST:
            return self.refuse(node, "only fields of objects by their names are columns")
        return self._field(node, owner, name)

    def _sliced(self, node: ast.Subscript, part: ast.Slice) -> Term:
        """A part of a text between constant places from its beginning, in code points."""
        owner = self.of(node.value)
        first, last = (_place(part.lower, 0), _place(part.upper, _BEHIND))
        if owner.kind != TEXT or part.step is not None or first is None or last is None:
            return self.refuse(node, "only a text between constant places from its beginning has an exact form in SQL")
        sql = f"substring({owner.sql}, {first + 1}, {max(0, last - first)})"
        guards = (*owner.guards, *self._all_present(node, [owner]))
        return Term(TEXT, sql, guards=guards, size=owner.size)

    def _owner(self, node: ast.expr) -> Term:
        """Return what a part names a field of: a windowed key has fields, and is no value itself."""
        term = self._names.get(node.id) if isinstance(node, ast.Name) else None
        return term if term is not None and term.kind == WINDOWED else self.of(node)

    def _field(self, node: ast.AST, owner: Term, name: str) -> Term:
        if owner.kind not in (*NESTED, WINDOWED):
            return self.refuse(node, f"{owner.kind} has no fields")
        field = owner.fields.get(name)
        if field is None:
            return self.refuse(
                node, f"there is no column {name}, or one of a type that SQL does not treat as Python does"
            )
        return replace(field, guards=(*owner.guards, *self._all_present(node, [owner]), *field.guards))

    def on_Call(self, node: ast.Call) -> Term:
        method = node.func
        if node.keywords or any(isinstance(argument, ast.Starred) for argument in node.args):
            return self.refuse(node, "a call with named arguments has no exact form in SQL")
        if isinstance(method, ast.Attribute):
            return self._got(node, method) if method.attr == "get" else self._method(node, method)
        called = getattr(self, f"_call_{method.id}", None) if isinstance(method, ast.Name) else None
        if called is None:
            return self.refuse(node, "the function has no exact form in SQL")
        term: Term = called(node, [self.of(argument) for argument in node.args])
        return term

    def _got(self, node: ast.Call, method: ast.Attribute) -> Term:
        """`value.get("name", DEFAULT)`: only a record of JSON text may lack a field. A default is evaluated for all records."""
        name = node.args[0] if node.args else None
        if len(node.args) > 2 or not (isinstance(name, ast.Constant) and isinstance(name.value, str)):
            return self.refuse(node, "only get(NAME) of an object has an exact form in SQL")
        owner = self.of(method.value)
        if owner.kind != OBJECT:
            return self.refuse(node, f"{owner.kind} has no fields")
        defaults = [self.of(default) for default in node.args[1:]]
        field = self._field(node, replace(owner, guards=(*owner.guards, *self._guards_of(defaults))), name.value)
        has_field = owner.fields[name.value].guards
        if not has_field:
            return field
        field = replace(field, guards=field.guards[: -len(has_field)])
        (default,) = defaults or [Term(NOTHING, "NULL", nullable=True)]
        if default.kind == NOTHING:
            return field
        if default.kind != field.kind or field.kind in NESTED:
            return self.refuse(node, f"the default of {field.kind} is {default.kind}, or an object")
        sql = f"if({' AND '.join(guard.sql for guard in has_field)}, {field.sql}, {default.sql})"
        return replace(field, sql=sql, size=max(field.size, default.size))

    # -- Functions and methods --

    def _method(self, node: ast.Call, method: ast.Attribute) -> Term:
        """A method of a text."""
        name, owner = method.attr, self.of(method.value)
        terms = [owner, *map(self.of, node.args)]
        counts = {**dict.fromkeys((*_CASES, *_TRIMS), 1), **dict.fromkeys(_TESTS, 2)}
        if any(term.kind != TEXT for term in terms) or counts.get(name) != len(terms):
            return self.refuse(node, "the method has no exact form in SQL")
        guards = [*self._guards_of(terms), *self._all_present(node, terms)]
        if name in _TESTS:
            return Term(BOOLEAN, f"{name}({owner.sql}, {terms[1].sql})", guards=tuple(guards))
        if name in _TRIMS:
            sql = f"trim({_TRIMS[name]} {quoted_text(_SPACES)} FROM {owner.sql})"
            return Term(TEXT, sql, guards=tuple(guards), size=owner.size)
        # Outside of ASCII, Java and Python have different rules, and versions of Unicode.
        is_ascii = f"(octet_length({owner.sql}) = char_length({owner.sql}))"
        guards.append(self.guard(node, is_ascii, "a text is not only ASCII"))
        return Term(TEXT, f"{name}({owner.sql})", guards=tuple(guards), size=owner.size)

    def items(self, node: ast.expr) -> Items:
        """Return the items of a list: a text that is split, or values of one kind. Raises UntranslatableError."""
        if isinstance(node, ast.List) and 0 < len(node.elts) <= _MOST_MEMBERS:
            terms = [self.of(element) for element in node.elts]
            kinds = {term.kind for term in terms}
            if len(kinds) == 1 and kinds <= {TEXT, INTEGER}:
                item = Term(
                    kinds.pop(), "", any(term.nullable for term in terms), size=sum(term.size for term in terms)
                )
                return Items(f"array({', '.join(term.sql for term in terms)})", item, tuple(self._guards_of(terms)))
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Attribute) and node.func.attr == "split":
            return self._split(node, node.func)
        self.refuse(node, "only a text that is split, or a list of texts or whole numbers, has an exact form in SQL")
        raise AssertionError

    def _split(self, node: ast.Call, method: ast.Attribute) -> Items:
        """`split()` at spaces of Unicode, or at a text."""
        owner, at = self.of(method.value), node.args[0] if node.args else None
        text = at.value if isinstance(at, ast.Constant) and isinstance(at.value, str) else ""
        is_known = not node.keywords and (not node.args or (len(node.args) == 1 and text and "\\E" not in text))
        if owner.kind != TEXT or not is_known:
            self.refuse(node, "only split() and split(TEXT) have an exact form in SQL")
        short = f"(octet_length({owner.sql}) <= {_LONGEST_SPLIT})"
        long = self.guard(node, short, f"a text that is split is null, or has over {_LONGEST_SPLIT:,} bytes")
        pattern = quoted_text(f"\\Q{text}\\E" if text else f"[{_SPACES}]+")
        sql = f"split({owner.sql}, {pattern})"
        sql = sql if text else f"filter({sql}, item -> item <> '')"
        return Items(sql, Term(TEXT, "", size=owner.size), (*owner.guards, long))

    def _guards_of(self, terms: Sequence[Term]) -> list[Guard]:
        return [guard for term in terms for guard in term.guards]

    def _needs(self, node: ast.Call, terms: Sequence[Term], kinds: Sequence[str], count: int = 1) -> list[Guard]:
        """Return the guards of operands of a call, which are not null. Raises UntranslatableError for others."""
        if len(terms) != count or any(term.kind not in kinds for term in terms):
            self.refuse(node, f"the function has no exact form in SQL for {', '.join(term.kind for term in terms)}")
        return [*self._guards_of(terms), *self._all_present(node, terms)]

    def _call_len(self, node: ast.Call, terms: Sequence[Term]) -> Term:
        guards = self._needs(node, terms, (TEXT,))
        return Term(INTEGER, f"CAST(char_length({terms[0].sql}) AS BIGINT)", guards=tuple(guards))

    def _call_str(self, node: ast.Call, terms: Sequence[Term]) -> Term:
        guards = self._needs(node, terms, (TEXT, INTEGER, BOOLEAN))
        kind, sql = terms[0].kind, terms[0].sql
        text = {TEXT: sql, INTEGER: f"CAST({sql} AS STRING)", BOOLEAN: f"if({sql}, 'True', 'False')"}[kind]
        return Term(TEXT, text, guards=tuple(guards), size=max(terms[0].size, _DIGITS * self._footprint.times))

    def _call_bool(self, node: ast.Call, terms: Sequence[Term]) -> Term:
        if len(terms) != 1:
            return self.refuse(node, "the function has no exact form in SQL")
        return Term(BOOLEAN, terms[0].truth, guards=terms[0].guards)

    def _call_float(self, node: ast.Call, terms: Sequence[Term]) -> Term:
        guards = self._needs(node, terms, (INTEGER, NUMBER))
        return Term(NUMBER, f"CAST({terms[0].sql} AS DOUBLE)", guards=tuple(guards))

    def _call_int(self, node: ast.Call, terms: Sequence[Term]) -> Term:
        return self._whole(node, terms, terms[0].sql if terms else "")

    def _call_round(self, node: ast.Call, terms: Sequence[Term]) -> Term:
        """Halves become even numbers, as in Python."""
        return self._whole(node, terms, f"rint({terms[0].sql})" if terms else "")

    def _whole(self, node: ast.Call, terms: Sequence[Term], sql: str) -> Term:
        guards = self._needs(node, terms, (INTEGER, NUMBER))
        if terms[0].kind == INTEGER:
            return terms[0].presented(guards)
        guards.append(self.guard(node, f"(abs({sql}) < {_BEYOND})", "the result has over 64 bits"))
        return Term(INTEGER, f"CAST({sql} AS BIGINT)", guards=tuple(guards))

    def _call_abs(self, node: ast.Call, terms: Sequence[Term]) -> Term:
        guards = self._needs(node, terms, (INTEGER, NUMBER))
        (term,) = terms
        if term.kind == INTEGER:
            guards.append(self.guard(node, f"({term.sql} <> {LOWEST})", "the result has over 64 bits"))
        return Term(term.kind, f"abs({term.sql})", guards=tuple(guards))

    def _call_min(self, node: ast.Call, terms: Sequence[Term]) -> Term:
        return self._extreme(node, terms, "<")

    def _call_max(self, node: ast.Call, terms: Sequence[Term]) -> Term:
        return self._extreme(node, terms, ">")

    def _extreme(self, node: ast.Call, terms: Sequence[Term], order: str) -> Term:
        """The smaller or larger of two values. The first of equal values wins, which matters for 0.0 and -0.0."""
        guards = self._needs(node, terms, (TEXT, INTEGER, NUMBER), 2)
        one, other = terms
        if one.kind != other.kind:
            return self.refuse(node, f"{one.kind} is compared with {other.kind}")
        sql = f"if({other.sql} {order} {one.sql}, {other.sql}, {one.sql})"
        return Term(one.kind, sql, guards=tuple(guards), size=max(one.size, other.size))

    def _call_merge(self, node: ast.Call, terms: Sequence[Term]) -> Term:
        guards = self._needs(node, terms, (OBJECT,), max(1, len(terms)))
        owners = {name: term for term in terms for name in term.fields}
        fields = {name: owner.fields.get(name) for name, owner in owners.items()}
        known = {name: field for name, field in fields.items() if field is not None}
        for name in fields.keys() - known.keys():
            return self.refuse(node, f"the column {name} is of a type that SQL does not treat as Python does")
        merged = {name: field.without_guards() for name, field in known.items()}
        return object_of(merged, [*guards, *self._guards_of(list(known.values()))])

    # -- Literals --

    def on_Constant(self, node: ast.Constant) -> Term:
        value = node.value
        term = literal(value) if value is None or isinstance(value, (str, int, float)) else None
        return (
            self.refuse(node, "constants are text, numbers, whole ones of 64 bits, True, False and None")
            if term is None
            else replace(term, size=term.size * self._footprint.times)
        )

    def on_Dict(self, node: ast.Dict) -> Term:
        fields: dict[str, Term] = {}
        guards: list[Guard] = []
        for key, item in zip(node.keys, node.values, strict=True):
            if not (isinstance(key, ast.Constant) and isinstance(key.value, str)):
                return self.refuse(node, "the names of an object's fields must be constants")
            term = self.of(item)
            guards += term.guards
            fields[key.value] = term.without_guards()
        return object_of(fields, guards) if fields else self.refuse(node, "it has no fields")

    def on_List(self, node: ast.List) -> Term:
        terms = [self.of(element) for element in node.elts]
        if not terms:
            return self.refuse(node, "an empty list has no exact form in SQL")
        return list_of([term.without_guards() for term in terms], self._guards_of(terms))

    def on_JoinedStr(self, node: ast.JoinedStr) -> Term:
        parts: list[str] = []
        guards: list[Guard] = []
        size = 0
        for piece in node.values:
            is_plain = isinstance(piece, ast.FormattedValue) and piece.conversion == -1 and piece.format_spec is None
            if not (is_plain or isinstance(piece, ast.Constant)):
                return self.refuse(node, "only plain values in braces have an exact form in SQL")
            term = self.of(piece.value if isinstance(piece, ast.FormattedValue) else piece)
            if term.kind not in (TEXT, INTEGER):
                return self.refuse(node, f"{term.kind} in braces has no exact form in SQL")
            guards += term.guards
            size += max(term.size, _DIGITS * self._footprint.times)
            text = term.sql if term.kind == TEXT else f"CAST({term.sql} AS STRING)"
            parts.append(f"coalesce({text}, 'None')" if term.nullable else text)
        return Term(TEXT, f"concat({', '.join(parts)})" if parts else "''", guards=tuple(guards), size=size)

    # -- Operators --

    def on_UnaryOp(self, node: ast.UnaryOp) -> Term:
        if isinstance(node.op, ast.Not):
            operand = self.condition(node.operand)
            return Term(BOOLEAN, f"(NOT {operand.sql})", guards=operand.guards)
        value = node.operand.value if isinstance(node.operand, ast.Constant) else None
        is_number = isinstance(value, (int, float)) and not isinstance(value, bool) and isinstance(node.op, ast.USub)
        term = literal(-value) if isinstance(value, (int, float)) and is_number else None
        return self.refuse(node, "it has no exact form in SQL") if term is None else term

    def on_BinOp(self, node: ast.BinOp) -> Term:
        left, right = self.of(node.left), self.of(node.right)
        guards = [*left.guards, *right.guards]
        if left.kind == right.kind == TEXT and isinstance(node.op, ast.Add):
            present = self._all_present(node, [left, right])
            sql, size = f"concat({left.sql}, {right.sql})", left.size + right.size
            return Term(TEXT, sql, guards=(*guards, *present), size=size)
        if {left.kind, right.kind} <= {INTEGER, NUMBER}:
            result = self._calculated(node, left, right)
            if result is not None:
                return replace(result, guards=(*guards, *result.guards))
        return self.refuse(node, f"an operator of {left.kind} and {right.kind} that SQL does not have exactly")

    def _calculated(self, node: ast.BinOp, left: Term, right: Term) -> Term | None:
        """Return the result for numbers; None for an operator that SQL does not have exactly."""
        if left.kind == right.kind == INTEGER and type(node.op) in _ARITHMETIC:
            result = f"{_ARITHMETIC[type(node.op)]}({left.sql}, {right.sql})"
            fits = self.guard(node, f"({result} IS NOT NULL)", "an operand is null, or the result has over 64 bits")
            return Term(INTEGER, result, guards=(fits,))
        if isinstance(node.op, (ast.FloorDiv, ast.Mod)):
            return self._by_constant(node, left, right)
        function = _OF_DOUBLES.get(type(node.op))
        if function is None:
            return None
        guards = []
        for operand in (left, right):
            if isinstance(node.op, ast.Div) and operand.kind == INTEGER and not operand.is_double:
                is_small = f"({operand.sql} BETWEEN -{_LARGEST_DOUBLE}L AND {_LARGEST_DOUBLE}L)"
                guards.append(self.guard(node, is_small, "an operand is null, or a large whole number"))
        result = f"{function}(CAST({left.sql} AS DOUBLE), CAST({right.sql} AS DOUBLE))"
        is_finite = self.guard(node, f"(abs({result}) < {_FINITE})", "an operand is null or 0, or the result infinite")
        return Term(NUMBER, result, guards=(*guards, is_finite))

    def _by_constant(self, node: ast.BinOp, left: Term, right: Term) -> Term | None:
        """Return a whole number divided by a positive constant, rounded down as in Python, or its remainder."""
        if left.kind != INTEGER or right.kind != INTEGER or not right.is_double or right.sql.startswith("CAST('-"):
            return None
        if right.sql == "CAST('0' AS BIGINT)":
            return None
        rest = f"({left.sql} % {right.sql})"
        sql = (
            f"if({rest} < 0L, {rest} + {right.sql}, {rest})"
            if isinstance(node.op, ast.Mod)
            else f"(({left.sql} DIV {right.sql}) - if({rest} < 0L, 1L, 0L))"
        )
        return Term(INTEGER, sql, guards=tuple(self._all_present(node, [left])))

    def on_BoolOp(self, node: ast.BoolOp) -> Term:
        """`and` and `or` as a value: an operand rather than its truth."""
        terms = [self.of(operand) for operand in node.values]
        if all(term.kind == BOOLEAN and not term.nullable for term in terms):
            return _joined(node, terms)
        kinds = {term.kind for term in terms} - {NOTHING}
        if len(kinds) != 1 or not kinds.isdisjoint(NESTED):
            return self.refuse(node, "the operands of and, or are of different kinds, or objects")
        kind, result = kinds.pop(), terms[-1]
        for term in reversed(terms[:-1]):
            is_or = isinstance(node.op, ast.Or)
            others = [guard.under(f"NOT {term.truth}" if is_or else term.truth) for guard in result.guards]
            one, other = (term.sql, result.sql) if is_or else (result.sql, term.sql)
            is_nullable = result.nullable or (term.nullable and not is_or)
            guards, size = (*term.guards, *others), max(term.size, result.size)
            result = Term(kind, f"if({term.truth}, {one}, {other})", is_nullable, guards, size=size)
        return result

    def condition(self, node: ast.expr) -> Term:
        """Return the truth of a part, which is never null if its guards hold. Raises UntranslatableError."""
        if isinstance(node, ast.BoolOp):
            return self.limited(node, _joined(node, [self.condition(operand) for operand in node.values]))
        term = self.of(node)
        return Term(BOOLEAN, term.truth, guards=term.guards)

    def on_IfExp(self, node: ast.IfExp) -> Term:
        test, (present, absent) = self.condition(node.test), _tested_for_none(node.test)
        body, other = self._where_present(present, node.body), self._where_present(absent, node.orelse)
        kinds = {body.kind, other.kind} - {NOTHING}
        if len(kinds) != 1 or not kinds.isdisjoint(NESTED):
            return self.refuse(node, "its two values are of different kinds, or objects")
        inside = [guard.under(test.sql) for guard in body.guards]
        outside = [guard.under(f"NOT {test.sql}") for guard in other.guards]
        sql = f"if({test.sql}, {body.sql}, {other.sql})"
        guards, size = (*test.guards, *inside, *outside), max(body.size, other.size)
        return Term(kinds.pop(), sql, body.nullable or other.nullable, guards, size=size)

    def _where_present(self, name: str | None, node: ast.expr) -> Term:
        """Return a part that is evaluated only where a part of the record is not None."""
        names = self._names
        if name is not None and name in names:
            self._names = {**names, name: replace(names[name], nullable=False)}
        try:
            return self.of(node)
        finally:
            self._names = names

    # -- Comparisons --

    def on_Compare(self, node: ast.Compare) -> Term:
        """A comparison, also of several: an operand is evaluated only if the comparisons before it are true."""
        left = self.of(node.left)
        conditions: list[str] = []
        guards = list(left.guards)
        for operator, operand in zip(node.ops, node.comparators, strict=True):
            if isinstance(operator, (ast.In, ast.NotIn)):
                right, condition, own = left, *self._member(node, left, operand)
                condition = condition if isinstance(operator, ast.In) else f"(NOT {condition})"
            else:
                right = self.of(operand)
                condition, own = self._pair(node, left, operator, right)
            guards += [
                guard.under(" AND ".join(conditions)) if conditions else guard for guard in (*right.guards, *own)
            ]
            conditions.append(condition)
            left = right.without_guards()
        return Term(BOOLEAN, f"({' AND '.join(conditions)})", guards=tuple(guards))

    def _pair(self, node: ast.Compare, left: Term, operator: ast.cmpop, right: Term) -> tuple[str, list[Guard]]:
        """Return the condition of one comparison, and what must hold for it."""
        if NOTHING in (left.kind, right.kind) and isinstance(operator, (ast.Is, ast.IsNot, ast.Eq, ast.NotEq)):
            condition = (left if right.kind == NOTHING else right).is_null
            return (condition if isinstance(operator, (ast.Is, ast.Eq)) else f"(NOT {condition})"), []
        # Spark makes a double of a whole number beside one: exactly only for constants.
        whole = next((term for term in (left, right) if term.kind == INTEGER), None)
        is_mixed = {left.kind, right.kind} == {INTEGER, NUMBER} and whole is not None and whole.is_double
        if (
            (left.kind != right.kind and not is_mixed)
            or left.kind in NESTED
            or isinstance(operator, (ast.Is, ast.IsNot))
        ):
            self.refuse(node, f"{left.kind} is compared with {right.kind}")
        if isinstance(operator, (ast.Eq, ast.NotEq)):
            condition = f"({left.sql} <=> {right.sql})"
            return (condition if isinstance(operator, ast.Eq) else f"(NOT {condition})"), []
        if left.kind == BOOLEAN or type(operator) not in _ORDERS:
            self.refuse(node, f"an order of {left.kind} is no comparison that SQL has exactly")
        return f"({left.sql} {_ORDERS[type(operator)]} {right.sql})", self._all_present(node, [left, right])

    def _member(self, node: ast.Compare, left: Term, operand: ast.expr) -> tuple[str, list[Guard]]:
        """Return the condition that a value is among constants, or a text in another one, and what must hold for it."""
        items = operand.elts if isinstance(operand, (ast.List, ast.Tuple, ast.Set)) else []
        if left.kind == TEXT and not isinstance(operand, (ast.List, ast.Tuple, ast.Set)):
            text = self.of(operand)
            if text.kind == TEXT:
                return f"contains({text.sql}, {left.sql})", [*text.guards, *self._all_present(node, [left, text])]
        if not 0 < len(items) <= _MOST_MEMBERS or not all(isinstance(item, ast.Constant) for item in items):
            self.refuse(node, "only a list of constants or a text beside in has an exact form in SQL")
        members = [self.of(item) for item in items]
        if any(member.kind not in (left.kind, NOTHING) for member in members) or left.kind in (*NESTED, NOTHING):
            self.refuse(node, f"{left.kind} is looked for among values of another kind")
        return f"({' OR '.join(f'({left.sql} <=> {member.sql})' for member in members)})", []


def _tested_for_none(test: ast.expr) -> tuple[str | None, str | None]:
    """Return the name that is not None where a test holds, and the one that is not where it does not.

    >>> _tested_for_none(ast.parse("right is None", mode="eval").body)
    (None, 'right')
    """
    match test:
        case ast.Compare(ast.Name(name), [ast.Is()], [ast.Constant(None)]):
            return None, name
        case ast.Compare(ast.Name(name), [ast.IsNot()], [ast.Constant(None)]):
            return name, None
    return None, None


def _place(node: ast.expr | None, default: int) -> int | None:
    """Return a place in a text from its beginning; None for one that is no such constant."""
    if node is None:
        return default
    value = node.value if isinstance(node, ast.Constant) else None
    return value if isinstance(value, int) and not isinstance(value, bool) and value < _BEHIND else None


def _joined(node: ast.BoolOp, terms: Sequence[Term]) -> Term:
    """Return conditions joined by `and` or `or`: the next is evaluated only if those before do not decide."""
    word = "AND" if isinstance(node.op, ast.And) else "OR"
    guards = list(terms[0].guards)
    before = terms[0].sql
    for term in terms[1:]:
        guards += [guard.under(before if word == "AND" else f"NOT ({before})") for guard in term.guards]
        before = f"{before} {word} {term.sql}"
    return Term(BOOLEAN, f"({before})", guards=tuple(guards))
