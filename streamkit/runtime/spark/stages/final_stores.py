"""Final topics and stores: those of which a job needs only the last record of each key."""

from __future__ import annotations

from collections.abc import Collection
from typing import TypeGuard

from streamkit.operators.codegen.code_writer import ProcessorNode
from streamkit.operators.core.plain_nodes import PassThrough, TablePassThrough
from streamkit.operators.steps.aggregations.aggregate_node import StreamAggregate, TableAggregate, WindowAggregate
from streamkit.operators.steps.stateless.filter import Filter
from streamkit.operators.steps.stateless.map_values import MapValues, TableMapValues
from streamkit.operators.steps.stateless.peek import Peek
from streamkit.operators.steps.stateless.print import Print
from streamkit.operators.steps.tables.to_stream import ToStream
from streamkit.plan.model import Plan, SinkNode, SubTopology
from streamkit.runtime.spark.stages.stage_plan import dead_letter_topics, has_routes

_Aggregation = StreamAggregate | TableAggregate | WindowAggregate
_KEEP_KEYS = (Filter, MapValues, PassThrough, Peek, Print)
_ONE_BY_ONE = (MapValues, PassThrough, TableMapValues, TablePassThrough, ToStream)
"""Steps whose result for a change depends on that change alone, not on earlier ones."""


def table_topics(plan: Plan) -> frozenset[str]:
    """Return the topics whose records are all changes of one table, with the table's own keys.

    The last record of a key is not all that counts where several tables, dead letters or routes write it.
    """
    found: dict[str, list[frozenset[str] | None]] = {}
    for sub in plan.sub_topologies:
        routed = has_routes(sub)
        for topic in dead_letter_topics(plan, sub):
            found.setdefault(topic, []).append(None)
        for node in sub.nodes.values():
            if isinstance(node, SinkNode) and node.topic is not None and not node.internal:
                tables = None if routed else _tables(sub, node.parents)
                found.setdefault(node.topic, []).append(tables)
    return frozenset(topic for topic, (first, *others) in found.items() if first and len(first) == 1 and not others)


def _tables(sub: SubTopology, names: Collection[str]) -> frozenset[str] | None:
    """Return the nodes whose tables' changes some nodes forward, under the tables' keys; None where they forward others."""
    found: set[str] = set()
    for name in names:
        node = sub.nodes[name]
        processor = node.processor if isinstance(node, ProcessorNode) else None
        if isinstance(processor, ToStream):
            found.add(name)
            continue
        above = (
            _tables(sub, node.parents)
            if isinstance(node, ProcessorNode) and isinstance(processor, _KEEP_KEYS)
            else None
        )
        if above is None:
            return None
        found |= above
    return frozenset(found)


def final_stores(plan: Plan, final: Collection[str]) -> frozenset[str]:
    """Return the stores of aggregations whose changes lead to `final` topics only: they forward each key's last change."""
    if plan.config.statestore_cache_max_bytes <= 0:
        return frozenset()
    found = set()
    for sub in plan.sub_topologies:
        for node in sub.nodes.values():
            processor = node.processor if isinstance(node, ProcessorNode) else None
            if isinstance(node, ProcessorNode) and _forwards_changes(processor):
                others = [each for each in sub.nodes.values() if each is not node]
                is_own = not any(processor.store in getattr(each, "stores", ()) for each in others)
                store = plan.stores[processor.store]
                # With a time to live a row is deleted at its time, which a store of final changes can't do.
                is_simple = store.type in ("timestamped_key_value", "window") and store.ttl is None
                if is_own and is_simple and all(_only_to(sub, child, final) for child in node.children):
                    found.add(processor.store)
    return frozenset(found)


def _forwards_changes(processor: object) -> TypeGuard[_Aggregation]:
    """Return whether a processor is an aggregation that forwards new values only, and each of them at once."""
    if not isinstance(processor, StreamAggregate | TableAggregate | WindowAggregate) or processor.send_old:
        return False
    return not getattr(processor, "on_close", False)


def _only_to(sub: SubTopology, name: str, final: Collection[str]) -> bool:
    """Return whether a node and those below it write to `final` topics only, a record for each change."""
    node = sub.nodes[name]
    if isinstance(node, SinkNode):
        return node.topic in final
    if not isinstance(node, ProcessorNode) or not isinstance(node.processor, _ONE_BY_ONE) or node.stores:
        return False
    return all(_only_to(sub, child, final) for child in node.children)
