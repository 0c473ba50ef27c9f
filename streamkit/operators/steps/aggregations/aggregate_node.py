"""The nodes of count, reduce and aggregate: their processors, and building them on every kind of group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamkit.graph.node import GraphNode, ProcessorGraphNode, RepartitionNode
from streamkit.operators.codegen.aggregation_code import (
    emit_stream_aggregate,
    emit_table_aggregate,
    emit_window_aggregate,
)
from streamkit.operators.core.build_context import Context
from streamkit.operators.core.frozen import frozen
from streamkit.operators.core.operator import Processor
from streamkit.operators.core.parsed_values import Step
from streamkit.operators.core.repartition_node import repartition_node
from streamkit.operators.core.step_serdes import AnySerde, required_serde
from streamkit.operators.core.step_stores import materialize
from streamkit.operators.core.upstream import (
    AggregateWork,
    GroupedStream,
    GroupedTable,
    Table,
    WindowedStream,
)
from streamkit.operators.core.window_definitions import SessionWindows, SlidingWindows, TimeWindows, Windows
from streamkit.serdes.formats.windowed import SessionWindowedSerde, TimeWindowedSerde
from streamkit.serdes.serde import Serde

if TYPE_CHECKING:
    from streamkit.expressions import Expression
    from streamkit.operators.codegen.code_writer import CodeWriter, Node


@frozen
class Aggregation:
    """The functions of an aggregation. kind: count, reduce, aggregate, top; expressions None where the kind has none.

    reduce: the first value becomes the aggregate unchanged. merge: of two sessions; None for count (sum) and reduce
    (`add` with the older session as aggregate). limit: of top, how long its list is at most; `add` is then the rank of a
    value, of `key` and `value`.
    """

    kind: str
    add: Expression | None = None
    initial: Expression | None = None
    subtract: Expression | None = None
    merge: Expression | None = None
    limit: int | None = None


@frozen
class StreamAggregate(Processor):
    """An aggregation without windows (KStreamAggregate, KStreamReduce)."""

    aggregation: Aggregation
    store: str
    send_old: bool

    def emit(self, node: Node, gen: CodeWriter) -> None:
        emit_stream_aggregate(self, node, gen)


@frozen
class WindowAggregate(Processor):
    """An aggregation over tumbling or hopping windows (KStreamWindowAggregate)."""

    aggregation: Aggregation
    windows: TimeWindows
    on_close: bool
    store: str
    send_old: bool

    def emit(self, node: Node, gen: CodeWriter) -> None:
        emit_window_aggregate(self, node, gen, "time", self.windows.size, self.windows.advance)

    def why_nothing(self) -> str:
        return "its window is not closed, and emits on close" if self.on_close else "no window changes"


@frozen
class SlidingAggregate(Processor):
    """An aggregation over sliding windows (KStreamSlidingWindowAggregate)."""

    aggregation: Aggregation
    windows: SlidingWindows
    on_close: bool
    store: str
    send_old: bool

    def emit(self, node: Node, gen: CodeWriter) -> None:
        emit_window_aggregate(self, node, gen, "sliding", self.windows.difference, 1)

    def why_nothing(self) -> str:
        return "its window is not closed, and emits on close" if self.on_close else "no window changes"


@frozen
class SessionAggregate(Processor):
    """An aggregation over sessions (KStreamSessionWindowAggregate)."""

    aggregation: Aggregation
    windows: SessionWindows
    on_close: bool
    store: str
    send_old: bool

    def emit(self, node: Node, gen: CodeWriter) -> None:
        emit_window_aggregate(self, node, gen, "session", self.windows.gap, 1)

    def why_nothing(self) -> str:
        return "its window is not closed, and emits on close" if self.on_close else "no window changes"


@frozen
class TableAggregate(Processor):
    """An aggregation of a grouped table, which subtracts and adds (KTableAggregate, KTableReduce)."""

    aggregation: Aggregation
    store: str
    send_old: bool

    def emit(self, node: Node, gen: CodeWriter) -> None:
        emit_table_aggregate(self, node, gen)


WindowedAggregate = WindowAggregate | SlidingAggregate | SessionAggregate


def stream_processor(
    aggregation: Aggregation, windows: Windows | None, on_close: bool, store: str, send_old: bool
) -> Processor:
    """Return the processor of an aggregation of a stream."""
    if isinstance(windows, TimeWindows):
        return WindowAggregate(aggregation, windows, on_close, store, send_old)
    if isinstance(windows, SlidingWindows):
        return SlidingAggregate(aggregation, windows, on_close, store, send_old)
    if isinstance(windows, SessionWindows):
        return SessionAggregate(aggregation, windows, on_close, store, send_old)
    return StreamAggregate(aggregation, store, send_old)


def result_key(key_serde: Serde, windows: Windows | None) -> Serde:
    """Return the key serde of an aggregation's result: that of the group, windowed if it is windowed."""
    if windows is None:
        return key_serde
    if isinstance(windows, SessionWindows):
        return SessionWindowedSerde(key_serde)
    size = windows.size if isinstance(windows, TimeWindows) else getattr(windows, "difference", 0)
    return TimeWindowedSerde(key_serde, size)


def aggregate_stream(
    step: Step,
    ctx: Context,
    upstream: GroupedStream | WindowedStream,
    aggregation: Aggregation,
    prefix: str,
    value_serde: AnySerde,
) -> Table:
    """Build an aggregation of a stream (KGroupedStreamImpl, TimeWindowedKStreamImpl, …)."""
    windowed = isinstance(upstream, WindowedStream)
    group = upstream.group if isinstance(upstream, WindowedStream) else upstream
    windows = upstream.windows if isinstance(upstream, WindowedStream) else None
    on_close = upstream.emit_on_close if isinstance(upstream, WindowedStream) else False
    store = materialize(step, ctx, group.key_serde, value_serde, prefix, windows, on_close)
    name = ctx.graph.names.named(step.get("name"), prefix)
    parent: GraphNode = group.node
    sources = group.sources
    if group.repartition_required:
        parent, source = _group_repartition(step, ctx, group, store.name)
        ctx.graph.add(group.node, parent)
        sources = (source,)
    work = AggregateWork(store)
    node = ProcessorGraphNode(
        name,
        lambda: stream_processor(aggregation, windows, on_close, store.name, work.send_old),
        stores=(store,),
    )
    key_serde = result_key(store.key_serde, windows)
    node.serdes = (key_serde, store.value_serde)
    node.window_grace = windows.close_delay if windows is not None else None
    node.output_versioned = not windowed and store.type == "versioned"
    ctx.graph.add(parent, node)
    return Table(name, node, sources, key_serde, store.value_serde, work)


def _group_repartition(step: Step, ctx: Context, group: GroupedStream, store: str) -> tuple[RepartitionNode, str]:
    """Return the group's repartition node and its source's name; a named group has one for all its aggregations."""
    serdes = (
        required_serde(group.key_serde, "key", step, "the repartition topic"),
        required_serde(group.value_serde, "value", step, "the repartition topic"),
    )
    # Made even if it is not used, for the indices that it takes.
    made = repartition_node(ctx, group.given_name or store, serdes)
    if group.repartition is None or group.given_name is None:
        group.repartition = made
    return group.repartition, made.source_name


def aggregate_table(
    step: Step, ctx: Context, group: GroupedTable, aggregation: Aggregation, prefix: str, value_serde: AnySerde
) -> Table:
    """Build an aggregation of a grouped table (KGroupedTableImpl.doAggregate)."""
    # Java's name of the store has AGGREGATE in it for reduce, too.
    store = materialize(step, ctx, group.key_serde, value_serde, "KTABLE-AGGREGATE-")
    given = step.get("name")
    names = ctx.graph.names
    sink = names.named(given, "KSTREAM-SINK-", "-sink")
    source = names.named(given, "KSTREAM-SOURCE-", "-source")
    name = names.named(given, prefix)
    if group.repartition is None or group.given_name is None:
        serdes = (
            required_serde(group.key_serde, "key", step, "the repartition topic"),
            required_serde(group.value_serde, "value", step, "the repartition topic"),
        )
        topic = f"{group.given_name or store.name}-repartition"
        group.repartition = RepartitionNode((sink, None, source), topic, serdes, optimizable=False)
    ctx.graph.add(group.node, group.repartition)
    work = AggregateWork(store)
    node = ProcessorGraphNode(name, lambda: TableAggregate(aggregation, store.name, work.send_old), stores=(store,))
    node.serdes = (store.key_serde, store.value_serde)
    node.output_versioned = store.type == "versioned"
    ctx.graph.add(group.repartition, node)
    return Table(name, node, (source,), store.key_serde, store.value_serde, work)
