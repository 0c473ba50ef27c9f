"""The part of a topic that is read: partitions, offsets and times."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple

from streamkit.record import TopicPartition
from streamkit.runtime.operations.reset_targets import Target, resolve
from streamkit.transport.log_interface import Consumer


class Range(NamedTuple):
    """A range: the start, and times (ms) that bound the records, `until` not included."""

    start: Target
    since: int | None = None
    until: int | None = None
    partitions: frozenset[int] | None = None

    @property
    def first_offset(self) -> int:
        """The lowest offset of a record in the range."""
        return self.start.number if self.start.kind == "offset" else 0


def first_offsets(consumer: Consumer, start: Target, places: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
    """Return the first offset to read of each partition, within its offsets."""
    # Without committed offsets a shift counts from the end.
    return {place: found or 0 for place, (found, _) in resolve(consumer, start, dict.fromkeys(places)).items()}
