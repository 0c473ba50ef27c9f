"""`map_values`, on streams and on tables."""

from __future__ import annotations

from typing import ClassVar

from streamkit.code import NONE, Code, unless_none
from streamkit.expressions import Expression
from streamkit.graph.physical_topology import ProcessorGraphNode
from streamkit.operators.codegen.code_writer import CodeWriter, Node, Processor, Slot
from streamkit.operators.codegen.table_code import BatchProcessor, emit_get_value, emit_put, refuse_batch
from streamkit.operators.core.fields import BATCH_CALL, NAME, STORE, VALUE_SERDE, Expr, Field
from streamkit.operators.core.frozen import frozen
from streamkit.operators.core.operator import (
    BuildError,
    Context,
    DerivedWork,
    Operator,
    Stream,
    Table,
    TypeInference,
    Types,
    add_stream_node,
    serde_or_none,
)
from streamkit.operators.core.parsed_values import BatchCall, Step
from streamkit.operators.core.step_stores import materialize_if_named, output_versioned
from streamkit.operators.core.value_getters import Getter, MapValuesGetter
from streamkit.serdes.serde import Serde
from streamkit.state.definitions import StoreDef


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
        record, new, old = gen.record, gen.var("new"), gen.var("old")
        assert record.old is not None
        with gen.guard(node):
            gen.assign(new, self._mapped(gen, record.value))
            if not self.send_old:
                gen.assign(old, NONE)
            elif self.store is None:
                gen.assign(old, self._mapped(gen, record.old))
            elif not gen.is_cached(self.store):
                emit_get_value(gen, self.store, old)
        if self.store is not None:
            emit_put(gen, node, self.store, new, old if self.send_old else None, record.time)
        else:
            gen.forward(node, value=Slot(new), old=Slot(old))

    def _mapped(self, gen: CodeWriter, slot: Slot) -> Code:
        value = gen.object_of(slot)
        return unless_none(value, gen.expr(self.value, value=value))


class _MapValuesWork(DerivedWork):
    def __init__(self, parent: Table, store: StoreDef | None, value: Expression):
        super().__init__(parent, store)
        self.value = value

    def computed(self) -> Getter:
        return MapValuesGetter(self.parent.getter(), self.value)


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
            raise BuildError(step.at("store"), f"{self.name}: `store` is for tables; this step's upstream is a stream")
        name = builder.graph.names.named(step.get("name"), "KSTREAM-MAPVALUES-")
        value = step.options["value"]
        processor = BatchProcessor(value, "BatchMap") if isinstance(value, BatchCall) else MapValues(value)
        return add_stream_node(upstream, builder, name, processor, value_serde=serde)

    def _build_table(self, step: Step, table: Table, serde: Serde, ctx: Context) -> Table:
        refuse_batch(step, "value")
        store = materialize_if_named(step, ctx, (table.key_serde, serde), "KTABLE-MAPVALUES-")
        name = ctx.graph.names.named(step.get("name"), "KTABLE-MAPVALUES-")
        value = step.options["value"]
        work = _MapValuesWork(table, store, value)
        node = ProcessorGraphNode(
            name,
            lambda: TableMapValues(value, store.name if store is not None else None, work.send_old),
            stores=() if store is None else (store,),
        )
        node.serdes = (serde_or_none(table.key_serde), serde)
        node.output_versioned = output_versioned(step, store)
        ctx.graph.add(table.node, node)
        return Table(name, node, table.sources, table.key_serde, serde, work)
