"""The global thread, which fills global stores from their topics for all tasks of the process (GlobalStreamThread)."""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable
from dataclasses import replace

from streamkit.errors import RetriableTransportError, TaskCorruptedError, UnreachableError
from streamkit.metrics import DroppedCount, DropWarnings
from streamkit.plan.model import SubTopology
from streamkit.record import TopicPartition
from streamkit.runtime.execution.store_opening import DirectoryStores, ReprocessedTopic, reprocesses
from streamkit.runtime.execution.task import Task
from streamkit.runtime.execution.task_environment import TaskEnvironment, TaskSpec
from streamkit.runtime.local.gate import Gate
from streamkit.runtime.local.restore import Changelog, restore
from streamkit.runtime.local.setup import Shared, StopRequestedError
from streamkit.state.definitions import Store
from streamkit.state.directory import read_checkpoint, write_checkpoint
from streamkit.transport.log_interface import EARLIEST, Consumer

log = logging.getLogger(__name__)

RETRY_SECONDS = 1.0


class GlobalThread:
    """Restores global stores to the ends of their topics, then updates them."""

    def __init__(self, name: str, shared: Shared, failed: Callable[[BaseException], None]):
        self.name = name
        self.error: BaseException | None = None
        self._shared = shared
        self._failed = failed
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)
        self._stores = DirectoryStores(shared.plan, shared.directory, shared.cache_bytes, shared.topics.ids)
        self._tasks: list[Task] = []
        self._owners: dict[TopicPartition, Task] = {}
        self._followed: dict[TopicPartition, Store] = {}
        self._next: dict[TopicPartition, int] = {}
        self._consumer: Consumer | None = None
        self._last_commit = shared.elapsed()
        self.drops: tuple[DroppedCount, ...] = ()
        """The records that the tasks have dropped, by reason."""
        self._drops_noted: dict[str, int] = {}
        self._warnings = DropWarnings(log)
        self.gate = Gate()
        """Locked whenever the thread may use its stores."""

    def stores(self, name: str) -> list[tuple[int, Store, bool]]:
        """Return the global store of this name, if it exists, as (partition 0, store, is active); the caller holds the gate."""
        return [(0, task.stores[name], True) for task in self._tasks if name in task.stores]

    def followed(self) -> dict[str, tuple[Store, list[TopicPartition]]]:
        """Return each global store by name, with the partitions that it reads; any thread may call it."""
        stores: dict[str, tuple[Store, list[TopicPartition]]] = {}
        for partition, store in list(self._followed.items()):
            stores.setdefault(store.name, (store, []))[1].append(partition)
        return stores

    def open(self, stopping: Callable[[], bool] = lambda: False) -> None:
        """Restore global stores to the current ends of their topics, and make them available to tasks.

        Raises TransportError, and StopRequestedError once `stopping` returns True.
        """
        shared = self._shared
        self._consumer = shared.transport.consumer(
            None,
            read_committed=shared.plan.config.read_committed("global"),
            role="global",
            client_id=f"{self.name}-consumer",
        )
        try:
            try:
                self._restore(stopping)
            except TaskCorruptedError as error:
                log.warning("%s; it is restored from the beginning", error)
                self._close_tasks()
                if error.path is None:
                    shared.directory.wipe("global")
                else:
                    shared.directory.wipe_store("global", error.path.name)
                self._restore(stopping)
        except (RetriableTransportError, UnreachableError, StopRequestedError):
            # The next attempt continues with the stores on disk.
            self._close_tasks()
            self._consumer.close()
            self._consumer = None
            raise
        shared.global_stores = {name: store for task in self._tasks for name, store in task.stores.items()}

    def start(self) -> None:
        """Start the thread."""
        self._thread.start()

    def stop(self) -> None:
        """Ask the thread to end."""
        self._stop.set()

    def close(self, timeout: float | None = None) -> bool:
        """Wait at most `timeout` seconds for the thread's end, then checkpoint and close; return whether it has ended."""
        if self._thread.ident is not None:
            self._thread.join(timeout)
            if self._thread.is_alive():
                return False
        self.gate.acquire()
        try:
            self._commit()
            self._close_tasks()
            self._shared.directory.release("global")
            self._warnings.close(self._shared.elapsed())
        finally:
            self.gate.release()
        if self._consumer is not None:
            self._consumer.close()
        return True

    def _restore(self, stopping: Callable[[], bool]) -> None:
        shared, plan = self._shared, self._shared.plan
        assert self._consumer is not None
        path = shared.directory.claim("global")
        upgrade = not shared.directory.keeps_offsets("global")
        # Global checkpoints contain the next offset, checkpoints of tasks the last one.
        offsets = read_checkpoint(path) if upgrade else {}
        changelogs: list[Changelog] = []
        reprocessing = []
        for sub in (sub for sub in plan.sub_topologies if sub.is_global):
            task = self._open_task(sub)
            self._tasks.append(task)
            self._owners.update(dict.fromkeys(task.spec.inputs, task))
            by_topic = {plan.changelog_name(name): store for name, store in task.stores.items()}
            if reprocesses(sub):
                task.start({})
                reprocessing.append(task)
            for partition in task.spec.inputs:
                store = by_topic.get(partition.topic)
                if store is not None:
                    self._followed[partition] = store
                    if offsets.get(partition, -1) >= 0:
                        store.note_position(partition.partition, offsets[partition])
                    saved = store.position(partition.partition)
                    directory = shared.directory.store("global", store.name) if store.persistent else None
                    place = (store, partition, directory, None if saved is None else saved - 1)
                    changelogs.append(
                        ReprocessedTopic(*place, task=task) if task in reprocessing else Changelog(*place)
                    )
        if upgrade:
            for store in self._followed.values():
                store.commit()
            shared.directory.upgrade("global")
        if not restore(changelogs, self._consumer, lambda: stopping() or self._stop.is_set()):
            raise StopRequestedError
        for task in reprocessing:
            # As in Java, a restore uses a processor of its own, whose fields are lost afterwards.
            task.reset()
        self._next = dict.fromkeys(self._owners, EARLIEST)
        self._next.update({changelog.partition: changelog.end for changelog in changelogs if changelog.end is not None})
        self._consumer.assign(self._next)
        for task in self._tasks:
            task.start({})
        self._note_drops()

    def _open_task(self, sub: SubTopology) -> Task:
        shared = self._shared
        inputs = tuple(
            TopicPartition(topic, partition)
            for topic in sub.source_topics
            for partition in range(shared.topics.partitions[topic])
        )
        spec = TaskSpec("global", 0, sub, shared.program(sub), inputs)
        environment = TaskEnvironment(
            shared.plan,
            clock=shared.clock,
            open_store=self._stores.open,
            partitions=shared.partitions,
            handlers=shared.settings.handlers.of_globals(),
        )
        return Task(spec, environment)

    def _run(self) -> None:
        self.gate.acquire()
        try:
            while not self._stop.is_set():
                try:
                    self._round()
                except (RetriableTransportError, UnreachableError) as error:
                    log.warning("%s; trying again", error)
                    with self.gate.opened():
                        self._stop.wait(RETRY_SECONDS)
        except BaseException as error:
            self.error = error
            self._failed(error)
        finally:
            self.gate.release()

    def _round(self) -> None:
        assert self._consumer is not None
        settings = self._shared.settings
        with self.gate.opened():
            batches = self._consumer.poll(settings.max_poll_records, settings.poll_ms)
        for batch in batches:
            partition = TopicPartition(batch.topic, batch.partition)
            self._owners[partition].update(batch)
            self._next[partition] = batch.offsets[-1] + 1
        if batches:
            self._note_drops()
        now = self._shared.elapsed()
        self._warnings.write(now)
        if now - self._last_commit > settings.commit_interval_ms or self._exceeds_limit():
            self._commit()
            self._last_commit = now

    def _note_drops(self) -> None:
        counts: dict[str, DroppedCount] = {}
        for task in self._tasks:
            for count in task.drops.view():
                others = counts.get(count.reason)
                counts[count.reason] = replace(count, dropped=count.dropped + (others.dropped if others else 0))
        self.drops = tuple(counts.values())
        self._warnings.note("global", self.drops, self._drops_noted)

    def _exceeds_limit(self) -> bool:
        limit = self._shared.uncommitted_bytes
        return limit is not None and sum(task.uncommitted_bytes() for task in self._tasks) > limit

    def _commit(self) -> None:
        for task in self._tasks:
            task.flush_stores()
            # A global task writes nothing to the log.
            del task.output[:]
        offsets = {partition: offset for partition, offset in self._next.items() if offset >= 0}
        for partition, offset in offsets.items():
            if partition in self._followed:
                self._followed[partition].note_position(partition.partition, offset)
        for task in self._tasks:
            for store in task.stores.values():
                store.commit()
        if any(store.persistent for task in self._tasks for store in task.stores.values()):
            write_checkpoint(self._shared.directory.global_state(), offsets)

    def _close_tasks(self) -> None:
        for task in self._tasks:
            task.close()
        self._tasks = []
        self._owners, self._followed = {}, {}
        self._drops_noted.clear()
