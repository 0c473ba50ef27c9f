"""Joins of a stream with a table's present row, or with the row as of the record's time."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streamkit.graph.node import ProcessorNode
from streamkit.operators.base import BuildError, Processor
from streamkit.operators.context import Context
from streamkit.operators.fields import Step
from streamkit.operators.getters import Getter
from streamkit.operators.serdes import check_keys_meet, need
from streamkit.operators.stream_stream_join import repartition_for_join
from streamkit.operators.upstream import Stream, Table
from streamkit.state.definitions import StoreDef


@dataclass(frozen=True)
class StreamTableJoin(Processor):
    """Looks a stream's records up in a table (KStreamKTableJoin).

    left: records without a match are kept. buffer: the store that holds records for `grace` milliseconds, or None.
    """

    left: bool
    value: Any
    getter: Getter
    grace: int | None
    buffer: str | None


def join_table(step: Step, ctx: Context, stream: Stream, table: Table, left: bool) -> Stream:
    """Build a join of a stream and a table (KStreamImpl.doStreamTableJoin)."""
    check_keys_meet(step, stream.key_serde, table.key_serde)
    given = step.get("name")
    stream = repartition_for_join(step, ctx, stream, given)
    sources = tuple(dict.fromkeys((*stream.sources, *table.sources)))
    ctx.graph.copartition(sources)
    name = ctx.graph.names.named(given, "KSTREAM-LEFTJOIN-" if left else "KSTREAM-JOIN-")
    getter = table.getter()
    grace = step.get("grace")
    buffer = None
    if grace is not None:
        _check_grace(step, table, getter, grace)
        buffer = StoreDef(
            name=f"{name}-Buffer",
            type="join_grace",
            key_serde=need(stream.key_serde, "key", step, "the grace buffer"),
            value_serde=need(stream.value_serde, "value", step, "the grace buffer"),
            caching=False,
            changelog_topic=f"{name}-Buffer-changelog",
            grace=grace,
        )
    work = StreamTableJoin(left, step.options["value"], getter, grace, buffer.name if buffer is not None else None)
    node = ProcessorNode(name, work, stores=(*getter.stores, *(() if buffer is None else (buffer,))))
    value_serde = step.get("value_serde", ctx.default_value)
    node.serdes = (stream.key_serde, value_serde)
    node.relaxed_null_key_join = left
    ctx.graph.add(stream.node, node)
    return Stream(name, node, sources, stream.key_serde, value_serde)


def _check_grace(step: Step, table: Table, getter: Getter, grace: int) -> None:
    if not getter.versioned:
        raise BuildError(
            step.at("grace"),
            "KTable must be versioned to use a grace period in a stream table join. "
            "Give the table a store with `versioned`, how long it keeps history",
        )
    store = getattr(table.work, "store", None)
    history = getattr(store, "history", None)
    if history is not None and grace > history:
        raise BuildError(step.at("grace"), "History retention must be at least grace period.")
