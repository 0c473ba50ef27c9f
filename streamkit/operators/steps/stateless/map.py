"""`map` replaces keys and values."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from streamkit.errors import Problem
from streamkit.expressions import Expression
from streamkit.operators.codegen.code_writer import Changes, CodeWriter, Node, Processor, Slot
from streamkit.operators.core.fields import KEY_SERDE, NAME, VALUE_SERDE, Expr, Field
from streamkit.operators.core.frozen import frozen
from streamkit.operators.core.operator import (
    Context,
    Operator,
    Stream,
    StreamChanges,
    TypeInference,
    Types,
    add_stream_node,
)
from streamkit.operators.core.parsed_values import Step


@frozen
class Map(Processor):
    """Replaces the key and the value, unless their expressions are None (KStreamMap)."""

    key: Expression | None
    value: Expression | None

    def emit(self, node: Node, gen: CodeWriter) -> None:
        changes: Changes = {}
        with gen.guard(node):
            if self.key is not None:
                changes["key"] = self._compute(gen, "k", self.key)
            if self.value is not None:
                changes["value"] = self._compute(gen, "v", self.value)
        gen.forward(node, **changes)

    def _compute(self, gen: CodeWriter, prefix: str, expression: Expression) -> Slot:
        variable = gen.var(prefix)
        gen.assign(variable, gen.expr(expression))
        return Slot(variable)


class MapOperator(Operator[Stream]):
    """`map` (KStream.map)."""

    name: ClassVar[str] = "map"
    fields = (
        Field("key", Expr(), "The new key; without it, the key and its serde do not change."),
        Field("value", Expr(), "The new value; without it, the value and its serde do not change."),
        KEY_SERDE,
        VALUE_SERDE,
        NAME,
    )
    summary = (
        "Replaces the key and the value of each record. If `key` or `value` is absent, that side does not change. A "
        "later step that needs records by key, such as an aggregation or a join, repartitions first; if the key does "
        "not change, use `map_values` to avoid this."
    )

    def check(self, step: Step) -> Iterable[Problem]:
        if "key" not in step.options and "value" not in step.options:
            yield Problem(step.position, "map: expected `key`, `value` or both")
        for side in ("key", "value"):
            if f"{side}_serde" in step.options and side not in step.options:
                yield Problem(
                    step.at(f"{side}_serde"), f"map: `{side}_serde` needs `{side}`: it is the serde of that expression"
                )

    def types(self, inference: TypeInference) -> Types:
        key = inference.option_type("key") if "key" in inference.step.options else inference.upstream_types.key
        value = inference.option_type("value") if "value" in inference.step.options else inference.upstream_types.value
        return Types(key, value)

    def build(self, step: Step, upstream: Stream, builder: Context) -> Stream:
        key, value = step.get("key"), step.get("value")
        changes: StreamChanges = {"repartition_required": True}
        if key is not None:
            changes["key_serde"] = step.get("key_serde", builder.default_key)
        if value is not None:
            changes["value_serde"] = step.get("value_serde", builder.default_value)
        name = builder.graph.names.named(step.get("name"), "KSTREAM-MAP-")
        return add_stream_node(upstream, builder, name, Map(key, value), **changes)
