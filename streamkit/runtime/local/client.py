"""An application instance: topics, threads, state directory, start and stop (KafkaStreams)."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import closing
from functools import partial

from streamkit.changes.marks import write_marks
from streamkit.errors import ConfigError, RetriableTransportError, StateError, StreamkitError, UnreachableError
from streamkit.plan.model import Plan
from streamkit.record import TaskId, TopicPartition
from streamkit.runtime.execution.reasons import one_line
from streamkit.runtime.local.coordinator import Coordinator
from streamkit.runtime.local.global_thread import GlobalThread
from streamkit.runtime.local.instance_status import StatusReader
from streamkit.runtime.local.internal_topics import TopicWatch, changelogs_of
from streamkit.runtime.local.queries import InstanceMetadataReader, LocalStores
from streamkit.runtime.local.rebalance_listener import RebalanceListener
from streamkit.runtime.local.restore_progress import RestoreListener
from streamkit.runtime.local.setup import Settings, Shared, log_warnings, state_directory
from streamkit.runtime.local.signal_handlers import catch_signals
from streamkit.runtime.local.start import StartRetries, StopRequestedError, checked_topics
from streamkit.runtime.local.states import ClientState, ThreadState, check_transition, client_state
from streamkit.runtime.local.status_model import ApplicationStatus
from streamkit.runtime.local.stream_thread import StreamThread
from streamkit.runtime.local.subscription_codec import Subscription
from streamkit.runtime.local.task_assignor import Leader, Rules
from streamkit.runtime.local.thread_set import FailureHandler, Threads, failure_response
from streamkit.runtime.local.upkeep import StateCleaner, TransactionWatch, Upkeep
from streamkit.runtime.operations.opening import address, silence_of
from streamkit.runtime.telemetry.open_telemetry import Telemetry
from streamkit.transport.log_interface import MEMBERSHIP, TRANSACTIONS, Consumer, Transport

log = logging.getLogger(__name__)

_CHECK_SECONDS = 0.05
StateListener = Callable[[ClientState, ClientState], None]
"""(new, old)."""


class Application(InstanceMetadataReader):
    """Runs a plan on a transport, which it does not close; it is started once and stopped once."""

    print_line: Callable[[str], None] = staticmethod(print)
    """Prints a line of the `print` step; set before the start."""

    def __init__(self, plan: Plan, transport: Transport, listener: StateListener | None = None):
        super().__init__(plan)
        self.force = False  # whether to start although changelogs would be misread
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
        """Return a snapshot of states, tasks, rates, lag and restoring; every thread may call it, at any time.

        Stream threads publish its data every 0.25 s, and are not stopped by it. `lag`: read the end offsets of the inputs
        from the log, at most once a second; they are None where it does not respond.
        """
        return self._status.read(lag=lag)

    @property
    def stores(self) -> LocalStores:
        """The stores of this instance, for interactive queries."""
        return LocalStores(self)

    # -- Before the start ---------------------------------------------------------------------------------------------

    def set_uncaught_exception_handler(self, handler: FailureHandler) -> None:
        """Set the handler that is called when a stream thread fails; by default the instance shuts down.

        "replace_thread": another thread takes its tasks, from the last commit on; "shutdown_client": this instance ends;
        "shutdown_application": all instances end. Raises StateError after the start.
        """
        self._must_be_new()
        self._on_failure = handler

    def set_restore_listener(self, listener: RestoreListener) -> None:
        """Set the listener for the progress of restoring and of standbys (StateRestoreListener, StandbyUpdateListener)."""
        self._must_be_new()
        self._restore_listener = listener

    def _must_be_new(self) -> None:
        if self.state is not ClientState.CREATED:
            raise StateError(f"that can only be set before the start; the application is {self.state.value}")

    # -- Lifecycle ---------------------------------------------------------------------------------------------------------

    def start(self, stop: threading.Event | None = None, *, forever: bool = False) -> None:
        """Create topics, lock the state directory, restore global stores, and start the threads.

        Waits while no broker responds, for task.timeout.ms or `forever`; a `stop` in the meantime ends it. Raises
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
        """Commit, close and leave the group, waiting at most `timeout` seconds; return whether all threads ended in time."""
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
        """Stop a stream thread, waiting at most `timeout` seconds, and return its name; None if there is none.

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
            # A run until idle has to end at some time; a service waits, as in Java.
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
            stop.wait(_CHECK_SECONDS)

    def wait_until_idle(self, stop: threading.Event | None = None) -> None:
        """Return when all inputs, internal topics included, are read to their current ends and committed, or `stop` is set."""
        assert self._shared is not None
        self._shared.until_idle.set()
        while not (stop is not None and stop.is_set()) and not self._failed.is_set():
            self._maintain()
            if self._all_idle():
                return
            self._wake.wait(_CHECK_SECONDS)

    def raise_error(self) -> None:
        """Raise the error that ended a thread, if there is one; other exceptions become a StreamkitError of one line."""
        if self.error is None:
            return
        if isinstance(self.error, StreamkitError):
            raise self.error
        raise StreamkitError(f"a stream thread failed: {type(self.error).__name__}: {self.error}") from self.error

    # -- Inside -------------------------------------------------------------------------------------------------------

    def _start(self, retries: StartRetries) -> None:
        plan, config = self.plan, self.plan.config
        count = int(config["num.stream.threads"])
        log_warnings(config)
        has_global = any(sub.is_global for sub in plan.sub_topologies)
        topics = retries.call_in_thread(partial(checked_topics, plan, self.transport, self.force))
        self._directory = state_directory(plan)
        write_marks(plan, topics.ids)
        shared = Shared(plan, self.transport, self._settings, self._directory, topics)
        shared.restore_listener = self._restore_listener
        shared.print_line = self.print_line
        if config["otel.enabled"]:
            shared.telemetry = Telemetry(plan.application, str(self._directory.process_id()), self.status)
        process = self.process_id = str(self._directory.process_id())
        self._threads = Threads(shared, process, int(config["statestore.cache.max.bytes"]), int(has_global))
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
        topic_watch = TopicWatch(plan, self.transport, topics)
        self._upkeep = Upkeep(topic_watch, watch, StateCleaner(shared), shared.cycles)
        if has_global:
            name = f"{config['client.id'] or plan.application}-GlobalStreamThread"
            self.global_thread = GlobalThread(name, shared, partial(self._handle, "the global thread"))
            # Java has the same limit for global state (GlobalStateManagerImpl).
            retries.call(self.global_thread.open, self._settings.task_timeout_ms)
            self.global_thread.start()
        self._threads.add(count)
        self._coordinator = shared.coordinator = Coordinator(topics, self._threads.names(), changelogs, self._describe)
        times = self._settings.max_poll_interval_ms, self._settings.session_timeout_ms
        self._rebalance_listener = RebalanceListener(self._coordinator, lambda: self.threads, *times)
        if MEMBERSHIP in self.transport.features:
            leader = Leader(topics, changelogs, Rules.of(config), self._ends)
            member = f"{process}-{socket.gethostname()}-{os.getpid()}"
            membership = self.transport.membership(plan.application, member, leader.decide)
            retries.call_in_thread(partial(self._coordinator.join, membership))
            self._rebalance_listener.assign_first({})
        else:
            self._rebalance_listener.assign_first(self._coordinator.assign_all())
        for thread in self.threads:
            thread.start()

    def _describe(self, threads: int) -> Subscription:
        """Return the subscription of this process."""
        assert self._directory is not None
        config = self.plan.config
        return Subscription(
            str(self._directory.process_id()),
            threads,
            config.get("application.server") or "",
            config.client_tags,
            self.task_offset_sums(),
        )

    def _read_here(self, changelogs: Mapping[TaskId, Sequence[TopicPartition]]) -> list[TopicPartition]:
        """Return the partitions that the assigned tasks read: inputs, and changelogs."""
        assert self._shared is not None
        found: list[TopicPartition] = []
        for thread in self.threads:
            active, standby = thread.assignment
            for task in active:
                found += self._shared.topics.partitions_of(task)
            for task in (*active, *standby):
                found += changelogs.get(task, ())
        return found

    def _ends(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        consumer = self.transport.consumer(None, client_id="leader")
        try:
            return consumer.end_offsets(partitions)
        finally:
            consumer.close()

    def _maintain(self) -> None:
        self._status.sample()
        if self._rebalance_listener is not None and self._upkeep is not None:
            self._rebalance_listener.poll()
            try:
                self._upkeep.run_if_due(self.state is ClientState.RUNNING)
            except StreamkitError as error:
                self._fail(error)
        if self.ends_all:
            self._fail(StreamkitError("an instance has failed and asked all to end"))

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
                    [each.state for each in self.threads], self.global_thread is None or not self.global_thread.error
                )
                if state is not self.state:
                    self._to(state)
        self._wake.set()

    def _handle(self, failed: StreamThread | str, error: BaseException) -> None:
        """Apply the response of the handler to a thread that has failed; called by that thread."""
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
            log.error("%s failed, and all instances are to end: %s", name, one_line(str(error)))
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
        """Stop the threads, and make `wait` return, so that `stop` follows (closeToError)."""
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
        ended = [thread.join(left()) for thread in self.threads].count(False) == 0
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

    def _to(self, state: ClientState) -> None:
        with self._lock:
            check_transition(self.state, state)
            old, self.state = self.state, state
        log.info("state %s -> %s", old.value, state.value)
        if self._listener is not None:
            self._listener(state, old)


# Checks whether an application has read all its inputs, for `--until-idle`.


def all_read(shared: Shared, threads: Sequence[StreamThread]) -> bool:
    """Return whether threads that are idle, and other processes, have read all inputs, and stay idle meanwhile."""
    before = [thread.activity for thread in threads]
    try:
        behind = is_behind(shared, {tp: offset for thread in threads for tp, offset in thread.positions.items()})
    except (RetriableTransportError, UnreachableError) as error:
        log.info("%s; trying again", error)
        return False
    # A thread that worked meanwhile may have written records after the offsets that were read above.
    return not behind and all(thread.idle for thread in threads) and before == [each.activity for each in threads]


def is_behind(shared: Shared, positions: Mapping[TopicPartition, int]) -> bool:
    """Return whether any input has records beyond what this process read, or other processes committed.

    `positions`: the next offsets that this process reads. Raises TransportError.
    """
    topics, exactly_once = shared.topics, shared.settings.exactly_once
    inputs = list({tp for task in topics.tasks() for tp in topics.partitions_of(task)})
    if not inputs:
        return False
    with closing(_consumer(shared, read_committed=shared.settings.read_committed)) as consumer:
        ends = consumer.end_offsets(inputs)
        # Brokers write the markers of a transaction after its commit has returned: until then its records are not read. Only
        # this application writes its own topics; a transaction of others in a topic of the file may stay open for ever.
        if exactly_once and _has_open_transactions(shared, ends):
            return True
        others = [tp for tp in inputs if tp not in positions]
        committed = consumer.committed(others) if others else {}
        empty = consumer.beginning_offsets([tp for tp in others if tp not in committed])
    # The committed offset of other processes is before the marker of the last transaction.
    marker = 1 if exactly_once else 0
    done = {**empty, **{tp: offset.offset + marker for tp, offset in committed.items()}, **positions}
    return any(done[tp] < end for tp, end in ends.items())


def _has_open_transactions(shared: Shared, ends: Mapping[TopicPartition, int]) -> bool:
    """Return whether internal topics have records behind the `ends` that read_committed shows."""
    names = set(map(shared.plan.internal_name, shared.plan.internal_topics))
    internal = [partition for partition in ends if partition.topic in names]
    if not internal:
        return False
    with closing(_consumer(shared, read_committed=False)) as consumer:
        written = consumer.end_offsets(internal)
    return any(written[partition] > ends[partition] for partition in internal)


def _consumer(shared: Shared, *, read_committed: bool) -> Consumer:
    return shared.transport.consumer(shared.plan.application, read_committed=read_committed, client_id="idle")
