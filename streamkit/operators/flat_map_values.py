"""`flat_map_values`: any number of values from each, under the same key."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from streamkit.code import call
from streamkit.expressions.types import item
from streamkit.graph.node import ProcessorNode
from streamkit.operators.base import Example, Operator, Processor
from streamkit.operators.context import Context
from streamkit.operators.fields import NAME, VALUE_SERDE, Expr, Field, Step
from streamkit.operators.frozen import frozen
from streamkit.operators.hand import Slot
from streamkit.operators.serdes import plain_or_none
from streamkit.operators.typing import Types, Typing
from streamkit.operators.upstream import Stream
from streamkit.rounds import many

if TYPE_CHECKING:
    from streamkit.operators.writer import CodeWriter, Node


@frozen
class FlatMapValues(Processor):
    """Forwards a record for each value of an iterable (KStreamFlatMapValues)."""

    values: Any

    def emit(self, node: Node, gen: CodeWriter) -> None:
        values, value = gen.var("values"), gen.var("v")
        with gen.guard(node):
            gen.assign(values, call(gen.name_of(many, "many"), call("list", gen.expr(self.values))))
        with gen.each((value,), values):
            gen.each_row(node, value)
            gen.forward(node, value=Slot(value))


class FlatMapValuesOperator(Operator):
    """`flat_map_values` (KStream.flatMapValues)."""

    name: ClassVar[str] = "flat_map_values"
    main = "values"
    fields = (
        Field("values", Expr(), "An iterable of new values.", required=True),
        VALUE_SERDE,
        NAME,
    )
    summary = (
        "Turns each record into one record per value of an iterable, all under the record's key. An empty iterable "
        "drops the record."
    )
    example = Example(
        topology="""streamkit: 1
application: split-words
topics:
  lines: {value: string}
  words: {value: string}
pipelines:
  words:
    stream: lines
    steps:
      - flat_map_values: {values: value.split(), value_serde: string}
    to: words
""",
        input="""{"topic": "lines", "key": "k", "value": "to be", "timestamp": 0}
""",
        output="""{"topic": "words", "key": "k", "value": "to", "timestamp": 0}
{"topic": "words", "key": "k", "value": "be", "timestamp": 0}
""",
    )

    def types(self, hand: Typing) -> Types:
        return Types(hand.own.key, item(hand.of("values")))

    def build(self, step: Step, upstream: Any, builder: Context) -> Stream:
        serde = step.get("value_serde", builder.default_value)
        name = builder.graph.names.named(step.get("name"), "KSTREAM-FLATMAPVALUES-")
        node = ProcessorNode(name, FlatMapValues(step.options["values"]), value_changing=True)
        node.serdes = (plain_or_none(upstream.key_serde), serde)
        builder.graph.add(upstream.node, node)
        result: Stream = upstream.below(name, node, value_serde=serde)
        return result
