"""Reads the form of an application from its plan."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import fields, is_dataclass

from streamkit.changes.form import (
    ExternalForm,
    Form,
    Graph,
    Place,
    RowForm,
    StepForm,
    StoreDetails,
    StoreForm,
    SubForm,
    TopicForm,
    roots_of,
)
from streamkit.changes.serde_forms import serde_form
from streamkit.errors import InvalidTopologyError, Position
from streamkit.expressions.expression import Expression
from streamkit.operators.core.parsed_values import SessionWindows
from streamkit.operators.steps.aggregations.aggregate_node import Aggregation
from streamkit.plan.model import Plan, PlanNode, SinkNode, SourceNode, SubTopology
from streamkit.plan.partitions import lay_out
from streamkit.state.definitions import StoreDef
from streamkit.state.engines.ages import without_ttl
from streamkit.state.store_offsets import layout_of
from streamkit.transport.log_interface import NewTopic

_SETTINGS = ("state.dir", "state.engine")


def form_of(plan: Plan, label: str, counts: Mapping[str, int] | None = None) -> Form:
    """Return the form of a plan. counts: partitions of the topics on the log, beside those that the file declares."""
    graph = _graph(plan)
    internal, prefix = _internal(plan, counts or {}), f"{plan.application}-"
    return Form(
        label=label,
        application=plan.application,
        sub_topologies=tuple(_sub_topology(sub, label) for sub in plan.sub_topologies),
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
        # The default of state.dir is beside the file, so it is not comparable between machines.
        settings={name: None if plan.config.origin(name) == "default" else plan.config[name] for name in _SETTINGS},
    )


def rows_of(plan: Plan) -> dict[str, RowForm]:
    """Return the form of the rows of each store."""
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


def _place(node: PlanNode | None, label: str) -> Place:
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
    forms = {}
    for sub_topology in plan.sub_topologies:
        for name in sub_topology.stores:
            store = plan.stores[name]
            forms[name] = StoreForm(
                name=name,
                sub_topology=sub_topology.id,
                is_global=sub_topology.is_global,
                roots=roots_of(graph, graph.users.get(name, ())),
                place=_place(_maker(sub_topology, name), label),
                rows=_rows(store, windows.get(name, {})),
                details=StoreDetails(
                    logged=store.changelog_topic is not None,
                    persistent=store.persistent,
                    # A start applies a new or changed time to live in place (state.engines.ages).
                    layout=without_ttl(layout_of(store)),
                    retention=store.retention,
                    history=store.history,
                    ttl=store.ttl,
                    source_topic=store.source_topic,
                    windows=windows.get(name, {}),
                    rule=rules.get(name, ""),
                ),
            )
    return forms


def _maker(sub_topology: SubTopology, store: str) -> PlanNode | None:
    """Return the node whose step adds a store: the one whose processor names it, else the first that uses it."""
    users = [node for node in sub_topology.nodes.values() if store in node.stores]
    own = [node for node in users if getattr(node.processor, "store", None) == store]
    return next(iter([*own, *users]), None)


def _rows(store: StoreDef, windows: Mapping[str, int]) -> RowForm:
    # Join rows contain the record's time, and session rows contain both ends, so neither needs a window size.
    size = windows.get("size", store.window_size) if store.type == "window" else None
    return RowForm(
        # A changelog has the plain value, with and without timestamps in the store.
        kind=store.type.removeprefix("timestamped_"),
        key=serde_form(store.key_serde),
        value=serde_form(store.value_serde),
        right=serde_form(store.right_serde),
        window_size=size,
    )


def _windows(plan: Plan) -> dict[str, dict[str, int]]:
    """Return the windows of aggregations by store."""
    windows_of_stores = {}
    for node in plan.nodes:
        windows, store = getattr(node.processor, "windows", None), getattr(node.processor, "store", None)
        if store is not None and windows is not None and is_dataclass(windows):
            lengths = {field.name: getattr(windows, field.name) for field in fields(windows)}
            if isinstance(windows, SessionWindows):
                # Stored rows do not depend on the gap, so it may change; a size may not.
                lengths["gap"] = lengths.pop("size")
            windows_of_stores[store] = lengths
    return windows_of_stores


def _rules(plan: Plan) -> dict[str, str]:
    """Return the expressions that compute the rows of aggregations, as text by store."""
    rules: dict[str, list[str]] = {}
    for node in plan.nodes:
        aggregation, store = getattr(node.processor, "aggregation", None), getattr(node.processor, "store", None)
        if isinstance(aggregation, Aggregation) and store is not None:
            rules.setdefault(store, []).append(as_text(aggregation))
    return {store: "; ".join(texts) for store, texts in rules.items()}


# -- Topics -------------------------------------------------------------------------------------------------------------


def _topics(plan: Plan, graph: Graph, label: str) -> dict[str, TopicForm]:
    readers = {
        topic: node
        for sub_topology in plan.sub_topologies
        for node in sub_topology.nodes.values()
        if isinstance(node, SourceNode)
        for topic in node.topics
    }
    forms = {}
    for name, topic in plan.internal_topics.items():
        node = readers.get(name)
        forms[name] = TopicForm(
            name=name,
            roots=roots_of(graph, graph.writers.get(name, ())),
            place=_place(node, label),
            key=serde_form(node.key_serde) if node is not None else None,
            value=serde_form(node.value_serde) if node is not None else None,
            value_kind=node.value_kind if node is not None else None,
            partitions=topic.partitions,
        )
    return forms


def _internal(plan: Plan, counts: Mapping[str, int]) -> tuple[NewTopic, ...]:
    """Return the required repartition topics and changelogs, if the partitions of all inputs are known."""
    known = {topic.name: topic.partitions for topic in plan.external_topics.values() if topic.partitions is not None}
    try:
        layout = lay_out(plan, {**known, **counts})
    except InvalidTopologyError:
        return ()
    return (*layout.repartitions, *layout.changelogs)


# -- Pipelines ----------------------------------------------------------------------------------------------------------


def _pipelines(plan: Plan) -> dict[str, tuple[StepForm, ...]]:
    """Return the steps of each pipeline in the order of the file."""
    pipelines: dict[str, dict[tuple[tuple[int, int], ...], StepForm]] = {}
    for sub_topology in plan.sub_topologies:
        for node in sub_topology.nodes.values():
            # A source that several pipelines read is one node, of the first of them.
            if node.origin is None or (isinstance(node, SourceNode) and not node.internal):
                continue
            position = node.origin.position
            steps = pipelines.setdefault(node.origin.pipeline, {})
            key = position.order
            text = _node_text(node)
            before = steps.get(key)
            if before is not None:
                # A step may have several nodes. Their order may change, so their texts are sorted.
                text = "\n".join(sorted({*before.text.split("\n"), text}))
            steps[key] = StepForm(node.origin.step, text, position)
    return {name: tuple(steps[key] for key in sorted(steps)) for name, steps in pipelines.items()}


def _node_text(node: PlanNode) -> str:
    if isinstance(node, SourceNode):
        return ""
    if isinstance(node, SinkNode):
        topic = "" if node.internal else f" {node.topic or as_text(node.route)}"
        return f"writes{topic} {as_text(node.partition)}"
    return f"{as_text(node.processor)} {as_text(node.on_error)}"


_NAMES = frozenset({"store", "stores", "topic", "response_topic", "name", "position", "folder", "send_old"})
"""Fields of processors that hold names or positions, or follow from other steps: they do not affect what the step does."""


_GENERATED = re.compile(r"\d{10}")


def as_text(value: object) -> str:
    """Return a processor or an option as text: its expressions and settings, without generated names."""
    if isinstance(value, Expression):
        return value.text
    if is_dataclass(value) and not isinstance(value, type):
        inside = (
            f"{field.name}={as_text(getattr(value, field.name))}"
            for field in fields(value)
            if field.name not in _NAMES and getattr(value, field.name, None) is not None and field.compare
        )
        return f"{type(value).__name__}({', '.join(inside)})"
    if isinstance(value, (tuple, list)):
        return f"[{', '.join(as_text(item) for item in value)}]"
    if isinstance(value, Mapping):
        return f"{{{', '.join(f'{key}: {as_text(item)}' for key, item in value.items())}}}"
    return "" if value is None else _GENERATED.sub("#", str(value))
