"""The beginnings and ends of pipelines: streams, tables and global tables, `to` and `for_each`."""

from __future__ import annotations

import dataclasses

from streamkit.code import NONE, call, method, symbol
from streamkit.expressions import load_callable
from streamkit.graph.physical_topology import (
    ProcessorGraphNode,
    SinkDescription,
    SourceDescription,
    StreamSinkNode,
    StreamSourceNode,
    TableSourceNode,
)
from streamkit.operators.codegen.code_writer import CodeWriter, Node, Processor
from streamkit.operators.codegen.table_code import ABSENT, drop_null_keys, emit_get_value, emit_put
from streamkit.operators.core.frozen import frozen
from streamkit.operators.core.operator import (
    AnySerde,
    BuildError,
    Context,
    GlobalTable,
    SourceWork,
    Stream,
    Table,
    serde_or_none,
)
from streamkit.operators.core.parsed_values import CallRef, ForEachSpec, StoreOptions
from streamkit.operators.core.step_stores import (
    check_plain,
    define_store,
    is_named,
    refuse_nameless_ttl,
    refuse_ttl,
    with_format,
    with_type,
)
from streamkit.state.definitions import StoreDef


@frozen
class TableSource(Processor):
    """Turns records into changes of a table, and keeps the rows in `store` if a step needs them (KTableSource).

    This is also the last node of `to_table` and of a foreign-key join. Without `store`, old values are unknown.
    """

    store: str | None
    send_old: bool
    versioned: bool = False

    def emit(self, node: Node, gen: CodeWriter) -> None:
        drop_null_keys(gen)
        if self.store is None:
            gen.forward(node, old=ABSENT)
            return
        old = None
        if self.send_old and not gen.is_cached(self.store):
            old = gen.var("old")
            with gen.guard(node):
                emit_get_value(gen, self.store, old)
        elif self.send_old:
            old = NONE
        value, serde = gen.record.value, gen.stores[self.store].value_serde
        if not gen.is_cached(self.store):
            emit_put(gen, node, self.store, gen.object_of(value), old, gen.record.time)
        elif value.var is None and value.serde == serde and serde.canonical_source(symbol("v")) is not None:
            # No node has read the value yet, but its bytes can be decoded, because the source has checked or rewritten them.
            emit_put(gen, node, self.store, gen.bytes_of(value, serde), old, gen.record.time, put="replace_bytes")
        else:
            # Reading the old value adds an entry to a cache.
            emit_put(gen, node, self.store, gen.object_of(value), old, gen.record.time, put="replace")


@frozen
class GlobalTableSource(Processor):
    """Puts a global table's rows into its store, and forwards nothing (KTableSource as the updater of a global store)."""

    store: str

    def emit(self, node: Node, gen: CodeWriter) -> None:
        drop_null_keys(gen)
        with gen.guard(node):
            key = gen.bytes_of(gen.record.key, gen.stores[self.store].key_serde)
            value, record = gen.object_of(gen.record.value), gen.record
            # Reading the old value adds an entry to a cache.
            put = "replace" if gen.is_cached(self.store) else "put"
            gen.do(method(gen.store(self.store), put, key, value, record.time, record.context))


def source_work(work: SourceWork) -> TableSource:
    """Return the processor of a table source. Called when the graph is complete."""
    store = work.store.name if work.materialized else None
    return TableSource(store, work.send_old, work.store.type == "versioned")


def stream_source(
    ctx: Context, description: SourceDescription, serdes: tuple[AnySerde, AnySerde], name: str | None
) -> Stream:
    """Make the call `builder.stream(...)` (InternalStreamsBuilder.stream)."""
    node_name = ctx.graph.names.named(name, "KSTREAM-SOURCE-")
    node = StreamSourceNode(node_name, description)
    ctx.graph.add(ctx.graph.root, node)
    return Stream(node_name, node, (node_name,), serdes[0], serdes[1])


def table_source(
    ctx: Context,
    description: SourceDescription,
    name: str | None,
    store: StoreOptions | None,
) -> Table:
    """Make the call `builder.table(...)` (InternalStreamsBuilder.table)."""
    definition = _definition(ctx, description, store)
    source_name = ctx.graph.names.named(name, "KSTREAM-SOURCE-", "-source")
    table_name = ctx.graph.names.named(name, "KTABLE-SOURCE-")
    work = SourceWork(definition, materialized=is_named(store))
    node = TableSourceNode(table_name, source_name, description, lambda: source_work(work), is_global=False)

    def store_of_node() -> StoreDef | None:
        # Deletions of rows whose `ttl` has ended must not be written to the user's topic.
        if work.materialized and node.reuse_source_topic and work.store.ttl is None:
            return dataclasses.replace(
                work.store, logging=False, changelog_topic=None, source_topic=description.topics[0]
            )
        return work.definition()

    node.store = store_of_node
    node.serdes = description.serdes
    node.output_versioned = definition.type == "versioned"
    ctx.graph.add(ctx.graph.root, node)
    return Table(table_name, node, (source_name,), *description.serdes, work)


def global_table_source(
    ctx: Context,
    description: SourceDescription,
    name: str | None,
    store: StoreOptions | None,
) -> GlobalTable:
    """Make the call `builder.globalTable(...)` (InternalStreamsBuilder.globalTable)."""
    if store is not None and store.versioned is not None:
        raise BuildError(store.position or ctx.graph.origin.position, "GlobalTables cannot be versioned.")
    refuse_ttl(store, "is not for global tables: each instance has all rows, but no instance has their stream time")
    if store is not None and store.config:
        raise BuildError(
            store.position or ctx.graph.origin.position,
            "`config` is for a changelog; a global table has none, since it is restored from its topic",
        )
    if store is not None and store.name is None:
        # Java can't build such a table either: "Global stores must pass in suppliers with exactly one store but got 0".
        raise BuildError(store.position or ctx.graph.origin.position, "the store of a global table needs a `name`")
    topic = description.topics[0]
    named = _definition(ctx, description, store)
    # The store is restored from the topic itself.
    definition = dataclasses.replace(named, logging=False, changelog_topic=None, source_topic=topic)
    source_name = ctx.graph.names.named(name, "KSTREAM-SOURCE-", "-source")
    table_name = ctx.graph.names.named(name, "KTABLE-SOURCE-")
    work = GlobalTableSource(definition.name)
    node = TableSourceNode(table_name, source_name, description, work, is_global=True)
    node.store = lambda: definition
    node.serdes = description.serdes
    ctx.graph.add(ctx.graph.root, node)
    return GlobalTable(definition.name, *description.serdes)


def _definition(ctx: Context, description: SourceDescription, store: StoreOptions | None) -> StoreDef:
    check_plain(store, ctx.graph.origin.position)
    refuse_nameless_ttl(store)
    named = store.name if store is not None else None
    name = named if named is not None else ctx.graph.names.store(f"{description.topics[0]}-")
    return with_format(define_store(name, description.serdes, with_type(store, ctx.store_defaults.in_memory)), ctx)


# The ends of pipelines: `to` and `for_each`.


@frozen
class ForEach(Processor):
    """Calls a Python callable with key and value (KStream.foreach)."""

    call: CallRef

    def emit(self, node: Node, gen: CodeWriter) -> None:
        target = gen.name_of(load_callable(self.call), "user")
        with gen.guard(node):
            gen.do(call(target, gen.object_of(gen.record.key), gen.object_of(gen.record.value)))


def add_sink(ctx: Context, stream: Stream, description: SinkDescription, name: str | None) -> None:
    """Make the call `stream.to(...)` (KStreamImpl.to)."""
    node = StreamSinkNode(ctx.graph.names.named(name, "KSTREAM-SINK-"), description)
    ctx.graph.add(stream.node, node)


def add_for_each(ctx: Context, stream: Stream, spec: ForEachSpec) -> None:
    """Make the call `stream.foreach(...)`."""
    node = ProcessorGraphNode(ctx.graph.names.named(spec.name, "KSTREAM-FOREACH-"), ForEach(spec.call))
    node.serdes = (serde_or_none(stream.key_serde), serde_or_none(stream.value_serde))
    ctx.graph.add(stream.node, node)
