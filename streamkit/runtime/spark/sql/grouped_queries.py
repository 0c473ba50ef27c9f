"""Queries that replace stages: they select rows of inputs, or group them by key and aggregate, and return the columns of an output."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import TYPE_CHECKING

from streamkit.errors import InexactError, UntranslatableError
from streamkit.operators.core.parsed_values import SessionWindows, SlidingWindows, TimeWindows, Windows
from streamkit.runtime.spark.rows.files import file_by_file
from streamkit.runtime.spark.rows.input_columns import HIDDEN
from streamkit.runtime.spark.rows.output_columns import ARRAY, JSON, STRUCT, OutputColumn, OutputLayout, Shape, ticked
from streamkit.runtime.spark.spark_session import reason, without_error_log
from streamkit.runtime.spark.sql.record_queries import (
    Opened,
    Pairs,
    Records,
    latest_rows,
    place_of,
    renamed,
    renamed_columns,
)
from streamkit.runtime.spark.sql.sources import ORDER, TIME, SqlSource
from streamkit.runtime.spark.sql.terms import (
    COLUMN_TYPES,
    INTEGER,
    LIST,
    NESTED,
    NOTHING,
    NUMBER,
    OBJECT,
    WINDOWED,
    Guard,
    Keep,
    Term,
    chosen,
    json_text,
    only_if,
    quoted_text,
)
from streamkit.runtime.spark.sql.window_times import IN_ORDER, refuse_late, window_starts

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, WindowSpec

_GROUP, _START, _ROW = "key", "window start", "row"
_KEY_OF_RECORD, _ORDERED = f"{HIDDEN}key", f"{HIDDEN}order "
_BEGINS, _SESSION, _IS_LAST = "begins", "session", "is last"
_HIGHEST = "highest"
_PLACED, _VALUE = "place", "value"
_IS_IN, _AFTER, _BEFORE = "is_in", "after", "before"
PLACE = f"{HIDDEN}place"
"""The place of a record in the order of its input, for operands."""
LISTED = "collect_list"
"""The function that keeps all operands."""
LAST, FIRST = "max_by", "min_by"
"""The functions that keep the operand of the last record, or of the first one, by their places."""
_EXTREMES = {LAST: "max", FIRST: "min"}
ABSOLUTE = "absolute "
"""The beginning of the names of operands that no change takes back."""
LONGEST_SQL = 100_000
"""Characters of a query: Spark takes seconds to plan a longer one."""


@dataclass(frozen=True)
class Closing:
    """Which windows a table of closed windows has, if all records are in one partition."""

    delay: int
    """From the end of a window to its close, in ms."""

    def closed(self, rows: DataFrame, windows: Windows, times: DataFrame) -> DataFrame:
        """Return the windows that records have closed. rows: windows with their times; times: of all records."""
        from pyspark.sql import functions as sf

        length = windows.length
        end = sf.col(TIME) if length is None else sf.col(_START) + length
        is_last = sf.col(_IS_LAST) if length is None else sf.lit(True)
        highest = times.agg(sf.max(TIME).alias(_HIGHEST))
        return rows.crossJoin(sf.broadcast(highest)).where(is_last & (end <= sf.col(_HIGHEST) - self.delay))


@dataclass(frozen=True)
class Part:
    """Records of one source that are aggregated. operands: SQL of what is aggregated of each, by name.

    Of changes of rows, each takes back what the change before has added: its operands are negative, other than absolute ones.
    """

    records: Records
    operands: Mapping[str, str]
    has_places: bool = False
    """Whether an aggregate depends on the order of records: operands may name their places."""

    def frame(self, opened: Opened, windows: Windows | None, later: Collection[Guard] = ()) -> DataFrame:
        """Return the key, the start of the window if there are windows, the operands, the time and the place of each record.

        later: as in `Records.frame`.
        """
        if self.records.row:
            return self._moves(opened)
        rows, cells = self.cells(opened, windows, later)
        return _selected(rows, cells.items())

    def cells(
        self, opened: Opened, windows: Windows | None, later: Collection[Guard]
    ) -> tuple[DataFrame, dict[str, str]]:
        """Return the records, and SQL of what `frame` has of each, by name: Spark makes one query less of it."""
        records, operands = self.records, self.operands
        rows = records.frame(opened, [*operands.values()], self.has_places, later)
        places = {}
        if self.has_places:
            order = records.order_columns(rows)
            names_places = any(ticked(PLACE) in sql for sql in operands.values())
            is_one = len(order) == 1 and ORDER in rows.columns and not names_places
            rows = rows if is_one else rows.withColumn(PLACE, place_of(order))
            places = {PLACE: ticked(ORDER if is_one else PLACE)}
        if windows is not None and isinstance(records.source, SqlSource):
            limits = windows if isinstance(windows, TimeWindows) else IN_ORDER
            refuse_late(records.source, opened(records.source.topic), limits)
        starts = {_START: window_starts(windows, records.time.sql)} if isinstance(windows, TimeWindows) else {}
        return rows, {_GROUP: records.key.sql, **starts, **operands, TIME: records.time.sql, **places}

    def guards_of_groups(self, windows: Windows | None) -> list[Guard]:
        """Return what holds for the key of each record if it does for its group, of which there are fewer; it names the column of the source.

        That is nothing if a step may read the key, as it may be a wrong one then, or if records have several groups.
        """
        records, key = self.records, self.records.key.sql
        source = records.source
        is_in_one = windows is None or (isinstance(windows, TimeWindows) and windows.size == windows.advance)
        may_wait = is_in_one and not records.row and all(isinstance(test, Guard | Keep) for test in records.tests)
        if not isinstance(source, SqlSource) or not may_wait or source.has_made_times:
            return []
        has_key = f"(NOT ({key} IS NULL))"  # a null is no wrong text
        tests = [test.sql for test in records.tests if test.sql != has_key]
        texts = [*tests, records.time.sql, *self.operands.values()]
        if any(key in text for text in texts):
            return []
        guards = source.guards(source.columns_in([*texts, key]))
        # Of records that a test leaves out, only what steps read must hold.
        return [guard for guard in guards if (key in guard.sql if records.is_whole else key == guard.column)]

    def times(self, rows: DataFrame, opened: Opened) -> DataFrame:
        """Return the times of the records. rows: of `frame`, which checks each of them by itself."""
        from pyspark.sql import functions as sf

        source = self.records.source
        whole = source.rows(opened, ()) if isinstance(source, SqlSource) and self.records.is_whole else rows
        return whole.select(sf.col(TIME))

    def _moves(self, opened: Opened) -> DataFrame:
        """Return the group, the operands and the time of what each change adds, and takes back."""
        from pyspark.sql import Window
        from pyspark.sql import functions as sf

        records = self.records
        parts = {_IS_IN: records.is_in_group, _GROUP: records.key.sql, **self.operands}
        rows = records.frame(opened, [*parts.values(), records.row], True)
        after = sf.struct(*(sf.expr(sql).alias(name) for name, sql in parts.items()))
        by_row = Window.partitionBy(sf.expr(records.row)).orderBy(*records.order_columns(rows))
        time = sf.expr(records.time.sql).alias(TIME)
        rows = rows.select(time, after.alias(_AFTER), sf.lag(after).over(by_row).alias(_BEFORE))
        back = [
            sf.col(f"{_BEFORE}.{ticked(name)}") * (1 if name.startswith(ABSOLUTE) else -1) for name in self.operands
        ]
        taken = [sf.col(f"{_BEFORE}.{name}") for name in (_IS_IN, _GROUP)]
        moves = sf.array(
            sf.col(_AFTER),
            sf.struct(*(column.alias(name) for column, name in zip((*taken, *back), parts, strict=True))),
        )
        return rows.select(TIME, sf.explode(moves).alias(_ROW)).where(f"{_ROW}.{_IS_IN}").select(TIME, f"{_ROW}.*")


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
        return {"key": Term(self.left.key.kind, ticked(_GROUP), size=self.left.key.size), **values}

    def frame(self, opened: Opened, texts: Sequence[str]) -> DataFrame:
        """Return the key and the time of each row, with the columns that texts of SQL name."""
        from pyspark.sql import functions as sf

        how = {"inner": "inner", "left": "left", "outer": "full"}[self.kind]
        left = _last_changes(self.left, "left", opened, texts)
        both = left.join(_last_changes(self.right, "right", opened, texts), _GROUP, how)
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

    def result(self, value: Term) -> Groups:
        """Return the rows as those of a table, null where a change has deleted one."""
        there = {
            "inner": "(coalesce(`left is`, false) AND coalesce(`right is`, false))",
            "left": "coalesce(`left is`, false)",
            "outer": "(coalesce(`left is`, false) OR coalesce(`right is`, false))",
        }[self.kind]
        parts = (Part(self.left, {}), Part(self.right, {}))
        return Groups(parts, self.names["key"], only_if(value, there), {}, pair=self)


_FOREIGN, _STATE = "foreign key", "state"


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
            "key": Term(self.left.key.kind, ticked(_GROUP), size=self.left.key.size),
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
        right = _last_changes(self.right, "right", opened, named).withColumnRenamed(_GROUP, "right key")
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
        is_unknown = f"{ticked(_FOREIGN)} = {ticked(_GROUP)} OR (`right time` = moved.time AND NOT moved.again)"
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
            sf.expr(records.key.sql).alias(_GROUP),
            sf.struct(*parts, time.alias("left time")).alias(_ROW),
            state,
            place_of(records.order_columns(rows)).alias(PLACE),
        )
        before = sf.lag(_STATE).over(Window.partitionBy(_GROUP).orderBy(PLACE))
        rows = rows.withColumn(_BEFORE, before)
        moves, ends = f"NOT {_STATE} <=> {_BEFORE}", f"{_STATE} IS NULL AND {_BEFORE} IS NOT NULL"
        time, place = sf.col(f"{_ROW}.`left time`"), sf.col(PLACE)
        moved = sf.struct(time.alias("time"), sf.col(_BEFORE).isNotNull().alias("again"))
        return (
            rows.groupBy(_GROUP)
            .agg(
                sf.max_by(_ROW, place).alias(_ROW),
                sf.max_by(moved, sf.when(sf.expr(moves), place)).alias("moved"),
                sf.max_by(time, sf.when(sf.expr(ends), place)).alias("end time"),
            )
            .select(_GROUP, f"{_ROW}.*", "moved", "end time")
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

    def result(self, value: Term) -> Groups:
        """Return the rows as those of a table, null where a change has deleted one."""
        has_value = "AND `right` <> ''" if self.is_empty_absent else ""
        there = "`left is`" if self.kind == "left" else f"coalesce(`right is` {has_value}, false)"
        parts = (Part(self.left, {}), Part(self.right, {}))
        return Groups(parts, self.names["key"], only_if(value, there), {}, pair=self)


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
    latest = latest_rows(rows, sf.expr(records.key.sql).alias(_GROUP), parts, records.order_columns(rows), changes)
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


@dataclass(frozen=True)
class Groups:
    """The rows of a table: an aggregate of the records of each key, in each of its windows, with the time of the latest.

    functions: of SQL, which aggregate the operands, by the names that `value` and `tests` have for the results.
    """

    parts: tuple[Part, ...]
    key: Term
    value: Term
    functions: Mapping[str, str]
    tests: tuple[Guard, ...] = ()
    windows: Windows | None = None
    closing: Closing | None = None
    """For a table that has only closed windows."""
    time: Term = field(default_factory=lambda: Term("a whole number", ticked(TIME)))
    pair: TablePair | ForeignPair | None = None
    """The join of tables that the rows come from, if they do not come from an aggregate."""

    @property
    def names(self) -> dict[str, Term]:
        """The parts of a row that expressions may use."""
        return {"key": self.key, "value": self.value}

    def tested(self, *guards: Guard) -> Groups:
        """Return the rows, with the guarantee that each meets further guards."""
        return replace(self, tests=(*self.tests, *guards))


@contextmanager
def refused_by_spark(topic: str) -> Iterator[None]:
    """Raise InexactError if Spark refuses a query that is made in the block. topic: the one that it reads."""
    from pyspark.errors import AnalysisException

    try:
        with without_error_log():
            yield
    except AnalysisException as error:
        raise InexactError(f"Spark refuses the query of {topic}: {reason(error)}") from error


@dataclass(frozen=True)
class Query:
    """The rows of an output: those of a table, or the records of a stream. is_final: whether only the last record of a key is output."""

    rows: Groups | Records
    columns: tuple[tuple[str, str], ...]
    """SQL by the names of the columns, in their order."""
    is_final: bool = True
    others: tuple[Query, ...] = ()
    """Those of the records of other topics, which are merged with these: the rows of all are in the order of their times."""

    def frame(self, opened: Opened) -> DataFrame:
        """Return the rows over opened inputs. A row for which the query is not exact raises InexactError when they are computed.

        Raises InexactError if Spark refuses the query.
        """
        rows = self.rows
        with refused_by_spark(self.topic):
            frame_of = self._last if self.is_final else self._in_order
            frame = frame_of(rows, opened) if isinstance(rows, Records) else self._grouped(rows, opened)
            _ = frame.schema  # Spark Connect analyzes a query no earlier.
        return frame

    @property
    def sources(self) -> list[SqlSource]:
        """What it reads, each as often as it reads it, without the topics of tables."""
        parts = [self.rows] if isinstance(self.rows, Records) else [part.records for part in self.rows.parts]
        return [source for records in parts for source in records.sources] + [
            source for query in self.others for source in query.sources
        ]

    @property
    def has_windows(self) -> bool:
        """Whether it aggregates windows, so that there may be many groups."""
        return isinstance(self.rows, Groups) and self.rows.windows is not None

    @property
    def topic(self) -> str:
        """The topic that it reads, or the first of them."""
        return (self.rows if isinstance(self.rows, Records) else self.rows.parts[0].records).source.topic

    def _grouped(self, groups: Groups, opened: Opened) -> DataFrame:
        from pyspark.sql import DataFrame
        from pyspark.sql import functions as sf

        if groups.pair is not None:
            rows = groups.pair.frame(opened, [sql for _, sql in self.columns] + [test.sql for test in groups.tests])
            rows = chosen(rows, groups.tests)
            return _selected(rows, self.columns)
        windows, closing = groups.windows, groups.closing
        later = groups.parts[0].guards_of_groups(windows) if len(groups.parts) == 1 else []
        has_one_group = windows is None or (isinstance(windows, TimeWindows) and windows.size == windows.advance)
        part = groups.parts[0]
        if len(groups.parts) == 1 and has_one_group and closing is None and not part.records.row:
            rows, cells = part.cells(opened, windows, later)
        else:
            rows = reduce(DataFrame.unionByName, (part.frame(opened, windows, later) for part in groups.parts))
            cells = {name: ticked(name) for name in (_GROUP, _START, TIME, PLACE, *groups.functions)}
        if isinstance(windows, SessionWindows | SlidingWindows):
            aggregates = _merged_windows(rows, groups.functions, windows)
        else:
            by = [_GROUP] if windows is None else [_GROUP, _START]
            computed = [
                f"{function}({cells[name]}{f', {cells[PLACE]}' if function in _EXTREMES else ''}) AS {ticked(name)}"
                for name, function in groups.functions.items()
            ]
            aggregates = rows.groupBy(*(sf.expr(f"{cells[name]} AS {ticked(name)}") for name in by)).agg(
                *map(sf.expr, [*computed, f"max({cells[TIME]}) AS {ticked(TIME)}"])
            )
        # With the time in the condition, an aggregate, Spark does not test each record before it is in its group.
        named = [replace(guard, sql=guard.sql.replace(part.records.key.sql, ticked(_GROUP))) for guard in later]
        tests = [*(guard.under(f"{ticked(TIME)} >= 0L") for guard in named), *groups.tests]
        if tests:
            aggregates = chosen(aggregates, tests)
        if closing is not None and windows is not None:
            times = groups.parts[0].times(rows, opened) if len(groups.parts) == 1 else rows
            aggregates = closing.closed(aggregates, windows, times)
        return _selected(aggregates, self.columns)

    def _last(self, records: Records, opened: Opened) -> DataFrame:
        """Return the last record of each key."""
        from pyspark.sql import functions as sf

        rows = records.frame(opened, [sql for _, sql in self.columns], True)
        cells = {name: sf.expr(sql) for name, sql in self.columns}
        key = sf.expr(records.key.sql).alias(_KEY_OF_RECORD)
        return latest_rows(rows, key, cells, records.order_columns(rows)).drop(_KEY_OF_RECORD)

    def _in_order(self, records: Records, opened: Opened) -> DataFrame:
        """Return the records of a stream. The records of each key are in the order of the input; without keys, all records are."""
        from pyspark.sql import DataFrame

        queries = sorted((self, *self.others), key=lambda query: query.topic.encode())
        ordered = None if self.others else self._as_read(records, opened)
        if ordered is not None:
            return ordered
        for query in queries if self.others else ():
            refuse_late(query._records.sources[0], opened(query.topic), IN_ORDER)
        places = range(len(queries)) if self.others else (None,)
        parts = [query._with_order(opened, place) for place, query in zip(places, queries, strict=True)]
        selected = reduce(partial(DataFrame.unionByName, allowMissingColumns=True), parts)
        order = [ticked(name) for name in selected.columns if name.startswith(_ORDERED)]
        # Spark leaves out a column that nothing reads: it moves no key and no time twice.
        key = _name_in_all(queries, lambda records: records.key.sql) or _KEY_OF_RECORD
        time = _name_in_all(queries, lambda records: _instant(ticked(TIME)))
        is_by_time = isinstance(records.source, Pairs) and records.source.is_inner
        if time is not None and (self.others or is_by_time):
            order[0] = ticked(time)
        is_keyed = any(query._records.key.kind != NOTHING for query in queries)
        if is_keyed and not self.others and records.are_together(opened):
            by_key = selected.sortWithinPartitions(*order)
        elif is_keyed and isinstance(records.source, Pairs) and not self.others:
            by_key = _in_order_of_keys(selected, key, order)
        elif is_keyed:
            by_key = selected.repartition(ticked(key)).sortWithinPartitions(*order)
        else:
            by_key = selected.orderBy(*order)
        return by_key.select(*(ticked(name) for name, _ in self.columns))

    @property
    def _records(self) -> Records:
        assert isinstance(self.rows, Records)
        return self.rows

    def _as_read(self, records: Records, opened: Opened) -> DataFrame | None:
        """Return the records in the order in which Spark reads them; None if it does not read them in the order of the input."""
        from pyspark.sql import functions as sf

        topic = self.topic
        by_file = None if records.are_moved(opened) else file_by_file(opened(topic))
        if by_file is None:
            return None
        rows = records.frame(lambda name: by_file if name == topic else opened(name), [sql for _, sql in self.columns])
        selected = rows.select(*(sf.expr(sql).alias(name) for name, sql in self.columns))
        # Without hosts that prefer some, Spark merges tasks that follow each other.
        return selected if by_file.tasks is None else selected.coalesce(by_file.tasks)

    def _with_order(self, opened: Opened, place: int | None) -> DataFrame:
        """Return the records with their keys and their order. place: the place of their topic among several."""
        from pyspark.sql import functions as sf

        records = self._records
        rows = records.frame(opened, [sql for _, sql in self.columns], True)
        order = list(records.order_columns(rows))
        names = [f"{_ORDERED}{place or 0}.{index}" for index in range(len(order))]
        if place is not None:
            # Their order may have other columns than that of the other topics.
            names = [f"{_ORDERED}row", *names[1:]] if ORDER in rows.columns else names
            order, names = [sf.col(TIME), sf.lit(place), *order], [f"{_ORDERED}time", f"{_ORDERED}topic", *names]
        columns = [sf.expr(sql).alias(name) for name, sql in self.columns]
        placed = [column.alias(name) for column, name in zip(order, names, strict=True)]
        return rows.select(*columns, sf.expr(records.key.sql).alias(_KEY_OF_RECORD), *placed)


def _selected(rows: DataFrame, columns: Iterable[tuple[str, str]]) -> DataFrame:
    """Return columns by their names and their SQL, which takes PySpark fewer calls than a column made of each."""
    return rows.selectExpr(*(f"{sql} AS {ticked(name)}" for name, sql in columns))


def _in_order_of_keys(rows: DataFrame, key: str, order: Sequence[str]) -> DataFrame:
    """Return records, those of a key in one task, by their order. Spark moves them only if their keys are spread over tasks."""
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    place = sf.row_number().over(Window.partitionBy(ticked(key)).orderBy(*order))
    # A condition that always holds: Spark leaves out a column that nothing reads.
    return rows.withColumn(PLACE, place).where(f"{ticked(PLACE)} > 0")


def _name_in_all(queries: Sequence[Query], sql_of: Callable[[Records], str]) -> str | None:
    """Return the column of an output that holds, in all of its queries, what SQL of their records says; None if there is none."""
    rows = [(dict(query.columns), sql_of(query._records)) for query in queries]
    for name, _ in queries[0].columns:
        if all(columns[name] == sql for columns, sql in rows):
            return name
    return None


def _instant(time: str) -> str:
    """Return SQL of a time in milliseconds as a column of times has it."""
    return f"timestamp_micros({time} * 1000L)"


def _merged_windows(
    rows: DataFrame, functions: Mapping[str, str], windows: SessionWindows | SlidingWindows
) -> DataFrame:
    """Return the windows of rows that their times make, with aggregates of aggregates."""
    from pyspark.sql import functions as sf

    placed = [name for name, function in functions.items() if function in _EXTREMES]
    for name in placed:
        rows = rows.withColumn(name, sf.struct(sf.col(PLACE).alias(_PLACED), sf.col(ticked(name)).alias(_VALUE)))
    functions = {name: _EXTREMES.get(function, function) for name, function in functions.items()}
    if isinstance(windows, SessionWindows):
        found = _sessions(rows, functions, windows.size)
    else:
        found = _sliding(rows, functions, windows.size)
    return found.withColumns({name: sf.col(f"{ticked(name)}.{_VALUE}") for name in placed})


def _sessions(rows: DataFrame, functions: Mapping[str, str], gap: int) -> DataFrame:
    """Return the sessions of rows with a key and a time, each time that one has ended with before it grew, and aggregates.

    A record replaces the session of its key by a longer one, or by the same one. So each end but the last is that of a deleted row.
    The times of all rows order them.
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    rows, whole = _by_time(rows, functions)
    by_time = Window.partitionBy(_GROUP).orderBy(TIME)
    begins = sf.col(TIME) - sf.lag(TIME).over(by_time) <= gap
    rows = rows.withColumn(_BEGINS, sf.when(begins, 0).otherwise(1))
    rows = rows.withColumn(_SESSION, sf.sum(_BEGINS).over(by_time))
    session = Window.partitionBy(_GROUP, _SESSION)
    return rows.select(
        _GROUP,
        TIME,
        sf.min(TIME).over(session).alias(_START),
        (sf.col(TIME) == sf.max(TIME).over(session)).alias(_IS_LAST),
        *_over(whole, session),
    )


def _by_time(rows: DataFrame, functions: Mapping[str, str]) -> tuple[DataFrame, dict[str, str]]:
    """Return aggregates of the rows of a key and a time, and the functions that aggregate those: counts are added up."""
    from pyspark.sql import functions as sf

    parts = [sf.expr(f"{function}({ticked(name)})").alias(name) for name, function in functions.items()]
    whole = {name: "sum" if function == "count" else function for name, function in functions.items()}
    return rows.groupBy(_GROUP, TIME).agg(*parts), whole


def _over(functions: Mapping[str, str], window: WindowSpec) -> list[Column]:
    """Return aggregates over a window of the aggregates of each time."""
    from pyspark.sql import functions as sf

    wholes = {name: sf.expr(f"{function}({ticked(name)})").over(window) for name, function in functions.items()}
    return [(sf.flatten(whole) if functions[name] == LISTED else whole).alias(name) for name, whole in wholes.items()]


def _sliding(rows: DataFrame, functions: Mapping[str, str], difference: int) -> DataFrame:
    """Return the sliding windows of rows with a key and a time. The times of all rows order them.

    Each record has a window that ends with it; those before `difference` share the first one, which begins at 0. Another window
    begins a millisecond after a record if the next one is in it (KIP-450).
    """
    from pyspark.sql import Window
    from pyspark.sql import functions as sf

    rows, whole = _by_time(rows, functions)
    by_time = Window.partitionBy(_GROUP).orderBy(TIME)
    time, following = sf.col(TIME), sf.lead(TIME).over(by_time)
    ends, begins = by_time.rangeBetween(-difference, 0), by_time.rangeBetween(1, difference + 1)
    last = sf.max(TIME).over(begins)
    shares_first = sf.coalesce(following <= difference, sf.lit(False))
    # A window that ends with a record is that record's own.
    starts = {
        ends: sf.when(~shares_first, sf.greatest(time - difference, sf.lit(0))),
        begins: sf.when(last < time + 1 + difference, time + 1),
    }
    windows = [
        sf.struct(
            start.alias(_START),
            sf.max(TIME).over(window).alias(TIME),
            *_over(whole, window),
        )
        for window, start in starts.items()
    ]
    # Spark explodes no expression over windows.
    rows = rows.select(_GROUP, sf.array(*windows).alias(_ROW)).select(_GROUP, sf.explode(_ROW).alias(_ROW))
    return rows.select(_GROUP, f"{_ROW}.*").where(sf.col(_START).isNotNull())


def grouped(
    records: Records,
    value: Term,
    sums: Mapping[str, tuple[str, str]],
    tests: tuple[Guard, ...] = (),
    windows: Windows | None = None,
) -> Groups:
    """Return the groups of records by their key and windows; records without a key are in none, nor those without a value.

    sums: functions and their operands, by name. Windows other than sliding ones have records without a value too.
    """
    if records.key.kind in (NOTHING, NUMBER, *NESTED):
        raise UntranslatableError(f"the key of the groups is {records.key.kind}")
    parts = (
        ()
        if records.row
        else (records.key,)
        if isinstance(windows, TimeWindows | SessionWindows)
        else (records.key, records.value)
    )
    for part in parts:
        if part.is_null != "false" and not records.requires(part):
            records = records.kept_where(f"(NOT {part.is_null})")
    key = Term(records.key.kind, ticked(_GROUP), size=records.key.size)
    if windows is not None:
        start = ticked(_START)
        length = windows.length
        end = ticked(TIME) if length is None else f"({start} + {length}L)"
        ends = {"start": Term(INTEGER, start), "end": Term(INTEGER, end)}
        value = only_if(value, ticked(_IS_LAST)) if length is None else value
        key = Term(WINDOWED, "", fields={"key": key, **ends}, size=key.size)
    operands = {name: operand for name, (_, operand) in sums.items()}
    functions = {name: function for name, (function, _) in sums.items()}
    has_places = not {LAST, FIRST, LISTED}.isdisjoint(functions.values())
    return Groups((Part(records, operands, has_places),), key, value, functions, tests, windows)


def merged(tables: Sequence[Groups]) -> Groups:
    """Return the groups of the records of several sources. Raises UntranslatableError if those have other kinds of values."""
    largest = max(tables, key=lambda table: table.value.size)
    if len({_kinds(table.key) for table in tables}) > 1 or len({_kinds(table.value) for table in tables}) > 1:
        raise UntranslatableError("the topics that it merges have other kinds of keys or values")
    key = max((table.key for table in tables), key=lambda term: term.size)
    return replace(largest, key=key, parts=tuple(part for table in tables for part in table.parts))


def _kinds(term: Term) -> str:
    fields = ", ".join(f"{name} {_kinds(field_term)}" for name, field_term in term.fields.items())
    return f"{term.kind} {term.sql} ({fields})"


def query_of(rows: Groups | Records, layout: OutputLayout, is_final: bool) -> Query:
    """Return the query of an output. Raises UntranslatableError for a column whose values need more than a column of SQL.

    is_final: whether the output has the last record of each key, rather than all.
    """
    if isinstance(rows, Records) and rows.key.kind in (NUMBER, *NESTED):
        raise UntranslatableError(f"the key of the stream {layout.topic} is {rows.key.kind}")
    source = rows.source if isinstance(rows, Records) else None
    if isinstance(source, Pairs) and not source.is_inner and rows.key.sql != source.names["key"].sql:
        raise UntranslatableError(
            f"the keys of the stream {layout.topic} are not those of its join, which has emitted records without a partner"
        )
    for part, term in (("key", rows.key), ("value", rows.value)):
        names = {column.field for column in layout.columns if column.part == part}
        if term.kind == OBJECT and None not in names and not names.issuperset(term.fields):
            raise UntranslatableError(f"the output {layout.place} has no column for a field of its {part}s")
    cells = [(column.name, *_cell(rows, column)) for column in layout.columns]
    rows = rows.tested(*(guard for _, _, guards in cells for guard in guards))
    columns = tuple((name, sql) for name, sql, _ in cells)
    parts = () if isinstance(rows, Records) else rows.parts
    texts = [sql for part in parts for sql in part.operands.values()]
    texts += [test.sql for test in rows.tests]
    texts += [test.sql for part in parts for test in part.records.tests]
    if sum(map(len, (*texts, *(sql for _, sql in columns)))) > LONGEST_SQL:
        raise UntranslatableError(f"the query of the output {layout.place} has more than {LONGEST_SQL:,} characters")
    return Query(rows, columns, is_final)


def _cell(rows: Groups | Records, column: OutputColumn) -> tuple[str, tuple[Guard, ...]]:
    """Return SQL of a column, and what must hold for it."""
    if column.part == "timestamp":
        return _instant(rows.time.sql), ()
    if column.part == "headers":
        # With quotes, the names of its fields would be those of columns that it reads.
        return f"CAST(NULL AS {column.shape.ddl.replace('`', '')})", ()
    if column.part == "deleted":
        return rows.value.is_null, ()
    whole = rows.key if column.part == "key" else rows.value
    if whole.kind == WINDOWED and column.field in ("start", "end"):
        return _instant(whole.fields[column.field].sql), ()
    term = whole.fields["key"] if whole.kind == WINDOWED else whole
    return _shaped(term if column.field is None else _field(term, column.field, column), column.shape, column)


def _field(term: Term, name: str, column: OutputColumn) -> Term:
    """Return a field of an object, or an item of a list: null if it has none."""
    field = term.fields.get(name)
    if field is None and (term.kind not in NESTED or name in set(term.fields)):
        raise UntranslatableError(
            f"column {column.name} of the output is a field of {term.kind}, or of a type that SQL does not treat as Python does"
        )
    return Term(NOTHING, "NULL", nullable=True) if field is None else field


def _shaped(term: Term, shape: Shape, column: OutputColumn) -> tuple[str, tuple[Guard, ...]]:
    """Return SQL of a value as a column, or a part of one, has it, and what must hold for it."""
    if term.kind == NOTHING:
        return f"CAST(NULL AS {shape.ddl})", ()
    if shape.kind == JSON:
        return json_text(term, f"column {column.name} of the output")
    if (term.kind, shape.kind) in ((OBJECT, STRUCT), (LIST, ARRAY)):
        return _nested(term, shape, column)
    if shape.fields or COLUMN_TYPES.get(term.kind) != shape.kind:
        raise UntranslatableError(
            f"column {column.name} of the output is {shape.ddl}; {column.part}=TYPE gives it another type"
        )
    return term.sql, ()


def _nested(term: Term, shape: Shape, column: OutputColumn) -> tuple[str, tuple[Guard, ...]]:
    """Return SQL of an object, or a list, in a column of such."""
    inner = dict(shape.fields) if shape.kind == STRUCT else dict.fromkeys(term.fields, shape.fields[0][1])
    parts, guards = list[str](), list[Guard]()
    if not inner.keys() >= set(term.fields):
        raise UntranslatableError(f"column {column.name} of the output has no place for a field of its {column.part}s")
    for name, part_shape in inner.items():
        sql, own = _shaped(_field(term, name, column), part_shape, column)
        parts += [*([quoted_text(name)] if shape.kind == STRUCT else []), sql]
        guards += own
    function = "named_struct" if shape.kind == STRUCT else "array"
    sql = f"CAST({function}({', '.join(parts)}) AS {shape.ddl})"
    return (f"if({term.is_null}, NULL, {sql})" if term.nullable else sql), tuple(guards)
