"""`reduce`: combines the values of a group into one of the same type."""

from __future__ import annotations

from typing import ClassVar

from streamkit.expressions.types import one_of
from streamkit.operators.core.fields import AGGREGATE_NAMES, NAME, STORE, Expr, Field, SerdeField
from streamkit.operators.core.operator import (
    Context,
    GroupedStream,
    GroupedTable,
    Operator,
    Table,
    TypeInference,
    Types,
    WindowedStream,
    misplaced,
)
from streamkit.operators.core.parsed_values import Step
from streamkit.operators.steps.aggregations.aggregate_node import Aggregation, aggregate_stream, aggregate_table

_EXPRESSION = Expr(AGGREGATE_NAMES, ("aggregate", "value"))


class ReduceOperator(Operator[GroupedStream | GroupedTable | WindowedStream]):
    """`reduce` (KGroupedStream.reduce, KGroupedTable.reduce and windowed ones)."""

    name: ClassVar[str] = "reduce"
    main = "add"
    fields = (
        Field("add", _EXPRESSION, "The new result, from `aggregate` (the result so far) and `value`.", required=True),
        Field("subtract", _EXPRESSION, "On tables: `aggregate` without `value`, which has left the group."),
        STORE,
        Field("value_serde", SerdeField(), "The serde of the result; by default the stream's value serde."),
        NAME,
    )
    accepts = ("grouped_stream", "grouped_table", "windowed_stream")
    summary = (
        "Combines the values of each group into one of the same type. The first value becomes the result unchanged; "
        "`add` combines each further value with it. On a grouped table, `subtract` removes a row's old value."
    )

    def types(self, inference: TypeInference) -> Types:
        value = inference.upstream_types.value
        # The first value becomes the aggregate unchanged.
        result = inference.encoded_type(one_of([value, inference.unchecked_type("add", aggregate=value)]))
        inference.option_type("add", aggregate=result)
        inference.option_type("subtract", aggregate=result)
        return Types(inference.aggregated_key, result)

    def build(self, step: Step, upstream: GroupedStream | GroupedTable | WindowedStream, builder: Context) -> Table:
        add, subtract = step.options["add"], step.get("subtract")
        group = upstream.group if isinstance(upstream, WindowedStream) else upstream
        serde = step.get("value_serde", group.value_serde)
        if isinstance(upstream, GroupedTable):
            aggregation = Aggregation("reduce", add, subtract=subtract)
            return aggregate_table(step, builder, upstream, aggregation, "KTABLE-REDUCE-", serde)
        if subtract is not None:
            raise misplaced(step, "subtract", "grouped tables", upstream.label)
        return aggregate_stream(step, builder, upstream, Aggregation("reduce", add), "KSTREAM-REDUCE-", serde)
