"""Joins of a stream with a global table, by a key that is computed from the record."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamkit.code import any_of, is_none, method, unless_none
from streamkit.graph.physical_topology import ProcessorGraphNode
from streamkit.operators.codegen.table_code import emit_joined
from streamkit.operators.core.frozen import frozen
from streamkit.operators.core.operator import Context, GlobalTable, Processor, Stream, serde_or_none
from streamkit.operators.core.parsed_values import Step

if TYPE_CHECKING:
    from streamkit.expressions import Expression
    from streamkit.operators.codegen.code_writer import CodeWriter, Node


@frozen
class StreamGlobalJoin(Processor):
    """Joins records with the global table's row under the key that `on` gives (KStreamGlobalKTableJoin)."""

    left: bool
    on: Expression
    value: Expression
    store: str

    def emit(self, node: Node, gen: CodeWriter) -> None:
        record = gen.record
        mapped, key = gen.var("mapped"), gen.var("b")
        serde = gen.stores[self.store].key_serde
        with gen.guard(node):
            gen.assign(mapped, gen.expr(self.on))
            gen.assign(key, gen.encoded(serde, mapped))
        gen.drop_where(any_of(record.value.is_none(), *([] if self.left else [is_none(mapped)])))
        found = unless_none(key, method(gen.store(self.store), "get", key))
        emit_joined(node, gen, found, self.left, self.value, mapped_key=mapped)

    def why_nothing(self) -> str:
        return "the global table has no row with its key"


def join_global(step: Step, ctx: Context, stream: Stream, table: GlobalTable, left: bool) -> Stream:
    """Build a join of a stream and a global table (KStreamImpl.globalTableJoin)."""
    # Java names the node LEFTJOIN for inner joins, too.
    name = ctx.graph.names.named(step.get("name"), "KSTREAM-LEFTJOIN-")
    node = ProcessorGraphNode(name, StreamGlobalJoin(left, step.options["on"], step.options["value"], table.store))
    value_serde = step.get("value_serde", ctx.default_value)
    node.serdes = (serde_or_none(stream.key_serde), value_serde)
    node.relaxed_null_key_join = left
    ctx.graph.add(stream.node, node)
    return stream.below(name, node, value_serde=value_serde)
