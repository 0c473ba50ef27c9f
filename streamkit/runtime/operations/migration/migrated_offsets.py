"""Keeps the committed offsets of a group where the application, its repartition topics or its stores have other names."""

from __future__ import annotations

from collections.abc import Mapping
from contextlib import closing
from dataclasses import dataclass

from streamkit.errors import MigrationError
from streamkit.record import TopicPartition
from streamkit.runtime.execution import metadata
from streamkit.runtime.operations.migration.migration_journal import OFFSETS, Entry
from streamkit.runtime.operations.migration.record_copy import LogAccess
from streamkit.transport.log_interface import CommittedOffset, NewTopic

Offsets = dict[TopicPartition, CommittedOffset]


@dataclass(frozen=True)
class OffsetMove:
    """The groups of both versions, the inputs of the old one, and new names.

    inputs: partition counts by external topic; internals: by internal one; topics: the new repartition topics by the old
    ones; stores: new names by old ones, for the times in the metadata of offsets.
    """

    old_group: str
    new_group: str
    inputs: Mapping[str, int]
    internals: Mapping[str, int]
    topics: Mapping[str, NewTopic]
    stores: Mapping[str, str]

    def pending(self, log: LogAccess) -> Offsets:
        """Return the offsets to commit for the new group. Raises MigrationError where it has others."""
        inputs, internals = self._read(log, self.inputs), self._read(log, self.internals)
        # A new repartition topic is read from its beginning; stream time and the times of stores go on.
        begun = {
            TopicPartition(self.topics[place.topic].name, place.partition): CommittedOffset(0, each.metadata)
            for place, each in internals.items()
            if place.topic in self.topics and self.topics[place.topic].partitions == self.internals[place.topic]
        }
        present = self._present(log, [*inputs, *internals, *begun])
        found = {place: each for place, each in begun.items() if place not in present}
        if self.old_group == self.new_group:
            kept = {place: each for place, each in internals.items() if place.topic not in self.topics}
            return {**found, **{p: each for p, each in {**inputs, **kept}.items() if present.get(p) != each}}
        return {**found, **self._of_inputs(log, inputs, present)}

    def _of_inputs(self, log: LogAccess, inputs: Offsets, present: Offsets) -> Offsets:
        """Return the offsets of inputs for another group, unless it has them or has read on from them."""
        entry, offsets = log.journal.get(OFFSETS), _offsets(inputs)
        is_own = entry is not None and entry.form == self.form
        if entry is not None and is_own and entry.done and entry.source_ends == offsets:
            return {}
        have = {place: present[place] for place in inputs if place in present}
        # After a complete move the old version may have run again; the new one may not have.
        untouched = entry is not None and is_own and (not entry.done or entry.source_ends == _offsets(have))
        if have and not untouched and _offsets(have) != offsets:
            raise MigrationError(
                f"group {self.new_group} has committed offsets already: delete the group, or its offsets stay"
            )
        return {place: each for place, each in inputs.items() if have.get(place) != each}

    @property
    def form(self) -> str:
        """The move as text, for the journal."""
        return f"{self.old_group} -> {self.new_group}"

    def _read(self, log: LogAccess, topics: Mapping[str, int]) -> Offsets:
        """Return the old group's offsets, with the new names of stores."""
        places = [TopicPartition(topic, number) for topic, count in topics.items() for number in range(count)]
        with closing(log.transport.consumer(self.old_group)) as consumer:
            found = consumer.committed(places)
        return {place: CommittedOffset(each.offset, self._renamed(each.metadata)) for place, each in found.items()}

    def _renamed(self, text: str) -> str:
        time, times = metadata.decode(text)
        if not times.keys() & self.stores.keys():
            return text
        return metadata.encode(time, {self.stores.get(name, name): each for name, each in times.items()})

    def _present(self, log: LogAccess, places: list[TopicPartition]) -> Offsets:
        existing = log.admin.topics({place.topic for place in places})
        with closing(log.transport.consumer(self.new_group)) as consumer:
            return consumer.committed([place for place in places if place.topic in existing])

    def is_done(self, log: LogAccess) -> bool:
        """Return whether nothing is pending, and the journal has that. Raises MigrationError where the new group has others."""
        entry = log.journal.get(OFFSETS)
        is_open = entry is not None and not entry.done and entry.form == self.form
        return not is_open and not self.pending(log)

    def begin(self, log: LogAccess) -> None:
        """Note that another group has no offsets so far, so that it does not start. Raises TransportError."""
        entry = log.journal.get(OFFSETS)
        if self.old_group != self.new_group and (entry is None or entry.form != self.form):
            log.journal.put(OFFSETS, Entry(False, self.old_group, self.form))

    def run(self, log: LogAccess) -> None:
        """Commit the pending offsets, and create the topics that need one. Raises MigrationError, TransportError."""
        pending = self.pending(log)
        names = {place.topic for place in pending}
        log.admin.create_topics([topic for topic in self.topics.values() if topic.name in names])
        if pending:  # a crash after the commit leaves the entry only
            with closing(log.transport.consumer(self.new_group)) as consumer:
                consumer.commit(pending)
        if self.old_group != self.new_group:
            offsets = _offsets(self._read(log, self.inputs))
            log.journal.put(OFFSETS, Entry(True, self.old_group, self.form, source_ends=offsets))


def _offsets(found: Offsets) -> tuple[int, ...]:
    return tuple(found[place].offset for place in sorted(found))
