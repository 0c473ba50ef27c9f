"""A task that this process holds, active or standby: its stores' changelogs, and its checkpoint (ProcessorStateManager)."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from streamkit.errors import StateError
from streamkit.record import TopicPartition
from streamkit.runtime.local.assignor import Id
from streamkit.runtime.local.restore import Changelog
from streamkit.runtime.task import Task
from streamkit.state.checkpoint import OFFSET_UNKNOWN, delete_checkpoint, read_checkpoint, write_checkpoint
from streamkit.state.directory import StateDirectory
from streamkit.transport.base import CommittedOffset

log = logging.getLogger(__name__)

CHECKPOINT_AFTER = 10_000
"""Changelog records since the last checkpoint, beyond which the next commit writes one (StateManagerUtil)."""
RUNNING = -2
"""Stands for the offset sum of a task that is up to date because it runs (Task.LATEST_OFFSET)."""


ChangelogNames = Mapping[str, tuple[TopicPartition, bool]]
"""By store: the partition of the log that is its changelog, and whether that is an input of the task."""


@dataclass
class TaskFiles:
    """The directory of a task, if it has persistent stores, and what its checkpoint said when it was opened."""

    directory: Path | None
    offsets: dict[TopicPartition, int] = field(default_factory=dict)


def open_files(directory: StateDirectory, task_id: str, changelogs: ChangelogNames, eos: bool) -> TaskFiles:
    """Return a task's files; `changelogs`: those of its persistent stores.

    A store that the checkpoint does not name is restored from the beginning, so what lies there is deleted: it may be
    another application's, or hold keys whose tombstones are gone. Under exactly-once all of the task's state is deleted
    then, as it may hold what was never committed; and the file is deleted while such a task runs, so that a crash
    leaves none. Raises StateError.
    """
    if not changelogs:
        return TaskFiles(None)
    path = directory.claim(task_id)
    places = {store: partition for store, (partition, _) in changelogs.items()}
    offsets = {place: offset for place, offset in read_checkpoint(path).items() if place in places.values()}
    unknown = [
        store for store, place in places.items() if place not in offsets or not directory.has_store(task_id, store)
    ]
    if unknown and eos:
        directory.wipe(task_id)
        path, offsets = directory.claim(task_id), {}
    for store in unknown:
        directory.wipe_store(task_id, store)
        offsets.pop(places[store], None)
    if eos:
        delete_checkpoint(path)
    return TaskFiles(path, offsets)


def offset_sum(offsets: Iterable[int]) -> int:
    """Return the sum of changelog offsets, unknown ones left out, no more than a long holds (TaskManager).

    >>> offset_sum([5, OFFSET_UNKNOWN, 7])
    12
    """
    return min(sum(offset for offset in offsets if offset != OFFSET_UNKNOWN), 2**63 - 1)


def sums_on_disk(directory: StateDirectory) -> dict[Id, int]:
    """Return the offset sums of tasks that have a checkpoint on disk; one that can't be read counts as none."""
    sums = {}
    for name in directory.tasks():
        try:
            offsets = read_checkpoint(directory.path / name)
        except StateError as error:
            # Whoever gets the task says so: here it is only not counted.
            log.info("%s", error)
            continue
        if offsets:
            sub, partition = map(int, name.split("_"))
            sums[sub, partition] = offset_sum(offsets.values())
    return sums


class LocalTask:
    """A task with its way back from disk and changelogs. One thread at a time owns it: a stream thread or its updater."""

    def __init__(self, task_id: Id, task: Task, files: TaskFiles, changelogs: ChangelogNames):
        self.id = task_id
        self.task = task
        self.files = files
        self.active = True
        """Whether it is to run once its stores are restored; a standby's follow their changelogs."""
        self.running = False
        self.produced: Counter[str] = Counter()
        """Records written by topic, changelogs included."""
        self.commits = 0
        self.dropped = 0
        """Dropped records up to the last commit; the task counts those since."""
        self.committed: dict[TopicPartition, CommittedOffset] = {}
        """Of its inputs, as of the end of restoring."""
        self.starts: dict[TopicPartition, int] = {}
        """The offsets at which its inputs are to be read on."""
        self._written: dict[TopicPartition, int] = dict(files.offsets)
        self._produced_before = 0
        self.changelogs = [self._changelog(store, *place) for store, place in changelogs.items()]

    @property
    def name(self) -> str:
        """The task's id as text, such as 0_1."""
        return self.task.task_id

    def _changelog(self, name: str, partition: TopicPartition, is_input: bool) -> Changelog:
        store = self.task.stores[name]
        checkpoint = self.files.offsets.get(partition) if store.persistent else None
        # Of an input, records that are not committed will be processed, and reach the store that way.
        return Changelog(store, partition, checkpoint, limit=0 if is_input else None)

    def offset_sum(self) -> int:
        """Return how far the stores are: RUNNING, or the sum of the changelogs' next offsets."""
        return RUNNING if self.running else offset_sum(changelog.position or 0 for changelog in self.changelogs)

    def follow(self, *, active: bool) -> None:
        """Become a standby, or the task that is to run, with the stores as they are (Task.prepareRecycle)."""
        self.active = active
        if self.running:
            self.task.reset()
            self.running = False
        for changelog in self.changelogs:
            changelog.start, changelog.end, changelog.restored = None, None, 0

    def count_output(self, rows: Sequence[tuple]) -> None:
        """Count a batch of rows by topic."""
        topics = [row[0] for row in rows]
        first = topics[0]
        same = topics.count(first)
        if same == len(topics):
            self.produced[first] += same
        else:
            self.produced.update(topics)

    def _logged(self) -> int:
        """Return how many records this task has written to its changelogs."""
        return sum(self.produced[changelog.partition.topic] for changelog in self.changelogs)

    # -- Checkpoint ---------------------------------------------------------------------------------------------------

    def note_positions(self, ends: Mapping[TopicPartition, int]) -> None:
        """Note how far a running task's stores are by `ends`, read after the producer was flushed.

        Only this task writes to its changelogs, so it has applied all of them; of a source topic, what it has processed.
        """
        consumed = self.task.consumed()
        for changelog in self.changelogs:
            if changelog.limit is None:
                changelog.position = ends.get(changelog.partition, changelog.position)
            elif changelog.partition in consumed:
                changelog.position = changelog.limit = consumed[changelog.partition] + 1

    def has_written_much(self) -> bool:
        """Whether the changelogs have grown so far since the last checkpoint that another is due."""
        return self._logged() - self._produced_before > CHECKPOINT_AFTER

    def checkpoint(self, *, enforce: bool) -> bool:
        """Write the changelogs' positions to the checkpoint if that is due, or in any case with `enforce`.

        Returns whether it was written. Raises StateError.
        """
        if self.files.directory is None:
            return False
        offsets = dict(self._written)
        for changelog in self.changelogs:
            if changelog.store.persistent and changelog.position is not None:
                offsets[changelog.partition] = changelog.position - 1 if changelog.position else OFFSET_UNKNOWN
        progress = sum(max(offset, -1) - max(self._written.get(at, -1), -1) for at, offset in offsets.items())
        if not enforce and progress <= CHECKPOINT_AFTER:
            return False
        write_checkpoint(self.files.directory, offsets)
        self._written = offsets
        self._produced_before = self._logged()
        return True

    def delete_checkpoint(self) -> None:
        """Delete the file: the stores will be ahead of it in a way that a crash must not leave behind. Raises StateError."""
        if self.files.directory is not None:
            delete_checkpoint(self.files.directory)
        self._written = {}
