"""Creates or checks the topics of a topology on the log, and derives the tasks (InternalTopicManager)."""

from __future__ import annotations

import logging
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from time import monotonic

from streamkit.errors import (
    InvalidTopologyError,
    ProcessingError,
    RetriableTransportError,
    TaskCorruptedError,
    TopicError,
    TransportError,
    UnreachableError,
)
from streamkit.plan.model import Plan
from streamkit.plan.partitions import lay_out, source_topics, task_inputs, tasks_of
from streamkit.record import TaskId, TopicPartition
from streamkit.suggestions import number_of
from streamkit.transport.log_interface import Admin, NewTopic, Transport

log = logging.getLogger(__name__)

_MISSING_SECONDS = 10.0
"""How long a topic may be missing before it counts as deleted, as a broker that has just started does not list all topics."""
_CREATED_SECONDS = 5.0
"""How long a broker may take to create a topic that it is asked for, as librdkafka waits for one (topic.metadata.propagation.max.ms)."""


def prepare_topics(plan: Plan, transport: Transport) -> TopicsOnLog:
    """Create missing topics as far as allowed; check the others.

    Topics of the file are created if it gives `partitions`; on the embedded log also those that it writes, with one
    partition. Raises TopicError for other missing sources, InvalidTopologyError for partition counts that do not fit
    (TopologyException), TransportError.
    """
    with closing(transport.admin()) as admin:
        return prepare(plan, admin, admin.partition_counts(), {}, create_written=transport.creates_written_topics)


def prepare(
    plan: Plan, admin: Admin, on_log: Mapping[str, int], ids: Mapping[str, str], *, create_written: bool
) -> TopicsOnLog:
    """Create or check topics like prepare_topics, given the partition counts of existing topics, and known ids.

    create_written: whether topics that the file writes are created too.
    """
    existing = dict(on_log)
    for declared in plan.external_topics.values():
        count = existing.get(declared.name, declared.partitions)
        # Validation, above all of co-partitioning, has used the declared counts.
        if declared.partitions is not None and count != declared.partitions:
            raise InvalidTopologyError(
                f"topic {declared.name} has {number_of(existing[declared.name], 'partition')}, but {plan.file} declares {declared.partitions}; "
                f"write `partitions: {count}`, or leave `partitions` out"
            )
    missing = [topic for topic in plan.external_topics.values() if topic.name not in existing]
    create = [
        NewTopic(topic.name, topic.partitions or 1, topic.config, topic.replication_factor or -1)
        for topic in missing
        # Brokers mostly create topics at the first write; the embedded log leaves that to the application.
        if topic.partitions is not None or (create_written and topic.written)
    ]
    dead = plan.config.errors_dead_letter_queue_topic_name
    if create_written and dead and dead not in existing and dead not in plan.external_topics:
        create.append(NewTopic(dead, 1))
    admin.create_topics(create)
    existing.update({topic.name: topic.partitions for topic in create})
    lost = sorted(topic.name for topic in missing if topic.read and topic.name not in existing)
    if lost:
        raise TopicError(
            f"source topics are missing: {', '.join(lost)}; create them, or give them `partitions` in {plan.file}"
        )
    layout = lay_out(plan, existing)
    _create_internal(admin, existing, (*layout.repartitions, *layout.changelogs))
    changelogs = {plan.changelog_name(name) for name in plan.stores}
    inputs = {topic for topics in layout.sources.values() for topic in topics} | set(plan.global_topics)
    found = {**ids, **admin.topic_ids([name for name in existing if name in changelogs | inputs and name not in ids])}
    _warn_of_unwritten(plan, existing)
    own, read = ({name: found[name] for name in names if name in found} for names in (changelogs, inputs))
    return TopicsOnLog(existing, layout.sources, own, read)


def _warn_of_unwritten(plan: Plan, existing: Mapping[str, int]) -> None:
    """Log which output topics do not exist: a broker setting decides whether the broker creates them."""
    missing = sorted(
        topic.name for topic in plan.external_topics.values() if topic.written and topic.name not in existing
    )
    if missing:
        log.warning(
            "output topics are missing: %s; unless the broker creates topics (auto.create.topics.enable), create them, "
            "or give them `partitions` in %s",
            ", ".join(missing),
            plan.file,
        )


def _create_internal(admin: Admin, existing: dict[str, int], wanted: Sequence[NewTopic]) -> None:
    """Create repartition topics and changelogs, or check the counts of those that exist; `existing` is updated."""
    for topic in wanted:
        count = existing.get(topic.name)
        if count is not None and count != topic.partitions:
            raise InvalidTopologyError(
                f"existing internal topic {topic.name} has {number_of(count, 'partition')}, but the topology needs {topic.partitions}; "
                "reset the application to create it again"
            )
    admin.create_topics([topic for topic in wanted if topic.name not in existing])
    existing.update({topic.name: topic.partitions for topic in wanted})


def changelogs_of(plan: Plan, topics: TopicsOnLog) -> dict[TaskId, list[TopicPartition]]:
    """Return the changelog partitions of the tasks that have state."""
    by_sub = {
        sub.id: [name for store in sub.stores if (name := plan.changelog_name(store)) is not None]
        for sub in plan.sub_topologies
    }
    return {
        task: [TopicPartition(name, task.partition) for name in dict.fromkeys(by_sub[task.sub_topology])]
        for task in topics.tasks()
        if by_sub[task.sub_topology]
    }


class PartitionCounts:
    """Returns how many partitions a topic has; any thread may call it (KafkaProducer.partitionsFor).

    A topic that the application only writes may be created later, by a broker as soon as it is asked for it, and may gain partitions.
    `TopicWatch` sets the present counts; a topic that it does not know yet is looked up.
    """

    def __init__(self, topics: TopicsOnLog, transport: Transport):
        self._counts = dict(topics.partitions)
        self._transport = transport

    def __call__(self, topic: str) -> int:
        """Return a topic's number of partitions.

        Raises TaskCorruptedError if brokers do not answer, so that the tasks process the record again; ProcessingError if they refuse,
        or if the topic does not exist. No handler may drop the record then.
        """
        return self._counts.get(topic) or self._look_up(topic)

    def update(self, counts: Mapping[str, int]) -> None:
        """Set the present counts of topics."""
        self._counts.update(counts)

    def _look_up(self, topic: str) -> int:
        try:
            with closing(self._transport.admin()) as admin:
                count = admin.partitions_of(topic, _CREATED_SECONDS)
        except (RetriableTransportError, UnreachableError) as error:
            raise TaskCorruptedError(str(error), on_disk=False) from error
        except TransportError as error:
            raise ProcessingError(str(error)) from error
        if count is None:
            what = "it does not exist; create the topic, or give it `partitions` in the file"
            raise ProcessingError(f"a record for topic {topic} could not be written: {what}")
        self._counts[topic] = count
        return count


class TopicWatch:
    """Detects, every metadata.max.age.ms, topics that were deleted, and records that the tasks of a running application would not read.

    The records are in partitions that are added to inputs, in topics that only now match a pattern, and at the beginning of topics
    that were deleted and created again, before the positions of the tasks.
    """

    def __init__(self, plan: Plan, transport: Transport, topics: TopicsOnLog, counts: PartitionCounts):
        """`counts`: get the numbers of partitions that the other topics have by then."""
        self._plan = plan
        self._transport = transport
        self._topics = topics
        self._counts = counts
        self._every = plan.config.metadata_max_age_ms / 1000
        self._next = monotonic() + self._every
        self._missing: dict[str, float] = {}
        """When checks first did not find the topics that the last one did not find."""

    def check(self) -> None:
        """Raise InvalidTopologyError if the inputs or changelogs have changed, TopicError if they are missing; every thread may call it.

        State and internal topics have the old number of partitions. Without any of those, the next start creates the new tasks.
        """
        if monotonic() < self._next:
            return
        self._next = monotonic() + self._every
        known = {topic for inputs in self._topics.inputs.values() for topic in inputs}
        shared = set(self._plan.global_topics)
        read = known | shared
        subs = [sub for sub in self._plan.sub_topologies if sub.id in self._topics.inputs]
        patterns = any(getattr(node, "pattern", None) for sub in subs for node in sub.nodes.values())
        try:
            with closing(self._transport.admin()) as admin:
                found = admin.topics()
                ids = admin.topic_ids(sorted((read | self._topics.ids.keys()) & found.keys()))
        except TransportError as error:
            log.info("%s; the inputs are checked again later", error)
            return
        self._check_missing({*read, *self._topics.ids} - found.keys())
        counts = {name: info.partitions for name, info in found.items()}
        self._counts.update({name: count for name, count in counts.items() if name not in read})
        self._check_counts({name: count for name, count in counts.items() if name in read})
        again = _created_again(self._topics.input_ids, ids)
        if again:
            remedy = (
                "the next start reads them"
                if shared.issuperset(again)
                else "to read them, set the offsets with `streamkit reset-offsets` before the next start"
            )
            raise InvalidTopologyError(
                f"topics were deleted and created again while the application read them: {', '.join(again)}; their first records may "
                f"not have been read: {remedy}"
            )
        changelogs = _created_again(self._topics.ids, ids)
        if changelogs:
            raise InvalidTopologyError(
                f"changelogs were deleted and created again while the application wrote them: {', '.join(changelogs)}; they lack the "
                "earlier rows of their stores, which the next start restores from them: to process the input again, use `streamkit "
                "reset-offsets` before it"
            )
        new = {topic for sub in subs for topic in source_topics(self._plan, sub, counts)} - known if patterns else ()
        if new:
            raise InvalidTopologyError(
                f"a pattern of {self._plan.file} matches new topics: {', '.join(sorted(new))}; restart to read them"
            )

    def _check_missing(self, missing: set[str]) -> None:
        """Raise TopicError if a topic is missing in several checks (MissingSourceTopicException)."""
        now = monotonic()
        gone = sorted(name for name in missing & self._missing.keys() if now - self._missing[name] >= _MISSING_SECONDS)
        self._missing = {name: self._missing.get(name, now) for name in missing}
        if gone:
            raise TopicError(
                f"topics were deleted while the application used them: {', '.join(gone)}; their records are lost. Create inputs again before "
                "the next start, which creates internal topics"
            )
        if missing:
            self._next = min(self._next, now + _MISSING_SECONDS)

    def _check_counts(self, existing: Mapping[str, int]) -> None:
        changed = {name: count for name, count in existing.items() if count != self._topics.partitions[name]}
        if changed:
            # If state depends on the count, the error names the remedy, as at the start.
            try:
                prepare_topics(self._plan, self._transport)
            except (RetriableTransportError, UnreachableError) as error:
                log.info("%s; the inputs are checked again later", error)
                return
            text = ", ".join(
                f"{name} from {self._topics.partitions[name]} to {count}" for name, count in changed.items()
            )
            raise InvalidTopologyError(f"the number of partitions has changed: {text}; restart to read them all")


def _created_again(before: Mapping[str, str], now: Mapping[str, str]) -> list[str]:
    return sorted(name for name, was in before.items() if now.get(name, was) != was)


# The topics that an application's start has found or created.


@dataclass(frozen=True)
class TopicsOnLog:
    """The existing topics, and the tasks that result from them."""

    partitions: Mapping[str, int]
    """Partition counts by name on the log."""
    inputs: Mapping[int, tuple[str, ...]]
    """Source topics on the log by sub-topology, patterns resolved."""
    ids: Mapping[str, str] = field(default_factory=dict)
    """The ids of the changelogs (Admin.topic_ids)."""
    input_ids: Mapping[str, str] = field(default_factory=dict)
    """The ids of the inputs, and of the topics of global stores."""

    def tasks(self) -> list[TaskId]:
        """Return all tasks: each sub-topology has as many as its largest source topic has partitions (PartitionGrouper)."""
        return list(tasks_of(self.inputs, self.partitions))

    def partitions_of(self, task: TaskId) -> tuple[TopicPartition, ...]:
        """Return a task's input partitions: the partition with its number in every source topic that has one."""
        return task_inputs(self.inputs[task.sub_topology], task.partition, self.partitions)
