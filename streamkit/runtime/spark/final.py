"""Which topics hold a table, so that of each key only the last record counts, and which stores need to give no others."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

from streamkit.operators.aggregation import StreamAggregate, TableAggregate, WindowAggregate
from streamkit.operators.filter import Filter
from streamkit.operators.map_values import MapValues, TableMapValues
from streamkit.operators.pass_through import PassThrough, TablePassThrough
from streamkit.operators.peek import Peek
from streamkit.operators.print import Print
from streamkit.operators.to_stream import ToStream
from streamkit.plan.model import Plan, SinkNode, SubTopology

_KEEP_KEYS = (Filter, MapValues, PassThrough, Peek, Print)
_ONE_BY_ONE = (MapValues, PassThrough, TableMapValues, TablePassThrough, ToStream)
"""Steps whose result for a key's last change is the same whether or not they have seen the changes before it."""


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


def held_stores(plan: Plan, final: Collection[str]) -> frozenset[str]:
    """Return the stores of aggregations whose changes lead to `final` topics only, so that a cache may hold them back."""
    if plan.config["statestore.cache.max.bytes"] <= 0:
        return frozenset()
    found = set()
    for sub in plan.sub_topologies:
        for node in sub.nodes.values():
            processor: Any = getattr(node, "processor", None)
            if _is_held(processor):
                others = [each for each in sub.nodes.values() if each is not node]
                is_own = not any(processor.store in getattr(each, "stores", ()) for each in others)
                store = plan.stores[processor.store]
                # A row that is due must be looked for among all of them, at its time.
                known = store.type in ("timestamped_key_value", "window") and store.ttl is None
                if is_own and known and all(_only_to(sub, child, final) for child in node.children):
                    found.add(processor.store)
    return frozenset(found)


def _is_held(processor: Any) -> bool:
    if not isinstance(processor, StreamAggregate | TableAggregate | WindowAggregate) or processor.send_old:
        return False
    return not getattr(processor, "on_close", False)


def _only_to(sub: SubTopology, name: str, final: Collection[str]) -> bool:
    """Tell whether what a node is given can come out nowhere but in `final` topics, change by change."""
    node: Any = sub.nodes[name]
    if isinstance(node, SinkNode):
        return node.topic in final
    if not isinstance(node.processor, _ONE_BY_ONE) or node.stores:
        return False
    return all(_only_to(sub, child, final) for child in node.children)
