"""`flat_map`: turns each record into any number of records."""

from __future__ import annotations

from typing import ClassVar

from streamkit.code import call, listing, tuple_of
from streamkit.expressions import Expression
from streamkit.operators.codegen.code_writer import CodeWriter, Node, Processor, Slot
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
from streamkit.rounds import many


@frozen
class FlatMap(Processor):
    """Forwards a record for each pair of key and value (KStreamFlatMap)."""

    records: Expression

    def emit(self, node: Node, gen: CodeWriter) -> None:
        pairs, key, value = gen.var("pairs"), gen.var("k"), gen.var("v")
        with gen.guard(node):
            results = listing(tuple_of(key, value), (key, value), gen.expr(self.records))
            gen.assign(pairs, call(gen.name_of(many, "many"), results))
        with gen.each((key, value), pairs):
            gen.charge_record(node, value)
            gen.forward(node, key=Slot(key), value=Slot(value))

    def why_nothing(self) -> str:
        return "the step turns it into no records"


class FlatMapOperator(Operator[Stream]):
    """`flat_map` (KStream.flatMap)."""

    name: ClassVar[str] = "flat_map"
    main = "records"
    fields = (
        Field("records", Expr(), "A list of pairs `(key, value)`.", required=True),
        KEY_SERDE,
        VALUE_SERDE,
        NAME,
    )
    summary = (
        "Turns each record into any number of records, given as a list of `(key, value)` pairs. Like `map` it "
        "changes keys, so later steps may need to repartition; `flat_map_values` does not."
    )

    def types(self, inference: TypeInference) -> Types:
        inference.item_type("records")
        return Types()

    def build(self, step: Step, upstream: Stream, builder: Context) -> Stream:
        key_serde = step.get("key_serde", builder.default_key)
        value_serde = step.get("value_serde", builder.default_value)
        name = builder.graph.names.named(step.get("name"), "KSTREAM-FLATMAP-")
        changes: StreamChanges = {"key_serde": key_serde, "value_serde": value_serde, "repartition_required": True}
        return add_stream_node(upstream, builder, name, FlatMap(step.options["records"]), **changes)
