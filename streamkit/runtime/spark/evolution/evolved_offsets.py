"""The offsets and times with which the new version continues after the history of its new stores."""

from __future__ import annotations

from contextlib import closing

from streamkit.errors import MigrationError
from streamkit.record import TopicPartition
from streamkit.runtime.execution import metadata
from streamkit.runtime.operations.record_copy import LogAccess
from streamkit.runtime.spark.checkpoint.manifest import Manifest
from streamkit.runtime.spark.evolution.new_stores import NewStores
from streamkit.runtime.spark.submission.submit_job import global_topics
from streamkit.transport.log_interface import CommittedOffset


class EvolvedOffsets:
    """The offsets of the inputs of new stores, in the group of the application."""

    def __init__(self, stores: NewStores):
        self._stores = stores
        self._plan = stores.plan
        self._globals = set(global_topics(stores.plan))

    def committed_of(self, log: LogAccess, *, with_fresh: bool = True) -> tuple[int, ...]:
        """Return the committed offset of each input partition, -1 where there is none, in the order of their names."""
        topics = {
            topic
            for sub in self._plan.sub_topologies
            if not sub.is_global
            for topic in sub.source_topics
            if topic not in self._plan.internal_topics and (with_fresh or topic not in self._stores.fresh)
        }
        places = [place for topic in sorted(topics) for place in log.partitions(topic)]
        found = self._committed(log, places)
        return tuple(found[place].offset if place in found else -1 for place in places)

    def check(self, log: LogAccess, manifest: Manifest) -> None:
        """Raise MigrationError where the group has committed offsets since the last pass."""
        read = self.read(manifest)
        for place, found in self._committed(log, list(read)).items():
            if found.offset > read[place]:
                raise MigrationError(
                    f"{place.topic}-{place.partition}: group {self._plan.application} has committed offset {found.offset}, and "
                    f"the history was read up to {read[place]}: stop all instances, and repeat"
                )

    def commit(self, log: LogAccess, manifest: Manifest) -> list[str]:
        """Create the repartition topics, and commit offsets of new topics and the times of new stores; return the topics.

        Offsets that exist stay, but for repartition topics that only the new stores read: what a new version that has run
        before left in them is in the history, so that they continue at their ends.
        """
        read = self.read(manifest)
        texts = {
            TopicPartition(topic, number): text
            for memory in manifest.tasks.values()
            for topic, number, text in memory["times"]
        }
        begun = {
            TopicPartition(topic.name, number): 0
            for topic in self._stores.repartitions
            for number in range(topic.partitions)
        }
        existing = [place for topic in sorted(self._stores.unshared) for place in log.partitions(topic)]
        begun.update(zip(existing, log.ends(existing), strict=True))
        log.admin.create_topics(self._stores.repartitions)
        fresh = {place: offset for place, offset in read.items() if place.topic in self._stores.fresh}
        present = self._committed(log, [*read, *begun])
        wanted = {place: CommittedOffset(offset, texts.get(place, "")) for place, offset in {**begun, **fresh}.items()}
        for place, found in present.items():
            offset = begun[place] if place.topic in self._stores.unshared else found.offset
            wanted[place] = CommittedOffset(offset, self._merged(found.metadata, texts.get(place, "")))
        pending = {
            place: each if each.metadata else CommittedOffset(each.offset, metadata.encode(metadata.UNKNOWN))
            for place, each in wanted.items()
            if present.get(place) != each
        }
        if pending:
            with closing(log.transport.consumer(self._plan.application)) as consumer:
                consumer.commit(pending)
        return sorted({place.topic for place in pending})

    def _merged(self, present: str, computed: str) -> str:
        """Return the metadata of the group with the times of the new stores, and the later stream time."""
        time, times = metadata.decode(present)
        later, found = metadata.decode(computed)
        own = {name: each for name, each in found.items() if name in self._stores.changelogs}
        if later <= time and own.items() <= times.items():
            return present
        return metadata.encode(max(time, later), {**found, **times, **own})

    def read(self, manifest: Manifest) -> dict[TopicPartition, int]:
        """Return the next offsets to read, those of global tables left out."""
        return {
            TopicPartition(topic, int(number)): offset
            for topic, found in manifest.offsets.items()
            if topic not in self._globals
            for number, offset in found.items()
        }

    def _committed(self, log: LogAccess, places: list[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        existing = log.admin.topics({place.topic for place in places})
        with closing(log.transport.consumer(self._plan.application)) as consumer:
            return consumer.committed([place for place in places if place.topic in existing])
