"""Joins of two streams within a window."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamkit.code import NONE, call, is_not_none, literal, method, symbol
from streamkit.graph.node import ProcessorNode, StreamJoinNode
from streamkit.operators.base import BuildError, Processor
from streamkit.operators.context import Context
from streamkit.operators.emitting import emit_call, joiner
from streamkit.operators.fields import Step
from streamkit.operators.frozen import frozen
from streamkit.operators.join_stores import JoinStores
from streamkit.operators.pass_through import PassThrough
from streamkit.operators.repartitioning import repartition_node
from streamkit.operators.serdes import check_keys_meet, need
from streamkit.operators.upstream import Stream

if TYPE_CHECKING:
    from streamkit.operators.writer import CodeWriter, Node


RT = symbol("rt")


@frozen
class JoinWindow(Processor):
    """Forwards a record, then keeps it in a window store for the other side (KStreamJoinWindow)."""

    store: str

    def emit(self, node: Node, gen: CodeWriter) -> None:
        hand = gen.hand
        key_serde = gen.plan.stores[self.store].key_serde
        with gen.guard(node):
            key, value = gen.raw(hand.key, key_serde), gen.obj(hand.value)
        # The join comes before the record is kept: it must not meet itself.
        gen.forward(node)
        with gen.when(is_not_none(key)), gen.guard(node):
            gen.do(method(gen.store(self.store), "put", key, value, hand.time, gen.headers()))


@frozen
class StreamStreamJoin(Processor):
    """One side of a join (KStreamKStreamJoinLeftSide, KStreamKStreamJoinRightSide); times in milliseconds.

    before, after: how much earlier or later than this side's record the other side's may be. outer: whether unmatched
    records of this side come out. peer: the other side's node, with which time and the store of unmatched records are shared.
    """

    kind: str
    is_left: bool
    outer: bool
    value: Any
    store: str
    """The window store of the other side."""
    shared_store: str | None
    before: int
    after: int
    left_lookahead: int
    right_lookahead: int
    grace: int
    peer: str

    def emit(self, node: Node, gen: CodeWriter) -> None:
        key_serde = gen.plan.stores[self.store].key_serde
        names = tuple(sorted((node.name, self.peer)))
        tracker = gen.instance(("tracker", names), "tracker", call(gen.kernel("stream_join", "TimeTracker")))
        times = (self.before, self.after, self.grace, self.left_lookahead, self.right_lookahead)
        work = call(
            gen.kernel("stream_join", "JoinWork"),
            *map(literal, (*times, self.is_left, self.outer)),
            joiner(gen, self.value),
            gen.forward_function(node, False),
            gen.name_of(key_serde.decode, "decode"),
            gen.name_of(key_serde.same, "same"),
        )
        unmatched = NONE if self.shared_store is None else gen.store(self.shared_store)
        join = gen.kernel("stream_join", "StreamJoin")
        made = call(join, RT, gen.store(self.store), unmatched, tracker, work)
        emit_call(node, gen, gen.instance(("join", node.name), "p", made), key_serde)


@frozen
class SelfJoin(Processor):
    """A stream joined with itself over one store (KStreamKStreamSelfJoin)."""

    kind: str
    value: Any
    store: str
    before: int
    after: int
    grace: int

    def emit(self, node: Node, gen: CodeWriter) -> None:
        definition = gen.plan.stores[self.store]
        times = (self.before, self.after, self.grace, self.after, self.before)
        work = call(
            gen.kernel("stream_join", "JoinWork"),
            *map(literal, (*times, True, False)),
            joiner(gen, self.value),
            gen.forward_function(node, False),
            gen.name_of(definition.key_serde.decode, "decode"),
            gen.name_of(definition.key_serde.same, "same"),
        )
        join = gen.kernel("stream_join", "SelfJoin")
        made = call(join, RT, gen.store(self.store), literal(definition.retention), work)
        emit_call(node, gen, gen.instance(("join", node.name), "p", made), definition.key_serde)


def join_streams(step: Step, ctx: Context, left: Stream, right: Stream, kind: str) -> Stream:
    """Build an inner, left or outer join of two streams (KStreamImpl.doJoin, KStreamImplJoin)."""
    before, after = _window(step)
    check_keys_meet(step, left.key_serde, right.key_serde)
    given = step.get("name")
    left = _repartitioned(step, ctx, left, "-left")
    right = _repartitioned(step, ctx, right, "-right")
    sources = tuple(dict.fromkeys((*left.sources, *right.sources)))
    ctx.graph.copartition(sources)
    grace = step.get("grace") or 0
    left_outer, right_outer = kind != "inner", kind == "outer"
    names = ctx.graph.names
    windowed = (
        names.named(given, "KSTREAM-WINDOWED-", "-this-windowed"),
        names.named(given, "KSTREAM-WINDOWED-", "-other-windowed"),
    )
    generated = (
        names.processor("KSTREAM-OUTERTHIS-" if right_outer else "KSTREAM-JOINTHIS-"),
        names.processor("KSTREAM-OUTEROTHER-" if left_outer else "KSTREAM-JOINOTHER-"),
    )
    suffixes = (
        "-outer-this-join" if right_outer else "-this-join",
        "-outer-other-join" if left_outer else "-other-join",
    )
    joined = generated if given is None else (given + suffixes[0], given + suffixes[1])
    merge_name = names.named(given, "KSTREAM-MERGE-", "-merge")
    joined_stores = JoinStores.of(step, ctx.store_defaults.in_memory)
    base = joined_stores.base
    stores = tuple(
        joined_stores.window(index, f"{name if base is None else base + suffix}-store", side, (before + after, grace))
        for index, (name, suffix, side) in enumerate(zip(generated, suffixes, (left, right), strict=True))
    )
    if stores[0].name == stores[1].name:
        raise BuildError(step.at("other_store"), f"{step.operator}: both stores are called {stores[0].name}")
    for name, store, side in zip(windowed, stores, (left, right), strict=True):
        window_node = ProcessorNode(name, JoinWindow(store.name), stores=(store,))
        window_node.serdes = (store.key_serde, store.value_serde)
        ctx.graph.add(side.node, window_node)
    shared = joined_stores.shared(generated[0], kind, stores) if left_outer else None
    shared_name = shared.name if shared is not None else None
    value = step.options["value"]
    works = (
        StreamStreamJoin(
            kind, True, left_outer, value, stores[1].name, shared_name, before, after, after, before, grace, joined[1]
        ),
        StreamStreamJoin(
            kind, False, right_outer, value, stores[0].name, shared_name, after, before, after, before, grace, joined[0]
        ),
    )
    more = () if shared is None else (shared,)
    node = StreamJoinNode(
        merge_name,
        windowed,
        ((joined[0], works[0], (stores[1].name, *more)), (joined[1], works[1], (stores[0].name, *more))),
        PassThrough(),
        SelfJoin(kind, value, stores[0].name, before, after, grace),
    )
    value_serde = step.get("value_serde", ctx.default_value)
    node.serdes = (stores[0].key_serde, value_serde)
    node.relaxed_null_key_join = left_outer
    ctx.graph.add((left.node, right.node), node)
    return Stream(merge_name, node, sources, stores[0].key_serde, value_serde)


def _window(step: Step) -> tuple[int, int]:
    within = step.get("within")
    if within is not None:
        return within, within
    if step.get("before") is None and step.get("after") is None:
        raise BuildError(
            step.position,
            f"{step.operator}: two streams join within a window; expected `within`, or `before` and `after`",
        )
    return step.get("before") or 0, step.get("after") or 0


def _repartitioned(step: Step, ctx: Context, stream: Stream, suffix: str) -> Stream:
    given = step.get("name")
    return repartition_for_join(step, ctx, stream, None if given is None else given + suffix)


def repartition_for_join(step: Step, ctx: Context, stream: Stream, base: str | None) -> Stream:
    """Return the stream after a repartition where its keys have changed; unnamed joins of a stream share it."""
    if not stream.repartition_required:
        return stream
    serdes = (
        need(stream.key_serde, "key", step, "the repartition topic"),
        need(stream.value_serde, "value", step, "the repartition topic"),
    )
    made = repartition_node(ctx, base or stream.name, serdes)
    if stream.repartition is None or (base is not None and base != stream.name):
        stream.repartition = made
        ctx.graph.add(stream.node, made)
    return Stream(made.source_name, stream.repartition, (made.source_name,), serdes[0], serdes[1])
