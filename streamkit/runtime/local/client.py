"""An application instance: topics, threads, state directory, start and stop (KafkaStreams)."""

from __future__ import annotations

import logging
import os
import signal
import socket
import threading
import time
from collections.abc import Callable
from typing import Any

from streamkit.errors import (
    ConfigError,
    RetriableTransportError,
    StateError,
    StoreUnavailableError,
    StreamkitError,
    UnreachableError,
)
from streamkit.metrics import Metrics
from streamkit.plan.model import Plan
from streamkit.record import TopicPartition
from streamkit.runtime.local.assignor import Id
from streamkit.runtime.local.coordinator import Coordinator
from streamkit.runtime.local.following import Following
from streamkit.runtime.local.gate import Gate
from streamkit.runtime.local.global_thread import GlobalThread
from streamkit.runtime.local.instances import InstanceMetadata, KeyMetadata, holding, key_metadata
from streamkit.runtime.local.local_task import offset_sum
from streamkit.runtime.local.progress import RestoreProgress
from streamkit.runtime.local.queries import LocalStores, is_global, require_store
from streamkit.runtime.local.setup import Settings, Shared, TopicsOnLog
from streamkit.runtime.local.states import ClientState, ThreadState, check_transition, client_state
from streamkit.runtime.local.status import ApplicationStatus, StatusReader
from streamkit.runtime.local.thread import StreamThread
from streamkit.runtime.local.topics import prepare_topics
from streamkit.state.checkpoint import read_checkpoint
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
        self.threads: list[StreamThread] = []
        self._transport = transport
        self._listener = listener
        self._lock = threading.RLock()
        self._wake = threading.Event()
        self._failed = threading.Event()
        self._global: GlobalThread | None = None
        self._directory: StateDirectory | None = None
        self._coordinator: Coordinator | None = None
        self._shared: Shared | None = None
        self._following: Following | None = None
        self._settings = Settings.of(plan.config)
        if self._settings.exactly_once and TRANSACTIONS not in transport.features:
            raise ConfigError(f"exactly_once_v2 needs transactions, which {type(transport).__name__} does not offer")
        self._status = StatusReader(self, transport)

    # -- For whoever looks --------------------------------------------------------------------------------------------

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
        thread = self._global
        if thread is None:
            raise StoreUnavailableError(f"store {name} can't be read before the application has started")
        return thread.gate, lambda: thread.stores(name)

    @property
    def ready(self) -> bool:
        """Whether this instance knows its tasks, and every thread runs those that it has."""
        return self.state is ClientState.RUNNING and self._following is not None and self._following.settled

    def metadata_for_all(self) -> list[InstanceMetadata]:
        """Return the instances of the application as the group knows them, none before it has met."""
        return [] if self._coordinator is None else list(self._coordinator.instances)

    def metadata_for_store(self, name: str) -> list[InstanceMetadata]:
        """Return the instances that hold a store. Raises UnknownStoreError."""
        require_store(self.plan, name)
        return holding(self.plan, name, self.metadata_for_all())

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

    def start(self) -> None:
        """Create topics, take the state directory, restore global stores, and start the threads.

        Raises TopicError, InvalidTopologyError, StateLockedError, TransportError; nothing is left running then.
        """
        self._to(ClientState.REBALANCING)
        try:
            self._start()
        except BaseException:
            self._to(ClientState.PENDING_ERROR)
            self._release(None)
            self._to(ClientState.ERROR)
            raise

    def stop(self, timeout: float | None = None) -> bool:
        """Commit, close and leave, waiting at most `timeout` seconds; return whether all threads ended in time."""
        with self._lock:
            if self.state in (ClientState.NOT_RUNNING, ClientState.ERROR):
                return True
            failed = self._failed.is_set() and self.state is not ClientState.CREATED
            self._to(ClientState.PENDING_ERROR if failed else ClientState.PENDING_SHUTDOWN)
        ended = self._release(timeout)
        self._to(ClientState.ERROR if failed else ClientState.NOT_RUNNING)
        return ended

    def run(self, *, until_idle: bool = False, stop: threading.Event | None = None) -> None:
        """Start, and run until `stop` is set, SIGTERM or SIGINT (main thread), a failure, or nothing is left to do.

        Raises the error that ended a thread.
        """
        asked = stop or threading.Event()
        restore_signals = _catch_signals(asked) if stop is None else lambda: None
        try:
            self.start()
            try:
                if until_idle:
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
        sums: dict[Id, int] = {}
        if self._directory is not None:
            for name in self._directory.tasks():
                try:
                    offsets = read_checkpoint(self._directory.path / name)
                except StateError as error:
                    log.warning("%s", error)
                    continue
                if offsets:
                    sub, partition = map(int, name.split("_"))
                    sums[sub, partition] = offset_sum(offsets.values())
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

    def _start(self) -> None:
        plan, config = self.plan, self.plan.config
        count = int(config["num.stream.threads"])
        if count < 1:
            raise ConfigError(f"num.stream.threads is {count}; expected at least 1")
        has_global = any(sub.is_global for sub in plan.sub_topologies)
        topics = prepare_topics(plan, self._transport)
        self._directory = StateDirectory(config["state.dir"], plan.application)
        cache = max(0, int(config["statestore.cache.max.bytes"])) // (count + has_global)
        shared = Shared(plan, self._transport, self._settings, self._directory, topics, cache)
        self._shared = shared
        shared.changed = self._thread_changed
        if has_global:
            self._global = GlobalThread(f"{plan.application}-GlobalStreamThread", shared, self._fail)
            self._global.open()
            self._global.start()
        process = str(self._directory.process_id())
        names = [f"{plan.application}-{process}-StreamThread-{number}" for number in range(1, count + 1)]
        self._coordinator = shared.coordinator = Coordinator(topics, names, config.get("application.server") or "")
        self.threads = [
            StreamThread(
                name, shared, f"{plan.application}-{process}-{number}" if self._settings.exactly_once else None
            )
            for number, name in enumerate(names, 1)
        ]
        interval = self._settings.max_poll_interval_ms
        self._following = Following(self._coordinator, lambda: self.threads, interval)
        if MEMBERSHIP in self._transport.features:
            self._coordinator.join(self._transport, plan.application, f"{process}-{socket.gethostname()}-{os.getpid()}")
            self._following.begin({})
        else:
            self._following.begin(self._coordinator.first())
        for thread in self.threads:
            thread.start()

    def _look_after(self) -> None:
        self._status.sample()
        if self._following is not None:
            self._following.look()

    def _all_idle(self) -> bool:
        self._wake.clear()
        threads = self.threads
        assert self._following is not None
        if not self._following.settled or not all(thread.idle for thread in threads):
            return False
        before = [thread.activity for thread in threads]
        try:
            behind = self._behind({tp: offset for thread in threads for tp, offset in thread.positions.items()})
        except (RetriableTransportError, UnreachableError) as error:
            log.info("%s; trying again", error)
            return False
        # Had any thread worked meanwhile, it might have written behind what was just looked at.
        quiet = all(thread.idle for thread in threads) and before == [thread.activity for thread in threads]
        return quiet and not behind and self.state is ClientState.RUNNING

    def _behind(self, positions: dict[TopicPartition, int]) -> bool:
        """Return whether any input has records beyond what this process read, or other processes committed."""
        assert self._shared is not None
        topics = self._shared.topics
        inputs = list({tp for task in topics.tasks() for tp in topics.partitions_of(task)})
        if not inputs:
            return False
        exactly_once = self._settings.exactly_once
        consumer = self._transport.consumer(self.plan.application, read_committed=exactly_once, client_id="idle")
        try:
            ends = consumer.end_offsets(inputs)
            others = [tp for tp in inputs if tp not in positions]
            committed = consumer.committed(others) if others else {}
            empty = consumer.beginning_offsets([tp for tp in others if tp not in committed])
        finally:
            consumer.close()
        # The marker of the last transaction is not read by who committed the records before it.
        marker = 1 if exactly_once else 0
        done = {**empty, **{tp: offset.offset + marker for tp, offset in committed.items()}, **positions}
        return any(done[tp] < end for tp, end in ends.items())

    def _thread_changed(self, thread: StreamThread) -> None:
        if thread.error is not None and thread.state is ThreadState.DEAD:
            self._fail(thread.error)
        with self._lock:
            if self.state in (ClientState.REBALANCING, ClientState.RUNNING):
                state = client_state(
                    [each.state for each in self.threads], self._global is None or not self._global.error
                )
                if state is not self.state:
                    self._to(state)
        self._wake.set()

    def _fail(self, error: BaseException) -> None:
        self.error = self.error or error
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
        if ended and self._global is not None:
            self._global.stop()
            ended = self._global.close(left())
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


def _catch_signals(asked: threading.Event) -> Callable[[], None]:
    """Have SIGTERM and SIGINT set the event; return what puts the old handlers back. Only the main thread can do so."""
    if threading.current_thread() is not threading.main_thread():
        return lambda: None

    def ask(number: int, frame: Any) -> None:
        asked.set()

    before = {number: signal.signal(number, ask) for number in (signal.SIGTERM, signal.SIGINT)}

    def restore() -> None:
        for number, handler in before.items():
            signal.signal(number, handler)

    return restore
