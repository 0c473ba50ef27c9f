"""Aggregations that a query computes: those whose expressions have the form of a sum, of an extreme, or of a first or last value."""

from __future__ import annotations

import ast
from dataclasses import replace

from streamkit.errors import UntranslatableError
from streamkit.expressions import Expression
from streamkit.operators.core.parsed_values import Windows
from streamkit.operators.steps.aggregations.aggregate_node import Aggregation
from streamkit.runtime.spark.rows.input_columns import without_case
from streamkit.runtime.spark.rows.output_columns import ticked
from streamkit.runtime.spark.sql.expressions import Footprint, Translator, parse
from streamkit.runtime.spark.sql.grouped_queries import ABSOLUTE, FIRST, LAST, LISTED, Groups, grouped
from streamkit.runtime.spark.sql.record_queries import PLACE, Records
from streamkit.runtime.spark.sql.sources import LONGEST
from streamkit.runtime.spark.sql.terms import (
    COLUMN_TYPES,
    INTEGER,
    LOWEST,
    NESTED,
    NOTHING,
    TEXT,
    Guard,
    Term,
    object_of,
)

_RESULT = "aggregate"
_EXTREMES = {"min": "least", "max": "greatest"}


def aggregate(
    aggregation: Aggregation,
    windows: Windows | None,
    records: Records,
    footprint: Footprint,
    shown: str,
) -> Groups:
    """Return the groups of an aggregation. Raises UntranslatableError.

    windows: None without windows; footprint: what other expressions make of a record; shown: the step, for messages.
    """
    if records.row and aggregation.kind != "count" and not _takes_back(aggregation):
        raise UntranslatableError(f"{shown}: `subtract` does not take back, in any order, what `add` adds")
    if aggregation.kind == "count":
        return grouped(
            records,
            Term(INTEGER, "`count`"),
            {"count": ("sum", "1L") if records.row else ("count", "1")},
            windows=windows,
        )
    if aggregation.kind not in ("reduce", "aggregate") or aggregation.add is None:
        raise UntranslatableError(f"{shown}: the aggregation has no exact form in SQL")
    return _Folding(aggregation, aggregation.add, records, footprint).groups(windows)


class _Folding:
    """An aggregation that adds the records of a key one by one."""

    def __init__(self, aggregation: Aggregation, add: Expression, records: Records, footprint: Footprint):
        self._aggregation = aggregation
        self._records = records
        self._footprint = footprint
        self._tree, source = parse(add)
        names = {name: term for name, term in records.names.items() if name != "timestamp"}
        if records.row:
            names = {name: replace(term, nullable=False) for name, term in names.items()}
        self._translator = Translator(source, names, footprint)
        self._sums: dict[str, tuple[str, str]] = {}
        """The functions that are computed for each key, and their operands, by name."""
        self._tests: list[Guard] = []
        self._used: list[Guard] = []
        """The guards of what is aggregated of each record."""

    def groups(self, windows: Windows | None) -> Groups:
        """Return the groups. Raises UntranslatableError."""
        tree, initial = self._tree, self._initial()
        if isinstance(tree, ast.Dict):
            value = self._object(tree, initial)
        else:
            value = self._folded(tree, None, initial, "value")
        groups = grouped(self._records, value, self._sums, tuple(self._tests), windows)
        (part,) = groups.parts
        row, is_in = self._records.row, self._records.is_in_group
        used = [guard.under(is_in) if row else guard for guard in self._used]
        return replace(groups, parts=(replace(part, records=part.records.tested(*used)),))

    def _initial(self) -> Term | None:
        """Return the initial value; None for `reduce`, which begins with the first value."""
        if self._aggregation.kind == "reduce":
            return None
        assert self._aggregation.initial is not None
        tree, source = parse(self._aggregation.initial)
        translator = Translator(source, {}, self._footprint)
        initial = translator.of(tree)
        if initial.guards or any(term.nullable for term in (initial, *initial.fields.values())):
            # SQL has no error for such a value, and least() and greatest() pass over null.
            return translator.refuse(tree, "the initial value may be null, or fail")
        return initial

    def _object(self, tree: ast.Dict, initial: Term | None) -> Term:
        """Return an object whose fields are folded each by itself."""
        names = [key.value for key in tree.keys if isinstance(key, ast.Constant) and isinstance(key.value, str)]
        known = {} if initial is None else initial.fields
        if not names or set(names) != set(known) or len(set(map(without_case, names))) < len(tree.keys):
            return self._translator.refuse(tree, "its fields are not those of the initial value")
        fields = {
            name: self._folded(item, name, known[name], f"value.{name}")
            for name, item in zip(names, tree.values, strict=True)
        }
        return self._translator.limited(tree, object_of(fields))

    def _folded(self, tree: ast.expr, name: str | None, initial: Term | None, column: str) -> Term:
        """Return what a value of all records, such as a sum, is. name: of the field that is folded, None for all."""
        ordered = None if self._records.row else self._ordered(tree, name, initial, column)
        if ordered is not None:
            return ordered
        extreme, operands = _operands(tree)
        others = [operand for operand in operands if not _is_result(operand, name)]
        if len(others) != 1:
            return self._translator.refuse(tree, "only sums, min and max of the result and a value have a form in SQL")
        if self._aggregation.kind == "reduce" and not (isinstance(others[0], ast.Name) and others[0].id == "value"):
            return self._translator.refuse(tree, "the first value is the result as it is, and all others are not")
        term = self._translator.of(others[0])
        if term.kind not in ((TEXT, INTEGER) if extreme else (INTEGER,)) or (
            initial is not None and initial.kind != term.kind
        ):
            return self._translator.refuse(tree, f"{term.kind} is added to {'it' if initial is None else initial.kind}")
        self._used += term.guards
        if term.nullable:
            self._used.append(self._translator.guard(tree, f"({term.sql} IS NOT NULL)", "an operand is null"))
        if extreme:
            self._sums[column] = (extreme, term.sql)
            folded = ticked(column)
            sql = folded if initial is None else f"{_EXTREMES[extreme]}({folded}, {initial.sql})"
            return Term(term.kind, sql, size=max(term.size, 0 if initial is None else initial.size))
        return self._sum(tree, term, initial, column)

    def _ordered(self, tree: ast.expr, name: str | None, initial: Term | None, column: str) -> Term | None:
        """Return a value that depends on the order of records: the last one, the first one, or all texts, one after another."""
        first, *others = _added(tree)
        is_reduce = self._aggregation.kind == "reduce"
        if not any(_is_result(node, None) for node in ast.walk(tree)):
            term = self._checked(tree, self._translator.of(tree), name is None)
            return self._placed(tree, LAST, term, column)
        if is_reduce and name is None and _is_result(tree, None):
            value = self._checked(tree, self._records.value, True)
            return self._placed(tree, FIRST, value, column)
        if (
            not others
            or not _is_result(first, name)
            or any(_is_result(node, None) for each in others for node in ast.walk(each))
        ):
            return None
        texts = [self._translator.of(other) for other in others]
        if any(text.kind != TEXT for text in (*texts, *(() if initial is None else (initial,)))):
            return None
        if is_reduce and self._records.value.kind != TEXT:
            return None
        return self._joined(tree, [self._checked(tree, text, True) for text in texts], initial, column)

    def _checked(self, tree: ast.expr, term: Term, is_present: bool) -> Term:
        """Return a value whose guards hold for all records. is_present: whether it must not be null."""
        self._used += term.guards
        if is_present and term.kind == NOTHING:
            return self._translator.refuse(tree, "null deletes the row")
        if is_present and term.nullable:
            self._used.append(self._translator.guard(tree, f"(NOT {term.is_null})", "an operand is null"))
        return replace(term, guards=(), nullable=term.nullable and not is_present)

    def _in_order(self, tree: ast.expr) -> None:
        if self._records.is_mixed:
            self._translator.refuse(
                tree, "its result depends on the order in which several tasks, or topics, send records"
            )

    def _placed(self, tree: ast.expr, function: str, term: Term, column: str) -> Term:
        """Return the value of the first or the last record."""
        self._in_order(tree)
        self._sums[column] = (function, self._packed(tree, term))
        return _unpacked(term, ticked(column))

    def _packed(self, tree: ast.expr, term: Term) -> str:
        """Return SQL of a value with all of its fields, in one column. Raises UntranslatableError."""
        if term.kind not in NESTED:
            return term.sql if term.kind in COLUMN_TYPES or term.kind == NOTHING else self._refused(tree, term.kind)
        parts = list[str]()
        for place, name in enumerate(term.fields):
            field_term = term.fields.get(name)
            part = self._refused(tree, f"field {name}") if field_term is None else self._packed(tree, field_term)
            parts.append(f"'f{place}', {part}")
        packed = f"named_struct({', '.join(parts)})" if parts else self._refused(tree, "an object without fields")
        return f"if({term.is_null}, NULL, {packed})" if term.nullable else packed

    def _refused(self, tree: ast.expr, what: str) -> str:
        return self._translator.refuse(tree, f"{what} has no form in SQL in the value that is kept").sql

    def _joined(self, tree: ast.expr, texts: list[Term], initial: Term | None, column: str) -> Term:
        """Return the texts of all records, in their order."""
        self._in_order(tree)
        text = f"concat({', '.join(term.sql for term in texts)})"
        begins = f", 'first', {self._records.value.sql}" if initial is None else ""
        self._sums[column] = (LISTED, f"named_struct('place', {ticked(PLACE)}, 'value', {text}{begins})")
        listed = f"array_sort({ticked(column)})"
        each = "item.value" if initial is not None else "if(at = 0, item.first, item.value)"
        whole = f"array_join(transform({listed}, (item, at) -> {each}), '')"
        sql = f"({whole})" if initial is None else f"concat({initial.sql}, {whole})"
        fits = f"(octet_length({sql}) <= {LONGEST})"
        self._tests.append(self._translator.guard(tree, fits, f"the text has over {LONGEST:,} bytes"))
        return Term(TEXT, sql, size=LONGEST)

    def _sum(self, tree: ast.expr, term: Term, initial: Term | None, column: str) -> Term:
        """Return a sum. If the sum of absolute values fits, so do all intermediate sums, in any order of the records."""
        self._used.append(self._translator.guard(tree, f"({term.sql} <> {LOWEST})", "a value is too small"))
        self._sums[column] = ("try_sum", term.sql)
        absolute = f"{ABSOLUTE}{column}"
        self._sums[absolute] = ("try_sum", f"abs({term.sql})")
        first = "0L" if initial is None else initial.sql
        most = f"if({first} < 0L, try_subtract({ticked(absolute)}, {first}), try_add({ticked(absolute)}, {first}))"
        self._tests.append(
            self._translator.guard(tree, f"({most} IS NOT NULL)", "a sum may have over 64 bits on the way")
        )
        return Term(INTEGER, f"({ticked(column)} + {first})")


def _unpacked(term: Term, sql: str) -> Term:
    """Return a value that a column has with all of its fields."""
    fields = {name: _unpacked(term.fields[name], f"{sql}.f{place}") for place, name in enumerate(term.fields)}
    return term if term.kind == NOTHING else replace(term, sql=sql, fields=fields, guards=())


def _added(tree: ast.expr) -> list[ast.expr]:
    """Return the parts of a sum, from left to right."""
    match tree:
        case ast.BinOp(one, ast.Add(), other):
            return [*_added(one), other]
    return [tree]


def _is_result(node: ast.AST, name: str | None) -> bool:
    """Return whether a part is the result so far, or its field of a name."""
    if name is None:
        return isinstance(node, ast.Name) and node.id == _RESULT
    match node:
        case ast.Attribute(owner, field) | ast.Subscript(owner, ast.Constant(field)):
            return field == name and _is_result(owner, None)
    return False


def _takes_back(aggregation: Aggregation) -> bool:
    """Return whether an aggregation of a table adds and subtracts the same numbers."""
    if aggregation.add is None or aggregation.subtract is None:
        return False
    (add, _), (subtract, _) = parse(aggregation.add), parse(aggregation.subtract)
    if not isinstance(add, ast.Dict):
        return _takes_back_part(add, subtract, None)
    if not isinstance(subtract, ast.Dict) or len(add.keys) != len(subtract.keys):
        return False
    both = zip(add.keys, add.values, subtract.keys, subtract.values, strict=True)
    return all(
        isinstance(key, ast.Constant)
        and isinstance(other, ast.Constant)
        and key.value == other.value
        and _takes_back_part(one, two, str(key.value))
        for key, one, other, two in both
    )


def _takes_back_part(add: ast.expr, subtract: ast.expr, name: str | None) -> bool:
    """Return whether one part is a sum, and the other one subtracts its operand again. name: of the field; None for all."""
    extreme, operands = _operands(add)
    added = [ast.dump(operand) for operand in operands if not _is_result(operand, name)]
    match subtract:
        case ast.BinOp(one, ast.Sub(), other):
            return not extreme and _is_result(one, name) and added == [ast.dump(other)]
    return False


def _operands(tree: ast.expr) -> tuple[str, list[ast.expr]]:
    """Return the operands of a call of min or max, with its name, or of a sum, with none; no operands of anything else."""
    match tree:
        case ast.Call(ast.Name(name), [one, other], []) if name in _EXTREMES:
            return name, [one, other]
        case ast.BinOp(one, ast.Add(), other):
            return "", [one, other]
    return "", []
