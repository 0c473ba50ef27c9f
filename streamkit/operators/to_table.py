"""`to_table`: a stream's latest value per key."""

from __future__ import annotations

from typing import Any, ClassVar

from streamkit.graph.node import GraphNode, ProcessorNode
from streamkit.operators.base import Example, Operator
from streamkit.operators.context import Context
from streamkit.operators.fields import NAME, STORE, Step
from streamkit.operators.repartitioning import repartition_node
from streamkit.operators.serdes import need
from streamkit.operators.source import source_work
from streamkit.operators.stores import is_named, materialize, refuse_nameless_ttl
from streamkit.operators.upstream import SourceWork, Stream, Table


class ToTableOperator(Operator):
    """`to_table` (KStream.toTable)."""

    name: ClassVar[str] = "to_table"
    main = "store"
    fields = (STORE, NAME)
    summary = (
        "Reads the stream as changes of a table: the latest value of each key is the row, null deletes it. Where the "
        "stream's keys have changed it repartitions first. Without `store` there is a store only if something needs one."
    )
    example = Example(
        topology="""streamkit: 1
application: latest
topics:
  readings: {value: double}
  warm: {value: double}
pipelines:
  latest:
    stream: readings
    steps:
      - to_table: latest
      - filter: value > 20
      - to_stream
    to: warm
""",
        input="""{"topic": "readings", "key": "hall", "value": 21.5, "timestamp": 0}
{"topic": "readings", "key": "hall", "value": 18.0, "timestamp": 1}
""",
        output="""{"topic": "warm", "key": "hall", "value": 21.5, "timestamp": 0}
{"topic": "warm", "key": "hall", "value": null, "timestamp": 1}
""",
    )

    def build(self, step: Step, upstream: Any, builder: Context) -> Table:
        stream: Stream = upstream
        name = builder.graph.names.named(step.get("name"), "KSTREAM-TOTABLE-")
        refuse_nameless_ttl(step.get("store"))
        store = materialize(step, builder, stream.key_serde, stream.value_serde, "KSTREAM-TOTABLE-")
        parent: GraphNode = stream.node
        sources = stream.sources
        serdes = (
            need(stream.key_serde, "key", step, "the table"),
            need(stream.value_serde, "value", step, "the table"),
        )
        if stream.repartition_required:
            repartition = repartition_node(builder, name, serdes)
            builder.graph.add(stream.node, repartition)
            parent, sources = repartition, (repartition.source_name,)
        work = SourceWork(store, materialized=is_named(step.get("store")))
        node = ProcessorNode(name, lambda: source_work(work), stores=work.definitions)
        node.serdes = serdes
        node.output_versioned = store.type == "versioned"
        builder.graph.add(parent, node)
        return Table(name, node, sources, serdes[0], serdes[1], work)
