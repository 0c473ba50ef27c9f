"""`to_table`: turns a stream into a table of the latest value per key."""

from __future__ import annotations

from typing import ClassVar

from streamkit.graph.physical_topology import GraphNode, ProcessorGraphNode
from streamkit.operators.core.fields import NAME, STORE
from streamkit.operators.core.operator import (
    Context,
    Operator,
    SourceWork,
    Stream,
    Table,
    repartition_node,
    required_serde,
)
from streamkit.operators.core.parsed_values import Step
from streamkit.operators.core.step_stores import is_named, materialize, refuse_nameless_ttl
from streamkit.operators.steps.topics.source import source_work


class ToTableOperator(Operator[Stream]):
    """`to_table` (KStream.toTable)."""

    name: ClassVar[str] = "to_table"
    main = "store"
    fields = (STORE, NAME)
    summary = (
        "Reads the stream as changes of a table: the latest value of each key is the row, null deletes it. If the "
        "stream's keys have changed, it repartitions first. Without `store`, a store is created only if a step needs "
        "one."
    )

    def build(self, step: Step, upstream: Stream, builder: Context) -> Table:
        name = builder.graph.names.named(step.get("name"), "KSTREAM-TOTABLE-")
        refuse_nameless_ttl(step.get("store"))
        store = materialize(step, builder, upstream.key_serde, upstream.value_serde, "KSTREAM-TOTABLE-")
        parent: GraphNode = upstream.node
        sources = upstream.sources
        serdes = (
            required_serde(upstream.key_serde, "key", step, "the table"),
            required_serde(upstream.value_serde, "value", step, "the table"),
        )
        if upstream.repartition_required:
            repartition = repartition_node(builder, name, serdes)
            builder.graph.add(upstream.node, repartition)
            parent, sources = repartition, (repartition.source_name,)
        work = SourceWork(store, materialized=is_named(step.get("store")))
        node = ProcessorGraphNode(name, lambda: source_work(work), stores=work.definitions)
        node.serdes = serdes
        node.output_versioned = store.type == "versioned"
        builder.graph.add(parent, node)
        return Table(name, node, sources, serdes[0], serdes[1], work)
