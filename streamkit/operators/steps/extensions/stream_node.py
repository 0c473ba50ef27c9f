"""Adds the node of a step that changes neither keys nor values to a stream."""

from __future__ import annotations

from streamkit.graph.physical_topology import ProcessorGraphNode
from streamkit.operators.core.operator import Context, Processor, Stream, serde_or_none
from streamkit.operators.core.parsed_values import Step


def add_stream_node(step: Step, upstream: Stream, builder: Context, prefix: str, processor: Processor) -> Stream:
    """Add a node below a stream, named by the step or after `prefix`, and return the stream below it."""
    name = builder.graph.names.named(step.get("name"), prefix)
    node = ProcessorGraphNode(name, processor)
    node.serdes = (serde_or_none(upstream.key_serde), serde_or_none(upstream.value_serde))
    builder.graph.add(upstream.node, node)
    return upstream.below(name, node)
