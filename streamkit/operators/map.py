"""`map`: new keys and values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

from streamkit.errors import Problem
from streamkit.graph.node import ProcessorNode
from streamkit.operators.base import Example, Operator, Processor
from streamkit.operators.context import Context
from streamkit.operators.fields import KEY_SERDE, NAME, VALUE_SERDE, Expr, Field, Step
from streamkit.operators.frozen import frozen
from streamkit.operators.hand import Slot
from streamkit.operators.serdes import plain_or_none
from streamkit.operators.typing import Types, Typing
from streamkit.operators.upstream import Stream

if TYPE_CHECKING:
    from streamkit.expressions import Expression
    from streamkit.operators.writer import Changes, CodeWriter, Node


@frozen
class Map(Processor):
    """Replaces key and value; None for one that stays (KStreamMap)."""

    key: Any
    value: Any

    def emit(self, node: Node, gen: CodeWriter) -> None:
        changes: Changes = {}
        with gen.guard(node):
            if self.key is not None:
                changes["key"] = self._made(gen, "k", self.key)
            if self.value is not None:
                changes["value"] = self._made(gen, "v", self.value)
        gen.forward(node, **changes)

    def _made(self, gen: CodeWriter, prefix: str, expression: Expression) -> Slot:
        variable = gen.var(prefix)
        gen.assign(variable, gen.expr(expression))
        return Slot(variable)


class MapOperator(Operator):
    """`map` (KStream.map)."""

    name: ClassVar[str] = "map"
    fields = (
        Field("key", Expr(), "The new key; without it the key and its serde stay."),
        Field("value", Expr(), "The new value; without it the value and its serde stay."),
        KEY_SERDE,
        VALUE_SERDE,
        NAME,
    )
    summary = (
        "Replaces key and value of each record. An absent `key` or `value` leaves that side as it is. What follows and "
        "needs records by key, such as an aggregation or a join, repartitions first; where the key stays, "
        "`map_values` spares that."
    )
    example = Example(
        topology="""streamkit: 1
application: by-city
topics:
  people: {value: json}
  names-by-city: {value: string}
pipelines:
  by-city:
    stream: people
    steps:
      - map: {key: value.city, value: value.name, value_serde: string}
    to: names-by-city
""",
        input="""{"topic": "people", "key": "1", "value": {"city": "Bonn", "name": "Ada"}, "timestamp": 0}
""",
        output="""{"topic": "names-by-city", "key": "Bonn", "value": "Ada", "timestamp": 0}
""",
    )

    def check(self, step: Step) -> Iterable[Problem]:
        if "key" not in step.options and "value" not in step.options:
            yield Problem(step.position, "map: expected `key`, `value` or both")
        for side in ("key", "value"):
            if f"{side}_serde" in step.options and side not in step.options:
                yield Problem(step.at(f"{side}_serde"), f"map: `{side}_serde` needs `{side}`, which is what it is for")

    def types(self, hand: Typing) -> Types:
        key = hand.of("key") if "key" in hand.step.options else hand.own.key
        value = hand.of("value") if "value" in hand.step.options else hand.own.value
        return Types(key, value)

    def build(self, step: Step, upstream: Any, builder: Context) -> Stream:
        key, value = step.get("key"), step.get("value")
        serdes = {}
        if key is not None:
            serdes["key_serde"] = step.get("key_serde", builder.default_key)
        if value is not None:
            serdes["value_serde"] = step.get("value_serde", builder.default_value)
        name = builder.graph.names.named(step.get("name"), "KSTREAM-MAP-")
        node = ProcessorNode(name, Map(key, value), key_changing=True)
        builder.graph.add(upstream.node, node)
        result: Stream = upstream.below(name, node, repartition_required=True, **serdes)
        node.serdes = (plain_or_none(result.key_serde), plain_or_none(result.value_serde))
        return result
