"""Finds the stores that a version adds, and checks that they can be computed from the history of its inputs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, replace

from streamkit.changes.of_log import read_log
from streamkit.changes.of_plan import form_of
from streamkit.errors import MigrationError, UsageError
from streamkit.operators.codegen.code_writer import ProcessorNode
from streamkit.operators.core.operator import PassThrough
from streamkit.operators.steps.extensions.enrich import Enrich
from streamkit.operators.steps.joins.foreign_key_join import ForeignTableJoin, SubscriptionJoin
from streamkit.operators.steps.joins.stream_table_join import StreamGlobalJoin, StreamTableJoin
from streamkit.operators.steps.joins.table_join import TableTableJoin
from streamkit.operators.steps.processors.process import Process, TransformValues
from streamkit.operators.steps.stateless.branch import Branch
from streamkit.plan.model import Plan, PlanNode, SinkNode, SourceNode, SubTopology
from streamkit.plan.partitions import Layout, lay_out, source_topics
from streamkit.runtime.operations.migration import matched_stores
from streamkit.runtime.spark.stage_plan import refuse_clocks, where
from streamkit.transport.log_interface import NewTopic, Transport

_READERS = (ForeignTableJoin, StreamGlobalJoin, StreamTableJoin, SubscriptionJoin, TableTableJoin)
"""The processors that read other processors' stores."""
_OWN = "join_grace"
"""The type of their own buffers, the only stores that they write."""
_PYTHON = (Process, TransformValues)
"""The processors that may have timers, and may read any global store."""


@dataclass
class Graph:
    """The nodes of a plan by name, without global ones, and the dependencies between them."""

    plan: Plan

    def __post_init__(self) -> None:
        self.nodes: dict[str, PlanNode] = {}
        self.homes: dict[str, SubTopology] = {}
        for sub in self.plan.sub_topologies:
            if not sub.is_global:
                self.nodes.update(sub.nodes)
                self.homes.update(dict.fromkeys(sub.nodes, sub))

    def writers(self, store: str) -> list[str]:
        """Return the nodes that may write to a store."""
        return [name for name, node in self.nodes.items() if store in self.written_by(node)]

    def written_by(self, node: PlanNode) -> list[str]:
        """Return the stores that a node may write to."""
        is_reader = isinstance(node.processor, _READERS)
        return [name for name in node.stores if not is_reader or self.plan.stores[name].type == _OWN]

    def needed(self, stores: Collection[str]) -> set[str]:
        """Return the nodes on which the rows of stores depend, including dependencies through repartition topics and other stores."""
        names: set[str] = set()
        waiting = [name for store in stores for name in self.writers(store)]
        while waiting:
            name = waiting.pop()
            if name not in names:
                names.add(name)
                waiting.extend(self._before(name, stores))
        return names

    def _before(self, name: str, stores: Collection[str]) -> Iterator[str]:
        node = self.nodes[name]
        if isinstance(node, SourceNode):
            if node.internal:
                yield from (sink for topic in node.topics for sink in self.sinks(topic))
            return
        yield from node.parents
        for store in node.stores:
            yield from self.writers(store)
        expires = any(self.plan.stores[store].ttl is not None for store in node.stores if store in stores)
        if expires or isinstance(node.processor, _PYTHON):
            # All topics of a task advance its stream time, which triggers timers and the deletion of rows with a `ttl`.
            yield from (other for other, node in self.homes[name].nodes.items() if isinstance(node, SourceNode))

    def sinks(self, topic: str) -> list[str]:
        """Return the sinks of an internal topic."""
        return [
            name
            for name, node in self.nodes.items()
            if isinstance(node, SinkNode) and node.internal and node.topic == topic
        ]

    def reached(self, name: str) -> set[str]:
        """Return the stores that a node's records may change, including those behind repartition topics."""
        stores: set[str] = set()
        seen: set[str] = set()
        waiting = [name]
        while waiting:
            name = waiting.pop()
            if name in seen:
                continue
            seen.add(name)
            node = self.nodes[name]
            if isinstance(node, SinkNode):
                waiting += [
                    other
                    for other, source in self.nodes.items()
                    if isinstance(source, SourceNode) and node.internal and node.topic in source.topics
                ]
                continue
            stores.update(self.written_by(node))
            waiting += node.children
        return stores


def reduced(plan: Plan, stores: Collection[str], layout: Layout) -> Plan:
    """Return a plan with only the nodes on which these stores depend. It writes only to repartition topics.

    layout: the layout of the whole plan, from which the repartition topics take their partition counts.
    """
    graph = Graph(plan)
    names = graph.needed(stores)
    subs = []
    for sub in plan.sub_topologies:
        silent = _silent_children(sub, names)
        both = names | silent.keys()
        kept = {name: silent.get(name) or _reduced_node(node, both) for name, node in sub.nodes.items() if name in both}
        if kept and not sub.is_global:
            subs.append(_reduced_sub(sub, kept))
    nodes = [node for sub in subs for node in sub.nodes.values()]
    subs += [sub for sub in plan.sub_topologies if sub.is_global and _is_read(sub, nodes)]
    subs.sort(key=lambda sub: sub.id)
    topics = {topic for sub in subs for topic in (*sub.source_topics, *sub.sink_topics)}
    internal = {
        name: replace(topic, partitions=layout.partitions[plan.internal_name(name)])
        for name, topic in plan.internal_topics.items()
        if name in topics
    }
    used = {store for sub in subs for store in sub.stores}
    return replace(
        plan,
        sub_topologies=tuple(subs),
        stores={name: store for name, store in plan.stores.items() if name in used},
        internal_topics=internal,
        node_order=tuple(name for name in plan.node_order if any(name in sub.nodes for sub in subs)),
        generators={},
    )


def _silent_children(sub: SubTopology, names: Collection[str]) -> dict[str, ProcessorNode]:
    """Return nodes without effect that replace unneeded children of nodes that forward to a child by name."""
    return {
        child: ProcessorNode(child, PassThrough(), (name,), (), ())
        for name, node in sub.nodes.items()
        if name in names and isinstance(node.processor, (Branch, *_PYTHON))
        for child in node.children
        if child not in names
    }


def _is_read(sub: SubTopology, nodes: Collection[PlanNode]) -> bool:
    """Return whether nodes may read the store of a global table."""
    return any(
        isinstance(node.processor, _PYTHON) or getattr(node.processor, "store", None) in sub.stores for node in nodes
    )


def _reduced_node(node: PlanNode, names: Collection[str]) -> PlanNode:
    if isinstance(node, SinkNode):
        return replace(node, parents=tuple(parent for parent in node.parents if parent in names))
    return replace(node, children=tuple(child for child in node.children if child in names))


def _reduced_sub(sub: SubTopology, nodes: Mapping[str, PlanNode]) -> SubTopology:
    used = {store for node in nodes.values() for store in node.stores}
    read = {topic for node in nodes.values() if isinstance(node, SourceNode) for topic in node.topics}
    written = {node.topic for node in nodes.values() if isinstance(node, SinkNode)}
    return replace(
        sub,
        nodes=dict(nodes),
        stores=tuple(store for store in sub.stores if store in used),
        source_topics=tuple(topic for topic in sub.source_topics if topic in read),
        sink_topics=tuple(topic for topic in sub.sink_topics if topic in written),
    )


@dataclass(frozen=True)
class NewStores:
    """The stores to compute, and their dependencies.

    plan: only the nodes on which the stores depend; changelogs: by store; repartitions: the repartition topics of `plan`; fresh:
    the topics that the old version does not read; unshared: the repartition topics that only new stores read; unread: the
    numbers of unread records in the other repartition topics.
    """

    plan: Plan
    changelogs: Mapping[str, NewTopic]
    repartitions: tuple[NewTopic, ...]
    fresh: frozenset[str]
    unshared: frozenset[str]
    unread: Mapping[str, int]


def find_new_stores(old: Plan, new: Plan, transport: Transport, renames: Mapping[str, str]) -> NewStores:
    """Return the stores of `new` that `old` does not have, without those of global tables.

    renames: as in `matched_stores`. Raises MigrationError if a store can't be computed; also UsageError, InvalidTopologyError
    and TransportError.
    """
    if old.application != new.application:
        raise UsageError(
            f"both versions need the same `application`: {old.file} has {old.application}, {new.file} {new.application}"
        )
    on_log, _, existing = read_log(old, transport)
    declared = {t.name: t.partitions for p in (old, new) for t in p.external_topics.values() if t.partitions}
    counts = {**declared, **existing}
    names = matched_stores(form_of(old, old.file, counts), form_of(new, new.file, counts), renames)
    added = _computed(new, set(names.values()))
    layout = lay_out(new, counts)
    plan = reduced(new, added, layout)
    refuse_clocks(plan)
    fresh = _read(plan, counts) - _read(old, counts)
    kept = set(names.values())
    problems = [*_refused(new, plan, added), *_refused_topics(old, new, fresh, added, kept)]
    if problems:
        raise MigrationError("; ".join(problems))
    topics = plan.internal_names
    unshared = _unshared(old, new, kept) & topics
    return NewStores(
        plan,
        _changelogs(new, added, layout),
        tuple(topic for topic in layout.repartitions if topic.name in topics),
        frozenset(fresh),
        frozenset(unshared),
        {name: count for name, count in on_log.unread.items() if name in topics - unshared and count},
    )


def _computed(plan: Plan, known: Collection[str]) -> list[str]:
    """Return the tasks' stores that are not in `known`. A store whose changelog is a source topic needs no work."""
    return [
        name
        for sub in plan.sub_topologies
        if not sub.is_global
        for name in sub.stores
        if name not in known and plan.stores[name].source_topic is None
    ]


def _changelogs(plan: Plan, stores: Collection[str], layout: Layout) -> dict[str, NewTopic]:
    topics = {topic.name: topic for topic in layout.changelogs}
    return {name: topics[plan.changelog_name(name) or ""] for name in stores}


def _read(plan: Plan, counts: Mapping[str, int]) -> set[str]:
    """Return the external topics that the tasks of a plan read."""
    internal = plan.internal_names
    read = {topic for sub in plan.sub_topologies if not sub.is_global for topic in source_topics(plan, sub, counts)}
    return read - internal


def _refused(new: Plan, plan: Plan, stores: Collection[str]) -> Iterator[str]:
    for name in stores:
        if new.changelog_name(name) is None:
            yield (
                f"store {name} has no changelog, so no instance could restore its rows: remove `logging: false`, or add the "
                "store in a later version"
            )
    for node in plan.nodes:
        if isinstance(node.processor, Enrich):
            yield (
                f"{where(new, node)}: a service returns today's results, not past ones: write the results of the "
                "step to a topic, and build the new store from that topic"
            )


def _unshared(old: Plan, new: Plan, kept: Collection[str]) -> frozenset[str]:
    """Return the new version's repartition topics that the old version does not have, and that lead to no store of the old version."""
    graph = Graph(new)
    internal = new.internal_names
    for name, node in graph.nodes.items():
        if isinstance(node, SourceNode) and node.internal and graph.reached(name).intersection(kept):
            internal -= {new.internal_name(topic) for topic in node.topics}
    return internal - old.internal_names


def _written(plan: Plan) -> set[str]:
    """Return the external topics that the tasks of a plan write."""
    sinks = [node for node in Graph(plan).nodes.values() if isinstance(node, SinkNode)]
    return {node.topic for node in sinks if node.topic is not None and not node.internal}


def _refused_topics(
    old: Plan, new: Plan, fresh: Collection[str], added: Collection[str], kept: Collection[str]
) -> Iterator[str]:
    graph = Graph(new)
    written = _written(new) - _written(old)
    for topic in sorted(fresh):
        if topic in written:
            yield (
                f"topic {topic} is written only by {new.file}, so it has no history for {', '.join(added)}: use "
                "`repartition` instead of the topic"
            )
            continue
        readers = [name for name, node in graph.nodes.items() if isinstance(node, SourceNode) and topic in node.topics]
        changed = sorted({store for name in readers for store in graph.reached(name)}.intersection(kept))
        if changed:
            yield (
                f"topic {topic} is new and also leads to store {changed[0]}, which keeps its rows and would lack the topic's "
                "earlier records: add the topic in a separate version"
            )
