"""The records at a place of a stage: those of a topic, or pairs of two streams, as steps test them and join them with tables."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import TYPE_CHECKING, TypeAlias

from streamkit.errors import InexactError
from streamkit.expressions.calls import CallableRef
from streamkit.runtime.spark.rows.files import FILES, OpenedInput
from streamkit.runtime.spark.rows.input_columns import HIDDEN
from streamkit.runtime.spark.rows.output_columns import ticked
from streamkit.runtime.spark.spark_session import classic_context
from streamkit.runtime.spark.sql.sources import LONGEST, THERE, TIME, SqlSource, TaskSource, name_of
from streamkit.runtime.spark.sql.terms import (
    INTEGER,
    NESTED,
    NOTHING,
    OBJECT,
    TEXT,
    Guard,
    Keep,
    SameFields,
    Term,
    chosen,
    named_fields,
    read_rows,
    refuse_if,
)
from streamkit.runtime.spark.sql.window_times import IN_ORDER, refuse_late
from streamkit.runtime.spark.workers.worker import call_function, mark_errors

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray
    from pyspark.sql import Column, DataFrame

Opened: TypeAlias = Callable[[str], OpenedInput]
"""Opens the one input of a topic."""
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

    @property
    def has_row(self) -> str:
        """The condition that there is a row; an inner join leaves out all others."""
        return f"(NOT {self.row.is_null})"

    def joined(self, rows: DataFrame, texts: Sequence[str], opened: OpenedInput, kind: str) -> DataFrame:
        """Return rows with the columns of their table's row that texts of SQL name. kind: of the join, as Spark names it."""
        from pyspark.sql import functions as sf

        is_small = self.is_small(opened)
        latest = self._latest(texts, opened, is_small)
        latest = sf.broadcast(latest) if is_small else latest
        return rows.join(latest, sf.expr(f"({self.key} = {self.table.key.sql})"), kind)

    def is_small(self, opened: OpenedInput) -> bool:
        """Return whether the files of the table are small enough for Spark to send its rows to each task, so that no record moves."""
        return can_be_sent(opened.source)

    def _latest(self, texts: Sequence[str], opened: OpenedInput, is_small: bool) -> DataFrame:
        """Return the last row of each key, unless it deletes the key's row. One task looks for those of a small table.

        Nothing has to be looked for in one whose keys are known to occur once.
        """
        from pyspark.sql import functions as sf

        table, key = self.table, self.table.key.sql
        paths = table.columns_in([*texts, key, table.value.is_null])
        names = {table.name_of(path) for path in paths if path != ("key",)}
        cells = {name: sf.col(ticked(name)) for name in sorted(names)}
        present = table.mark + "present"
        if is_small and table.has_distinct_keys(opened):
            rows = chosen(table.frame(opened, paths), table.guards(paths))
            return rows.select(sf.col(key), *cells.values(), sf.lit(True).alias(present))
        tests: list[Guard | Keep] = [*table.guards(paths), Keep(f"({key} IS NOT NULL)")]
        rows = chosen(table.frame(opened, paths, True), tests)
        rows = rows.coalesce(1) if is_small else rows
        cells[present] = sf.expr(f"if({table.value.is_null}, NULL, true)")
        latest = latest_rows(rows, sf.col(key), cells, table.order_columns(rows))
        return latest.where(f"{self._is_present} IS NOT NULL")

    def refuse_changes(self, sources: Sequence[SqlSource], opened: Opened) -> None:
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


@dataclass(frozen=True)
class Earlier:
    """Whether the record before, of the same key, had a value. name: of the column; present: SQL of that it has one."""

    name: str
    key: str
    present: str

    @property
    def sql(self) -> str:
        """The SQL that may name columns of the records."""
        return f"{self.key} {self.present}"

    def added(self, rows: DataFrame, order: Sequence[Column]) -> DataFrame:
        """Return rows with the column."""
        from pyspark.sql import Window
        from pyspark.sql import functions as sf

        before = sf.lag(sf.expr(self.present)).over(Window.partitionBy(sf.expr(self.key)).orderBy(*order))
        return rows.withColumn(self.name, sf.coalesce(before, sf.lit(False)))


@dataclass(frozen=True)
class Exploded:
    """The items of a list, each of which is a record. name: of their column; sql: an array of them."""

    name: str
    sql: str

    @property
    def place(self) -> str:
        """The name of the column of their places."""
        return f"{self.name} place"

    def added(self, rows: DataFrame) -> DataFrame:
        """Return a row for each item, with its column, and that of its place."""
        from pyspark.sql import functions as sf

        return rows.select("*", sf.posexplode(sf.expr(self.sql)).alias(self.place, self.name))


@dataclass(frozen=True)
class Called:
    """The result of a function of the user for each record, in Python. name: of its column; kind: the type of that.

    arguments: SQL of each argument; shown: the call, for messages.
    """

    name: str
    ref: CallableRef
    kind: str
    arguments: tuple[str, ...]
    shown: str

    @property
    def sql(self) -> str:
        """The SQL that may name columns of the records."""
        return " ".join(self.arguments)

    def added(self, rows: DataFrame) -> DataFrame:
        """Return rows with the column."""
        import pyarrow as pa
        from pyspark.sql import functions as sf

        run = partial(call_function, self.ref, self.kind, LONGEST, self.shown)

        def call(batches: Iterator[tuple[pa.Array, ...]]) -> Iterator[pa.Array]:
            return run(batches)

        # Spark chooses the kind of the function by its annotations, and can't look up their names here.
        call.__annotations__ = {"batches": Iterator[tuple[pa.Array, ...]], "return": Iterator[pa.Array]}
        called = sf.arrow_udf(call, self.kind)  # type: ignore[attr-defined]  # its stubs lack it
        return rows.withColumn(self.name, called(*map(sf.expr, self.arguments)))


Test: TypeAlias = Guard | Keep | TableJoin | Earlier | Exploded | Called
"""What a step does with each record, other than to change its parts."""


@dataclass(frozen=True)
class Records:
    """The records at a place of a stage: the records of a source that pass tests, in their order, as steps have changed them.

    tests: with joins among them, for which only the records count that pass the tests before; so it is for records before.
    """

    source: SqlSource | Pairs
    key: Term
    value: Term
    time: Term
    tests: tuple[Test, ...] = ()
    row: str = ""
    """SQL of the key of the row that a change changes, if key and value are its group and what the group aggregates."""
    is_mixed: bool = False
    """Whether records of a key come from several tasks, or topics, so that their order is not that of the input."""

    @classmethod
    def of(cls, source: SqlSource) -> Records:
        """Return all records of a source."""
        return cls(source, source.key, source.value, source.time)

    @property
    def sources(self) -> tuple[SqlSource, ...]:
        """The topics that the records come from, without the topics of tables."""
        return (self.source,) if isinstance(self.source, SqlSource) else self.source.sources

    @property
    def names(self) -> dict[str, Term]:
        """The parts of a record that expressions may use."""
        return {"key": self.key, "value": self.value, "timestamp": self.time}

    @property
    def is_of_tasks(self) -> bool:
        """Whether tasks in Python have written the records, so that each use of them runs those, unless Spark keeps them."""
        return any(isinstance(source, TaskSource) for source in self.sources)

    def presence(self) -> tuple[str, dict[str, Term]]:
        """Return the condition that there is a value, and the parts that expressions may use where it holds."""
        return f"(NOT {self.value.is_null})", self.names | {"value": replace(self.value, nullable=False)}

    def keyed(self) -> Records:
        """Return the records, with the guarantee that each has a key."""
        return replace(self, key=replace(self.key, nullable=False))

    @property
    def is_in_group(self) -> str:
        """The condition that a row has a group, and a value for it."""
        return f"(NOT {self.key.is_null} AND NOT {self.value.is_null})"

    def requires(self, part: Term) -> bool:
        """Return whether a part is the key of the input, and must not be null in any row."""
        source = self.source
        return isinstance(source, SqlSource) and source.has_keys and part.sql == source.key.sql

    def kept_where(self, condition: str) -> Records:
        """Return the records for which a condition is true."""
        return self.tested(Keep(condition))

    def tested(self, *tests: Test) -> Records:
        """Return the records that pass further tests."""
        return replace(self, tests=(*self.tests, *tests))

    def guarded(self, term: Term, condition: str = "") -> Records:
        """Return the records, with the guarantee that each meets the guards of a value that a step computes from it.

        condition: of the records of which it computes the value.
        """
        return self.tested(*(guard.under(condition) if condition else guard for guard in term.guards))

    def with_value(self, value: Term) -> Records:
        """Return the records with another value, with the guarantee that each meets its guards."""
        return replace(self.guarded(value), value=value.without_guards())

    @property
    def joins(self) -> list[TableJoin]:
        """The joins with tables, in their order."""
        return [test for test in self.tests if isinstance(test, TableJoin)]

    @property
    def is_whole(self) -> bool:
        """Whether no test leaves out a record, or makes several of one."""
        return all(isinstance(test, Guard) for test in self.tests)

    def are_moved(self, opened: Opened) -> bool:
        """Return whether Spark may move the records from task to task, so that they lose their order."""
        return not isinstance(self.source, SqlSource) or any(
            isinstance(test, Earlier) or (isinstance(test, TableJoin) and not test.is_small(opened(test.table.topic)))
            for test in self.tests
        )

    def are_together(self, opened: Opened) -> bool:
        """Return whether the records of each key are in one task, because Spark has moved them before it joined them."""
        source = self.source
        return (
            isinstance(source, Pairs)
            and source.is_inner
            and source.are_together(opened)
            and self.key.sql == source.names["key"].sql
            and all(join.is_small(opened(join.table.topic)) for join in self.joins)
        )

    def order_columns(self, rows: DataFrame) -> list[Column]:
        """Return what orders the records. rows: of `frame`."""
        from pyspark.sql import functions as sf

        places = [sf.col(ticked(test.place)) for test in self.tests if isinstance(test, Exploded)]
        return [*self.source.order_columns(rows), *places]

    def frame(
        self,
        opened: Opened,
        selected: Sequence[str],
        has_order: bool = False,
        later: Collection[Guard] = (),
    ) -> DataFrame:
        """Return the records with the columns that texts of SQL name.

        has_order: whether those of their order are needed; later: guards of the source that are checked later.
        """
        texts = [*(test.sql for test in self.tests), self.key.sql, self.time.sql, *selected]
        columns = self.source.columns_in(texts)
        has_order = has_order or any(isinstance(test, Earlier) for test in self.tests)
        rows = self.source.rows(opened, columns, has_order)
        guards = [guard for guard in self.source.guards(columns) if guard not in later]
        first = list[Guard | Keep]()
        for test in self.tests:
            if not isinstance(test, Guard | Keep):
                break
            first.append(test)
        rows = rows.where(read_rows(guards, first))
        tests: list[Guard | Keep] = []
        for place, test in enumerate(self.tests[len(first) :], len(first)):
            if isinstance(test, TableJoin):
                test.refuse_changes(self.sources, opened)
                others = self.tests[place + 1 :]
                is_inner = bool(others) and others[0] == Keep(test.has_row)
                rows = test.joined(
                    chosen(rows, tests), texts, opened(test.table.topic), "inner" if is_inner else "left"
                )
                tests = []
            elif isinstance(test, Earlier):
                rows, tests = test.added(chosen(rows, tests), self.order_columns(rows)), []
            elif isinstance(test, Exploded | Called):
                rows, tests = test.added(chosen(rows, tests)), []
            else:
                tests.append(test)
        return chosen(rows, tests)


# Pairs of records of two streams.


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
    def is_inner(self) -> bool:
        """Whether it emits pairs only, in the order of their times."""
        return self.kind == "inner"

    @property
    def may_be_in_order(self) -> bool:
        """Whether it emits in the order of times."""
        return self.is_inner

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
        return [sf.col(TIME), *made] if self.is_inner else made

    def rows(self, opened: Opened, columns: Sequence[tuple[str, ...]], has_order: bool = False) -> DataFrame:
        """Return the pairs, as `SqlSource.rows`. Raises InexactError if rows of a topic are not in the order of their times."""
        from pyspark.sql import DataFrame
        from pyspark.sql import functions as sf

        for source in self.sources:
            refuse_late(source, opened(source.topic), IN_ORDER)
        names = [name for (name,) in columns]
        has_order = has_order or self.is_one or not self.is_inner
        width = self.before + self.after + 1
        left, right = (self._side(side, opened, names, has_order) for side in ("left", "right"))
        low, high = (
            f"(greatest(0L, `left time` {sign}L) DIV {width}L)" for sign in (f"- {self.before}", f"+ {self.after}")
        )
        are_together = self.are_together(opened)
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
        if self.is_inner:
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

        if self.is_inner:
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

    def are_together(self, opened: Opened) -> bool:
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
