"""The metadata of an instance that callers read: threads, tasks, other instances, metrics, progress (KafkaStreams)."""

from __future__ import annotations

from streamkit.errors import StoreUnavailableError
from streamkit.metrics import Metrics
from streamkit.plan.model import Plan
from streamkit.record import TaskId
from streamkit.runtime.local.group.coordinator import Coordinator
from streamkit.runtime.local.group.instances import InstanceMetadata, KeyMetadata, key_metadata
from streamkit.runtime.local.group.rebalance_listener import Rebalance, RebalanceListener
from streamkit.runtime.local.instance.queries import Find, is_global, require_store
from streamkit.runtime.local.setup import Shared
from streamkit.runtime.local.tasks.local_task import sums_on_disk
from streamkit.runtime.local.tasks.restore_progress import RestoreProgress
from streamkit.runtime.local.threads.gate import Gate
from streamkit.runtime.local.threads.global_thread import GlobalThread
from streamkit.runtime.local.threads.states import ClientState
from streamkit.runtime.local.threads.stream_thread import StreamThread
from streamkit.runtime.local.threads.thread_set import Threads
from streamkit.runtime.local.topics_on_log import TopicsOnLog
from streamkit.state.files.directory import StateDirectory


class InstanceMetadataReader:
    """The part of an Application that only reads its state; every thread may call it."""

    def __init__(self, plan: Plan):
        self.plan = plan
        self.state = ClientState.CREATED
        self.process_id = ""
        """The process id of the state directory, with which this member's name in the group begins; empty before the start."""
        self.global_thread: GlobalThread | None = None
        self._threads: Threads | None = None
        self._directory: StateDirectory | None = None
        self._coordinator: Coordinator | None = None
        self._shared: Shared | None = None
        self._rebalance_listener: RebalanceListener | None = None

    @property
    def threads(self) -> list[StreamThread]:
        """The stream threads, including those that have ended until others replace them."""
        return [] if self._threads is None else self._threads.all

    def global_stores(self, name: str) -> tuple[Gate, Find]:
        """Return the gate of the global thread, and the function that finds a store under it. Raises StoreUnavailableError."""
        thread = self.global_thread
        if thread is None:
            raise StoreUnavailableError(f"store {name} can't be read before the application has started")
        return thread.gate, lambda: thread.stores(name)

    @property
    def topics(self) -> TopicsOnLog | None:
        """The topics that the start has found; None before."""
        return None if self._shared is None else self._shared.topics

    @property
    def ends_all(self) -> bool:
        """Whether an instance has failed and requested that all end, and the group's assignment contains that."""
        return self._coordinator is not None and self._coordinator.all_must_end

    @property
    def ready(self) -> bool:
        """Whether this instance has its assignment, and every thread runs its tasks."""
        return (
            self.state is ClientState.RUNNING
            and self._rebalance_listener is not None
            and self._rebalance_listener.settled
        )

    def metadata_for_all(self) -> list[InstanceMetadata]:
        """Return the instances of the application by the group's last assignment; none before the first one."""
        return [] if self._coordinator is None else list(self._coordinator.instances)

    def key_metadata(self, name: str, key: bytes) -> KeyMetadata:
        """Return the location of a key, by its bytes, without the window in window and session stores.

        For a global store it is this instance. Raises UnknownStoreError, StoreUnavailableError before the start.
        """
        require_store(self.plan, name)
        if is_global(self.plan, name):
            return KeyMetadata(0, self.plan.config.get("application.server") or "")
        return key_metadata(self.plan, self._topics(), name, key, self.metadata_for_all())

    def tasks(self) -> list[TaskId]:
        """Return all tasks of the application. Raises StoreUnavailableError before the start."""
        return self._topics().tasks()

    def _topics(self) -> TopicsOnLog:
        if self._shared is None:
            raise StoreUnavailableError("the application has not started: its tasks are not known")
        return self._shared.topics

    @property
    def rebalances(self) -> list[Rebalance]:
        """The last assignments of the group to this instance, the oldest first."""
        return [] if self._rebalance_listener is None else list(self._rebalance_listener.rebalances)

    @property
    def metrics(self) -> Metrics:
        """The metrics since the start; empty before."""
        return Metrics() if self._shared is None else self._shared.metrics

    def restore_progress(self) -> list[RestoreProgress]:
        """Return the progress of stores that are being restored, or updated as standbys."""
        return [progress for thread in list(self.threads) for progress in thread.restore_progress()]

    def task_offset_sums(self) -> dict[TaskId, int]:
        """Return the offset sum of each task with state here (TaskManager.taskOffsetSums).

        Running tasks: RUNNING; other tasks of a thread, or on disk with a checkpoint: the sum of their offsets. A
        checkpoint that can't be read counts as none.
        """
        sums = {} if self._directory is None else sums_on_disk(self._directory)
        for thread in list(self.threads):
            sums.update(thread.offset_sums())
        return sums
