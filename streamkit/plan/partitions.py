"""Derives tasks and internal topics from the partition counts of the topics that exist.

Follows RepartitionTopics, CopartitionedTopicsEnforcer, PartitionGrouper and ChangelogTopics.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from streamkit.errors import InvalidTopologyError
from streamkit.hashing import MASK, bucket_order, hash_order, java_hash, list_hash, long_hash, map_hash
from streamkit.plan.model import Plan, SourceNode, SubTopology
from streamkit.record import TaskId, TopicPartition
from streamkit.state.definitions import StoreDef, changelog_config, own_config
from streamkit.suggestions import number_of
from streamkit.transport.log_interface import NewTopic

SAME_NUMBER = "write the same `partitions` in their steps, or in one of them only"
"""What to change if steps name different numbers of partitions."""


@dataclass(frozen=True)
class Layout:
    """The tasks and internal topics of a Plan, derived from the topics that exist."""

    partitions: Mapping[str, int]
    """Partition counts by topic name on the log, for the external topics that the Plan reads and all repartition topics."""
    sources: Mapping[int, tuple[str, ...]]
    """The topics that each sub-topology reads, by their names on the log, including topics that match a pattern."""
    tasks: tuple[TaskId, ...]
    """Ascending."""
    repartitions: tuple[NewTopic, ...]
    """The repartition topics that must exist, with their names on the log."""
    changelogs: tuple[NewTopic, ...]

    def inputs(self, task: TaskId) -> tuple[TopicPartition, ...]:
        """Return the input partitions of a task."""
        return task_inputs(self.sources[task.sub_topology], task.partition, self.partitions)


def task_count(topics: Iterable[str], counts: Mapping[str, int]) -> int:
    """Return the number of tasks that read these topics, which is the highest of their partition counts (PartitionGrouper)."""
    return max((counts[topic] for topic in topics), default=0)


def tasks_of(sources: Mapping[int, Iterable[str]], counts: Mapping[str, int]) -> tuple[TaskId, ...]:
    """Return the tasks of sub-topologies, ascending. `sources`: the topics that each one reads, by their names on the log."""
    return tuple(
        TaskId(index, partition) for index, topics in sources.items() for partition in range(task_count(topics, counts))
    )


def task_inputs(topics: Iterable[str], partition: int, counts: Mapping[str, int]) -> tuple[TopicPartition, ...]:
    """Return a task's input partitions: the partition with its number in every source topic that has one."""
    return tuple(TopicPartition(topic, partition) for topic in topics if partition < counts[topic])


def lay_out(plan: Plan, counts: Mapping[str, int]) -> Layout:
    """Return the tasks and internal topics for topics with these partition counts.

    `counts`: external topics by their names on the log, and further topics that patterns may match. Raises InvalidTopologyError.
    """
    sources = {sub.id: source_topics(plan, sub, counts) for sub in plan.sub_topologies if not sub.is_global}
    partitions: dict[str, int | None] = {}
    enforced: set[str] = set()
    for topics in sources.values():
        for topic in topics:
            partitions[topic] = counts.get(topic)
    for name, internal_topic in plan.internal_topics.items():
        partitions[plan.internal_name(name)] = internal_topic.partitions
        if internal_topic.partitions is not None:
            enforced.add(plan.internal_name(name))
    internal = plan.internal_names
    _check_missing(sources, partitions, internal)
    _derive(plan, sources, partitions, internal)
    known = {topic: count for topic, count in partitions.items() if count is not None}
    for group in groups_on_log(plan, counts):
        _enforce(group, known, internal, enforced)
    tasks = tasks_of(sources, known)
    _check_read_only(plan, tasks, known)
    replicas = plan.config.replication_factor
    repartitions = tuple(
        NewTopic(plan.internal_name(name), known[plan.internal_name(name)], topic.config, replicas)
        for name, topic in plan.internal_topics.items()
    )
    return Layout(known, sources, tasks, repartitions, _changelogs(plan, tasks))


def _node_topics(plan: Plan, node: SourceNode, counts: Mapping[str, int]) -> tuple[str, ...]:
    if node.pattern is None:
        return tuple(plan.internal_name(topic) for topic in node.topics)
    own = plan.internal_names.union(map(plan.changelog_name, plan.stores))
    compiled = re.compile(node.pattern)
    return tuple(topic for topic in sorted(counts) if topic not in own and compiled.fullmatch(topic))


def source_topics(plan: Plan, sub_topology: SubTopology, counts: Mapping[str, int]) -> tuple[str, ...]:
    """Return the topics that a sub-topology reads, by their names on the log; `counts`: the topics that exist."""
    nodes = [node for node in sub_topology.nodes.values() if isinstance(node, SourceNode)]
    return tuple(dict.fromkeys(topic for node in nodes for topic in _node_topics(plan, node, counts)))


def _check_missing(
    sources: Mapping[int, tuple[str, ...]], partitions: Mapping[str, int | None], internal: frozenset[str]
) -> None:
    for index, topics in sources.items():
        missing = [topic for topic in topics if topic not in internal and partitions[topic] is None]
        if missing:
            raise InvalidTopologyError(f"Missing source topics [{', '.join(missing)}] for subtopology {index}")


def _derive(
    plan: Plan, sources: Mapping[int, tuple[str, ...]], partitions: dict[str, int | None], internal: frozenset[str]
) -> None:
    """Set the count of each repartition topic without one to the largest count upstream, until all have one."""
    writers: dict[str, list[int]] = {}
    for sub in plan.sub_topologies:
        for topic in sub.sink_topics:
            writers.setdefault(plan.internal_name(topic), []).append(sub.id)
    waiting = [
        topic
        for index in sub_topology_order(plan, sources)
        for topic in hash_order((topic for topic in sources[index] if topic in internal), copied=False)
        if partitions[topic] is None
    ]
    while waiting:
        left = []
        for topic in waiting:
            upstream = [
                count
                for index in writers.get(topic, ())
                for source in sources.get(index, ())
                if (count := partitions[source]) is not None
            ]
            if upstream:
                partitions[topic] = max(upstream)
            else:
                left.append(topic)
        if len(left) == len(waiting):
            raise InvalidTopologyError(
                "Failed to compute number of partitions for all repartition topics, make sure all user input topics are "
                "created and all Pattern subscriptions match at least one topic in the cluster"
            )
        waiting = left


def groups_on_log(plan: Plan, counts: Mapping[str, int]) -> list[set[str]]:
    """Return the groups of topics on the log, in the order in which they are enforced."""
    nodes = {
        name: node for sub in plan.sub_topologies for name, node in sub.nodes.items() if isinstance(node, SourceNode)
    }
    return joined_groups(
        [
            {name: _node_topics(plan, nodes[name], counts) for name in members if name in nodes}
            for members in plan.copartition_sources
        ]
    )


def _enforce(group: set[str], partitions: dict[str, int], internal: frozenset[str], enforced: set[str]) -> None:
    """Make the counts of a co-partition group equal. Raises InvalidTopologyError (CopartitionedTopicsEnforcer.enforce)."""
    repartitions = sorted(group & internal)
    external = {topic: partitions[topic] for topic in sorted(group - internal)}
    if external:
        if len(set(external.values())) > 1:
            names, most, step = missing_partitions(external)
            raise InvalidTopologyError(
                f"Invalid topology: Topics not co-partitioned: [{java_map(external)}]; {step}, or copy {names} to a topic "
                f"with {number_of(most, 'partition')}: adding partitions to a topic with records would separate the records of a key"
            )
        wanted = next(iter(external.values()))
    else:
        fixed = [topic for topic in repartitions if topic in enforced]
        if len({partitions[topic] for topic in fixed}) > 1:
            shown = java_map({topic: partitions[topic] for topic in repartitions})
            raise InvalidTopologyError(
                f"Invalid topology: Following topics do not have the same number of partitions: [{shown}]; {SAME_NUMBER}"
            )
        wanted = partitions[fixed[0]] if fixed else max((partitions[topic] for topic in repartitions), default=0)
    for topic in repartitions:
        if topic not in enforced:
            partitions[topic] = wanted
        elif partitions[topic] != wanted:
            raise InvalidTopologyError(
                f"Invalid topology: Number of partitions [{partitions[topic]}] of repartition topic [{topic}] "
                f"doesn't match number of partitions [{wanted}] of the source topic; {number_of_step(wanted)}"
            )


def _check_read_only(plan: Plan, tasks: tuple[TaskId, ...], partitions: Mapping[str, int]) -> None:
    """Raise InvalidTopologyError for tasks whose read-only store has no source partition to be restored from."""
    for sub in plan.sub_topologies:
        count = 1 + max((partition for index, partition in tasks if index == sub.id), default=-1)
        for name in sub.stores:
            store = plan.stores[name]
            if sub.is_global or not store.options.get("read_only") or store.source_topic is None:
                continue
            available = partitions[store.source_topic]
            if available < count:
                raise InvalidTopologyError(
                    f"Invalid topology: store {name} is restored from topic {store.source_topic}, which has {available} "
                    f"partitions, but the steps that use it read topics with {count}"
                )


def missing_partitions(counts: Mapping[str, int]) -> tuple[str, int, str]:
    """Return the topics with too few partitions as text, the highest partition count, and the step that would repartition them."""
    most = max(counts.values())
    fewer = [topic for topic, count in sorted(counts.items()) if count < most]
    whose = "its" if len(fewer) == 1 else "their"
    step = f"put `repartition: {{partitions: {most}}}` before the step where {whose} records come in"
    return " and ".join(fewer), most, step


def number_of_step(count: int) -> str:
    """Return the remedy for a step whose number of partitions differs from that of its topics."""
    return f"write `partitions: {count}` in the step repartition, or leave it out"


def java_map(counts: Mapping[str, int | None] | Mapping[str, int]) -> str:
    """Return numbers of partitions by topic as Java prints them."""
    return "{" + ", ".join(f"{topic}={count}" for topic, count in sorted(counts.items())) + "}"


def _changelogs(plan: Plan, tasks: tuple[TaskId, ...]) -> tuple[NewTopic, ...]:
    """Return the changelogs that are not source topics, with as many partitions as their sub-topology has tasks."""
    topics: dict[str, NewTopic] = {}
    defaults = plan.config.topic_defaults()
    additional = plan.config.windowstore_changelog_additional_retention_ms
    replicas = plan.config.replication_factor
    for sub in plan.sub_topologies:
        count = 1 + max((partition for index, partition in tasks if index == sub.id), default=-1)
        for store in sub.stores:
            definition = plan.stores[store]
            name = plan.changelog_name(store)
            if definition.changelog_topic is not None and name is not None and count:
                topics[name] = NewTopic(name, count, changelog_config(definition, defaults, additional), replicas)
    return tuple(topics.values())


# The order in which the leader of a Kafka Streams group processes sub-topologies and co-partition groups.
#
# If input topics have different partition counts, the counts of repartition topics depend on this order: Java keeps sub-topologies and
# groups in hash sets, and derives each count from earlier ones (RepartitionTopics). All processes compute the same order from the names.

_FALSE = 1237  # Boolean.hashCode


def sub_topology_order(plan: Plan, sources: Mapping[int, tuple[str, ...]]) -> list[int]:
    """Return the ids of sub-topologies in the order of a HashSet of InternalTopologyBuilder.TopicsInfo.

    `sources`: the topics that each one reads, by their names on the log. Sub-topologies without topics are omitted.
    """
    read = {sub.id: sources[sub.id] for sub in plan.sub_topologies if sources.get(sub.id)}
    codes = [_topics_hash(plan, id_, read[id_.id]) for id_ in plan.sub_topologies if id_.id in read]
    order = bucket_order(list(read), codes)
    by_id = dict(zip(read, codes, strict=True))
    # The leader adds the set of a topology to the set of all topologies, which sorts by hashes again.
    return bucket_order(order, [by_id[index] for index in order])


def _topics_hash(plan: Plan, sub: SubTopology, topics: Iterable[str]) -> int:
    """Return TopicsInfo.hashCode()."""
    changelogs = {}
    for store in sub.stores:
        name = plan.changelog_name(store)
        if name is not None:
            changelogs[name] = _changelog_hash(name, plan.stores[store])
    low = map_hash(changelogs)
    # The lower half is widened with its sign, and the remainder has the sign of the number.
    number = (_set_hash(topics) << 32) | (low | 0xFFFFFFFF00000000 if low >> 31 else low)
    signed = number - (1 << 64) if number >> 63 else number
    return (abs(signed) % MASK * (1 if signed >= 0 else -1)) & MASK


def _changelog_hash(name: str, store: StoreDef) -> int:
    """Return the hashCode() of the changelog's InternalTopicConfig."""
    kept: tuple[int, ...] = ()
    if store.kind.windowed:
        kept = (long_hash(store.retention or 0),)
    elif "history" in store.kind.options:
        kept = (long_hash(store.history or 0),)
    return list_hash((java_hash(name), map_hash(own_config(store)), *kept, _FALSE))


def _set_hash(topics: Iterable[str]) -> int:
    return sum(java_hash(topic) for topic in set(topics)) & MASK


def joined_groups(sources: Sequence[Mapping[str, Sequence[str]]]) -> list[set[str]]:
    """Return the groups of topics that need equal partition counts, in the order in which Java enforces them (copartitionGroups).

    `sources`: the topics by source node, for each call of the DSL. A call joins the first group that shares a topic with
    it. Two groups are not joined if a later call overlaps both, so a topic may be in two groups: the later one decides.
    """
    groups: dict[str, set[str]] = {}
    for members in sources:
        listed = [topic for node in hash_order(members) for topic in members[node]]
        topics = hash_order(listed, copied=False)
        group = next((groups[topic] for topic in topics if topic in groups), set())
        group.update(topics)
        for topic in topics:
            groups[topic] = group
    unique = {frozenset(group): group for group in groups.values()}
    least = max(int(len(groups) / 0.75) + 1, 16)
    return bucket_order(list(unique.values()), [_set_hash(group) for group in unique], least)
