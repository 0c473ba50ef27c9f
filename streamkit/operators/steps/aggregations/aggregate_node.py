"""The nodes of count, reduce and aggregate: their processors, and how they are built on every kind of group."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from typing import ClassVar

from streamkit.code import (
    NONE,
    TRUE,
    Code,
    all_of,
    any_of,
    attribute,
    binary,
    call,
    compare,
    either,
    is_none,
    is_not_none,
    item,
    list_of,
    literal,
    method,
    negated,
    symbol,
    tuple_of,
    unless_none,
)
from streamkit.expressions import Expression
from streamkit.extension import native
from streamkit.graph.physical_topology import GraphNode, ProcessorGraphNode, RepartitionNode
from streamkit.operators.codegen.code_writer import CodeWriter, Node, Processor
from streamkit.operators.codegen.table_code import drop_null_keys, emit_flush_listener, emit_put
from streamkit.operators.core.frozen import frozen
from streamkit.operators.core.operator import (
    AggregateWork,
    AnySerde,
    BuildError,
    Context,
    GroupedStream,
    GroupedTable,
    Table,
    WindowedStream,
    repartition_node,
    required_serde,
)
from streamkit.operators.core.parsed_values import SessionWindows, Step, TimeWindows, Windows
from streamkit.operators.core.step_stores import materialize
from streamkit.record import Key, Operand, RecordContext, Value
from streamkit.serdes.formats.windowed import SessionWindowedSerde, TimeWindowedSerde
from streamkit.serdes.serde import Serde
from streamkit.state.definitions import StoreDef
from streamkit.state.layouts import pack_long
from streamkit.state.stores.cache import CONTEXT, DATA, PUT, TIME, TOPIC, USED, VALUE


@frozen
class Aggregation:
    """The functions of an aggregation. kind: count, reduce, aggregate, top; expressions that the kind does not have are None.

    reduce: the first value becomes the aggregate unchanged. merge: combines two sessions; None for count (sum) and reduce
    (`add` with the older session as aggregate). limit: for top, the maximum length of the list; `add` is then the rank of a
    value, an expression of `key` and `value`.
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
class WindowedAggregate(Processor):
    """An aggregation over windows."""

    kind: ClassVar[str]
    """The kind of its kernel: time, sliding or session."""
    aggregation: Aggregation
    windows: Windows
    on_close: bool
    store: str
    send_old: bool

    def emit(self, node: Node, gen: CodeWriter) -> None:
        emit_window_aggregate(self, node, gen)

    def why_nothing(self) -> str:
        return "its window is not closed, and emits on close" if self.on_close else "no window changes"


@frozen
class WindowAggregate(WindowedAggregate):
    """An aggregation over tumbling or hopping windows (KStreamWindowAggregate)."""

    kind: ClassVar[str] = "time"
    windows: TimeWindows


@frozen
class SlidingAggregate(WindowedAggregate):
    """An aggregation over sliding windows (KStreamSlidingWindowAggregate)."""

    kind: ClassVar[str] = "sliding"


@frozen
class SessionAggregate(WindowedAggregate):
    """An aggregation over sessions (KStreamSessionWindowAggregate)."""

    kind: ClassVar[str] = "session"


@frozen
class TableAggregate(Processor):
    """An aggregation of a grouped table, which subtracts and adds (KTableAggregate, KTableReduce)."""

    aggregation: Aggregation
    store: str
    send_old: bool

    def emit(self, node: Node, gen: CodeWriter) -> None:
        emit_table_aggregate(self, node, gen)


def stream_processor(
    aggregation: Aggregation, windows: Windows | None, on_close: bool, store: str, send_old: bool
) -> Processor:
    """Return the processor of an aggregation of a stream."""
    if isinstance(windows, TimeWindows):
        return WindowAggregate(aggregation, windows, on_close, store, send_old)
    if windows is None:
        return StreamAggregate(aggregation, store, send_old)
    windowed = SessionAggregate if isinstance(windows, SessionWindows) else SlidingAggregate
    return windowed(aggregation, windows, on_close, store, send_old)


def result_key(key_serde: Serde, windows: Windows | None) -> Serde:
    """Return the key serde of an aggregation's result: the group's serde, windowed if the group is windowed."""
    if windows is None:
        return key_serde
    return SessionWindowedSerde(key_serde) if windows.length is None else TimeWindowedSerde(key_serde, windows.length)


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
    """Return the group's repartition node and the name of its source. All aggregations of a named group share one."""
    serdes = (
        required_serde(group.key_serde, "key", step, "the repartition topic"),
        required_serde(group.value_serde, "value", step, "the repartition topic"),
    )
    # Created even if it is unused, because its names take indices.
    repartition = repartition_node(ctx, group.given_name or store, serdes)
    if group.repartition is None or group.given_name is None:
        group.repartition = repartition
    return group.repartition, repartition.source_name


def aggregate_table(
    step: Step, ctx: Context, group: GroupedTable, aggregation: Aggregation, prefix: str, value_serde: AnySerde
) -> Table:
    """Build an aggregation of a grouped table (KGroupedTableImpl.doAggregate)."""
    if aggregation.subtract is None and aggregation.kind != "count":
        text = f"{step.operator}: on a grouped table `subtract` is required; it removes a row's old value"
        raise BuildError(step.position, text)
    # In Java the store's name contains AGGREGATE for reduce, too.
    store = materialize(step, ctx, group.key_serde, value_serde, "KTABLE-AGGREGATE-")
    given_name = step.get("name")
    names = ctx.graph.names
    sink = names.named(given_name, "KSTREAM-SINK-", "-sink")
    source = names.named(given_name, "KSTREAM-SOURCE-", "-source")
    name = names.named(given_name, prefix)
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


# The code of aggregations: inline for streams and tables, calls of a kernel for windows.


def _is_integer(bits: int) -> Callable[[Code], Code]:
    low, high = literal(-1 << bits - 1), literal((1 << bits - 1) - 1)
    return lambda value: all_of(
        compare(attribute(value, "__class__"), "is", symbol("int")), compare(low, "<=", value, "<=", high)
    )


_FITS: dict[str, Callable[[Code], Code]] = {
    "long": _is_integer(64),
    "integer": _is_integer(32),
    "double": lambda value: compare(attribute(value, "__class__"), "is", symbol("float")),
}
"""Tests whether a serde of fixed size can encode a value, by the serde's name; they make a trial encoding unnecessary."""


def emit_stream_aggregate(processor: StreamAggregate, node: Node, gen: CodeWriter) -> None:
    """Write an aggregation without windows (KStreamAggregate, KStreamReduce)."""
    drop_null_keys(gen, gen.record.value.is_none())
    gen.record.value.never_none = True
    rank = emit_rank(processor.aggregation, node, gen)
    if processor.aggregation.kind == "count" and gen.is_cached(processor.store):
        _count_in_cache(processor, node, gen)
        return
    if gen.is_cached(processor.store) and _fits(gen.stores[processor.store]) is not None:
        _aggregate_in_cache(processor, node, gen)
        return
    row, old, new, time = (gen.var(name) for name in ("found", "old", "new", "time"))
    record, is_reduce = gen.record, processor.aggregation.kind == "reduce"
    with gen.guard(node):
        key = gen.bytes_of(record.key, gen.stores[processor.store].key_serde)
        gen.assign(row, method(gen.store(processor.store), "get", key))
        with gen.when(is_none(row)):
            gen.assign_each((old, time), (initial_value(processor.aggregation, gen), record.time))
            if is_reduce:
                gen.assign(new, gen.object_of(record.value))
        with gen.otherwise():
            gen.unpack((old, time), row)
            with gen.when(compare(record.time, ">", time)):
                gen.assign(time, record.time)
            if is_reduce:
                gen.assign(new, added(processor.aggregation, gen, old))
        if rank is not None:
            ranked = tuple_of(rank, gen.object_of(record.value))
            gen.assign(new, call(window_functions(processor.aggregation, gen)[1], NONE, ranked, old))
        elif not is_reduce:
            gen.assign(new, added(processor.aggregation, gen, old))
    if rank is not None:
        gen.only_where(compare(new, "is not", old))
    _put_and_forward(processor, node, gen, (new, old, time))


def _fits(definition: StoreDef) -> Callable[[Code], Code] | None:
    """Return a test for whether a store's serde can encode a value; None if that requires a trial encoding."""
    spec = definition.value_serde.spec
    return _FITS.get(spec) if isinstance(spec, str) else None


def _put_and_forward(
    processor: StreamAggregate | TableAggregate, node: Node, gen: CodeWriter, change: tuple[Code, Code, Code]
) -> None:
    """Write code that puts a new value and forwards the change.

    `change`: the variables of the new value, the old value and the time.
    """
    new, old, time = change
    put_time = time
    if processor.aggregation.kind != "count" and gen.stores[processor.store].type != "versioned":
        # In store and changelog, a deletion has the time of the current record, regardless of the forwarded time. A
        # versioned store takes the aggregate's time.
        put_time = gen.var("at")
        gen.assign(put_time, either(is_none(new), gen.record.time, time))
    emit_put(gen, node, processor.store, new, old if processor.send_old else None, put_time, time)


def _count_in_cache(processor: StreamAggregate, node: Node, gen: CodeWriter) -> None:
    """Write code that counts in place in the cache's entries."""
    store, record = gen.store(processor.store), gen.record
    key = gen.bytes_of(record.key, gen.stores[processor.store].key_serde)
    entry, row = gen.var("entry"), gen.var("found")
    get, tick, renew = cache_functions(gen, processor.store)
    with unless_counted(gen, processor.store, key):
        gen.assign(entry, call(get, key))
        with gen.when(has_no_value(entry)), gen.guard(node):
            gen.assign(row, method(store, "get", key))
            with gen.when(is_none(row)):
                gen.do(method(store, "put", key, ONE, record.time, record.context))
            with gen.otherwise():
                later = call("max", item(row, 1), record.time)
                gen.do(method(store, "put", key, binary(item(row, 0), "+", ONE), later, record.context))
        with gen.otherwise():
            gen.add_to(item(entry, VALUE), ONE)
            mark_updated(gen, entry, renew, key, tick)
    emit_flush_listener(gen, node, processor.store, processor.send_old)


def _aggregate_in_cache(processor: StreamAggregate, node: Node, gen: CodeWriter) -> None:
    """Write an aggregation that changes the cache's entry in place, if values have a fixed size."""
    record, definition = gen.record, gen.stores[processor.store]
    entry, row, old, new, time = (gen.var(name) for name in ("entry", "found", "old", "new", "time"))
    get, tick, renew = cache_functions(gen, processor.store)
    fits = _fits(definition)
    assert fits is not None
    with gen.guard(node):
        key = gen.bytes_of(record.key, definition.key_serde)
        gen.assign(entry, call(get, key))
        with gen.when(has_no_value(entry)):
            gen.assign(entry, NONE)
            gen.assign(row, method(gen.store(processor.store), "get", key))
            gen.unpack((old, time), any_of(row, tuple_of(initial_value(processor.aggregation, gen), record.time)))
        with gen.otherwise():
            gen.assign_each((old, time), (item(entry, VALUE), item(entry, TIME)))
            # Reading makes the entry the most recently used one, even if its value does not change.
            gen.assign(item(entry, USED), tick)
        with gen.when(compare(record.time, ">", time)):
            gen.assign(time, record.time)
        if processor.aggregation.kind == "reduce":
            with gen.when(is_none(old)):
                gen.assign(new, gen.object_of(record.value))
            with gen.otherwise():
                gen.assign(new, added(processor.aggregation, gen, old))
        else:
            gen.assign(new, added(processor.aggregation, gen, old))
    with gen.when(all_of(is_not_none(entry), fits(new))):
        gen.assign(item(entry, VALUE), new)
        mark_updated(gen, entry, renew, key)
    with gen.otherwise():
        _put_and_forward(processor, node, gen, (new, old, time))


def emit_table_aggregate(processor: TableAggregate, node: Node, gen: CodeWriter) -> None:
    """Write an aggregation of a grouped table: subtract the old value, then add the new one (KTableAggregate)."""
    record = gen.record
    assert record.old is not None
    row, old, new, time = (gen.var(name) for name in ("found", "old", "new", "time"))
    with gen.guard(node):
        key = gen.bytes_of(record.key, gen.stores[processor.store].key_serde)
        after, before = gen.object_of(record.value), gen.object_of(record.old)
        later = call("max", record.time, item(row, 1))
        gen.assign(row, method(gen.store(processor.store), "get", key))
        gen.assign(old, unless_none(row, item(row, 0)))
        gen.assign_each((new, time), (old, record.time))
        with gen.when(all_of(is_not_none(before), is_not_none(old))):
            gen.assign(new, subtracted(processor.aggregation, gen, old, before))
            gen.assign(time, later)
        with gen.when(is_not_none(after)):
            if processor.aggregation.kind == "reduce":
                with gen.when(is_none(new)):
                    gen.assign(new, after)
                with gen.otherwise():
                    gen.assign(new, added(processor.aggregation, gen, new, after))
                    gen.assign(time, later)
            else:
                with gen.when(is_none(new)):
                    gen.assign(new, initial_value(processor.aggregation, gen))
                gen.assign(new, added(processor.aggregation, gen, new, after))
                with gen.when(is_not_none(row)):
                    gen.assign(time, later)
    _put_and_forward(processor, node, gen, (new, old, time))


# -- Windows -------------------------------------------------------------------------------------------------------


def emit_window_aggregate(processor: WindowedAggregate, node: Node, gen: CodeWriter) -> None:
    """Write the call of a windowed aggregation's kernel."""
    kind, size = processor.kind, processor.windows.size
    advance = processor.windows.advance if isinstance(processor, WindowAggregate) else 1
    definition = gen.stores[processor.store]
    cached = gen.is_cached(processor.store)
    kernel = gen.kernel("window_aggregates", f"{kind.title()}WindowAggregate")
    aggregation = processor.aggregation
    arguments = [
        literal(processor.store),
        *map(literal, (size, advance, processor.windows.grace, processor.on_close, cached, processor.send_old)),
        *window_functions(processor.aggregation, gen),
        gen.forward_function(node, True),
        gen.name_of(definition.key_serde.decode, "decode"),
    ]
    if kind == "session":
        arguments.append(merge_function(processor.aggregation, gen))
    elif aggregation.limit is not None:
        arguments += [NONE, TRUE]
    window_work = call(gen.kernel("window_aggregates", "WindowWork"), *arguments)
    index = (gen.index(node),) if kind == "session" else ()
    aggregate = call(kernel, RT, gen.store(processor.store), window_work, *index)
    instance = gen.instance(("window", node.name), "p", aggregate)
    if cached and not processor.on_close:
        emit_flush_listener(gen, node, processor.store, processor.send_old, "session" if kind == "session" else "time")
    record = gen.record
    top = processor.aggregation.limit is not None
    drop_null_keys(gen, *([record.value.is_none()] if kind == "sliding" or top else []))
    rank = emit_rank(processor.aggregation, node, gen)
    fits = _fits(definition)
    with gen.guard(node):
        key = gen.bytes_of(record.key, definition.key_serde)
        value = aggregated_value(processor.aggregation, gen)
        if rank is not None:
            value = tuple_of(rank, value)
        parts = (key, gen.object_of(record.key), value, record.time, record.context)
        in_cache = kind == "time" and cached and not processor.on_close and fits is not None and not top
        if in_cache and size == advance:
            _tumble_in_cache(processor, gen, instance, size, parts)
        elif in_cache:
            _hop_in_cache(processor, gen, instance, (size, advance), parts)
        else:
            gen.do(method(instance, "process", *parts))


def _tumble_in_cache(
    processor: WindowedAggregate, gen: CodeWriter, instance: Code, size: int, parts: tuple[Code, ...]
) -> None:
    """Write an update of a tumbling window's entry in the cache.

    The kernel handles windows without an entry, and records that may be late.
    """
    key, _, value, time, _ = parts
    start, row, entry = (gen.var(name) for name in ("start", "row", "entry"))
    gen.assign(start, binary(time, "-", binary(time, "%", literal(size))))
    gen.assign(row, _row(gen, key, start))
    with gen.when(any_of(*_may_be_late(processor, instance, time, start, size))):
        gen.do(method(instance, "process", *parts))
    by_extension = counted(gen, processor.store, row) if processor.aggregation.kind == "count" else None
    if by_extension is not None:
        with gen.otherwise(by_extension):
            _observe(gen, instance, time)
    with gen.otherwise():
        gen.assign(entry, call(cache_functions(gen, processor.store)[0], row))
        with gen.when(has_no_value(entry)):
            gen.do(method(instance, "process", *parts))
        with gen.otherwise():
            _observe(gen, instance, time)
            _change_window(processor, gen, (key, start, row), entry, value)


def _hop_in_cache(
    processor: WindowedAggregate, gen: CodeWriter, instance: Code, sizes: tuple[int, int], parts: tuple[Code, ...]
) -> None:
    """Write the updates of a record's hopping windows in the cache. `sizes`: the size of a window, and its advance.

    The kernel handles windows without an entry, and all windows of a record if it may be late for one of them.
    """
    key, key_object, value, time, context = parts
    size, advance = sizes
    first, start, row, entry = (gen.var(name) for name in ("first", "start", "row", "entry"))
    step = literal(advance)
    before = binary(time, "-", literal(size - advance))
    gen.assign(first, call("max", literal(0), binary(binary(before, "//", step), "*", step)))
    with gen.when(any_of(*_may_be_late(processor, instance, time, first, size))):
        gen.do(method(instance, "process", *parts))
    with gen.otherwise():
        _observe(gen, instance, time)
        with gen.each((start,), call("range", first, binary(time, "+", ONE), step)):
            gen.assign(row, _row(gen, key, start))
            counts = processor.aggregation.kind == "count"
            with unless_counted(gen, processor.store, row) if counts else nullcontext():
                gen.assign(entry, call(cache_functions(gen, processor.store)[0], row))
                with gen.when(has_no_value(entry)):
                    gen.do(method(instance, "update", key, key_object, value, time, context, start))
                with gen.otherwise():
                    _change_window(processor, gen, (key, start, row), entry, value)


def _row(gen: CodeWriter, key: Code, start: Code) -> Code:
    """Return a window's key in the cache."""
    return binary(key, "+", call(gen.name_of(pack_long, "pack_long"), start))


def _may_be_late(processor: WindowedAggregate, instance: Code, time: Code, first: Code, size: int) -> tuple[Code, Code]:
    """Return two tests; at least one holds if the earliest window of a record may be closed."""
    closed = binary(attribute(instance, "observed"), "-", literal(processor.windows.grace))
    return compare(time, "<", literal(0)), compare(binary(first, "+", literal(size)), "<=", closed)


def _observe(gen: CodeWriter, instance: Code, time: Code) -> None:
    """Write the advance of the node's stream time."""
    observed = attribute(instance, "observed")
    with gen.when(compare(time, ">", observed)):
        gen.assign(observed, time)


def _change_window(
    processor: WindowedAggregate, gen: CodeWriter, window: tuple[Code, Code, Code], entry: Code, value: Code
) -> None:
    """Write the update of a window's entry in the cache. `window`: its key, its start and its row."""
    key, start, row = window
    time, context = gen.record.time, gen.record.context
    fits = _fits(gen.stores[processor.store])
    assert fits is not None
    _, tick, renew = cache_functions(gen, processor.store)
    gen.assign(item(entry, USED), tick)
    if processor.aggregation.kind == "count":
        gen.add_to(item(entry, VALUE), ONE)
        mark_updated(gen, entry, renew, row)
        return
    old, new = gen.var("old"), gen.var("new")
    gen.assign(old, item(entry, VALUE))
    gen.assign(new, added(processor.aggregation, gen, old, value))
    with gen.when(fits(new)):
        gen.assign(item(entry, VALUE), new)
        mark_updated(gen, entry, renew, row)
    with gen.otherwise():
        later = either(is_none(new), time, call("max", item(entry, TIME), time))
        gen.do(method(gen.store(processor.store), "put", key, start, new, later, context))


# The functions of an aggregation in generated code: its initial value, and its functions to add, subtract and merge.

ONE = literal(1)


def emit_rank(aggregation: Aggregation, node: Node, gen: CodeWriter) -> Code | None:
    """For `top`, write code that drops records that can't be ranked, and return the variable of the rank; else return None."""
    if aggregation.limit is None:
        return None
    assert aggregation.add is not None
    rank = gen.var("rank")
    with gen.guard(node):
        gen.assign(rank, gen.expr(aggregation.add))
    # NaN is the only number that does not equal itself.
    gen.drop_where(any_of(is_none(rank), compare(rank, "!=", rank)))
    return rank


def initial_value(aggregation: Aggregation, gen: CodeWriter) -> Code:
    """Return the piece of the initial aggregate."""
    if aggregation.kind == "count":
        return literal(0)
    if aggregation.limit is not None:
        return list_of()
    return NONE if aggregation.initial is None else gen.expr(aggregation.initial)


def added(aggregation: Aggregation, gen: CodeWriter, old: Code, value: Code | None = None) -> Code:
    """Return the piece that adds a value to the aggregate, by default the current record's value."""
    if aggregation.kind == "count":
        return binary(old, "+", ONE)
    assert aggregation.add is not None
    return gen.expr(aggregation.add, aggregate=old, value=value or gen.object_of(gen.record.value))


def subtracted(aggregation: Aggregation, gen: CodeWriter, old: Code, value: Code) -> Code:
    """Return the piece that subtracts a value from the aggregate."""
    if aggregation.kind == "count":
        return binary(old, "-", ONE)
    assert aggregation.subtract is not None
    return gen.expr(aggregation.subtract, aggregate=old, value=value)


def zero_count() -> int:
    """Return the initial value of a count."""
    return 0


def no_aggregate() -> None:
    """Return the initial value of a reduce."""
    return None


def count_one(k: Key, v: Value, aggregate: int, t: int, c: RecordContext) -> int:
    """Return a count that is one higher."""
    return aggregate + 1


def sum_counts(k: Key, left: int, right: int) -> int:
    """Return the count of two merged sessions."""
    return left + right


def aggregated_value(aggregation: Aggregation, gen: CodeWriter) -> Code:
    """Return the piece of the record's value that is passed to a kernel."""
    # A count does not read the value, so it need not be decoded.
    return NONE if aggregation.kind == "count" else gen.object_of(gen.record.value)


def window_functions(aggregation: Aggregation, gen: CodeWriter) -> tuple[Code, Code]:
    """Return the names of the functions `initial()` and `add(k, v, aggregate, t, c)`."""
    if aggregation.kind == "count":
        return gen.name_of(zero_count, "zero"), gen.name_of(count_one, "count_one")
    if aggregation.limit is not None:
        return gen.name_of(list, "list"), attribute(_top_list(aggregation, gen), "add")
    names = {"key": "k", "value": "v", "aggregate": "aggregate"}
    assert aggregation.add is not None
    if aggregation.initial is not None:
        return gen.callable_of(aggregation.initial, {}), gen.callable_of(aggregation.add, names, "t", "c")
    reduce = gen.callable_of(aggregation.add, names, "t", "c")

    def write(name: Code) -> None:
        aggregate, value = symbol("aggregate"), symbol("v")
        with gen.function(name, "k", "v", "aggregate", "t", "c"):
            combined = call(reduce, symbol("k"), value, aggregate, symbol("t"), symbol("c"))
            gen.returns(either(is_none(aggregate), value, combined))

    return gen.name_of(no_aggregate, "nothing"), gen.deferred_function(("reduce", reduce), "reduce", write)


def _top_list(aggregation: Aggregation, gen: CodeWriter) -> Code:
    """Return the variable of the functions of `top`."""
    assert aggregation.add is not None
    rank = gen.callable_of(aggregation.add, {"key": "k", "value": "v"})
    top = call(gen.name_of(TopList, "TopList"), literal(aggregation.limit), rank)
    return gen.instance(("top", rank.source, aggregation.limit), "top", top)


def merge_function(aggregation: Aggregation, gen: CodeWriter) -> Code:
    """Return the name of the function `(key, left, right)` that returns the aggregate of two sessions."""
    if aggregation.kind == "count":
        return gen.name_of(sum_counts, "both")
    if aggregation.limit is not None:
        return attribute(_top_list(aggregation, gen), "merge")
    if aggregation.merge is not None:
        return gen.callable_of(aggregation.merge, {"key": "k", "left": "left", "right": "right"})
    reduce = window_functions(aggregation, gen)[1]

    def write(name: Code) -> None:
        with gen.function(name, "k", "left", "right"):
            gen.returns(call(reduce, *map(symbol, ("k", "right", "left")), literal(-1), gen.empty_context()))

    return gen.deferred_function(("merge", reduce), "merge", write)


# The hottest path: code that changes entries of a store's cache in place (state/stores/cache.py).

RT = symbol("rt")

_COUNT: Callable[..., bool] | None = native("count_in_entry", None)
"""The extension's function that counts in an entry. Without the extension the code is inline, because a call would cost more."""


def cache_functions(gen: CodeWriter, name: str) -> tuple[Code, Code, Code]:
    """Return the pieces to get an entry of a store's cache, to create the next stamp, and to renew an entry."""
    return (
        gen.prologue(("entries", name), "entry_of", attribute(gen.store(name), "entries", "get")),
        call("next", _ticks(gen, name)),
        gen.prologue(("renew", name), "renew", attribute(gen.store(name), "cache", "renew")),
    )


def has_no_value(entry: Code) -> Code:
    """Return a test for whether a key has no entry, or the entry of a deletion."""
    return any_of(is_none(entry), is_none(item(entry, VALUE)))


def counted(gen: CodeWriter, name: str, key: Code) -> Code | None:
    """Return the extension's call that counts in a key's entry. It returns False if the entry did not change. None if the extension can't be used."""
    if _COUNT is None or not gen.reads_one_topic():
        return None
    entries = gen.prologue(("all entries", name), "entries", attribute(gen.store(name), "entries"))
    record = gen.record
    return call(gen.name_of(_COUNT, "count"), entries, key, record.time, record.context, _ticks(gen, name))


@contextmanager
def unless_counted(gen: CodeWriter, name: str, key: Code) -> Iterator[None]:
    """Write the Python code that counts, around the block. With the extension, the block handles only records that the extension leaves."""
    by_extension = counted(gen, name, key)
    if by_extension is None:
        yield
        return
    with gen.when(negated(by_extension)):
        yield


def mark_updated(gen: CodeWriter, entry: Code, renew: Code, key: Code, tick: Code | None = None) -> None:
    """Write the other changes of a cache entry with a new value. `tick`: sets the stamp, if the read did not."""
    record = gen.record
    gen.assign(item(entry, DATA), NONE)
    with gen.when(compare(record.time, ">", item(entry, TIME))):
        gen.assign(item(entry, TIME), record.time)
    # The entry's size does not change if it already has an unflushed update with this context and a topic name of this length.
    same = [item(entry, PUT), compare(record.context, "is", item(entry, CONTEXT))]
    if not gen.reads_one_topic():
        current = gen.prologue(("topic",), "current", attribute(RT, "current_topic"))
        same.append(compare(item(entry, TOPIC), "==", attribute(current, "size")))
    with gen.when(all_of(*same)):
        if tick is None:
            gen.assign(item(entry, PUT), item(entry, USED))
        else:
            gen.assign_all((item(entry, PUT), item(entry, USED)), tick)
    with gen.otherwise():
        gen.do(call(renew, key, entry, record.context))


def _ticks(gen: CodeWriter, name: str) -> Code:
    return gen.prologue(("ticks", name), "ticks", attribute(gen.store(name), "cache", "ticks"))


# The lists of the `top` step: the values with the highest ranks, highest first, equal ranks in order of arrival.


class TopList:
    """The functions of one node. limit: the maximum length of a list; rank: maps (key, value) to a value's rank.

    Lists are never changed in place, because stores keep them.
    """

    __slots__ = ("_limit", "_rank")

    def __init__(self, limit: int, rank: Callable[[Key, Value], Operand]):
        self._limit = limit
        self._rank = rank

    def add(
        self, k: Key, ranked: tuple[Operand, Value], values: list[Value], t: int = 0, c: RecordContext = None
    ) -> list[Value]:
        """Return the list with a value that has a given rank; the list itself if the value's rank is too low."""
        rank_of, (rank, value) = self._rank, ranked
        low, high = 0, len(values)
        if high >= self._limit and rank_of(k, values[-1]) >= rank:
            return values
        while low < high:
            middle = (low + high) // 2
            if rank_of(k, values[middle]) >= rank:
                low = middle + 1
            else:
                high = middle
        return [*values[:low], value, *values[low : self._limit - 1]]

    def merge(self, k: Key, left: list[Value], right: list[Value]) -> list[Value]:
        """Return the combined list of two sessions; among equal ranks, values of `left` come first."""
        both = [*left, *right]
        both.sort(key=lambda value: self._rank(k, value), reverse=True)
        return both[: self._limit]
