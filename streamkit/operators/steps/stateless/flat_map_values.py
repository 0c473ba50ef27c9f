"""`flat_map_values`: turns each record into any number of records with the same key."""

from __future__ import annotations

from typing import ClassVar

from streamkit.code import call
from streamkit.expressions import Expression
from streamkit.operators.codegen.code_writer import CodeWriter, Node, Processor, Slot
from streamkit.operators.codegen.table_code import BatchProcessor
from streamkit.operators.core.fields import BATCH_CALL, NAME, VALUE_SERDE, Expr, Field
from streamkit.operators.core.frozen import frozen
from streamkit.operators.core.operator import Context, Operator, Stream, TypeInference, Types, add_stream_node
from streamkit.operators.core.parsed_values import BatchCall, Step
from streamkit.rounds import many


@frozen
class FlatMapValues(Processor):
    """Forwards a record for each value of an iterable (KStreamFlatMapValues)."""

    values: Expression

    def emit(self, node: Node, gen: CodeWriter) -> None:
        values, value = gen.var("values"), gen.var("v")
        with gen.guard(node):
            gen.assign(values, call(gen.name_of(many, "many"), call("list", gen.expr(self.values))))
        with gen.each((value,), values):
            gen.charge_record(node, value)
            gen.forward(node, value=Slot(value))

    def why_nothing(self) -> str:
        return "the step turns it into no records"


class FlatMapValuesOperator(Operator[Stream]):
    """`flat_map_values` (KStream.flatMapValues)."""

    name: ClassVar[str] = "flat_map_values"
    main = "values"
    fields = (
        Field("values", Expr(batch=True), "An iterable of new values.", required=True),
        *BATCH_CALL,
        VALUE_SERDE,
        NAME,
    )
    summary = (
        "Turns each record into one record per value of an iterable, all with the record's key. An empty iterable "
        "drops the record."
    )

    def types(self, inference: TypeInference) -> Types:
        return Types(inference.upstream_types.key, inference.item_type("values"))

    def build(self, step: Step, upstream: Stream, builder: Context) -> Stream:
        serde = step.get("value_serde", builder.default_value)
        name = builder.graph.names.named(step.get("name"), "KSTREAM-FLATMAPVALUES-")
        values = step.options["values"]
        processor = BatchProcessor(values, "BatchFlatMap") if isinstance(values, BatchCall) else FlatMapValues(values)
        return add_stream_node(upstream, builder, name, processor, value_serde=serde)
