"""Adds the stores that are new in a version, computed from the history of its inputs, to an application that runs."""

from __future__ import annotations

import json
import pickle
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from streamkit.changes.finding import Verdict
from streamkit.changes.of_plan import rows_of
from streamkit.errors import ActiveGroupError, MigrationError
from streamkit.plan.model import Plan
from streamkit.runtime.operations.migration import Migrator, State, shown_members
from streamkit.runtime.operations.migration_journal import HISTORY, Entry, Journal
from streamkit.runtime.operations.record_copy import TRANSACTION_SECONDS, LogAccess, new_id
from streamkit.runtime.operations.reset import locked_state
from streamkit.runtime.spark.checkpoint.file_system import FileSystem, join
from streamkit.runtime.spark.checkpoint.job_checkpoint import Checkpoint
from streamkit.runtime.spark.checkpoint.manifest import Manifest
from streamkit.runtime.spark.evolution.changelog_rows import Export, export
from streamkit.runtime.spark.evolution.evolved_offsets import EvolvedOffsets
from streamkit.runtime.spark.evolution.new_stores import NewStores, find_new_stores
from streamkit.runtime.spark.evolution.topology_digest import digest
from streamkit.runtime.spark.rows import arrow_rows
from streamkit.runtime.spark.rows.log_rows import Address, write_log
from streamkit.runtime.spark.stages.split import repartition
from streamkit.runtime.spark.submission.incremental import submit_next
from streamkit.runtime.spark.submission.job_options import JobOptions, Range
from streamkit.runtime.spark.submission.ranges import COMMITTED
from streamkit.runtime.spark.submission.spark_session import describe_job, translated
from streamkit.transport.log_interface import NewTopic, Transport

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

Report = Callable[[str], None]
_PAUSE_S = 0.2
_MANY = 100_000
"""The records that the old version has processed since the last pass, beyond which a wait makes a further pass."""


class Evolution:
    """The way of an application from one version to the next, which has further stores.

    folder: the checkpoint; renames: as for a migration; tolerate_loss: whether stores may be computed from the rest, where
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
        """Return the stores to compute; nothing is changed. Raises MigrationError where the new version can't be reached."""
        found = find_new_stores(self._old, self._new, self._transport, self._renames)
        migration = self._migrator.prepare()
        problems = [f"{step.subject}: {step.reason}" for step in migration.steps if step.state is State.REFUSED]
        problems += [each.message for each in migration.left if each.verdict is Verdict.INCOMPATIBLE]
        if problems:
            raise MigrationError("; ".join(problems))
        return found

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

        Those that are complete up to some offsets remain so until `finish`: the new version may be running. Raises MigrationError where a changelog has records of another origin, or of a new version that has begun.
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
        """Return when the group has no members; catch up meanwhile where much is new."""
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
        repeated after a failure or a crash at any point. Raises ActiveGroupError where the group has members, MigrationError,
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
            locked_state(self._new, directory),
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
        """Raise MigrationError where the old version has run since it was drained and its state was moved."""
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
            describe_job(spark, f"streamkit {self._new.application}: {topic.name}")
            with self._checkpoint(spark, stores).limited_batches(manifest):
                rows = self._rows(stores, name, manifest, spark)
                count = 0 if rows is None else write_log(rows, Address.of(self._new))
            report(f"{topic.name}: {count} records written")
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
        found = new_id(log, topic.name, bool(log.admin.topic_ids([log.journal.topic])))
        log.journal.put(topic.name, Entry(False, HISTORY, form, target_id=found))
        return found

    def _rows(self, stores: NewStores, name: str, manifest: Manifest, spark: SparkSession) -> DataFrame | None:
        """Return the records of a changelog; None where the store has no rows."""
        plan, topic = stores.plan, stores.changelogs[name]
        checkpoint = self._checkpoint(spark, stores)
        rows = checkpoint.state(manifest, [name])
        if rows is None:
            return None
        sorted_rows = repartition(rows, topic.partitions, 1).sortWithinPartitions("partition", "offset")
        work = Export(pickle.dumps(plan), name, topic.name, checkpoint.kept(manifest))
        found = sorted_rows.mapInArrow(partial(export, work), arrow_rows.DDL)
        versioned = plan.stores[name].type == "versioned"
        return found.sortWithinPartitions("partition", "order", "offset") if versioned else found


def _has_grown(log: LogAccess, topic: str) -> bool:
    """Return whether a complete changelog has further records, which are of the new version."""
    entry = log.journal.get(topic)
    places = log.partitions(topic)
    if entry is None or not entry.done or entry.source != HISTORY or not places:
        return False
    return entry.target_id == log.topic_id(topic) and log.ends(places) != entry.target_ends


def _check_own(log: LogAccess, topic: str) -> None:
    """Raise MigrationError where a changelog has records that this command did not write."""
    places = log.partitions(topic)
    entry = log.journal.get(topic)
    if not places or (entry is not None and entry.source == HISTORY and entry.target_id == log.topic_id(topic)):
        return
    records = log.records(places)
    if records:
        raise MigrationError(
            f"{topic} has {records} records already: give the store another name, or delete the topic if no version needs it"
        )
