"""Joins of a stream with a global table, by a key of the record's choice."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamkit.code import any_of, is_none, method, unless_none
from streamkit.graph.node import ProcessorNode
from streamkit.operators.base import Processor
from streamkit.operators.context import Context
from streamkit.operators.emitting import emit_enriched
from streamkit.operators.fields import Step
from streamkit.operators.frozen import frozen
from streamkit.operators.serdes import plain_or_none
from streamkit.operators.upstream import GlobalTable, Stream

if TYPE_CHECKING:
    from streamkit.operators.writer import CodeWriter, Node


@frozen
class StreamGlobalJoin(Processor):
    """Looks records up in a global table by the key that `on` gives (KStreamGlobalKTableJoin)."""

    left: bool
    on: Any
    value: Any
    store: str

    def emit(self, node: Node, gen: CodeWriter) -> None:
        hand = gen.hand
        mapped, key = gen.var("mapped"), gen.var("b")
        serde = gen.plan.stores[self.store].key_serde
        with gen.guard(node):
            gen.assign(mapped, gen.expr(self.on))
            gen.assign(key, gen.encoded(serde, mapped))
        gen.drop_where(any_of(hand.value.is_none(), *([] if self.left else [is_none(mapped)])))
        found = unless_none(key, method(gen.store(self.store), "get", key))
        emit_enriched(node, gen, found, self.left, self.value, mapped_key=mapped)


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
