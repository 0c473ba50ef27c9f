"""Joins of queries: the row that a table has for the key of each record, and the records of streams that have no partner."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

from streamkit.errors import InexactError
from streamkit.runtime.spark.rows.files import OpenedInput
from streamkit.runtime.spark.rows.input_columns import HIDDEN
from streamkit.runtime.spark.rows.output_columns import ticked
from streamkit.runtime.spark.spark_session import classic_context
from streamkit.runtime.spark.sql.sources import TIME, SqlSource
from streamkit.runtime.spark.sql.terms import OBJECT, Guard, Keep, Term, chosen
from streamkit.runtime.spark.workers.worker import mark_errors

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import Column, DataFrame

_LAST_ROW = f"{HIDDEN}last_row"
_IN_PLACE = ("boolean", "byte", "short", "integer", "long", "float", "double", "date", "timestamp", "timestamp_ntz")
"""Types of which Spark's hash tables change a value in its place."""


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
        rows = chosen(table.frame(opened, paths, True), tests)
        rows = rows.coalesce(1) if is_small else rows
        names = {table.name_of(path) for path in paths if path != ("key",)}
        cells = {name: sf.col(ticked(name)) for name in sorted(names)}
        cells[table.mark + "present"] = sf.expr(f"if({table.value.is_null}, NULL, true)")
        latest = latest_rows(rows, sf.col(key), cells, table.order_columns(rows))
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


def latest_rows(
    rows: DataFrame, key: Column, cells: Mapping[str, Column], order: Sequence[Column], others: Sequence[Column] = ()
) -> DataFrame:
    """Return the last row's cells of each key, and other aggregates of its rows.

    Spark sorts the rows for an aggregate of text or of an object, but keeps numbers in a hash table.
    """
    from pyspark.sql import functions as sf

    groups, place = rows.groupBy(key), place_of(order)
    if len(order) == 1:
        latest = groups.agg(*(sf.max_by(cell, place).alias(name) for name, cell in cells.items()), *others)
        if all(latest.schema[name].dataType.typeName() in _IN_PLACE for name in cells):
            return latest
    last = sf.struct(*(cell.alias(name) for name, cell in cells.items()))
    latest = groups.agg(sf.max_by(last, place).alias(_LAST_ROW), *others)
    return latest.select("*", f"{_LAST_ROW}.*").drop(_LAST_ROW)


def place_of(order: Sequence[Column]) -> Column:
    """Return one column that orders rows as several do."""
    from pyspark.sql import functions as sf

    return order[0] if len(order) == 1 else sf.struct(*order)


# Records without a partner.

_NEVER = (1 << 63) - 1
_MOST_RECORDS = 1 << 24
"""The records of two streams of which one task has a few numbers each in memory."""
EMITTED_BY = "emitted by "
"""The beginning of the names of the columns of the record at which another one is emitted."""


@dataclass(frozen=True)
class Waiting:
    """When a task emits records of two streams that have no partner, if it gets all records in the order of their times.

    before, after: how much earlier and later than the left record the right one may be; grace: of the join; all in ms. is_outer:
    whether it emits records of the right stream, too.
    """

    before: int
    after: int
    grace: int
    is_outer: bool

    @mark_errors
    def emissions(self, shown: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
        """Yield the records that have no partner, with the columns of the record at which each is emitted.

        shown: the step, for messages; batches: all records in the order of the task, with columns key, timestamp, is_left and others.
        Raises InexactError for more than _MOST_RECORDS.
        """
        import numpy as np
        import pyarrow as pa

        found = list(batches)
        if not found:
            return
        rows = pa.Table.from_batches(found)
        if rows.num_rows > _MOST_RECORDS:
            raise InexactError(f"{shown}: it joins more than {_MOST_RECORDS:,} records")
        chunks = rows["key"].dictionary_encode().unify_dictionaries().chunks
        codes = np.concatenate([chunk.indices.to_numpy() for chunk in chunks]).astype(np.int64)
        emitted, by = self.places(rows[TIME].to_numpy(), rows["is_left"].to_numpy(), codes)
        those, others = rows.take(pa.array(emitted, pa.int64())), rows.take(pa.array(by, pa.int64()))
        names = [name for name in rows.column_names if name != "key"]
        columns = {name: those[name] for name in rows.column_names} | {
            EMITTED_BY + name: others[name] for name in names
        }
        yield from pa.table(columns).to_batches()

    def places(
        self, times: NDArray[np.int64], are_left: NDArray[np.bool_], keys: NDArray[np.int64]
    ) -> tuple[list[int], list[int]]:
        """Return the places of the records that have no partner, and of those at which they are emitted.

        keys: a number for each key.
        """
        import numpy as np

        left, right = np.flatnonzero(are_left), np.flatnonzero(~are_left)
        partners = np.full(len(times), -1, np.int64)
        partners[left] = _first_partners(times, keys, (left, right), (self.before, self.after))
        if self.is_outer:
            partners[right] = _first_partners(times, keys, (right, left), (self.after, self.before))
        search = _Search(self, times.tolist(), partners.tolist())
        search.run(are_left.tolist())
        return search.emitted, search.by


def _first_partners(
    times: NDArray[np.int64],
    keys: NDArray[np.int64],
    sides: tuple[NDArray[np.int64], NDArray[np.int64]],
    window: tuple[int, int],
) -> NDArray[np.int64]:
    """Return the place of the first record of the other side within the window of each record of one side, or _NEVER.

    times: in their order; keys: a number for each key; sides: the places of both; window: how much earlier and later, in ms.
    """
    import numpy as np

    (own, others), (before, after) = sides, window
    moments, ranks = np.unique(times, return_inverse=True)
    width = len(moments) + 1
    others = others[np.argsort(keys[others], kind="stable")]
    ordered = keys[others] * width + ranks[others]
    first = keys[own] * width + np.searchsorted(moments, times[own] - before)
    end = keys[own] * width + np.searchsorted(moments, times[own] + after, "right")
    at = np.searchsorted(ordered, first)
    padded = np.append(ordered, _NEVER)
    return np.where(padded[at] < end, np.append(others, _NEVER)[at], _NEVER)


class _Search:
    """Follows the records of a task, and searches for waiting ones as Kafka Streams does (KStreamKStreamJoin).

    A search starts only after the window of the record that the search before has looked at last. partners: the place of the first
    partner of each record, lower than its own if it never waits.
    """

    def __init__(self, waiting: Waiting, times: list[int], partners: list[int]):
        self._times = times
        self._partners = partners
        self._grace = waiting.grace
        self._lookahead = {True: waiting.after, False: waiting.before}
        self._queues: dict[bool, list[int]] = {True: [], False: []}
        self._heads = {True: 0, False: 0}
        """How many of each queue no longer wait."""
        self._looked_at = _NEVER
        self.emitted: list[int] = []
        self.by: list[int] = []

    def run(self, are_left: list[bool]) -> None:
        """Find all emissions. are_left: whether each record is of the left side."""
        for place, (time, is_left, partner) in enumerate(zip(self._times, are_left, self._partners, strict=True)):
            lookahead = self._lookahead[is_left]
            if not time <= self._looked_at + lookahead + self._grace <= _NEVER:
                self._looked_at = self._searched(place, time)
            if partner < place:
                continue
            if lookahead < 0:
                self._emit(place, place)
            else:
                self._queues[is_left].append(place)
                self._looked_at = min(self._looked_at, time)

    def _emit(self, place: int, by: int) -> None:
        self.emitted.append(place)
        self.by.append(by)

    def _searched(self, place: int, time: int) -> int:
        """Emit the records whose windows have closed; return the time of the last record that the search looks at."""
        times, partners, last = self._times, self._partners, -1
        for is_left, queue in self._queues.items():
            closed = time - self._lookahead[is_left] - self._grace
            head = self._heads[is_left]
            while head < len(queue) and (partners[queue[head]] < place or times[queue[head]] < closed):
                if partners[queue[head]] >= place:
                    self._emit(queue[head], place)
                    last = max(last, times[queue[head]])
                head += 1
            self._heads[is_left] = head
            while head < len(queue) and partners[queue[-1]] < place:
                queue.pop()
        are_open = [len(queue) > self._heads[is_left] for is_left, queue in self._queues.items()]
        if all(are_open):
            return self._after_both(place)
        last = max(
            [
                last,
                *(times[queue[-1]] for queue, is_open in zip(self._queues.values(), are_open, strict=True) if is_open),
            ]
        )
        return _NEVER if last < 0 else last

    def _after_both(self, place: int) -> int:
        """Return the time of the record after the first ones of both sides whose windows are open: there the search ends."""
        times, partners = self._times, self._partners
        left, right = (times[queue[self._heads[is_left]]] for is_left, queue in self._queues.items())
        # At one time, the records of the right side come first.
        end, is_left_last = max(left, right), left >= right
        following = []
        for is_left, queue in self._queues.items():
            head = self._heads[is_left]
            begin = bisect_left(queue, end + is_left_last, head, key=times.__getitem__)
            begin = head + 1 if is_left == is_left_last else begin
            waiting = (times[queue[at]] for at in range(begin, len(queue)) if partners[queue[at]] >= place)
            following.append(next(waiting, _NEVER))
        return end if min(following) == _NEVER else min(following)


__all__ = ["EMITTED_BY", "TableJoin", "Waiting", "can_be_sent", "latest_rows", "place_of"]
