"""Joins of two tables by key."""

from __future__ import annotations

from streamkit.code import NONE, Code, any_of, call, either, is_none, is_not_none, item, tuple_of, unless_none
from streamkit.expressions import Expression
from streamkit.graph.physical_topology import TableJoinNode
from streamkit.operators.codegen.code_writer import CodeWriter, Node, Processor, Slot
from streamkit.operators.codegen.table_code import (
    ABSENT,
    drop_null_keys,
    drop_superseded,
    emit_get_value,
    emit_put,
    key_serde_of,
    lookup_function,
)
from streamkit.operators.core.frozen import frozen
from streamkit.operators.core.operator import Context, Table, TableWork, check_key_serdes, required_serde
from streamkit.operators.core.parsed_values import Step
from streamkit.operators.core.step_stores import materialize
from streamkit.operators.core.value_getters import Getter, JoinGetter, StoreGetter
from streamkit.state.definitions import StoreDef


@frozen
class TableTableJoin(Processor):
    """One side of a join (KTableKTableInnerJoin, …LeftJoin, …RightJoin, …OuterJoin).

    rule: inner, left (the left side of a left join), right (the right side of a left join), outer. is_left: whether
    this side's values are `left` in `value`. other: the lookup of the other side. versioned_parent: whether to drop
    updates that are not the latest.
    """

    rule: str
    is_left: bool
    value: Expression
    other: Getter
    send_old: bool
    versioned_parent: bool

    def emit(self, node: Node, gen: CodeWriter) -> None:
        record = gen.record
        assert record.old is not None
        drop_null_keys(gen)
        drop_superseded(gen, self.versioned_parent)
        row, other, time = gen.var("found"), gen.var("other"), gen.var("time")
        new, old = gen.var("new"), gen.var("old")
        with gen.guard(node):
            key = gen.bytes_of(record.key, key_serde_of(gen, self.other))
            after, before = gen.object_of(record.value), gen.object_of(record.old)
            gen.assign(row, call(lookup_function(gen, self.other), key))
            match = tuple_of(item(row, 0), call("max", record.time, item(row, 1)))
            gen.unpack((other, time), either(is_none(row), tuple_of(NONE, record.time), match))
        gen.only_where(self._joins(other, after, before))
        with gen.guard(node):
            gen.assign(new, self._joined(gen, after, other))
            gen.assign(old, self._joined(gen, before, other) if self.send_old else NONE)
        gen.forward(node, value=Slot(new), old=Slot(old), time=time)

    def _joins(self, other: Code, after: Code, before: Code) -> Code:
        """Return the test whether a change of the table changes the result."""
        if self.rule in ("inner", "right"):
            return is_not_none(other)
        return any_of(is_not_none(other), is_not_none(after), is_not_none(before))

    def _joined(self, gen: CodeWriter, this: Code, other: Code) -> Code:
        left, right = (this, other) if self.is_left else (other, this)
        joined = gen.expr(self.value, left=left, right=right)
        if self.rule == "right":
            return joined
        if self.rule == "outer":
            return either(any_of(is_not_none(other), is_not_none(this)), joined, NONE)
        return unless_none(this, joined)

    def why_nothing(self) -> str:
        return "the other table has no row with its key"


@frozen
class TableJoinMerge(Processor):
    """Merges both sides, and puts the result into `store` unless that is None (KTableKTableJoinMerger)."""

    store: str | None
    send_old: bool

    def emit(self, node: Node, gen: CodeWriter) -> None:
        if self.store is None:
            gen.forward(node, old=gen.record.old if self.send_old else ABSENT)
            return
        assert gen.record.old is not None
        new, old = gen.object_of(gen.record.value), gen.object_of(gen.record.old)
        if self.send_old and gen.stores[self.store].ttl is not None and not gen.is_cached(self.store):
            # The result's `ttl` may have ended while both sides still have their rows, so only the store has the value
            # that was sent last.
            old = gen.var("old")
            with gen.guard(node):
                emit_get_value(gen, self.store, old)
        emit_put(gen, node, self.store, new, old if self.send_old else None, gen.record.time)


class _JoinWork(TableWork):
    def __init__(self, kind: str, tables: tuple[Table, Table], value: Expression, store: StoreDef | None):
        super().__init__()
        self.kind, self.tables, self.value, self.store = kind, tables, value, store
        self.getters = (tables[0].getter(), tables[1].getter())

    def enable_old_values(self, force: bool) -> bool:
        for table in self.tables:
            table.enable_old_values(True)
        self.send_old = True
        return True

    def view(self) -> Getter:
        if self.store is not None:
            return StoreGetter.of(self.store)
        return JoinGetter(self.kind, self.getters[0], self.getters[1], self.value)

    def history(self) -> int | None:
        return None if self.store is None else self.store.history


def join_tables(step: Step, ctx: Context, left: Table, right: Table, kind: str) -> Table:
    """Build an inner, left or outer join of two tables (KTableImpl.doJoin)."""
    check_key_serdes(step, left.key_serde, right.key_serde)
    given_name = step.get("name")
    value_serde = step.get("value_serde", ctx.default_value)
    store = None if step.get("store") is None else materialize(step, ctx, left.key_serde, value_serde, "KTABLE-MERGE-")
    names = ctx.graph.names
    name = names.named(given_name, "KTABLE-MERGE-")
    sources = tuple(dict.fromkeys((*left.sources, *right.sources)))
    ctx.graph.copartition(sources)
    if kind != "inner":
        left.enable_old_values(True)
    if kind == "outer":
        right.enable_old_values(True)
    value = step.options["value"]
    work = _JoinWork(kind, (left, right), value, store)
    sides = (
        names.named(given_name, "KTABLE-JOINTHIS-", "-join-this"),
        names.named(given_name, "KTABLE-JOINOTHER-", "-join-other"),
    )
    rules = {"inner": ("inner", "inner"), "left": ("left", "right"), "outer": ("outer", "outer")}[kind]
    getters = work.getters
    node: TableJoinNode = TableJoinNode(
        name,
        (left.name, right.name),
        (
            (
                sides[0],
                lambda: TableTableJoin(
                    rules[0], True, value, getters[1], work.send_old, left.node.name in node.versioned_parents
                ),
                getters[1].stores,
            ),
            (
                sides[1],
                lambda: TableTableJoin(
                    rules[1], False, value, getters[0], work.send_old, right.node.name in node.versioned_parents
                ),
                getters[0].stores,
            ),
        ),
        lambda: TableJoinMerge(store.name if store is not None else None, work.send_old),
        () if store is None else (store,),
    )
    key_serde = required_serde(left.key_serde, "key", step, "the join")
    node.serdes = (key_serde, value_serde)
    node.output_versioned = store is not None and store.type == "versioned"
    ctx.graph.add((left.node, right.node), node)
    return Table(name, node, sources, key_serde, value_serde, work)
