"""Joins of a stream with a table's current row, with its row as of the record's timestamp, or with a global table."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamkit.code import Code, any_of, call, is_none, method, unless_none
from streamkit.expressions import Expression
from streamkit.graph.physical_topology import ProcessorGraphNode
from streamkit.operators.codegen.code_writer import CodeWriter, Node, Processor, record_of_parameters
from streamkit.operators.codegen.table_code import emit_joined, key_serde_of, lookup_function
from streamkit.operators.core.frozen import frozen
from streamkit.operators.core.operator import (
    BuildError,
    Context,
    GlobalTable,
    Stream,
    Table,
    check_key_serdes,
    required_serde,
    serde_or_none,
)
from streamkit.operators.core.parsed_values import Step
from streamkit.operators.core.value_getters import Getter
from streamkit.operators.steps.joins.stream_stream_join import repartition_for_join
from streamkit.record import FullContext, Key, Value
from streamkit.state.definitions import StoreDef
from streamkit.state.layouts import ProcessorRecordContext

if TYPE_CHECKING:
    from streamkit.operators.core.task_services import DecodeKey, Forward
    from streamkit.state.stores.suppress_buffer import JoinGraceBuffer


@frozen
class StreamTableJoin(Processor):
    """Joins a stream's records with a table's rows by key (KStreamKTableJoin).

    left: whether records without a match are forwarded. buffer: the store that buffers records for `grace` ms, or None.
    """

    left: bool
    value: Expression
    getter: Getter
    grace: int | None
    buffer: str | None

    @property
    def needs_context(self) -> bool:
        """Whether records are buffered with their topic, partition and offset."""
        return self.buffer is not None

    def emit(self, node: Node, gen: CodeWriter) -> None:
        record = gen.record
        key_serde = key_serde_of(gen, self.getter)
        instance = None if self.buffer is None else self._buffered(node, gen, self.buffer)
        gen.drop_where(any_of(record.value.is_none(), *([] if self.left else [record.key.is_none()])))
        record.value.never_none = True
        record.key.never_none = not self.left
        if instance is None:
            self._join(node, gen)
            return
        with gen.guard(node):
            key = gen.bytes_of(record.key, key_serde)
            arguments = (gen.object_of(record.key), gen.object_of(record.value), record.time, record.context)
            with gen.when(is_none(key)):
                gen.do(call(self._join_function(node, gen), *arguments))
            with gen.otherwise():
                gen.do(method(instance, "process", key, *arguments))

    def _buffered(self, node: Node, gen: CodeWriter, buffer: str) -> Code:
        decode = gen.name_of(key_serde_of(gen, self.getter).decode, "decode")
        join = self._join_function(node, gen)
        created = call(gen.name_of(GraceJoin, "GraceJoin"), gen.store(buffer), decode, join)
        return gen.instance(("grace", node.name), "p", created)

    def _join_function(self, node: Node, gen: CodeWriter) -> Code:
        def write(name: Code) -> None:
            with gen.function(name, "k", "v", "t", "c"), gen.with_record(record_of_parameters()):
                self._join(node, gen)

        return gen.deferred_function(("grace join", node.name), "j", write)

    def _join(self, node: Node, gen: CodeWriter) -> None:
        record = gen.record
        with gen.guard(node):
            key = gen.bytes_of(record.key, key_serde_of(gen, self.getter))
        as_of = [record.time] if self.getter.versioned else []
        row = call(lookup_function(gen, self.getter), key, *as_of)
        if not record.key.never_none:
            row = unless_none(key, row)
        emit_joined(node, gen, row, self.left, self.value)

    def why_nothing(self) -> str:
        return (
            "the table has no row with its key"
            if self.buffer is None
            else "it is buffered for the grace period, or the table has no row with its key"
        )


def join_table(step: Step, ctx: Context, stream: Stream, table: Table, left: bool) -> Stream:
    """Build a join of a stream and a table (KStreamImpl.doStreamTableJoin)."""
    check_key_serdes(step, stream.key_serde, table.key_serde)
    given_name = step.get("name")
    stream = repartition_for_join(step, ctx, stream, given_name)
    sources = tuple(dict.fromkeys((*stream.sources, *table.sources)))
    ctx.graph.copartition(sources)
    name = ctx.graph.names.named(given_name, "KSTREAM-LEFTJOIN-" if left else "KSTREAM-JOIN-")
    getter = table.getter()
    grace = step.get("grace")
    buffer = None
    if grace is not None:
        _check_grace(step, table, getter, grace)
        buffer = StoreDef(
            name=f"{name}-Buffer",
            type="join_grace",
            key_serde=required_serde(stream.key_serde, "key", step, "the grace buffer"),
            value_serde=required_serde(stream.value_serde, "value", step, "the grace buffer"),
            caching=False,
            changelog_topic=f"{name}-Buffer-changelog",
            grace=grace,
        )
    work = StreamTableJoin(left, step.options["value"], getter, grace, buffer.name if buffer is not None else None)
    node = ProcessorGraphNode(name, work, stores=(*(() if buffer is None else (buffer,)), *getter.stores))
    value_serde = step.get("value_serde", ctx.default_value)
    node.serdes = (serde_or_none(stream.key_serde), value_serde)
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
    history = table.work.history()
    assert history is not None
    if grace > history:
        raise BuildError(step.at("grace"), "History retention must be at least grace period.")


# Joins of a stream with a global table, by a key that is computed from the record.


@frozen
class StreamGlobalJoin(Processor):
    """Joins records with the global table's row for the key that `on` returns (KStreamGlobalKTableJoin)."""

    left: bool
    on: Expression
    value: Expression
    store: str

    def emit(self, node: Node, gen: CodeWriter) -> None:
        record = gen.record
        mapped, key = gen.var("mapped"), gen.var("b")
        serde = gen.stores[self.store].key_serde
        with gen.guard(node):
            gen.assign(mapped, gen.expr(self.on))
            gen.assign(key, gen.encoded(serde, mapped))
        gen.drop_where(any_of(record.value.is_none(), *([] if self.left else [is_none(mapped)])))
        row = unless_none(key, method(gen.store(self.store), "get", key))
        emit_joined(node, gen, row, self.left, self.value, mapped_key=mapped)

    def why_nothing(self) -> str:
        return "the global table has no row with its key"


def join_global(step: Step, ctx: Context, stream: Stream, table: GlobalTable, left: bool) -> Stream:
    """Build a join of a stream and a global table (KStreamImpl.globalTableJoin)."""
    # Java names the node LEFTJOIN for inner joins, too.
    name = ctx.graph.names.named(step.get("name"), "KSTREAM-LEFTJOIN-")
    node = ProcessorGraphNode(name, StreamGlobalJoin(left, step.options["on"], step.options["value"], table.store))
    value_serde = step.get("value_serde", ctx.default_value)
    node.serdes = (serde_or_none(stream.key_serde), value_serde)
    node.relaxed_null_key_join = left
    ctx.graph.add(stream.node, node)
    return stream.below(name, node, value_serde=value_serde)


# The buffered side of a stream-table join with grace (KStreamKTableJoinProcessor).


class GraceJoin:
    """Buffers stream records until stream time has passed them by the grace period, then joins them in order of time.

    `join` looks up the table as of a record and forwards the result. Only buffered records advance the buffer's stream
    time, so records without a key or value, and late records, do not.
    """

    def __init__(self, buffer: JoinGraceBuffer, decode_key: DecodeKey, join: Forward):
        self._buffer = buffer
        self._decode_key = decode_key
        self._join = join

    def process(self, kb: bytes, k: Key, v: Value, t: int, c: FullContext) -> None:
        """Buffer a record, and join records whose grace period is over. A late record is joined at once."""
        headers, topic, partition, offset = c
        if not self._buffer.put(kb, v, ProcessorRecordContext(t, offset, topic, partition, headers)):
            self._join(k, v, t, c)
            return
        current = self._buffer.topic
        saved_size = current.size
        for entry in self._buffer.release():
            at = entry.context
            context = (at.headers, at.topic, at.partition, at.offset)
            current.size = len(at.topic or "")
            self._join(self._decode_key(entry.key), entry.new, at.timestamp, context)
        current.size = saved_size
