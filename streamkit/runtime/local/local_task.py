"""A task of this process, active or standby: its stores' changelogs, and its checkpoint (ProcessorStateManager)."""

from __future__ import annotations

import logging
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain, compress
from operator import itemgetter, not_
from pathlib import Path

from streamkit.errors import SerdeError, StateError, TransportError
from streamkit.record import OutputTuple, TaskId, TopicPartition
from streamkit.rounds import MOST, ROW
from streamkit.runtime.execution.store_opening import source_rows
from streamkit.runtime.execution.task import Task
from streamkit.runtime.local.restore import Changelog
from streamkit.state.definitions import Store
from streamkit.state.directory import (
    OFFSET_UNKNOWN,
    StateDirectory,
    read_checkpoint,
    require_restorable,
    write_checkpoint,
)
from streamkit.transport.log_interface import CommittedOffset

log = logging.getLogger(__name__)

CHECKPOINT_AFTER = 10_000
"""The number of changelog records after which the next commit writes a checkpoint (StateManagerUtil)."""
RUNNING = -2
"""The offset sum of a running task, whose stores are up to date (Task.LATEST_OFFSET)."""
_topic_of, _key_of, _value_of = map(itemgetter, (0, 1, 2))

ChangelogNames = Mapping[str, tuple[TopicPartition, bool]]
"""By store: its changelog partition, and whether that is an input of the task."""


@dataclass
class TaskFiles:
    """The directory of a task, if it has persistent stores.

    `stores`: the directories of stores with a changelog, by name. `offsets`: the offsets of the checkpoint if stores of an
    older release do not contain their offsets yet; else None.
    """

    directory: Path | None
    stores: Mapping[str, Path] = field(default_factory=dict)
    offsets: dict[TopicPartition, int] | None = None


def open_files(
    directory: StateDirectory, task_id: str, changelogs: ChangelogNames, eos: bool, unlogged: Collection[str] = ()
) -> TaskFiles:
    """Return a task's files; `changelogs`: those of its persistent stores; `unlogged`: persistent stores without one.

    Stores contain their offsets. Stores of an older release do not: their offsets are read from the checkpoint once. A store
    that the checkpoint does not name is deleted and restored from the beginning: it may belong to another application, or have
    keys whose tombstones are deleted. Under exactly-once, all state of the task is then deleted, since it may contain changes
    that were never committed. Raises StateError.
    """
    if not changelogs and not unlogged:
        return TaskFiles(None)
    path = directory.claim(task_id, unlogged)
    stores = {store: directory.store(task_id, store) for store in changelogs}
    if directory.keeps_offsets(task_id):
        return TaskFiles(path, stores)
    places = {store: partition for store, (partition, _) in changelogs.items()}
    offsets = {place: offset for place, offset in read_checkpoint(path).items() if place in places.values()}
    unknown = [store for store, place in places.items() if place not in offsets or not stores[store].exists()]
    if unknown and eos:
        require_restorable(path, unlogged, "may have changes that were never committed")
        directory.wipe(task_id)
        path, offsets = directory.claim(task_id), {}
    for store in unknown:
        directory.wipe_store(task_id, store)
        offsets.pop(places[store], None)
    return TaskFiles(path, stores, offsets)


def offset_sum(offsets: Iterable[int]) -> int:
    """Return the sum of the known changelog offsets, limited to the range of a long (TaskManager).

    >>> offset_sum([5, OFFSET_UNKNOWN, 7])
    12
    """
    return min(sum(offset for offset in offsets if offset != OFFSET_UNKNOWN), 2**63 - 1)


def sums_on_disk(directory: StateDirectory) -> dict[TaskId, int]:
    """Return the offset sums of tasks that have a readable checkpoint on disk."""
    sums = {}
    for name in directory.tasks():
        try:
            offsets = read_checkpoint(directory.path / name)
        except StateError as error:
            # The next owner of the task reports the error; here the task is skipped.
            log.info("%s", error)
            continue
        if offsets:
            sums[TaskId.parse(name)] = offset_sum(offsets.values())
    return sums


def _entry(last: int) -> int:
    """Return the checkpoint entry for the last offset of a store, which is -1 if its changelog has no records."""
    return last if last >= 0 else OFFSET_UNKNOWN


def _has_rows(store: Store) -> bool:
    try:
        return next(iter(store.rows()), None) is not None
    except SerdeError:
        return True


class LocalTask:
    """A task with its files and changelogs. One thread owns it at a time: a stream thread or its state updater."""

    def __init__(
        self,
        task_id: TaskId,
        task: Task,
        files: TaskFiles,
        changelogs: ChangelogNames,
        last: frozenset[str] = frozenset(),
    ):
        """`last`: the topics of changelogs whose rows are held until the output before them is acknowledged."""
        self.id = task_id
        self.held: list[OutputTuple] = []
        """Rows of these changelogs."""
        self._held_bytes = 0
        self._last = last
        self.task = task
        self.files = files
        self.active = True
        """Whether the task runs once its stores are restored; the stores of a standby follow their changelogs."""
        self.running = False
        self.error: BaseException | None = None
        """The error with which restoring or following its changelogs failed."""
        self.roles = 0
        """How often the task has changed its role: what was looked up for an earlier role is no longer valid."""
        self.produced: Counter[str] = Counter()
        """Records written by topic, changelogs included."""
        self.commits = 0
        self.wakes = 0
        """How often its thread has found something to do for the task."""
        self.process_seconds = 0.0
        self.dropped = 0
        """Dropped records up to the last commit; the task counts later ones."""
        self.drops_noted: dict[str, int] = {}
        """The dropped records, by reason, that the committer has noted for the log."""
        self.committed: dict[TopicPartition, CommittedOffset] = {}
        """The committed offsets of its inputs."""
        self.start_positions: dict[TopicPartition, int] = {}
        """The offsets from which its inputs are read."""
        self.at_end: list[TopicPartition] = []
        """Inputs without a committed offset that are read from their ends, by their reset policy."""
        self._unlogged = [store for name, store in task.stores.items() if store.durable and name not in changelogs]
        self._set_offsets(changelogs)
        self.changelogs = [self._changelog(store, *place) for store, place in changelogs.items()]
        self._written = {
            changelog.partition: _entry(changelog.checkpoint)
            for changelog in self.changelogs
            if changelog.checkpoint is not None
        }

    @property
    def name(self) -> str:
        """The task's id as text, such as 0_1."""
        return self.task.task_id

    def _set_offsets(self, changelogs: ChangelogNames) -> None:
        """Set the offsets of stores of an older release from the checkpoint."""
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
        # Uncommitted records of an input reach the store when they are processed.
        if not is_input:
            return Changelog(store, partition, path, checkpoint)
        return Changelog(store, partition, path, checkpoint, limit=0, rows_of=source_rows(self.task, name, partition))

    def offset_sum(self) -> int:
        """Return RUNNING, or the sum of the changelogs' next offsets."""
        return RUNNING if self.running else offset_sum(changelog.position or 0 for changelog in self.changelogs)

    def follow(self, *, active: bool) -> None:
        """Become a standby, or an active task to restore, and keep the stores (Task.prepareRecycle)."""
        self.active = active
        self.roles += 1
        if self.running:
            self.task.reset()
            self.running = False
        for changelog in self.changelogs:
            changelog.start, changelog.end, changelog.restored = None, None, 0

    def suspend(self) -> None:
        """End the bulk loads of its stores and write its checkpoint: the task stops running or restoring.

        Raises StateError.
        """
        for changelog in self.changelogs:
            changelog.end_load()
        self.checkpoint(enforce=True)

    def hold(self) -> None:
        """Move rows of changelogs that are written last from the output to `held`."""
        output, last = self.task.output, self._last
        if not last:
            return
        is_held = [*map(last.__contains__, map(_topic_of, output))]
        rows = [*compress(output, is_held)]
        if rows:
            self.held += rows
            parts = chain(map(_key_of, rows), map(_value_of, rows))
            self._held_bytes += ROW * len(rows) + sum(map(len, filter(None, parts)))
            output[:] = [] if len(rows) == len(output) else [*compress(output, map(not_, is_held))]

    @property
    def holds_too_much(self) -> bool:
        """Whether `held` takes more memory than the output of a round may."""
        return self._held_bytes > MOST

    def note_none_held(self) -> None:
        """Note that the rows of `held` are sent."""
        self.held.clear()
        self._held_bytes = 0

    def count_output(self, counts: Mapping[str, int], topics: Sequence[str], rows: Sequence[OutputTuple]) -> None:
        """Count a batch of rows, by topic and with the topic of each, and record the latencies at the sinks that wrote them."""
        self.produced.update(counts)
        self.task.record_written(counts, topics, rows)

    # -- Offsets ------------------------------------------------------------------------------------------------------

    def commit_positions(self, partitions: Collection[TopicPartition]) -> None:
        """Request a commit of the positions of inputs for which a reset policy has chosen a later position than the beginning.

        In Java the first commit comes after the first record. A restart, a crash or a move of the task before that begins at a
        later end, and skips the records that were written meanwhile.
        """
        if partitions:
            self.task.touch(partitions)
            self.task.request_commit()

    def run(self) -> None:
        """Start counting the records that the task writes to its changelogs; its stores are fully restored."""
        self._warn_of_lost_offsets()
        self._warn_of_other_state()
        self.running = True
        for changelog in self.changelogs:
            changelog.produced, changelog.marked = self.produced[changelog.partition.topic], False

    def _warn_of_lost_offsets(self) -> None:
        # Markers of transactions, and what they have aborted, advance the positions of stores that have no rows.
        stores = [changelog.store for changelog in self.changelogs if changelog.limit is None and changelog.position]
        if not self.committed and any(map(_has_rows, stores)):
            log.warning(
                "task %s: its stores have records, but no offset of its inputs is committed: offsets have expired "
                "(offsets.retention.minutes) or were deleted, or a process has crashed before its first commit. Records that it reads again count twice, and a reset policy may skip "
                "others; `streamkit reset-offsets` begins with empty stores",
                self.name,
            )

    def _warn_of_other_state(self) -> None:
        """Warn of stores without a changelog that are not of the last commit: after a crash, damage, or a move of the task."""
        committed = self._committed_inputs()
        for store in self._unlogged:
            known = store.inputs()
            found = [f"{place} up to {had}" for place, had in known.items() if committed.get(place, had) != had]
            if committed and not known and not _has_rows(store):
                found = ["no input"]
            if found:
                log.warning(
                    "task %s: the state of store %s has %s, and not what is committed; it has no changelog to be restored from, "
                    "and `streamkit reset-offsets` begins with empty stores",
                    self.name,
                    store.name,
                    ", ".join(found),
                )

    def _committed_inputs(self) -> dict[str, int]:
        return {f"{place.topic}-{place.partition}": committed.offset for place, committed in self.committed.items()}

    def note_positions(self, *, marks: bool) -> None:
        """Set the positions of the stores after a commit that the log has acknowledged; the stores are committed next.

        In a changelog the position is after the records that the task has written, in a source topic after the records that
        it has processed. `marks`: see Changelog.wrote.
        """
        for store in self._unlogged:
            store.note_inputs(self._committed_inputs())
        consumed = self.task.consumed()
        for changelog in self.changelogs:
            partition = changelog.partition
            if changelog.limit is None:
                changelog.wrote(self.produced[partition.topic], marks=marks)
            elif partition in consumed:
                changelog.position = changelog.limit = consumed[partition] + 1
            if changelog.position is not None:
                changelog.store.note_position(partition.partition, changelog.position)

    def checkpoint(self, *, enforce: bool) -> bool:
        """Write the changelogs' positions to the checkpoint if it is due or `enforce` is set.

        Returns whether it was written. Raises StateError.
        """
        if self.files.directory is None:
            return False
        offsets = dict(self._written)
        for changelog in self.changelogs:
            if changelog.store.persistent and changelog.position is not None:
                offsets[changelog.partition] = _entry(changelog.position - 1)
        progress = sum(max(offset, -1) - max(self._written.get(at, -1), -1) for at, offset in offsets.items())
        if not enforce and progress <= CHECKPOINT_AFTER:
            return False
        write_checkpoint(self.files.directory, offsets)
        self._written = offsets
        return True


# Tolerates transient errors for task.timeout.ms (KIP-572).

WARN_AFTER_MS = 5_000
WARN_EVERY_MS = 30_000


class TaskTimeout:
    """The time since which each task has made no progress; `clock`: a monotonic clock in milliseconds."""

    def __init__(self, limit_ms: int, clock: Callable[[], int]):
        self._limit_ms = limit_ms
        self._clock = clock
        self._since: dict[str, int] = {}
        self._failing_since: int | None = None
        self._warn_at = 0

    def note_error(self, error: TransportError, tasks: Iterable[str]) -> None:
        """Note a transient error that blocks these tasks; without tasks it is only a delay.

        Logs a warning only if errors last for WARN_AFTER_MS, and then every WARN_EVERY_MS, since most end at once. Raises
        TransportError once a task has made no progress for longer than task.timeout.ms.
        """
        now = self._clock()
        self._since = {task: self._since.get(task, now) for task in tasks}
        for task, since in self._since.items():
            if now - since > self._limit_ms:
                text = f"task {task} made no progress within {self._limit_ms} ms (task.timeout.ms): {error}"
                raise TransportError(text) from error
        if self._failing_since is None:
            self._failing_since, self._warn_at = now, now + WARN_AFTER_MS
        if now >= self._warn_at:
            log.warning("%s; trying again", error)
            self._warn_at = now + WARN_EVERY_MS
        else:
            log.info("%s; trying again", error)

    def note_progress(self, waiting: Iterable[str] = ()) -> None:
        """Note a round without an error; of the blocked tasks, only those in `waiting` are still blocked.

        Every other task has made progress or moved away; if it returns, its time-out begins again.
        """
        self._failing_since = None
        if self._since:
            self._since = {task: self._since[task] for task in waiting if task in self._since}
