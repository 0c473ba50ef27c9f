"""The code of aggregations: inline for streams and tables, calls of a kernel for windows."""

from __future__ import annotations

from collections.abc import Callable
from contextlib import nullcontext
from typing import TYPE_CHECKING

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
    literal,
    method,
    symbol,
    tuple_of,
    unless_none,
)
from streamkit.operators.codegen.aggregation_functions import (
    ONE,
    added,
    aggregated_value,
    emit_rank,
    initial_value,
    merge_function,
    subtracted,
    window_functions,
)
from streamkit.operators.codegen.cache_code import (
    RT,
    cache_functions,
    counted,
    has_no_value,
    mark_updated,
    unless_counted,
)
from streamkit.operators.codegen.table_code import drop_null_keys, emit_flush_listener, emit_put
from streamkit.state.keys import pack_long
from streamkit.state.stores.cache import TIME, USED, VALUE

if TYPE_CHECKING:
    from streamkit.operators.codegen.code_writer import CodeWriter, Node
    from streamkit.operators.steps.aggregations.aggregate_node import (
        StreamAggregate,
        TableAggregate,
        WindowedAggregate,
    )
    from streamkit.state.definitions import StoreDef


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
"""The tests that a serde of a fixed size can encode a value, by the serde's name: it needs no trial encoding."""


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
    found, old, new, time = (gen.var(name) for name in ("found", "old", "new", "time"))
    record, is_reduce = gen.record, processor.aggregation.kind == "reduce"
    with gen.guard(node):
        key = gen.bytes_of(record.key, gen.stores[processor.store].key_serde)
        gen.assign(found, method(gen.store(processor.store), "get", key))
        with gen.when(is_none(found)):
            gen.assign_each((old, time), (initial_value(processor.aggregation, gen), record.time))
            if is_reduce:
                gen.assign(new, gen.object_of(record.value))
        with gen.otherwise():
            gen.unpack((old, time), found)
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
    """Return the test that a store's serde can encode a value; None where only encoding it shows this."""
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
        # A deletion has the time of the current record in store and changelog, whatever time is forwarded. A
        # versioned store takes the time of the aggregate.
        put_time = gen.var("at")
        gen.assign(put_time, either(is_none(new), gen.record.time, time))
    emit_put(gen, node, processor.store, new, old if processor.send_old else None, put_time, time)


def _count_in_cache(processor: StreamAggregate, node: Node, gen: CodeWriter) -> None:
    """Write code that counts in the entries of the cache itself."""
    store, record = gen.store(processor.store), gen.record
    key = gen.bytes_of(record.key, gen.stores[processor.store].key_serde)
    entry, found = gen.var("entry"), gen.var("found")
    get, tick, renew = cache_functions(gen, processor.store)
    with unless_counted(gen, processor.store, key):
        gen.assign(entry, call(get, key))
        with gen.when(has_no_value(entry)), gen.guard(node):
            gen.assign(found, method(store, "get", key))
            with gen.when(is_none(found)):
                gen.do(method(store, "put", key, ONE, record.time, record.context))
            with gen.otherwise():
                later = call("max", item(found, 1), record.time)
                gen.do(method(store, "put", key, binary(item(found, 0), "+", ONE), later, record.context))
        with gen.otherwise():
            gen.add_to(item(entry, VALUE), ONE)
            mark_updated(gen, entry, renew, key, tick)
    emit_flush_listener(gen, node, processor.store, processor.send_old)


def _aggregate_in_cache(processor: StreamAggregate, node: Node, gen: CodeWriter) -> None:
    """Write an aggregation that changes an entry of the cache itself, where values have a fixed size."""
    record, definition = gen.record, gen.stores[processor.store]
    entry, found, old, new, time = (gen.var(name) for name in ("entry", "found", "old", "new", "time"))
    get, tick, renew = cache_functions(gen, processor.store)
    fits = _fits(definition)
    assert fits is not None
    with gen.guard(node):
        key = gen.bytes_of(record.key, definition.key_serde)
        gen.assign(entry, call(get, key))
        with gen.when(has_no_value(entry)):
            gen.assign(entry, NONE)
            gen.assign(found, method(gen.store(processor.store), "get", key))
            gen.unpack((old, time), any_of(found, tuple_of(initial_value(processor.aggregation, gen), record.time)))
        with gen.otherwise():
            gen.assign_each((old, time), (item(entry, VALUE), item(entry, TIME)))
            # A read makes the entry the most recently used one, even if its value does not change.
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
    found, old, new, time = (gen.var(name) for name in ("found", "old", "new", "time"))
    with gen.guard(node):
        key = gen.bytes_of(record.key, gen.stores[processor.store].key_serde)
        after, before = gen.object_of(record.value), gen.object_of(record.old)
        later = call("max", record.time, item(found, 1))
        gen.assign(found, method(gen.store(processor.store), "get", key))
        gen.assign(old, unless_none(found, item(found, 0)))
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
                with gen.when(is_not_none(found)):
                    gen.assign(time, later)
    _put_and_forward(processor, node, gen, (new, old, time))


# -- Windows -------------------------------------------------------------------------------------------------------


def emit_window_aggregate(
    processor: WindowedAggregate, node: Node, gen: CodeWriter, kind: str, size: int, advance: int
) -> None:
    """Write the call of a windowed aggregation's kernel. kind: time, sliding, session; times in milliseconds."""
    definition = gen.stores[processor.store]
    cached = gen.is_cached(processor.store)
    kernel = gen.kernel(f"{kind}_window", f"{kind.title()}WindowAggregate")
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
    window_work = call(gen.kernel("time_window", "WindowWork"), *arguments)
    index = (gen.index(node),) if kind == "session" else ()
    made = call(kernel, RT, gen.store(processor.store), window_work, *index)
    instance = gen.instance(("window", node.name), "p", made)
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

    Windows without an entry, and records that may be late, are left to the kernel.
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
    """Write the updates of a record's hopping windows in the cache; `sizes`: of a window, and its advance.

    Windows without an entry are left to the kernel, and all of a record where one of them may be late.
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
    """Return the cache's key of a window."""
    return binary(key, "+", call(gen.name_of(pack_long, "pack_long"), start))


def _may_be_late(processor: WindowedAggregate, instance: Code, time: Code, first: Code, size: int) -> tuple[Code, Code]:
    """Return the tests of which one holds where the earliest window of a record may be closed."""
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
    """Write the update of a window's entry in the cache; `window`: its key, its start and its row."""
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
