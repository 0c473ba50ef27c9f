"""Sends what tasks put out, and commits: in a transaction, or the log first and the offsets then (TaskExecutor)."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Sequence

from streamkit.errors import (
    ProductionError,
    RetriableTransportError,
    TaskCorruptedError,
    TransportError,
    UnreachableError,
)
from streamkit.record import TopicPartition
from streamkit.runtime.dead_letters import refused_letters
from streamkit.runtime.handlers import CONTINUE
from streamkit.runtime.local.gate import Gate
from streamkit.runtime.local.local_task import LocalTask
from streamkit.runtime.local.setup import Shared
from streamkit.transport.base import Admin, CommittedOffset, Consumer, Producer

log = logging.getLogger(__name__)


class Committer:
    """The producer of a stream thread, and its commits."""

    def __init__(self, shared: Shared, consumer: Consumer, make_producer: Callable[[], Producer], gate: Gate):
        """`gate`: that of the thread; others may read its stores while it waits for the log."""
        self._shared = shared
        self._gate = gate
        self._settings = shared.settings
        self._consumer = consumer
        self._make_producer = make_producer
        self._producer = make_producer()
        self._begun = False
        self.put_off = False
        """Whether the last commit had to wait for the group."""
        self._lost: Counter[TopicPartition] = Counter()
        """Records since the last commit that were given up because the log refused them."""
        self._admin: Admin | None = None
        self._last_commit = self._last_purge = shared.elapsed()
        self._repartitions = {
            shared.plan.internal_name(name)
            for name, topic in shared.plan.internal_topics.items()
            if topic.kind == "repartition"
        }

    def begin(self) -> None:
        """Begin a transaction under exactly-once; the first of a producer fences the one that used its id before.

        Raises TransportError; then it may be tried again.
        """
        if self._settings.exactly_once and not self._begun:
            self._producer.begin()
            self._begun = True

    def send(self, held: LocalTask) -> None:
        """Hand a task's output to the producer. Raises ProductionError unless the handler says continue."""
        output = held.task.output
        if output:
            try:
                with self._gate.opened():
                    self._producer.send(output)
            except ProductionError as error:
                self._refused(error, output)
            held.count_output(output)
            del output[:]

    def commit_if_due(self, tasks: Collection[LocalTask]) -> list[LocalTask]:
        """Commit when the interval has passed or a task asked for it; return what was committed."""
        if self._shared.elapsed() - self._last_commit > self._settings.commit_interval_ms:
            done = self.commit(tasks)
            if self.put_off:
                return []
            # The interval begins at the end of a commit: where one takes longer, tasks would process a record in between.
            now = self._shared.elapsed()
            self._purge(tasks, now)
            self._last_commit = now
            return done
        if any(each.task.commit_requested for each in tasks):
            # Exactly-once has one transaction for the whole thread; Java commits every task that needs it then.
            return self.commit(tasks)
        return []

    def commit(self, tasks: Collection[LocalTask]) -> list[LocalTask]:
        """Commit what these tasks, all that run, did since the last time; return those that had anything.

        Put off while the group finds its next generation; then none are returned, and it may be tried again. Raises
        TransportError, ProductionError, and TaskCorruptedError where a transaction may be committed or not.
        """
        self.put_off = False
        dirty = [each for each in tasks if each.task.commit_needed]
        if not dirty:
            for each in tasks:
                each.task.commit_requested = False
            return []
        coordinator = self._shared.coordinator
        if coordinator is None:
            self._commit(dirty)
            return dirty
        with coordinator.committing() as free:
            self.put_off = not free
            if not free:
                return []
            self._commit(dirty)
        return dirty

    def _commit(self, dirty: Collection[LocalTask]) -> None:
        offsets: dict[TopicPartition, CommittedOffset] = {}
        for each in dirty:
            each.task.leave_record()
            offsets.update(each.task.prepare_commit(self._consumer.position))
            self.send(each)
        with self._gate.opened():
            self._commit_to_log(offsets)
        lost, self._lost = self._lost, Counter()
        marks = self._settings.exactly_once and self._shared.transport.marks_commits
        for each in dirty:
            each.note_positions(lost, marks=marks)
            each.task.post_commit()
            each.commits += 1
            self._count_dropped(each)
        self.begin()

    def _commit_to_log(self, offsets: dict[TopicPartition, CommittedOffset]) -> None:
        if self._settings.exactly_once:
            self._commit_transaction(offsets)
            return
        self._flush()
        coordinator = self._shared.coordinator
        if coordinator is None or not coordinator.commit(offsets):
            self._consumer.commit(offsets)

    def _commit_transaction(self, offsets: dict[TopicPartition, CommittedOffset]) -> None:
        """Make offsets of records, output and changelogs visible together, or none of them."""
        try:
            self._producer.commit(offsets, self._group_metadata())
        except ProductionError as error:
            self._refused(error)
            raise
        except (RetriableTransportError, UnreachableError) as error:
            raise TaskCorruptedError(f"a transaction may or may not be committed: {error}", on_disk=False) from error
        self._begun = False

    def restart(self) -> None:
        """Give up the transaction in hand. A producer that can't, or is fenced, is replaced: `begin` ends its transaction."""
        if not self._settings.exactly_once:
            return
        self._begun = False
        try:
            self._producer.abort()
        except TransportError as error:
            log.info("%s; the producer is replaced", error)
            self._close_producer()
            self._producer = self._make_producer()

    def close(self) -> None:
        """Leave the log; output of a failed transaction stays invisible."""
        try:
            if self._begun:
                try:
                    self._producer.abort()
                except TransportError:
                    log.debug("aborting failed", exc_info=True)
            self._producer.close()
        finally:
            if self._admin is not None:
                self._admin.close()

    def _close_producer(self) -> None:
        try:
            self._producer.close()
        except TransportError:
            log.debug("closing the producer failed", exc_info=True)
        finally:
            # librdkafka's threads end with the client object, which its own callbacks refer to.
            self._shared.cycles.note_closed()

    def _count_dropped(self, held: LocalTask) -> None:
        task = held.task
        dropped, task.dropped_total = task.dropped_total, 0
        if dropped:
            held.dropped += dropped
            self._shared.metrics.add("dropped-records-total", dropped, task.task_id)
            log.warning("task %s dropped %d records since its last commit", task.task_id, dropped)

    def _group_metadata(self) -> bytes:
        coordinator = self._shared.coordinator
        return (coordinator and coordinator.group_metadata()) or self._consumer.group_metadata()

    def _flush(self) -> None:
        while True:
            try:
                return self._producer.flush()
            except ProductionError as error:
                # Where it goes on without the record, the others have to be on the log all the same.
                self._refused(error)

    def _refused(self, error: ProductionError, sent: Sequence[tuple] = ()) -> None:
        """Answer rows that the log refused: as dead letters where a topic for them is set, then as the handler says.

        Where writing again may help, fail means from the last commit on, with nothing skipped (RETRY in Java's handler).
        `sent`: what may be lost where the error does not name its rows.
        """
        handlers = self._settings.handlers
        goes_on = handlers.production == CONTINUE and not self._settings.exactly_once
        if error.retriable and not goes_on:
            raise TaskCorruptedError(str(error), on_disk=False) from error
        if self._settings.exactly_once:
            # Their transaction is aborted, and dead letters would be with it.
            raise error
        topic = handlers.dead_letter_topic
        if topic is not None and all(row[0] != topic for row in error.rows):
            self._producer.send(refused_letters(topic, error, error.rows))
            self._producer.flush()
        if not goes_on:
            raise error
        self._lost.update(TopicPartition(row[0], row[5]) for row in error.rows or sent)
        log.warning("%s; the record is given up", error)

    def _purge(self, tasks: Collection[LocalTask], now: int) -> None:
        """Delete what was committed of repartition topics (repartition.purge.interval.ms)."""
        if now - self._last_purge <= self._settings.purge_interval_ms:
            return
        self._last_purge = now
        before = {
            partition: offset + 1
            for each in tasks
            for partition, offset in each.task.consumed().items()
            if partition.topic in self._repartitions
        }
        if before:
            try:
                self._admin = self._admin or self._shared.transport.admin()
                self._admin.delete_records(before)
            except TransportError as error:
                # They are only in the way: the next time comes soon.
                log.info("%s; trying again later", error)
