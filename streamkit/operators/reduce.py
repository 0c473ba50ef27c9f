"""`reduce`: values of a group into one of the same type."""

from __future__ import annotations

from typing import Any, ClassVar

from streamkit.expressions.types import one_of
from streamkit.operators.aggregation import Aggregation, aggregate_stream, aggregate_table
from streamkit.operators.base import BuildError, Example, Operator
from streamkit.operators.context import Context
from streamkit.operators.fields import AGGREGATE_NAMES, NAME, STORE, Expr, Field, SerdeField, Step
from streamkit.operators.typing import Types, Typing
from streamkit.operators.upstream import GroupedTable, Table

_EXPRESSION = Expr(AGGREGATE_NAMES, ("aggregate", "value"))


class ReduceOperator(Operator):
    """`reduce` (KGroupedStream.reduce, KGroupedTable.reduce and windowed ones)."""

    name: ClassVar[str] = "reduce"
    main = "add"
    fields = (
        Field("add", _EXPRESSION, "The new result, of `aggregate` (the result so far) and `value`.", required=True),
        Field("subtract", _EXPRESSION, "On tables: `aggregate` without `value`, which has left the group."),
        STORE,
        Field("value_serde", SerdeField(), "The serde of the result; that of the stream where absent."),
        NAME,
    )
    accepts = ("grouped_stream", "grouped_table", "windowed_stream")
    summary = (
        "Combines the values of each group into one of the same type. The first value becomes the result unchanged; "
        "each further one is combined with it by `add`. On a grouped table, `subtract` takes out a row's old value."
    )
    example = Example(
        topology="""streamkit: 1
application: highest
topics:
  bids: {value: integer}
  highest: {value: integer}
pipelines:
  highest:
    stream: bids
    steps:
      - group_by_key
      - reduce: max(aggregate, value)
      - to_stream
    to: highest
""",
        input="""{"topic": "bids", "key": "vase", "value": 3, "timestamp": 0}
{"topic": "bids", "key": "vase", "value": 9, "timestamp": 1}
""",
        output="""{"topic": "highest", "key": "vase", "value": 3, "timestamp": 0}
{"topic": "highest", "key": "vase", "value": 9, "timestamp": 1}
""",
    )

    def types(self, hand: Typing) -> Types:
        value = hand.own.value
        # The first value becomes the aggregate unchanged.
        result = hand.stored(one_of([value, hand.quietly("add", aggregate=value)]))
        hand.of("add", aggregate=result)
        hand.of("subtract", aggregate=result)
        return Types(hand.aggregated_key, result)

    def build(self, step: Step, upstream: Any, builder: Context) -> Table:
        add, subtract = step.options["add"], step.get("subtract")
        group = upstream if isinstance(upstream, GroupedTable) else getattr(upstream, "group", upstream)
        serde = step.get("value_serde", group.value_serde)
        if isinstance(upstream, GroupedTable):
            if subtract is None:
                raise BuildError(
                    step.position, "reduce: on a grouped table `subtract` is needed, which takes a row's old value out"
                )
            aggregation = Aggregation("reduce", add, subtract=subtract)
            return aggregate_table(step, builder, upstream, aggregation, "KTABLE-REDUCE-", serde)
        if subtract is not None:
            raise BuildError(
                step.at("subtract"), f"reduce: `subtract` is for grouped tables; this stands on {upstream.label}"
            )
        return aggregate_stream(step, builder, upstream, Aggregation("reduce", add), "KSTREAM-REDUCE-", serde)
