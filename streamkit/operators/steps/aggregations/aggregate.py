"""`aggregate`: combines the values of a group into a result of any type."""

from __future__ import annotations

from typing import ClassVar

from streamkit.expressions.types import one_of
from streamkit.operators.core.fields import AGGREGATE_NAMES, NAME, STORE, VALUE_SERDE, Expr, Field
from streamkit.operators.core.operator import (
    BuildError,
    CogroupedStream,
    Context,
    GroupedStream,
    GroupedTable,
    Operator,
    Table,
    TypeInference,
    Types,
    WindowedCogroup,
    WindowedStream,
    misplaced,
)
from streamkit.operators.core.parsed_values import SessionWindows, Step
from streamkit.operators.steps.aggregations.aggregate_node import Aggregation, aggregate_stream, aggregate_table
from streamkit.operators.steps.aggregations.cogroup import aggregate_cogroup

_EXPRESSION = Expr(AGGREGATE_NAMES, ("key", "value", "aggregate"))


class AggregateOperator(Operator[GroupedStream | GroupedTable | WindowedStream | CogroupedStream | WindowedCogroup]):
    """`aggregate` (KGroupedStream.aggregate, KGroupedTable.aggregate, CogroupedKStream.aggregate and windowed ones)."""

    name: ClassVar[str] = "aggregate"
    fields = (
        Field(
            "initial",
            Expr((), ()),
            "The result before the first value: an expression of constants and functions, without `key` and `value`.",
            required=True,
        ),
        Field("add", _EXPRESSION, "The new result, from `key`, `value` and `aggregate`, the result so far."),
        Field("subtract", _EXPRESSION, "On tables: `aggregate` without `value`, which has left the group."),
        Field(
            "merge",
            Expr(("key", "left", "right"), ("key", "left", "right")),
            "For sessions: the combined result of two sessions that become one.",
        ),
        STORE,
        VALUE_SERDE,
        NAME,
    )
    accepts = ("grouped_stream", "grouped_table", "windowed_stream", "cogrouped", "windowed_cogroup")
    summary = (
        "Combines the values of each group into a result that starts as `initial`. `add` adds a value; on a grouped "
        "table, `subtract` removes one; with session windows, `merge` combines the results of two sessions. After "
        "`cogroup`, which has an `add` for each input, give only `initial` (and `merge`)."
    )

    def types(self, inference: TypeInference) -> Types:
        first = inference.option_type("initial")
        if "add" not in inference.step.options:
            return Types(inference.aggregated_key)
        # The aggregate that `add`, `subtract` and `merge` take may be the result of any of them.
        results = [first]
        results += [
            inference.unchecked_type(name) for name in ("add", "subtract", "merge") if name in inference.step.options
        ]
        result = inference.encoded_type(one_of(results))
        for name in ("add", "subtract"):
            inference.option_type(name, aggregate=result)
        inference.option_type("merge", left=result, right=result)
        return Types(inference.aggregated_key, result)

    def build(
        self,
        step: Step,
        upstream: GroupedStream | GroupedTable | WindowedStream | CogroupedStream | WindowedCogroup,
        builder: Context,
    ) -> Table:
        serde = step.get("value_serde", builder.default_value)
        self._check_merge(step, upstream)
        if isinstance(upstream, (CogroupedStream, WindowedCogroup)):
            for option in ("add", "subtract"):
                if step.get(option) is not None:
                    raise BuildError(step.at(option), f"aggregate: after `cogroup`, give `{option}` with each input")
            return aggregate_cogroup(step, builder, upstream, serde)
        if step.get("add") is None:
            raise BuildError(step.position, "aggregate: `add` is required; it adds a value")
        subtract = step.get("subtract")
        aggregation = Aggregation(
            "aggregate", step.options["add"], step.options["initial"], subtract, step.get("merge")
        )
        if isinstance(upstream, GroupedTable):
            return aggregate_table(step, builder, upstream, aggregation, "KTABLE-AGGREGATE-", serde)
        if subtract is not None:
            raise misplaced(step, "subtract", "grouped tables", upstream.label)
        return aggregate_stream(step, builder, upstream, aggregation, "KSTREAM-AGGREGATE-", serde)

    def _check_merge(
        self, step: Step, upstream: GroupedStream | GroupedTable | WindowedStream | CogroupedStream | WindowedCogroup
    ) -> None:
        sessions = isinstance(getattr(upstream, "windows", None), SessionWindows)
        if sessions and step.get("merge") is None:
            raise BuildError(
                step.position, "aggregate: session windows need `merge`, which combines the results of two sessions"
            )
        if not sessions and step.get("merge") is not None:
            raise misplaced(step, "merge", "session windows", upstream.label)
