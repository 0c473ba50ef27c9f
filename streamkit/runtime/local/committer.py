"""Sends what tasks put out, and commits: in a transaction, or the log first and the offsets then (TaskExecutor)."""

from __future__ import annotations

import logging
from collections.abc import Collection

from streamkit.errors import ProductionError, TransportError
from streamkit.record import TopicPartition
from streamkit.runtime.dead_letters import refused_letters
from streamkit.runtime.handlers import CONTINUE
from streamkit.runtime.local.active import ActiveTask
from streamkit.runtime.local.setup import Shared
from streamkit.transport.base import Admin, CommittedOffset, Consumer, Producer

log = logging.getLogger(__name__)

WARN_AFTER_MS = 5_000
WARN_EVERY_MS = 30_000


class Committer:
    """The producer of a stream thread, and its commits."""

    def __init__(self, shared: Shared, consumer: Consumer, restorer: Consumer, producer: Producer):
        self._shared = shared
        self._settings = shared.settings
        self._consumer = consumer
        self._restorer = restorer
        self._producer = producer
        self._admin: Admin | None = None
        self._last_commit = shared.clock()
        self._last_purge = shared.clock()
        self._failing_since: int | None = None
        self._warn_at = 0
        self._repartitions = {
            shared.plan.internal_name(name)
            for name, topic in shared.plan.internal_topics.items()
            if topic.kind == "repartition"
        }

    def begin(self) -> None:
        """Begin a transaction under exactly-once; the first one fences whoever used the id before."""
        if self._settings.exactly_once:
            self._producer.begin()

    def send(self, active: ActiveTask) -> None:
        """Hand a task's output to the producer. Raises ProductionError unless the handler says continue."""
        output = active.task.output
        if output:
            try:
                self._producer.send(output)
            except ProductionError as error:
                self._refused(error)
            active.count_output(output)
            del output[:]

    def commit_if_due(self, tasks: Collection[ActiveTask]) -> bool:
        """Commit when the interval has passed or a task asked for it; return whether anything was committed."""
        now = self._shared.clock()
        if now - self._last_commit > self._settings.commit_interval_ms:
            done = self.commit(tasks)
            self._purge(tasks, now)
            self._last_commit = now
            return done
        if any(active.task.commit_requested for active in tasks):
            # Exactly-once has one transaction for the whole thread; Java commits every task that needs it then.
            return self.commit(tasks)
        return False

    def commit(self, tasks: Collection[ActiveTask]) -> bool:
        """Commit what these tasks did since the last time; return whether there was anything. Raises TransportError."""
        dirty = [active for active in tasks if active.task.commit_needed]
        if not dirty:
            for active in tasks:
                active.task.commit_requested = False
            return False
        offsets: dict[TopicPartition, CommittedOffset] = {}
        for active in dirty:
            active.task.leave_record()
            offsets.update(active.task.prepare_commit(self._consumer.position))
            self.send(active)
        if self._settings.exactly_once:
            # Offsets of records, output and changelogs become visible together, or not at all.
            self._producer.commit(offsets, self._group_metadata())
            self._producer.begin()
        else:
            self._flush()
            coordinator = self._shared.coordinator
            if coordinator is None or not coordinator.commit(offsets):
                self._consumer.commit(offsets)
        for active in dirty:
            active.task.post_commit()
            active.commits += 1
            self._count_dropped(active)
        if not self._settings.exactly_once:
            self.checkpoint(dirty, enforce=False)
        return True

    def checkpoint(self, tasks: Collection[ActiveTask], *, enforce: bool) -> None:
        """Write the checkpoints that are due. Exactly-once writes them on close only; a running one has no file."""
        with_files = [active for active in tasks if active.files.directory is not None]
        partitions = [partition for active in with_files for partition in active.checkpoint_partitions()]
        if not partitions:
            return
        ends = self._restorer.end_offsets(partitions)
        for active in with_files:
            active.checkpoint(ends, enforce=enforce)

    def failed(self, error: TransportError) -> None:
        """Note a passing fault; after task.timeout.ms of nothing but faults it is raised.

        Most pass at once and are nobody's business: a warning comes when it goes on, and now and then while it does.
        """
        now = self._shared.clock()
        if self._failing_since is None:
            self._failing_since, self._warn_at = now, now + WARN_AFTER_MS
        if now - self._failing_since > self._settings.task_timeout_ms:
            raise error
        if now >= self._warn_at:
            log.warning("%s; trying again", error)
            self._warn_at = now + WARN_EVERY_MS
        else:
            log.info("%s; trying again", error)

    def went_well(self) -> None:
        """Note that a round went without a fault."""
        self._failing_since = None

    def abort(self) -> None:
        """Give up the transaction in hand, and begin another."""
        if self._settings.exactly_once:
            self._producer.abort()
            self._producer.begin()

    def close(self) -> None:
        """Leave the log; output of a failed transaction stays invisible."""
        try:
            if self._settings.exactly_once:
                try:
                    self._producer.abort()
                except TransportError:
                    log.debug("aborting failed", exc_info=True)
            self._producer.close()
        finally:
            if self._admin is not None:
                self._admin.close()

    def _count_dropped(self, active: ActiveTask) -> None:
        task = active.task
        dropped, task.dropped_total = task.dropped_total, 0
        if dropped:
            active.dropped += dropped
            self._shared.metrics.add("dropped-records-total", dropped, task.task_id)
            log.warning("task %s dropped %d records since its last commit", task.task_id, dropped)

    def _group_metadata(self) -> bytes:
        coordinator = self._shared.coordinator
        return (coordinator and coordinator.group_metadata()) or self._consumer.group_metadata()

    def _flush(self) -> None:
        try:
            self._producer.flush()
        except ProductionError as error:
            self._refused(error)

    def _refused(self, error: ProductionError) -> None:
        """Answer rows that the log refused: as dead letters where a topic for them is set, then as the handler says."""
        handlers = self._settings.handlers
        if self._settings.exactly_once:
            # Their transaction is aborted, and dead letters would be with it.
            raise error
        topic = handlers.dead_letter_topic
        if topic is not None and all(row[0] != topic for row in error.rows):
            self._producer.send(refused_letters(topic, error, error.rows))
            self._producer.flush()
        if handlers.production != CONTINUE:
            raise error
        log.warning("%s; the record is given up", error)

    def _purge(self, tasks: Collection[ActiveTask], now: int) -> None:
        """Delete what was committed of repartition topics (repartition.purge.interval.ms)."""
        if now - self._last_purge <= self._settings.purge_interval_ms:
            return
        self._last_purge = now
        before = {
            partition: offset + 1
            for active in tasks
            for partition, offset in active.task.consumed().items()
            if partition.topic in self._repartitions
        }
        if before:
            self._admin = self._admin or self._shared.transport.admin()
            self._admin.delete_records(before)
