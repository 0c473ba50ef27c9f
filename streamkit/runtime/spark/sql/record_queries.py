"""The records at a place of a stage: those of a topic, or pairs of two streams, as steps test them and join them with tables."""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, TypeAlias

from streamkit.errors import InexactError
from streamkit.expressions.calls import CallableRef
from streamkit.runtime.spark.rows.files import OpenedInput
from streamkit.runtime.spark.rows.input_columns import HIDDEN
from streamkit.runtime.spark.rows.output_columns import ticked
from streamkit.runtime.spark.spark_session import classic_context
from streamkit.runtime.spark.sql.sources import LONGEST, TASKS, TIME, RecordSource, SqlSource
from streamkit.runtime.spark.sql.terms import OBJECT, Guard, Keep, Term, chosen, read_rows
from streamkit.runtime.spark.workers.worker import call_function

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import Column, DataFrame

Opened: TypeAlias = Callable[[str], OpenedInput]
"""Opens the one input of a topic."""
GROUP = "key"
PLACE = f"{HIDDEN}place"
"""The place of a record in the order of its input."""
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

    source: RecordSource
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
        return self.source.sources

    @property
    def names(self) -> dict[str, Term]:
        """The parts of a record that expressions may use."""
        return {"key": self.key, "value": self.value, "timestamp": self.time}

    @property
    def is_of_tasks(self) -> bool:
        """Whether tasks in Python have written the records, so that each use of them runs those, unless Spark keeps them."""
        return any(source.order == TASKS for source in self.sources)

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
        return self.source.has_keys and part.sql == self.source.key.sql

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
        return self.source.is_joined or any(
            isinstance(test, Earlier) or (isinstance(test, TableJoin) and not test.is_small(opened(test.table.topic)))
            for test in self.tests
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
