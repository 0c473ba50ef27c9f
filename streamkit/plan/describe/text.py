"""A Plan as text: `Topology.describe()` byte for byte as Kafka Streams prints it, JSON, Mermaid and DOT."""

from __future__ import annotations

import json
from collections import defaultdict
from collections.abc import Callable, Iterator
from typing import Generic, TypeVar

from streamkit.hashing import hash_order
from streamkit.operators.codegen.code_writer import ProcessorNode
from streamkit.plan.model import Plan, PlanNode, SinkNode, SourceNode, SubTopology


def describe_text(plan: Plan) -> str:
    """Return the text of Java's `topology.describe().toString()` for the same topology."""
    parts = ["Topologies:\n "]
    for sub_topology in plan.sub_topologies:
        parts.append("  ")
        parts.append(_global_block(sub_topology) if sub_topology.is_global else _block(sub_topology))
    return "".join(parts)


class _Described:
    """A node and its place in the description; `size` counts the paths that lead down from it."""

    def __init__(self, node: PlanNode, rank: int):
        self.node = node
        self.name = node.name
        self.rank = rank
        self.size = 1
        self.predecessors = TreeSet[_Described](_compare)
        self.successors = TreeSet[_Described](_compare)
        self.sort_name = node.name.encode("utf-16-be")


def _compare(one: _Described, other: _Described) -> int:
    if one is other:
        return 0
    if one.size != other.size:
        return other.size - one.size
    return -1 if one.sort_name < other.sort_name else 1


def _block(sub_topology: SubTopology) -> str:
    described = _connect(sub_topology)
    nodes = sorted(described.values(), key=lambda node: (-node.size, node.sort_name))
    lines = "".join(f"    {_node_text(node)}\n" for node in nodes)
    return f"Sub-topology: {sub_topology.id}\n{lines}\n"


def _global_block(sub_topology: SubTopology) -> str:
    described = _connect(sub_topology)
    source, processor = sorted(described.values(), key=lambda node: isinstance(node.node, ProcessorNode))
    return (
        f"Sub-topology: {sub_topology.id} for global store (will not generate tasks)\n"
        f"    {_node_text(source)}\n    {_node_text(processor)}\n"
    )


def _connect(sub_topology: SubTopology) -> dict[str, _Described]:
    """Connect nodes in the order of Java's HashMap; each connection adds to the sizes along the paths so far."""
    described = {name: _Described(node, rank) for rank, (name, node) in enumerate(sub_topology.nodes.items())}
    for name in hash_order(hash_order(described, copied=False), copied=False):
        current = described[name]
        for parent_name in () if isinstance(current.node, SourceNode) else current.node.parents:
            parent = described[parent_name]
            current.predecessors.add(parent)
            parent.successors.add(current)
            _add_size(parent, current.size)
    return described


def _add_size(node: _Described, delta: int) -> None:
    """Add `delta` once for every path upward. Counts paths by node, because their number may be exponential."""
    counts = {node: 1}
    while counts:
        lowest = max(counts, key=lambda node: node.rank)
        paths = counts.pop(lowest)
        lowest.size += delta * paths
        for parent in lowest.predecessors:
            counts[parent] = counts.get(parent, 0) + paths


def _node_text(described: _Described) -> str:
    node = described.node
    if isinstance(node, SourceNode):
        read = f"[{', '.join(hash_order(node.topics))}]" if node.pattern is None else node.pattern
        return f"Source: {node.name} (topics: {read})\n      --> {_names(described.successors)}"
    if isinstance(node, SinkNode):
        target = f"topic: {node.target}" if node.topic is not None else f"extractor class: {node.target}"
        return f"Sink: {node.name} ({target})\n      <-- {_names(described.predecessors)}"
    stores = ", ".join(hash_order(hash_order(node.stores, copied=False)))
    return (
        f"Processor: {node.name} (stores: [{stores}])\n"
        f"      --> {_names(described.successors)}\n      <-- {_names(described.predecessors)}"
    )


def _names(nodes: TreeSet[_Described]) -> str:
    return ", ".join(node.name for node in nodes) or "none"


# A red-black tree that behaves like java.util.TreeSet even if its elements change their order after insertion.
#
# Topology.describe() prints such sets in the order of their trees, so its text depends on the shape of the tree.

Element = TypeVar("Element")


class _Entry(Generic[Element]):
    __slots__ = ("element", "left", "parent", "red", "right")

    def __init__(self, element: Element, parent: _Entry[Element] | None):
        self.element = element
        self.parent = parent
        self.left: _Entry[Element] | None = None
        self.right: _Entry[Element] | None = None
        self.red = False


class TreeSet(Generic[Element]):
    """Elements in the order of `compare` at the time of their insertion; the set never sorts them again."""

    def __init__(self, compare: Callable[[Element, Element], int]):
        self._compare = compare
        self._root: _Entry[Element] | None = None

    def add(self, element: Element) -> None:
        """Insert an element unless the search meets an equal one."""
        if self._root is None:
            self._root = _Entry(element, None)
            return
        entry: _Entry[Element] | None = self._root
        while entry is not None:
            parent = entry
            order = self._compare(element, entry.element)
            if order == 0:
                return
            entry = entry.left if order < 0 else entry.right
        added = _Entry(element, parent)
        if order < 0:
            parent.left = added
        else:
            parent.right = added
        self._rebalance(added)

    def __iter__(self) -> Iterator[Element]:
        stack: list[_Entry[Element]] = []
        entry = self._root
        while stack or entry is not None:
            while entry is not None:
                stack.append(entry)
                entry = entry.left
            last = stack.pop()
            yield last.element
            entry = last.right

    def _rebalance(self, entry: _Entry[Element]) -> None:
        entry.red = True
        while entry.parent is not None and entry.parent.red:
            parent = entry.parent
            grand = parent.parent
            assert grand is not None  # A red node is never the root.
            on_left = parent is grand.left
            uncle = grand.right if on_left else grand.left
            if uncle is not None and uncle.red:
                parent.red = uncle.red = False
                grand.red = True
                entry = grand
                continue
            if entry is (parent.right if on_left else parent.left):
                entry = parent
                self._rotate(entry, left=on_left)
                parent = entry.parent or parent
            parent.red = False
            grand.red = True
            self._rotate(grand, left=not on_left)
        assert self._root is not None
        self._root.red = False

    def _rotate(self, entry: _Entry[Element], left: bool) -> None:
        riser = entry.right if left else entry.left
        assert riser is not None
        moved = riser.left if left else riser.right
        if left:
            entry.right = moved
            riser.left = entry
        else:
            entry.left = moved
            riser.right = entry
        if moved is not None:
            moved.parent = entry
        riser.parent = entry.parent
        if entry.parent is None:
            self._root = riser
        elif entry.parent.left is entry:
            entry.parent.left = riser
        else:
            entry.parent.right = riser
        entry.parent = riser


# A Plan's nodes and edges as plain data, from which JSON, Mermaid and DOT are written.


def describe_document(plan: Plan) -> dict[str, object]:
    """Return the topology as JSON-ready data."""
    return {
        "application": plan.application,
        "sub_topologies": [
            {
                "id": sub.id,
                "global": sub.is_global,
                "nodes": [_node(node) for node in sub.nodes.values()],
                "stores": list(sub.stores),
            }
            for sub in plan.sub_topologies
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
    ids = _ids()
    lines = ["flowchart TD"]
    for sub in plan.sub_topologies:
        title = f"Sub-topology {sub.id}" + (" (global)" if sub.is_global else "")
        lines.append(f'  subgraph s{sub.id}["{title}"]')
        lines += [f'    {ids[name]}["{_quoted(name)}"]' for name in sub.nodes]
        lines.append("  end")
    lines += [f'  {ids["topic " + topic]}(["{_quoted(topic)}"])' for topic in _topics(plan)]
    lines += [f'  {ids["store " + store]}[("{_quoted(store)}")]' for store in plan.stores]
    for kind, source, target in _edges(plan):
        lines.append(f"  {ids[source]} {'-.-' if kind == 'store' else '-->'} {ids[target]}")
    return "\n".join(lines) + "\n"


def describe_dot(plan: Plan) -> str:
    """Return the topology as a Graphviz graph."""
    ids = _ids()
    lines = ["digraph topology {", "  node [shape=box];"]
    for sub in plan.sub_topologies:
        title = f"Sub-topology {sub.id}" + (" (global)" if sub.is_global else "")
        lines += [f"  subgraph cluster_{sub.id} {{", f'    label="{title}";']
        lines += [f'    {ids[name]} [label="{_escaped(name)}"];' for name in sub.nodes]
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
    for sub in plan.sub_topologies:
        for name, node in sub.nodes.items():
            if isinstance(node, SourceNode):
                for topic in node.topics or (node.pattern or "",):
                    yield "topic", f"topic {topic}", name
            elif isinstance(node, SinkNode):
                yield "topic", name, f"topic {node.target}"
            for child in node.children:
                yield "record", name, child
            for store in node.stores:
                yield "store", name, f"store {store}"


def _ids() -> dict[str, str]:
    """Return short identifiers by name, which are created on first use."""
    ids: dict[str, str] = defaultdict(lambda: f"n{len(ids)}")
    return ids


def _quoted(text: str) -> str:
    return text.replace("&", "&amp;").replace('"', "&quot;").replace("<", "&lt;").replace(">", "&gt;")


def _escaped(text: str) -> str:
    return text.replace("\\", "\\\\").replace('"', '\\"')
