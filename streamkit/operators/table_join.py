"""Joins of two tables by their keys."""

from __future__ import annotations

from typing import Any

from streamkit.graph.node import TableJoinNode
from streamkit.operators.base import Processor
from streamkit.operators.context import Context
from streamkit.operators.emitting import NONE, emit_keep, emit_null_key_check, key_serde_of, lookup
from streamkit.operators.fields import Step
from streamkit.operators.frozen import frozen
from streamkit.operators.getters import Getter, JoinGetter, StoreGetter
from streamkit.operators.hand import Slot
from streamkit.operators.serdes import check_keys_meet, need
from streamkit.operators.stores import materialize
from streamkit.operators.upstream import Table, TableWork


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

    def emit(self, node: Any, gen: Any) -> None:
        hand = gen.hand
        more = f" or not {hand.latest}" if self.versioned_parent else ""
        emit_null_key_check(gen, more)
        found, other, time = gen.var("found"), gen.var("other"), gen.var("time")
        new, old = gen.var("new"), gen.var("old")
        with gen.guard(node):
            key = gen.raw(hand.key, key_serde_of(gen, self.other))
            after, before = gen.obj(hand.value), gen.obj(hand.old)
            gen.line(f"{found} = {lookup(gen, self.other)}({key})")
            gen.line(
                f"{other}, {time} = (None, {hand.time}) if {found} is None else ({found}[0], max({hand.time}, {found}[1]))"
            )
        gen.line(f"if {self._joins(other, after, before)}:")
        gen.depth += 1
        with gen.guard(node):
            gen.line(f"{new} = {self._joined(gen, after, other, new=True)}")
            gen.line(f"{old} = {self._joined(gen, before, other, new=False) if self.send_old else None}")
        gen.forward(node, value=Slot(new), old=Slot(old), time=time)

    def _joins(self, other: str, after: str, before: str) -> str:
        """Return the condition under which a change has any result."""
        if self.rule in ("inner", "right"):
            return f"{other} is not None"
        return f"{other} is not None or {after} is not None or {before} is not None"

    def _joined(self, gen: Any, this: str, other: str, new: bool) -> str:
        left, right = (this, other) if self.is_left else (other, this)
        joined = gen.expr(self.value, left=left, right=right)
        if self.rule == "right":
            return joined
        if self.rule == "outer":
            return f"{joined} if {other} is not None or {this} is not None else None"
        return f"None if {this} is None else {joined}"


@frozen
class TableJoinMerge(Processor):
    """The common end of both sides; keeps the result in `store` if there is one (KTableKTableJoinMerger)."""

    store: str | None
    send_old: bool

    def emit(self, node: Any, gen: Any) -> None:
        if self.store is None:
            gen.forward(node, **({} if self.send_old else {"old": NONE}))
            return
        new, old = gen.obj(gen.hand.value), gen.obj(gen.hand.old)
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
