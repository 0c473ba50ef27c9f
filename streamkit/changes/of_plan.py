"""The form of a plan."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import fields, is_dataclass
from typing import Any

from streamkit.changes.flow import Graph, roots_of
from streamkit.changes.form import (
    ExternalForm,
    Form,
    Place,
    RowForm,
    StepForm,
    StoreDetails,
    StoreForm,
    SubForm,
    TopicForm,
)
from streamkit.changes.serdes import serde_form
from streamkit.errors import InvalidTopologyError, Position
from streamkit.expressions.model import Expression
from streamkit.operators.aggregation import Aggregation
from streamkit.plan.model import Plan, ProcessorNode, SinkNode, SourceNode, SubTopology
from streamkit.plan.partitions import NewTopic, lay_out
from streamkit.state.ages import without_ttl
from streamkit.state.definitions import StoreDef
from streamkit.state.offsets import layout_of

_SETTINGS = ("state.dir", "state.engine")


def form_of(plan: Plan, label: str, counts: Mapping[str, int] | None = None) -> Form:
    """Return the form of a plan. counts: of topics on the log; those that the file declares are known in any case."""
    graph = _graph(plan)
    internal, prefix = _internal(plan, counts or {}), f"{plan.application}-"
    return Form(
        label=label,
        application=plan.application,
        sub_topologies=tuple(_sub_topology(each, label) for each in plan.sub_topologies),
        stores=_stores(plan, graph, label),
        topics=_topics(plan, graph, label),
        externals={
            topic.name: ExternalForm(
                topic.name,
                serde_form(topic.key_serde),
                serde_form(topic.value_serde),
                topic.partitions,
                topic.read,
                topic.written,
            )
            for topic in plan.external_topics.values()
        },
        pipelines=_pipelines(plan),
        counts={topic.name.removeprefix(prefix): topic.partitions for topic in internal},
        configs={topic.name.removeprefix(prefix): topic.config for topic in internal},
        # The default of state.dir is beside the file, which says nothing of the machine that it runs on.
        settings={name: None if plan.config.origin(name) == "default" else plan.config[name] for name in _SETTINGS},
    )


def rows_of(plan: Plan) -> dict[str, RowForm]:
    """Return how the rows of each store are read."""
    windows = _windows(plan)
    return {name: _rows(store, windows.get(name, {})) for name, store in plan.stores.items()}


def _graph(plan: Plan) -> Graph:
    graph = Graph()
    for sub_topology in plan.sub_topologies:
        for node in sub_topology.nodes.values():
            if isinstance(node, SourceNode):
                graph.source(node.name, node.topics or (node.pattern or "",))
            elif isinstance(node, SinkNode):
                graph.sink(node.parents, node.topic)
            else:
                graph.processor(node.name, node.parents, node.stores)
    return graph


def _place(node: Any, label: str) -> Place:
    if node is None or node.origin is None:
        return Place("", "", Position(label, 1, 1))
    return Place(node.origin.pipeline, node.origin.step, node.origin.position)


def _sub_topology(sub_topology: SubTopology, label: str) -> SubForm:
    nodes = list(sub_topology.nodes.values())
    sources = [node for node in nodes if isinstance(node, SourceNode)]
    return SubForm(
        id=sub_topology.id,
        is_global=sub_topology.is_global,
        sources=frozenset(topic for node in sources for topic in (node.topics or (node.pattern or "",))),
        stores=sub_topology.stores,
        nodes=frozenset(sub_topology.nodes),
        place=_place(sources[0] if sources else None, label),
    )


# -- Stores -------------------------------------------------------------------------------------------------------------


def _stores(plan: Plan, graph: Graph, label: str) -> dict[str, StoreForm]:
    windows, rules = _windows(plan), _rules(plan)
    found = {}
    for sub_topology in plan.sub_topologies:
        for name in sub_topology.stores:
            store = plan.stores[name]
            found[name] = StoreForm(
                name=name,
                sub_topology=sub_topology.id,
                is_global=sub_topology.is_global,
                roots=roots_of(graph, graph.users.get(name, ())),
                place=_place(_maker(sub_topology, name), label),
                rows=_rows(store, windows.get(name, {})),
                details=StoreDetails(
                    logged=store.changelog_topic is not None,
                    persistent=store.persistent,
                    # A time to live that comes or changes is taken up in place (state.ages.relaid).
                    layout=without_ttl(layout_of(store)),
                    retention=store.retention,
                    history=store.history,
                    ttl=store.ttl,
                    source_topic=store.source_topic,
                    windows=windows.get(name, {}),
                    rule=rules.get(name, ""),
                ),
            )
    return found


def _maker(sub_topology: SubTopology, store: str) -> ProcessorNode | None:
    """Return the node whose step makes a store: the one whose processor names it, else the first that uses it."""
    users = [node for node in sub_topology.nodes.values() if isinstance(node, ProcessorNode) and store in node.stores]
    own = [node for node in users if getattr(node.processor, "store", None) == store]
    return next(iter([*own, *users]), None)


def _rows(store: StoreDef, windows: Mapping[str, int]) -> RowForm:
    # The rows of joins and sessions hold all that matters: when a record was, or both ends.
    size = windows.get("size", windows.get("difference", store.window_size)) if store.type == "window" else None
    return RowForm(
        # A changelog has the plain value, whether the store keeps timestamps beside it or not.
        kind=store.type.removeprefix("timestamped_"),
        key=serde_form(store.key_serde),
        value=serde_form(store.value_serde),
        right=serde_form(store.options.get("right_serde")),
        window_size=size,
    )


def _processors(plan: Plan) -> Iterator[ProcessorNode]:
    for sub_topology in plan.sub_topologies:
        for node in sub_topology.nodes.values():
            if isinstance(node, ProcessorNode):
                yield node


def _windows(plan: Plan) -> dict[str, dict[str, int]]:
    """Return the windows of aggregations by store."""
    found = {}
    for node in _processors(plan):
        windows, store = getattr(node.processor, "windows", None), getattr(node.processor, "store", None)
        if store is not None and windows is not None and is_dataclass(windows):
            found[store] = {each.name: getattr(windows, each.name) for each in fields(windows)}
    return found


def _rules(plan: Plan) -> dict[str, str]:
    """Return what makes the rows of aggregations, as text by store."""
    found: dict[str, list[str]] = {}
    for node in _processors(plan):
        aggregation, store = getattr(node.processor, "aggregation", None), getattr(node.processor, "store", None)
        if isinstance(aggregation, Aggregation) and store is not None:
            found.setdefault(store, []).append(as_text(aggregation))
    return {store: "; ".join(texts) for store, texts in found.items()}


# -- Topics -------------------------------------------------------------------------------------------------------------


def _topics(plan: Plan, graph: Graph, label: str) -> dict[str, TopicForm]:
    readers = {
        topic: node
        for sub_topology in plan.sub_topologies
        for node in sub_topology.nodes.values()
        if isinstance(node, SourceNode)
        for topic in node.topics
    }
    found = {}
    for name, topic in plan.internal_topics.items():
        node = readers.get(name)
        found[name] = TopicForm(
            name=name,
            roots=roots_of(graph, graph.writers.get(name, ())),
            place=_place(node, label),
            key=serde_form(node.key_serde) if node is not None else None,
            value=serde_form(node.value_serde) if node is not None else None,
            value_kind=node.value_kind if node is not None else None,
            partitions=topic.partitions,
        )
    return found


def _internal(plan: Plan, counts: Mapping[str, int]) -> tuple[NewTopic, ...]:
    """Return repartition topics and changelogs as they have to exist, if the partitions of all inputs are known."""
    known = {topic.name: topic.partitions for topic in plan.external_topics.values() if topic.partitions is not None}
    try:
        layout = lay_out(plan, {**known, **counts})
    except InvalidTopologyError:
        return ()
    return (*layout.repartitions, *layout.changelogs)


# -- Pipelines ----------------------------------------------------------------------------------------------------------


def _pipelines(plan: Plan) -> dict[str, tuple[StepForm, ...]]:
    """Return the steps of each pipeline in the order of their places in the file."""
    found: dict[str, dict[tuple[int, int], StepForm]] = {}
    for sub_topology in plan.sub_topologies:
        for node in sub_topology.nodes.values():
            # What several pipelines read is one source, which belongs to the first of them.
            if node.origin is None or (isinstance(node, SourceNode) and not node.internal):
                continue
            position = node.origin.position
            steps = found.setdefault(node.origin.pipeline, {})
            key = (position.line, position.column)
            text = _node_text(node)
            before = steps.get(key)
            if before is not None:
                # A step may make several nodes, which come in the order of writing; it is the same where their texts are.
                text = "\n".join(sorted({*before.text.split("\n"), text}))
            steps[key] = StepForm(node.origin.step, text, position)
    return {name: tuple(steps[key] for key in sorted(steps)) for name, steps in found.items()}


def _node_text(node: Any) -> str:
    if isinstance(node, SourceNode):
        return ""
    if isinstance(node, SinkNode):
        topic = "" if node.internal else f" {node.topic or as_text(node.route)}"
        return f"writes{topic} {as_text(node.partition)}"
    return f"{as_text(node.processor)} {as_text(node.on_error)}"


_NAMES = frozenset({"store", "stores", "topic", "response_topic", "name", "position", "send_old"})
"""Fields of processors that say where something lies, or that follow from other steps, and not what is done."""


_GENERATED = re.compile(r"\d{10}")


def as_text(thing: Any) -> str:
    """Return what a processor or an option does as text: expressions and settings, without generated names."""
    if isinstance(thing, Expression):
        return thing.text
    if is_dataclass(thing) and not isinstance(thing, type):
        inside = (
            f"{each.name}={as_text(getattr(thing, each.name))}"
            for each in fields(thing)
            if each.name not in _NAMES and getattr(thing, each.name, None) is not None and each.compare
        )
        return f"{type(thing).__name__}({', '.join(inside)})"
    if isinstance(thing, (tuple, list)):
        return f"[{', '.join(as_text(each) for each in thing)}]"
    if isinstance(thing, Mapping):
        return f"{{{', '.join(f'{key}: {as_text(value)}' for key, value in thing.items())}}}"
    return "" if thing is None else _GENERATED.sub("#", str(thing))
