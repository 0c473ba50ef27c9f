"""Where tasks begin: bounds of changelogs, committed offsets, and the reset policy where nothing is committed."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from streamkit.config.resets import BY_DURATION, OffsetReset, parse_reset
from streamkit.errors import StreamkitError
from streamkit.record import TopicPartition
from streamkit.runtime.local.local_task import LocalTask
from streamkit.runtime.local.setup import Shared
from streamkit.transport.base import EARLIEST, LATEST, CommittedOffset, Consumer


def reset_positions(
    shared: Shared, consumer: Consumer, partitions: Iterable[TopicPartition]
) -> dict[TopicPartition, int]:
    """Return EARLIEST, LATEST or an offset for each partition, as the topic's reset policy says (StreamThread.resetOffsets).

    Raises StreamkitError for the policy none, TransportError.
    """
    found: dict[TopicPartition, int] = {}
    times: dict[TopicPartition, int] = {}
    now = shared.clock()
    for partition in partitions:
        reset = _policy(shared, partition.topic)
        if reset.policy == "none":
            raise StreamkitError(
                f"no offset is committed for {partition.topic}-{partition.partition}, and its reset policy is none"
            )
        if reset.policy == BY_DURATION:
            times[partition] = max(0, now - reset.duration_ms)
        else:
            found[partition] = LATEST if reset.policy == "latest" else EARLIEST
    # Where all records are older, reading begins at the end.
    return {**found, **(consumer.offsets_for_times(times) if times else {})}


def _policy(shared: Shared, topic: str) -> OffsetReset:
    plan = shared.plan
    entry = plan.external_topics.get(topic)
    if entry is not None and entry.reset is not None:
        return entry.reset
    stem = topic.removeprefix(f"{plan.application}-")
    if stem != topic and stem in plan.internal_topics:
        # Java takes the application's policy, and so loses records, or never starts.
        return OffsetReset()
    return parse_reset(plan.config.get("auto.offset.reset", "earliest"))


class Starts:
    """The consumer of an updater, and what it asks the log; here a slow answer holds up no task that runs."""

    def __init__(self, shared: Shared, name: str):
        self._shared = shared
        self._name = name
        self._consumer: Consumer | None = None
        self._uncommitted: Consumer | None = None

    @property
    def consumer(self) -> Consumer:
        """The consumer that reads changelogs, and knows the application's committed offsets; opened on first use."""
        if self._consumer is None:
            self._consumer = self._open("restore-consumer", read_committed=self._shared.settings.restore_read_committed)
        return self._consumer

    def bounds(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """Return where changelogs begin and end, open transactions included.

        The last stable offset may lag behind a commit that was acknowledged; reading up to the very end waits for it
        (StoreChangelogReader.endOffsetForChangelogs).
        """
        if not partitions:
            return {}
        whole = self.consumer
        if self._shared.settings.restore_read_committed:
            whole = self._uncommitted = self._uncommitted or self._open("end-consumer", read_committed=False)
        firsts, ends = whole.beginning_offsets(partitions), whole.end_offsets(partitions)
        return {partition: (firsts[partition], ends[partition]) for partition in partitions}

    def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        """Return the application's committed offsets; waits for transactions that are about to commit some."""
        return self.consumer.committed(partitions) if partitions else {}

    def find(self, task: LocalTask) -> None:
        """Set where a task's inputs are to be read on. Raises StreamkitError for the reset policy none, TransportError."""
        inputs = task.task.inputs
        task.committed = self.committed(inputs)
        starts = {partition: offset.offset for partition, offset in task.committed.items()}
        named = reset_positions(self._shared, self.consumer, [at for at in inputs if at not in starts])
        starts.update({at: position for at, position in named.items() if position >= 0})
        for name, find in ((EARLIEST, self.consumer.beginning_offsets), (LATEST, self.consumer.end_offsets)):
            partitions = [at for at, position in named.items() if position == name]
            if partitions:
                starts.update(find(partitions))
        task.at_end = [at for at, position in named.items() if position == LATEST]
        task.starts = starts

    def close(self) -> None:
        """Leave the log."""
        for consumer in (self._consumer, self._uncommitted):
            if consumer is not None:
                consumer.close()
        self._consumer = self._uncommitted = None

    def _open(self, role: str, *, read_committed: bool) -> Consumer:
        shared = self._shared
        return shared.transport.consumer(
            shared.plan.application, read_committed=read_committed, role="restore", client_id=f"{self._name}-{role}"
        )
