"""Finds whether a node may hold records back: what follows from them must not mix with what follows from other nodes."""

from __future__ import annotations

from streamkit.plan.model import PlanNode, SinkNode, SourceNode, SubTopology


def mixes_order(sub_topology: SubTopology, name: str) -> bool:
    """Return whether nodes below one share a child, a store or a topic with nodes that are not below it, or a store with it.

    If they do, the order of records there would depend on how long the node holds records back.
    """
    nodes = sub_topology.nodes
    below = _below(sub_topology, name)
    others = [node for each, node in nodes.items() if each not in below]
    mine = [node for each, node in nodes.items() if each in below]
    if any(parent not in below for node in mine if node.name != name for parent in _parents(node)):
        return True
    held, rest = _stores([nodes[name]]), _stores([node for node in mine if node.name != name])
    if (held | rest) & _stores(others) or held & rest:
        return True
    written, elsewhere = _topics(mine), _topics(others)
    # A topic that an expression gives may be any.
    if None in written | elsewhere:
        return bool(written and elsewhere)
    return bool(written & elsewhere)


def _below(sub_topology: SubTopology, name: str) -> set[str]:
    """Return a node and all nodes that its records reach."""
    found, pending = {name}, [name]
    while pending:
        node = sub_topology.nodes[pending.pop()]
        children = () if isinstance(node, SinkNode) else node.children
        pending += [child for child in children if child not in found]
        found.update(children)
    return found


def _parents(node: PlanNode) -> tuple[str, ...]:
    return () if isinstance(node, SourceNode) else node.parents


def _stores(nodes: list[PlanNode]) -> set[str]:
    return {store for node in nodes for store in getattr(node, "stores", ())}


def _topics(nodes: list[PlanNode]) -> set[str | None]:
    return {node.topic for node in nodes if isinstance(node, SinkNode)}
