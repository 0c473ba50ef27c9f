"""An application instance: topics, threads, state directory, start, upkeep and stop (KafkaStreams)."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import closing
from functools import partial
from time import monotonic
from typing import TypeVar

from streamkit.changes.of_log import check_marks, records_of, unknown_changelogs, write_marks
from streamkit.config.application_config import STREAMS
from streamkit.errors import (
    ConfigError,
    RetriableTransportError,
    StateError,
    StreamkitError,
    TransportError,
    UnreachableError,
)
from streamkit.plan.model import Plan, internal_topics_on_log
from streamkit.record import TaskId, TopicPartition
from streamkit.runtime.execution.collecting import CycleCollector
from streamkit.runtime.execution.dead_letters import one_line
from streamkit.runtime.local.coordinator import Coordinator
from streamkit.runtime.local.global_thread import GlobalThread
from streamkit.runtime.local.instance_status import StatusReader
from streamkit.runtime.local.internal_topics import TopicsOnLog, TopicWatch, changelogs_of, prepare
from streamkit.runtime.local.queries import InstanceMetadataReader, LocalStores
from streamkit.runtime.local.rebalance_listener import RebalanceListener
from streamkit.runtime.local.restore import RestoreListener
from streamkit.runtime.local.setup import Settings, Shared, StopRequestedError, log_warnings, state_directory
from streamkit.runtime.local.signal_handlers import catch_signals
from streamkit.runtime.local.states import ClientState, ThreadState, check_transition, client_state
from streamkit.runtime.local.status_model import ApplicationStatus
from streamkit.runtime.local.stream_thread import FailureHandler, StreamThread, Threads, failure_response
from streamkit.runtime.local.streams_group import streams_topology
from streamkit.runtime.local.subscription_codec import Subscription
from streamkit.runtime.local.task_assignor import Leader, Rules
from streamkit.runtime.operations.group_lag import has_records
from streamkit.runtime.operations.migration_journal import check_migrated, read_entries
from streamkit.runtime.operations.opening import address, silence_of
from streamkit.runtime.telemetry.open_telemetry import Telemetry
from streamkit.suggestions import number_of
from streamkit.transport.log_interface import (
    MEMBERSHIP,
    STREAMS_GROUPS,
    TRANSACTIONS,
    Admin,
    Consumer,
    Membership,
    OpenTransaction,
    Outcome,
    Transport,
)

log = logging.getLogger(__name__)

_CHECK_SECONDS = 0.05
JOIN_SECONDS = 0.05
_UPKEEP_SECONDS = 0.1
_QUIET_UPKEEP_SECONDS = 0.25
"""The interval while the group has no rebalance. A look costs an idle process as much as a poll, and heartbeats, which report a
rebalance, are sent only twice a second."""
StateListener = Callable[[ClientState, ClientState], None]
"""(new, old)."""


class Application(InstanceMetadataReader):
    """Runs a plan on a transport, which it does not close; it is started once and stopped once."""

    print_line: Callable[[str], None] = staticmethod(print)
    """Prints a line of the `print` step; set before the start."""

    def __init__(self, plan: Plan, transport: Transport, listener: StateListener | None = None):
        super().__init__(plan)
        self.force = False  # whether to start even if changelogs would be misread
        self.transport = transport
        self._listener = listener
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self._failed = threading.Event()
        self._on_failure: FailureHandler = lambda error: "shutdown_client"
        self._restore_listener: RestoreListener | None = None
        self._upkeep: Upkeep | None = None
        self._settings = Settings.of(plan.config)
        if self._settings.exactly_once and TRANSACTIONS not in transport.features:
            raise ConfigError(f"exactly_once_v2 needs transactions, which {type(transport).__name__} does not offer")
        self._status = StatusReader(self, transport)

    def status(self, *, lag: bool = True) -> ApplicationStatus:
        """Return a snapshot of states, tasks, rates, lag and restores; any thread may call it at any time.

        Stream threads publish its data every 0.25 s, and are not stopped by it. `lag`: read the end offsets of the
        inputs from the log, at most once a second; they are None if it does not respond.
        """
        return self._status.read(lag=lag)

    @property
    def stores(self) -> LocalStores:
        """The stores of this instance, for interactive queries."""
        return LocalStores(self)

    # -- Before the start ---------------------------------------------------------------------------------------------

    def set_uncaught_exception_handler(self, handler: FailureHandler) -> None:
        """Set the handler that is called when a stream thread fails; by default the instance shuts down.

        "replace_thread": another thread takes over its tasks from the last commit; "shutdown_client": this instance ends;
        "shutdown_application": all instances end. Raises StateError after the start.
        """
        self._must_be_new()
        self._on_failure = handler

    def set_restore_listener(self, listener: RestoreListener) -> None:
        """Set the listener for the progress of restores and standbys (StateRestoreListener, StandbyUpdateListener)."""
        self._must_be_new()
        self._restore_listener = listener

    def _must_be_new(self) -> None:
        if self.state is not ClientState.CREATED:
            raise StateError(f"that can only be set before the start; the application is {self.state.value}")

    # -- Lifecycle ---------------------------------------------------------------------------------------------------------

    def start(self, stop: threading.Event | None = None, *, forever: bool = False) -> None:
        """Create topics, lock the state directory, restore global stores, and start the threads.

        While no broker responds, it waits for task.timeout.ms or `forever`; a `stop` ends the wait. Raises
        TopicError, InvalidTopologyError, StateLockedError, TransportError; no thread is left running then.
        """
        self._to(ClientState.REBALANCING)
        limit_ms = None if forever else self._settings.task_timeout_ms
        try:
            self._start(StartRetries(stop, limit_ms, address(self.plan), partial(silence_of, self.plan)))
        except StopRequestedError:
            self.stop()
        except BaseException as error:
            self._fail(error)
            self._release(None)
            self._to(ClientState.ERROR)
            raise

    def stop(self, timeout: float | None = None) -> bool:
        """Commit, close and leave the group within `timeout` seconds; return whether all threads ended in time."""
        with self._lock:
            if self.state in (ClientState.NOT_RUNNING, ClientState.ERROR):
                return True
            if self.state is not ClientState.PENDING_ERROR:
                self._to(ClientState.PENDING_SHUTDOWN)
            failed = self.state is ClientState.PENDING_ERROR
        ended = self._release(timeout)
        self._to(ClientState.ERROR if failed else ClientState.NOT_RUNNING)
        return ended

    def add_thread(self) -> str | None:
        """Start another stream thread, and return its name; None unless the application runs. Raises TransportError."""
        with self._lock:
            thread = self._threads.start_another() if self._going and self._threads is not None else None
        return None if thread is None else thread.name

    def remove_thread(self, timeout: float | None = None) -> str | None:
        """Stop a stream thread within `timeout` seconds and return its name; None if none has been started.

        The other threads take its tasks; without any the instance is idle. Raises StateError after the time-out.
        """
        thread = self._threads.end_one(timeout) if self._going and self._threads is not None else None
        return None if thread is None else thread.name

    @property
    def _going(self) -> bool:
        return self.state in (ClientState.RUNNING, ClientState.REBALANCING)

    def pause(self) -> None:
        """Stop processing, restoring and updating until `resume`; earlier work is committed (KafkaStreams.pause)."""
        if self._shared is not None:
            self._shared.paused.set()

    def resume(self) -> None:
        """Continue after `pause`."""
        if self._shared is not None:
            self._shared.paused.clear()

    def run(self, *, until_idle: bool = False, stop: threading.Event | None = None) -> None:
        """Start, and run until `stop` is set, SIGTERM or SIGINT (main thread), a failure, or all input is processed.

        Raises the error that ended a thread.
        """
        stop_requested = stop or threading.Event()
        restore_signals = catch_signals(stop_requested) if stop is None else lambda: None
        try:
            # A run until idle must end eventually; a service waits, as in Java.
            self.start(stop_requested, forever=not until_idle)
            try:
                if until_idle and self._going:
                    self.wait_until_idle(stop_requested)
                else:
                    self.wait(stop_requested)
            finally:
                self.stop()
        finally:
            restore_signals()
        self.raise_error()

    def wait(self, stop: threading.Event) -> None:
        """Poll the group and run the upkeep until `stop` is set or a thread has failed."""
        while not stop.is_set() and not self._failed.is_set():
            self._maintain()
            quiet = self._rebalance_listener is not None and self._rebalance_listener.is_quiet()
            stop.wait(_QUIET_UPKEEP_SECONDS if quiet else _UPKEEP_SECONDS)

    def wait_until_idle(self, stop: threading.Event | None = None) -> None:
        """Wait until all inputs, internal topics included, are processed to their current ends and committed, or `stop` is set."""
        assert self._shared is not None
        self._shared.until_idle.set()
        while not (stop is not None and stop.is_set()) and not self._failed.is_set():
            self._maintain()
            if self._all_idle():
                return
            self._wake.wait(_CHECK_SECONDS)

    def raise_error(self) -> None:
        """Raise the error that ended a thread, if any; foreign exceptions become a StreamkitError with a one-line message."""
        if self.error is None:
            return
        if isinstance(self.error, StreamkitError):
            raise self.error
        raise StreamkitError(f"a stream thread failed: {type(self.error).__name__}: {self.error}") from self.error

    # -- Inside -------------------------------------------------------------------------------------------------------

    def _start(self, retries: StartRetries) -> None:
        plan, config = self.plan, self.plan.config
        count = config.num_stream_threads
        log_warnings(config)
        has_global = any(sub.is_global for sub in plan.sub_topologies)
        topics = retries.call_in_thread(partial(checked_topics, plan, self.transport, self.force))
        self._directory = state_directory(plan)
        write_marks(plan, topics.ids)
        shared = Shared(plan, self.transport, self._settings, self._directory, topics)
        shared.restore_listener = self._restore_listener
        shared.print_line = self.print_line
        if config.otel_enabled:
            shared.telemetry = Telemetry(plan.application, str(self._directory.process_id()), self.status)
        process = self.process_id = str(self._directory.process_id())
        self._threads = Threads(shared, process, config.statestore_cache_max_bytes, int(has_global))
        self._threads.on_change = self._thread_changed
        shared.cache_bytes = self._threads.share(count)
        self._shared = shared
        changelogs = changelogs_of(plan, topics)
        # Only transactions with control records can be without one.
        lossy = self._settings.exactly_once and self.transport.marks_commits
        watch = (
            TransactionWatch(self.transport, plan, partial(self._read_here, changelogs), shared.elapsed)
            if lossy
            else None
        )
        topic_watch = TopicWatch(plan, self.transport, topics, shared.partitions)
        self._upkeep = Upkeep(topic_watch, watch, StateCleaner(shared), shared.cycles)
        if has_global:
            name = f"{config.client_id or plan.application}-GlobalStreamThread"
            self.global_thread = GlobalThread(name, shared, partial(self._handle, "the global thread"))
            # Java has the same limit for global state (GlobalStateManagerImpl).
            retries.call(partial(self.global_thread.open, retries.stopping), self._settings.task_timeout_ms)
            self.global_thread.start()
        self._threads.add(count)
        self._coordinator = shared.coordinator = Coordinator(topics, self._threads.names(), changelogs, self._describe)
        times = self._settings.max_poll_interval_ms, self._settings.session_timeout_ms
        self._rebalance_listener = RebalanceListener(
            self._coordinator, lambda: self.threads, *times, unchanged=self._threads.unchanged
        )
        if MEMBERSHIP in self.transport.features:
            membership = self._membership(topics, changelogs)
            retries.call_in_thread(partial(self._coordinator.join, membership))
            self._rebalance_listener.assign_first({})
        else:
            self._rebalance_listener.assign_first(self._coordinator.assign_all())
        for thread in self.threads:
            thread.start()

    def _membership(self, topics: TopicsOnLog, changelogs: Mapping[TaskId, Sequence[TopicPartition]]) -> Membership:
        """Return a new member of the group: of a classic one, or of one whose coordinator assigns tasks."""
        plan, config = self.plan, self.plan.config
        member = f"{self.process_id}-{socket.gethostname()}-{os.getpid()}"
        if config.group_protocol == STREAMS and STREAMS_GROUPS in self.transport.features:
            topology = streams_topology(plan, topics, changelogs, self._ends, self._settings.max_poll_interval_ms)
            return self.transport.streams_membership(plan.application, member, topology)
        leader = Leader(topics, changelogs, Rules.of(config), self._ends)
        return self.transport.membership(plan.application, member, leader.decide)

    def _describe(self, threads: int) -> Subscription:
        """Return the subscription of this process."""
        assert self._directory is not None
        config = self.plan.config
        return Subscription(
            str(self._directory.process_id()),
            threads,
            config.application_server,
            config.client_tags,
            self.task_offset_sums(),
        )

    def _read_here(self, changelogs: Mapping[TaskId, Sequence[TopicPartition]]) -> list[TopicPartition]:
        """Return the partitions that the assigned tasks read: inputs, and changelogs."""
        assert self._shared is not None
        places: list[TopicPartition] = []
        for thread in self.threads:
            active, standby = thread.assignment
            for task in active:
                places += self._shared.topics.partitions_of(task)
            for task in (*active, *standby):
                places += changelogs.get(task, ())
        return places

    def _ends(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        with closing(self.transport.consumer(None, client_id="leader")) as consumer:
            return consumer.end_offsets(partitions)

    def _maintain(self) -> None:
        self._status.sample()
        if self._rebalance_listener is not None and self._upkeep is not None:
            self._rebalance_listener.poll()
            try:
                self._upkeep.run_if_due(self.state is ClientState.RUNNING)
            except StreamkitError as error:
                self._fail(error)
        if self.ends_all:
            self._fail(StreamkitError("an instance has failed and requested that all instances stop"))

    def _all_idle(self) -> bool:
        self._wake.clear()
        assert self._threads is not None
        assert self._rebalance_listener is not None
        assert self._shared is not None
        threads = self._threads.alive()
        if not self._rebalance_listener.settled or not all(thread.idle for thread in threads):
            return False
        return all_read(self._shared, threads) and self.state is ClientState.RUNNING

    def _thread_changed(self, thread: StreamThread) -> None:
        if thread.error is not None and thread.state is ThreadState.DEAD:
            self._handle(thread, thread.error)
        with self._lock:
            if self._going:
                state = client_state(
                    [other.state for other in self.threads],
                    self.global_thread is None or not self.global_thread.error,
                )
                if state is not self.state:
                    self._to(state)
        self._wake.set()

    def _handle(self, failed: StreamThread | str, error: BaseException) -> None:
        """Apply the handler's response to a failed thread; called by that thread."""
        try:
            response = failure_response(self._on_failure(error))
        except Exception as mistake:
            log.error("the handler of uncaught exceptions failed: %s", mistake)
            response = "shutdown_client"
        name = failed if isinstance(failed, str) else failed.name
        if response == "replace_thread" and isinstance(failed, StreamThread) and self._replace(failed):
            log.error("%s failed and was replaced: %s", name, one_line(str(error)))
            return
        if response == "shutdown_application" and self._coordinator is not None and self._coordinator.end_all():
            log.error("%s failed, and all instances will stop: %s", name, one_line(str(error)))
            # This one too, after the next rebalance.
            self.error = self.error or error
            return
        if response == "replace_thread" and isinstance(failed, str):
            log.warning("%s can't be replaced; the instance ends", name)
        self._fail(error)

    def _replace(self, dead: StreamThread) -> bool:
        with self._lock:
            if not self._going or self._threads is None:
                return False
            self._threads.replace(dead).start()
        return True

    def _fail(self, error: BaseException) -> None:
        """Stop the threads and make `wait` return, so that `stop` is called next (closeToError)."""
        with self._lock:
            self.error = self.error or error
            if self._going:
                self._to(ClientState.PENDING_ERROR)
            for thread in self.threads:
                thread.stop()
        self._failed.set()
        self._wake.set()

    def _release(self, timeout: float | None) -> bool:
        deadline = None if timeout is None else time.monotonic() + timeout

        def left() -> float | None:
            return None if deadline is None else max(0.0, deadline - time.monotonic())

        if self._rebalance_listener is not None:
            self._rebalance_listener.wait_for_rebalance()
        for thread in self.threads:
            thread.stop()
        ended = [self._join(thread, left) for thread in self.threads].count(False) == 0
        if ended and self.global_thread is not None:
            self.global_thread.stop()
            ended = self.global_thread.close(left())
        for thread in self.threads:
            self.error = self.error or thread.error
        if ended and self._coordinator is not None:
            self._coordinator.leave()
        if ended and self._directory is not None:
            self._directory.close()
        if self._shared is not None and self._shared.telemetry is not None:
            self._shared.telemetry.close()
        self._status.close()
        return ended

    def _join(self, thread: StreamThread, left: Callable[[], float | None]) -> bool:
        """Wait for the end of a thread; return whether it has ended. A rebalance that its last commit waits for continues."""
        while not thread.join(JOIN_SECONDS):
            seconds = left()
            if seconds is not None and seconds <= 0:
                return False
            if self._rebalance_listener is not None:
                self._rebalance_listener.continue_rebalance()
        return True

    def _to(self, state: ClientState) -> None:
        with self._lock:
            check_transition(self.state, state)
            old, self.state = self.state, state
        log.info("state %s -> %s", old.value, state.value)
        if self._listener is not None:
            self._listener(state, old)


# Checks whether an application has read all its inputs, for `--until-idle`.


def all_read(shared: Shared, threads: Sequence[StreamThread]) -> bool:
    """Return whether the idle threads and other processes have read all inputs, and stayed idle during the check."""
    before = [thread.activity for thread in threads]
    try:
        behind = is_behind(shared, {tp: offset for thread in threads for tp, offset in thread.positions.items()})
    except (RetriableTransportError, UnreachableError) as error:
        log.info("%s; trying again", error)
        return False
    # A thread that worked meanwhile may have written records after the offsets that were read above.
    return not behind and all(thread.idle for thread in threads) and before == [thread.activity for thread in threads]


def is_behind(shared: Shared, positions: Mapping[TopicPartition, int]) -> bool:
    """Return whether any input has records that this process has not read and other processes have not committed.

    `positions`: the next offsets that this process reads. Raises TransportError.
    """
    topics, exactly_once = shared.topics, shared.settings.exactly_once
    inputs = list({tp for task in topics.tasks() for tp in topics.partitions_of(task)})
    if not inputs:
        return False
    with closing(_consumer(shared, read_committed=shared.settings.read_committed)) as consumer:
        ends = consumer.end_offsets(inputs)
        # Brokers write the markers of a transaction after its commit has returned: until then consumers do not read its
        # records. Only this application writes its internal topics; in other topics, a foreign transaction may stay
        # open forever.
        if exactly_once and _has_open_transactions(shared, ends):
            return True
        if any(positions[tp] < ends[tp] for tp in positions.keys() & ends.keys()):
            return True
        others = [tp for tp in inputs if tp not in positions]
        first = consumer.beginning_offsets(others)
        committed = consumer.committed(others)
        starts = {tp: max(first[tp], committed[tp].offset if tp in committed else 0) for tp in others}
        # Committed offsets are before the markers of the transactions, as many as there were producers, and aborted records.
        behind = {tp: start for tp, start in starts.items() if start < ends[tp]}
        return bool(behind) and has_records(consumer, behind, ends)


def _has_open_transactions(shared: Shared, ends: Mapping[TopicPartition, int]) -> bool:
    """Return whether internal topics have records beyond the `ends` that read_committed returns."""
    names = set(map(shared.plan.internal_name, shared.plan.internal_topics))
    internal = [partition for partition in ends if partition.topic in names]
    if not internal:
        return False
    with closing(_consumer(shared, read_committed=False)) as consumer:
        written = consumer.end_offsets(internal)
    return any(written[partition] > ends[partition] for partition in internal)


def _consumer(shared: Shared, *, read_committed: bool) -> Consumer:
    return shared.transport.consumer(shared.plan.application, read_committed=read_committed, client_id="idle")


# Repeats the start while no broker responds, as the clients of Kafka Streams do.

RETRY_SECONDS = 1.0
WARN_EVERY_SECONDS = 30.0
QUIET_SECONDS = 2.0
"""Seconds after which a call that waits is logged."""
Result = TypeVar("Result")


class StartRetries:
    """Repeats calls that need the log until they succeed, `stop` is set, or `limit_ms` have passed since the first failure.

    limit_ms None: no limit; place: the address of the log, for messages; tried: returns the failed attempts to reach
    it, None if one succeeded.
    """

    def __init__(
        self,
        stop: threading.Event | None,
        limit_ms: int | None,
        place: str,
        tried: Callable[[], str | None],
    ):
        self._stop = stop or threading.Event()
        self._limit_ms = limit_ms
        self._place = place
        self._tried = tried
        self._quiet_until = monotonic() + QUIET_SECONDS

    def stopping(self) -> bool:
        """Whether the application is to stop before it has started."""
        return self._stop.is_set()

    def call_in_thread(self, action: Callable[[], Result]) -> Result:
        """Call in a separate thread, so that a call without a response does not delay a stop.

        Raises StopRequestedError, UnreachableError, and what the action raises.
        """
        return self.call(lambda: self._on_a_thread(action))

    def call(self, action: Callable[[], Result], limit_ms: int | None = None) -> Result:
        """Call in this thread; `limit_ms` replaces that of the object. Raises as `call_in_thread` does."""
        since: float | None = None
        warn_at = 0.0
        limit_ms = self._limit_ms if limit_ms is None else limit_ms
        while True:
            if self._stop.is_set():
                raise StopRequestedError
            try:
                return action()
            except (RetriableTransportError, UnreachableError) as error:
                now = monotonic()
                since = now if since is None else since
                if limit_ms is not None and now - since >= limit_ms / 1000:
                    raise _too_long(error, limit_ms) from error
                if now >= warn_at:
                    log.warning("%s; trying again", error)
                    warn_at = now + WARN_EVERY_SECONDS
            self._stop.wait(RETRY_SECONDS)

    def _warn(self, waiting: threading.Thread) -> None:
        tried = self._tried()
        if not waiting.is_alive() or self._stop.is_set():
            return
        if tried is None:
            # A broker accepts connections, so it is busy, or this machine is.
            log.info("no answer from %s yet; waiting for it", self._place)
        else:
            log.warning("no answer from %s yet; waiting for it; tried %s", self._place, tried)

    def _on_a_thread(self, action: Callable[[], Result]) -> Result:
        results: list[Result] = []
        failures: list[BaseException] = []

        def run() -> None:
            try:
                results.append(action())
            except BaseException as error:
                failures.append(error)

        thread = threading.Thread(target=run, name="start", daemon=True)
        thread.start()
        while thread.is_alive():
            if self._stop.is_set():
                raise StopRequestedError
            if monotonic() >= self._quiet_until:
                self._quiet_until = float("inf")
                # Connecting may take longer than a stop may wait.
                threading.Thread(target=self._warn, args=(thread,), name="silence", daemon=True).start()
            thread.join(_CHECK_SECONDS)
        if failures:
            raise failures[0]
        return results[0]


def _too_long(error: TransportError, limit_ms: int) -> TransportError:
    return type(error)(f"{error}; it was tried for {limit_ms} ms (task.timeout.ms)")


# Checks at the start, of the state of an earlier version of the application.


def checked_topics(plan: Plan, transport: Transport, force: bool) -> TopicsOnLog:
    """Check changelogs and return the topics of `prepare`; `force` accepts any changelog and an incomplete migration.

    Raises IncompatibleStateError before anything is created, and what `prepare` raises.
    """
    # The imports run while brokers respond; `membership` waits for them.
    threading.Thread(target=transport.prepare_membership, daemon=True).start()
    with closing(transport.admin()) as admin:
        existing = admin.partition_counts()
        ids = admin.topic_ids(sorted(existing.keys() & internal_topics_on_log(plan).values()))
        migrated = read_entries(plan.application, existing, transport)
        if not force:
            check_marks(plan, ids)
            check_migrated(plan, migrated)
        topics = prepare(plan, admin, existing, ids, create_written=transport.creates_written_topics)
        try:
            copied = {entry.source for entry in migrated.values() if entry.done}
            _warn(plan, {name: count for name, count in existing.items() if name not in copied}, admin, transport)
        except TransportError as error:
            log.info("%s; the check for changelogs without a store is skipped", error)
    return topics


def _warn(plan: Plan, existing: Mapping[str, int], admin: Admin, transport: Transport) -> None:
    """Log the application's changelogs that have records but no store: a renamed store starts empty."""
    counts = unknown_changelogs(plan, existing, admin, transport)
    with_records = (
        {name: records for name, records in records_of(transport, counts).items() if records} if counts else {}
    )
    if with_records:
        shown = ", ".join(f"{name} ({number_of(records, 'record')})" for name, records in sorted(with_records.items()))
        log.warning(
            "no store of %s has the changelog %s; `streamkit diff --running` shows details", plan.application, shown
        )


# Periodic work of an instance: delete the state of tasks that have moved away (state.cleanup.delay.ms).

_OWNER = "state cleaner"


class StateCleaner:
    """Deletes, once per delay, the directories that no thread owns and that have not changed for that delay."""

    def __init__(self, shared: Shared):
        self._shared = shared
        self._delay = shared.plan.config.state_cleanup_delay_ms
        self._due = shared.elapsed() + self._delay

    def clean_if_due(self) -> None:
        """Delete directories if a clean-up is due (StateDirectory.cleanRemovedTasks); errors are logged."""
        now = self._shared.elapsed()
        if now < self._due:
            return
        self._due = now + max(1, self._delay)
        try:
            self._clean()
        except StateError as error:
            log.warning("state of tasks that moved away can't be deleted: %s", error)

    def _clean(self) -> None:
        directory, claims = self._shared.directory, self._shared.claims
        names = {name: TaskId.parse(name) for name in directory.tasks()}
        free = {name for name, task in names.items() if claims.claim(task, _OWNER)}
        try:
            older_than = (self._shared.clock() - self._delay) / 1000
            for task in directory.clean(names.keys() - free, older_than):
                log.info("the state of task %s, which moved away, is deleted after %d ms", task, self._delay)
        finally:
            for name in free:
                claims.release(names[name], _OWNER)


class Upkeep:
    """The periodic work of an instance, outside of its threads."""

    def __init__(
        self, topics: TopicWatch, transactions: TransactionWatch | None, cleaner: StateCleaner, cycles: CycleCollector
    ):
        self._topics = topics
        self._transactions = transactions
        self._cleaner = cleaner
        self._cycles = cycles

    def run_if_due(self, running: bool) -> None:
        """Check topics and transactions, collect cycles, and delete old state while the instance is running.

        Raises StreamkitError for changed topics.
        """
        if running:
            self._cleaner.clean_if_due()
        self._cycles.collect_if_due()
        if self._transactions is not None:
            self._transactions.look_if_due()
        self._topics.check()


# Finds transactions that brokers have lost: no coordinator ends them, so reads of committed records wait behind them forever.

_TIMEOUTS = 3
"""The time between two checks, in transaction time-outs of the application: any live transaction has ended by then."""
_LONGEST_MS = 15 * 60_000
"""The brokers' default limit for transaction time-outs: a transaction with an unknown id may be open for that long."""


class TransactionWatch:
    """Logs each lost transaction once, with the command that ends it. It checks periodically, in a separate thread."""

    def __init__(
        self,
        transport: Transport,
        plan: Plan,
        partitions: Callable[[], Iterable[TopicPartition]],
        elapsed: Callable[[], int],
    ):
        """Create a watch that has not checked yet.

        `plan`: of an application with exactly-once; `partitions`: returns the partitions that this instance's tasks read;
        `elapsed`: a clock in milliseconds.
        """
        self._transport = transport
        self._group = plan.application
        self._file = plan.file
        self._partitions = partitions
        self._elapsed = elapsed
        self._every = _TIMEOUTS * int(plan.config.client("producer")["transaction.timeout.ms"])
        self._due = elapsed() + self._every
        self._since: dict[OpenTransaction, int] = {}
        self._told: set[OpenTransaction] = set()
        self._thread: threading.Thread | None = None

    def look_if_due(self) -> None:
        """Start a check if one is due and the previous one has ended."""
        if self._elapsed() < self._due or (self._thread is not None and self._thread.is_alive()):
            return
        self._due = self._elapsed() + self._every
        self._thread = threading.Thread(target=self.look, name="transaction-watch", daemon=True)
        self._thread.start()

    def look(self) -> None:
        """Log a lost transaction once two checks have found it: it may end between the requests of one check."""
        partitions = sorted(set(self._partitions()))
        try:
            with closing(self._transport.admin()) as admin:
                self._tell(admin, admin.open_transactions(partitions, self._group))
        except TransportError as error:
            log.debug("%s", error)

    def _tell(self, admin: Admin, transactions: Iterable[OpenTransaction]) -> None:
        now = self._elapsed()
        self._since = {
            transaction: self._since.get(transaction, now) for transaction in transactions if transaction.hanging
        }
        for transaction, since in self._since.items():
            least = self._every if transaction.transactional_id else _LONGEST_MS
            if now - since >= least / 2 and transaction not in self._told:
                log.warning("%s", self._line(transaction, _outcome(admin, transaction)))
                self._told.add(transaction)

    def _line(self, transaction: OpenTransaction, outcome: Outcome) -> str:
        topic, number = transaction.partition
        owner = transaction.transactional_id or "an unknown transactional id"
        command = f"streamkit transactions {self._file} --end"
        if outcome.committed is None:
            end = (
                f"whether it was committed is unknown: {outcome.reason}. To end it, decide with {command} --assume commit, or "
                "abort: if it was committed, an abort loses its records in this partition"
            )
        else:
            done = "committed" if outcome.committed else "aborted"
            end = f"it was {done}: {command} ends it in the same way, and loses nothing"
        return (
            f"{topic}-{number}: brokers have lost the end of a transaction of {owner} (producer {transaction.producer_id}, epoch "
            f"{transaction.epoch}): its coordinator has ended it, but in this partition it is open from offset {transaction.start}, and no "
            f"later record can be read until you end it; {end}"
        )


def _outcome(admin: Admin, transaction: OpenTransaction) -> Outcome:
    try:
        return admin.outcome_of(transaction)
    except TransportError as error:
        # An application may have no right to read that log; the user who ends transactions has it.
        return Outcome(None, str(error))
