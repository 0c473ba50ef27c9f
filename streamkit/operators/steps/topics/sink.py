"""The ends of pipelines: `to` and `for_each`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamkit.code import call
from streamkit.expressions import load_callable
from streamkit.graph.physical_topology import ProcessorGraphNode, SinkDescription, StreamSinkNode
from streamkit.operators.core.frozen import frozen
from streamkit.operators.core.operator import Context, Processor, Stream, serde_or_none
from streamkit.operators.core.parsed_values import CallRef, ForEachSpec

if TYPE_CHECKING:
    from streamkit.operators.codegen.code_writer import CodeWriter, Node


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
