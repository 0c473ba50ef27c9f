"""`select_key`: a new key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from streamkit.graph.node import ProcessorNode
from streamkit.operators.base import Example, Operator, Processor
from streamkit.operators.context import Context
from streamkit.operators.fields import KEY_SERDE, NAME, Expr, Field, Step
from streamkit.operators.frozen import frozen
from streamkit.operators.hand import Slot
from streamkit.operators.serdes import plain_or_none
from streamkit.operators.typing import Types, Typing
from streamkit.operators.upstream import Stream

if TYPE_CHECKING:
    from streamkit.operators.writer import CodeWriter, Node


@frozen
class SelectKey(Processor):
    """Replaces the key (KStreamMap under KEY-SELECT)."""

    key: Any

    def emit(self, node: Node, gen: CodeWriter) -> None:
        key = gen.var("k")
        with gen.guard(node):
            gen.assign(key, gen.expr(self.key))
        gen.forward(node, key=Slot(key))


def select_key(builder: Context, upstream: Stream, key: Any, serde: Any, given: str | None) -> Stream:
    """Add a node that replaces the key and return the stream below it."""
    name = builder.graph.names.named(given, "KSTREAM-KEY-SELECT-")
    node = ProcessorNode(name, SelectKey(key), key_changing=True)
    node.serdes = (serde, plain_or_none(upstream.value_serde))
    builder.graph.add(upstream.node, node)
    return upstream.below(name, node, key_serde=serde, repartition_required=True)


class SelectKeyOperator(Operator):
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
        "needs records by key, which then repartitions."
    )
    example = Example(
        topology="""streamkit: 1
application: orders-by-customer
topics:
  orders: {value: json}
  by-customer: {value: json}
pipelines:
  by-customer:
    stream: orders
    steps:
      - select_key: value.customer
    to: by-customer
""",
        input="""{"topic": "orders", "key": "1", "value": {"customer": "ada"}, "timestamp": 0}
""",
        output="""{"topic": "by-customer", "key": "ada", "value": {"customer": "ada"}, "timestamp": 0}
""",
    )

    def types(self, hand: Typing) -> Types:
        return Types(hand.of("key"), hand.own.value)

    def build(self, step: Step, upstream: Any, builder: Context) -> Stream:
        serde = step.get("key_serde", builder.default_key)
        return select_key(builder, upstream, step.options["key"], serde, step.get("name"))
