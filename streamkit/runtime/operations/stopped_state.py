"""Reads the state directory of a stopped application: its stores, their contents, and whether they are correct."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from dataclasses import dataclass, replace
from itertools import zip_longest
from pathlib import Path
from tempfile import TemporaryDirectory

from streamkit.errors import StateError, UsageError
from streamkit.plan.model import Plan
from streamkit.record import TaskId, TopicPartition
from streamkit.runtime.execution.store_opening import reprocesses, source_rows_of
from streamkit.runtime.local.restore import Changelog, restore
from streamkit.state.definitions import BytesMap, Owner, StoreDef
from streamkit.state.directory import StateDirectory, read_mark, store_path, stored
from streamkit.state.engines.ages import rows_of
from streamkit.state.engines.headed import HeadedMap
from streamkit.state.engines.open_maps import ENGINES, open_map
from streamkit.state.open_store import create
from streamkit.state.store_offsets import WITH_HEADERS, StoreOffsets, decode_offsets, layout_of
from streamkit.state.stores.changelogged import Unlogged
from streamkit.transport.log_interface import Transport


@dataclass(frozen=True)
class KeptStore:
    """A store on disk. Unknown values are None."""

    application: str
    task: str
    store: str
    engine: str
    instance: str = ""
    """The directory of one of several instances (`run --processes`) below the state directory; empty for the first."""
    bytes: int | None = None
    rows: int | None = None
    """An estimate, unless `counted`."""
    counted: bool = False
    """Whether every row was read."""
    changelog: str | None = None
    offset: int | None = None
    """The exclusive changelog offset up to which the store is complete; for a global store the sum over the topic's partitions.
    """
    end: int | None = None
    """The end offset of the changelog; None if the log was not read."""
    committed_ms: int | None = None
    """When the offset last changed, since the epoch."""
    compared: bool = False
    """Whether the rows were compared with the changelog."""
    problem: str | None = None
    """Why the state can't be used; None if it can."""


def kept_stores(
    folder: Path, *, verify: bool, plan: Plan | None = None, transport: Transport | None = None
) -> list[KeptStore]:
    """Return the stores below a state directory, or below that of one application.

    `verify`: read every row; with the plan and the log of an application, also compare them with the changelog, up to the
    store's offset. Raises UsageError if there is no state, StateLockedError if a process uses it, TransportError.
    """
    if not folder.is_dir():
        raise UsageError(f"{folder} is not a directory")
    if stored(folder):
        applications = [folder]
    else:
        applications = sorted(entry for entry in (*folder.iterdir(), *folder.glob("instance-*/*")) if entry.is_dir())
    kept: list[KeptStore] = []
    for application in applications:
        names = stored(application)
        if plan is not None and names and application.name != plan.application:
            continue
        if names:
            with closing(StateDirectory(application.parent, application.name)):
                other = application.parent not in (folder, folder.parent)
                for name in names:
                    found = _of_task(application, name, verify, plan, transport)
                    kept += [replace(store, instance=application.parent.name) for store in found] if other else found
    if not kept:
        whose = "" if plan is None else f" of {plan.application}"
        raise UsageError(f"{folder} holds no stores{whose}")
    return kept


def _of_task(
    application: Path, task: str, verify: bool, plan: Plan | None, transport: Transport | None
) -> Iterator[KeptStore]:
    path = application / task
    for engine in ENGINES:
        for store in sorted((path / engine).iterdir()) if (path / engine).is_dir() else ():
            kept = KeptStore(application.name, task, store.name, engine)
            try:
                mark = read_mark(path)
                if mark is not None and mark.is_torn_copy(path):
                    raise StateError("was copied while a process used it, so its files may not match")
                with closing(open_map(engine, store)) as rows:
                    yield _inspected(kept, rows, verify, plan, transport)
            except StateError as error:
                yield replace(kept, problem=str(error))


def _inspected(
    kept: KeptStore, rows: BytesMap, verify: bool, plan: Plan | None, transport: Transport | None
) -> KeptStore:
    kept = replace(kept, bytes=rows.bytes_on_disk(), rows=rows.rows_estimate())
    offsets = None
    if rows.metadata is not None:
        try:
            offsets = decode_offsets(rows.metadata)
        except ValueError as error:
            return replace(kept, problem=str(error))
        rows = rows_of(rows, offsets.owner.layout)
        kept = replace(
            kept,
            rows=rows.rows_estimate(),
            changelog=offsets.owner.topic,
            offset=sum(offsets.positions.values()) if offsets.positions else None,
            committed_ms=offsets.committed_ms,
        )
    if verify:
        kept = replace(kept, rows=sum(1 for _ in rows.range(None, None)), counted=True)
    if offsets is None:  # of a task that has committed nothing; a start takes such a store if it is empty
        has_rows = any(True for _ in rows.range(None, None, limit=1))
        return replace(kept, problem="does not record how much of its changelog it contains" if has_rows else None)
    problem = _misplaced(kept, offsets)
    if problem is None and plan is not None and transport is not None:
        return _against_log(kept, rows, offsets, verify, plan, transport)
    return replace(kept, problem=problem)


def _misplaced(kept: KeptStore, offsets: StoreOffsets) -> str | None:
    partition = None if kept.task == "global" else TaskId.parse(kept.task).partition
    owner = replace(offsets.owner, application=kept.application, store=kept.store, partition=partition)
    return owner.other_than(offsets.owner)


def _against_log(
    kept: KeptStore, rows: BytesMap, offsets: StoreOffsets, verify: bool, plan: Plan, transport: Transport
) -> KeptStore:
    """Return the end offset of the store's changelog, and, with `verify`, whether the rows equal the changelog's."""
    definition = plan.stores.get(kept.store)
    if definition is None:
        return replace(kept, problem="is not a store of the topology")
    topic = plan.changelog_name(kept.store)
    owner = offsets.owner
    layout = layout_of(definition)
    if layout == owner.layout + WITH_HEADERS:
        layout = owner.layout  # a start uses these rows as they are (Store.adopt)
    wanted = Owner(plan.application, kept.store, owner.partition, topic, owner.topic_id, layout)
    problem = wanted.other_than(owner)
    if problem is not None or topic is None:
        return replace(kept, problem=problem)
    places = {TopicPartition(topic, number): offset for number, offset in offsets.positions.items()}
    with closing(transport.consumer(None, read_committed=plan.config.read_committed(), client_id="state")) as consumer:
        ends = consumer.end_offsets(list(places))
        firsts = consumer.beginning_offsets(list(places))
        kept = replace(kept, end=sum(ends.values()))
        for place, offset in places.items():
            if not firsts[place] <= offset <= ends[place]:
                where = f"{place.topic}-{place.partition}"
                text = f"goes up to offset {offset} of {where}, which has {firsts[place]} to {ends[place]}"
                return replace(kept, problem=text)
        processed = any(kept.store in sub.stores and reprocesses(sub) for sub in plan.sub_topologies if sub.is_global)
        if not verify or processed:
            return kept
        with TemporaryDirectory(prefix="streamkit-") as scratch:
            with closing(create(definition, Path(scratch), Unlogged(), engine=kept.engine)) as again:
                rows_in = source_rows_of(plan, kept.store)
                changelogs = [
                    Changelog(again, place, limit=offset, rows_of=rows_in(place)) for place, offset in places.items()
                ]
                restore(changelogs, consumer, lambda: False)
            with closing(open_map(kept.engine, store_path(Path(scratch), kept.engine, kept.store))) as opened:
                fresh = rows_of(opened, layout_of(definition))
                return replace(kept, compared=True, problem=_difference(definition, rows, fresh))


def _difference(definition: StoreDef, rows: BytesMap, fresh: BytesMap) -> str | None:
    """Return how the rows of a store differ from its changelog; None if they are equal.

    The log deletes windows later or earlier than the store, so only windows that both have are compared. The log
    keeps at least the last version of each key. Rows are compared without headers: a table keeps none of the records that it
    reads, but those of the records from which it was restored.
    """
    if definition.type == "versioned":
        one, again = (create(definition, None, Unlogged(), rows=map_) for map_ in (rows, fresh))
        differing = sum(left != right for left, right in zip_longest(one.rows(), again.rows()))
        return f"has rows that differ from its changelog: {differing} different" if differing else None
    if definition.restores_headers:
        rows, fresh = HeadedMap(rows), HeadedMap(fresh)
    expires = definition.retention is not None
    missing = extra = other = 0
    for ours, theirs in _side_by_side(rows.range(None, None), fresh.range(None, None)):
        if ours is None:
            missing += not expires
        elif theirs is None:
            extra += not expires
        else:
            other += ours != theirs
    counts = ((missing, "missing"), (extra, "too many"), (other, "different"))
    words = [f"{count} {what}" for count, what in counts if count]
    return f"has rows that differ from its changelog: {', '.join(words)}" if words else None


def _side_by_side(
    left: Iterator[tuple[bytes, bytes]], right: Iterator[tuple[bytes, bytes]]
) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Yield both values of each key in either of two sorted columns; None if a column lacks the key."""
    one, other = next(left, None), next(right, None)
    while one is not None or other is not None:
        if other is None or (one is not None and one[0] < other[0]):
            assert one is not None
            yield one[1], None
            one = next(left, None)
        elif one is None or other[0] < one[0]:
            yield None, other[1]
            other = next(right, None)
        else:
            yield one[1], other[1]
            one, other = next(left, None), next(right, None)
