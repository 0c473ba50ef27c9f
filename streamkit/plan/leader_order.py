"""The order in which the leader of a Kafka Streams group processes sub-topologies and co-partition groups.

Sizes of repartition topics depend on it where input topics differ in size: Java keeps both in hash
sets, and each derived size is an input for the next (RepartitionTopics). The order follows from names, so every process has the same.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence

from streamkit.hashing import MASK, bucket_order, hash_order, java_hash, list_hash, long_hash, map_hash
from streamkit.plan.model import Plan, SubTopology
from streamkit.state.definitions import StoreDef, own_config

_FALSE = 1237  # Boolean.hashCode


def sub_topology_order(plan: Plan, sources: Mapping[int, tuple[str, ...]]) -> list[int]:
    """Return the ids of sub-topologies in the order of a HashSet of InternalTopologyBuilder.TopicsInfo.

    sources: the topics that each reads, by their names on the log; those without topics are left out.
    """
    read = {each.id: sources[each.id] for each in plan.sub_topologies if sources.get(each.id)}
    codes = [_topics_hash(plan, each, read[each.id]) for each in plan.sub_topologies if each.id in read]
    order = bucket_order(list(read), codes)
    by_id = dict(zip(read, codes, strict=True))
    # The leader adds the set of a topology to the set of all topologies, which sorts by hashes again.
    return bucket_order(order, [by_id[index] for index in order])


def _topics_hash(plan: Plan, each: SubTopology, topics: Iterable[str]) -> int:
    """Return TopicsInfo.hashCode()."""
    changelogs = {}
    for store in each.stores:
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
    elif store.type == "versioned":
        kept = (long_hash(store.history or 0),)
    return list_hash((java_hash(name), map_hash(own_config(store)), *kept, _FALSE))


def _set_hash(topics: Iterable[str]) -> int:
    return sum(java_hash(topic) for topic in set(topics)) & MASK


def joined_groups(sources: Sequence[Mapping[str, Sequence[str]]]) -> list[set[str]]:
    """Return the topics that need equal sizes, in the order in which they are made equal (copartitionGroups).

    sources: of each call of the DSL the topics by source node. A call joins the first group that shares a topic with
    it. Two groups that a third call overlaps are not joined, so a topic may be in both: the later one decides.
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
