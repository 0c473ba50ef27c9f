"""The beginnings of pipelines: streams, tables and global tables."""

from __future__ import annotations

import dataclasses
from typing import TYPE_CHECKING, Any

from streamkit.code import NONE, method, symbol
from streamkit.graph.node import SourceNode, TableSourceNode
from streamkit.operators.base import BuildError, Processor
from streamkit.operators.context import Context
from streamkit.operators.emitting import ABSENT, drop_null_keys, emit_keep, emit_row
from streamkit.operators.fields import StoreOptions
from streamkit.operators.frozen import frozen
from streamkit.operators.serdes import AnySerde, plain_or_none
from streamkit.operators.stores import check_plain, define, is_named, refuse_nameless_ttl, refuse_ttl, typed
from streamkit.operators.upstream import GlobalTable, SourceWork, Stream, Table

if TYPE_CHECKING:
    from streamkit.operators.writer import CodeWriter, Node


@frozen
class TableSource(Processor):
    """Turns records into changes of a table, keeping it in `store` where something needs it (KTableSource).

    Also the end of `to_table` and of a foreign-key join. Without `store`, old values are never known.
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
                emit_row(gen, self.store, old)
        elif self.send_old:
            old = NONE
        value, serde = gen.hand.value, gen.plan.stores[self.store].value_serde
        if not gen.is_cached(self.store):
            emit_keep(gen, node, self.store, gen.obj(value), old, gen.hand.time)
        elif value.var is None and value.serde == serde and serde.canonical_source(symbol("v")) is not None:
            # Nothing has read the value, and what becomes of its bytes in a source is sure to be decodable.
            emit_keep(gen, node, self.store, gen.raw(value, serde), old, gen.hand.time, put="replace_bytes")
        else:
            # Looking at the old value adds an entry to a cache.
            emit_keep(gen, node, self.store, gen.obj(value), old, gen.hand.time, put="replace")


@frozen
class GlobalTableSource(Processor):
    """Keeps a global table in its store; forwards nothing (KTableSource as the state updater of a global store)."""

    store: str

    def emit(self, node: Node, gen: CodeWriter) -> None:
        drop_null_keys(gen)
        with gen.guard(node):
            key = gen.raw(gen.hand.key, gen.plan.stores[self.store].key_serde)
            value, hand = gen.obj(gen.hand.value), gen.hand
            # Looking at the old value adds an entry to a cache.
            put = "replace" if gen.is_cached(self.store) else "put"
            gen.do(method(gen.store(self.store), put, key, value, hand.time, hand.context))


def source_work(work: SourceWork) -> TableSource:
    """Return the processor of a table source as it stands once the graph is complete."""
    store = work.store.name if work.materialized else None
    return TableSource(store, work.send_old, work.store.type == "versioned")


def stream_source(
    ctx: Context, description: dict[str, Any], serdes: tuple[AnySerde, AnySerde], name: str | None
) -> Stream:
    """Make the call `builder.stream(...)` (InternalStreamsBuilder.stream)."""
    node_name = ctx.graph.names.named(name, "KSTREAM-SOURCE-")
    node = SourceNode(node_name, description)
    ctx.graph.add(ctx.graph.root, node)
    return Stream(node_name, node, (node_name,), serdes[0], serdes[1])


def table_source(
    ctx: Context,
    description: dict[str, Any],
    serdes: tuple[Any, Any],
    name: str | None,
    store: StoreOptions | None,
) -> Table:
    """Make the call `builder.table(...)` (InternalStreamsBuilder.table)."""
    definition = _definition(ctx, description["topics"][0], serdes, store)
    source_name = ctx.graph.names.named(name, "KSTREAM-SOURCE-", "-source")
    table_name = ctx.graph.names.named(name, "KTABLE-SOURCE-")
    work = SourceWork(definition, materialized=is_named(store))
    node = TableSourceNode(table_name, source_name, description, lambda: source_work(work), is_global=False)

    def store_of_node() -> Any:
        # Deletions of rows whose time to live is over do not belong in the user's topic.
        if work.materialized and node.reuse_source_topic and work.store.ttl is None:
            return dataclasses.replace(
                work.store, logging=False, changelog_topic=None, source_topic=description["topics"][0]
            )
        return work.definition()

    node.store = store_of_node
    node.serdes = (plain_or_none(serdes[0]), plain_or_none(serdes[1]))
    node.output_versioned = definition.type == "versioned"
    ctx.graph.add(ctx.graph.root, node)
    return Table(table_name, node, (source_name,), serdes[0], serdes[1], work)


def global_table_source(
    ctx: Context,
    description: dict[str, Any],
    serdes: tuple[Any, Any],
    name: str | None,
    store: StoreOptions | None,
) -> GlobalTable:
    """Make the call `builder.globalTable(...)` (InternalStreamsBuilder.globalTable)."""
    if store is not None and store.versioned is not None:
        raise BuildError(store.position or ctx.graph.origin.position, "GlobalTables cannot be versioned.")
    refuse_ttl(store, "is not for global tables: each instance has all rows, and none has their stream time")
    if store is not None and store.config:
        raise BuildError(
            store.position or ctx.graph.origin.position,
            "`config` is for a changelog; a global table has none, since it is restored from its topic",
        )
    if store is not None and store.name is None:
        # Java cannot build one either: "Global stores must pass in suppliers with exactly one store but got 0".
        raise BuildError(store.position or ctx.graph.origin.position, "the store of a global table needs a `name`")
    topic = description["topics"][0]
    named = _definition(ctx, topic, serdes, store)
    # The topic itself is what the store is restored from.
    definition = dataclasses.replace(named, logging=False, changelog_topic=None, source_topic=topic)
    source_name = ctx.graph.names.named(name, "KSTREAM-SOURCE-", "-source")
    table_name = ctx.graph.names.named(name, "KTABLE-SOURCE-")
    work = GlobalTableSource(definition.name)
    node = TableSourceNode(table_name, source_name, description, work, is_global=True)
    node.store = lambda: definition
    node.serdes = serdes
    ctx.graph.add(ctx.graph.root, node)
    return GlobalTable(definition.name, serdes[0], serdes[1])


def _definition(ctx: Context, topic: str, serdes: tuple[Any, Any], store: StoreOptions | None) -> Any:
    check_plain(store, ctx.graph.origin.position)
    refuse_nameless_ttl(store)
    named = store.name if store is not None else None
    name = named if named is not None else ctx.graph.names.store(f"{topic}-")
    return define(name, serdes, typed(store, ctx.store_defaults.in_memory))
