"""`process_values` on tables: a Python callable gives each row its value (KTable.transformValues)."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from streamkit.code import NONE, Code, method
from streamkit.graph.node import ProcessorNode
from streamkit.operators.base import BuildError, Processor
from streamkit.operators.context import Context
from streamkit.operators.emitting import emit_keep, emit_row, emit_transformer
from streamkit.operators.fields import CallRef, Step
from streamkit.operators.frozen import frozen
from streamkit.operators.getters import Getter, StoreGetter, TransformGetter
from streamkit.operators.hand import Slot
from streamkit.operators.serdes import plain_or_none
from streamkit.operators.stores import materialize_if_named, output_versioned
from streamkit.operators.upstream import Table, TableWork
from streamkit.state.definitions import StoreDef

if TYPE_CHECKING:
    from streamkit.operators.writer import CodeWriter, Node


@frozen
class TransformValues(Processor):
    """Asks a Python class or function for a table's values, of deleted rows too (KTableTransformValues)."""

    call: CallRef
    connected: tuple[str, ...]
    """The stores that the callable may use."""
    store: str | None
    send_old: bool

    needs_context: ClassVar[bool] = True

    def emit(self, node: Node, gen: CodeWriter) -> None:
        transformer = emit_transformer(gen, node, self.call, self.connected, ("transform", node.name))
        hand, new, old = gen.hand, gen.var("new"), gen.var("old")
        assert hand.old is not None

        def transformed(value: Slot) -> Code:
            return method(transformer, "transform", gen.obj(hand.key), gen.obj(value), hand.time, hand.context)

        with gen.guard(node):
            gen.assign(new, transformed(hand.value))
            if not self.send_old:
                gen.assign(old, NONE)
            elif self.store is None:
                gen.assign(old, transformed(hand.old))
            elif not gen.is_cached(self.store):
                emit_row(gen, self.store, old)
        if self.store is not None:
            emit_keep(gen, node, self.store, new, old if self.send_old else None, hand.time)
        else:
            gen.forward(node, value=Slot(new), old=Slot(old))


class _TransformWork(TableWork):
    def __init__(self, parent: Table, step: Step, node: str, store: StoreDef | None):
        super().__init__()
        self.parent, self.step, self.node, self.store = parent, step, node, store

    def enable_old_values(self, force: bool) -> bool:
        if self.store is not None or self.parent.enable_old_values(force):
            self.send_old = True
        return self.send_old

    def view(self) -> Getter:
        if self.store is not None:
            return StoreGetter(self.store.name, self.store.type == "versioned")
        if self.step.get("stores"):
            # Java fails at the start: what looks rows up is not connected to these stores.
            raise BuildError(
                self.step.at("stores"),
                "process_values: a step further down looks rows up, and can't use these stores to compute them; "
                "give the result a `store`",
            )
        return TransformGetter(self.parent.getter(), self.step.options["call"], self.node)


def transform_values(step: Step, table: Table, ctx: Context) -> Table:
    """Build `transformValues` of a table (KTableImpl.doTransformValues); a store without a name uses up no index."""
    value_serde = step.get("value_serde", ctx.default_value)
    store = materialize_if_named(step, ctx, (table.key_serde, value_serde), None)
    name = ctx.graph.names.named(step.get("name"), "KTABLE-TRANSFORMVALUES-")
    connected = tuple(step.get("stores") or ())
    definitions = [ctx.custom_store(each, step) for each in connected]
    work = _TransformWork(table, step, name, store)
    node = ProcessorNode(
        name,
        lambda: TransformValues(
            step.options["call"], connected, store.name if store is not None else None, work.send_old
        ),
        stores=(*(() if store is None else (store,)), *definitions),
    )
    node.serdes = (plain_or_none(table.key_serde), value_serde)
    node.output_versioned = output_versioned(step, store)
    ctx.graph.add(table.node, node)
    return Table(name, node, table.sources, table.key_serde, value_serde, work)
