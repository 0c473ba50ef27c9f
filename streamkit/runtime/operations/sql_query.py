"""SQL over the stores and topics of an application: DuckDB reads each that a query names as a table of Arrow columns."""

from __future__ import annotations

import json
import math
import re
import subprocess
import sys
import time
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack, closing
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from streamkit.distribution import install_command
from streamkit.errors import (
    ConfigError,
    LimitError,
    Position,
    Problem,
    SerdeError,
    StateError,
    StreamkitError,
    TimeLimitError,
    TopicError,
    TopologyError,
)
from streamkit.expressions.types import ANY, Type, WindowedKey
from streamkit.plan.model import Plan, find_readable, internal_topics_on_log
from streamkit.plan.partitions import source_topics, task_count, task_inputs
from streamkit.record import TaskId, TopicPartition
from streamkit.runtime.execution.store_opening import reprocesses, source_rows_of
from streamkit.runtime.local.queries import is_global
from streamkit.runtime.local.restore import Changelog, restore
from streamkit.runtime.operations.opening import address
from streamkit.runtime.operations.topic_reading import Range, Reading, RecordFilter, TopicForms, first_offsets
from streamkit.runtime.records import headers_to_json
from streamkit.runtime.spark.rows.output_columns import JSON, STRUCT, Shape, arrow_type, maker_of, shape_of, types_of
from streamkit.serdes.formats.json_text import to_text
from streamkit.serdes.plain import Json
from streamkit.state.definitions import Query, Store, StoreDef
from streamkit.state.directory import StateDirectory, directories_of, store_path
from streamkit.state.engines.open_maps import ENGINES, open_map
from streamkit.state.open_store import create
from streamkit.state.store_offsets import decode_offsets
from streamkit.state.stores.changelogged import Unlogged
from streamkit.suggestions import did_you_mean, listed, number_of
from streamkit.transport.log_interface import Consumer, Transport

if TYPE_CHECKING:
    import duckdb
    import pyarrow as pa

STORES, TOPICS = "stores", "topics"
"""The schemas of the tables."""
OPTION = "--sql"
_TIME, _NUMBER = Shape("timestamp"), Shape("bigint")
WINDOW = ("window_start", "window_end")
_PLACES = {
    "timestamp": _TIME,
    "partition": Shape("int"),
    "offset": _NUMBER,
    "headers": Shape("array", (("element", Shape(STRUCT, (("name", Shape("string")), ("value", Shape("string"))))),)),
    "error": Shape("string"),
}
"""Columns beside those of key, window and value."""
_MOST_FIELDS = 500
"""An object with more fields is one column of JSON text."""
_MEMORY = "1GB"
_MOST_MEMORY = 3 << 30
"""Of the process of a query: the tables and single values are not in DuckDB's memory."""
_MOST_CHARACTERS = 100_000
"""Of a query; a longer one takes seconds to parse."""
_SETTINGS = (
    "threads = 2",
    f"memory_limit = '{_MEMORY}'",
    "temp_directory = ''",
    "autoinstall_known_extensions = false",
    "autoload_known_extensions = false",
    "python_enable_replacements = false",
    # That of the machine would decide how a time with a zone compares with a column.
    "TimeZone = 'UTC'",
    # The last one: with it, DuckDB takes no other directory.
    "enable_external_access = false",
)
"""A query reads nothing but its tables: no file, no other database, no variable of this process."""

Row = dict[str, Json]
"""A row in the JSON form of its serdes: key, value, and the other columns of its table; times in milliseconds."""


class SqlTable(NamedTuple):
    """A store or topic. rows: reads it, with the deadline of the query; places: the names of its columns beside key and value."""

    schema: str
    name: str
    rows: Callable[[Deadline], Iterable[Row]]
    places: tuple[str, ...]
    key: Type = ANY
    value: Type = ANY

    @property
    def noun(self) -> str:
        """What it is, for messages."""
        return self.schema[:-1]


@dataclass(frozen=True)
class Limits:
    """The bounds of a query. rows, result: rows and bytes of its result; read: rows of each table; bytes: of all tables as JSON text."""

    rows: int = 10_000
    read: int = 1_000_000
    bytes: int = 128 << 20
    seconds: float = 60.0
    result: int = 64 << 20


class Deadline:
    """The time limit of a query."""

    def __init__(self, seconds: float):
        self._seconds = seconds
        self._end = time.monotonic() + seconds

    def left(self) -> float:
        """Return the seconds that are left, 0 after the end."""
        return max(0.0, self._end - time.monotonic())

    def passed(self) -> bool:
        """Return whether the time is over."""
        return not self.left()

    def check(self) -> None:
        """Raise TimeLimitError if the time is over."""
        if self.passed():
            self.fail()

    def fail(self) -> NoReturn:
        """Raise TimeLimitError."""
        raise TimeLimitError(f"the query took more than {self._seconds:g} s; --timeout allows more")


class SqlResult(NamedTuple):
    """The rows of a query as plain data. is_cut: whether there are more."""

    columns: list[str]
    rows: list[list[Json]]
    is_cut: bool


def run_sql(sql: str, tables: Sequence[SqlTable], limits: Limits, source: str = OPTION) -> SqlResult:
    """Run a query over those of the tables that it names. source: what has its text, for the positions of mistakes.

    Raises ConfigError without the extra sql, TopologyError with the position of a mistake in the query, LimitError,
    TimeLimitError, and the errors of reading the tables.
    """
    try:
        import duckdb
        import pyarrow  # noqa: F401 - of the same extra
    except ImportError as error:
        raise ConfigError(f"SQL needs {error.name}: {install_command('sql')}") from error
    deadline = Deadline(limits.seconds)
    query = _Query(sql, tables, source)
    database = duckdb.connect(":memory:")
    try:
        for setting in _SETTINGS:
            database.execute(f"SET {setting}")
        named = query.named_tables(database)
    except duckdb.Error as error:
        query.fail(str(error), error)
    finally:
        database.close()
    size = 0
    written: list[tuple[str, pa.Buffer]] = []
    for table in named:
        columns, size = _read(table, limits, deadline, size)
        query.columns += [name for name in columns.column_names if name not in query.columns]
        written.append((quoted(table), _arrow_stream(columns)))
    return _run(query, written, limits, deadline)


def _run(query: _Query, tables: list[tuple[str, pa.Buffer]], limits: Limits, deadline: Deadline) -> SqlResult:
    """Run a query in a process of its own, which can be ended and whose memory is bounded."""
    from streamkit.runtime.operations.sql_worker import Answer  # imports DuckDB

    header = {
        "sql": query.sql,
        "settings": _SETTINGS,
        "schemas": (STORES, TOPICS),
        "tables": [(name, rows.size) for name, rows in tables],
        "rows": limits.rows,
        "bytes": limits.result,
        "memory": _MOST_MEMORY,
        "seconds": math.ceil(deadline.left()) + 1,
    }
    request = b"".join([json.dumps(header).encode(), b"\n", *(memoryview(rows) for _, rows in tables)])
    # A module beside the topology must not take the place of one that DuckDB imports.
    command = [sys.executable, "-P", "-m", "streamkit.runtime.operations.sql_worker"]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE) as worker:
        try:
            written, said = worker.communicate(request, deadline.left())
        except subprocess.TimeoutExpired:
            worker.kill()
            deadline.fail()
    if worker.returncode > 0:
        reason = said.decode(errors="replace").strip().rpartition("\n")[2]
        raise StreamkitError(f"the process of the query failed: {reason}")
    # Without memory, the process may end before it can say so.
    answer = Answer(**json.loads(written)) if worker.returncode == 0 else Answer([], [], refused="memory")
    if answer.refused == "memory":
        raise LimitError(f"the query needs more than {_MEMORY} of memory; select fewer rows or columns")
    if answer.refused == "result":
        raise LimitError(f"the result has more than {limits.result >> 20} MiB; select fewer rows or columns")
    if answer.error is not None:
        query.fail(answer.error)
    return SqlResult(answer.columns, [json.loads(row) for row in answer.rows], answer.is_cut)


def _arrow_stream(columns: pa.Table) -> pa.Buffer:
    import pyarrow as pa

    target = pa.BufferOutputStream()
    with pa.ipc.new_stream(target, columns.schema) as stream:
        stream.write_table(columns)
    return target.getvalue()


# The names in a query, and its mistakes.

_LINE = re.compile(r"\nLINE (\d+): (.*)\n( *)\^")
_COLUMN = re.compile(r'(?:Referenced column|does not have a column named|column named) "([^"]+)"')
_OBJECT = re.compile(r"\b(key|value)\.\w+")
_PLAIN_NAME = re.compile(r"[A-Za-z_]\w*")


class _Query:
    """The text of a query, the tables that it may name, and its mistakes."""

    def __init__(self, sql: str, tables: Sequence[SqlTable], source: str):
        self._source = source
        self.sql = sql
        self._tables = tables
        self.columns: list[str] = []
        """The columns of the tables that are read so far."""

    def named_tables(self, database: duckdb.DuckDBPyConnection) -> list[SqlTable]:
        """Return the tables that the query names. Raises TopologyError for a name without a table, and for other statements."""
        if not self.sql.strip():
            raise self._mistake(1, "the query is empty; expected SELECT … FROM a store or topic")
        if not self.sql.isascii() and self.sql.encode(errors="ignore").decode() != self.sql:
            raise self._mistake(1, "the query is not UTF-8 text")
        if len(self.sql) > _MOST_CHARACTERS:
            raise self._mistake(
                1, f"the query has {len(self.sql):,} characters; at most {_MOST_CHARACTERS:,} are allowed"
            )
        # Shown first, because only a statement that can be parsed has a kind.
        database.extract_statements(self.sql)
        (text,) = database.execute("SELECT json_serialize_sql(?)", [self.sql]).fetchone() or ("{}",)
        named: list[SqlTable] = []
        references: list[dict[str, Json]] = []
        common: set[str] = set()
        try:
            tree = json.loads(text)
            _walk(tree, references, common)
        except RecursionError as error:
            raise self._mistake(1, "the query is nested too deeply") from error
        if tree.get("error") or len(tree["statements"]) != 1:
            raise self._mistake(1, "expected one SELECT statement: a query can't change or open anything")
        for node in references:
            name, schema = str(node["table_name"]), str(node.get("schema_name") or "")
            if schema in ("", STORES, TOPICS) and not (not schema and name.lower() in common):
                table = self._table(schema, name, int(str(node.get("query_location", 0))))
                if not any(known is table for known in named):
                    named.append(table)
        return named

    def _table(self, schema: str, name: str, at: int) -> SqlTable:
        """Return the table of a name; its case counts only if several names differ in nothing else."""
        candidates = [table for table in self._tables if schema in ("", table.schema)]
        matching = [table for table in candidates if table.name == name]
        matching = matching or [table for table in candidates if table.name.lower() == name.lower()]
        if len(matching) == 1:
            return matching[0]
        if matching:
            ways = " or ".join(quoted(table) for table in matching)
            raise self._mistake(self._character(at), f"{name!r} is the name of several tables; write {ways}")
        names = list(dict.fromkeys(table.name for table in candidates))
        what = {STORES: "store", TOPICS: "topic"}.get(schema, "store or topic")
        hint = did_you_mean(name, names, f"known are {listed(names)}")
        raise self._mistake(self._character(at), f"there is no {what} {name!r}{hint}")

    def fail(self, message: str, cause: Exception | None = None) -> NoReturn:
        """Raise TopologyError for an error of DuckDB, at its place."""
        text, place = message.split("\n\nLINE ")[0], self._place(message)
        summary = text.split("\n")[0].partition(": ")[2] or text.split("\n")[0]
        raise self._mistake(place, self._explained(summary, place)) from cause

    def _explained(self, summary: str, place: int) -> str:
        """Return the message of a mistake, with the nearest valid name where the query has an unknown one."""
        column, field = _COLUMN.search(summary), _OBJECT.match(self.sql, place - 1)
        columns = self.columns
        if field and field[0].replace(".", "_") in columns:
            return f"there is no table {field[1]!r}; a field is a column of its own: {field[0].replace('.', '_')}"
        if column:
            return f"there is no column {column[1]!r}{did_you_mean(column[1], columns, f'known are {listed(columns)}')}"
        if "syntax error" in summary:
            # A name with a dash is a subtraction, which no FROM takes.
            dashed = [table for table in self._tables if not _PLAIN_NAME.fullmatch(table.name)]
            for table in dashed:
                at = re.search(rf'(?<!["\w-]){re.escape(table.name)}(?!["\w-])', self.sql)
                if at and at.start() < place <= at.end() + 1:
                    return f'{summary}; write a name such as {table.name} in double quotes: "{table.name}"'
        return summary

    def _place(self, message: str) -> int:
        """Return the character, from 1, to which an error of DuckDB points; its excerpt of a long line begins with dots."""
        match = _LINE.search(message)
        if match is None:
            return 1
        number, excerpt, blanks = int(match[1]), match[2], len(match[3]) - len(f"LINE {match[1]}: ")
        lines = self.sql.split("\n")
        before = sum(len(line) + 1 for line in lines[: number - 1])
        if excerpt.startswith("...") and number <= len(lines):
            shown = excerpt.removeprefix("...").removesuffix("...")
            return before + max(lines[number - 1].find(shown), 0) + blanks - len("...") + 1
        return before + blanks + 1

    def _character(self, at: int) -> int:
        """Return the character, from 1, of a place in bytes."""
        return len(self.sql.encode()[:at].decode(errors="ignore")) + 1

    def _mistake(self, place: int, message: str) -> TopologyError:
        before = self.sql[: place - 1]
        position = Position(self._source, before.count("\n") + 1, len(before) - (before.rfind("\n") + 1) + 1)
        return TopologyError([Problem(position, message)])


def quoted(table: SqlTable) -> str:
    """Return the name of a table with its schema, as a query has it."""
    name = table.name.replace('"', '""')
    return f'{table.schema}."{name}"'


def _walk(node: Json, references: list[dict[str, Json]], common: set[str]) -> None:
    """Collect the references to tables in the tree of a query, and the names of its WITH clauses in lower case."""
    if isinstance(node, list):
        for part in node:
            _walk(part, references, common)
    elif isinstance(node, dict):
        if node.get("type") == "BASE_TABLE":
            references.append(node)
        common.update(str(part["key"]).lower() for part in (node.get("cte_map") or {}).get("map", ()))
        if "cte_name" in node:
            common.add(str(node["cte_name"]).lower())
        for part in node.values():
            _walk(part, references, common)


# The columns of a table.


def _read(table: SqlTable, limits: Limits, deadline: Deadline, size: int) -> tuple[pa.Table, int]:
    """Return the columns of a table, and the bytes read with it. Raises LimitError instead of leaving rows out."""
    rows: list[Row] = []
    for row in table.rows(deadline):
        if len(rows) == limits.read:
            more = "--from and --to read a part, and " if table.schema == TOPICS else ""
            raise LimitError(
                f"{table.noun} {table.name} has more than {limits.read:,} rows; {more}--max-rows reads more"
            )
        size += len(to_text(row))
        if size > limits.bytes:
            part = "; --from and --to read a part" if table.schema == TOPICS else ""
            raise LimitError(f"{table.noun} {table.name}: a query reads at most {limits.bytes >> 20} MiB{part}")
        rows.append(row)
        deadline.check()
    deadline.check()
    return _columns(table, rows), size


def _columns(table: SqlTable, rows: list[Row]) -> pa.Table:
    import pyarrow as pa

    arrays: dict[str, pa.Array] = {}
    arrays.update(_part("key", shape_of(table.key), [row["key"] for row in rows]))
    windows = [name for name in table.places if name in WINDOW]
    arrays.update({name: _array(name, _TIME, [row.get(name) for row in rows]) for name in windows})
    arrays.update(_part("value", shape_of(table.value), [row["value"] for row in rows]))
    for name in table.places:
        cells = [row.get(name) for row in rows]
        if name not in WINDOW and (name != "error" or any(cells)):
            arrays[name] = _array(name, _PLACES[name], cells)
    return pa.table(arrays)


def _part(part: str, shape: Shape, cells: list[Json]) -> Iterator[tuple[str, pa.Array]]:
    """Yield the columns of keys or values: one for each field of objects, or a single one."""
    shapes = dict(shape.fields) if shape.kind == STRUCT else {}
    if shapes or shape.kind == JSON:
        names = dict.fromkeys(shapes)
        for cell in cells:
            if isinstance(cell, dict):
                names.update(dict.fromkeys(cell))
        objects = all(cell is None or isinstance(cell, dict) for cell in cells)
        # DuckDB's names are equal if only their case differs.
        if names and objects and len({name.lower() for name in names}) == len(names) <= _MOST_FIELDS:
            for name in names:
                inner = [cell.get(name) if isinstance(cell, dict) else None for cell in cells]
                yield f"{part}_{name}", _array(f"{part}_{name}", shapes.get(name, Shape(JSON)), inner)
            return
    yield part, _array(part, shape, cells)


def _array(name: str, shape: Shape, cells: list[Json]) -> pa.Array:
    """Return a column of the shape, else of the type that its values have in common, else of JSON text."""
    import pyarrow as pa

    if shape.kind != JSON:
        make = maker_of(shape, name)
        try:
            converted = [None if cell is None else make(cell) for cell in cells]
            # Without a zone, in UTC: functions of times with zones need an extension.
            return pa.array(converted, pa.timestamp("us") if shape is _TIME else arrow_type(shape))
        except (SerdeError, pa.ArrowException, UnicodeError, OverflowError):
            pass  # values that another writer has put there
    try:
        array = pa.array(cells)
        if not pa.types.is_null(array.type):
            return array
    except (pa.ArrowException, UnicodeError, OverflowError):
        pass  # values of several types
    return pa.array([None if cell is None else to_text(cell).decode() for cell in cells], pa.string())


# The tables of SQL queries that are on the log: topics, and stores restored from their changelogs.


_ALL = 2**62
_CURE = "the running application can be asked, at its URL"
_OF_RECORDS = ("timestamp", "partition", "offset", "headers", "error")


def store_columns(is_windowed: bool) -> tuple[str, ...]:
    """Return the columns of a store beside key and value."""
    return (*WINDOW, "timestamp") if is_windowed else ("timestamp",)


def store_row(key: Json, value: Json, timestamp: int | None, is_windowed: bool) -> Row:
    """Return a row of a store; its key with a window becomes three columns."""
    row: Row = {"key": key, "value": value, "timestamp": timestamp}
    if is_windowed and isinstance(key, dict):
        row |= {"key": key["key"], "window_start": key["start"], "window_end": key["end"]}
    return row


def log_tables(plan: Plan, transport: Transport, span: Range) -> list[SqlTable]:
    """Return the stores and the topics of an application on its log. span: the records of topics."""
    entries = {topic.entry: topic.name for topic in plan.external_topics.values()}
    topics = [_topic(plan, transport, name, span) for name in (*entries, *internal_topics_on_log(plan))]
    return [*topics, *(_store(plan, transport, name) for name in plan.stores)]


def _topic(plan: Plan, transport: Transport, entry: str, span: Range) -> SqlTable:
    topic = find_readable(plan, entry)
    key, value = types_of(plan, topic)
    is_windowed = isinstance(key, WindowedKey) or any(side.is_windowed for side, _ in TopicForms(plan, topic).pairs)
    places = (*(WINDOW if is_windowed else ()), *_OF_RECORDS)
    rows = partial(_records, plan, transport, topic, span)
    return SqlTable(TOPICS, entry, rows, places, _plain_key(key), value)


def _plain_key(kind: Type) -> Type:
    return kind.fields["key"] if isinstance(kind, WindowedKey) else kind


def _partitions(plan: Plan, transport: Transport, topic: str) -> list[TopicPartition]:
    """Return the partitions of a topic. Raises TopicError if it does not exist."""
    place = transport.missing()
    if place is not None:
        raise TopicError(f"there is no log in {place} yet; a command that writes creates it")
    with closing(transport.admin()) as admin:
        info = admin.topics([topic]).get(topic)
    if info is None:
        raise TopicError(f"topic {topic} does not exist at {address(plan)}")
    return [TopicPartition(topic, number) for number in range(info.partitions)]


def _records(plan: Plan, transport: Transport, topic: str, span: Range, deadline: Deadline) -> Iterator[Row]:
    """Yield the records of a topic up to its current end."""
    forms = TopicForms(plan, topic)
    places = _partitions(plan, transport, topic)
    with closing(transport.consumer(None, read_committed=True)) as consumer:
        reading = Reading(consumer, RecordFilter(plan, forms, span, None, None), deadline.passed)
        first, ends = first_offsets(consumer, span.start, places), consumer.end_offsets(places)
        for polled in reading.between(first, ends):
            for record in polled:
                log, decoded = record.row, record.decoded
                key, value = (
                    None if name in decoded.problems else side.json(part)
                    for name, side, part in zip(
                        ("key", "value"), decoded.sides, (decoded.key, decoded.value), strict=True
                    )
                )
                row = store_row(key, value, log.timestamp, decoded.sides[0].is_windowed)
                row |= {"partition": log.partition, "offset": log.offset}
                if log.headers:
                    row["headers"] = [{"name": name, "value": text} for name, text in headers_to_json(log.headers)]
                if decoded.problems:
                    row["error"] = "; ".join(f"{name}: {reason}" for name, reason in decoded.problems.items())
                yield row
    deadline.check()


def _store(plan: Plan, transport: Transport, name: str) -> SqlTable:
    definition = plan.stores[name]
    rows = partial(_kept, plan, transport, definition)
    kinds = definition.key_serde.type, definition.value_serde.type
    return SqlTable(STORES, name, rows, store_columns(definition.kind.windowed), *kinds)


def _kept(plan: Plan, transport: Transport, definition: StoreDef, deadline: Deadline) -> Iterator[Row]:
    """Yield the rows of a store as of the application's last commit.

    Raises StateError for a store that is neither on the log nor complete in the state directory, StateLockedError.
    """
    topic = plan.changelog_name(definition.name)
    reprocessed = any(definition.name in sub.stores and reprocesses(sub) for sub in plan.sub_topologies)
    opened = (
        _on_disk(plan, transport, definition)
        if topic is None or reprocessed
        else _restored(plan, transport, definition, topic, deadline)
    )
    write = definition.kind.implementation_class().row_writer(definition)
    kind = next(query_kind for query_kind in ("windows", "sessions", "all") if query_kind in definition.kind.queries)
    for partition, store in opened:
        for row in store.page(Query(kind, limit=_ALL), partition):
            yield store_row(*write(row.key, row.value), row.timestamp, definition.kind.windowed)


def _restored(
    plan: Plan, transport: Transport, definition: StoreDef, topic: str, deadline: Deadline
) -> Iterator[tuple[int, Store]]:
    """Yield a store in memory for each partition of its changelog."""
    places = _partitions(plan, transport, topic)
    # The group's offsets: a source topic may have records that the application has not read.
    with closing(transport.consumer(plan.application, read_committed=plan.config.read_committed())) as consumer:
        limits, rows_of = _limits(plan, consumer, definition, places), source_rows_of(plan, definition.name)
        for place in places:
            with closing(create(definition, None, Unlogged())) as store:
                changelog = Changelog(store, place, limit=limits[place], rows_of=rows_of(place))
                if not restore([changelog], consumer, deadline.passed):
                    deadline.fail()
                yield place.partition, store


def _on_disk(plan: Plan, transport: Transport, definition: StoreDef) -> Iterator[tuple[int, Store]]:
    """Yield a store for each of its tasks, from the state directories of this machine's instances, which must have all of them."""
    name = definition.name
    sub = next(sub_topology for sub_topology in plan.sub_topologies if name in sub_topology.stores)
    if not definition.persistent or sub.is_global:
        raise StateError(f"store {name} is neither on the log nor on disk; {_CURE}")
    with closing(transport.admin()) as admin:
        counts = {topic: info.partitions for topic, info in admin.topics().items()}
    topics = [topic for topic in source_topics(plan, sub, counts) if topic in counts]
    folders = directories_of(plan.config.state_dir, plan.application)
    copies = {
        partition: [
            (engine, path)
            for folder in folders
            for engine in ENGINES
            if (path := store_path(folder / str(TaskId(sub.id, partition)), engine, name)).is_dir()
        ]
        for partition in range(task_count(topics, counts))
    }
    complete = sum(map(bool, copies.values()))
    if not complete or complete < len(copies):
        raise StateError(
            f"store {name} has no changelog, and {folders[0]} has {complete} of its {number_of(len(copies), 'partition')}; {_CURE}"
        )
    with ExitStack() as opened:
        for folder in filter(Path.is_dir, folders):
            opened.enter_context(closing(StateDirectory(folder.parent, plan.application)))
        consumer = opened.enter_context(closing(transport.consumer(plan.application)))
        for partition, paths in copies.items():
            committed = consumer.committed(task_inputs(topics, partition, counts))
            offsets = {f"{place.topic}-{place.partition}": found.offset for place, found in committed.items()}
            engine, path = _of_last_commit(name, paths, offsets)
            with closing(open_map(engine, path)) as rows:
                yield partition, create(definition, None, Unlogged(), rows=rows)


def _of_last_commit(name: str, copies: list[tuple[str, Path]], committed: Mapping[str, int]) -> tuple[str, Path]:
    """Return which of a partition's copies has the inputs that are committed: each instance that had the task has one.

    Raises StateError if none has them, or several have and not all are empty.
    """
    found, others, empty = [], [], True
    for engine, path in copies:
        with closing(open_map(engine, path)) as rows:
            try:
                inputs = decode_offsets(rows.metadata).inputs if rows.metadata else {}
            except ValueError as error:
                raise StateError(f"{path} is damaged: {error}") from error
            has_rows = any(True for _ in rows.range(None, None, limit=1))
        wrong = [f"{place} up to {had}" for place, had in inputs.items() if committed.get(place, had) != had]
        if committed and not inputs and not has_rows:
            wrong = ["no input"]
        if wrong:
            others.append(f"{path} has {', '.join(wrong)}")
        else:
            found.append((engine, path))
            empty = empty and not has_rows
    if not found:
        raise StateError(
            f"store {name} has no changelog, and no state of the last commit: {'; '.join(others)}; {_CURE}"
        )
    if len(found) > 1 and not empty:
        paths = " and ".join(str(path) for _, path in found)
        raise StateError(f"store {name} has no changelog, and several states of the last commit, in {paths}; {_CURE}")
    return found[0]


def _limits(
    plan: Plan, consumer: Consumer, definition: StoreDef, places: list[TopicPartition]
) -> dict[TopicPartition, int | None]:
    """Return the offset at which the content of a store ends, None for the end of the topic."""
    if definition.source_topic is None or is_global(plan, definition.name):
        return dict.fromkeys(places)
    committed = consumer.committed(places)
    return {place: committed[place].offset if place in committed else 0 for place in places}
