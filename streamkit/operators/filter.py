"""`filter` and `filter_not`, on streams and on tables."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from streamkit.code import NONE, Code, all_of, any_of, either, is_not_none, negated
from streamkit.graph.node import ProcessorNode
from streamkit.operators.base import BuildError, Example, Operator, Processor
from streamkit.operators.context import Context
from streamkit.operators.emitting import emit_keep, emit_row
from streamkit.operators.fields import NAME, STORE, Expr, Field, Step
from streamkit.operators.frozen import frozen
from streamkit.operators.getters import FilterGetter, Getter, StoreGetter
from streamkit.operators.hand import Slot
from streamkit.operators.serdes import plain_or_none
from streamkit.operators.stores import materialize_if_named, output_versioned
from streamkit.operators.upstream import Stream, Table, TableWork

if TYPE_CHECKING:
    from streamkit.operators.writer import CodeWriter, Node


@frozen
class Filter(Processor):
    """Keeps records whose predicate holds; with `negate` those whose predicate fails (KStreamFilter)."""

    predicate: Any
    negate: bool

    def emit(self, node: Node, gen: CodeWriter) -> None:
        test = gen.var("p")
        with gen.guard(node):
            gen.assign(test, gen.expr(self.predicate))
        with gen.when(negated(test) if self.negate else test):
            gen.forward(node)


@frozen
class TableFilter(Processor):
    """Replaces values whose predicate fails by None (KTableFilter).

    `skip_empty`: a change without old and new value goes no further. `send_old`: old values are known and sent.
    """

    predicate: Any
    negate: bool
    store: str | None
    send_old: bool
    versioned_parent: bool

    @property
    def skip_empty(self) -> bool:
        """Whether changes from nothing to nothing are dropped."""
        return self.send_old and not self.versioned_parent

    def emit(self, node: Node, gen: CodeWriter) -> None:
        hand, new, old = gen.hand, gen.var("new"), gen.var("old")
        assert hand.old is not None
        with gen.guard(node):
            gen.assign(new, self._kept(gen, hand.value))
            if self.send_old and self.store is not None:
                emit_row(gen, self.store, old)
            else:
                gen.assign(old, self._kept(gen, hand.old) if self.send_old else NONE)
        if self.skip_empty:
            gen.only_where(any_of(is_not_none(new), is_not_none(old)))
        if self.store is not None:
            emit_keep(gen, node, self.store, new, old if self.send_old else None, hand.time)
        else:
            gen.forward(node, value=Slot(new), old=Slot(old))

    def _kept(self, gen: CodeWriter, slot: Slot) -> Code:
        value = gen.obj(slot)
        test = gen.expr(self.predicate, value=value)
        return either(all_of(is_not_none(value), negated(test) if self.negate else test), value, NONE)


class _FilterWork(TableWork):
    def __init__(self, parent: Table, predicate: Any, negate: bool, store: Any, origin: Any):
        super().__init__()
        self.parent, self.predicate, self.negate, self.store, self.origin = parent, predicate, negate, store, origin
        # A parent that has its old values at hand sends them, which spares tombstones.
        self.send_old = parent.enable_old_values(False)

    def enable_old_values(self, force: bool) -> bool:
        if self.store is not None or self.parent.enable_old_values(force):
            self.send_old = True
        return self.send_old

    def view(self) -> Getter:
        if self.store is not None:
            return StoreGetter(self.store.name, self.store.type == "versioned")
        return FilterGetter(self.parent.getter(), self.predicate, self.negate, self.origin)


class FilterOperator(Operator):
    """`filter` (KStream.filter, KTable.filter)."""

    name: ClassVar[str] = "filter"
    main = "if"
    fields = (
        Field("if", Expr(), "The condition, by Python's truth.", required=True),
        NAME,
        STORE,
    )
    accepts = ("stream", "table")
    negate: ClassVar[bool] = False
    summary = (
        "Keeps the records for which the condition holds. On a table, a row whose condition does not hold (any more) is "
        "deleted from the result, and `store` materializes the result."
    )
    example = Example(
        topology="""streamkit: 1
application: large-orders
topics:
  orders: {value: json}
  large: {value: json}
pipelines:
  large:
    stream: orders
    steps:
      - filter: value.cents > 1000
    to: large
""",
        input="""{"topic": "orders", "key": "a", "value": {"cents": 1500}, "timestamp": 0}
{"topic": "orders", "key": "b", "value": {"cents": 5}, "timestamp": 1}
""",
        output="""{"topic": "large", "key": "a", "value": {"cents": 1500}, "timestamp": 0}
""",
    )

    def build(self, step: Step, upstream: Any, builder: Context) -> Any:
        if isinstance(upstream, Table):
            return self._build_table(step, upstream, builder)
        if step.get("store") is not None:
            raise BuildError(step.at("store"), f"{self.name}: `store` is for tables; this stands on a stream")
        name = builder.graph.names.named(step.get("name"), "KSTREAM-FILTER-")
        node: ProcessorNode = ProcessorNode(name, Filter(step.options["if"], self.negate))
        node.serdes = (plain_or_none(upstream.key_serde), plain_or_none(upstream.value_serde))
        builder.graph.add(upstream.node, node)
        result: Stream = upstream.below(name, node)
        return result

    def _build_table(self, step: Step, table: Table, ctx: Context) -> Table:
        store = materialize_if_named(step, ctx, (table.key_serde, table.value_serde), "KTABLE-FILTER-")
        name = ctx.graph.names.named(step.get("name"), "KTABLE-FILTER-")
        predicate = step.options["if"]
        work = _FilterWork(table, predicate, self.negate, store, ctx.graph.origin)
        node: ProcessorNode = ProcessorNode(
            name,
            lambda: TableFilter(
                predicate,
                self.negate,
                store.name if store is not None else None,
                work.send_old,
                bool(node.versioned_parents),
            ),
            stores=() if store is None else (store,),
        )
        node.serdes = (plain_or_none(table.key_serde), plain_or_none(table.value_serde))
        node.output_versioned = output_versioned(step, store)
        ctx.graph.add(table.node, node)
        return Table(name, node, table.sources, table.key_serde, table.value_serde, work)


class FilterNotOperator(FilterOperator):
    """`filter_not` (KStream.filterNot, KTable.filterNot)."""

    name = "filter_not"
    negate = True
    summary = (
        "Keeps the records for which the condition does not hold. On a table, a row whose condition holds is deleted "
        "from the result, and `store` materializes the result."
    )
    example = Example(
        topology="""streamkit: 1
application: without-tests
topics:
  orders: {value: json}
  real: {value: json}
pipelines:
  real:
    stream: orders
    steps:
      - filter_not: key == "test"
    to: real
""",
        input="""{"topic": "orders", "key": "test", "value": {"cents": 1}, "timestamp": 0}
{"topic": "orders", "key": "a", "value": {"cents": 2}, "timestamp": 1}
""",
        output="""{"topic": "real", "key": "a", "value": {"cents": 2}, "timestamp": 1}
""",
    )
