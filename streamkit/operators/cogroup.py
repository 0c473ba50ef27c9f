"""`cogroup`: several groups into one aggregate."""

from __future__ import annotations

from typing import Any, ClassVar

from streamkit.graph.node import GraphNode, ProcessorNode
from streamkit.operators.aggregation import Aggregation, result_key, stream_processor
from streamkit.operators.base import BuildError, Example, Operator
from streamkit.operators.context import Context
from streamkit.operators.fields import AGGREGATE_NAMES, CogroupInput, CogroupInputs, Expr, Field, Step
from streamkit.operators.getters import Getter, StoreGetter
from streamkit.operators.pass_through import TablePassThrough
from streamkit.operators.repartitioning import repartition_node
from streamkit.operators.serdes import check_keys_meet, need
from streamkit.operators.stores import materialize
from streamkit.operators.typing import Types, Typing
from streamkit.operators.upstream import (
    AggregateWork,
    CogroupedStream,
    GroupedStream,
    Table,
    TableWork,
    WindowedCogroup,
)


class _CogroupWork(TableWork):
    def __init__(self, parents: list[AggregateWork]):
        super().__init__()
        self.parents = parents

    def enable_old_values(self, force: bool) -> bool:
        for parent in self.parents:
            parent.enable_old_values(force)
        return True

    def view(self) -> Getter:
        store = self.parents[0].store
        return StoreGetter(store.name, store.type == "versioned")


def aggregate_cogroup(step: Step, ctx: Context, upstream: CogroupedStream | WindowedCogroup, value_serde: Any) -> Table:
    """Build the aggregation of cogrouped streams (CogroupedStreamAggregateBuilder)."""
    group = upstream.group if isinstance(upstream, WindowedCogroup) else upstream
    windows = upstream.windows if isinstance(upstream, WindowedCogroup) else None
    first = next(iter(group.inputs))
    store = materialize(step, ctx, first.key_serde, value_serde, "COGROUPKSTREAM-AGGREGATE-", windows)
    _repartition(step, ctx, group, store.name)
    key_serde = result_key(store.key_serde, windows)
    given = step.get("name")
    nodes: list[GraphNode] = []
    works: list[AggregateWork] = []
    for index, (grouped, add) in enumerate(group.inputs.items()):
        aggregation = Aggregation("aggregate", add, step.options["initial"], merge=step.get("merge"))
        name = ctx.graph.names.named(given, "COGROUPKSTREAM-AGGREGATE-", f"-cogroup-agg-{index}")
        work = AggregateWork(store)
        node = ProcessorNode(
            name,
            lambda aggregation=aggregation, work=work: stream_processor(
                aggregation, windows, False, store.name, work.send_old
            ),
            stores=(store,),
        )
        node.serdes = (key_serde, store.value_serde)
        node.window_grace = windows.close_delay if windows is not None else None
        node.output_versioned = store.type == "versioned" if windows is None else None
        ctx.graph.add(group.parents[grouped], node)
        nodes.append(node)
        works.append(work)
    merge_name = ctx.graph.names.named(given, "COGROUPKSTREAM-MERGE-", "-cogroup-merge")
    merge = ProcessorNode(merge_name, TablePassThrough())
    merge.serdes = (key_serde, store.value_serde)
    ctx.graph.add(nodes, merge)
    return Table(merge_name, merge, (merge_name,), key_serde, store.value_serde, _CogroupWork(works))


def _repartition(step: Step, ctx: Context, group: CogroupedStream, store: str) -> None:
    """Put repartitions before the inputs whose keys have changed; the cogroup's aggregations share them."""
    for grouped in group.inputs:
        if not grouped.repartition_required:
            group.parents[grouped] = grouped.node
            continue
        serdes = (
            need(grouped.key_serde, "key", step, "the repartition topic"),
            need(grouped.value_serde, "value", step, "the repartition topic"),
        )
        node = repartition_node(ctx, grouped.given_name or store, serdes)
        if grouped not in group.parents:
            ctx.graph.add(grouped.node, node)
            group.parents[grouped] = node
    ctx.graph.copartition(source for grouped in group.parents for source in grouped.sources)


class CogroupOperator(Operator):
    """`cogroup` (KGroupedStream.cogroup, CogroupedKStream.cogroup)."""

    name: ClassVar[str] = "cogroup"
    fields = (
        Field(
            "add",
            Expr(AGGREGATE_NAMES, ("key", "value", "aggregate")),
            "The new result of the pipeline's own records, of `key`, `value` and `aggregate`.",
            required=True,
        ),
        Field("inputs", CogroupInputs(), "Further grouped pipelines, each with its own `add`."),
    )
    accepts = ("grouped_stream",)
    summary = (
        "Aggregates several grouped streams into one result per key, each with an `add` of its own. The `aggregate` step "
        "follows, perhaps after a `window`, and gives what the result begins as. All groups need the same keys."
    )
    example = Example(
        topology="""streamkit: 1
application: balances
defaults: {key: string, value: long}
topics:
  deposits: {}
  withdrawals: {}
  balances: {}
pipelines:
  withdrawals:
    stream: withdrawals
    steps:
      - group_by_key
  balances:
    stream: deposits
    steps:
      - group_by_key
      - cogroup:
          add: aggregate + value
          inputs:
            - {from: withdrawals, add: aggregate - value}
      - aggregate: {initial: 0, store: balances}
      - to_stream
    to: balances
""",
        input="""{"topic": "deposits", "key": "ada", "value": 10, "timestamp": 0}
{"topic": "withdrawals", "key": "ada", "value": 3, "timestamp": 1}
""",
        output="""{"topic": "balances", "key": "ada", "value": 10, "timestamp": 0}
{"topic": "balances", "key": "ada", "value": 7, "timestamp": 1}
""",
    )

    def types(self, hand: Typing) -> Types:
        hand.of("add")
        for each, other in zip(hand.step.get("inputs", ()), hand.others, strict=True):
            hand.infer(each.add, key=other.key, value=other.value)
        return Types(hand.own.key)

    def build(self, step: Step, upstream: Any, builder: Context) -> CogroupedStream:
        inputs: dict[GroupedStream, Any] = {upstream: step.options["add"]}
        for item in step.get("inputs") or ():
            assert isinstance(item, CogroupInput)
            position = item.source.position or step.at("inputs")
            other = builder.resolve(item.source, step)
            if not isinstance(other, GroupedStream):
                raise BuildError(
                    position,
                    f"cogroup: expected a grouped stream, found {other.label}; end its pipeline with group_by_key",
                )
            check_keys_meet(step, upstream.key_serde, other.key_serde, position)
            inputs[other] = item.add
        return CogroupedStream(inputs)
