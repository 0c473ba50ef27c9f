"""Where tasks begin: bounds of changelogs, committed offsets, and the reset policy where nothing is committed."""

from __future__ import annotations

from collections.abc import Sequence

from streamkit.errors import StreamkitError
from streamkit.record import TopicPartition
from streamkit.runtime.local.local_task import LocalTask
from streamkit.runtime.local.setup import Shared
from streamkit.transport.base import EARLIEST, LATEST, CommittedOffset, Consumer


def reset_position(shared: Shared, partition: TopicPartition) -> int:
    """Return EARLIEST or LATEST, as the topic's reset policy says. Raises StreamkitError for the policy none."""
    topic = shared.plan.external_topics.get(partition.topic)
    reset = topic.reset if topic is not None else "earliest"
    if reset == "none":
        raise StreamkitError(
            f"no offset is committed for {partition.topic}-{partition.partition}, and its reset policy is none"
        )
    return LATEST if reset == "latest" else EARLIEST


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
            self._consumer = self._open("restore-consumer", read_committed=self._shared.settings.exactly_once)
        return self._consumer

    def bounds(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
        """Return where changelogs begin and end, open transactions included.

        The last stable offset may lag behind a commit that was acknowledged; reading up to the very end waits for it
        (StoreChangelogReader.endOffsetForChangelogs).
        """
        if not partitions:
            return {}
        whole = self.consumer
        if self._shared.settings.exactly_once:
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
        named = {at: reset_position(self._shared, at) for at in inputs if at not in starts}
        for name, find in ((EARLIEST, self.consumer.beginning_offsets), (LATEST, self.consumer.end_offsets)):
            partitions = [at for at, position in named.items() if position == name]
            if partitions:
                starts.update(find(partitions))
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
