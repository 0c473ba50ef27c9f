"""`top`: the values with the highest ranks, per group and window."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from streamkit.errors import Problem
from streamkit.expressions.types import ListOf
from streamkit.operators.core.fields import NAME, STORE, Expr, Field, Integer, SerdeField
from streamkit.operators.core.operator import (
    Context,
    GroupedStream,
    Operator,
    Table,
    TypeInference,
    Types,
    WindowedStream,
)
from streamkit.operators.core.parsed_values import Step
from streamkit.operators.steps.aggregations.aggregate_node import Aggregation, aggregate_stream

LONGEST = 10_000


class TopOperator(Operator[GroupedStream | WindowedStream]):
    """`top` (KGroupedStream.aggregate with a list)."""

    name: ClassVar[str] = "top"
    is_extension = True
    fields = (
        Field("n", Integer(), f"The maximum length of the list, up to {LONGEST:,}.", required=True),
        Field("by", Expr(("key", "value")), "The rank of a value; higher ranks come first.", required=True),
        STORE,
        Field("value_serde", SerdeField(), "The serde of the list.", default="json"),
        NAME,
    )
    accepts = ("grouped_stream", "windowed_stream")
    summary = (
        "Keeps the `n` values with the highest ranks of each group, per window if the group is windowed. The result "
        "is a table of lists, the highest rank first. Among equal ranks, the earlier value comes first, and a value "
        "that only equals the last rank of a full list is not added. For the lowest ranks, write `by: -value.x`. A "
        "row is updated each time its list changes, with the highest timestamp of the records that changed it; "
        "sliding windows and sessions are updated by each record. A cache (see [stores](stores.md)) holds updates "
        "back until the commit, as for other aggregations. Values are kept unchanged; select fields with `map_values` "
        "before this step.\n\nA record without key or value, or whose rank is null or NaN, is dropped and counted. "
        "Ranks that can't be compared, such as a number and text, are an error of the step. A record that is late for "
        "its window is dropped. Without windows, lists ignore time, and a value leaves a list only for a higher rank. "
        "With a `ttl`, a row is deleted that long after its last change. When two sessions become one, values of the "
        "earlier session come first among equal ranks."
    )

    def check(self, step: Step) -> Iterable[Problem]:
        if step.get("n", 1) > LONGEST:
            yield Problem(step.at("n"), f"top: `n` is at most {LONGEST:,}, not {step.options['n']:,}")

    def types(self, inference: TypeInference) -> Types:
        inference.option_type("by")
        return Types(inference.aggregated_key, inference.stored_type(ListOf(inference.upstream_types.value)))

    def build(self, step: Step, upstream: GroupedStream | WindowedStream, builder: Context) -> Table:
        serde = step.get("value_serde") or builder.serde("json")
        aggregation = Aggregation("top", step.options["by"], limit=step.options["n"])
        return aggregate_stream(step, builder, upstream, aggregation, "STREAMKIT-TOP-", serde)
