"""`cogroup`: combines several groups into one aggregate."""

from __future__ import annotations

from collections.abc import Callable
from typing import ClassVar

from streamkit.expressions import Expression
from streamkit.graph.physical_topology import GraphNode, ProcessorGraphNode
from streamkit.operators.codegen.code_writer import Processor
from streamkit.operators.core.fields import AGGREGATE_NAMES, CogroupInputs, Expr, Field
from streamkit.operators.core.operator import (
    AggregateWork,
    AnySerde,
    BuildError,
    CogroupedStream,
    Context,
    GroupedStream,
    Operator,
    Table,
    TablePassThrough,
    TableWork,
    TypeInference,
    Types,
    WindowedCogroup,
    check_key_serdes,
    repartition_node,
    required_serde,
)
from streamkit.operators.core.parsed_values import CogroupInput, Step, Windows
from streamkit.operators.core.step_stores import materialize
from streamkit.operators.core.value_getters import Getter
from streamkit.operators.steps.aggregations.aggregate_node import Aggregation, result_key, stream_processor


class _CogroupWork(TableWork):
    def __init__(self, parents: list[AggregateWork]):
        super().__init__()
        self.parents = parents

    def enable_old_values(self, force: bool) -> bool:
        for parent in self.parents:
            parent.enable_old_values(force)
        return True

    def view(self) -> Getter:
        return self.parents[0].view()

    def history(self) -> int | None:
        return self.parents[0].history()


def aggregate_cogroup(
    step: Step, ctx: Context, upstream: CogroupedStream | WindowedCogroup, value_serde: AnySerde
) -> Table:
    """Build the aggregation of cogrouped streams (CogroupedStreamAggregateBuilder)."""
    group = upstream.group if isinstance(upstream, WindowedCogroup) else upstream
    windows = upstream.windows if isinstance(upstream, WindowedCogroup) else None
    first = next(iter(group.inputs))
    store = materialize(step, ctx, first.key_serde, value_serde, "COGROUPKSTREAM-AGGREGATE-", windows)
    _repartition(step, ctx, group, store.name)
    key_serde = result_key(store.key_serde, windows)
    given_name = step.get("name")
    nodes: list[GraphNode] = []
    works: list[AggregateWork] = []
    for index, (grouped, add) in enumerate(group.inputs.items()):
        aggregation = Aggregation("aggregate", add, step.options["initial"], merge=step.get("merge"))
        name = ctx.graph.names.named(given_name, "COGROUPKSTREAM-AGGREGATE-", f"-cogroup-agg-{index}")
        work = AggregateWork(store)
        node = ProcessorGraphNode(
            name,
            _processor_maker(aggregation, windows, work),
            stores=(store,),
        )
        node.serdes = (key_serde, store.value_serde)
        node.window_grace = windows.close_delay if windows is not None else None
        node.output_versioned = store.type == "versioned" if windows is None else None
        ctx.graph.add(group.parents[grouped], node)
        nodes.append(node)
        works.append(work)
    merge_name = ctx.graph.names.named(given_name, "COGROUPKSTREAM-MERGE-", "-cogroup-merge")
    merge = ProcessorGraphNode(merge_name, TablePassThrough())
    merge.serdes = (key_serde, store.value_serde)
    ctx.graph.add(nodes, merge)
    return Table(merge_name, merge, (merge_name,), key_serde, store.value_serde, _CogroupWork(works))


def _processor_maker(aggregation: Aggregation, windows: Windows | None, work: AggregateWork) -> Callable[[], Processor]:
    return lambda: stream_processor(aggregation, windows, False, work.store.name, work.send_old)


def _repartition(step: Step, ctx: Context, group: CogroupedStream, store: str) -> None:
    """Add repartitions before the inputs whose keys have changed; the cogroup's aggregations share them."""
    for grouped in group.inputs:
        if not grouped.repartition_required:
            group.parents[grouped] = grouped.node
            continue
        serdes = (
            required_serde(grouped.key_serde, "key", step, "the repartition topic"),
            required_serde(grouped.value_serde, "value", step, "the repartition topic"),
        )
        node = repartition_node(ctx, grouped.given_name or store, serdes)
        if grouped not in group.parents:
            ctx.graph.add(grouped.node, node)
            group.parents[grouped] = node
    ctx.graph.copartition(source for grouped in group.parents for source in grouped.sources)


class CogroupOperator(Operator[GroupedStream]):
    """`cogroup` (KGroupedStream.cogroup, CogroupedKStream.cogroup)."""

    name: ClassVar[str] = "cogroup"
    fields = (
        Field(
            "add",
            Expr(AGGREGATE_NAMES, ("key", "value", "aggregate")),
            "The new result for the pipeline's own records, from `key`, `value` and `aggregate`.",
            required=True,
        ),
        Field("inputs", CogroupInputs(), "Other grouped pipelines, each with its own `add`."),
    )
    accepts = ("grouped_stream",)
    summary = (
        "Aggregates several grouped streams into one result per key, each with its own `add`. The step `aggregate` "
        "follows, possibly after a `window`, and gives the initial result. All groups need the same keys."
    )

    def types(self, inference: TypeInference) -> Types:
        inference.option_type("add")
        for entry, types in zip(inference.step.get("inputs", ()), inference.referred_types, strict=True):
            inference.type_of(entry.add, key=types.key, value=types.value)
        return Types(inference.upstream_types.key)

    def build(self, step: Step, upstream: GroupedStream, builder: Context) -> CogroupedStream:
        inputs: dict[GroupedStream, Expression] = {upstream: step.options["add"]}
        for item in step.get("inputs") or ():
            assert isinstance(item, CogroupInput)
            position = item.source.position or step.at("inputs")
            other = builder.resolve(item.source, step)
            if not isinstance(other, GroupedStream):
                raise BuildError(
                    position,
                    f"cogroup: expected a grouped stream, found {other.label}; end its pipeline with group_by_key",
                )
            check_key_serdes(step, upstream.key_serde, other.key_serde, position)
            inputs[other] = item.add
        return CogroupedStream(inputs)
