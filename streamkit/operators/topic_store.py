"""Stores of the file that are kept from a topic: global stores (KIP-233) and read-only ones (KIP-813)."""

from __future__ import annotations

import dataclasses
from typing import Any, ClassVar

from streamkit.graph.node import TableSourceNode
from streamkit.operators.base import BuildError, Processor
from streamkit.operators.context import Context
from streamkit.operators.fields import Ref
from streamkit.operators.frozen import frozen
from streamkit.operators.process import Process
from streamkit.operators.source import GlobalTableSource
from streamkit.operators.upstream import TopicStore
from streamkit.state.definitions import StoreDef


@frozen
class GlobalStoreUpdate(Process):
    """A processor of the user's that keeps a global store (StreamsBuilder.addGlobalStore)."""

    context: ClassVar[tuple[str, str]] = ("global_store", "GlobalProcessorContext")
    keeps: ClassVar[bool] = True


@frozen
class ReadOnlyStoreUpdate(Process):
    """A processor of the user's that keeps a read-only store (Topology.addReadOnlyStateStore)."""

    keeps: ClassVar[bool] = True


def global_store(ctx: Context, description: dict[str, Any], ref: Ref, store: StoreDef) -> TopicStore:
    """Make the call `builder.addGlobalStore(...)` (InternalStreamsBuilder.addGlobalStore)."""
    definition = _kept(ref, store, description["topics"][0])
    source_name = ctx.graph.names.named(ref.name, "KSTREAM-SOURCE-", "-source")
    name = ctx.graph.names.named(ref.name, "KTABLE-SOURCE-")
    node = TableSourceNode(name, source_name, description, _work(ref, definition, GlobalStoreUpdate), is_global=True)
    node.store = lambda: definition
    node.serdes = description["serdes"]
    ctx.graph.add(ctx.graph.root, node)
    return TopicStore(definition.name)


def read_only_store(ctx: Context, description: dict[str, Any], ref: Ref, store: StoreDef, pipeline: str) -> TopicStore:
    """Make the call `topology.addReadOnlyStateStore(...)`, which comes after everything that the builder has made."""
    topic = description["topics"][0]
    definition = _kept(ref, store, topic)
    name = ref.name or pipeline
    source_name = ref.source_name or f"{name}-source"
    description = {**description, "reset": {topic: "earliest"}}
    node = TableSourceNode(name, source_name, description, _work(ref, definition, ReadOnlyStoreUpdate), is_global=False)
    node.store = lambda: definition
    node.serdes = description["serdes"]
    node.origin = ctx.graph.origin
    ctx.graph.read_only.append(node)
    return TopicStore(definition.name)


def _kept(ref: Ref, store: StoreDef, topic: str) -> StoreDef:
    """Return the definition of a store that is restored from a topic of the file, to which it logs nothing."""
    position = ref.store.position if ref.store is not None else ref.position
    if store.topic_config:
        raise BuildError(
            position, f"store {store.name}: `config` is for a changelog; this one is restored from its topic"
        )
    if store.ttl is not None:
        raise BuildError(
            position, f"store {store.name}: `ttl` deletes rows that its topic still has; a {ref.kind} can't have it"
        )
    if ref.call is None and store.type != "key_value":
        raise BuildError(ref.position, f"{ref.kind}: a store of type {store.type} needs `process`, which writes to it")
    return dataclasses.replace(
        store, logging=False, changelog_topic=None, source_topic=topic, options={**store.options, "read_only": True}
    )


def _work(ref: Ref, store: StoreDef, update: type[Process]) -> Processor:
    """Return what writes the topic's records to the store: the user's processor, or each record as a row."""
    return GlobalTableSource(store.name) if ref.call is None else update(ref.call, (store.name,), False)
