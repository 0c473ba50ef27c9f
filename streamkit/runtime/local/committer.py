"""Sends the output of tasks, and commits: in a transaction, or first the records and then the offsets (TaskExecutor)."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Collection, Iterable, Sequence
from concurrent.futures import Future, ThreadPoolExecutor, wait
from contextlib import closing, nullcontext
from operator import itemgetter
from time import perf_counter, sleep

from streamkit.errors import (
    NotPermittedError,
    ProducerLostError,
    ProductionError,
    RetriableTransportError,
    StateError,
    TaskCorruptedError,
    TransportError,
    UnknownTopicError,
    UnreachableError,
)
from streamkit.metrics import DroppedRecords, DropWarnings
from streamkit.record import OutputTuple, TopicPartition
from streamkit.runtime.execution.dead_letters import dead_letters_of_rows
from streamkit.runtime.execution.handlers import CONTINUE
from streamkit.runtime.local.gate import Gate
from streamkit.runtime.local.local_task import LocalTask
from streamkit.runtime.local.setup import Shared
from streamkit.runtime.local.states import MARKERS, StageTimes
from streamkit.spec.yaml_reader import kafka_name_mistake
from streamkit.state.definitions import Store
from streamkit.transport.log_interface import Admin, CommittedOffset, Consumer, EndedTransaction, Producer

log = logging.getLogger(__name__)

_UNLISTED_MS = 30_000
"""How long brokers may not list the topic of offsets: some services that speak Kafka's protocol never do."""
_MARKERS_MS = 500
"""How long a thread waits for the markers of its last transaction before it looks how that has ended."""
_MARKER_SECONDS = 0.002
_WORKERS = 8
"""How many stores are written at once: the disk syncs files that are written together in the time of one or two."""
_topic_of = itemgetter(0)
_HASTE_SECONDS = 0.01
"""How long an idle thread waits for the log's response; meanwhile the producer sends without lingering."""


class Committer:
    """The consumer and the producer of a stream thread, and its commits.

    The thread opens and closes it, and only the thread uses it in between.
    """

    consumer: Consumer
    """The main consumer of the thread, from `open` on."""
    _producer: Producer

    def __init__(self, name: str, shared: Shared, gate: Gate, transactional_id: str | None, stages: StageTimes):
        """`name`: of the thread. `gate`: the gate of the thread; others may read its stores while it waits for the log."""
        self._stages = stages
        self._name = name
        self._shared = shared
        self._gate = gate
        self._settings = shared.settings
        self._transactional_id = transactional_id
        self.is_open = False
        self._begun = False
        self._lingering = False
        """Whether sent rows may still wait for a fuller batch."""
        # Brokers may lose the ends of transactions.
        may_lose = shared.transport.marks_commits
        self._own = OwnTransactions(shared, transactional_id) if transactional_id is not None and may_lose else None
        self._unsettled = self._own is not None
        """Whether brokers may have lost the end of the last transaction: it was not committed, or a broker was lost since it began."""
        self._unmarked: frozenset[str] | None = None
        """The topics that the last transaction has written, until its markers were seen; None: there is nothing to look for."""
        self._look: Future[bool] | None = None
        """The search for these markers in another thread, until this thread has its result; only that thread uses `_own` meanwhile."""
        self._sent = False
        """Whether rows were sent in the current transaction."""
        self._written: set[str] = set()
        """The topics of these rows."""
        self.postponed = False
        """Whether the last commit was postponed because of a rebalance."""
        self.rejected = DroppedRecords()
        """Records that the log rejected and that were dropped."""
        self._warnings = DropWarnings(log)
        self._admin: Admin | None = None
        self._workers = ThreadPoolExecutor(_WORKERS, thread_name_prefix=f"{name}-commit")
        self._last_commit = self._last_purge = shared.elapsed()
        stores = shared.plan.stores.items()
        self._changelogs = {shared.plan.changelog_name(name) for name, store in stores if store.source_topic is None}
        self._repartitions = {
            shared.plan.internal_name(name)
            for name, topic in shared.plan.internal_topics.items()
            if topic.kind == "repartition"
        }

    def open(self) -> None:
        """Make the clients. Raises TransportError."""
        self.consumer = self._shared.transport.consumer(
            self._shared.plan.application,
            read_committed=self._settings.read_committed,
            client_id=f"{self._name}-consumer",
        )
        try:
            self._producer = self._make_producer()
        except BaseException:
            self.consumer.close()
            raise
        self.is_open = True

    def _make_producer(self) -> Producer:
        client_id = f"{self._name}-producer"
        return self._shared.transport.producer(transactional_id=self._transactional_id, client_id=client_id)

    def begin(self, *, writes: bool = False) -> None:
        """Begin a transaction under exactly-once, if none has begun; the first one of a producer fences the last one of its id.

        writes: whether records or offsets follow at once; then the markers of the last transaction must be there. Raises
        TransportError; the caller may then retry, but must not send anything before.
        """
        if self._settings.exactly_once and not self._begun:
            try:
                self._producer.begin()
            except ProducerLostError:
                self._replace_producer()
                raise
            self._begun = True
        if self._own is None:
            return
        # A commit is acknowledged before its markers are written. Once this transaction has records in the same
        # partitions, its end would also end the previous one. An idle thread asks for them too: others wait for its records.
        look = self._look
        if look is not None and (writes or look.done()) and not self._unsettled:
            # In case the look has failed.
            self._look, self._unsettled = None, True
            began = perf_counter()
            with self._gate.opened():
                self._unsettled = not look.result()
            self._stages.add(MARKERS, perf_counter() - began)
            if not self._unsettled:
                self._unmarked = None
        self._unsettled = self._unsettled or (not self._sent and self._producer.lost_broker())
        if self._unsettled:
            with self._gate.opened():
                if self._look is not None:
                    wait([self._look])
                self._own.settle(self._unmarked or ())
            self._unsettled, self._unmarked, self._look = False, None, None

    def send(self, local_task: LocalTask) -> None:
        """Send a task's output. Raises ProductionError unless the handler is CONTINUE.

        At least once, rows of changelogs follow once the log has the output. A record that is processed again would otherwise be lost
        where a step compares it with a row that it has written itself (KAFKA-12508).
        """
        if local_task.held and not self._producer.queued():
            self._send_held([local_task])
        local_task.hold()
        self._send_output(local_task, local_task.task.output)
        if local_task.holds_too_much:
            self._send_held([local_task])

    def _send_held(self, tasks: Iterable[LocalTask]) -> None:
        holding = [local_task for local_task in tasks if local_task.held]
        if holding:
            with self._gate.opened():
                self._flush()
            for local_task in holding:
                # They stay held if the log does not take them now: the task continues, and has no other copy.
                self._send_output(local_task, local_task.held)
                local_task.note_none_held()

    def _send_output(self, local_task: LocalTask, output: list[OutputTuple]) -> None:
        if output:
            topics = [*map(_topic_of, output)]
            first = topics[0]
            same = topics.count(first)
            counts = {first: same} if same == len(topics) else Counter(topics)
            self._send(output, counts)
            self._stages.sent(output)
            local_task.count_output(counts, topics, output)
            del output[:]

    def write(self, tasks: Collection[LocalTask]) -> None:
        """Write the output of tasks, at least once, if no commit of their offsets follows. Raises the errors of `send`."""
        for local_task in tasks:
            self.send(local_task)
        self._send_held(tasks)
        with self._gate.opened():
            self._flush()

    def send_rest(self) -> None:
        """Flush output that the producer's queue rejected earlier, if no more output follows. Raises the errors of `send`."""
        self._send(())

    def send_now(self, tasks: Collection[LocalTask]) -> None:
        """Send rows that wait for a fuller batch, when the thread is idle. Raises the errors of `send`. `tasks`: those that have worked."""
        if not self._lingering:
            return
        try:
            with self._gate.opened():
                self._lingering = not self._producer.hasten(_HASTE_SECONDS)
        except ProductionError as error:
            self._handle_rejected(error)
        if not self._lingering:
            self._send_held(tasks)

    def note_acknowledged(self) -> None:
        """Measure how long rows took that are acknowledged by now."""
        self._stages.acknowledged(self._producer.queued())

    def ms_to_commit(self, tasks: Collection[LocalTask]) -> int | None:
        """Return the milliseconds until the next commit is due; None without work, or until a rebalance has ended."""
        if self.postponed or not any(local_task.task.commit_needed for local_task in tasks):
            return None
        return max(0, self._last_commit + self._settings.commit_interval_ms + 1 - self._shared.elapsed())

    def _send(self, output: Sequence[OutputTuple], topics: Iterable[str] = ()) -> None:
        if output:
            if not self._sent:
                self.begin(writes=True)
            self._lingering = self._sent = True
            if self._own is not None:
                self._written.update(topics)
        try:
            with self._gate.opened():
                self._producer.send(output)
        except ProductionError as error:
            self._handle_rejected(error, output)

    def commit_if_due(self, tasks: Collection[LocalTask], running: Collection[LocalTask]) -> bool:
        """Commit if it is due: by time, by the bytes of uncommitted writes, or by a task's request; return whether anything was committed.

        `tasks`: those that may have something to commit; `running`: all of the thread.
        """
        interval, now = self._settings.commit_interval_ms, self._shared.elapsed()
        self._warnings.write(now)
        # 0 commits after each round; Java compares milliseconds, so rounds within the same millisecond do not commit.
        if now - self._last_commit > interval or not interval or self._holds_too_much(tasks):
            done = self.commit(tasks)
            if self.postponed:
                return False
            # The interval begins at the end of a commit; otherwise, if commits take longer, tasks would process one
            # record between them.
            now = self._shared.elapsed()
            self._purge(running, now)
            self._last_commit = now
            return done
        if any(local_task.task.commit_requested for local_task in tasks):
            # Exactly-once has one transaction for the whole thread; Java then commits every task that needs it.
            return self.commit(tasks)
        return False

    def _holds_too_much(self, tasks: Collection[LocalTask]) -> bool:
        """Return whether the stores hold more uncommitted bytes than they may (statestore.uncommitted.max.bytes)."""
        limit = self._shared.uncommitted_bytes
        return limit is not None and sum(local_task.task.uncommitted_bytes() for local_task in tasks) > limit

    def commit(self, tasks: Collection[LocalTask]) -> bool:
        """Commit the running tasks and write checkpoints that are due; return whether there was anything to commit.

        Under exactly-once all tasks share a transaction, so their output becomes visible together. During a rebalance the
        commit is postponed; the caller may retry. Raises TransportError, ProductionError, StateError, and TaskCorruptedError
        if it is unknown whether the transaction was committed.
        """
        self.postponed = False
        dirty = [local_task for local_task in tasks if local_task.task.commit_needed]
        if not dirty:
            for local_task in tasks:
                local_task.task.commit_requested = False
            return False
        # Before the group's rebalances wait for this commit.
        self.begin(writes=True)
        coordinator = self._shared.coordinator
        with nullcontext(True) if coordinator is None else coordinator.committing() as free:
            self.postponed = not free
            if not free:
                return False
            self._commit(dirty)
        for local_task in dirty:
            local_task.checkpoint(enforce=False)
        return True

    def _commit(self, dirty: Collection[LocalTask]) -> None:
        offsets: dict[TopicPartition, CommittedOffset] = {}
        for local_task in dirty:
            local_task.task.leave_record()
            own = local_task.task.prepare_commit(self.consumer.position)
            local_task.committed.update(own)
            offsets.update(own)
            self.send(local_task)
        if self._settings.exactly_once and not offsets:
            # A transaction is checked against the group's generation by its offsets: without any, as after a timer of a task
            # without input, a member that was removed could commit what the next owner commits again.
            for local_task in dirty:
                local_task.task.touch(local_task.task.inputs)
                own = local_task.task.prepare_commit(self.consumer.position)
                local_task.committed.update(own)
                offsets.update(own)
        self._send_held(dirty)
        with self._gate.opened():
            self._commit_to_log(offsets)
        if self._own is not None:
            self._unmarked = frozenset(self._written)
            self._written.clear()
            # While the stores are written: mostly the next transaction need not wait for it.
            self._look = self._workers.submit(self._own.await_markers, self._unmarked)
        marks = self._settings.exactly_once and self._shared.transport.marks_commits
        for local_task in dirty:
            local_task.note_positions(marks=marks)
        self._commit_stores([store for local_task in dirty for store in local_task.task.stores.values()])
        for local_task in dirty:
            local_task.task.end_commit()
            local_task.commits += 1
            self._count_dropped(local_task)

    def _commit_stores(self, stores: Collection[Store]) -> None:
        """Commit stores, those on disk at once. Raises StateError, after all others are written."""
        on_disk = [store for store in stores if store.durable]
        in_memory = [store for store in stores if not store.durable]
        writes = [self._workers.submit(store.commit) for store in on_disk[1:]]
        try:
            for store in (*in_memory, *on_disk[:1]):
                store.commit()
        finally:
            wait(writes)
        for write in writes:
            write.result()

    def _commit_to_log(self, offsets: dict[TopicPartition, CommittedOffset]) -> None:
        if self._settings.exactly_once:
            self._commit_transaction(offsets)
            return
        self._flush()
        coordinator = self._shared.coordinator
        if coordinator is None or not coordinator.commit(offsets):
            self.consumer.commit(offsets)

    def _commit_transaction(self, offsets: dict[TopicPartition, CommittedOffset]) -> None:
        """Commit offsets, output and changelogs in one transaction."""
        try:
            self._producer.commit(offsets, self._group_metadata())
        except ProductionError as error:
            self._handle_rejected(error)
            raise
        except (RetriableTransportError, UnreachableError) as error:
            raise TaskCorruptedError(f"a transaction may or may not be committed: {error}", on_disk=False) from error
        self._begun = self._sent = False

    def restart(self) -> None:
        """Abort the transaction, or drop what at-least-once has not written yet.

        A producer that can't abort, or is fenced, is replaced; `begin` of the new one ends the transaction. So is one without
        transactions: if librdkafka could not write records in time, it may never write any after them.
        """
        if not self._settings.exactly_once:
            self._replace_producer()
            return
        self._begun = self._sent = False
        self._forget_written()
        try:
            self._producer.abort()
        except TransportError as error:
            log.info("%s; the producer is replaced", error)
            self._replace_producer()

    def close(self) -> None:
        """Close all clients, even if one fails to close; the output of an open transaction is aborted."""
        if not self.is_open:
            return
        with (
            closing(self.consumer),
            nullcontext() if self._admin is None else closing(self._admin),
            nullcontext() if self._own is None else closing(self._own),
        ):
            try:
                if self._begun:
                    try:
                        self._producer.abort()
                    except TransportError:
                        log.debug("aborting failed", exc_info=True)
                self._producer.close()
            finally:
                self._workers.shutdown()
                self._warnings.close(self._shared.elapsed())

    def _forget_written(self) -> None:
        """Have the next transaction look for what is open first, as this one is not committed."""
        self._stages.forget_sent()
        self._unsettled, self._unmarked = True, None
        self._written.clear()

    def _replace_producer(self) -> None:
        self._forget_written()
        try:
            self._producer.close()
        except TransportError:
            log.debug("closing the producer failed", exc_info=True)
        finally:
            # librdkafka's threads end with the client object, which its own callbacks refer to.
            self._shared.cycles.note_closed()
        self._producer = self._make_producer()

    def _count_dropped(self, local_task: LocalTask) -> None:
        task = local_task.task
        dropped, task.dropped_total = task.dropped_total, 0
        if dropped:
            local_task.dropped += dropped
            self._shared.metrics.add("dropped-records-total", dropped, task.task_id)
            self._warnings.note(task.task_id, task.drops.view(), local_task.drops_noted)
            self._warnings.write(self._shared.elapsed())

    def _group_metadata(self) -> bytes:
        coordinator = self._shared.coordinator
        return (coordinator and coordinator.group_metadata()) or self.consumer.group_metadata()

    def _flush(self) -> None:
        self._lingering = False
        while True:
            try:
                return self._producer.flush()
            except ProductionError as error:
                # If processing continues without the record, the other records must be acknowledged too.
                self._handle_rejected(error)

    def _handle_rejected(self, error: ProductionError, sent: Sequence[OutputTuple] = ()) -> None:
        """Handle rows that the log rejected: write dead letters if their topic is set, then apply the production handler.

        If a retry may succeed, the tasks restart from their last commit (RETRY in Java's handler), and so they do if a producer
        has failed permanently. No handler drops rows of changelogs, as stores would differ from what restores them, nor rows that are
        not to blame. `sent`: the rows that may be lost if the error does not name its rows.
        """
        handlers = self._settings.handlers
        final: ProductionError | None = None
        rejected: tuple[ProductionError, Sequence[OutputTuple]] | None = (error, sent)
        while rejected is not None:
            error, rows = rejected[0], rejected[0].rows or rejected[1]
            if error.retriable and final is None:
                raise TaskCorruptedError(str(error), on_disk=False) from error
            if self._settings.exactly_once:
                # The abort of the transaction would include the dead letters.
                raise error
            topics = {*map(_topic_of, rows)}
            logged = self._changelogs & topics
            lost = error.is_missing and self._repartitions & topics
            # Brokers, and clients that know a topic, refuse an illegal name by different errors (InvalidTopicException).
            mistake = next((mistake for row in rows if (mistake := kafka_name_mistake(row[0])) is not None), None)
            kept = "of a changelog" if logged else "" if error.droppable and not lost else "for this reason"
            if mistake is not None:
                kept = f"of a topic whose name {mistake}"
            goes_on = handlers.production == CONTINUE and not kept and not error.lost_producer
            # After a restart, records that are valid are written again.
            refused = error.rows if error.droppable and not error.retriable else ()
            if kept and handlers.production == CONTINUE:
                error = ProductionError(f"{error}; no handler drops records {kept}", error.rows)
            if not goes_on:
                final = final or error
            topic = handlers.dead_letter_topic
            failed = [row for row in refused if row[0] != topic]
            letters = [] if topic is None else dead_letters_of_rows(topic, error, failed, self._shared.clock())
            if goes_on:
                for row in rows:
                    reason = f"the log rejects records of topic {row[0]}"
                    has_letter = bool(error.rows) and topic not in (None, row[0])
                    self.rejected.add(reason, str(error), dead_letters=int(has_letter))
                log.warning("%s; the record is dropped", error)
            rejected = self._send_letters(letters, flush=final is not None)
        if final is not None:
            raise final

    def _send_letters(
        self, letters: list[OutputTuple], *, flush: bool
    ) -> tuple[ProductionError, Sequence[OutputTuple]] | None:
        """Send dead letters; return the rejection of other rows that the producer reports at that time.

        `flush`: whether no commit follows that would.
        """
        try:
            if letters:
                self._producer.send(letters)
        except ProductionError as error:
            return error, letters
        try:
            if flush:
                self._producer.flush()
        except ProductionError as error:
            return error, ()
        return None

    def _purge(self, tasks: Collection[LocalTask], now: int) -> None:
        """Delete committed records of repartition topics (repartition.purge.interval.ms)."""
        if now - self._last_purge <= self._settings.purge_interval_ms:
            return
        self._last_purge = now
        before = {
            partition: offset + 1
            for local_task in tasks
            for partition, offset in local_task.task.consumed().items()
            if partition.topic in self._repartitions
        }
        if before:
            try:
                self._admin = self._admin or self._shared.transport.admin()
                self._admin.delete_records(before)
            except TransportError as error:
                # The records only take up space, and are deleted next time.
                log.info("%s; trying again later", error)


# Ends lost transactions of a thread before its next transaction in the same partitions ends them with another outcome.


class OwnTransactions:
    """The transactions of one transactional id, between the end of one and the first record of the next.

    At that time none of them is live: one thread has the id, and its coordinator has fenced every other producer of the
    id.
    """

    def __init__(self, shared: Shared, transactional_id: str):
        self._shared = shared
        self._id = transactional_id
        plan = shared.plan
        self._group = plan.application
        self._unlisted_since: int | None = None
        """When brokers did not list the topic of offsets first; some services never do."""
        self._admin: Admin | None = None
        self._may_look = self._sees_offsets = True
        """Whether the application has the right to look for markers, and for those of its offsets, as far as it is known."""
        self._refresh = True
        """Whether the producer may be another one than at the last look for markers."""
        routed = any(getattr(node, "route", None) for node in plan.nodes)
        self._only_read = {topic.name for topic in plan.external_topics.values() if not (topic.written or routed)}
        existing = shared.topics.partitions.keys() | shared.topics.ids.keys()
        self._own_topics = (plan.topic_names() & existing) - {topic.name for topic in plan.external_topics.values()}
        """Repartition topics and changelogs, which exist as long as the application runs."""

    def await_markers(self, topics: Collection[str]) -> bool:
        """Wait for the markers of the last transaction; return whether they are in all partitions of the topics it has written.

        Before that no record may follow there: a broker that shuts down can end a transaction, skip a marker, and still take
        records of the next one (KAFKA-20734).
        """
        if not self._may_look:
            return True
        deadline = self._shared.elapsed() + _MARKERS_MS
        try:
            while self._lacks_markers(topics):
                if self._shared.elapsed() > deadline:
                    return False
                sleep(_MARKER_SECONDS)
        except NotPermittedError as error:
            if self._sees_offsets:
                self._sees_offsets = False
                return self.await_markers(topics)
            log.info("can't look for the markers of transactions: %s", error)
            self._may_look = False
            self._shared.directory.note_settled(self._id, False)
        except TransportError as error:
            log.info("%s", error)
            # The next look needs another connection: this one keeps to a coordinator that may have moved.
            try:
                self.close()
            except Exception as failure:
                # kafka-python's own loop may have failed.
                log.debug("closing a connection failed: %s", failure)
            return False
        return True

    def _lacks_markers(self, topics: Collection[str]) -> bool:
        self._admin = self._admin or self._shared.transport.admin()
        since = self._unlisted_since
        lists_offsets = since is None or self._shared.elapsed() - since <= _UNLISTED_MS
        group = self._group if self._sees_offsets and lists_offsets else ""
        lacks = self._admin.lacks_markers(self._id, topics, group, refresh=self._refresh)
        self._refresh = False
        return lacks

    def close(self) -> None:
        """Close the connection."""
        admin, self._admin = self._admin, None
        if admin is not None:
            admin.close()

    def settle(self, topics: Collection[str] = ()) -> None:
        """End the lost transactions as their coordinator did.

        topics: the ones that the last transaction has written; records may choose topics that the plan does not name. Raises
        UnreachableError, or RetriableTransportError if brokers don't know yet or a transaction is open and can't be ended. The
        thread must not write after either.
        """
        plan, self._refresh = self._shared.plan, True
        self._may_look = self._sees_offsets = True
        with closing(self._shared.transport.admin()) as admin:
            try:
                ended = self._end_lost(admin, self._places(admin, topics))
            except NotPermittedError as error:
                # An application may have no right to read the topics that it writes.
                log.info("can't look for lost transactions: %s", error)
                return
            except (RetriableTransportError, UnreachableError):
                raise
            except TransportError as error:
                raise RetriableTransportError(f"can't look for lost transactions: {error}") from error
        for transaction in ended:
            self._tell(transaction)
        still_open = [transaction for transaction in ended if transaction.committed is None]
        if still_open:
            # If the thread continued, the end of its next transaction would end this one too.
            raise RetriableTransportError(
                f"{_place(still_open[0])}: brokers have lost the end of the last transaction of {self._id}, and it can't be ended: "
                f"{still_open[0].reason}; `streamkit transactions {plan.file} --end` ends it; this thread waits until then"
            )
        # From now on each of its transactions writes its first record only after the markers of the previous one.
        try:
            self._shared.directory.note_settled(self._id, True)
        except StateError as error:
            log.info("%s", error)

    def _end_lost(self, admin: Admin, places: list[TopicPartition]) -> list[EndedTransaction]:
        """End the lost transactions in partitions, and in the group's offsets unless brokers have not listed these for a while.

        Raises UnknownTopicError before.
        """
        one_open = self._id in self._shared.directory.settled_ids()
        try:
            ended = admin.end_lost(self._id, places, self._group, one_open=one_open)
        except UnknownTopicError as error:
            now = self._shared.elapsed()
            self._unlisted_since = now if self._unlisted_since is None else self._unlisted_since
            if now - self._unlisted_since <= _UNLISTED_MS:
                raise
            log.warning("%s; lost transactions are looked for without it", error)
            return admin.end_lost(self._id, places, "", one_open=one_open)
        except NotPermittedError as error:
            # Perhaps only the offsets may not be read.
            log.info("%s; lost transactions are looked for without the group's offsets", error)
            return admin.end_lost(self._id, places, "", one_open=one_open)
        self._unlisted_since = None
        return ended

    def _places(self, admin: Admin, others: Collection[str]) -> list[TopicPartition]:
        """Return the partitions in which a transaction may be open.

        Raises RetriableTransportError if brokers omit some, as after a restart.
        """
        letters = self._shared.settings.handlers.dead_letter_topic
        written = self._shared.plan.topic_names() - self._only_read
        topics = admin.topics({*written, *others, *([] if letters is None else [letters])})
        silent = self._own_topics - topics.keys()
        if silent:
            raise RetriableTransportError(f"{min(silent)}: brokers do not list this topic at present")
        return [TopicPartition(name, number) for name, info in topics.items() for number in range(info.partitions)]

    def _tell(self, transaction: EndedTransaction) -> None:
        if transaction.committed is not None:
            done = "committed" if transaction.committed else "aborted"
            log.warning(
                "%s: brokers had lost the end of the last transaction of %s; it is now %s",
                _place(transaction),
                self._id,
                done,
            )


def _place(transaction: EndedTransaction) -> str:
    partition = transaction.transaction.partition
    return f"{partition.topic}-{partition.partition}"
