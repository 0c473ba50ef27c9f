"""`process_values` on tables: a Python callable computes the value of each row (KTable.transformValues)."""

from __future__ import annotations

from typing import ClassVar

from streamkit.code import NONE, Code, method
from streamkit.graph.physical_topology import ProcessorGraphNode
from streamkit.operators.codegen.code_writer import CodeWriter, Node, Processor, Slot
from streamkit.operators.codegen.table_code import emit_get_value, emit_put, emit_transformer
from streamkit.operators.core.frozen import frozen
from streamkit.operators.core.operator import BuildError, Context, DerivedWork, Table, serde_or_none
from streamkit.operators.core.parsed_values import CallRef, Step
from streamkit.operators.core.step_stores import materialize_if_named, output_versioned
from streamkit.operators.core.value_getters import Getter, TransformGetter
from streamkit.state.definitions import StoreDef


@frozen
class TransformValues(Processor):
    """Calls a Python class or function for a table's values, also for deleted rows (KTableTransformValues)."""

    call: CallRef
    connected: tuple[str, ...]
    """The stores that the callable may use."""
    store: str | None
    send_old: bool

    needs_context: ClassVar[bool] = True

    def emit(self, node: Node, gen: CodeWriter) -> None:
        transformer = emit_transformer(gen, node, self.call, self.connected, ("transform", node.name))
        record, new, old = gen.record, gen.var("new"), gen.var("old")
        assert record.old is not None

        def transformed(value: Slot) -> Code:
            return method(
                transformer, "transform", gen.object_of(record.key), gen.object_of(value), record.time, record.context
            )

        with gen.guard(node):
            gen.assign(new, transformed(record.value))
            if not self.send_old:
                gen.assign(old, NONE)
            elif self.store is None:
                gen.assign(old, transformed(record.old))
            elif not gen.is_cached(self.store):
                emit_get_value(gen, self.store, old)
        if self.store is not None:
            emit_put(gen, node, self.store, new, old if self.send_old else None, record.time)
        else:
            gen.forward(node, value=Slot(new), old=Slot(old))


class _TransformWork(DerivedWork):
    def __init__(self, parent: Table, store: StoreDef | None, step: Step, node: str):
        super().__init__(parent, store)
        self.step, self.node = step, node

    def computed(self) -> Getter:
        if self.step.get("stores"):
            # Java fails at the start, because the processor that looks up rows is not connected to these stores.
            raise BuildError(
                self.step.at("stores"),
                "process_values: a later step looks up rows, but can't use these stores to compute them; "
                "give the result a `store`",
            )
        return TransformGetter(self.parent.getter(), self.step.options["call"], self.node)


def transform_values(step: Step, table: Table, ctx: Context) -> Table:
    """Build `transformValues` of a table (KTableImpl.doTransformValues). A store without a name uses up no index."""
    value_serde = step.get("value_serde", ctx.default_value)
    store = materialize_if_named(step, ctx, (table.key_serde, value_serde), None)
    name = ctx.graph.names.named(step.get("name"), "KTABLE-TRANSFORMVALUES-")
    connected = tuple(step.get("stores") or ())
    definitions = [ctx.custom_store(each, step) for each in connected]
    work = _TransformWork(table, store, step, name)
    node = ProcessorGraphNode(
        name,
        lambda: TransformValues(
            step.options["call"], connected, store.name if store is not None else None, work.send_old
        ),
        stores=(*(() if store is None else (store,)), *definitions),
    )
    node.serdes = (serde_or_none(table.key_serde), value_serde)
    node.output_versioned = output_versioned(step, store)
    ctx.graph.add(table.node, node)
    return Table(name, node, table.sources, table.key_serde, value_serde, work)
