"""Finds the source topics that need equal numbers of partitions, and the groups whose declared numbers differ."""

from __future__ import annotations

from collections.abc import Iterable

from streamkit.errors import Position, Problem
from streamkit.graph.builder import GraphBuilder
from streamkit.graph.physical_topology import NOWHERE, Topology
from streamkit.plan.partitions import SAME_NUMBER, java_map, missing_partitions, number_of_step
from streamkit.spec.topology_model import TopologyModel


def copartition_groups(graph: GraphBuilder, topology: Topology) -> tuple[frozenset[str], ...]:
    """Return groups of topics, joined where they overlap (InternalTopologyBuilder.copartitionGroups)."""
    groups: dict[str, set[str]] = {}
    for sources in graph.copartitioned:
        topics = [topic for source in sources for topic in topology.source_topics(source)]
        group = next((groups[topic] for topic in topics if topic in groups), set())
        group.update(topics)
        for topic in topics:
            groups[topic] = group
    unique = dict.fromkeys(frozenset(group) for group in groups.values())
    return tuple(unique)


def broken_copartitions(model: TopologyModel, topology: Topology, groups: Iterable[frozenset[str]]) -> list[Problem]:
    """Return the groups whose declared numbers of partitions differ: of fixed repartitions, and of topics of the file."""
    problems = []
    declared = {entry.topic: entry.partitions for entry in model.topics.values() if entry.partitions is not None}
    for group in groups:
        fixed = {topic: topology.internal_topics.get(topic) for topic in group}
        external = {topic: declared[topic] for topic in group if topic in declared}
        if all(count is not None for count in fixed.values()) and len(set(fixed.values())) > 1:
            text = f"Following topics do not have the same number of partitions: [{java_map(fixed)}]; {SAME_NUMBER}"
            problems.append(Problem(_place(topology, group), text))
        elif len(set(external.values())) > 1:
            names, most, step = missing_partitions(external)
            text = f"Topics not co-partitioned: [{java_map(external)}]; give {names} `partitions: {most}`, or {step}"
            problems.append(Problem(_place(topology, group), text))
        elif external:
            count = next(iter(external.values()))
            for topic, partitions in sorted(fixed.items()):
                if partitions is not None and partitions != count:
                    text = (
                        f"Number of partitions [{partitions}] of repartition topic [{topology.application}-{topic}] "
                        f"doesn't match number of partitions [{count}] of the source topic; {number_of_step(count)}"
                    )
                    problems.append(Problem(_place(topology, group), text))
    return problems


def _place(topology: Topology, group: frozenset[str]) -> Position:
    """Return the position of the last source of a group, which is that of the step that requires the group."""
    place = NOWHERE
    for node in topology.nodes.values():
        if not group.isdisjoint(node.topics):
            place = node.origin.position
    return place
