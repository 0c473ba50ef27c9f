"""Which topics hold a table, so that of each key only the last record counts."""

from __future__ import annotations

from typing import Any

from streamkit.operators.filter import Filter
from streamkit.operators.map_values import MapValues
from streamkit.operators.pass_through import PassThrough
from streamkit.operators.peek import Peek
from streamkit.operators.print import Print
from streamkit.operators.to_stream import ToStream
from streamkit.plan.model import Plan, SinkNode, SubTopology

_KEEP_KEYS = (Filter, MapValues, PassThrough, Peek, Print)


def table_topics(plan: Plan) -> frozenset[str]:
    """Return the topics whose records are all changes of tables, with the tables' own keys."""
    found: dict[str, bool] = {}
    for sub in plan.sub_topologies:
        for node in sub.nodes.values():
            if isinstance(node, SinkNode) and node.topic is not None and not node.internal:
                of_table = all(_is_table(sub, parent) for parent in node.parents)
                found[node.topic] = of_table and found.get(node.topic, True)
    return frozenset(topic for topic, of_table in found.items() if of_table)


def _is_table(sub: SubTopology, name: str) -> bool:
    """Tell whether a node forwards a table's changes, under its keys."""
    node: Any = sub.nodes[name]
    processor = getattr(node, "processor", None)
    if isinstance(processor, ToStream):
        return True
    return isinstance(processor, _KEEP_KEYS) and all(_is_table(sub, parent) for parent in node.parents)
