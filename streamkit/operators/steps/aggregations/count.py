"""`count`: the number of records or rows."""

from __future__ import annotations

from typing import ClassVar

from streamkit.expressions.types import INTEGER
from streamkit.operators.core.fields import NAME, STORE
from streamkit.operators.core.operator import (
    Context,
    GroupedStream,
    GroupedTable,
    Operator,
    Table,
    TypeInference,
    Types,
    WindowedStream,
)
from streamkit.operators.core.parsed_values import SlidingWindows, Step
from streamkit.operators.core.step_stores import is_named
from streamkit.operators.steps.aggregations.aggregate_node import Aggregation, aggregate_stream, aggregate_table


class CountOperator(Operator[GroupedStream | GroupedTable | WindowedStream]):
    """`count` (KGroupedStream.count, KGroupedTable.count, TimeWindowedKStream.count, SessionWindowedKStream.count)."""

    name: ClassVar[str] = "count"
    main = "store"
    fields = (STORE, NAME)
    accepts = ("grouped_stream", "grouped_table", "windowed_stream")
    summary = (
        "Counts the records of each group, per window if the group is windowed; on a grouped table, the current rows "
        "of the group. The result is a table of `long` values."
    )

    def types(self, inference: TypeInference) -> Types:
        return Types(inference.aggregated_key, INTEGER)

    def build(self, step: Step, upstream: GroupedStream | GroupedTable | WindowedStream, builder: Context) -> Table:
        serde = builder.serde("long")
        aggregation = Aggregation("count")
        if isinstance(upstream, GroupedTable):
            return aggregate_table(step, builder, upstream, aggregation, "KTABLE-AGGREGATE-", serde)
        sliding = isinstance(upstream, WindowedStream) and isinstance(upstream.windows, SlidingWindows)
        if step.get("store") is not None and not is_named(step.get("store")) and not sliding:
            # For compatibility with its earlier versions, Java uses up an index if a Materialized has no name.
            builder.graph.names.store("KSTREAM-AGGREGATE-")
        return aggregate_stream(step, builder, upstream, aggregation, "KSTREAM-AGGREGATE-", serde)
