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
from streamkit.state.checkpoint import OFFSET_UNKNOWN, read_checkpoint, write_checkpoint
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
    """The directory of a task, if it has persistent stores.

    `stores`: where those with a changelog lie, by name. `offsets`: what the checkpoint said, where stores of an older
    streamkit do not hold their offsets yet; else None.
    """

    directory: Path | None
    stores: Mapping[str, Path] = field(default_factory=dict)
    offsets: dict[TopicPartition, int] | None = None


def open_files(directory: StateDirectory, task_id: str, changelogs: ChangelogNames, eos: bool) -> TaskFiles:
    """Return a task's files; `changelogs`: those of its persistent stores.

    Stores hold their offsets themselves. Those of an older streamkit do not: there the checkpoint says them, once. A
    store that it does not name is restored from the beginning, so what lies there is deleted: it may be another
    application's, or hold keys whose tombstones are gone. Under exactly-once all of the task's state is deleted then, as it
    may hold what was never committed. Raises StateError.
    """
    if not changelogs:
        return TaskFiles(None)
    path = directory.claim(task_id)
    stores = {store: directory.store(task_id, store) for store in changelogs}
    if directory.keeps_offsets(task_id):
        return TaskFiles(path, stores)
    places = {store: partition for store, (partition, _) in changelogs.items()}
    offsets = {place: offset for place, offset in read_checkpoint(path).items() if place in places.values()}
    unknown = [store for store, place in places.items() if place not in offsets or not stores[store].exists()]
    if unknown and eos:
        directory.wipe(task_id)
        path, offsets = directory.claim(task_id), {}
    for store in unknown:
        directory.wipe_store(task_id, store)
        offsets.pop(places[store], None)
    return TaskFiles(path, stores, offsets)


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
            # The next owner of the task reports it: here it is only not counted.
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
        self.at_end: list[TopicPartition] = []
        """Inputs without a committed offset that are read from their ends on, as their reset policy says."""
        self._give_offsets(changelogs)
        self.changelogs = [self._changelog(store, *place) for store, place in changelogs.items()]
        self._written = {each.partition: each.checkpoint for each in self.changelogs if each.checkpoint is not None}

    @property
    def name(self) -> str:
        """The task's id as text, such as 0_1."""
        return self.task.task_id

    def _give_offsets(self, changelogs: ChangelogNames) -> None:
        """Give the stores of an older streamkit what the checkpoint says of them."""
        for name, (partition, _) in changelogs.items():
            offset = (self.files.offsets or {}).get(partition, OFFSET_UNKNOWN)
            if offset >= 0:
                self.task.stores[name].note_position(partition.partition, offset + 1)
                self.task.stores[name].commit()

    def _changelog(self, name: str, partition: TopicPartition, is_input: bool) -> Changelog:
        store = self.task.stores[name]
        position = store.position(partition.partition)
        checkpoint = None if position is None else position - 1
        path = self.files.stores.get(name)
        # Of an input, records that are not committed will be processed, and reach the store that way.
        return Changelog(store, partition, path, checkpoint, limit=0 if is_input else None)

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

    # -- Offsets ------------------------------------------------------------------------------------------------------

    def keep_ends(self) -> None:
        """Let the next commit name the positions of inputs that are read from their ends on.

        Else each of several runs that end when all is read would begin at a later end, and process nothing.
        """
        if self.at_end:
            self.task.touch(self.at_end)
            self.at_end = []

    def run(self) -> None:
        """Count from here on what the task writes to its changelogs: it is restored to their ends."""
        self.running = True
        for changelog in self.changelogs:
            changelog.produced, changelog.marked = self.produced[changelog.partition.topic], False

    def note_positions(self, lost: Mapping[TopicPartition, int], *, marks: bool) -> None:
        """Note in the stores how far they are with the commit that the log has acknowledged; they are written next.

        Of a changelog it is behind what the task has written, of a source topic behind what it has processed. `lost`:
        records of changelogs that were given up since the last commit; `marks`: see Changelog.wrote.
        """
        consumed = self.task.consumed()
        for changelog in self.changelogs:
            partition = changelog.partition
            if changelog.limit is None:
                changelog.wrote(self.produced[partition.topic], lost=lost.get(partition, 0), marks=marks)
            elif partition in consumed:
                changelog.position = changelog.limit = consumed[partition] + 1
            if changelog.position is not None:
                changelog.store.note_position(partition.partition, changelog.position)

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
        return True
