"""Joins of two tables by their keys."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamkit.code import NONE, Code, any_of, call, either, is_none, is_not_none, item, tuple_of, unless_none
from streamkit.graph.node import TableJoinNode
from streamkit.operators.base import Processor
from streamkit.operators.context import Context
from streamkit.operators.emitting import (
    ABSENT,
    drop_null_keys,
    emit_keep,
    emit_row,
    key_serde_of,
    lookup,
    not_latest,
)
from streamkit.operators.fields import Step
from streamkit.operators.frozen import frozen
from streamkit.operators.getters import Getter, JoinGetter, StoreGetter
from streamkit.operators.hand import Slot
from streamkit.operators.serdes import check_keys_meet, need
from streamkit.operators.stores import materialize
from streamkit.operators.upstream import Table, TableWork

if TYPE_CHECKING:
    from streamkit.operators.writer import CodeWriter, Node


@frozen
class TableTableJoin(Processor):
    """One side of a join (KTableKTableInnerJoin, …LeftJoin, …RightJoin, …OuterJoin).

    rule: inner, left (the left side of a left join), right (the right side of a left join), outer. is_left: whether
    this side's values are `left` for `value`. other: the lookup of the other side. versioned_parent: updates that are
    not the latest are dropped.
    """

    rule: str
    is_left: bool
    value: Any
    other: Getter
    send_old: bool
    versioned_parent: bool

    def emit(self, node: Node, gen: CodeWriter) -> None:
        hand = gen.hand
        assert hand.old is not None
        drop_null_keys(gen, *not_latest(gen, self.versioned_parent))
        found, other, time = gen.var("found"), gen.var("other"), gen.var("time")
        new, old = gen.var("new"), gen.var("old")
        with gen.guard(node):
            key = gen.raw(hand.key, key_serde_of(gen, self.other))
            after, before = gen.obj(hand.value), gen.obj(hand.old)
            gen.assign(found, call(lookup(gen, self.other), key))
            match = tuple_of(item(found, 0), call("max", hand.time, item(found, 1)))
            gen.unpack((other, time), either(is_none(found), tuple_of(NONE, hand.time), match))
        gen.only_where(self._joins(other, after, before))
        with gen.guard(node):
            gen.assign(new, self._joined(gen, after, other))
            gen.assign(old, self._joined(gen, before, other) if self.send_old else NONE)
        gen.forward(node, value=Slot(new), old=Slot(old), time=time)

    def _joins(self, other: Code, after: Code, before: Code) -> Code:
        """Return the condition under which a change has any result."""
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


@frozen
class TableJoinMerge(Processor):
    """The common end of both sides; keeps the result in `store` if there is one (KTableKTableJoinMerger)."""

    store: str | None
    send_old: bool

    def emit(self, node: Node, gen: CodeWriter) -> None:
        if self.store is None:
            gen.forward(node, old=gen.hand.old if self.send_old else ABSENT)
            return
        assert gen.hand.old is not None
        new, old = gen.obj(gen.hand.value), gen.obj(gen.hand.old)
        if self.send_old and gen.plan.stores[self.store].ttl is not None and not gen.is_cached(self.store):
            # Both sides may have rows of which the result is gone: what was sent last is what the store has.
            old = gen.var("old")
            with gen.guard(node):
                emit_row(gen, self.store, old)
        emit_keep(gen, node, self.store, new, old if self.send_old else None, gen.hand.time)


class _JoinWork(TableWork):
    def __init__(self, kind: str, tables: tuple[Table, Table], value: Any, store: Any, origin: Any):
        super().__init__()
        self.kind, self.tables, self.value, self.store, self.origin = kind, tables, value, store, origin
        self.getters = (tables[0].getter(), tables[1].getter())

    def enable_old_values(self, force: bool) -> bool:
        for table in self.tables:
            table.enable_old_values(True)
        self.send_old = True
        return True

    def view(self) -> Getter:
        if self.store is not None:
            return StoreGetter(self.store.name, self.store.type == "versioned")
        return JoinGetter(self.kind, self.getters[0], self.getters[1], self.value, self.origin)


def join_tables(step: Step, ctx: Context, left: Table, right: Table, kind: str) -> Table:
    """Build an inner, left or outer join of two tables (KTableImpl.doJoin)."""
    check_keys_meet(step, left.key_serde, right.key_serde)
    given = step.get("name")
    value_serde = step.get("value_serde", ctx.default_value)
    store = None if step.get("store") is None else materialize(step, ctx, left.key_serde, value_serde, "KTABLE-MERGE-")
    names = ctx.graph.names
    name = names.named(given, "KTABLE-MERGE-")
    sources = tuple(dict.fromkeys((*left.sources, *right.sources)))
    ctx.graph.copartition(sources)
    if kind != "inner":
        left.enable_old_values(True)
    if kind == "outer":
        right.enable_old_values(True)
    value = step.options["value"]
    work = _JoinWork(kind, (left, right), value, store, ctx.graph.origin)
    sides = (
        names.named(given, "KTABLE-JOINTHIS-", "-join-this"),
        names.named(given, "KTABLE-JOINOTHER-", "-join-other"),
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
    key_serde = need(left.key_serde, "key", step, "the join")
    node.serdes = (key_serde, value_serde)
    node.output_versioned = store is not None and store.type == "versioned"
    ctx.graph.add((left.node, right.node), node)
    return Table(name, node, sources, key_serde, value_serde, work)
