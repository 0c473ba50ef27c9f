"""Joins of a stream with a global table, by a key of the record's choice."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streamkit.graph.node import ProcessorNode
from streamkit.operators.base import Processor
from streamkit.operators.context import Context
from streamkit.operators.fields import Step
from streamkit.operators.serdes import plain_or_none
from streamkit.operators.upstream import GlobalTable, Stream


@dataclass(frozen=True)
class StreamGlobalJoin(Processor):
    """Looks records up in a global table by the key that `on` gives (KStreamGlobalKTableJoin)."""

    left: bool
    on: Any
    value: Any
    store: str


def join_global(step: Step, ctx: Context, stream: Stream, table: GlobalTable, left: bool) -> Stream:
    """Build a join of a stream and a global table (KStreamImpl.globalTableJoin)."""
    # Java calls the node LEFTJOIN for inner joins too.
    name = ctx.graph.names.named(step.get("name"), "KSTREAM-LEFTJOIN-")
    node = ProcessorNode(name, StreamGlobalJoin(left, step.options["on"], step.options["value"], table.store))
    value_serde = step.get("value_serde", ctx.default_value)
    node.serdes = (plain_or_none(stream.key_serde), value_serde)
    node.relaxed_null_key_join = left
    ctx.graph.add(stream.node, node)
    return stream.below(name, node, value_serde=value_serde)
