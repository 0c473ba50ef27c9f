"""Joins of a stream with a global table, by a key of the record's choice."""

from __future__ import annotations

from typing import Any

from streamkit.graph.node import ProcessorNode
from streamkit.operators.base import Processor
from streamkit.operators.context import Context
from streamkit.operators.emitting import emit_enriched
from streamkit.operators.fields import Step
from streamkit.operators.frozen import frozen
from streamkit.operators.serdes import plain_or_none
from streamkit.operators.upstream import GlobalTable, Stream


@frozen
class StreamGlobalJoin(Processor):
    """Looks records up in a global table by the key that `on` gives (KStreamGlobalKTableJoin)."""

    left: bool
    on: Any
    value: Any
    store: str

    def emit(self, node: Any, gen: Any) -> None:
        hand = gen.hand
        mapped, key = gen.var("mapped"), gen.var("b")
        serde = gen.plan.stores[self.store].key_serde
        with gen.guard(node):
            gen.line(f"{mapped} = {gen.expr(self.on)}")
            gen.line(f"{key} = {gen.encoded(serde, mapped)}")
        no_key = "" if self.left else f" or {mapped} is None"
        gen.line(f"if {hand.value.test_var()} is None{no_key}:")
        with gen.indented():
            gen.drop()
        gen.line("else:")
        gen.depth += 1
        found = f"None if {key} is None else {gen.store(self.store)}.get({key})"
        emit_enriched(node, gen, found, self.left, self.value)


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
