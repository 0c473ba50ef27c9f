"""The tables of SQL queries that are on the log: topics, and stores restored from their changelogs."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from functools import partial
from pathlib import Path

from streamkit.errors import StateError, TopicError
from streamkit.expressions.types import Type, WindowedKey
from streamkit.plan.model import Plan, find_readable, internal_topics_on_log
from streamkit.plan.partitions import source_topics, task_count
from streamkit.record import TaskId, TopicPartition
from streamkit.runtime.execution.store_opening import reprocesses
from streamkit.runtime.local.queries import is_global
from streamkit.runtime.local.restore import Changelog, restore
from streamkit.runtime.operations.opening import address
from streamkit.runtime.operations.sql_query import STORES, TOPICS, WINDOW, Deadline, Row, SqlTable
from streamkit.runtime.operations.topic_positions import Range, first_offsets
from streamkit.runtime.operations.topic_reading import Reading, RecordFilter, TopicForms
from streamkit.runtime.records import headers_to_json
from streamkit.runtime.spark.rows.output_columns import types_of
from streamkit.serdes.plain import Json
from streamkit.state.definitions import Query, Store, StoreDef
from streamkit.state.directory import StateDirectory, store_path
from streamkit.state.engines.open_maps import ENGINES, open_map
from streamkit.state.open_store import create
from streamkit.state.stores.changelogged import Unlogged
from streamkit.transport.log_interface import Consumer, Transport

_ALL = 2**62
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
        found = admin.topics([topic]).get(topic)
    if found is None:
        raise TopicError(f"topic {topic} does not exist at {address(plan)}")
    return [TopicPartition(topic, number) for number in range(found.partitions)]


def _records(plan: Plan, transport: Transport, topic: str, span: Range, deadline: Deadline) -> Iterator[Row]:
    """Yield the records of a topic up to its current end."""
    forms = TopicForms(plan, topic)
    places = _partitions(plan, transport, topic)
    with closing(transport.consumer(None, read_committed=True)) as consumer:
        reading = Reading(consumer, RecordFilter(plan, forms, span, None, None), deadline.passed)
        first, ends = first_offsets(consumer, span.start, places), consumer.end_offsets(places)
        for polled in reading.between(first, ends):
            for found in polled:
                log, decoded = found.row, found.decoded
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
    kind = next(each for each in ("windows", "sessions", "all") if each in definition.kind.queries)
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
        limits = _limits(plan, consumer, definition, places)
        for place in places:
            with closing(create(definition, None, Unlogged())) as store:
                if not restore([Changelog(store, place, limit=limits[place])], consumer, deadline.passed):
                    deadline.fail()
                yield place.partition, store


def _on_disk(plan: Plan, transport: Transport, definition: StoreDef) -> Iterator[tuple[int, Store]]:
    """Yield a store for each of its tasks in the state directory, which must have all of them."""
    name, folder = definition.name, Path(plan.config.state_dir) / plan.application
    cure = "the running application can be asked, at its URL"
    sub = next(each for each in plan.sub_topologies if name in each.stores)
    if not definition.persistent or sub.is_global:
        raise StateError(f"store {name} is neither on the log nor on disk; {cure}")
    with closing(transport.admin()) as admin:
        counts = {topic: info.partitions for topic, info in admin.topics().items()}
    count = task_count([topic for topic in source_topics(plan, sub, counts) if topic in counts], counts)
    paths = {
        partition: (engine, path)
        for partition in range(count)
        for engine in ENGINES
        if (path := store_path(folder / str(TaskId(sub.id, partition)), engine, name)).is_dir()
    }
    if not paths or len(paths) < count:
        raise StateError(
            f"store {name} has no changelog, and {folder} has {len(paths)} of its {count} partitions; {cure}"
        )
    with closing(StateDirectory(folder.parent, plan.application)):
        for partition, (engine, path) in paths.items():
            with closing(open_map(engine, path)) as rows:
                yield partition, create(definition, None, Unlogged(), rows=rows)


def _limits(
    plan: Plan, consumer: Consumer, definition: StoreDef, places: list[TopicPartition]
) -> dict[TopicPartition, int | None]:
    """Return the offset at which the content of a store ends, None for the end of the topic."""
    if definition.source_topic is None or is_global(plan, definition.name):
        return dict.fromkeys(places)
    committed = consumer.committed(places)
    return {place: committed[place].offset if place in committed else 0 for place in places}
