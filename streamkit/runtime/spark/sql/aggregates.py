"""Aggregations whose result does not depend on the order of records, recognized by the form of their expressions."""

from __future__ import annotations

import ast
from dataclasses import dataclass, field, replace

from streamkit.errors import UntranslatableError
from streamkit.expressions import Expression
from streamkit.operators.steps.aggregations.aggregate_node import Aggregation
from streamkit.runtime.spark.rows.input_columns import without_case
from streamkit.runtime.spark.rows.output_columns import ticked
from streamkit.runtime.spark.sql.expressions import Made, Translator, parse
from streamkit.runtime.spark.sql.grouped_queries import Groups, Records, grouped
from streamkit.runtime.spark.sql.terms import INTEGER, TEXT, Guard, Term, object_of

_RESULT = "aggregate"
_LOWEST = -(1 << 63)
_EXTREMES = {"min": "least", "max": "greatest"}


def aggregate(aggregation: Aggregation, records: Records, made: Made, shown: str) -> Groups:
    """Return the groups of an aggregation. Raises UntranslatableError.

    made: what other expressions make of a record; shown: the step, for messages.
    """
    if aggregation.kind == "count":
        return grouped(records, Term(INTEGER, "`count`"), {"count": "count(*)"})
    if aggregation.kind not in ("reduce", "aggregate") or aggregation.add is None:
        raise UntranslatableError(f"{shown}: the aggregation has no exact form in SQL")
    return _Folding(aggregation, aggregation.add, records, made).groups()


@dataclass
class _Folding:
    """An aggregation that adds the records of a key one by one."""

    aggregation: Aggregation
    add: Expression
    records: Records
    made: Made
    sums: dict[str, str] = field(default_factory=dict)
    """What is computed for each key, by name."""
    tests: list[Guard] = field(default_factory=list)
    used: list[Guard] = field(default_factory=list)
    """The guards of what is aggregated of each record."""

    def groups(self) -> Groups:
        """Return the groups. Raises UntranslatableError."""
        tree, source = parse(self.add)
        self._translator = Translator(
            source, {name: term for name, term in self.records.names.items() if name != "timestamp"}, self.made
        )
        initial = self._initial()
        value = (
            self._object(tree, initial) if isinstance(tree, ast.Dict) else self._folded(tree, None, initial, "value")
        )
        groups = grouped(self.records, value, self.sums, tuple(self.tests))
        return replace(groups, records=replace(groups.records, tests=(*groups.records.tests, *self.used)))

    def _initial(self) -> Term | None:
        """Return the initial value; None for `reduce`, which begins with the first value."""
        if self.aggregation.kind == "reduce":
            return None
        assert self.aggregation.initial is not None
        tree, source = parse(self.aggregation.initial)
        translator = Translator(source, {}, self.made)
        found = translator.of(tree)
        if found.guards or any(each.nullable for each in (found, *found.fields.values())):
            # SQL has no error for such a value, and least() and greatest() pass over null.
            return translator.refuse(tree, "the initial value may be null, or fail")
        return found

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
        """Return what a sum, a least or a greatest value of all records is. name: of the field that is folded, None for all."""
        extreme, operands = _operands(tree)
        others = [each for each in operands if not _is_result(each, name)]
        if len(others) != 1:
            return self._translator.refuse(tree, "only sums, min and max of the result and a value have a form in SQL")
        if self.aggregation.kind == "reduce" and not (isinstance(others[0], ast.Name) and others[0].id == "value"):
            return self._translator.refuse(tree, "the first value is the result as it is, and all others are not")
        term = self._translator.of(others[0])
        if term.kind not in ((TEXT, INTEGER) if extreme else (INTEGER,)) or (
            initial is not None and initial.kind != term.kind
        ):
            return self._translator.refuse(tree, f"{term.kind} is added to {'it' if initial is None else initial.kind}")
        self.used += term.guards
        if term.nullable:
            self.used.append(self._translator.guard(tree, f"({term.sql} IS NOT NULL)", "an operand is null"))
        if extreme:
            self.sums[column] = f"{extreme}({term.sql})"
            folded = ticked(column)
            sql = folded if initial is None else f"{_EXTREMES[extreme]}({folded}, {initial.sql})"
            return Term(term.kind, sql, size=max(term.size, 0 if initial is None else initial.size))
        return self._sum(tree, term, initial, column)

    def _sum(self, tree: ast.expr, term: Term, initial: Term | None, column: str) -> Term:
        """Return a sum. If that of absolute values fits, so does each sum on the way, whatever the order of records."""
        self.used.append(
            self._translator.guard(tree, f"({term.sql} <> CAST('{_LOWEST}' AS BIGINT))", "a value is too small")
        )
        self.sums[column] = f"try_sum({term.sql})"
        absolute = f"absolute {column}"
        self.sums[absolute] = f"try_sum(abs({term.sql}))"
        first = "0L" if initial is None else initial.sql
        most = f"if({first} < 0L, try_subtract({ticked(absolute)}, {first}), try_add({ticked(absolute)}, {first}))"
        self.tests.append(
            self._translator.guard(tree, f"({most} IS NOT NULL)", "a sum may have over 64 bits on the way")
        )
        return Term(INTEGER, f"({ticked(column)} + {first})")


def _is_result(node: ast.expr, name: str | None) -> bool:
    """Return whether a part is the result so far, or its field of a name."""
    if name is None:
        return isinstance(node, ast.Name) and node.id == _RESULT
    match node:
        case ast.Attribute(owner, field) | ast.Subscript(owner, ast.Constant(field)):
            return field == name and _is_result(owner, None)
    return False


def _operands(tree: ast.expr) -> tuple[str, list[ast.expr]]:
    """Return the operands of a call of min or max, with its name, or of a sum, with none; no operands of anything else."""
    match tree:
        case ast.Call(ast.Name(name), [one, other], []) if name in _EXTREMES:
            return name, [one, other]
        case ast.BinOp(one, ast.Add(), other):
            return "", [one, other]
    return "", []
