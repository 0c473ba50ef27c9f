"""Queries in place of stages: rows of one input that are chosen, grouped by key and aggregated, as the columns of an output."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from streamkit.errors import InexactError, UntranslatableError
from streamkit.runtime.spark.rows.files import OpenedInput
from streamkit.runtime.spark.rows.output_columns import OutputColumn, OutputLayout, ticked
from streamkit.runtime.spark.spark_session import reason, without_error_log
from streamkit.runtime.spark.sql.sources import TIME, SqlSource
from streamkit.runtime.spark.sql.terms import (
    COLUMN_TYPES,
    NOTHING,
    NUMBER,
    OBJECT,
    Guard,
    Keep,
    Term,
    chosen_rows,
)
from streamkit.runtime.spark.workers.worker import MARK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_GROUP = "key"
_LONGEST_SQL = 100_000
"""Characters of a query: Spark takes seconds to plan a longer one."""


@dataclass(frozen=True)
class Records:
    """The records at a place of a stage: those of a source that pass tests, in their order, with what steps made of them."""

    source: SqlSource
    key: Term
    value: Term
    time: Term
    tests: tuple[Guard | Keep, ...] = ()

    @classmethod
    def of(cls, source: SqlSource) -> Records:
        """Return all records of a source."""
        return cls(source, source.key, source.value, source.time)

    @property
    def names(self) -> dict[str, Term]:
        """The parts of a record that expressions may use."""
        return {"key": self.key, "value": self.value, "timestamp": self.time}

    def kept_where(self, condition: str) -> Records:
        """Return the records for which a condition is true."""
        return replace(self, tests=(*self.tests, Keep(condition)))

    def guarded(self, term: Term) -> Records:
        """Return the records, each of which meets the guards of a value that a step makes of it."""
        return replace(self, tests=(*self.tests, *term.guards))


@dataclass(frozen=True)
class Groups:
    """The rows of a table: an aggregate of the records of each key, with the time of the latest.

    sums: SQL of what is computed for each key, by the names that `value` and `tests` have for it.
    """

    records: Records
    key: Term
    value: Term
    sums: Mapping[str, str]
    tests: tuple[Guard, ...] = ()
    time: Term = field(default_factory=lambda: Term("a whole number", ticked(TIME)))

    @property
    def names(self) -> dict[str, Term]:
        """The parts of a row that expressions may use."""
        return {"key": self.key, "value": self.value}


@dataclass(frozen=True)
class Query:
    """The rows of an output."""

    groups: Groups
    columns: tuple[tuple[str, str], ...]
    """SQL by the names of the columns, in their order."""

    @property
    def topic(self) -> str:
        """The topic that it reads."""
        return self.groups.records.source.topic

    def frame(self, opened: OpenedInput) -> DataFrame:
        """Return the rows over an opened input. A row for which the query is not exact raises InexactError when they are computed.

        Raises InexactError if Spark refuses the query.
        """
        from pyspark.errors import AnalysisException

        try:
            with without_error_log():
                found = self._frame(opened)
                _ = found.schema  # Spark Connect analyzes a query no earlier.
        except AnalysisException as error:
            raise InexactError(f"Spark refuses the query of {self.topic}: {reason(error)}") from error
        return found

    def _frame(self, opened: OpenedInput) -> DataFrame:
        from pyspark.sql import functions as sf

        groups, records = self.groups, self.groups.records
        tests = (*records.source.guards(), *records.tests)
        chosen = records.source.frame(opened).where(chosen_rows(tests, _failure))
        computed = [sf.expr(sql).alias(name) for name, sql in groups.sums.items()]
        latest = sf.expr(f"max({records.time.sql})").alias(TIME)
        rows = chosen.groupBy(sf.expr(records.key.sql).alias(_GROUP)).agg(*computed, latest)
        if groups.tests:
            rows = rows.where(chosen_rows(groups.tests, _failure))
        return rows.select(*(sf.expr(sql).alias(name) for name, sql in self.columns))


def _failure(reason: str) -> str:
    """Return the text of an error by which the driver finds an InexactError in Spark's exception."""
    return MARK + json.dumps([InexactError.__name__, reason], ensure_ascii=False)


def grouped(records: Records, value: Term, sums: Mapping[str, str], tests: tuple[Guard, ...] = ()) -> Groups:
    """Return the groups of records by their key; records without a key or a value are in none."""
    if records.key.kind in (NOTHING, NUMBER, OBJECT):
        raise UntranslatableError(f"the key of the groups is {records.key.kind}")
    for part in (records.key, records.value):
        if part.is_null != "false":
            records = records.kept_where(f"(NOT {part.is_null})")
    key = Term(records.key.kind, ticked(_GROUP), size=records.key.size)
    return Groups(records, key, value, sums, tests)


def query_of(groups: Groups, layout: OutputLayout) -> Query:
    """Return the query of an output. Raises UntranslatableError for a column whose values need more than a column of SQL."""
    names = {column.field for column in layout.columns if column.part == "value"}
    if groups.value.kind == OBJECT and not names.issuperset(groups.value.fields):
        raise UntranslatableError(f"the output {layout.place} has no column for a field of its values")
    columns = tuple((column.name, _cell(groups, column)) for column in layout.columns)
    tests = [each.sql for each in (*groups.records.tests, *groups.tests)]
    if sum(map(len, (*tests, *groups.sums.values(), *(sql for _, sql in columns)))) > _LONGEST_SQL:
        raise UntranslatableError(f"the query of the output {layout.place} has more than {_LONGEST_SQL:,} characters")
    return Query(groups, columns)


def _cell(groups: Groups, column: OutputColumn) -> str:
    """Return SQL of a column."""
    if column.part == "timestamp":
        return f"timestamp_micros({groups.time.sql} * 1000L)"
    if column.part == "headers":
        return f"CAST(NULL AS {column.shape.ddl})"
    if column.part == "deleted":
        return groups.value.is_null
    term: Term | None = groups.key if column.part == "key" else groups.value
    if column.field is not None:
        term = None if term is None or term.kind != OBJECT else term.fields.get(column.field)
    if term is not None and term.kind == NOTHING:
        return f"CAST(NULL AS {column.shape.ddl})"
    if term is None or column.shape.fields or COLUMN_TYPES.get(term.kind) != column.shape.kind:
        kind = "JSON" if column.shape.kind == "json" else column.shape.ddl
        raise UntranslatableError(
            f"column {column.name} of the output is {kind}; {column.part}=TYPE gives it another type"
        )
    return term.sql
