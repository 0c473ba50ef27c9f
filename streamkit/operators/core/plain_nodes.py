"""Nodes that several steps add: pass-through nodes, repartition nodes, and the nodes of steps on streams."""

from __future__ import annotations

import re
from typing import Unpack

from streamkit.expressions import Expression
from streamkit.graph.physical_topology import ProcessorGraphNode, RepartitionNode
from streamkit.operators.codegen.code_writer import CodeWriter, Node, Processor
from streamkit.operators.core.frozen import frozen
from streamkit.operators.core.operator import Context, Stream, StreamChanges, serde_or_none
from streamkit.serdes.serde import Serde


@frozen
class PassThrough(Processor):
    """Forwards every record unchanged (PassThrough)."""

    def emit(self, node: Node, gen: CodeWriter) -> None:
        gen.forward(node)


@frozen
class TablePassThrough(Processor):
    """Forwards every change unchanged (KTablePassThrough)."""

    def emit(self, node: Node, gen: CodeWriter) -> None:
        gen.forward(node)


# Repartition nodes: their names, and the filter before the topic (KStreamImpl.createRepartitionedSource).

SUFFIX = "-repartition"
_GENERATED = re.compile(r"KSTREAM.*-[0-9]{10}")


@frozen
class RepartitionFilter(Processor):
    """The filter before a repartition topic. Without `drop_null_keys` it forwards all records."""

    drop_null_keys: bool

    def emit(self, node: Node, gen: CodeWriter) -> None:
        if self.drop_null_keys:
            gen.only_where(gen.record.key.is_not_none())
            gen.record.key.never_none = True
        gen.forward(node)

    def why_nothing(self) -> str:
        return "its key is null, so it has no partition"


def repartition_node(
    ctx: Context,
    base: str,
    serdes: tuple[Serde, Serde],
    optimizable: bool = True,
    partitions: int | None = None,
    partition: Expression | None = None,
) -> RepartitionNode:
    """Return a repartition node whose name is derived from `base`. Its generated names use up three indices."""
    generated = tuple(
        ctx.graph.names.processor(prefix) for prefix in ("KSTREAM-SINK-", "KSTREAM-FILTER-", "KSTREAM-SOURCE-")
    )
    topic = base if base.endswith(SUFFIX) else base + SUFFIX
    if _GENERATED.fullmatch(base) is None:
        generated = (f"{topic}-sink", f"{topic}-filter", f"{topic}-source")
    return RepartitionNode(
        (generated[0], generated[1], generated[2]),
        topic,
        serdes,
        optimizable=optimizable,
        partitions=partitions,
        partition=partition,
        make_filter=RepartitionFilter,
    )


# Adds the node of a step to a stream.


def add_stream_node(
    upstream: Stream, builder: Context, name: str, processor: Processor, **changes: Unpack[StreamChanges]
) -> Stream:
    """Add a node below a stream, and return the stream below the node; `changes` are the properties that the node changes."""
    key_changing = changes.get("repartition_required", False)
    node = ProcessorGraphNode(
        name, processor, key_changing=key_changing, value_changing="value_serde" in changes and not key_changing
    )
    builder.graph.add(upstream.node, node)
    result = upstream.below(name, node, **changes)
    node.serdes = (serde_or_none(result.key_serde), serde_or_none(result.value_serde))
    return result
