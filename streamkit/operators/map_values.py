"""`map_values`, on streams and on tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from streamkit.code import NONE, Code, unless_none
from streamkit.graph.node import ProcessorNode
from streamkit.operators.base import BuildError, Example, Operator, Processor
from streamkit.operators.context import Context
from streamkit.operators.emitting import emit_keep, emit_row
from streamkit.operators.fields import NAME, STORE, VALUE_SERDE, Expr, Field, Step
from streamkit.operators.frozen import frozen
from streamkit.operators.getters import Getter, MapValuesGetter, StoreGetter
from streamkit.operators.hand import Slot
from streamkit.operators.serdes import plain_or_none
from streamkit.operators.stores import materialize_if_named, output_versioned
from streamkit.operators.typing import Types, Typing
from streamkit.operators.upstream import Stream, Table, TableWork

if TYPE_CHECKING:
    from streamkit.operators.writer import CodeWriter, Node


@frozen
class MapValues(Processor):
    """Replaces the value (KStreamMapValues)."""

    value: Any

    def emit(self, node: Node, gen: CodeWriter) -> None:
        value = gen.var("v")
        with gen.guard(node):
            gen.assign(value, gen.expr(self.value))
        gen.forward(node, value=Slot(value))


@frozen
class TableMapValues(Processor):
    """Replaces the values of a table; None stays None without asking the expression (KTableMapValues)."""

    value: Any
    store: str | None
    send_old: bool

    def emit(self, node: Node, gen: CodeWriter) -> None:
        hand, new, old = gen.hand, gen.var("new"), gen.var("old")
        assert hand.old is not None
        with gen.guard(node):
            gen.assign(new, self._mapped(gen, hand.value))
            if not self.send_old:
                gen.assign(old, NONE)
            elif self.store is None:
                gen.assign(old, self._mapped(gen, hand.old))
            elif not gen.is_cached(self.store):
                emit_row(gen, self.store, old)
        if self.store is not None:
            emit_keep(gen, node, self.store, new, old if self.send_old else None, hand.time)
        else:
            gen.forward(node, value=Slot(new), old=Slot(old))

    def _mapped(self, gen: CodeWriter, slot: Slot) -> Code:
        value = gen.obj(slot)
        return unless_none(value, gen.expr(self.value, value=value))


class _MapValuesWork(TableWork):
    def __init__(self, parent: Table, value: Any, store: Any, origin: Any):
        super().__init__()
        self.parent, self.value, self.store, self.origin = parent, value, store, origin

    def enable_old_values(self, force: bool) -> bool:
        if self.store is not None or self.parent.enable_old_values(force):
            self.send_old = True
        return self.send_old

    def view(self) -> Getter:
        if self.store is not None:
            return StoreGetter(self.store.name, self.store.type == "versioned")
        return MapValuesGetter(self.parent.getter(), self.value, self.origin)


class MapValuesOperator(Operator):
    """`map_values` (KStream.mapValues, KTable.mapValues)."""

    name: ClassVar[str] = "map_values"
    main = "value"
    fields = (
        Field("value", Expr(), "The new value.", required=True),
        VALUE_SERDE,
        NAME,
        STORE,
    )
    accepts = ("stream", "table")
    summary = (
        "Replaces the value and leaves the key alone, so that nothing needs to be repartitioned. On a table, deleted "
        "rows stay deleted without asking the expression, and `store` materializes the result."
    )
    example = Example(
        topology="""streamkit: 1
application: shout
topics:
  words: {value: string}
  loud: {value: string}
pipelines:
  loud:
    stream: words
    steps:
      - map_values: {value: value.upper(), value_serde: string}
    to: loud
""",
        input="""{"topic": "words", "key": "a", "value": "hello", "timestamp": 0}
""",
        output="""{"topic": "loud", "key": "a", "value": "HELLO", "timestamp": 0}
""",
    )

    def types(self, hand: Typing) -> Types:
        return Types(hand.own.key, hand.of("value"))

    def build(self, step: Step, upstream: Any, builder: Context) -> Any:
        serde = step.get("value_serde", builder.default_value)
        if isinstance(upstream, Table):
            return self._build_table(step, upstream, serde, builder)
        if step.get("store") is not None:
            raise BuildError(step.at("store"), f"{self.name}: `store` is for tables; this stands on a stream")
        name = builder.graph.names.named(step.get("name"), "KSTREAM-MAPVALUES-")
        node = ProcessorNode(name, MapValues(step.options["value"]), value_changing=True)
        node.serdes = (plain_or_none(upstream.key_serde), serde)
        builder.graph.add(upstream.node, node)
        result: Stream = upstream.below(name, node, value_serde=serde)
        return result

    def _build_table(self, step: Step, table: Table, serde: Any, ctx: Context) -> Table:
        store = materialize_if_named(step, ctx, (table.key_serde, serde), "KTABLE-MAPVALUES-")
        name = ctx.graph.names.named(step.get("name"), "KTABLE-MAPVALUES-")
        value = step.options["value"]
        work = _MapValuesWork(table, value, store, ctx.graph.origin)
        node = ProcessorNode(
            name,
            lambda: TableMapValues(value, store.name if store is not None else None, work.send_old),
            stores=() if store is None else (store,),
        )
        node.serdes = (plain_or_none(table.key_serde), serde)
        node.output_versioned = output_versioned(step, store)
        ctx.graph.add(table.node, node)
        return Table(name, node, table.sources, table.key_serde, serde, work)
