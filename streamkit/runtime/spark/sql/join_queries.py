"""Joins of two inputs: the pairs of two streams, with records without a partner, and the rows of joins of two tables."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import TYPE_CHECKING, ClassVar

from streamkit.errors import InexactError
from streamkit.runtime.spark.rows.files import FILES
from streamkit.runtime.spark.rows.output_columns import ticked
from streamkit.runtime.spark.sql.record_queries import GROUP, PLACE, Opened, Records, can_be_sent, latest_rows, place_of
from streamkit.runtime.spark.sql.sources import THERE, TIME, SqlSource, name_of
from streamkit.runtime.spark.sql.terms import (
    INTEGER,
    NESTED,
    NOTHING,
    TEXT,
    Guard,
    SameFields,
    Term,
    chosen,
    named_fields,
    refuse_if,
)
from streamkit.runtime.spark.sql.window_times import IN_ORDER, refuse_late
from streamkit.runtime.spark.workers.worker import mark_errors

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import Column, DataFrame


class _Renamed(SameFields):
    """The fields of an object that columns of other names hold."""

    def __init__(self, term: Term, path: tuple[str, ...]):
        super().__init__(term)
        self._path = path

    def __getitem__(self, name: str) -> Term:
        return renamed(self._term.fields[name], (*self._path, name))


def renamed(term: Term, path: tuple[str, ...]) -> Term:
    """Return a value that columns hold whose names begin with a path."""
    if term.kind == NOTHING:
        return term
    fields = _Renamed(term, path) if term.kind in NESTED else {}
    guards = (replace(term.guards[0], sql=f"({ticked(name_of((THERE, *path)))} IS TRUE)"),) if term.guards else ()
    return replace(term, sql=ticked(name_of(path)), fields=fields, guards=guards)


def renamed_columns(term: Term, path: tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield the names of the columns of a renamed value, with SQL of what they hold."""
    if term.guards:
        yield name_of((THERE, *path)), f"({' AND '.join(guard.sql for guard in term.guards)})"
    if term.kind in NESTED:
        yield name_of(path), f"if({term.is_null}, NULL, true)"
        for name in named_fields(term):
            field = term.fields.get(name)
            if field is not None:
                yield from renamed_columns(field, (*path, name))
    elif term.kind != NOTHING:
        yield name_of(path), term.sql


# Pairs of records of two streams.

_BUCKET, _MADE = "bucket", "order"
_HASH = "hash"


@dataclass(frozen=True)
class Pairs:
    """What a join of two streams emits, in the order of a task: pairs of records with the same key whose times are within a window.

    The rows of both topics must be in the order of their times, so that no record is late: a task then takes them by time, topic and
    place, and joins each with all of the other topic before. before, after: how much earlier and later than the left record
    the right one may be; retention: how long a task keeps a record; all in ms.
    kind: inner, left, or outer. With left and outer ones, records without a partner are emitted too, if all records are in one
    partition.
    """

    left: Records
    right: Records
    before: int
    after: int
    retention: int
    shown: str
    kind: str = "inner"
    time: Term = field(default_factory=lambda: Term(INTEGER, ticked(TIME)))
    is_joined: ClassVar[bool] = True
    has_keys: ClassVar[bool] = False
    has_made_times: ClassVar[bool] = False
    is_numbered: ClassVar[bool] = False

    @classmethod
    def of(cls, left: Records, right: Records, times: tuple[int, int, int], shown: str, kind: str) -> Pairs:
        """Return what the join emits. times: before, after, and the grace. Raises UntranslatableError."""
        before, after, grace = times
        sides = []
        for side, is_emitted in ((left, kind != "inner"), (right, kind == "outer")):
            has_key = f"(NOT {side.key.is_null})"
            valued = side.kept_where(f"(NOT {side.value.is_null})")
            guard = Guard(has_key, f"{shown}: a record without a key has no partner")
            sides.append(valued.tested(guard) if is_emitted else valued.kept_where(has_key))
        topics = [source.topic for side in (left, right) for source in side.sources]
        refusals = {
            "it joins pairs of other streams": len(topics) > 2,
            "both streams come from the same topic by different steps": len(set(topics)) < len(topics)
            and left != right,
            "it joins a stream with itself": kind != "inner" and len(set(topics)) < len(topics),
            "a topic has an order of its own": kind != "inner"
            and any(source.order != FILES for source in left.sources + right.sources),
            "a step before it sets the timestamps": any(side.time != side.source.time for side in (left, right)),
            "its window has no time": before + after < 0,
            f"a key is {left.key.kind}, the other {right.key.kind}": left.key.kind != right.key.kind
            or left.key.kind not in (TEXT, INTEGER),
        }
        for side in (left, right):
            for source in side.sources:
                refusals[f"{source.topic} is not ordered by its timestamps"] = not source.may_be_in_order
        refuse_if(refusals, shown)
        lowest = min(before, after)
        one, other = sides
        if lowest < 0:
            # Negative times of windows end at 0.
            early = f"{shown}: a time is too near to 1970"
            one, other = (side.tested(Guard(f"({side.time.sql} >= {-lowest}L)", early)) for side in (one, other))
        return cls(one, other, before, after, before + after + grace, shown, kind)

    @property
    def emits_alone(self) -> bool:
        """Whether it also emits records without a partner, and so not in the order of times."""
        return self.kind != "inner"

    @property
    def may_be_in_order(self) -> bool:
        """Whether it emits in the order of times."""
        return not self.emits_alone

    @property
    def key(self) -> Term:
        """The key of both records."""
        return self.names["key"]

    @property
    def topic(self) -> str:
        """The topic of the left stream."""
        return self.sources[0].topic

    @property
    def sources(self) -> tuple[SqlSource, ...]:
        """The topics of both streams."""
        return (*self.left.sources, *self.right.sources)

    @property
    def names(self) -> dict[str, Term]:
        """The parts that the expression of the join may use."""
        return {
            "key": replace(renamed(self.left.key, ("left key",)), nullable=False),
            "left": replace(renamed(self.left.value, ("left",)), nullable=self.kind == "outer"),
            "right": replace(renamed(self.right.value, ("right",)), nullable=self.kind != "inner"),
        }

    def columns_in(self, texts: Sequence[str]) -> list[tuple[str, ...]]:
        """Return the columns that texts of SQL name, as `SqlSource.columns_in`."""
        return [
            (name,)
            for side in ("left", "right")
            for name, _ in self._leaves(side)
            if any(ticked(name) in text for text in texts)
        ]

    def _leaves(self, side: str) -> list[tuple[str, str]]:
        records = self.left if side == "left" else self.right
        return [*renamed_columns(records.key, (f"{side} key",)), *renamed_columns(records.value, (side,))]

    def guards(self, columns: Sequence[tuple[str, ...]]) -> list[Guard]:
        """Return nothing: `rows` checks the records."""
        return []

    def order_columns(self, rows: DataFrame) -> list[Column]:
        """Return what orders the records. rows: of `rows`."""
        from pyspark.sql import functions as sf

        made = [sf.col(name) for name in rows.columns if name.startswith(_MADE)]
        return [sf.col(TIME), *made] if not self.emits_alone else made

    def rows(self, opened: Opened, columns: Sequence[tuple[str, ...]], has_order: bool = False) -> DataFrame:
        """Return the pairs, as `SqlSource.rows`. Raises InexactError if rows of a topic are not in the order of their times."""
        from pyspark.sql import DataFrame
        from pyspark.sql import functions as sf

        for source in self.sources:
            refuse_late(source, opened(source.topic), IN_ORDER)
        names = [name for (name,) in columns]
        has_order = has_order or self.is_one or self.emits_alone
        width = self.before + self.after + 1
        left, right = (self._side(side, opened, names, has_order) for side in ("left", "right"))
        low, high = (
            f"(greatest(0L, `left time` {sign}L) DIV {width}L)" for sign in (f"- {self.before}", f"+ {self.after}")
        )
        are_together = self._moves_keys(opened)
        if are_together:
            left, right = left.repartition(sf.col("left key")), right.repartition(sf.col("right key"))
        sides = {"left": left, "right": right}
        left = left.withColumn(f"left {_BUCKET}", sf.expr(f"explode(sequence({low}, {high}))"))
        right = right.withColumn(f"right {_BUCKET}", sf.expr(f"`right time` DIV {width}L"))
        same = f"`left key` = `right key` AND `left {_BUCKET}` = `right {_BUCKET}`"
        if are_together:
            # Spark sorts both sides, and compares eight bytes first: keys often begin with the same text.
            left = left.withColumn(f"left {_HASH}", sf.xxhash64("left key", f"left {_BUCKET}"))
            right = right.withColumn(f"right {_HASH}", sf.xxhash64("right key", f"right {_BUCKET}"))
            same = f"`left {_HASH}` = `right {_HASH}` AND {same}"
        within = f"`right time` BETWEEN `left time` - {self.before}L AND `left time` + {self.after}L"
        pairs = left.join(right, sf.expr(f"{same} AND {within}"))
        is_later = "`left time` >= `right time`" if self._is_left_later else "`left time` > `right time`"
        is_later = "`left order` > `right order`" if self.is_one else is_later
        pairs = chosen(pairs, self._exact(is_later))
        time = sf.greatest("left time", "right time").alias(TIME)
        made = self._made(is_later) if has_order else ()
        order = [column.alias(f"{_MADE} {index}") for index, column in enumerate(made)]
        pairs = pairs.select(*(sf.col(ticked(name)) for name in names), time, *order)
        return reduce(DataFrame.unionByName, self._alone(sides, names, are_together), pairs)

    def _made(self, is_later: str) -> tuple[Column, ...]:
        """Return what orders pairs: the later record makes them, one by one in the order of the others. is_later: SQL of the left one."""
        from pyspark.sql import functions as sf

        first, left_order, right_order = sf.expr(is_later), sf.col("left order"), sf.col("right order")
        if self.is_one:
            return (sf.greatest(left_order, right_order), ~first, sf.least(left_order, right_order))
        is_last = first if self._is_left_later else ~first
        if not self.emits_alone:
            return (is_last, sf.when(first, left_order), right_order, left_order)
        later, earlier = (
            sf.when(first, one).otherwise(other)
            for one, other in ((left_order, right_order), (right_order, left_order))
        )
        # A record emits those without a partner before its pairs.
        emits_alone = (sf.lit(True), sf.lit(0).cast("bigint"), sf.lit(False))
        return (sf.greatest("left time", "right time"), is_last, later, *emits_alone, earlier)

    def _alone(self, sides: Mapping[str, DataFrame], names: Sequence[str], are_together: bool) -> Iterator[DataFrame]:
        """Yield the records of each side that are emitted without a partner, with the columns of pairs."""
        from pyspark.sql import functions as sf

        if not self.emits_alone:
            return
        emitted = self._emitted(sides)
        if are_together:
            emitted = emitted.repartition(sf.col("key"))
        by = [sf.col(EMITTED_BY + name) for name in (TIME, "is_last", "place")]
        made = [*by, sf.lit(False), *(sf.col(name) for name in (TIME, "is_left", "place"))]
        order = [column.alias(f"{_MADE} {index}") for index, column in enumerate(made)]
        for side, other in (("left", "right"), ("right", "left"))[: 2 if self.kind == "outer" else 1]:
            mine = emitted.where(f"is_left = {str(side == 'left').lower()}")
            rows = sides[side].join(mine, sf.expr(f"`{side} key` = key AND `{side} order` = place"))
            absent = {field.name: sf.lit(None).cast(field.dataType) for field in sides[other].schema}
            cells = (
                absent
                | {name: sf.col(ticked(name)) for name in sides[side].columns}
                | {"left key": sf.col(f"{side} key")}
            )
            yield rows.select(*(cells[name].alias(name) for name in names), sf.col(f"{side} time").alias(TIME), *order)

    def _emitted(self, sides: Mapping[str, DataFrame]) -> DataFrame:
        """Return the records that have no partner, with those at which they are emitted. One task looks at all records for that."""
        from pyspark.sql import functions as sf
        from pyspark.sql.types import StructField, StructType

        left, right = (
            rows.select(
                sf.col(f"{side} key").alias("key"),
                sf.col(f"{side} time").alias(TIME),
                sf.lit((side == "left") == self._is_left_later).alias("is_last"),
                sf.col(f"{side} order").alias("place"),
                sf.lit(side == "left").alias("is_left"),
            )
            for side, rows in sides.items()
        )
        if any(rows.schema["place"].dataType.typeName() != "long" for rows in (left, right)):
            raise InexactError(f"{self.shown}: Spark has no number for the place of each row of its topics")
        records = left.union(right).repartition(1).sortWithinPartitions(TIME, "is_last", "place")
        fields = records.schema.fields
        by = [StructField(EMITTED_BY + field.name, field.dataType) for field in fields if field.name != "key"]
        waiting = Waiting(self.before, self.after, self.retention - self.before - self.after, self.kind == "outer")
        return records.mapInArrow(partial(waiting.emissions, self.shown), StructType([*fields, *by]))

    def _moves_keys(self, opened: Opened) -> bool:
        """Return whether Spark moves the records of each key to one task, where it finds their pairs: none of both topics is small."""
        return not any(can_be_sent(opened(source.topic).source) for source in self.sources)

    @property
    def is_one(self) -> bool:
        """Whether a stream is joined with itself: each record then comes first on the left side."""
        return self.left.source is self.right.source

    @property
    def _is_left_later(self) -> bool:
        """Whether a task takes the left one of two records with the same time last."""
        left, right = (source.topic.encode() for source in self.sources)
        return left > right

    def _exact(self, is_later: str) -> list[Guard]:
        """Return what must hold of each pair: how long a task keeps the earlier record depends on all of its partition."""
        kept = self.retention
        if kept > max(self.before, self.after):
            return []
        ends = f"if({is_later}, `right time` <= `left time` - {kept}L, `left time` <= `right time` - {kept}L)"
        return [Guard(f"(NOT {ends})", f"{self.shown}: a record is at the end of its window, which has no grace")]

    def _side(self, side: str, opened: Opened, names: Sequence[str], has_order: bool) -> DataFrame:
        """Return the records of one side, with columns whose names begin with the side."""
        from pyspark.sql import functions as sf

        records = self.left if side == "left" else self.right
        key = f"{side} key"
        cells = {name: sql for name, sql in self._leaves(side) if name in names} | {key: records.key.sql}
        rows = records.frame(opened, list(cells.values()), has_order)
        order = [place_of(records.order_columns(rows)).alias(f"{side} {_MADE}")] if has_order else []
        time = sf.expr(records.time.sql).alias(f"{side} time")
        return rows.select(*(sf.expr(sql).alias(name) for name, sql in cells.items()), time, *order)


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


# Rows of joins of two tables.

_NO_ROW, _UNKNOWN = -1, -2
"""In place of the time of a row: there is none, or the changes before the last ones decide."""


@dataclass(frozen=True)
class TablePair:
    """The rows of a join of two tables: what their last changes of each key tell of the last record of the join.

    If both tables have a row, its value and its time do not depend on which change came last. If a change has deleted a row, the
    order of changes must be known, which it is if the rows of both topics are in the order of their times. kind: inner, left or outer.
    """

    kind: str
    left: Records
    right: Records

    @property
    def names(self) -> dict[str, Term]:
        """The parts that the expression of the join may use."""
        nullable = {"left": self.kind == "outer", "right": self.kind != "inner"}
        values = {
            side: replace(renamed(records.value, (side,)), nullable=nullable[side])
            for side, records in (("left", self.left), ("right", self.right))
        }
        return {"key": Term(self.left.key.kind, ticked(GROUP), size=self.left.key.size), **values}

    def frame(self, opened: Opened, texts: Sequence[str]) -> DataFrame:
        """Return the key and the time of each row, with the columns that texts of SQL name."""
        from pyspark.sql import functions as sf

        how = {"inner": "inner", "left": "left", "outer": "full"}[self.kind]
        left = _last_changes(self.left, "left", opened, texts)
        both = left.join(_last_changes(self.right, "right", opened, texts), GROUP, how)
        time = self._time(_in_order_of_times((self.left, self.right), opened))
        rows = both.where("`left has` OR `right has`" if self.kind == "outer" else "`left has`")
        rows = rows.withColumn(TIME, sf.expr(time)).where(f"{ticked(TIME)} <> {_NO_ROW}L")
        topics = " or ".join(records.source.topic for records in (self.left, self.right))
        known = Guard(f"({ticked(TIME)} <> {_UNKNOWN}L)", f"a row of {topics} is deleted, and changes before decide")
        return chosen(rows, [known])

    def _time(self, is_ordered: bool) -> str:
        """Return SQL of the time of a row."""
        has_left, has_right = ("coalesce(`left has`, false)", "coalesce(`right has`, false)")
        is_left, is_right = ("coalesce(`left is`, false)", "coalesce(`right is`, false)")
        left, right, latest = "`left time`", "`right time`", "greatest(`left time`, `right time`)"
        one, other = (records.source.topic.encode() for records in (self.left, self.right))
        left_last = f"({left} > {right} OR ({left} = {right} AND {'true' if one > other else 'false'}))"
        ordered = str(is_ordered).lower()
        left_once, right_once = (f"(`{side} deletions` = 1L AND `{side} changes` > 1L)" for side in ("left", "right"))
        cases = {
            "inner": [
                (f"NOT {has_left} OR NOT {has_right}", f"{_NO_ROW}L"),
                (f"{is_left} AND {is_right}", latest),
                (f"{ordered} AND {is_right} AND {left_last}", left),
                (f"{ordered} AND {is_left} AND NOT {left_last}", right),
            ],
            "left": [
                (f"{is_left} AND NOT {has_right}", left),
                (f"{is_left} AND ({is_right} OR {ordered})", latest),
                (f"{ordered} AND {is_right} AND {left_last}", left),
                (f"NOT {is_left} AND {left_once} AND ({ordered} OR NOT {has_right})", left),
                (f"NOT {is_left} AND NOT {has_right} AND `left changes` = 1L", f"{_NO_ROW}L"),
            ],
            "outer": [
                (f"{is_left} AND NOT {has_right}", left),
                (f"{is_right} AND NOT {has_left}", right),
                (f"({is_left} AND {is_right}) OR (({is_left} OR {is_right}) AND {ordered})", latest),
                (f"NOT {has_right} AND {left_once}", left),
                (f"NOT {has_left} AND {right_once}", right),
                (f"NOT {has_right} AND `left changes` = 1L", f"{_NO_ROW}L"),
                (f"NOT {has_left} AND `right changes` = 1L", f"{_NO_ROW}L"),
                (f"{has_left} AND {has_right} AND {ordered} AND {left_last} AND {left_once}", left),
                (f"{has_left} AND {has_right} AND {ordered} AND NOT {left_last} AND {right_once}", right),
            ],
        }[self.kind]
        branches = " ".join(f"WHEN {condition} THEN {time}" for condition, time in cases)
        return f"CASE {branches} ELSE {_UNKNOWN}L END"

    @property
    def has_value(self) -> str:
        """The condition that no change has deleted a row."""
        return {
            "inner": "(coalesce(`left is`, false) AND coalesce(`right is`, false))",
            "left": "coalesce(`left is`, false)",
            "outer": "(coalesce(`left is`, false) OR coalesce(`right is`, false))",
        }[self.kind]


_FOREIGN, _STATE, _BEFORE, _ROW = "foreign key", "state", "before", "row"


@dataclass(frozen=True)
class ForeignPair:
    """The rows of a foreign-key join of two tables: what the changes of both tell of the last record of the join for each left key.

    The cycle of tasks processes a change with all messages that it causes before the next change, so that no response is stale.
    Changes follow each other by time, then by topic. That makes the last record one of these, whichever exists first:

    - the right row exists: the later time of both rows. The last change of the two caused the record, and the other one was not later.
    - the right row was deleted after the left row got its foreign key: the time of the deletion, even if nothing matched before.
    - the left row got its foreign key in place of another one (RESPOND_ALWAYS): the time of that change.
    - the left row lost a foreign key (DELETE_AND_RESPOND): the time of the last such change. The right row was not later.
    - otherwise, no record.

    A left join responds to each change of a left row: the later time of both rows, or for a deleted left row the time of the first
    deletion after its last value. kind: inner or left; foreign: the foreign key of a left row, null without one.
    """

    kind: str
    left: Records
    right: Records
    foreign: Term
    is_empty_absent: bool
    """Whether responses do not distinguish an empty right value from none."""

    @property
    def names(self) -> dict[str, Term]:
        """The parts that the expression of the join may use."""
        right = renamed(self.right.value, ("right",))
        right = replace(right, sql=f"nullif({right.sql}, '')") if self.is_empty_absent else right
        return {
            "key": Term(self.left.key.kind, ticked(GROUP), size=self.left.key.size),
            "left": replace(renamed(self.left.value, ("left",)), nullable=False),
            "right": replace(right, nullable=self.kind == "left"),
        }

    def frame(self, opened: Opened, texts: Sequence[str]) -> DataFrame:
        """Return the key and the time of each row, as `TablePair.frame`. Raises InexactError if the order of changes is not known."""
        from pyspark.sql import functions as sf

        sides = (self.left, self.right)
        if not _in_order_of_times(sides, opened) and not _are_apart(sides, opened):
            topics = " and ".join(records.source.topic for records in sides)
            raise InexactError(f"the changes of {topics} are not in the order of their timestamps")
        named = [*texts, *([ticked("right")] if self.is_empty_absent else [])]
        right = _last_changes(self.right, "right", opened, named).withColumnRenamed(GROUP, "right key")
        rows = self._left(opened, texts).join(right, sf.expr(f"{ticked(_FOREIGN)} = `right key`"), "left")
        rows = chosen(rows, self._exact())
        return rows.withColumn(TIME, sf.expr(self._time())).where(f"{ticked(TIME)} IS NOT NULL")

    def _exact(self) -> list[Guard]:
        """Return what must hold of each row of a join of a table with itself.

        If the row that a deletion concerns names itself, the response to the deletion may be stale. If the deletion has the time of
        the change of the foreign key, partitions and offsets order them.
        """
        if self.kind == "left" or self.left.source.topic != self.right.source.topic:
            return []
        is_unknown = f"{ticked(_FOREIGN)} = {ticked(GROUP)} OR (`right time` = moved.time AND NOT moved.again)"
        sql = f"(NOT (coalesce(`right has` AND NOT `right is`, false) AND ({is_unknown})))"
        return [Guard(sql, f"a row of {self.right.source.topic} is deleted, and changes before decide")]

    def _left(self, opened: Opened, texts: Sequence[str]) -> DataFrame:
        """Return the last change of each left row, with the times of those that changed its foreign key, or deleted it."""
        from pyspark.sql import Window
        from pyspark.sql import functions as sf

        records = self.left
        cells = _cells_of(records, "left", texts)
        gone, time = records.value.is_null, sf.expr(records.time.sql)
        rows = records.frame(opened, [*cells.values(), gone, self.foreign.sql], True)
        parts = [sf.expr(sql).alias(name) for name, sql in cells.items()]
        parts += [sf.expr(f"NOT {gone}").alias("left is"), sf.expr(self.foreign.sql).alias(_FOREIGN)]
        state = sf.expr(self.foreign.sql if self.kind == "inner" else f"if({gone}, NULL, true)").alias(_STATE)
        rows = rows.select(
            sf.expr(records.key.sql).alias(GROUP),
            sf.struct(*parts, time.alias("left time")).alias(_ROW),
            state,
            place_of(records.order_columns(rows)).alias(PLACE),
        )
        before = sf.lag(_STATE).over(Window.partitionBy(GROUP).orderBy(PLACE))
        rows = rows.withColumn(_BEFORE, before)
        moves, ends = f"NOT {_STATE} <=> {_BEFORE}", f"{_STATE} IS NULL AND {_BEFORE} IS NOT NULL"
        time, place = sf.col(f"{_ROW}.`left time`"), sf.col(PLACE)
        moved = sf.struct(time.alias("time"), sf.col(_BEFORE).isNotNull().alias("again"))
        return (
            rows.groupBy(GROUP)
            .agg(
                sf.max_by(_ROW, place).alias(_ROW),
                sf.max_by(moved, sf.when(sf.expr(moves), place)).alias("moved"),
                sf.max_by(time, sf.when(sf.expr(ends), place)).alias("end time"),
            )
            .select(GROUP, f"{_ROW}.*", "moved", "end time")
        )

    def _time(self) -> str:
        """Return SQL of the time of a row; null without one."""
        latest = "greatest(`left time`, `right time`)"
        if self.kind == "left":
            return f"if(`left is`, {latest}, `end time`)"
        one, other = (records.source.topic.encode() for records in (self.left, self.right))
        is_after = f"`right time` {'>=' if one < other else '>'} moved.time"
        branches = {
            "`right is`": latest,
            f"`right has` AND {is_after}": "`right time`",
            f"{ticked(_FOREIGN)} IS NOT NULL AND moved.again": "moved.time",
        }
        return f"CASE {' '.join(f'WHEN {condition} THEN {time}' for condition, time in branches.items())} ELSE `end time` END"

    @property
    def has_value(self) -> str:
        """The condition that no change has deleted a row."""
        is_present = "AND `right` <> ''" if self.is_empty_absent else ""
        return "`left is`" if self.kind == "left" else f"coalesce(`right is` {is_present}, false)"


def _cells_of(records: Records, side: str, texts: Sequence[str]) -> dict[str, str]:
    """Return SQL of the columns of a side's values that texts of SQL name, by their names."""
    leaves = renamed_columns(records.value, (side,))
    return {name: sql for name, sql in leaves if any(ticked(name) in text for text in texts)}


def _last_changes(records: Records, side: str, opened: Opened, texts: Sequence[str]) -> DataFrame:
    """Return the last change of each key of a table, with the numbers of all its changes, and of its deletions."""
    from pyspark.sql import functions as sf

    cells = _cells_of(records, side, texts)
    gone = records.value.is_null
    rows = records.frame(opened, [*cells.values(), gone], True)
    cells |= {f"{side} is": f"NOT {gone}", f"{side} time": records.time.sql}
    changes = [sf.count("*").alias(f"{side} changes"), sf.count_if(sf.expr(gone)).alias(f"{side} deletions")]
    parts = {name: sf.expr(sql) for name, sql in cells.items()}
    latest = latest_rows(rows, sf.expr(records.key.sql).alias(GROUP), parts, records.order_columns(rows), changes)
    return latest.withColumn(f"{side} has", sf.lit(True))


def _in_order_of_times(sides: Sequence[Records], opened: Opened) -> bool:
    """Return whether the changes of tables are known to be in the order of their times."""
    sources = [source for records in sides for source in records.sources]
    if not all(source.may_be_in_order for source in sources) or any(
        records.time != records.source.time for records in sides
    ):
        return False
    try:
        for source in sources:
            refuse_late(source, opened(source.topic), IN_ORDER)
    except InexactError:
        return False
    return True


def _are_apart(sides: tuple[Records, Records], opened: Opened) -> bool:
    """Return whether all changes of one table are earlier than all of the other, so that they come first."""
    from pyspark.sql import functions as sf

    ends = [records.source.rows(opened, ()).agg(sf.min(TIME), sf.max(TIME)).collect()[0] for records in sides]
    (first, last), (other_first, other_last) = ends
    return first is None or other_first is None or bool(last < other_first or other_last < first)
