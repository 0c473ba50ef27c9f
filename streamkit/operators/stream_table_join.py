"""Joins of a stream with a table's present row, or with the row as of the record's time."""

from __future__ import annotations

from typing import Any

from streamkit.graph.node import ProcessorNode
from streamkit.operators.base import BuildError, Processor
from streamkit.operators.context import Context
from streamkit.operators.emitting import emit_enriched, key_serde_of, lookup
from streamkit.operators.fields import Step
from streamkit.operators.frozen import frozen
from streamkit.operators.getters import Getter
from streamkit.operators.hand import Hand, Slot
from streamkit.operators.serdes import check_keys_meet, need
from streamkit.operators.stream_stream_join import repartition_for_join
from streamkit.operators.upstream import Stream, Table
from streamkit.state.definitions import StoreDef


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

    def emit(self, node: Any, gen: Any) -> None:
        hand = gen.hand
        key_serde = key_serde_of(gen, self.getter)
        instance = None if self.buffer is None else self._buffered(node, gen)
        if instance is not None:
            gen.line(f"{instance}.observe({hand.time})")
        no_key = "" if self.left else f" or {hand.key.test_var()} is None"
        gen.line(f"if {hand.value.test_var()} is None{no_key}:")
        with gen.indented():
            gen.drop()
        gen.line("else:")
        gen.depth += 1
        hand.value.never_none = True
        hand.key.never_none = not self.left
        if instance is None:
            self._join(node, gen)
            return
        with gen.guard(node):
            key = gen.raw(hand.key, key_serde)
            record = f"{gen.obj(hand.key)}, {gen.obj(hand.value)}, {hand.time}, {hand.context}"
            gen.line(f"if {key} is None:")
            with gen.indented():
                gen.line(f"{self._join_function(node, gen)}({record})")
            gen.line("else:")
            with gen.indented():
                gen.line(f"{instance}.process({key}, {record})")

    def _buffered(self, node: Any, gen: Any) -> str:
        decode = gen.name_of(key_serde_of(gen, self.getter).decode, "decode")
        join = self._join_function(node, gen)
        source = f"{gen.kernel('stream_table', 'GraceJoin')}({gen.store(self.buffer)}, {decode}, {join})"
        instance: str = gen.instance(("grace", node.name), "p", source)
        return instance

    def _join_function(self, node: Any, gen: Any) -> str:
        def write(name: str) -> None:
            gen.line(f"def {name}(k, v, t, c):")
            with gen.indented():
                gen.hand = Hand(Slot("k"), Slot("v"), "t", "c")
                self._join(node, gen)
                gen.fill_empty()

        function: str = gen.later(("grace join", node.name), "j", write)
        return function

    def _join(self, node: Any, gen: Any) -> None:
        hand = gen.hand
        with gen.guard(node):
            key = gen.raw(hand.key, key_serde_of(gen, self.getter))
        as_of = f", {hand.time}" if self.getter.versioned else ""
        found = f"{lookup(gen, self.getter)}({key}{as_of})"
        if not hand.key.never_none:
            found = f"None if {key} is None else {found}"
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
    store = getattr(table.work, "store", None)
    history = getattr(store, "history", None)
    if history is not None and grace > history:
        raise BuildError(step.at("grace"), "History retention must be at least grace period.")
