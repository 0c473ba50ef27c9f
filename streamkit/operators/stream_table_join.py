"""Joins of a stream with a table's present row, or with the row as of the record's time."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamkit.code import Code, any_of, call, is_none, method, unless_none
from streamkit.graph.node import ProcessorNode
from streamkit.operators.base import BuildError, Processor
from streamkit.operators.context import Context
from streamkit.operators.emitting import emit_enriched, key_serde_of, lookup
from streamkit.operators.fields import Step
from streamkit.operators.frozen import frozen
from streamkit.operators.getters import Getter
from streamkit.operators.hand import record_of_parameters
from streamkit.operators.serdes import check_keys_meet, need
from streamkit.operators.stream_stream_join import repartition_for_join
from streamkit.operators.upstream import Stream, Table
from streamkit.state.definitions import StoreDef

if TYPE_CHECKING:
    from streamkit.operators.writer import CodeWriter, Node


@frozen
class StreamTableJoin(Processor):
    """Looks a stream's records up in a table (KStreamKTableJoin).

    left: records without a match are kept. buffer: the store that holds records for `grace` milliseconds, or None.
    """

    left: bool
    value: Any
    getter: Getter
    grace: int | None
    buffer: str | None

    @property
    def needs_context(self) -> bool:
        """Whether records are buffered with where they came from."""
        return self.buffer is not None

    def emit(self, node: Node, gen: CodeWriter) -> None:
        hand = gen.hand
        key_serde = key_serde_of(gen, self.getter)
        instance = None if self.buffer is None else self._buffered(node, gen, self.buffer)
        gen.drop_where(any_of(hand.value.is_none(), *([] if self.left else [hand.key.is_none()])))
        hand.value.never_none = True
        hand.key.never_none = not self.left
        if instance is None:
            self._join(node, gen)
            return
        with gen.guard(node):
            key = gen.raw(hand.key, key_serde)
            record = (gen.obj(hand.key), gen.obj(hand.value), hand.time, hand.context)
            with gen.when(is_none(key)):
                gen.do(call(self._join_function(node, gen), *record))
            with gen.otherwise():
                gen.do(method(instance, "process", key, *record))

    def _buffered(self, node: Node, gen: CodeWriter, buffer: str) -> Code:
        decode = gen.name_of(key_serde_of(gen, self.getter).decode, "decode")
        join = self._join_function(node, gen)
        made = call(gen.kernel("stream_table", "GraceJoin"), gen.store(buffer), decode, join)
        return gen.instance(("grace", node.name), "p", made)

    def _join_function(self, node: Node, gen: CodeWriter) -> Code:
        def write(name: Code) -> None:
            with gen.function(name, "k", "v", "t", "c"), gen.holding(record_of_parameters()):
                self._join(node, gen)

        return gen.later(("grace join", node.name), "j", write)

    def _join(self, node: Node, gen: CodeWriter) -> None:
        hand = gen.hand
        with gen.guard(node):
            key = gen.raw(hand.key, key_serde_of(gen, self.getter))
        as_of = [hand.time] if self.getter.versioned else []
        found = call(lookup(gen, self.getter), key, *as_of)
        if not hand.key.never_none:
            found = unless_none(key, found)
        emit_enriched(node, gen, found, self.left, self.value)


def join_table(step: Step, ctx: Context, stream: Stream, table: Table, left: bool) -> Stream:
    """Build a join of a stream and a table (KStreamImpl.doStreamTableJoin)."""
    check_keys_meet(step, stream.key_serde, table.key_serde)
    given = step.get("name")
    stream = repartition_for_join(step, ctx, stream, given)
    sources = tuple(dict.fromkeys((*stream.sources, *table.sources)))
    ctx.graph.copartition(sources)
    name = ctx.graph.names.named(given, "KSTREAM-LEFTJOIN-" if left else "KSTREAM-JOIN-")
    getter = table.getter()
    grace = step.get("grace")
    buffer = None
    if grace is not None:
        _check_grace(step, table, getter, grace)
        buffer = StoreDef(
            name=f"{name}-Buffer",
            type="join_grace",
            key_serde=need(stream.key_serde, "key", step, "the grace buffer"),
            value_serde=need(stream.value_serde, "value", step, "the grace buffer"),
            caching=False,
            changelog_topic=f"{name}-Buffer-changelog",
            grace=grace,
        )
    work = StreamTableJoin(left, step.options["value"], getter, grace, buffer.name if buffer is not None else None)
    node = ProcessorNode(name, work, stores=(*(() if buffer is None else (buffer,)), *getter.stores))
    value_serde = step.get("value_serde", ctx.default_value)
    node.serdes = (stream.key_serde, value_serde)
    node.relaxed_null_key_join = left
    ctx.graph.add(stream.node, node)
    return Stream(name, node, sources, stream.key_serde, value_serde)


def _check_grace(step: Step, table: Table, getter: Getter, grace: int) -> None:
    if not getter.versioned:
        raise BuildError(
            step.at("grace"),
            "KTable must be versioned to use a grace period in a stream table join. "
            "Give the table a store with `versioned`, how long it keeps history",
        )
    # Steps without a store of their own are looked up in that of a table above them.
    work: Any = table.work
    while getattr(work, "store", None) is None:
        work = work.parents[0] if hasattr(work, "parents") else work.parent.work
    if grace > work.store.history:
        raise BuildError(step.at("grace"), "History retention must be at least grace period.")
