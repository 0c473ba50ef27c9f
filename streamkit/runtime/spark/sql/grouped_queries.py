"""Queries that replace stages: they select rows of inputs, or group them by key and aggregate, and return the columns of an output."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial, reduce
from typing import TYPE_CHECKING

from streamkit.errors import InexactError, UntranslatableError
from streamkit.operators.core.parsed_values import SessionWindows, SlidingWindows, TimeWindows, Windows
from streamkit.runtime.spark.rows.files import file_by_file, of_files, planned_tasks
from streamkit.runtime.spark.rows.input_columns import HIDDEN
from streamkit.runtime.spark.rows.output_columns import ARRAY, JSON, STRUCT, OutputColumn, OutputLayout, Shape, ticked
from streamkit.runtime.spark.spark_session import reason, without_error_log
from streamkit.runtime.spark.sql.join_queries import ForeignPair, TablePair
from streamkit.runtime.spark.sql.record_queries import GROUP, PLACE, Opened, Records, latest_rows, place_of
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
from streamkit.runtime.spark.sql.window_times import (
    IN_ORDER,
    refuse_late,
    size_of,
    spans_of_files,
    stretches,
    window_starts,
)

if TYPE_CHECKING:
    from pyspark.sql import Column, DataFrame, WindowSpec

_START, _ROW = "window start", "row"
_KEY_OF_RECORD, _ORDERED = f"{HIDDEN}key", f"{HIDDEN}order "
_BEGINS, _SESSION, _IS_LAST = "begins", "session", "is last"
_HIGHEST = "highest"
_PLACED, _VALUE = "place", "value"
_IS_IN, _AFTER, _BEFORE = "is_in", "after", "before"
LISTED = "collect_list"
"""The function that keeps all operands."""
LAST, FIRST = "max_by", "min_by"
"""The functions that keep the operand of the last record, or of the first one, by their places."""
_EXTREMES = {LAST: "max", FIRST: "min"}
ABSOLUTE = "absolute "
"""The beginning of the names of operands that no change takes back."""
_MOST_SCANS = 64
"""The most scans of a query, for each of which Spark takes milliseconds."""
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
        if windows is not None and not records.source.is_joined:
            limits = windows if isinstance(windows, TimeWindows) else IN_ORDER
            for source in records.sources:
                refuse_late(source, opened(source.topic), limits)
        starts = {_START: window_starts(windows, records.time.sql)} if isinstance(windows, TimeWindows) else {}
        return rows, {GROUP: records.key.sql, **starts, **operands, TIME: records.time.sql, **places}

    def guards_of_groups(self, windows: Windows | None) -> list[Guard]:
        """Return what holds for the key of each record if it does for its group, of which there are fewer; it names the column of the source.

        That is nothing if a step may read the key, as it may be a wrong one then, or if records have several groups.
        """
        records, key = self.records, self.records.key.sql
        source = records.source
        is_in_one = windows is None or (isinstance(windows, TimeWindows) and windows.size == windows.advance)
        may_wait = is_in_one and not records.row and all(isinstance(test, Guard | Keep) for test in records.tests)
        if not may_wait or source.has_made_times:
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
        whole = source.rows(opened, ()) if self.records.is_whole and not source.is_joined else rows
        return whole.select(sf.col(TIME))

    def _moves(self, opened: Opened) -> DataFrame:
        """Return the group, the operands and the time of what each change adds, and takes back."""
        from pyspark.sql import Window
        from pyspark.sql import functions as sf

        records = self.records
        parts = {_IS_IN: records.is_in_group, GROUP: records.key.sql, **self.operands}
        rows = records.frame(opened, [*parts.values(), records.row], True)
        after = sf.struct(*(sf.expr(sql).alias(name) for name, sql in parts.items()))
        by_row = Window.partitionBy(sf.expr(records.row)).orderBy(*records.order_columns(rows))
        time = sf.expr(records.time.sql).alias(TIME)
        rows = rows.select(time, after.alias(_AFTER), sf.lag(after).over(by_row).alias(_BEFORE))
        back = [
            sf.col(f"{_BEFORE}.{ticked(name)}") * (1 if name.startswith(ABSOLUTE) else -1) for name in self.operands
        ]
        taken = [sf.col(f"{_BEFORE}.{name}") for name in (_IS_IN, GROUP)]
        moves = sf.array(
            sf.col(_AFTER),
            sf.struct(*(column.alias(name) for column, name in zip((*taken, *back), parts, strict=True))),
        )
        return rows.select(TIME, sf.explode(moves).alias(_ROW)).where(f"{_ROW}.{_IS_IN}").select(TIME, f"{_ROW}.*")


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

    @classmethod
    def of_pair(cls, pair: TablePair | ForeignPair, value: Term) -> Groups:
        """Return the rows of a join of two tables, null where a change has deleted one."""
        parts = (Part(pair.left, {}), Part(pair.right, {}))
        return cls(parts, pair.names["key"], only_if(value, pair.has_value), {}, pair=pair)

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
    def has_pairs(self) -> bool:
        """Whether it joins streams."""
        parts = [self.rows] if isinstance(self.rows, Records) else [part.records for part in self.rows.parts]
        return any(records.source.is_joined for records in parts)

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
            cells = {name: ticked(name) for name in (GROUP, _START, TIME, PLACE, *groups.functions)}
        if isinstance(windows, SessionWindows | SlidingWindows):
            aggregates = _merged_windows(rows, groups.functions, windows)
        else:
            by = [GROUP] if windows is None else [GROUP, _START]
            computed = [
                f"{function}({cells[name]}{f', {cells[PLACE]}' if function in _EXTREMES else ''}) AS {ticked(name)}"
                for name, function in groups.functions.items()
            ]
            aggregates = rows.groupBy(*(sf.expr(f"{cells[name]} AS {ticked(name)}") for name in by)).agg(
                *map(sf.expr, [*computed, f"max({cells[TIME]}) AS {ticked(TIME)}"])
            )
        # With the time in the condition, an aggregate, Spark does not test each record before it is in its group.
        named = [replace(guard, sql=guard.sql.replace(part.records.key.sql, ticked(GROUP))) for guard in later]
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
        if not self.others:
            ordered = self._as_read(records, opened)
            return self._sorted([self], [self._with_order(opened, None)]) if ordered is None else ordered
        queries = sorted((self, *self.others), key=lambda query: query.topic.encode())
        merged = _merged_by_files(queries, opened)
        if merged is not None:
            return self._sorted(queries, merged, moves=False)
        for query in queries:
            refuse_late(query._records.sources[0], opened(query.topic), IN_ORDER)
        return self._sorted(queries, [query._with_order(opened, place) for place, query in enumerate(queries)])

    def _sorted(self, queries: Sequence[Query], parts: Sequence[DataFrame], *, moves: bool = True) -> DataFrame:
        """Return the rows of this output in their order, from rows of queries `_with_order`. moves: whether a key may be in several tasks."""
        from pyspark.sql import DataFrame

        records = self._records
        selected = reduce(partial(DataFrame.unionByName, allowMissingColumns=True), parts)
        order = [ticked(name) for name in selected.columns if name.startswith(_ORDERED)]
        # Spark leaves out a column that nothing reads: it moves no key and no time twice.
        key = _name_in_all(queries, lambda records: records.key.sql) or _KEY_OF_RECORD
        time = _name_in_all(queries, lambda records: _instant(ticked(TIME)))
        is_by_time = records.source.is_joined and not records.source.emits_alone
        if time is not None and (self.others or is_by_time):
            order[0] = ticked(time)
        is_keyed = any(query._records.key.kind != NOTHING for query in queries)
        # Spark moves no records whose keys are in one task each, as those of pairs are.
        selected = selected.repartition(ticked(key)) if moves and is_keyed else selected
        ordered = selected.sortWithinPartitions(*order) if is_keyed or not moves else selected.orderBy(*order)
        return ordered.select(*(ticked(name) for name, _ in self.columns))

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

    def _of_files(self, opened: Opened, paths: Sequence[str], place: int) -> DataFrame | None:
        """Return the records of some files of the topic, as `_with_order`; None if Spark might read them in another way."""
        files = of_files(opened(self.topic), paths)
        if files is None:
            return None
        return self._with_order(lambda topic: files if topic == self.topic else opened(topic), place)

    def _with_order(self, opened: Opened, place: int | None) -> DataFrame:
        """Return the records with their keys and their order. place: the place of their topic among several."""
        from pyspark.sql import functions as sf

        records = self._records
        rows = records.frame(opened, [sql for _, sql in self.columns], True)
        cells = [*self.columns, (_KEY_OF_RECORD, records.key.sql)]
        if place is not None:
            cells += [(f"{_ORDERED}time", ticked(TIME)), (f"{_ORDERED}topic", str(place))]
        if place is not None and ORDER in rows.columns:
            return _selected(rows, [*cells, (f"{_ORDERED}row", ticked(ORDER))])
        columns = [sf.expr(sql).alias(name) for name, sql in cells]
        # The order may have other columns than that of other topics.
        order = enumerate(records.order_columns(rows))
        return rows.select(*columns, *(column.alias(f"{_ORDERED}{place or 0}.{index}") for index, column in order))


def _merged_by_files(queries: Sequence[Query], opened: Opened) -> list[DataFrame] | None:
    """Return the rows of each of some tasks, before which others have all earlier rows, so that no row has to be moved.

    None if too few files are without rows of the times of others, for as many tasks as Spark would plan.
    """
    from pyspark.sql import DataFrame

    inputs = [opened(query.topic) for query in queries]
    # A join with a table that changes compares its times with those of all records, in a job of Spark.
    joins = [join for query in queries for join in query._records.joins]
    if any(query._records.are_moved(opened) for query in queries) or not all(join.is_global for join in joins):
        return None
    spans = [spans_of_files(query._records.sources[0], source) for query, source in zip(queries, inputs, strict=True)]
    known = [found for found in spans if found is not None]
    if len(known) < len(spans):
        return None
    size = size_of(known)
    tasks = planned_tasks(inputs[0].source.sparkSession, size)
    parts = stretches(known, tasks)
    has_few = len(parts) < min(tasks, max(map(len, known))) or max(map(size_of, parts)) > 2 * size // len(parts)
    if has_few or len(parts) * len(queries) > _MOST_SCANS:
        return None
    merged = []
    for part in parts:
        rows = list[DataFrame]()
        for place, (query, files) in enumerate(zip(queries, part, strict=True)):
            found = query._of_files(opened, [span.path for span in files], place) if files else None
            if found is None and files:
                return None
            rows += [] if found is None else [found]
        merged.append(reduce(partial(DataFrame.unionByName, allowMissingColumns=True), rows).coalesce(1))
    return merged


def _selected(rows: DataFrame, columns: Iterable[tuple[str, str]]) -> DataFrame:
    """Return columns by their names and their SQL, which takes PySpark fewer calls than a column made of each."""
    return rows.selectExpr(*(f"{sql} AS {ticked(name)}" for name, sql in columns))


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
    by_time = Window.partitionBy(GROUP).orderBy(TIME)
    begins = sf.col(TIME) - sf.lag(TIME).over(by_time) <= gap
    rows = rows.withColumn(_BEGINS, sf.when(begins, 0).otherwise(1))
    rows = rows.withColumn(_SESSION, sf.sum(_BEGINS).over(by_time))
    session = Window.partitionBy(GROUP, _SESSION)
    return rows.select(
        GROUP,
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
    return rows.groupBy(GROUP, TIME).agg(*parts), whole


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
    by_time = Window.partitionBy(GROUP).orderBy(TIME)
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
    rows = rows.select(GROUP, sf.array(*windows).alias(_ROW)).select(GROUP, sf.explode(_ROW).alias(_ROW))
    return rows.select(GROUP, f"{_ROW}.*").where(sf.col(_START).isNotNull())


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
    key = Term(records.key.kind, ticked(GROUP), size=records.key.size)
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
    if isinstance(rows, Records) and rows.source.emits_alone and rows.key.sql != rows.source.key.sql:
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
