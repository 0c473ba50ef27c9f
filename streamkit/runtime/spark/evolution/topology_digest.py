"""A hash of what the part of a plan computes, so that an edit between two runs of `evolve` is noticed."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterator
from dataclasses import asdict

from streamkit.changes.of_plan import as_text, rows_of
from streamkit.plan.model import Plan, PlanNode, SinkNode, SourceNode


def digest(plan: Plan) -> str:
    """Return 16 hexadecimal digits, the same for plans that differ only in places in the file and in generated names.

    Expressions, functions of the file, settings of steps, inputs, rows and their retention count; Python modules and the
    settings of the application do not.
    """
    nodes = [node for sub in plan.sub_topologies for node in sub.nodes.values()]
    numbers = {node.name: number for number, node in enumerate(nodes)}
    stores = [(store.retention, store.history, store.grace, store.ttl) for store in plan.stores.values()]
    parts = [
        as_text(plan.functions),
        json.dumps([asdict(rows) for rows in rows_of(plan).values()], sort_keys=True),
        as_text(stores),
        *(text for node in nodes for text in _texts(node, numbers)),
    ]
    return hashlib.sha256("\n".join(parts).encode()).hexdigest()[:16]


def _texts(node: PlanNode, numbers: dict[str, int]) -> Iterator[str]:
    if isinstance(node, SourceNode):
        yield f"reads {as_text([*node.topics, node.pattern, node.timestamps])}"
        return
    yield str([numbers[name] for name in node.parents])
    if isinstance(node, SinkNode):
        yield f"writes {as_text([node.topic, node.partition])}"
    else:
        yield as_text([node.processor, node.on_error])
