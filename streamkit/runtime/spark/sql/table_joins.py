"""Joins of queries: the row that a table has for the key of each record, of a table that is complete before the first record."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from streamkit.errors import InexactError
from streamkit.runtime.spark.rows.files import OpenedInput
from streamkit.runtime.spark.rows.output_columns import ticked
from streamkit.runtime.spark.spark_session import classic_context
from streamkit.runtime.spark.sql.sources import TIME, SqlSource
from streamkit.runtime.spark.sql.terms import OBJECT, Guard, Keep, Term, chosen_rows

if TYPE_CHECKING:
    from pyspark.sql import DataFrame

_ROW = "row"


@dataclass(frozen=True)
class TableJoin:
    """The row of a table with the key of each record, null without one.

    key: SQL of the record's key; is_global: whether the table is complete whatever the times of its records are.
    """

    table: SqlSource
    key: str
    is_global: bool

    @property
    def sql(self) -> str:
        """The SQL that may name columns of the records."""
        return self.key

    @property
    def row(self) -> Term:
        """The value of the row; null without one."""
        value = self.table.value
        return replace(value, nullable=True, sql=self._is_present if value.kind == OBJECT else value.sql)

    @property
    def _is_present(self) -> str:
        return ticked(self.table.mark + "present")

    def joined(self, rows: DataFrame, texts: Sequence[str], opened: OpenedInput) -> DataFrame:
        """Return rows with the columns of their table's row that texts of SQL name."""
        from pyspark.sql import functions as sf

        is_small = self.is_small(opened)
        latest = self._latest(texts, opened, is_small)
        latest = sf.broadcast(latest) if is_small else latest
        return rows.join(latest, sf.expr(f"({self.key} = {self.table.key.sql})"), "left")

    def is_small(self, opened: OpenedInput) -> bool:
        """Return whether the files of the table are small enough for Spark to send its rows to each task, so that no record moves."""
        return can_be_sent(opened.source)

    def _latest(self, texts: Sequence[str], opened: OpenedInput, is_small: bool) -> DataFrame:
        """Return the last row of each key, unless it deletes the key's row. One task looks for those of a small table."""
        from pyspark.sql import functions as sf

        table, key = self.table, self.table.key.sql
        paths = table.columns_in([*texts, key, table.value.is_null])
        tests: list[Guard | Keep] = [*table.guards(paths), Keep(f"({key} IS NOT NULL)")]
        rows = table.frame(opened, paths, True).where(chosen_rows(tests))
        rows = rows.coalesce(1) if is_small else rows
        names = {table.name_of(path) for path in paths if path != ("key",)}
        cells = [sf.col(ticked(name)).alias(name) for name in sorted(names)]
        present = sf.expr(f"if({table.value.is_null}, NULL, true)").alias(table.mark + "present")
        last = sf.max_by(sf.struct(*cells, present), sf.struct(*table.order_columns(rows))).alias(_ROW)
        latest = rows.groupBy(sf.col(key)).agg(last).select(sf.col(key), f"{_ROW}.*")
        return latest.where(f"{self._is_present} IS NOT NULL")

    def refuse_changes(self, sources: Sequence[SqlSource], opened: Callable[[str], OpenedInput]) -> None:
        """Raise InexactError if a record may come before a change of its table: a task merges both by their times."""
        if self.is_global:
            return
        from pyspark.sql import functions as sf

        (last,) = self.table.frame(opened(self.table.topic), ()).agg(sf.max(TIME)).collect()[0]
        for source in sources:
            (first,) = source.rows(opened, ()).agg(sf.min(TIME)).collect()[0]
            if last is not None and first is not None and last >= first:
                raise InexactError(f"{self.table.topic} changes while records of {source.topic} are joined with it")


def can_be_sent(rows: DataFrame) -> bool:
    """Return whether Spark, by the sizes of files, would send rows to each task of a join."""
    if classic_context(rows.sparkSession) is None:
        return False
    most: int = rows.sparkSession._jsparkSession.sessionState().conf().autoBroadcastJoinThreshold()
    size = rows._jdf.queryExecution().analyzed().stats().sizeInBytes()
    return int(size) <= most


__all__ = ["TableJoin", "can_be_sent"]
