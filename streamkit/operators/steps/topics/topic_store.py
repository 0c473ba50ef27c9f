"""Stores of the file that are filled from a topic: global stores (KIP-233) and read-only ones (KIP-813)."""

from __future__ import annotations

import dataclasses
from typing import ClassVar

from streamkit.config.settings import OffsetReset
from streamkit.graph.physical_topology import SourceDescription, TableSourceNode
from streamkit.operators.codegen.code_writer import Processor
from streamkit.operators.core.frozen import frozen
from streamkit.operators.core.operator import BuildError, Context, TopicStore
from streamkit.operators.core.parsed_values import Ref
from streamkit.operators.steps.processors.process import Process
from streamkit.operators.steps.topics.source import GlobalTableSource
from streamkit.state.definitions import StoreDef


@frozen
class GlobalStoreUpdate(Process):
    """The user's processor that writes to a global store (StreamsBuilder.addGlobalStore)."""

    context: ClassVar[tuple[str, str]] = ("processor_calls", "GlobalProcessorContext")
    writes_read_only: ClassVar[bool] = True


@frozen
class ReadOnlyStoreUpdate(Process):
    """The user's processor that writes to a read-only store (Topology.addReadOnlyStateStore)."""

    writes_read_only: ClassVar[bool] = True


def global_store(ctx: Context, description: SourceDescription, ref: Ref, store: StoreDef) -> TopicStore:
    """Make the call `builder.addGlobalStore(...)` (InternalStreamsBuilder.addGlobalStore)."""
    definition = _topic_definition(ref, store, description.topics[0])
    source_name = ctx.graph.names.named(ref.name, "KSTREAM-SOURCE-", "-source")
    name = ctx.graph.names.named(ref.name, "KTABLE-SOURCE-")
    node = TableSourceNode(
        name, source_name, description, _update_processor(ref, definition, GlobalStoreUpdate), is_global=True
    )
    node.store = lambda: definition
    node.serdes = description.serdes
    ctx.graph.add(ctx.graph.root, node)
    return TopicStore(definition.name)


def read_only_store(
    ctx: Context, description: SourceDescription, ref: Ref, store: StoreDef, pipeline: str
) -> TopicStore:
    """Make the call `topology.addReadOnlyStateStore(...)`, which comes after all nodes of the builder."""
    topic = description.topics[0]
    definition = _topic_definition(ref, store, topic)
    name = ref.name or pipeline
    source_name = ref.source_name or f"{name}-source"
    description = dataclasses.replace(description, reset={topic: OffsetReset("earliest")})
    node = TableSourceNode(
        name, source_name, description, _update_processor(ref, definition, ReadOnlyStoreUpdate), is_global=False
    )
    node.store = lambda: definition
    node.serdes = description.serdes
    node.origin = ctx.graph.origin
    ctx.graph.read_only.append(node)
    return TopicStore(definition.name)


def _topic_definition(ref: Ref, store: StoreDef, topic: str) -> StoreDef:
    """Return the definition of a store that is restored from a topic of the file, and has no changelog."""
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


def _update_processor(ref: Ref, store: StoreDef, update: type[Process]) -> Processor:
    """Return the processor that writes the topic's records to the store: the user's, or one that puts each record as a row."""
    return GlobalTableSource(store.name) if ref.call is None else update(ref.call, (store.name,), False)
