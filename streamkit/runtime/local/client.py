"""An application instance: topics, threads, state directory, start and stop (KafkaStreams)."""

from __future__ import annotations

import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

from streamkit.changes.marks import write_marks
from streamkit.errors import ConfigError, StateError, StoreUnavailableError, StreamkitError
from streamkit.metrics import Metrics
from streamkit.plan.model import Plan
from streamkit.record import TopicPartition
from streamkit.runtime.local.assignment.codec import Subscription
from streamkit.runtime.local.assignment.leader import Leader
from streamkit.runtime.local.assignment.model import Rules
from streamkit.runtime.local.assignor import Id
from streamkit.runtime.local.changes import checked_topics
from streamkit.runtime.local.coordinator import Coordinator
from streamkit.runtime.local.following import Following
from streamkit.runtime.local.gate import Gate
from streamkit.runtime.local.global_thread import GlobalThread
from streamkit.runtime.local.idle import all_read
from streamkit.runtime.local.instances import InstanceMetadata, KeyMetadata, key_metadata
from streamkit.runtime.local.local_task import sums_on_disk
from streamkit.runtime.local.progress import RestoreListener, RestoreProgress
from streamkit.runtime.local.queries import LocalStores, is_global, require_store
from streamkit.runtime.local.setup import Settings, Shared, TopicsOnLog, log_warnings, state_directory
from streamkit.runtime.local.signals import catch_signals
from streamkit.runtime.local.states import ClientState, ThreadState, check_transition, client_state
from streamkit.runtime.local.status import ApplicationStatus, StatusReader
from streamkit.runtime.local.thread import StreamThread
from streamkit.runtime.local.threads import FailureHandler, Threads, failure_response
from streamkit.runtime.local.topics import TopicWatch, changelogs_of
from streamkit.runtime.local.upkeep import StateCleaner, Upkeep
from streamkit.runtime.local.waiting import StopAskedError, Waiting
from streamkit.runtime.reasons import one_line
from streamkit.state.directory import StateDirectory
from streamkit.transport.base import MEMBERSHIP, TRANSACTIONS, Transport

log = logging.getLogger(__name__)

_LOOK_SECONDS = 0.05
StateListener = Callable[[ClientState, ClientState], None]
"""(new, old)."""


class Application:
    """Runs a plan over a transport, which it does not close; made once, started once, stopped once."""

    def __init__(self, plan: Plan, transport: Transport, listener: StateListener | None = None):
        self.plan = plan
        self.state = ClientState.CREATED
        self.error: BaseException | None = None
        self.force = False  # whether to start although changelogs would be misread
        self._transport = transport
        self._listener = listener
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self._failed = threading.Event()
        self._threads: Threads | None = None
        self._on_failure: FailureHandler = lambda error: "shutdown_client"
        self._restore_listener: RestoreListener | None = None
        self.global_thread: GlobalThread | None = None
        self._directory: StateDirectory | None = None
        self._coordinator: Coordinator | None = None
        self._shared: Shared | None = None
        self._following: Following | None = None
        self._upkeep: Upkeep | None = None
        self._settings = Settings.of(plan.config)
        if self._settings.exactly_once and TRANSACTIONS not in transport.features:
            raise ConfigError(f"exactly_once_v2 needs transactions, which {type(transport).__name__} does not offer")
        self._status = StatusReader(self, transport)

    # -- Before the start ---------------------------------------------------------------------------------------------

    def set_uncaught_exception_handler(self, handler: FailureHandler) -> None:
        """Have `handler` say what follows when a stream thread fails; by default the instance shuts down.

        "replace_thread": another one takes its tasks, from the last commit on; "shutdown_client": this instance ends;
        "shutdown_application": all instances end. Raises StateError after the start.
        """
        self._must_be_new()
        self._on_failure = handler

    def set_restore_listener(self, listener: RestoreListener) -> None:
        """Have `listener` told how restoring and standbys go on (StateRestoreListener, StandbyUpdateListener)."""
        self._must_be_new()
        self._restore_listener = listener

    def _must_be_new(self) -> None:
        if self.state is not ClientState.CREATED:
            raise StateError(f"that can only be set before the start; the application is {self.state.value}")

    # -- For status and queries --------------------------------------------------------------------------------------------

    @property
    def threads(self) -> list[StreamThread]:
        """The stream threads, those that have ended included until others take their places."""
        return [] if self._threads is None else self._threads.all

    def status(self, *, lag: bool = True) -> ApplicationStatus:
        """Return a snapshot of states, tasks, rates, lag and restoring; any thread may ask, at any time.

        Stream threads publish what it is made of every 0.25 s and are not stopped by it. `lag`: ask the log for the ends
        of the inputs, at most once a second; they are None where it does not answer.
        """
        return self._status.read(lag=lag)

    @property
    def stores(self) -> LocalStores:
        """The stores of this instance, for interactive queries."""
        return LocalStores(self)

    def global_stores(self, name: str) -> tuple[Gate, Callable[[], list[tuple[int, Any, bool]]]]:
        """Return the gate of the global thread, and what gives a store behind it. Raises StoreUnavailableError."""
        thread = self.global_thread
        if thread is None:
            raise StoreUnavailableError(f"store {name} can't be read before the application has started")
        return thread.gate, lambda: thread.stores(name)

    @property
    def ends_all(self) -> bool:
        """Whether an instance has failed and asked all to end, and the group has said so."""
        return self._coordinator is not None and self._coordinator.all_must_end

    @property
    def ready(self) -> bool:
        """Whether this instance knows its tasks, and every thread runs those that it has."""
        return self.state is ClientState.RUNNING and self._following is not None and self._following.settled

    def metadata_for_all(self) -> list[InstanceMetadata]:
        """Return the instances of the application as the group knows them, none before it has met."""
        return [] if self._coordinator is None else list(self._coordinator.instances)

    def key_metadata(self, name: str, key: bytes) -> KeyMetadata:
        """Return where a key is, by its bytes: of a window or a session those without it.

        Of a global store's key this instance is told. Raises UnknownStoreError, StoreUnavailableError before the start.
        """
        require_store(self.plan, name)
        if is_global(self.plan, name):
            return KeyMetadata(0, self.plan.config.get("application.server") or "")
        return key_metadata(self.plan, self._topics(), name, key, self.metadata_for_all())

    def tasks(self) -> list[Id]:
        """Return the tasks of the whole application. Raises StoreUnavailableError before the start."""
        return self._topics().tasks()

    def _topics(self) -> TopicsOnLog:
        if self._shared is None:
            raise StoreUnavailableError("the application has not started: its tasks are not known")
        return self._shared.topics

    @property
    def metrics(self) -> Metrics:
        """What was counted since the start; nothing before."""
        return Metrics() if self._shared is None else self._shared.metrics

    def restore_progress(self) -> list[RestoreProgress]:
        """Return how far the stores are that are being restored, or follow their changelogs as standbys."""
        return [progress for thread in list(self.threads) for progress in thread.restore_progress()]

    # -- Life ---------------------------------------------------------------------------------------------------------

    def start(self, stop: threading.Event | None = None, *, forever: bool = False) -> None:
        """Create topics, take the state directory, restore global stores, and start the threads.

        Waits while no broker answers, for task.timeout.ms or `forever`; when `stop` is set meanwhile, it ends in order.
        Raises TopicError, InvalidTopologyError, StateLockedError, TransportError; nothing is left running then.
        """
        self._to(ClientState.REBALANCING)
        limit_ms = None if forever else self._settings.task_timeout_ms
        try:
            self._start(Waiting(stop, limit_ms, ",".join(self.plan.config["bootstrap.servers"])))
        except StopAskedError:
            self.stop()
        except BaseException as error:
            self._fail(error)
            self._release(None)
            self._to(ClientState.ERROR)
            raise

    def stop(self, timeout: float | None = None) -> bool:
        """Commit, close and leave, waiting at most `timeout` seconds; return whether all threads ended in time."""
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
        """End a stream thread in order, waiting at most `timeout` seconds, and return its name; None if there is none.

        The other threads take its tasks; without any the instance stays, idle. Raises StateError after the time-out.
        """
        thread = self._threads.end_one(timeout) if self._going and self._threads is not None else None
        return None if thread is None else thread.name

    @property
    def _going(self) -> bool:
        return self.state in (ClientState.RUNNING, ClientState.REBALANCING)

    def pause(self) -> None:
        """Process, restore and update nothing until `resume`; what was done is committed as ever (KafkaStreams.pause)."""
        if self._shared is not None:
            self._shared.paused.set()

    def resume(self) -> None:
        """Go on after `pause`."""
        if self._shared is not None:
            self._shared.paused.clear()

    @property
    def paused(self) -> bool:
        """Whether `pause` is in force."""
        return self._shared is not None and self._shared.paused.is_set()

    def run(self, *, until_idle: bool = False, stop: threading.Event | None = None) -> None:
        """Start, and run until `stop` is set, SIGTERM or SIGINT (main thread), a failure, or nothing is left to do.

        Raises the error that ended a thread.
        """
        asked = stop or threading.Event()
        restore_signals = catch_signals(asked) if stop is None else lambda: None
        try:
            # What runs now and then has to end some time; a service waits, as Java does.
            self.start(asked, forever=not until_idle)
            try:
                if until_idle and self._going:
                    self.wait_until_idle(asked)
                else:
                    self.wait(asked)
            finally:
                self.stop()
        finally:
            restore_signals()
        self.raise_error()

    def wait(self, stop: threading.Event) -> None:
        """Look after the group until `stop` is set or a thread failed."""
        while not stop.is_set() and not self._failed.is_set():
            self._look_after()
            stop.wait(_LOOK_SECONDS)

    def wait_until_idle(self, stop: threading.Event | None = None) -> None:
        """Return when all inputs, internal topics included, are read to their moving ends and committed, or `stop` is set."""
        assert self._shared is not None
        self._shared.until_idle.set()
        while not (stop is not None and stop.is_set()) and not self._failed.is_set():
            self._look_after()
            if self._all_idle():
                return
            self._wake.wait(_LOOK_SECONDS)

    def task_offset_sums(self) -> dict[Id, int]:
        """Return, by task, how much of its changelogs is held here (TaskManager.taskOffsetSums).

        Running tasks: RUNNING; others that are held, or on disk with a checkpoint: the sum of their offsets; tasks
        without state are missing. A checkpoint that can't be read counts as none.
        """
        sums = {} if self._directory is None else sums_on_disk(self._directory)
        for thread in list(self.threads):
            sums.update(thread.offset_sums())
        return sums

    def raise_error(self) -> None:
        """Raise what ended a thread, if anything did; foreign errors become a StreamkitError of one line."""
        if self.error is None:
            return
        if isinstance(self.error, StreamkitError):
            raise self.error
        raise StreamkitError(f"a stream thread failed: {type(self.error).__name__}: {self.error}") from self.error

    # -- Inside -------------------------------------------------------------------------------------------------------

    def _start(self, waiting: Waiting) -> None:
        plan, config = self.plan, self.plan.config
        count = int(config["num.stream.threads"])
        log_warnings(config)
        has_global = any(sub.is_global for sub in plan.sub_topologies)
        topics = waiting.apart(partial(checked_topics, plan, self._transport, self.force))
        self._directory = state_directory(plan)
        write_marks(plan, topics.ids)
        shared = Shared(plan, self._transport, self._settings, self._directory, topics)
        shared.changed = self._thread_changed
        shared.restore_listener = self._restore_listener
        process = str(self._directory.process_id())
        self._threads = Threads(shared, process, int(config["statestore.cache.max.bytes"]), int(has_global))
        shared.cache_bytes = self._threads.share(count)
        self._shared = shared
        self._upkeep = Upkeep(TopicWatch(plan, self._transport, topics), StateCleaner(shared), shared.cycles)
        if has_global:
            name = f"{config['client.id'] or plan.application}-GlobalStreamThread"
            self.global_thread = GlobalThread(name, shared, partial(self._handle, "the global thread"))
            # Java too waits for global state no longer than this (GlobalStateManagerImpl).
            waiting.here(self.global_thread.open, self._settings.task_timeout_ms)
            self.global_thread.start()
        self._threads.add(count)
        changelogs = changelogs_of(plan, topics)
        self._coordinator = shared.coordinator = Coordinator(topics, self._threads.names(), changelogs, self._describe)
        times = self._settings.max_poll_interval_ms, self._settings.session_timeout_ms
        self._following = Following(self._coordinator, lambda: self.threads, *times)
        if MEMBERSHIP in self._transport.features:
            leader = Leader(topics, changelogs, Rules.of(config), self._ends)
            member = f"{process}-{socket.gethostname()}-{os.getpid()}"
            membership = self._transport.membership(plan.application, member, leader.decide)
            waiting.apart(partial(self._coordinator.join, membership))
            self._following.begin({})
        else:
            self._following.begin(self._coordinator.first())
        for thread in self.threads:
            thread.start()

    def _describe(self, threads: int) -> Subscription:
        """Tell the group of this process."""
        assert self._directory is not None
        config = self.plan.config
        return Subscription(
            str(self._directory.process_id()),
            threads,
            config.get("application.server") or "",
            config.client_tags,
            self.task_offset_sums(),
        )

    def _ends(self, partitions: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
        consumer = self._transport.consumer(None, client_id="leader")
        try:
            return consumer.end_offsets(partitions)
        finally:
            consumer.close()

    def _look_after(self) -> None:
        self._status.sample()
        if self._following is not None and self._upkeep is not None:
            self._following.look()
            try:
                self._upkeep.look(self.state is ClientState.RUNNING)
            except StreamkitError as error:
                self._fail(error)
        if self.ends_all:
            self._fail(StreamkitError("an instance has failed and asked all to end"))

    def _all_idle(self) -> bool:
        self._wake.clear()
        assert self._threads is not None
        assert self._following is not None
        assert self._shared is not None
        threads = self._threads.alive()
        if not self._following.settled or not all(thread.idle for thread in threads):
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
        """Do what the handler says about a thread that has failed; called by that thread."""
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
            # This one too, when the group has heard of it.
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
        """End this instance: nothing more is begun, and `wait` returns, so that `stop` follows (closeToError)."""
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

        if self._following is not None:
            self._following.finish()
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
        self._status.close()
        return ended

    def _to(self, state: ClientState) -> None:
        with self._lock:
            check_transition(self.state, state)
            old, self.state = self.state, state
        log.info("state %s -> %s", old.value, state.value)
        if self._listener is not None:
            self._listener(state, old)
