"""`filter` and `filter_not`, on streams and on tables."""

from __future__ import annotations

from typing import ClassVar

from streamkit.code import NONE, Code, all_of, any_of, either, is_not_none, negated
from streamkit.expressions import Expression
from streamkit.operators.codegen.code_writer import CodeWriter, Node, Processor, Slot
from streamkit.operators.codegen.table_code import BatchProcessor, emit_get_value, emit_put, refuse_batch
from streamkit.operators.core.fields import BATCH_CALL, NAME, STORE, Expr, Field
from streamkit.operators.core.frozen import frozen
from streamkit.operators.core.operator import (
    Context,
    DerivedWork,
    Operator,
    Stream,
    Table,
    add_stream_node,
    misplaced,
)
from streamkit.operators.core.parsed_values import BatchCall, Step
from streamkit.operators.core.step_stores import derived_table, materialize_if_named
from streamkit.operators.core.value_getters import FilterGetter


@frozen
class Filter(Processor):
    """Keeps records whose predicate holds; with `negate`, records whose predicate does not hold (KStreamFilter)."""

    predicate: Expression
    negate: bool

    def emit(self, node: Node, gen: CodeWriter) -> None:
        test = gen.var("p")
        with gen.guard(node):
            gen.assign(test, gen.expr(self.predicate))
        with gen.when(negated(test) if self.negate else test):
            gen.forward(node)

    def why_nothing(self) -> str:
        return f"{self.predicate.text!r} is {'true' if self.negate else 'false'}"


@frozen
class TableFilter(Processor):
    """Replaces values whose predicate does not hold with None (KTableFilter). `send_old`: old values are known and sent."""

    predicate: Expression
    negate: bool
    store: str | None
    send_old: bool
    versioned_parent: bool

    @property
    def skip_empty(self) -> bool:
        """Whether changes with neither an old nor a new value are dropped."""
        return self.send_old and not self.versioned_parent

    def emit(self, node: Node, gen: CodeWriter) -> None:
        record, new, old = gen.record, gen.var("new"), gen.var("old")
        assert record.old is not None
        with gen.guard(node):
            gen.assign(new, self._filtered(gen, record.value))
            if self.send_old and self.store is not None:
                emit_get_value(gen, self.store, old)
            else:
                gen.assign(old, self._filtered(gen, record.old) if self.send_old else NONE)
        if self.skip_empty:
            gen.only_where(any_of(is_not_none(new), is_not_none(old)))
        if self.store is not None:
            emit_put(gen, node, self.store, new, old if self.send_old else None, record.time)
        else:
            gen.forward(node, value=Slot(new), old=Slot(old))

    def _filtered(self, gen: CodeWriter, slot: Slot) -> Code:
        value = gen.object_of(slot)
        test = gen.expr(self.predicate, value=value)
        return either(all_of(is_not_none(value), negated(test) if self.negate else test), value, NONE)

    def why_nothing(self) -> str:
        return "neither the old nor the new value passes the filter"


class FilterOperator(Operator[Stream | Table]):
    """`filter` (KStream.filter, KTable.filter)."""

    name: ClassVar[str] = "filter"
    main = "if"
    fields = (
        Field("if", Expr(batch=True), "The condition, by Python's rules of truth.", required=True),
        *BATCH_CALL,
        NAME,
        STORE,
    )
    accepts = ("stream", "table")
    negate: ClassVar[bool] = False
    summary = (
        "Keeps the records for which the condition is true. On a table, a row whose condition is false, or becomes "
        "false, is deleted from the result, and `store` materializes the result."
    )

    def build(self, step: Step, upstream: Stream | Table, builder: Context) -> Stream | Table:
        if isinstance(upstream, Table):
            return self._build_table(step, upstream, builder)
        if step.get("store") is not None:
            raise misplaced(step, "store", "tables", upstream.label)
        name = builder.graph.names.named(step.get("name"), "KSTREAM-FILTER-")
        test = step.options["if"]
        kernel = "BatchDrop" if self.negate else "BatchKeep"
        processor = BatchProcessor(test, kernel) if isinstance(test, BatchCall) else Filter(test, self.negate)
        return add_stream_node(upstream, builder, name, processor)

    def _build_table(self, step: Step, table: Table, ctx: Context) -> Table:
        refuse_batch(step, "if")
        store = materialize_if_named(step, ctx, (table.key_serde, table.value_serde), "KTABLE-FILTER-")
        name = ctx.graph.names.named(step.get("name"), "KTABLE-FILTER-")
        predicate, negate = step.options["if"], self.negate
        work = DerivedWork(table, store, lambda parent: FilterGetter(parent, predicate, negate))
        # If the parent can send old values without being materialized, fewer tombstones are forwarded.
        work.send_old = table.enable_old_values(False)
        return derived_table(
            step,
            ctx,
            name,
            work,
            None,
            lambda node, own: TableFilter(predicate, negate, own, work.send_old, bool(node.versioned_parents)),
        )


class FilterNotOperator(FilterOperator):
    """`filter_not` (KStream.filterNot, KTable.filterNot)."""

    name = "filter_not"
    negate = True
    summary = (
        "Keeps the records for which the condition is false. On a table, a row whose condition is true is deleted "
        "from the result, and `store` materializes the result."
    )
