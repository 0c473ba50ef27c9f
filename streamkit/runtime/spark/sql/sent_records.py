"""The queries of records for stages in Python: rows of a topic between stages, as the tasks that write it make them."""

from __future__ import annotations

from collections.abc import Collection
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamkit.errors import UntranslatableError
from streamkit.runtime.spark.rows.file_system import BLOCK, FILE, ROW, input_files
from streamkit.runtime.spark.rows.files import FILES
from streamkit.runtime.spark.rows.output_columns import ticked
from streamkit.runtime.spark.rows.topic_inputs import WRITER, Sender, sent_rows
from streamkit.runtime.spark.sql.grouped_queries import LONGEST_SQL, refused_by_spark
from streamkit.runtime.spark.sql.record_queries import Exploded, Opened, Records
from streamkit.runtime.spark.sql.sources import ORDER
from streamkit.runtime.spark.sql.terms import (
    COLUMN_TYPES,
    INTEGER,
    NESTED,
    NOTHING,
    OBJECT,
    TEXT,
    Guard,
    Term,
    literal,
    quoted_text,
    refuse_if,
)
from streamkit.serdes.serde import Serde

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame


_ITEM_BITS = 13
"""The bits of the place of an item in a list, of which a record has at most as many as a text that is split has bytes."""
_LEAST_PLACE = 1 << 62
"""Added to a number that orders rows, so that it is positive."""


@dataclass(frozen=True)
class Sent:
    """The records of a topic between stages, for stages in Python: rows as the tasks that write the topic make them, in their order.

    columns: SQL by the names of the columns that `sent_rows` takes.
    """

    records: Records
    sender: Sender
    columns: tuple[tuple[str, str], ...]

    def frame(self, opened: Opened, plan: bytes) -> DataFrame:
        """Return the rows over opened inputs, as `Query.frame`. plan: for the workers."""
        from pyspark.sql import functions as sf

        source = opened(self.sender.source)
        with refused_by_spark(self.sender.source):
            rows = self.records.frame(opened, [sql for _, sql in self.columns], True)
            columns = [sf.expr(sql).alias(name) for name, sql in self.columns]
            frame = rows.select(*columns, *self._places(rows))
            _ = frame.schema
        return sent_rows(frame, self.sender, plan, input_files(source.source) if FILE in frame.columns else [])

    def _places(self, rows: DataFrame) -> list[Column]:
        """Return the columns that order the rows."""
        from pyspark.sql import Window
        from pyspark.sql import functions as sf

        order, source = self.records.order_columns(rows), self.records.source
        items = [sf.col(ticked(test.place)) for test in self.records.tests if isinstance(test, Exploded)]
        item = items[0] if items else sf.lit(0)
        if ORDER in rows.columns:
            place = sf.shiftleft(sf.col(ORDER), _ITEM_BITS) + item
            return [sf.lit(1).cast("bigint").alias("source"), place.alias("offset")]
        if source.is_numbered:
            return [sf.col(FILE), sf.col(BLOCK).alias("source"), item.cast("bigint").alias("offset")]
        if items or source.is_joined:
            place = sf.count("*").over(Window.orderBy(*order).rowsBetween(Window.unboundedPreceding, Window.currentRow))
            return [sf.lit(1).cast("bigint").alias("source"), place.alias("offset")]
        if self.records.sources[0].order == FILES:
            return [sf.col(FILE), sf.col(BLOCK).alias("source"), sf.col(ROW).alias("offset")]
        return [(sf.col(ROW) + _LEAST_PLACE).alias("source"), sf.col(BLOCK).alias("offset")]


def sent_of(records: Records, sender: Sender, serdes: tuple[Serde, Serde], used: Collection[str] | None) -> Sent:
    """Return records for stages in Python. Raises UntranslatableError for values without columns, and for an order without numbers.

    serdes: those of the topic's keys and values; used: the fields of values that stages use; None for all.
    """
    topic, source, flattens = (
        sender.topic,
        records.sources[0],
        any(isinstance(test, Exploded) for test in records.tests),
    )
    has_tasks = sender.tasks > 1
    refusals = {
        f"{topic} has the changes of a table": bool(records.row),
        f"the rows of {source.topic} are not numbered, as those of Parquet": has_tasks and not source.is_numbered,
        f"{source.topic} has many files, and records become several": has_tasks and flattens and not source.is_ranked,
        f"the place of a record of {source.topic} determines its partition": has_tasks and source.key.kind == NOTHING,
        f"the place of a record determines its partition of {topic}": sender.partitions > 1
        and records.key.kind == NOTHING,
    }
    refuse_if(refusals)
    key, value = (
        _as_bytes(term, serde, fields, f"a {part} of {topic}")
        for part, term, serde, fields in (
            ("key", records.key, serdes[0], None),
            ("value", records.value, serdes[1], used),
        )
    )
    columns = [("key", key), ("value", value), ("timestamp", records.time.sql)]
    if has_tasks:
        columns.append((WRITER, _as_column(source.key, None, f"a key of {source.topic}")))
        records = records.tested(Guard(f"({source.key.sql} IS NOT NULL)", f"a record of {source.topic} has no key"))
    if sender.partitions > 1:
        records = records.tested(Guard(f"(NOT {records.key.is_null})", f"a record of {topic} has no key"))
    if sum(map(len, (*(sql for _, sql in columns), *(test.sql for test in records.tests)))) > LONGEST_SQL:
        raise UntranslatableError(f"the query of {topic} has more than {LONGEST_SQL:,} characters")
    return Sent(records, sender, tuple(columns))


def _as_bytes(term: Term, serde: Serde, used: Collection[str] | None, shown: str) -> str:
    """Return SQL of a value as bytes that a serde reads as the value, or else as a column that the serde encodes in Python.

    used: the fields of an object that count; None for all, with the bytes that Python writes.
    """
    if term.kind == TEXT and serde.spec == "string":
        return f"CAST({term.sql} AS BINARY)"
    if term.kind == INTEGER and serde.spec == "long":
        return f"unhex(lpad(hex({term.sql}), 16, '0'))"
    if used is None or term.kind != OBJECT or not set(used) <= set(term.fields):
        return _as_column(term, None, shown)
    if not used:
        return f"if({term.is_null}, NULL, X'7B7D')"
    column = _as_column(term, sorted(used), shown)
    is_flat = all(term.fields[name].kind not in NESTED for name in used)
    return f"CAST(to_json({column}, map('ignoreNullFields', 'false')) AS BINARY)" if is_flat else column


def _as_column(term: Term, names: Collection[str] | None, shown: str) -> str:
    """Return SQL of a value as one column. names: of the fields of an object; None for all. Raises UntranslatableError."""
    if term.kind == NOTHING:
        return "CAST(NULL AS STRING)"
    if term.kind in COLUMN_TYPES:
        return term.sql
    if term.kind != OBJECT:
        raise UntranslatableError(f"{shown} has {term.kind}, which is no column")
    parts: list[str] = []
    for name in term.fields if names is None else names:
        field = term.fields.get(name)
        if field is None or literal(name) is None:
            raise UntranslatableError(f"{shown} has a field {name} of a type that SQL does not treat as Python does")
        parts += [quoted_text(name), _as_column(field, None, shown)]
    struct = f"named_struct({', '.join(parts)})"
    return f"if({term.is_null}, NULL, {struct})" if term.nullable else struct
