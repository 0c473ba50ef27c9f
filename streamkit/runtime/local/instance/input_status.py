"""All inputs of an application as one of its instances knows them: its own positions, and the group's commits and owners."""

from __future__ import annotations

import logging
from collections.abc import Iterable

from streamkit.errors import StreamkitError
from streamkit.plan.model import Plan
from streamkit.record import TopicPartition
from streamkit.runtime.local.instance.status_model import InputStatus, ThreadStatus
from streamkit.runtime.local.recent import Recent
from streamkit.runtime.local.topics_on_log import TopicsOnLog
from streamkit.runtime.operations.group_lag import GroupLag, GroupReader, PartitionLag
from streamkit.transport.log_interface import Transport

log = logging.getLogger(__name__)


class InputReader:
    """Reads the group's lag, at most once a second; used by any number of threads."""

    def __init__(self, plan: Plan, transport: Transport):
        self._reader = GroupReader(plan, transport, "status")
        self._topics: TopicsOnLog | None = None
        self._lag = Recent(self._read)

    def read(self, topics: TopicsOnLog | None) -> GroupLag | None:
        """Return the lag of the group; None before the start, and while the log does not respond."""
        if topics is None:
            return None
        self._topics = topics
        return self._lag.get()

    def close(self) -> None:
        """Close the connections."""
        self._lag.freeze()
        self._reader.close()

    def _read(self) -> GroupLag | None:
        assert self._topics is not None
        try:
            return self._reader.read(self._topics.inputs, self._topics.partitions)
        except StreamkitError as error:
            log.info("the group's offsets are not known: %s", error)
            return None


def inputs_of(
    topics: TopicsOnLog | None, threads: Iterable[ThreadStatus], group: GroupLag | None
) -> tuple[InputStatus, ...]:
    """Return all input partitions; none before the start. group: None where the log does not respond."""
    if topics is None:
        return ()
    own = {
        TopicPartition(each.topic, each.partition): (task.state, each)
        for thread in threads
        for task in thread.tasks
        if task.kind == "active"
        for each in task.inputs
    }
    known = {} if group is None else {TopicPartition(each.topic, each.partition): each for each in group.partitions}
    found = []
    for task in topics.tasks():
        for place in topics.partitions_of(task):
            state, mine = own.get(place, (None, None))
            other = known.get(place)
            committed, end, lag = (None, None, None) if other is None else (other.committed, other.end, other.lag)
            member = None if other is None else other.member
            position = None if mine is None else mine.position
            if mine is not None and mine.lag is not None:
                end, lag = mine.end, mine.lag
            shown = state or _state(other)
            found.append(InputStatus(*place, str(task), member, shown, committed, position, end, lag))
    return tuple(found)


def _state(partition: PartitionLag | None) -> str:
    """Return the state of an input that no task of this instance reads."""
    if partition is None:
        return "UNKNOWN"
    return "UNOWNED" if partition.member is None else "ASSIGNED"
