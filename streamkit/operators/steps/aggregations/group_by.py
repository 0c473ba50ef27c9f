"""`group_by` and `group_by_key`: the groups of an aggregation."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from streamkit.code import Code, call, tuple_of, unless_none
from streamkit.expressions import Expression
from streamkit.graph.physical_topology import ProcessorGraphNode
from streamkit.operators.codegen.code_writer import CodeWriter, Node, Processor, Slot
from streamkit.operators.core.fields import NAME, Expr, Field, SerdeField
from streamkit.operators.core.frozen import frozen
from streamkit.operators.core.operator import (
    BuildError,
    Context,
    GroupedStream,
    GroupedTable,
    Operator,
    Stream,
    Table,
    TypeInference,
    Types,
)
from streamkit.operators.core.parsed_values import Step
from streamkit.operators.steps.stateless.select_key import select_key
from streamkit.record import Key, Value


@frozen
class TableGroupBy(Processor):
    """Sends each change of a row to the groups of its old and its new value (KTableRepartitionMap).

    value None: the row's value. versioned_parent: whether to drop changes that are not the latest.
    """

    key: Expression
    value: Expression | None
    versioned_parent: bool

    def emit(self, node: Node, gen: CodeWriter) -> None:
        moves, key, new, old = (gen.var(name) for name in ("moves", "k", "new", "old"))
        if self.versioned_parent:
            # Aggregates contain only the latest rows, so other changes are not forwarded (KIP-914).
            gen.only_where(gen.record.latest)
        assert gen.record.old is not None
        with gen.guard(node):
            assert node.key_serde is not None
            same = gen.name_of(node.key_serde.same, "same")
            after, before = self._pair(gen, gen.record.value), self._pair(gen, gen.record.old)
            gen.assign(moves, call(gen.name_of(group_changes, "moved"), after, before, same))
        with gen.each((key, new, old), moves):
            gen.forward(node, key=Slot(key), value=Slot(new), old=Slot(old))

    def _pair(self, gen: CodeWriter, slot: Slot) -> Code:
        row = gen.object_of(slot)
        value = row if self.value is None else gen.expr(self.value, value=row)
        return unless_none(row, tuple_of(gen.expr(self.key, value=row), value))


class GroupByOperator(Operator[Stream | Table]):
    """`group_by` (KStream.groupBy, KTable.groupBy)."""

    name: ClassVar[str] = "group_by"
    main = "key"
    fields = (
        Field("key", Expr(), "The key of the group.", required=True),
        Field("value", Expr(), "On tables: the value to aggregate; by default the row's value."),
        Field("key_serde", SerdeField(), "The serde of the group's key; by default the file's key serde."),
        Field(
            "value_serde",
            SerdeField(),
            "The serde of the value; by default the stream's serde (with `value`: the file's value serde).",
        ),
        NAME,
    )
    accepts = ("stream", "table")
    summary = (
        "Groups records by a new key for the next aggregation; this repartitions them. On a table, the aggregation "
        "removes a row's old value from its group and adds the new one to its new group. `name` names the "
        "repartition topic, which aggregations of the same group then share."
    )

    def types(self, inference: TypeInference) -> Types:
        value = inference.option_type("value") if "value" in inference.step.options else inference.upstream_types.value
        return Types(inference.option_type("key"), value)

    def build(self, step: Step, upstream: Stream | Table, builder: Context) -> GroupedStream | GroupedTable:
        if isinstance(upstream, Table):
            return self._build_table(step, upstream, builder)
        if step.get("value") is not None:
            raise BuildError(step.at("value"), "group_by: `value` is for tables; use `map_values` on a stream")
        given_name = step.get("name")
        key_serde = step.get("key_serde", builder.default_key)
        stream = select_key(builder, upstream, step.options["key"], key_serde, given_name)
        value_serde = step.get("value_serde", upstream.value_serde)
        return GroupedStream(stream.name, stream.node, stream.sources, key_serde, value_serde, True, given_name)

    def _build_table(self, step: Step, table: Table, ctx: Context) -> GroupedTable:
        given_name = step.get("name")
        key, value = step.options["key"], step.get("value")
        fallback = table.value_serde if value is None else ctx.default_value
        name = ctx.graph.names.named(given_name, "KTABLE-SELECT-")
        node: ProcessorGraphNode = ProcessorGraphNode(
            name, lambda: TableGroupBy(key, value, bool(node.versioned_parents))
        )
        key_serde = step.get("key_serde", ctx.default_key)
        value_serde = step.get("value_serde", fallback)
        node.serdes = (key_serde, value_serde)
        ctx.graph.add(table.node, node)
        table.enable_old_values(True)
        return GroupedTable(name, node, key_serde, value_serde, given_name)


class GroupByKeyOperator(Operator[Stream]):
    """`group_by_key` (KStream.groupByKey)."""

    name: ClassVar[str] = "group_by_key"
    fields = (
        Field(
            "key_serde", SerdeField(), "The serde of keys in a repartition topic; by default the stream's key serde."
        ),
        Field(
            "value_serde",
            SerdeField(),
            "The serde of values in a repartition topic; by default the stream's value serde.",
        ),
        NAME,
    )
    summary = "Groups records by their current key for the next aggregation; this repartitions them only if keys have changed."

    def build(self, step: Step, upstream: Stream, builder: Context) -> GroupedStream:
        return GroupedStream(
            upstream.name,
            upstream.node,
            upstream.sources,
            step.get("key_serde", upstream.key_serde),
            step.get("value_serde", upstream.value_serde),
            upstream.repartition_required,
            step.get("name"),
        )


def group_changes(
    after: tuple[Key, Value] | None, before: tuple[Key, Value] | None, same: Callable[[Key, Key], bool]
) -> list[tuple[Key, Value, Value]]:
    """Return (key, new, old) for each group that a row's change affects; a pair without key or value affects no group.

    If the group stays the same, there is one change, under the old key. Otherwise the old group's change comes first
    (KTableRepartitionMap).
    `same` returns whether two keys are equal.
    """
    new = after if after is not None and after[0] is not None and after[1] is not None else None
    old = before if before is not None and before[0] is not None and before[1] is not None else None
    if new is not None and old is not None and same(new[0], old[0]):
        return [(old[0], new[1], old[1])]
    changes: list[tuple[Key, Value, Value]] = [] if old is None else [(old[0], None, old[1])]
    return changes if new is None else [*changes, (new[0], new[1], None)]
