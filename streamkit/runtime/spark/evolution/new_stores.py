"""Finds the stores that are new in a version, and whether they can be computed from the history of its inputs."""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass

from streamkit.changes.of_log import read_log
from streamkit.changes.of_plan import form_of
from streamkit.errors import MigrationError, UsageError
from streamkit.operators.codegen.code_writer import ProcessorNode
from streamkit.operators.steps.extensions.enrich import Enrich
from streamkit.plan.model import Plan, SinkNode, SourceNode
from streamkit.plan.partitions import Layout, lay_out, source_topics
from streamkit.runtime.operations.store_moves import matched_stores
from streamkit.runtime.spark.evolution.reduced_plan import Graph, reduced
from streamkit.runtime.spark.stages.stage_plan import refuse_clocks, where
from streamkit.transport.log_interface import NewTopic, Transport


@dataclass(frozen=True)
class NewStores:
    """The stores to compute, and what is needed for them.

    plan: only the nodes that they depend on; changelogs: by store; repartitions: the repartition topics of `plan`; fresh: the
    topics that the old version does not read; unshared: the repartition topics that only new stores read; unread: the numbers
    of unread records in the others.
    """

    plan: Plan
    changelogs: Mapping[str, NewTopic]
    repartitions: tuple[NewTopic, ...]
    fresh: frozenset[str]
    unshared: frozenset[str]
    unread: Mapping[str, int]


def find_new_stores(old: Plan, new: Plan, transport: Transport, renames: Mapping[str, str]) -> NewStores:
    """Return the stores of `new` that `old` does not have, those of global tables left out.

    renames: as in `matched_stores`. Raises MigrationError where one can't be computed, UsageError, InvalidTopologyError,
    TransportError.
    """
    if old.application != new.application:
        raise UsageError(
            f"both versions need one `application`: {old.file} has {old.application}, {new.file} {new.application}"
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
    topics = {plan.internal_name(name) for name in plan.internal_topics}
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
    """Return the stores of tasks that are not known; a store whose changelog is a source topic needs no work."""
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
    internal = {plan.internal_name(name) for name in plan.internal_topics}
    found = {topic for sub in plan.sub_topologies if not sub.is_global for topic in source_topics(plan, sub, counts)}
    return found - internal


def _refused(new: Plan, plan: Plan, stores: Collection[str]) -> Iterator[str]:
    for name in stores:
        if new.changelog_name(name) is None:
            yield (
                f"store {name} has no changelog, so that no start would find its rows: leave out `logging: false`, or add the "
                "store in a version after this one"
            )
    for node in (node for sub in plan.sub_topologies for node in sub.nodes.values()):
        if isinstance(node, ProcessorNode) and isinstance(node.processor, Enrich):
            yield (
                f"{where(new, node)}: a service gives the answers of today and not those of the past: write the results of the "
                "step to a topic, and build the new store from that"
            )


def _unshared(old: Plan, new: Plan, kept: Collection[str]) -> set[str]:
    """Return the repartition topics of the new version that the old one does not have, and that lead to no store of it."""
    graph = Graph(new)
    found = {new.internal_name(name) for name in new.internal_topics}
    for name, node in graph.nodes.items():
        if isinstance(node, SourceNode) and node.internal and graph.reached(name).intersection(kept):
            found -= {new.internal_name(topic) for topic in node.topics}
    return found - {old.internal_name(name) for name in old.internal_topics}


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
                f"topic {topic} is written by {new.file} only, so that it has no past for {', '.join(added)}: use "
                "`repartition` in place of the topic"
            )
            continue
        readers = [name for name, node in graph.nodes.items() if isinstance(node, SourceNode) and topic in node.topics]
        changed = sorted({store for name in readers for store in graph.reached(name)}.intersection(kept))
        if changed:
            yield (
                f"topic {topic} is new and leads to store {changed[0]} too, which keeps its rows and would miss those of the "
                "topic: add the topic in a version of its own"
            )
