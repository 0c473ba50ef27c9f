"""`repartition`: writes a stream to an internal topic and reads it back."""

from __future__ import annotations

from typing import ClassVar

from streamkit.expressions.types import INTEGER
from streamkit.operators.core.fields import NAME, PARTITION_NAMES, Expr, Field, Integer, SerdeField
from streamkit.operators.core.operator import (
    Context,
    Operator,
    Stream,
    TypeInference,
    Types,
    repartition_node,
    required_serde,
)
from streamkit.operators.core.parsed_values import Step


class RepartitionOperator(Operator[Stream]):
    """`repartition` (KStream.repartition)."""

    name: ClassVar[str] = "repartition"
    main = "partitions"
    fields = (
        Field("partitions", Integer(), "The number of partitions; by default derived from the upstream topics."),
        Field(
            "partition",
            Expr(PARTITION_NAMES, ("key", "value", "partitions")),
            "The partition of each record, out of `partitions`: a number, None for the key's partition, or a "
            "list of these; an empty list drops the record.",
        ),
        Field("key_serde", SerdeField(), "The serde of keys in the topic; by default the stream's key serde."),
        Field("value_serde", SerdeField(), "The serde of values in the topic; by default the stream's value serde."),
        NAME,
    )
    summary = (
        "Writes the stream to an internal topic and reads it back, so that records with the same key share a partition again, "
        "and work can be spread over a different number of partitions. `name` names the topic: "
        "`APPLICATION-NAME-repartition`."
    )

    def types(self, inference: TypeInference) -> Types:
        inference.option_type("partition", partitions=INTEGER)
        return inference.upstream_types

    def build(self, step: Step, upstream: Stream, builder: Context) -> Stream:
        key_serde = required_serde(step.get("key_serde", upstream.key_serde), "key", step, "the repartition topic")
        value_serde = required_serde(
            step.get("value_serde", upstream.value_serde), "value", step, "the repartition topic"
        )
        base = step.get("name")
        if base is None:
            base = builder.graph.names.processor("KSTREAM-REPARTITION-")
        node = repartition_node(
            builder,
            base,
            (key_serde, value_serde),
            optimizable=False,
            partitions=step.get("partitions"),
            partition=step.get("partition"),
        )
        builder.graph.add(upstream.node, node)
        return Stream(node.source_name, node, (node.name,), key_serde, value_serde)
