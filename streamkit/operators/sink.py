"""The ends of pipelines: `to` and `for_each`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamkit.code import call
from streamkit.expressions import load_callable
from streamkit.graph.node import ProcessorNode, SinkNode
from streamkit.operators.base import Processor
from streamkit.operators.context import Context
from streamkit.operators.fields import CallRef, ForEachSpec
from streamkit.operators.frozen import frozen
from streamkit.operators.serdes import plain_or_none
from streamkit.operators.upstream import Stream

if TYPE_CHECKING:
    from streamkit.operators.writer import CodeWriter, Node


@frozen
class ForEach(Processor):
    """Calls a Python callable with key and value (KStream.foreach)."""

    call: CallRef

    def emit(self, node: Node, gen: CodeWriter) -> None:
        target = gen.name_of(load_callable(self.call), "user")
        with gen.guard(node):
            gen.do(call(target, gen.obj(gen.hand.key), gen.obj(gen.hand.value)))


def add_sink(ctx: Context, stream: Stream, description: dict[str, Any], name: str | None) -> None:
    """Make the call `stream.to(...)`; `description`: topic or route, serdes, partition (KStreamImpl.to)."""
    node = SinkNode(ctx.graph.names.named(name, "KSTREAM-SINK-"), description)
    ctx.graph.add(stream.node, node)


def add_for_each(ctx: Context, stream: Stream, spec: ForEachSpec) -> None:
    """Make the call `stream.foreach(...)`."""
    node = ProcessorNode(ctx.graph.names.named(spec.name, "KSTREAM-FOREACH-"), ForEach(spec.call))
    node.serdes = (plain_or_none(stream.key_serde), plain_or_none(stream.value_serde))
    ctx.graph.add(stream.node, node)
