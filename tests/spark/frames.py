"""Data frames in this process, with the few operations that a job is built of: what Spark does with rows between stages."""

from __future__ import annotations

import random
from collections.abc import Callable, Collection, Iterator
from dataclasses import dataclass
from typing import Any
from zlib import crc32

import pyarrow as pa
import pyarrow.compute as pc

from streamkit.runtime.spark.workers import arrow_rows
from streamkit.runtime.spark.workers.output_collector import LINE, LINES_DDL

_SCHEMAS = {arrow_rows.DDL: arrow_rows.schema, LINES_DDL: lambda: pa.schema([(LINE, pa.string())])}


@dataclass(frozen=True)
class Condition:
    """Which topics the rows that a filter keeps have, or do not have."""

    topics: Collection[str]
    inverted: bool = False

    def __invert__(self) -> Condition:
        return Condition(self.topics, not self.inverted)


class _TopicColumn:
    def isin(self, topics: Collection[str]) -> Condition:
        return Condition(topics)

    def __eq__(self, topic: object) -> Any:
        return Condition([str(topic)])

    __hash__ = None  # type: ignore[assignment]


class Session:
    """What a job needs of a session; as one of Spark Connect, it names no work."""

    sparkContext = None

    def createDataFrame(self, rows: list, ddl: str) -> Frame:
        """Return a frame without rows."""
        assert not rows
        return Frame([_SCHEMAS[ddl]().empty_table()], random.Random(0))


class Frame:
    """Rows in partitions of Spark, a table each. draw: cuts rows into batches, which Spark does at places of its own."""

    topic = _TopicColumn()
    sparkSession = Session()

    def __init__(self, tables: list[pa.Table], draw: random.Random):
        self.tables = tables
        self._draw = draw

    @property
    def columns(self) -> list[str]:
        """The names of the columns."""
        names: list[str] = self.tables[0].column_names
        return names

    def filter(self, condition: Condition) -> Frame:
        """Return the rows for which a condition holds."""
        topics = pa.array(sorted(condition.topics), pa.string())

        def keep(table: pa.Table) -> pa.Table:
            found = pc.is_in(table["topic"], topics)
            return table.filter(pc.invert(found) if condition.inverted else found)

        return Frame([keep(table) for table in self.tables], self._draw)

    def persist(self) -> Frame:
        """Return the frame: it is not computed twice."""
        return self

    def unionByName(self, other: Frame) -> Frame:
        """Return the rows of both, in partitions as they are. The columns must be the same."""
        assert self.columns == other.columns
        return Frame([*self.tables, *other.tables], self._draw)

    def repartition(self, count: int) -> Frame:
        """Return all rows in one partition, in any order."""
        assert count == 1
        return Frame([self._shuffled(pa.concat_tables(self.tables))], self._draw)

    def repartitionById(self, count: int, name: str) -> Frame:
        """Return the rows by the partition in a column, in any order."""
        rows = self._shuffled(pa.concat_tables(self.tables))
        return Frame([rows.filter(pc.equal(rows[name], number)) for number in range(count)], self._draw)

    def sortWithinPartitions(self, *names: str) -> Frame:
        """Return each partition sorted by columns, nulls first."""
        keys = [(name, "ascending", "at_start") for name in names]
        return Frame([table.take(pc.sort_indices(table, keys)) for table in self.tables], self._draw)

    def mapInArrow(self, function: Callable[[Any], Iterator[pa.RecordBatch]], ddl: str) -> Frame:
        """Return what a function makes of the batches of each partition."""
        schema = _SCHEMAS[ddl]()
        return Frame(
            [pa.Table.from_batches(list(function(self._batches(table))), schema) for table in self.tables], self._draw
        )

    def rows(self) -> list[dict[str, Any]]:
        """Return all rows, partition after partition."""
        return [row for table in self.tables for row in table.to_pylist()]

    def _batches(self, table: pa.Table) -> Iterator[pa.RecordBatch]:
        table, at = table.combine_chunks(), 0
        while at < len(table):
            size = self._draw.choice((1, 3, 20, 20_000))
            yield from table.slice(at, size).combine_chunks().to_batches()
            at += size

    def _shuffled(self, table: pa.Table) -> pa.Table:
        return table.take(pa.array(self._draw.sample(range(len(table)), len(table)), pa.int64()))


def with_place(frame: Frame) -> Frame:
    """Add a place to rows, as split.with_place does."""

    def place(table: pa.Table) -> pa.Table:
        hashed = [crc32(key or b"") << 31 for key in table["key"].to_pylist()]
        return table.append_column(arrow_rows.PLACE, pa.array(hashed, pa.int64()))

    return Frame([place(table) for table in frame.tables], frame._draw)


__all__ = ["Condition", "Frame", "Session", "with_place"]
