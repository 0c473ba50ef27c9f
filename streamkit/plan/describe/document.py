"""A Plan's nodes and edges as plain data, which JSON, Mermaid and DOT are written from."""

from __future__ import annotations

import json
from collections.abc import Iterator

from streamkit.operators.codegen.code_writer import ProcessorNode
from streamkit.plan.model import Plan, PlanNode, SinkNode, SourceNode


def describe_document(plan: Plan) -> dict[str, object]:
    """Return the topology as JSON-ready data."""
    return {
        "application": plan.application,
        "sub_topologies": [
            {
                "id": each.id,
                "global": each.is_global,
                "nodes": [_node(node) for node in each.nodes.values()],
                "stores": list(each.stores),
            }
            for each in plan.sub_topologies
        ],
        "stores": {
            name: {"type": store.type, "changelog": plan.changelog_name(name)} for name, store in plan.stores.items()
        },
        "internal_topics": [plan.internal_name(name) for name in plan.internal_topics],
    }


def describe_json(plan: Plan) -> str:
    """Return the topology as JSON text."""
    return json.dumps(describe_document(plan), indent=2, ensure_ascii=False) + "\n"


def describe_mermaid(plan: Plan) -> str:
    """Return the topology as a Mermaid flowchart."""
    ids = _Ids("n")
    lines = ["flowchart TD"]
    for each in plan.sub_topologies:
        title = f"Sub-topology {each.id}" + (" (global)" if each.is_global else "")
        lines.append(f'  subgraph s{each.id}["{title}"]')
        lines += [f'    {ids[name]}["{_quoted(name)}"]' for name in each.nodes]
        lines.append("  end")
    lines += [f'  {ids["topic " + topic]}(["{_quoted(topic)}"])' for topic in _topics(plan)]
    lines += [f'  {ids["store " + store]}[("{_quoted(store)}")]' for store in plan.stores]
    for kind, source, target in _edges(plan):
        lines.append(f"  {ids[source]} {'-.-' if kind == 'store' else '-->'} {ids[target]}")
    return "\n".join(lines) + "\n"


def describe_dot(plan: Plan) -> str:
    """Return the topology as a Graphviz graph."""
    ids = _Ids("n")
    lines = ["digraph topology {", "  node [shape=box];"]
    for each in plan.sub_topologies:
        title = f"Sub-topology {each.id}" + (" (global)" if each.is_global else "")
        lines += [f"  subgraph cluster_{each.id} {{", f'    label="{title}";']
        lines += [f'    {ids[name]} [label="{_escaped(name)}"];' for name in each.nodes]
        lines.append("  }")
    lines += [f'  {ids["topic " + topic]} [label="{_escaped(topic)}", shape=cds];' for topic in _topics(plan)]
    lines += [f'  {ids["store " + store]} [label="{_escaped(store)}", shape=cylinder];' for store in plan.stores]
    for kind, source, target in _edges(plan):
        style = " [style=dashed, dir=none]" if kind == "store" else ""
        lines.append(f"  {ids[source]} -> {ids[target]}{style};")
    return "\n".join([*lines, "}"]) + "\n"


def _node(node: PlanNode) -> dict[str, object]:
    if isinstance(node, SourceNode):
        read = {"topics": list(node.topics)} if node.pattern is None else {"pattern": node.pattern}
        return {"type": "source", "name": node.name, **read, "successors": list(node.children)}
    if isinstance(node, SinkNode):
        written = {"topic": node.topic} if node.topic is not None else {"route": node.target}
        return {"type": "sink", "name": node.name, **written, "predecessors": list(node.parents)}
    return {
        "type": "processor",
        "name": node.name,
        "processor": type(node.processor).__name__,
        "stores": list(node.stores),
        "predecessors": list(node.parents),
        "successors": list(node.children),
        **({"pipeline": node.origin.pipeline, "step": node.origin.step} if node.origin is not None else {}),
    }


def _topics(plan: Plan) -> list[str]:
    return list(dict.fromkeys(target for kind, *ends in _edges(plan) for target in _topic_of(kind, ends)))


def _topic_of(kind: str, ends: list[str]) -> list[str]:
    return [end.removeprefix("topic ") for end in ends if kind == "topic" and end.startswith("topic ")]


def _edges(plan: Plan) -> Iterator[tuple[str, str, str]]:
    """Yield (kind, from, to); the names of topics and stores have their kind as prefix."""
    for each in plan.sub_topologies:
        for name, node in each.nodes.items():
            if isinstance(node, SourceNode):
                for topic in node.topics or (node.pattern or "",):
                    yield "topic", f"topic {topic}", name
            elif isinstance(node, SinkNode):
                yield "topic", name, f"topic {node.target}"
            if not isinstance(node, SinkNode):
                for child in node.children:
                    yield "record", name, child
            if isinstance(node, ProcessorNode):
                for store in node.stores:
                    yield "store", name, f"store {store}"


class _Ids(dict[str, str]):
    """Short identifiers by name, made on first use."""

    def __init__(self, prefix: str):
        super().__init__()
        self._prefix = prefix

    def __missing__(self, name: str) -> str:
        self[name] = f"{self._prefix}{len(self)}"
        return self[name]


def _quoted(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
