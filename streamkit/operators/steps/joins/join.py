"""`join`, `left_join` and `outer_join`; the kinds of both sides determine the kind of join."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import replace
from typing import ClassVar

from streamkit.errors import Position, Problem
from streamkit.expressions import called
from streamkit.expressions.types import INTEGER
from streamkit.operators.core.fields import (
    NAME,
    VALUE_SERDE,
    Duration,
    Expr,
    Field,
    PipelineRef,
    SignedDuration,
    StoreField,
)
from streamkit.operators.core.operator import (
    BuildError,
    Context,
    GlobalTable,
    Operator,
    Stream,
    Table,
    TypeInference,
    Types,
    Upstream,
)
from streamkit.operators.core.parsed_values import Step
from streamkit.operators.steps.joins.foreign_key_join import join_foreign_key
from streamkit.operators.steps.joins.stream_stream_join import join_streams
from streamkit.operators.steps.joins.stream_table_join import join_global, join_table
from streamkit.operators.steps.joins.table_join import join_tables

_WINDOW = ("within", "before", "after")
_MAPPED = "mapped_key"
_PARTITION = ("partition", "other_partition")
_SIDES = ("left", "right")


class JoinOperator(Operator[Stream | Table]):
    """`join` (KStream.join, KTable.join)."""

    name: ClassVar[str] = "join"
    fields = (
        Field("with", PipelineRef(), "The other side: a pipeline, or an inline source.", required=True),
        Field(
            "value",
            Expr(("key", "left", "right", _MAPPED), ("key", "left", "right"), takes_all=False),
            "The joined value, from `left`, `right` and `key` (foreign keys: only `left` and `right`; global tables: "
            "also `mapped_key`, the result of `on`, KIP-1340).",
            required=True,
        ),
        Field(
            "on",
            Expr(("key", "value"), ("key", "value")),
            "The key to look up in a global table, or the foreign key, computed from the left side's `key` and `value`.",
        ),
        Field("within", Duration(0), "Two streams: the maximum time between two joined records."),
        Field(
            "before",
            SignedDuration(),
            "Two streams: how much earlier the right record may be; with `-5m`, it must be at least 5 minutes later.",
        ),
        Field(
            "after",
            SignedDuration(),
            "Two streams: how much later the right record may be; with `-5m`, it must be at least 5 minutes earlier.",
        ),
        Field(
            "grace",
            Duration(0),
            "Two streams: how long the window accepts late records, in the task's stream time, as in "
            "[`window`](aggregations.md#window). Versioned table: how long to wait.",
        ),
        Field(
            "store",
            StoreField(),
            "Two tables: the store of the result. Two streams: `name`, the prefix of the names of the join's stores, "
            "and `type`, `logging` and `config` for all of them.",
        ),
        Field(
            "this_store",
            StoreField(),
            "Two streams: the store of the left side by `name`, `type` and `segment_interval`; it always has a "
            "changelog.",
        ),
        Field("other_store", StoreField(), "Two streams: the same for the store of the right side."),
        Field(
            "partition",
            Expr(("key", "partitions"), ("key", "partitions")),
            "Foreign key: the partition of the left row's `key`, out of `partitions`, if the left table is not "
            "partitioned by the key's bytes. If the result is None, the bytes decide.",
        ),
        Field(
            "other_partition",
            Expr(("key", "partitions"), ("key", "partitions")),
            "Foreign key: the same for the right row's `key`.",
        ),
        VALUE_SERDE,
        NAME,
    )
    accepts = ("stream", "table")
    kind: ClassVar[str] = "inner"
    summary = (
        "Joins two pipelines. Two streams join records with the same key whose times differ by at most `within`; a stream and a "
        "table look up the record's key in the table; a stream and a global table look up the key that `on` returns; two "
        "tables join rows with the same key, or with `on` the row that a foreign key names. Only records with a "
        "match on both sides are emitted."
    )

    def check(self, step: Step) -> Iterable[Problem]:
        if step.get("within") is not None:
            for option in ("before", "after"):
                if step.get(option) is not None:
                    yield Problem(step.at(option), f"{self.name}: use either `within` or `{option}`")
            return
        before, after = step.get("before") or 0, step.get("after") or 0
        if before + after < 0:
            yield Problem(
                step.at("before" if before < 0 else "after"),
                f"{self.name}: Window interval (ie, beforeMs+afterMs) must not be negative. "
                f"Got before=[{before}], after=[{after}]",
            )

    def types(self, inference: TypeInference) -> Types:
        foreign = inference.option_type("on")
        inference.option_type("partition", partitions=INTEGER)
        inference.option_type("other_partition", key=foreign, partitions=INTEGER)
        value = inference.option_type(
            "value", left=inference.upstream_types.value, right=inference.referred_types[0].value
        )
        return Types(inference.upstream_types.key, value)

    def build(self, step: Step, upstream: Stream | Table, builder: Context) -> Stream | Table:
        other = builder.resolve(step.options["with"], step)
        position = step.options["with"].position or step.at("with")
        if _MAPPED in getattr(step.options["value"], "names", ()) and not isinstance(other, GlobalTable):
            raise BuildError(step.at("value"), f"{self.name}: only a join with a global table has `{_MAPPED}`")
        if isinstance(upstream, Stream):
            return self._join_stream(step, upstream, other, builder, position)
        if not isinstance(other, Table):
            hint = "; turn it into one with `to_table`" if isinstance(other, Stream) else ""
            raise BuildError(position, f"{self.name}: a table can join only a table, found {other.label}{hint}")
        self._refuse(step, "two tables", *_WINDOW, "grace", "this_store", "other_store")
        if step.get("on") is None:
            self._refuse(step, "two tables by key", *_PARTITION)
            return join_tables(step, builder, upstream, other, self.kind)
        if self.kind == "outer":
            raise BuildError(step.at("on"), "outer_join: a foreign-key join is inner or left")
        value = step.options["value"]
        if value.called is not None:
            # A ValueJoiner does not get the key.
            step = replace(step, options={**step.options, "value": called(value.called, _SIDES, value.position)})
        elif "key" in value.names:
            raise BuildError(
                step.at("value"), f"{self.name}: `value` of a foreign-key join has only `left` and `right`"
            )
        return join_foreign_key(step, builder, upstream, other, self.kind == "left")

    def _join_stream(self, step: Step, stream: Stream, other: Upstream, ctx: Context, position: Position) -> Stream:
        self._refuse(step, f"a stream and {other.label}", *_PARTITION)
        if isinstance(other, Stream):
            self._refuse(step, "two streams", "on")
            return join_streams(step, ctx, stream, other, self.kind)
        if not isinstance(other, (Table, GlobalTable)):
            raise BuildError(position, f"{self.name}: expected a stream or a table, found {other.label}")
        if self.kind == "outer":
            raise BuildError(
                position,
                f"outer_join: a stream can join {other.label} only with `join` or `left_join`",
            )
        self._refuse(step, f"a stream and {other.label}", *_WINDOW, "store", "this_store", "other_store")
        if isinstance(other, Table):
            self._refuse(step, "a stream and a table", "on")
            return join_table(step, ctx, stream, other, self.kind == "left")
        self._refuse(step, "a stream and a global table", "grace")
        if step.get("on") is None:
            raise BuildError(
                step.position, f"{self.name}: `on` is required: it returns the key to look up in the global table"
            )
        return join_global(step, ctx, stream, other, self.kind == "left")

    def _refuse(self, step: Step, kind: str, *options: str) -> None:
        for option in options:
            if step.get(option) is not None:
                raise BuildError(step.at(option), f"{self.name}: a join of {kind} takes no `{option}`")


class LeftJoinOperator(JoinOperator):
    """`left_join` (KStream.leftJoin, KTable.leftJoin)."""

    name = "left_join"
    kind = "left"
    summary = (
        "Joins like `join`, but also emits records of the left side without a match; `right` is then None. For two "
        "streams, an unmatched record is emitted when its window has ended."
    )


class OuterJoinOperator(JoinOperator):
    """`outer_join` (KStream.outerJoin, KTable.outerJoin)."""

    name = "outer_join"
    kind = "outer"
    summary = (
        "Joins two streams or two tables, and also emits records of both sides without a match; the missing side is "
        "None."
    )
