"""`map_values`, on streams and on tables."""

from __future__ import annotations

from typing import ClassVar

from streamkit.code import Code, unless_none
from streamkit.expressions import Expression
from streamkit.operators.codegen.code_writer import CodeWriter, Node, Processor, Slot
from streamkit.operators.codegen.table_code import BatchProcessor, emit_computed, refuse_batch
from streamkit.operators.core.fields import BATCH_CALL, NAME, STORE, VALUE_SERDE, Expr, Field
from streamkit.operators.core.frozen import frozen
from streamkit.operators.core.operator import (
    Context,
    DerivedWork,
    Operator,
    Stream,
    Table,
    TypeInference,
    Types,
    add_stream_node,
    misplaced,
)
from streamkit.operators.core.parsed_values import BatchCall, Step
from streamkit.operators.core.step_stores import derived_table, materialize_if_named
from streamkit.operators.core.value_getters import MapValuesGetter
from streamkit.serdes.serde import Serde


@frozen
class MapValues(Processor):
    """Replaces the value (KStreamMapValues)."""

    value: Expression

    def emit(self, node: Node, gen: CodeWriter) -> None:
        value = gen.var("v")
        with gen.guard(node):
            gen.assign(value, gen.expr(self.value))
        gen.forward(node, value=Slot(value))


@frozen
class TableMapValues(Processor):
    """Replaces the values of a table. None stays None without evaluating the expression (KTableMapValues)."""

    value: Expression
    store: str | None
    send_old: bool

    def emit(self, node: Node, gen: CodeWriter) -> None:
        def mapped(slot: Slot) -> Code:
            value = gen.object_of(slot)
            return unless_none(value, gen.expr(self.value, value=value))

        emit_computed(gen, node, self.store, self.send_old, mapped)


class MapValuesOperator(Operator[Stream | Table]):
    """`map_values` (KStream.mapValues, KTable.mapValues)."""

    name: ClassVar[str] = "map_values"
    main = "value"
    fields = (
        Field("value", Expr(batch=True), "The new value.", required=True),
        *BATCH_CALL,
        VALUE_SERDE,
        NAME,
        STORE,
    )
    accepts = ("stream", "table")
    summary = (
        "Replaces the value and keeps the key, so no repartitioning is needed. On a table, deleted rows stay deleted "
        "without evaluating the expression, and `store` materializes the result."
    )

    def types(self, inference: TypeInference) -> Types:
        return Types(inference.upstream_types.key, inference.option_type("value"))

    def build(self, step: Step, upstream: Stream | Table, builder: Context) -> Stream | Table:
        serde = step.get("value_serde", builder.default_value)
        if isinstance(upstream, Table):
            return self._build_table(step, upstream, serde, builder)
        if step.get("store") is not None:
            raise misplaced(step, "store", "tables", upstream.label)
        name = builder.graph.names.named(step.get("name"), "KSTREAM-MAPVALUES-")
        value = step.options["value"]
        processor = BatchProcessor(value, "BatchMap") if isinstance(value, BatchCall) else MapValues(value)
        return add_stream_node(upstream, builder, name, processor, value_serde=serde)

    def _build_table(self, step: Step, table: Table, serde: Serde, ctx: Context) -> Table:
        refuse_batch(step, "value")
        store = materialize_if_named(step, ctx, (table.key_serde, serde), "KTABLE-MAPVALUES-")
        name = ctx.graph.names.named(step.get("name"), "KTABLE-MAPVALUES-")
        value = step.options["value"]
        work = DerivedWork(table, store, lambda parent: MapValuesGetter(parent, value))
        return derived_table(step, ctx, name, work, serde, lambda _, own: TableMapValues(value, own, work.send_old))
