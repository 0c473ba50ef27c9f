"""Makes sure that every topic of a topology exists as it must be, and says which tasks follow (InternalTopicManager)."""

from __future__ import annotations

import re
from collections.abc import Mapping

from streamkit.errors import InvalidTopologyError, TopicError
from streamkit.plan.model import Plan, SourceNode, SubTopology
from streamkit.plan.partitions import changelog_topics, repartition_counts
from streamkit.runtime.local.setup import TopicsOnLog
from streamkit.transport.base import Admin, NewTopic, Transport


def prepare_topics(plan: Plan, transport: Transport) -> TopicsOnLog:
    """Create what is missing and may be created; check the rest.

    The file's topics are created where it gives `partitions`. Raises TopicError for other missing sources, InvalidTopologyError
    for counts that do not fit (TopologyException), TransportError.
    """
    admin = transport.admin()
    try:
        return _prepare(plan, admin)
    finally:
        admin.close()


def _prepare(plan: Plan, admin: Admin) -> TopicsOnLog:
    existing = {name: info.partitions for name, info in admin.topics().items()}
    missing = [topic for topic in plan.external_topics.values() if topic.name not in existing]
    create = [
        NewTopic(topic.name, topic.partitions, topic.config, topic.replication_factor or -1)
        for topic in missing
        if topic.partitions is not None
    ]
    admin.create_topics(create)
    existing.update({topic.name: topic.partitions for topic in create})
    lost = sorted(topic.name for topic in missing if topic.read and topic.partitions is None)
    if lost:
        raise TopicError(
            f"source topics are missing: {', '.join(lost)}; create them, or give them `partitions` in {plan.file}"
        )
    inputs = {sub.id: _source_topics(plan, sub, existing) for sub in plan.sub_topologies}
    _create_internal(plan, admin, existing, inputs)
    tasks = {number: topics for number, topics in inputs.items() if not _is_global(plan, number)}
    return TopicsOnLog(existing, tasks)


def _create_internal(plan: Plan, admin: Admin, existing: dict[str, int], inputs: Mapping[int, tuple[str, ...]]) -> None:
    """Create repartition topics and changelogs, or check the counts of those that exist."""
    extra = {"replication_factor": int(plan.config.get("replication.factor") or -1)}
    wanted: list[NewTopic] = []
    for name, count in repartition_counts(plan, existing).items():
        wanted.append(NewTopic(plan.internal_name(name), count, plan.internal_topics[name].config, **extra))
    counts = {**existing, **{topic.name: topic.partitions for topic in wanted}}
    for name, (count, config) in changelog_topics(plan, counts).items():
        wanted.append(NewTopic(name, count, config, **extra))
    for topic in wanted:
        found = existing.get(topic.name)
        if found is not None and found != topic.partitions:
            raise InvalidTopologyError(
                f"existing internal topic {topic.name} has {found} partitions, but the topology needs {topic.partitions}; "
                "reset the application to have it created anew"
            )
    admin.create_topics([topic for topic in wanted if topic.name not in existing])
    existing.update({topic.name: topic.partitions for topic in wanted})


def _source_topics(plan: Plan, sub: SubTopology, existing: Mapping[str, int]) -> tuple[str, ...]:
    """Return the topics on the log that a sub-topology reads; patterns match what exists now, internal topics excluded."""
    topics = [plan.internal_name(topic) for topic in sub.source_topics]
    internal = re.compile(re.escape(plan.application) + r"-.*(-changelog|-repartition|-topic)")
    for node in sub.nodes.values():
        if isinstance(node, SourceNode) and node.pattern is not None:
            pattern = re.compile(node.pattern)
            found = [name for name in sorted(existing) if pattern.fullmatch(name) and not internal.fullmatch(name)]
            topics.extend(name for name in found if name not in topics)
    return tuple(topics)


def _is_global(plan: Plan, number: int) -> bool:
    return next(sub.is_global for sub in plan.sub_topologies if sub.id == number)
