"""Start positions of tasks: bounds of changelogs, committed offsets, and the reset policy if nothing is committed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from streamkit.config.settings import BY_DURATION, OffsetReset, parse_reset
from streamkit.errors import StreamkitError
from streamkit.record import TopicPartition
from streamkit.runtime.local.local_task import LocalTask
from streamkit.runtime.local.setup import Shared
from streamkit.transport.log_interface import EARLIEST, LATEST, CommittedOffset, Consumer


def reset_positions(
    shared: Shared, consumer: Consumer, partitions: Iterable[TopicPartition], lost: str | None = None
) -> dict[TopicPartition, int]:
    """Return EARLIEST, LATEST or an offset for each partition, by the topic's reset policy (StreamThread.resetOffsets).

    lost: what happened to the records at the committed offset; None if there is no such offset. Raises StreamkitError for the
    policy none, TransportError.
    """
    found: dict[TopicPartition, int] = {}
    times: dict[TopicPartition, int] = {}
    now = shared.clock()
    for partition in partitions:
        reset = _policy(shared, partition.topic)
        if reset.policy == "none":
            why = lost or f"no offset is committed for {partition.topic}-{partition.partition}"
            raise StreamkitError(
                f"{why}, and its reset policy is none; set a start offset with `streamkit reset-offsets`"
            )
        if reset.policy == BY_DURATION:
            times[partition] = max(0, now - reset.duration_ms)
        else:
            found[partition] = LATEST if reset.policy == "latest" else EARLIEST
    # If all records are older, reading begins at the end.
    return {**found, **(consumer.offsets_for_times(times) if times else {})}


def _policy(shared: Shared, topic: str) -> OffsetReset:
    plan = shared.plan
    entry = plan.external_topics.get(topic)
    if entry is not None and entry.reset is not None:
        return entry.reset
    stem = topic.removeprefix(f"{plan.application}-")
    if stem != topic and stem in plan.internal_topics:
        # Java uses the application's policy for internal topics, and therefore loses records or never starts.
        return OffsetReset()
    return parse_reset(plan.config.auto_offset_reset)


class StartPositions:
    """The consumer of a state updater, and its requests to the log; a slow response does not block running tasks."""

    def __init__(self, shared: Shared, name: str):
        self._shared = shared
        self._name = name
        self._consumer: Consumer | None = None
        self._uncommitted: Consumer | None = None

    @property
    def consumer(self) -> Consumer:
        """The consumer for changelogs and the application's committed offsets; opened on first use."""
        if self._consumer is None:
            self._consumer = self._open("restore-consumer", read_committed=self._shared.settings.restore_read_committed)
        return self._consumer

    def bounds(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """Return the first and end offsets of changelogs, open transactions included.

        The last stable offset may be behind an acknowledged commit; restoring up to the real end waits for it
        (StoreChangelogReader.endOffsetForChangelogs).
        """
        if not partitions:
            return {}
        end_consumer = self.consumer
        if self._shared.settings.restore_read_committed:
            end_consumer = self._uncommitted = self._uncommitted or self._open("end-consumer", read_committed=False)
        firsts, ends = end_consumer.beginning_offsets(partitions), end_consumer.end_offsets(partitions)
        return {partition: (firsts[partition], ends[partition]) for partition in partitions}

    def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """Return the application's committed offsets, after pending transactions that commit some have ended."""
        return self.consumer.committed(partitions) if partitions else {}

    def set_start(self, task: LocalTask) -> None:
        """Set the start positions of a task's inputs. Raises StreamkitError for the reset policy none, TransportError."""
        inputs = task.task.inputs
        task.committed = self.committed(inputs)
        start_positions = {partition: offset.offset for partition, offset in task.committed.items()}
        named = reset_positions(self._shared, self.consumer, [at for at in inputs if at not in start_positions])
        start_positions.update({at: position for at, position in named.items() if position >= 0})
        for name, offsets_of in ((EARLIEST, self.consumer.beginning_offsets), (LATEST, self.consumer.end_offsets)):
            partitions = [at for at, position in named.items() if position == name]
            if partitions:
                start_positions.update(offsets_of(partitions))
        task.at_end = [at for at, position in named.items() if position != EARLIEST]
        task.start_positions = start_positions

    def close(self) -> None:
        """Close the consumers."""
        for consumer in (self._consumer, self._uncommitted):
            if consumer is not None:
                consumer.close()
        self._consumer = self._uncommitted = None

    def _open(self, role: str, *, read_committed: bool) -> Consumer:
        shared = self._shared
        return shared.transport.consumer(
            shared.plan.application, read_committed=read_committed, role="restore", client_id=f"{self._name}-{role}"
        )
