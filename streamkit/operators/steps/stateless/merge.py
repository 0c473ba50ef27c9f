"""`merge`: combines several streams into one."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from streamkit.errors import Problem
from streamkit.graph.physical_topology import ProcessorGraphNode
from streamkit.operators.core.fields import NAME, Field, PipelineRef
from streamkit.operators.core.operator import (
    BuildError,
    Context,
    Operator,
    PassThrough,
    Stream,
    TypeInference,
    Types,
    common_serde,
    common_types,
    serde_or_none,
)
from streamkit.operators.core.parsed_values import Step


class MergeOperator(Operator[Stream]):
    """`merge` (KStream.merge, called once for each other stream)."""

    name: ClassVar[str] = "merge"
    main = "with"
    fields = (
        Field("with", PipelineRef(many=True), "The other stream, or a list of streams.", required=True),
        NAME,
    )
    summary = (
        "Merges streams into one that contains the records of all, in no particular order. Records keep their keys; "
        "if the keys of one stream have changed, the merged stream counts as one with changed keys."
    )

    def check(self, step: Step) -> Iterable[Problem]:
        if step.get("name") is not None and len(step.get("with") or ()) > 1:
            yield Problem(step.at("name"), "merge: several merges can't share one `name`; merge one stream per step")

    def types(self, inference: TypeInference) -> Types:
        return common_types([inference.upstream_types, *inference.referred_types])

    def build(self, step: Step, upstream: Stream, builder: Context) -> Stream:
        stream = upstream
        for ref in step.options["with"]:
            other = builder.resolve(ref, step)
            if not isinstance(other, Stream):
                hint = "; turn it into one with `to_stream`" if other.kind == "table" else ""
                raise BuildError(
                    ref.position or step.at("with"), f"merge: expected a stream, found {other.label}{hint}"
                )
            stream = self._merge(step, stream, other, builder)
        return stream

    def _merge(self, step: Step, one: Stream, other: Stream, builder: Context) -> Stream:
        name = builder.graph.names.named(step.get("name"), "KSTREAM-MERGE-")
        node = ProcessorGraphNode(name, PassThrough(), merging=True)
        builder.graph.add((one.node, other.node), node)
        merged = one.below(
            name,
            node,
            sources=tuple(dict.fromkeys((*one.sources, *other.sources))),
            key_serde=common_serde(one.key_serde, other.key_serde),
            value_serde=common_serde(one.value_serde, other.value_serde),
            repartition_required=one.repartition_required or other.repartition_required,
        )
        node.serdes = (serde_or_none(merged.key_serde), serde_or_none(merged.value_serde))
        return merged
