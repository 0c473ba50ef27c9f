"""Adds the stores that are new in a version, computed from the history of its inputs, to an application that runs."""

from __future__ import annotations

import hashlib
import json
import pickle
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, replace
from functools import partial
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

from streamkit.changes.finding import Verdict
from streamkit.changes.of_plan import as_text, rows_of
from streamkit.errors import ActiveGroupError, MigrationError
from streamkit.plan.model import Plan, PlanNode, SinkNode, SourceNode
from streamkit.record import TopicPartition
from streamkit.runtime.execution import metadata
from streamkit.runtime.operations.migration import Migrator, State, shown_members
from streamkit.runtime.operations.migration_journal import HISTORY, Entry, Journal
from streamkit.runtime.operations.record_copy import TRANSACTION_SECONDS, LogAccess, new_id
from streamkit.runtime.operations.reset import locked_state
from streamkit.runtime.spark.checkpoint.job_checkpoint import Checkpoint
from streamkit.runtime.spark.checkpoint.manifest import Manifest
from streamkit.runtime.spark.evolution.new_stores import NewStores, find_new_stores
from streamkit.runtime.spark.job import repartition
from streamkit.runtime.spark.job_options import JobOptions, Range
from streamkit.runtime.spark.rows.file_system import FileSystem, join
from streamkit.runtime.spark.rows.log_rows import COMMITTED, Address, write_log
from streamkit.runtime.spark.spark_session import translated
from streamkit.runtime.spark.submission.incremental import submit_next
from streamkit.runtime.spark.work_names import WorkName, named
from streamkit.runtime.spark.workers import arrow_rows
from streamkit.runtime.spark.workers.kept_tasks import Kept, unpack_rows
from streamkit.runtime.spark.workers.task_stores import SpillingMap, SpillingStores
from streamkit.runtime.spark.workers.worker import by_partition, mark_errors
from streamkit.state.definitions import ChangelogRecord, Rows
from streamkit.suggestions import number_of
from streamkit.transport.log_interface import CommittedOffset, NewTopic, Transport

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from streamkit.state.definitions import StoreDef

Report = Callable[[str], None]
_PAUSE_S = 0.2
_MANY = 100_000
"""The records that the old version has processed since the last pass, beyond which a wait makes a further pass."""


class Evolution:
    """The way of an application from one version to the next, which has further stores.

    folder: the checkpoint; renames: as for a migration; tolerate_loss: whether stores may be computed from the rest, if
    retention has removed the beginning of an input. Raises UsageError.
    """

    def __init__(
        self,
        old: Plan,
        new: Plan,
        transport: Transport,
        folder: str,
        renames: Mapping[str, str],
        tolerate_loss: bool = False,
    ):
        self._migrator = Migrator(old, new, transport, renames)
        self._old, self._new = old, new
        self._transport, self._renames = transport, renames
        self._folder = folder
        """Has one checkpoint for each topology, so that none has rows of expressions that were edited since."""
        self._range = Range(end=COMMITTED, tolerate_loss=tolerate_loss, needs_beginning=True)

    def find(self) -> NewStores:
        """Return the stores to compute; nothing is changed. Raises MigrationError if the new version can't be reached."""
        stores = find_new_stores(self._old, self._new, self._transport, self._renames)
        migration = self._migrator.prepare()
        problems = [f"{step.subject}: {step.reason}" for step in migration.steps if step.state is State.REFUSED]
        problems += [change.message for change in migration.left if change.verdict is Verdict.INCOMPATIBLE]
        if problems:
            raise MigrationError("; ".join(problems))
        return stores

    def members(self) -> tuple[str, ...]:
        """Return the active members of the group."""
        with closing(self._transport.admin()) as admin:
            return tuple(admin.group_members(self._new.application))

    @contextmanager
    def _log(self) -> Iterator[LogAccess]:
        with closing(self._transport.admin()) as admin:
            yield LogAccess(self._transport, admin, Journal(self._new, self._transport, admin))

    def is_complete(self, stores: NewStores) -> bool:
        """Return whether the changelogs are complete, up to the offsets that the group had committed then."""
        with self._log() as log:
            return all(self._is_complete(log, stores, name) for name in stores.changelogs)

    def is_done(self, stores: NewStores) -> bool:
        """Return whether the changelogs are complete, and either the new version has begun or the old one has done nothing since."""
        if not self.is_complete(stores):
            return False
        with self._log() as log:
            if any(_has_grown(log, topic.name) for topic in stores.changelogs.values()):
                return True
            offsets = EvolvedOffsets(stores).committed_of(log)
            entries = [log.journal.get(topic.name) for topic in stores.changelogs.values()]
            return all(entry is not None and entry.source_ends == offsets for entry in entries)

    def has_begun(self, stores: NewStores) -> bool:
        """Return whether the new version has written to a changelog since that was complete."""
        with self._log() as log:
            return any(_has_grown(log, topic.name) for topic in stores.changelogs.values())

    def _is_complete(self, log: LogAccess, stores: NewStores, name: str) -> bool:
        topic = stores.changelogs[name]
        entry = log.journal.get(topic.name)
        if entry is None or not entry.done or entry.form != self._form(stores, name):
            return False
        return log.partitions(topic.name) != [] and entry.target_id == log.topic_id(topic.name)

    def _form(self, stores: NewStores, name: str) -> str:
        rows, partitions = asdict(rows_of(self._new)[name]), stores.changelogs[name].partitions
        return json.dumps({"rows": rows, "partitions": partitions, "topology": digest(stores.plan)}, sort_keys=True)

    # -- Steps -----------------------------------------------------------------------------------------------------------

    def begin(self, stores: NewStores) -> None:
        """Note that the new stores are incomplete, so that the new version does not start with them empty.

        Those that are complete up to some offsets remain so until `finish`: the new version may be running. Raises MigrationError if a changelog has records of another origin, or of a new version that has begun.
        """
        topics = [topic.name for topic in stores.changelogs.values()]
        with self._log() as log:
            for topic in topics:
                _check_own(log, topic)
            if any(_has_grown(log, topic) for topic in topics):
                raise MigrationError(
                    f"a version that has these stores has run, and {self._new.file} computes them otherwise or has more of "
                    f"them: if that version is in use, give it as OLD; if not, delete {', '.join(topics)}, and repeat"
                )
            self._note(log, stores, [name for name in stores.changelogs if not self._is_complete(log, stores, name)])

    def _note(self, log: LogAccess, stores: NewStores, names: Iterable[str]) -> None:
        """Note that stores are incomplete."""
        for name in names:
            topic = stores.changelogs[name].name
            entry = log.journal.get(topic)
            own = None if entry is None else entry.target_id
            if entry is None or entry.done:
                log.journal.put(topic, Entry(False, HISTORY, self._form(stores, name), target_id=own))

    def catch_up(self, stores: NewStores, spark: SparkSession, report: Report) -> None:
        """Process what the old version has processed since the last pass, up to its committed offsets."""
        read = replace(self._range, to_end=stores.fresh)
        submit_next(stores.plan, JobOptions(range=read, checkpoint=self._place(stores), state_only=True), spark, report)

    def wait(self, stores: NewStores, spark: SparkSession, report: Report) -> None:
        """Return when the group has no members; catch up meanwhile if much is new."""
        paused = threading.Event()
        read = self._read(stores, spark)
        while self.members():
            if self._processed(stores) - read > _MANY:
                self.catch_up(stores, spark, report)
                read = self._read(stores, spark)
            paused.wait(_PAUSE_S)

    def _read(self, stores: NewStores, spark: SparkSession) -> int:
        with translated(), self._checkpoint(spark, stores).opened(stores.plan) as manifest:
            read = EvolvedOffsets(stores).read(manifest)
        return sum(offset for place, offset in read.items() if place.topic not in stores.fresh)

    def _processed(self, stores: NewStores) -> int:
        with self._log() as log:
            return sum(max(0, offset) for offset in EvolvedOffsets(stores).committed_of(log, with_fresh=False))

    def finish(self, stores: NewStores, spark: SparkSession, report: Report) -> None:
        """Move the state of the old version, process the rest, and write the changelogs and offsets of the new stores.

        First the old version reads what it left in its repartition topics, so that this is in the state that moves. It may be
        repeated after a failure or a crash at any point. Raises ActiveGroupError if the group has members, MigrationError,
        StateLockedError, TransportError, and what the old version raises while it drains topics.
        """
        self._check_stopped()
        if self.is_done(stores):
            return  # by another command, while this one waited
        with self._log() as log:
            self._note(log, stores, stores.changelogs)
        self._drain(stores, report)
        migration = self._migrator.prepare()
        if not migration.is_done:
            for step in migration.steps:
                if step.state is State.TO_DO:
                    report(step.text)
            self._migrator.execute()
        self.catch_up(stores, spark, report)
        directory = Path(self._new.config.state_dir) / self._new.application
        with (
            translated(),
            locked_state(directory),
            self._checkpoint(spark, stores).opened(stores.plan) as manifest,
            self._log() as log,
        ):
            self._check_stopped()
            # The other command may also have been faster since.
            if not self.is_done(stores):
                self._write(stores, log, manifest, spark, report)

    def _check_stopped(self) -> None:
        members = self.members()
        if members:
            raise ActiveGroupError(f"{shown_members({self._new.application: members})}; stop all instances")

    def _drain(self, stores: NewStores, report: Report) -> None:
        """Let the old version read the repartition topics that the new stores read too: their records are in no store yet."""
        self._settle(stores)
        unread = self._unread()
        if not unread:
            return
        shown = ", ".join(f"{name} ({count})" for name, count in unread.items())
        report(f"let {self._old.file} read what is left in {shown}, until it is idle")
        self._migrator.run_old()
        left = self._unread()
        if left:
            raise MigrationError(f"{', '.join(left)} has unread records: stop all instances and producers, and repeat")

    def _unread(self) -> Mapping[str, int]:
        return find_new_stores(self._old, self._new, self._transport, self._renames).unread

    def _settle(self, stores: NewStores) -> None:
        """Return when no transaction is open in the repartition topics: its records may still become readable."""
        deadline = time.monotonic() + TRANSACTION_SECONDS
        with self._log() as log, closing(self._transport.consumer(None, read_committed=True)) as consumer:
            topics = [topic.name for topic in stores.repartitions if topic.name not in stores.unshared]
            places = [place for topic in topics for place in log.partitions(topic)]
            while tuple(consumer.end_offsets(places)[place] for place in places) != log.ends(places):
                if time.monotonic() > deadline:
                    raise MigrationError(f"{', '.join(topics)}: a transaction is open: stop all instances, and repeat")
                time.sleep(_PAUSE_S)

    def _check_unchanged(self, offsets: EvolvedOffsets, log: LogAccess, manifest: Manifest) -> None:
        """Raise MigrationError if the old version has run since it was drained and its state was moved."""
        offsets.check(log, manifest)
        if self._unread() or not self._migrator.prepare().is_done:
            raise MigrationError(f"{self._old.file} has run in the meantime: stop all instances, and repeat")

    def _checkpoint(self, spark: SparkSession, stores: NewStores) -> Checkpoint:
        return Checkpoint(spark, FileSystem(spark), self._place(stores))

    def _place(self, stores: NewStores) -> str:
        return join(self._folder, digest(stores.plan))

    def _write(
        self, stores: NewStores, log: LogAccess, manifest: Manifest, spark: SparkSession, report: Report
    ) -> None:
        offsets = EvolvedOffsets(stores)
        self._check_unchanged(offsets, log, manifest)
        ids = {}
        for name, topic in stores.changelogs.items():
            _check_own(log, topic.name)
            ids[name] = self._recreate(log, topic, self._form(stores, name))
            name_of_work = WorkName.of(self._new.application, topic.name, "changelog")
            with named(spark, name_of_work), self._checkpoint(spark, stores).limited_batches(manifest):
                rows = self._rows(stores, name, manifest, spark)
                count = 0 if rows is None else write_log(rows, Address.of(self._new))
            report(f"{topic.name}: {number_of(count, 'record')} written")
        self._check_stopped()
        topics = offsets.commit(log, manifest)
        if topics:
            report(f"offsets and times committed for {', '.join(topics)}")
        # Taken before the check: what the old version commits after it differs from these, so that the entries are not valid.
        committed = offsets.committed_of(log)
        self._check_unchanged(offsets, log, manifest)
        for name, topic in stores.changelogs.items():
            ends = log.ends(log.partitions(topic.name))
            form = self._form(stores, name)
            log.journal.put(
                topic.name, Entry(True, HISTORY, form, source_ends=committed, target_id=ids[name], target_ends=ends)
            )

    def _recreate(self, log: LogAccess, topic: NewTopic, form: str) -> str:
        """Create a changelog without records, in place of an incomplete one; return its id."""
        exists = bool(log.partitions(topic.name))
        before = log.topic_id(topic.name) if exists else None
        log.journal.put(topic.name, Entry(False, HISTORY, form, target_id=before))
        if exists:
            log.admin.delete_topics([topic.name])
        log.admin.create_topics([topic])
        created = new_id(log, topic.name, bool(log.admin.topic_ids([log.journal.topic])))
        log.journal.put(topic.name, Entry(False, HISTORY, form, target_id=created))
        return created

    def _rows(self, stores: NewStores, name: str, manifest: Manifest, spark: SparkSession) -> DataFrame | None:
        """Return the records of a changelog; None if the store has no rows."""
        plan, topic = stores.plan, stores.changelogs[name]
        checkpoint = self._checkpoint(spark, stores)
        rows = checkpoint.state(manifest, [name])
        if rows is None:
            return None
        sorted_rows = repartition(rows, topic.partitions, 1).sortWithinPartitions("partition", "offset")
        work = Export(pickle.dumps(plan), name, topic.name, checkpoint.kept(manifest))
        exported = sorted_rows.mapInArrow(partial(export, work), arrow_rows.DDL)
        versioned = plan.stores[name].type == "versioned"
        return exported.sortWithinPartitions("partition", "order", "offset") if versioned else exported


def _has_grown(log: LogAccess, topic: str) -> bool:
    """Return whether a complete changelog has further records, which are of the new version."""
    entry = log.journal.get(topic)
    places = log.partitions(topic)
    if entry is None or not entry.done or entry.source != HISTORY or not places:
        return False
    return entry.target_id == log.topic_id(topic) and log.ends(places) != entry.target_ends


def _check_own(log: LogAccess, topic: str) -> None:
    """Raise MigrationError if a changelog has records that this command did not write."""
    places = log.partitions(topic)
    entry = log.journal.get(topic)
    if not places or (entry is not None and entry.source == HISTORY and entry.target_id == log.topic_id(topic)):
        return
    records = log.records(places)
    if records:
        raise MigrationError(
            f"{topic} has {number_of(records, 'record')} already: give the store another name, or delete the topic if no version needs it"
        )


def digest(plan: Plan) -> str:
    """Return 16 hexadecimal digits, the same for plans that differ only in places in the file and in generated names.

    Expressions, functions of the file, settings of steps, inputs, rows and their retention count; Python modules and the
    settings of the application do not.
    """
    nodes = plan.nodes
    numbers = {node.name: number for number, node in enumerate(nodes)}
    stores = [(store.retention, store.history, store.grace, store.ttl) for store in plan.stores.values()]
    parts = [
        as_text(plan.functions),
        json.dumps([asdict(rows) for rows in rows_of(plan).values()], sort_keys=True),
        as_text(stores),
        *(text for node in nodes for text in _texts(node, numbers)),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _texts(node: PlanNode, numbers: dict[str, int]) -> Iterator[str]:
    if isinstance(node, SourceNode):
        yield f"reads {as_text([*node.topics, node.pattern, node.timestamps])}"
        return
    yield str([numbers[name] for name in node.parents])
    if isinstance(node, SinkNode):
        yield f"writes {as_text([node.topic, node.partition])}"
    else:
        yield as_text([node.processor, node.on_error])


class EvolvedOffsets:
    """The offsets of the inputs of new stores, in the group of the application."""

    def __init__(self, stores: NewStores):
        self._stores = stores
        self._plan = stores.plan
        self._globals = set(stores.plan.global_topics)

    def committed_of(self, log: LogAccess, *, with_fresh: bool = True) -> tuple[int, ...]:
        """Return the committed offset of each input partition, -1 if there is none, in the order of their names."""
        topics = {
            topic
            for sub in self._plan.sub_topologies
            if not sub.is_global
            for topic in sub.source_topics
            if topic not in self._plan.internal_topics and (with_fresh or topic not in self._stores.fresh)
        }
        places = [place for topic in sorted(topics) for place in log.partitions(topic)]
        committed = self._committed(log, places)
        return tuple(committed[place].offset if place in committed else -1 for place in places)

    def check(self, log: LogAccess, manifest: Manifest) -> None:
        """Raise MigrationError if the group has committed offsets since the last pass."""
        read = self.read(manifest)
        for place, committed in self._committed(log, list(read)).items():
            if committed.offset > read[place]:
                raise MigrationError(
                    f"{place.topic}-{place.partition}: group {self._plan.application} has committed offset {committed.offset}, and "
                    f"the history was read up to {read[place]}: stop all instances, and repeat"
                )

    def commit(self, log: LogAccess, manifest: Manifest) -> list[str]:
        """Create the repartition topics, and commit offsets of new topics and the times of new stores; return the topics.

        Offsets that exist stay, but for repartition topics that only the new stores read: what a new version that has run
        before left in them is in the history, so that they continue at their ends.
        """
        read = self.read(manifest)
        texts = {
            TopicPartition(topic, number): text
            for memory in manifest.tasks.values()
            for topic, number, text in memory["times"]
        }
        begun = {
            TopicPartition(topic.name, number): 0
            for topic in self._stores.repartitions
            for number in range(topic.partitions)
        }
        existing = [place for topic in sorted(self._stores.unshared) for place in log.partitions(topic)]
        begun.update(zip(existing, log.ends(existing), strict=True))
        log.admin.create_topics(self._stores.repartitions)
        fresh = {place: offset for place, offset in read.items() if place.topic in self._stores.fresh}
        present = self._committed(log, [*read, *begun])
        wanted = {place: CommittedOffset(offset, texts.get(place, "")) for place, offset in {**begun, **fresh}.items()}
        for place, committed in present.items():
            offset = begun[place] if place.topic in self._stores.unshared else committed.offset
            wanted[place] = CommittedOffset(offset, self._merged(committed.metadata, texts.get(place, "")))
        pending = {
            place: offset if offset.metadata else CommittedOffset(offset.offset, metadata.encode(metadata.UNKNOWN))
            for place, offset in wanted.items()
            if present.get(place) != offset
        }
        if pending:
            with closing(log.transport.consumer(self._plan.application)) as consumer:
                consumer.commit(pending)
        return sorted({place.topic for place in pending})

    def _merged(self, present: str, computed: str) -> str:
        """Return the metadata of the group with the times of the new stores, and the later stream time."""
        time, times = metadata.decode(present)
        later, times_then = metadata.decode(computed)
        own = {name: time for name, time in times_then.items() if name in self._stores.changelogs}
        if later <= time and own.items() <= times.items():
            return present
        return metadata.encode(max(time, later), {**times_then, **times, **own})

    def read(self, manifest: Manifest) -> dict[TopicPartition, int]:
        """Return the next offsets to read, without those of global tables."""
        return {
            TopicPartition(topic, int(number)): offset
            for topic, offsets in manifest.offsets.items()
            if topic not in self._globals
            for number, offset in offsets.items()
        }

    def _committed(self, log: LogAccess, places: list[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        existing = log.admin.topics({place.topic for place in places})
        with closing(log.transport.consumer(self._plan.application)) as consumer:
            return consumer.committed([place for place in places if place.topic in existing])


_SPILL_BYTES = 128 * 1024 * 1024
_BATCH = 20_000


def records_of(definition: StoreDef, rows: Rows) -> Iterator[ChangelogRecord]:
    """Yield the changelog records whose restore gives these rows of a store, which are sorted by key."""
    return definition.kind.implementation_class().changelog_records(rows)


@dataclass(frozen=True)
class Export:
    """A store whose rows become records of its changelog; sent to the workers. plan: pickled."""

    plan: bytes
    store: str
    topic: str
    kept: Kept


@mark_errors
def export(work: Export, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield changelog records for the files of a checkpoint, sorted by partition and by the runs that wrote them. Raises StateError."""
    plan = pickle.loads(work.plan)
    stores = SpillingStores(plan, _SPILL_BYTES)
    definition = plan.stores[work.store]
    rows: SpillingMap | None = None
    current = -1
    try:
        for batch in batches:
            for partition, part in by_partition(batch):
                if rows is None or partition != current:
                    yield from _written(work, definition, current, rows)
                    current, rows = partition, _new_map(stores, partition)
                for path, packed in zip(part.column("key").to_pylist(), part.column("value"), strict=True):
                    rows.put_many(unpack_rows(work.kept, path.decode(), packed.as_buffer()))
                    rows.commit()
        yield from _written(work, definition, current, rows)
        rows = None
    finally:
        if rows is not None:
            rows.close()
        stores.close()


def _new_map(stores: SpillingStores, partition: int) -> SpillingMap:
    return SpillingMap(_SPILL_BYTES, lambda: stores.directory() / str(partition))


def _written(work: Export, definition: StoreDef, partition: int, rows: SpillingMap | None) -> Iterator[pa.RecordBatch]:
    if rows is None:
        return
    records = records_of(definition, rows.range(None, None))
    first = 0
    while chunk := list(islice(records, _BATCH)):
        orders, keys, values, times, headers = zip(*chunk, strict=True)
        size = len(chunk)
        places = range(first, first + size)
        yield arrow_rows.to_batch(
            ([work.topic] * size, [partition] * size, keys, values, times, headers, orders, [0] * size, places)
        )
        first += size
    rows.close()
