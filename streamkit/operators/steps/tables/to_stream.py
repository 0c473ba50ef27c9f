"""`to_stream`: turns a table's changes into a stream."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from streamkit.code import TRUE
from streamkit.errors import Problem
from streamkit.graph.physical_topology import ProcessorGraphNode
from streamkit.operators.codegen.code_writer import CodeWriter, Node, Processor
from streamkit.operators.core.fields import KEY_SERDE, NAME, Expr, Field
from streamkit.operators.core.frozen import frozen
from streamkit.operators.core.operator import (
    Context,
    Operator,
    Stream,
    Table,
    TypeInference,
    Types,
    serde_or_none,
)
from streamkit.operators.core.parsed_values import Step
from streamkit.operators.steps.stateless.select_key import select_key


@frozen
class ToStream(Processor):
    """Forwards the new value of each change, including None (KTableImpl.toStream)."""

    def emit(self, node: Node, gen: CodeWriter) -> None:
        gen.forward(node, old=None, latest=TRUE)


class ToStreamOperator(Operator[Table]):
    """`to_stream` (KTable.toStream)."""

    name: ClassVar[str] = "to_stream"
    main = "key"
    fields = (
        Field("key", Expr(), "A new key for the stream; by default the table's key."),
        KEY_SERDE,
        NAME,
    )
    accepts = ("table",)
    summary = (
        "Turns a table into the stream of its changes: one record per update, with the value null for a deleted row. "
        "A table must become a stream before `to` can write it."
    )

    def check(self, step: Step) -> Iterable[Problem]:
        if "key_serde" in step.options and "key" not in step.options:
            yield Problem(
                step.at("key_serde"), "to_stream: `key_serde` needs `key`: it is the serde of that expression"
            )

    def types(self, inference: TypeInference) -> Types:
        return (
            Types(inference.option_type("key"), inference.upstream_types.value)
            if "key" in inference.step.options
            else inference.upstream_types
        )

    def build(self, step: Step, upstream: Table, builder: Context) -> Stream:
        name = builder.graph.names.named(step.get("name"), "KTABLE-TOSTREAM-")
        node = ProcessorGraphNode(name, ToStream())
        node.serdes = (serde_or_none(upstream.key_serde), serde_or_none(upstream.value_serde))
        builder.graph.add(upstream.node, node)
        stream = Stream(name, node, upstream.sources, upstream.key_serde, upstream.value_serde)
        key = step.get("key")
        if key is None:
            return stream
        return select_key(builder, stream, key, step.get("key_serde", builder.default_key), None)
