"""Queries in place of stages: rows of one input that are chosen, or grouped by key and aggregated, as the columns of an output."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from streamkit.errors import InexactError, UntranslatableError
from streamkit.operators.core.parsed_values import TimeWindows
from streamkit.runtime.spark.rows.files import OpenedInput
from streamkit.runtime.spark.rows.input_columns import HIDDEN
from streamkit.runtime.spark.rows.output_columns import OutputColumn, OutputLayout, ticked
from streamkit.runtime.spark.spark_session import reason, without_error_log
from streamkit.runtime.spark.sql.sources import TIME, SqlSource
from streamkit.runtime.spark.sql.terms import (
    COLUMN_TYPES,
    INTEGER,
    NOTHING,
    NUMBER,
    OBJECT,
    WINDOWED,
    Guard,
    Keep,
    Term,
    chosen_rows,
)
from streamkit.runtime.spark.sql.window_times import refuse_late, window_starts
from streamkit.runtime.spark.workers.worker import MARK

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_GROUP, _START, _KEY_OF_RECORD = "key", "window start", f"{HIDDEN}key"
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

    def required(self, guard: Guard) -> Records:
        """Return the records, each of which meets a guard."""
        return replace(self, tests=(*self.tests, guard))

    def guarded(self, term: Term) -> Records:
        """Return the records, each of which meets the guards of a value that a step makes of it."""
        return replace(self, tests=(*self.tests, *term.guards))


@dataclass(frozen=True)
class Groups:
    """The rows of a table: an aggregate of the records of each key, in each of its windows, with the time of the latest.

    sums: SQL of what is computed for each key, by the names that `value` and `tests` have for it.
    """

    records: Records
    key: Term
    value: Term
    sums: Mapping[str, str]
    tests: tuple[Guard, ...] = ()
    windows: TimeWindows | None = None
    time: Term = field(default_factory=lambda: Term("a whole number", ticked(TIME)))

    @property
    def names(self) -> dict[str, Term]:
        """The parts of a row that expressions may use."""
        return {"key": self.key, "value": self.value}


@dataclass(frozen=True)
class Query:
    """The rows of an output: those of a table, or the records of a stream."""

    rows: Groups | Records
    columns: tuple[tuple[str, str], ...]
    """SQL by the names of the columns, in their order."""

    @property
    def topic(self) -> str:
        """The topic that it reads."""
        return self._records.source.topic

    @property
    def _records(self) -> Records:
        return self.rows if isinstance(self.rows, Records) else self.rows.records

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

        records = self._records
        columns = records.source.columns_in(self._texts())
        tests = (*records.source.guards(columns), *records.tests)
        chosen = records.source.frame(opened, columns, self.rows is records).where(chosen_rows(tests, _failure))
        if isinstance(self.rows, Records):
            return self._in_order(chosen)
        groups, by = self.rows, [sf.expr(records.key.sql).alias(_GROUP)]
        if groups.windows is not None:
            refuse_late(records.source, opened, groups.windows)
            chosen = chosen.withColumn(_START, sf.expr(window_starts(groups.windows, records.time.sql)))
            by.append(sf.col(_START))
        computed = [sf.expr(sql).alias(name) for name, sql in groups.sums.items()]
        latest = sf.expr(f"max({records.time.sql})").alias(TIME)
        rows = chosen.groupBy(*by).agg(*computed, latest)
        if groups.tests:
            rows = rows.where(chosen_rows(groups.tests, _failure))
        return rows.select(*(sf.expr(sql).alias(name) for name, sql in self.columns))

    def _texts(self) -> list[str]:
        """Return all SQL that may name columns of the input."""
        records = self._records
        made = [sql for _, sql in self.columns] if isinstance(self.rows, Records) else self.rows.sums.values()
        return [*(each.sql for each in records.tests), records.key.sql, records.time.sql, *made]

    def _in_order(self, chosen: DataFrame) -> DataFrame:
        """Return the records of a stream, those of a key in the order of the input. Without keys, all are in that order."""
        from pyspark.sql import functions as sf

        key, order = self._records.key, self._records.source.order_columns()
        columns = [sf.expr(sql).alias(name) for name, sql in self.columns]
        made = chosen.select(*columns, sf.expr(key.sql).alias(_KEY_OF_RECORD), *order)
        by_key = (
            made.orderBy(*order)
            if key.kind == NOTHING
            else made.repartition(_KEY_OF_RECORD).sortWithinPartitions(*order)
        )
        return by_key.select(*(ticked(name) for name, _ in self.columns))


def _failure(reason: str) -> str:
    """Return the text of an error by which the driver finds an InexactError in Spark's exception."""
    return MARK + json.dumps([InexactError.__name__, reason], ensure_ascii=False)


def grouped(
    records: Records,
    value: Term,
    sums: Mapping[str, str],
    tests: tuple[Guard, ...] = (),
    windows: TimeWindows | None = None,
) -> Groups:
    """Return the groups of records by their key and windows; records without a key are in none, nor those without a value.

    Windows have records without a value too.
    """
    if records.key.kind in (NOTHING, NUMBER, OBJECT):
        raise UntranslatableError(f"the key of the groups is {records.key.kind}")
    for part in (records.key, records.value) if windows is None else (records.key,):
        if part.is_null != "false":
            records = records.kept_where(f"(NOT {part.is_null})")
    key = Term(records.key.kind, ticked(_GROUP), size=records.key.size)
    if windows is not None:
        start = ticked(_START)
        ends = {"start": Term(INTEGER, start), "end": Term(INTEGER, f"({start} + {windows.size}L)")}
        key = Term(WINDOWED, "", fields={"key": key, **ends}, size=key.size)
    return Groups(records, key, value, sums, tests, windows)


def query_of(rows: Groups | Records, layout: OutputLayout) -> Query:
    """Return the query of an output. Raises UntranslatableError for a column whose values need more than a column of SQL."""
    if isinstance(rows, Records) and rows.key.kind in (NUMBER, OBJECT):
        raise UntranslatableError(f"the key of the stream {layout.topic} is {rows.key.kind}")
    for part, term in (("key", rows.key), ("value", rows.value)):
        names = {column.field for column in layout.columns if column.part == part}
        if term.kind == OBJECT and not names.issuperset(term.fields):
            raise UntranslatableError(f"the output {layout.place} has no column for a field of its {part}s")
    columns = tuple((column.name, _cell(rows, column)) for column in layout.columns)
    sums = () if isinstance(rows, Records) else (*rows.sums.values(), *(each.sql for each in rows.tests))
    records = rows if isinstance(rows, Records) else rows.records
    tests = [each.sql for each in records.tests]
    if sum(map(len, (*tests, *sums, *(sql for _, sql in columns)))) > _LONGEST_SQL:
        raise UntranslatableError(f"the query of the output {layout.place} has more than {_LONGEST_SQL:,} characters")
    return Query(rows, columns)


def _cell(rows: Groups | Records, column: OutputColumn) -> str:
    """Return SQL of a column."""
    if column.part == "timestamp":
        return f"timestamp_micros({rows.time.sql} * 1000L)"
    if column.part == "headers":
        return f"CAST(NULL AS {column.shape.ddl})"
    if column.part == "deleted":
        return rows.value.is_null
    whole = rows.key if column.part == "key" else rows.value
    if whole.kind == WINDOWED and column.field in ("start", "end"):
        return f"timestamp_micros({whole.fields[column.field].sql} * 1000L)"
    term: Term | None = whole.fields["key"] if whole.kind == WINDOWED else whole
    if column.field is not None:
        term = whole.fields.get(column.field) if whole.kind == OBJECT else None
    if term is not None and term.kind == NOTHING:
        return f"CAST(NULL AS {column.shape.ddl})"
    if term is None or column.shape.fields or COLUMN_TYPES.get(term.kind) != column.shape.kind:
        kind = "JSON" if column.shape.kind == "json" else column.shape.ddl
        raise UntranslatableError(
            f"column {column.name} of the output is {kind}; {column.part}=TYPE gives it another type"
        )
    return term.sql
