"""`select_key`: a new key."""

from __future__ import annotations

from typing import ClassVar

from streamkit.expressions import Expression
from streamkit.operators.codegen.code_writer import CodeWriter, Node, Processor, Slot
from streamkit.operators.core.fields import KEY_SERDE, NAME, Expr, Field
from streamkit.operators.core.frozen import frozen
from streamkit.operators.core.operator import Context, Operator, Stream, TypeInference, Types, add_stream_node
from streamkit.operators.core.parsed_values import Step
from streamkit.serdes.serde import Serde


@frozen
class SelectKey(Processor):
    """Replaces the key (KStreamMap under KEY-SELECT)."""

    key: Expression

    def emit(self, node: Node, gen: CodeWriter) -> None:
        key = gen.var("k")
        with gen.guard(node):
            gen.assign(key, gen.expr(self.key))
        gen.forward(node, key=Slot(key))


def select_key(builder: Context, upstream: Stream, key: Expression, serde: Serde, given_name: str | None) -> Stream:
    """Add a node that replaces the key and return the stream below it."""
    name = builder.graph.names.named(given_name, "KSTREAM-KEY-SELECT-")
    return add_stream_node(upstream, builder, name, SelectKey(key), key_serde=serde, repartition_required=True)


class SelectKeyOperator(Operator[Stream]):
    """`select_key` (KStream.selectKey)."""

    name: ClassVar[str] = "select_key"
    main = "key"
    fields = (
        Field("key", Expr(), "The new key.", required=True),
        KEY_SERDE,
        NAME,
    )
    summary = (
        "Gives each record a new key. The record stays in its partition until an aggregation, a join or `to_table` "
        "needs records by key and repartitions."
    )

    def types(self, inference: TypeInference) -> Types:
        return Types(inference.option_type("key"), inference.upstream_types.value)

    def build(self, step: Step, upstream: Stream, builder: Context) -> Stream:
        serde = step.get("key_serde", builder.default_key)
        return select_key(builder, upstream, step.options["key"], serde, step.get("name"))
