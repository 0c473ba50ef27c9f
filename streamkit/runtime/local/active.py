"""An active task of a thread: the task, its stores' changelogs, and its checkpoint (ProcessorStateManager)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from streamkit.record import TopicPartition
from streamkit.runtime.local.restore import Changelog
from streamkit.runtime.task import Task
from streamkit.state.checkpoint import OFFSET_UNKNOWN, delete_checkpoint, read_checkpoint, write_checkpoint
from streamkit.state.directory import StateDirectory
from streamkit.transport.base import CommittedOffset

CHECKPOINT_AFTER = 10_000
"""Changelog records since the last checkpoint, beyond which the next commit writes one (StateManagerUtil)."""
RUNNING = -2
"""Stands for the offset sum of a task that is up to date because it runs (Task.LATEST_OFFSET)."""


@dataclass
class TaskFiles:
    """The directory of a task, if it has persistent stores, and what its checkpoint said when it was opened."""

    directory: Path | None
    offsets: dict[TopicPartition, int] = field(default_factory=dict)


def open_files(directory: StateDirectory, task_id: str, persistent: bool, eos: bool) -> TaskFiles:
    """Return a task's files. Under exactly-once, state without a checkpoint can't be trusted and is deleted.

    The file is deleted while such a task runs, so that a crash leaves none. Raises StateError.
    """
    if not persistent:
        return TaskFiles(None)
    path = directory.task(task_id)
    offsets = read_checkpoint(path)
    if eos:
        if not offsets and any(path.iterdir()):
            directory.wipe(task_id)
            path = directory.task(task_id)
        delete_checkpoint(path)
    return TaskFiles(path, offsets)


def offset_sum(offsets: Iterable[int]) -> int:
    """Return the sum of changelog offsets, unknown ones left out, no more than a long holds (TaskManager).

    >>> offset_sum([5, OFFSET_UNKNOWN, 7])
    12
    """
    return min(sum(offset for offset in offsets if offset != OFFSET_UNKNOWN), 2**63 - 1)


class ActiveTask:
    """A task with its way back from disk and changelogs."""

    def __init__(self, task: Task, files: TaskFiles, changelog_names: Mapping[str, tuple[str, bool]]):
        """`changelog_names`: by store, the topic on the log, and whether it is a source topic of the task."""
        self.task = task
        self.files = files
        self.produced: Counter[str] = Counter()
        """Records written by topic, changelogs included."""
        self.commits = 0
        self.dropped = 0
        """Dropped records up to the last commit; the task counts those since."""
        self._names = changelog_names
        self._written: dict[TopicPartition, int] = dict(files.offsets)

    @property
    def id(self) -> str:
        """The task's id, such as 0_1."""
        return self.task.task_id

    def changelog_partitions(self) -> list[TopicPartition]:
        """Return the changelog partitions of all stores."""
        return [TopicPartition(topic, self.task.partition) for topic, _ in self._names.values()]

    def count_output(self, rows: Sequence[tuple]) -> None:
        """Count a batch of rows by topic."""
        topics = [row[0] for row in rows]
        first = topics[0]
        same = topics.count(first)
        if same == len(topics):
            self.produced[first] += same
        else:
            self.produced.update(topics)

    def changelogs(self, committed: Mapping[TopicPartition, CommittedOffset]) -> list[Changelog]:
        """Return what has to be restored before the task may start."""
        result = []
        for name, (topic, is_source) in self._names.items():
            store = self.task.stores[name]
            partition = TopicPartition(topic, self.task.partition)
            limit = None
            if is_source:
                # Records that are not committed will be processed again, and reach the store that way.
                limit = committed[partition].offset if partition in committed else 0
            checkpoint = self.files.offsets.get(partition) if store.persistent else None
            result.append(Changelog(store, partition, checkpoint, limit))
        return result

    def checkpoint_partitions(self) -> list[TopicPartition]:
        """Return the changelog partitions that belong in the checkpoint: those of persistent stores."""
        return [
            TopicPartition(topic, self.task.partition)
            for name, (topic, _) in self._names.items()
            if self.task.stores[name].persistent
        ]

    def checkpoint(self, ends: Mapping[TopicPartition, int], *, enforce: bool) -> bool:
        """Write the checkpoint if it is due, or in any case with `enforce`; return whether it was written.

        `ends`: the ends of `checkpoint_partitions`, read after the producer was flushed: only this task writes there.
        """
        if self.files.directory is None:
            return False
        consumed = self.task.consumed()
        sources = {topic for topic, is_source in self._names.values() if is_source}
        offsets = dict(self._written)
        for partition in self.checkpoint_partitions():
            last = consumed.get(partition) if partition.topic in sources else ends[partition] - 1
            if last is not None and last >= 0:
                offsets[partition] = last
        progress = sum(offset - self._written.get(partition, -1) for partition, offset in offsets.items())
        if not enforce and progress <= CHECKPOINT_AFTER:
            return False
        write_checkpoint(self.files.directory, offsets)
        self._written = offsets
        return True
