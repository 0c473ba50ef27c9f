"""Rules about state: names that must last, caches, and repartition topics."""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping

from streamkit.graph.node import StepRef
from streamkit.lint.rule import Place, Rule, Subject
from streamkit.operators.core.processor_node import ProcessorNode
from streamkit.operators.core.repartition_node import RepartitionFilter
from streamkit.plan.model import PlanNode, SinkNode

_HEAD = "streamkit: 1\napplication: example\ntopics: {in: {value: string}, out: {value: long}, more: {value: string}}\n"
_NUMBERED = re.compile(r"-\d{10}\b")
_CACHE = "statestore.cache.max.bytes"
_NAMED_BY = {
    **dict.fromkeys(("repartition", "suppress", "group_by", "group_by_key"), "'name'"),
    "deduplicate": "'store' for the store, 'name' for the topic",
}
"""The options that give names, of steps where not both give all names."""
_MERGE = "merge.repartition.topics"


def _unnamed(subject: Subject) -> Iterable[Place]:
    """Like ensure.explicit.internal.resource.naming of Kafka Streams: numbers in names change with every step before them."""
    found: dict[StepRef, list[str]] = {}
    seen: set[str] = set()  # The first node that uses a store adds it; later ones only read it.
    for sub in subject.plan.sub_topologies:
        for node in sub.nodes.values():
            if node.origin is None:
                continue
            if isinstance(node, SinkNode) and node.internal and node.topic and _NUMBERED.search(node.topic):
                found.setdefault(node.origin, []).append(f"the repartition topic {node.topic}")
            for store in node.stores if isinstance(node, ProcessorNode) else ():
                logged = subject.plan.stores[store].changelog_topic is not None
                if _NUMBERED.search(store) and logged and store not in seen:
                    seen.add(store)
                    found.setdefault(node.origin, []).append(f"the store {store}")
    for origin, names in found.items():
        option = _NAMED_BY.get(origin.step, "'store' or 'name'")
        listed = " and ".join(dict.fromkeys(names))
        yield origin.position, f"{origin.step} has a generated name for {listed}; give it {option}"


def _implicit_cache(subject: Subject) -> Iterable[Place]:
    if any(subject.plan.config.origin(name) != "default" for name in (_CACHE, "cache.max.bytes.buffering")):
        return
    chosen = {
        options.name: options.caching
        for options in (step.get("store") for step in subject.steps)
        if hasattr(options, "caching")
    }
    chosen.update({name: store.caching for name, store in subject.model.stores.items()})
    for sub in subject.plan.sub_topologies:
        for node in sub.nodes.values():
            if not isinstance(node, ProcessorNode) or node.origin is None:
                continue
            for name in node.stores:
                store = subject.plan.stores[name]
                # Results that are emitted on close, or suppressed, are final in any case.
                updates = store.in_cache and not store.options.get("on_close")
                if _makes(node) and updates and chosen.get(name) is None and _reaches_sink(sub.nodes, node):
                    yield (
                        node.origin.position,
                        f"{node.origin.step} writes only the last update of a key per commit, since its store is cached;"
                        f" write 'caching' of the store, or {_CACHE} in 'config'",
                    )


def _makes(node: ProcessorNode) -> bool:
    """Return whether a node is of a step that writes its results to a store; a processor may only read it."""
    return node.origin is not None and node.origin.step in ("count", "reduce", "aggregate", "to_table")


def _reaches_sink(nodes: Mapping[str, PlanNode], start: PlanNode) -> bool:
    waiting, seen = [start], set[str]()
    while waiting:
        node = waiting.pop()
        if isinstance(node, SinkNode):
            if not node.internal:
                return True
            continue
        for name in node.children:
            origin = nodes[name].origin
            suppressed = origin is not None and origin.step == "suppress"
            if name not in seen and not suppressed:
                seen.add(name)
                waiting.append(nodes[name])
    return False


def _shared(subject: Subject) -> Iterable[Place]:
    if _MERGE in subject.plan.config.optimizations:
        return
    for sub in subject.plan.sub_topologies:
        sources: dict[str, list[SinkNode]] = {}
        for node in sub.nodes.values():
            if isinstance(node, SinkNode) and node.internal and node.value_kind == "plain":
                for parent in node.parents:
                    above = sub.nodes[parent]
                    # A repartition topic has a filter of records without a key above it.
                    start = parent
                    if isinstance(above, ProcessorNode) and isinstance(above.processor, RepartitionFilter):
                        start = above.parents[0]
                    sources.setdefault(start, []).append(node)
        for sinks in sources.values():
            if len(sinks) < 2 or sinks[1].origin is None:
                continue
            first = sinks[0].origin
            where = f"line {first.position.line}" if first is not None else "another step"
            yield (
                sinks[1].origin.position,
                f"{sinks[1].origin.step} repartitions the same stream as {where}; a 'repartition' step before both,"
                f" or topology.optimization: {_MERGE}, would share one topic",
            )


RULES = (
    Rule(
        "unnamed-state",
        "A store with a changelog, or a repartition topic, with a generated name.",
        "Generated names count the steps before them: a step that is added later gives the state another name, and an "
        "application that is upgraded begins with empty state (KIP-1111 makes it an error in Kafka Streams).",
        _HEAD + "config: {statestore.cache.max.bytes: 0}\npipelines:\n  counts:\n    stream: in\n"
        "    steps: [group_by_key, count, to_stream]\n    to: out\n  other: {stream: more, to: in}\n",
        _HEAD + "config: {statestore.cache.max.bytes: 0}\npipelines:\n  counts:\n    stream: in\n"
        "    steps: [group_by_key, count: counts, to_stream]\n    to: out\n  other: {stream: more, to: in}\n",
        _unnamed,
    ),
    Rule(
        "implicit-cache",
        "A table whose updates are written to a topic, where nothing says whether it is cached.",
        "By default the record cache holds updates back until a commit, every 30 seconds, and then only the last one of a "
        "key is written. A consumer of the topic may expect every update, and `try` shows every one.",
        _HEAD
        + "pipelines:\n  counts:\n    stream: in\n    steps: [group_by_key, count: counts, to_stream]\n    to: out\n"
        "  other: {stream: more, to: in}\n",
        _HEAD + "pipelines:\n  counts:\n    stream: in\n"
        "    steps: [group_by_key, count: {store: {name: counts, caching: false}}, to_stream]\n    to: out\n"
        "  other: {stream: more, to: in}\n",
        _implicit_cache,
    ),
    Rule(
        "shared-repartition",
        "Steps that repartition the same stream, each through a topic of its own.",
        "Every record is written and read once for each of them.",
        _HEAD
        + "config: {statestore.cache.max.bytes: 0}\npipelines:\n  keyed:\n    stream: in\n    steps: [select_key: value]\n"
        "  one:\n    from: keyed\n    steps: [group_by_key: {name: one}, count: ones, to_stream]\n    to: out\n"
        "  two:\n    from: keyed\n    steps: [group_by_key: {name: two}, count: twos, to_stream]\n    to: out\n"
        "  other: {stream: more, to: in}\n",
        _HEAD + "config: {statestore.cache.max.bytes: 0}\npipelines:\n  keyed:\n    stream: in\n"
        "    steps: [select_key: value, repartition: {name: keyed, value_serde: string}]\n"
        "  one:\n    from: keyed\n    steps: [group_by_key, count: ones, to_stream]\n    to: out\n"
        "  two:\n    from: keyed\n    steps: [group_by_key, count: twos, to_stream]\n    to: out\n"
        "  other: {stream: more, to: in}\n",
        _shared,
    ),
)
