"""The fetching of a stream thread: pauses full partitions, and looks up the lags of empty ones."""

from __future__ import annotations

from streamkit.record import TopicPartition
from streamkit.runtime.local.setup import Settings
from streamkit.runtime.local.tasks.task_manager import TaskManager
from streamkit.transport.log_interface import Consumer


class Fetching:
    """The paused partitions of a thread's consumer, and the lags that its tasks wait for."""

    def __init__(self, consumer: Consumer, tasks: TaskManager, settings: Settings):
        self._consumer = consumer
        self._tasks = tasks
        self._settings = settings
        self._paused: set[TopicPartition] = set()

    def update_lags(self) -> None:
        """Set the lags of empty partitions, for tasks that wait for them (max.task.idle.ms)."""
        if self._settings.max_idle_ms < 0:
            return
        for local_task in self._tasks.running.values():
            task = local_task.task
            inputs = task.inputs
            if len(inputs) == 1 or not task.has_records():
                continue
            empty = [partition for partition in inputs if not task.buffered(partition)]
            if empty:
                task.set_lags(self._consumer.lags(empty))

    def balance(self) -> None:
        """Pause partitions with enough buffered records, and resume the others (buffered.records.per.partition).

        Once a round, not once a batch: queues are nearly always empty by now, and a pause costs a request.
        """
        limit = self._settings.buffered_records
        full = {tp for tp, task in self._tasks.by_partition.items() if task.buffered(tp) > limit}
        if full != self._paused:
            self._consumer.resume((self._paused - full) & self._tasks.by_partition.keys())
            self._consumer.pause(full - self._paused)
            self._paused = full
