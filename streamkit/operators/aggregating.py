"""The code of aggregations: inline for streams and tables, calls of a kernel for windows."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from streamkit.code import (
    NONE,
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
from streamkit.operators.emitting import drop_null_keys, emit_keep, listen
from streamkit.state.cache import CONTEXT, DATA, PUT, TIME, TOPIC, USED, VALUE
from streamkit.state.keys import pack_long

if TYPE_CHECKING:
    from streamkit.operators.aggregation import Aggregation, StreamAggregate, TableAggregate, WindowedAggregate
    from streamkit.operators.writer import CodeWriter, Node
    from streamkit.state.definitions import StoreDef

RT, ONE = symbol("rt"), literal(1)


def _whole(bits: int) -> Callable[[Code], Code]:
    low, high = literal(-1 << bits - 1), literal((1 << bits - 1) - 1)
    return lambda value: all_of(
        compare(attribute(value, "__class__"), "is", symbol("int")), compare(low, "<=", value, "<=", high)
    )


_FITS: dict[str, Callable[[Code], Code]] = {
    "long": _whole(64),
    "integer": _whole(32),
    "double": lambda value: compare(attribute(value, "__class__"), "is", symbol("float")),
}
"""What tests that a value is its serde's, and so needs no check by encoding it; by the names of serdes of a fixed size."""


def emit_stream_aggregate(work: StreamAggregate, node: Node, gen: CodeWriter) -> None:
    """Write an aggregation without windows (KStreamAggregate, KStreamReduce)."""
    drop_null_keys(gen, gen.hand.value.is_none())
    gen.hand.value.never_none = True
    if work.aggregation.kind == "count" and gen.is_cached(work.store):
        _count_in_cache(work, node, gen)
        return
    if gen.is_cached(work.store) and _fits(gen.plan.stores[work.store]) is not None:
        _aggregate_in_cache(work, node, gen)
        return
    found, old, new, time = (gen.var(name) for name in ("found", "old", "new", "time"))
    hand, is_reduce = gen.hand, work.aggregation.kind == "reduce"
    with gen.guard(node):
        key = gen.raw(hand.key, gen.plan.stores[work.store].key_serde)
        gen.assign(found, method(gen.store(work.store), "get", key))
        with gen.when(is_none(found)):
            gen.assign_each((old, time), (_initial(work.aggregation, gen), hand.time))
            if is_reduce:
                gen.assign(new, gen.obj(hand.value))
        with gen.otherwise():
            gen.unpack((old, time), found)
            with gen.when(compare(hand.time, ">", time)):
                gen.assign(time, hand.time)
            if is_reduce:
                gen.assign(new, _added(work.aggregation, gen, old))
        if not is_reduce:
            gen.assign(new, _added(work.aggregation, gen, old))
    _keep(work, node, gen, (new, old, time))


def _fits(definition: StoreDef) -> Callable[[Code], Code] | None:
    """Return what tests that a value is one of a store's serde; None where only encoding it can tell."""
    spec = definition.value_serde.spec
    return _FITS.get(spec) if isinstance(spec, str) else None


def _keep(work: StreamAggregate | TableAggregate, node: Node, gen: CodeWriter, made: tuple[Code, Code, Code]) -> None:
    """Write the putting of a new value; `made`: the variables of the new value, the old one and the time."""
    new, old, time = made
    put_time = time
    if work.aggregation.kind != "count" and gen.plan.stores[work.store].type != "versioned":
        # A deletion has the time of the current record in store and changelog, whatever is forwarded. A versioned
        # store takes the time that goes with the aggregate.
        put_time = gen.var("at")
        gen.assign(put_time, either(is_none(new), gen.hand.time, time))
    emit_keep(gen, node, work.store, new, old if work.send_old else None, put_time, time)


def _count_in_cache(work: StreamAggregate, node: Node, gen: CodeWriter) -> None:
    """Write counting on the entries of the cache themselves (see state.cache), the hottest code there is."""
    store, hand = gen.store(work.store), gen.hand
    key = gen.raw(hand.key, gen.plan.stores[work.store].key_serde)
    entry, found = gen.var("entry"), gen.var("found")
    get, tick, renew = _cache_functions(gen, work.store)
    gen.assign(entry, call(get, key))
    with gen.when(_holds_nothing(entry)), gen.guard(node):
        gen.assign(found, method(store, "get", key))
        with gen.when(is_none(found)):
            gen.do(method(store, "put", key, ONE, hand.time, hand.context))
        with gen.otherwise():
            later = call("max", item(found, 1), hand.time)
            gen.do(method(store, "put", key, binary(item(found, 0), "+", ONE), later, hand.context))
    with gen.otherwise():
        gen.add_to(item(entry, VALUE), ONE)
        _touch(gen, entry, renew, key, tick)
    listen(gen, node, work.store, work.send_old)


def _holds_nothing(entry: Code) -> Code:
    return any_of(is_none(entry), is_none(item(entry, VALUE)))


def _aggregate_in_cache(work: StreamAggregate, node: Node, gen: CodeWriter) -> None:
    """Write an aggregation that changes an entry of the cache itself, where the value that it holds has a fixed size."""
    hand, definition = gen.hand, gen.plan.stores[work.store]
    entry, found, old, new, time = (gen.var(name) for name in ("entry", "found", "old", "new", "time"))
    get, tick, renew = _cache_functions(gen, work.store)
    fits = _fits(definition)
    assert fits is not None
    with gen.guard(node):
        key = gen.raw(hand.key, definition.key_serde)
        gen.assign(entry, call(get, key))
        with gen.when(_holds_nothing(entry)):
            gen.assign(entry, NONE)
            gen.assign(found, method(gen.store(work.store), "get", key))
            gen.unpack((old, time), any_of(found, tuple_of(_initial(work.aggregation, gen), hand.time)))
        with gen.otherwise():
            gen.assign_each((old, time), (item(entry, VALUE), item(entry, TIME)))
            # Looking at an entry makes it the youngest, even if nothing comes of it.
            gen.assign(item(entry, USED), call(tick))
        with gen.when(compare(hand.time, ">", time)):
            gen.assign(time, hand.time)
        if work.aggregation.kind == "reduce":
            with gen.when(is_none(old)):
                gen.assign(new, gen.obj(hand.value))
            with gen.otherwise():
                gen.assign(new, _added(work.aggregation, gen, old))
        else:
            gen.assign(new, _added(work.aggregation, gen, old))
    with gen.when(all_of(is_not_none(entry), fits(new))):
        gen.assign(item(entry, VALUE), new)
        _touch(gen, entry, renew, key)
    with gen.otherwise():
        _keep(work, node, gen, (new, old, time))


def _cache_functions(gen: CodeWriter, name: str) -> tuple[Code, Code, Code]:
    """Return the functions that find an entry of a store's cache, give the next stamp, and renew an entry."""
    store = gen.store(name)
    return (
        gen.prologue(("entries", name), "entry_of", attribute(store, "entries", "get")),
        gen.prologue(("tick", name), "tick", attribute(store, "cache", "tick")),
        gen.prologue(("renew", name), "renew", attribute(store, "cache", "renew")),
    )


def _touch(gen: CodeWriter, entry: Code, renew: Code, key: Code, tick: Code | None = None) -> None:
    """Write what a new value of an entry of the cache needs besides; `tick`: where looking at it gave it no stamp."""
    hand = gen.hand
    gen.assign(item(entry, DATA), NONE)
    with gen.when(compare(hand.time, ">", item(entry, TIME))):
        gen.assign(item(entry, TIME), hand.time)
    # What an entry costs is the same where it has waited with as much of a context.
    same = [item(entry, PUT), compare(hand.context, "is", item(entry, CONTEXT))]
    if not gen.reads_one_topic():
        current = gen.prologue(("topic",), "current", attribute(RT, "current_topic"))
        same.append(compare(item(entry, TOPIC), "==", attribute(current, "size")))
    with gen.when(all_of(*same)):
        if tick is None:
            gen.assign(item(entry, PUT), item(entry, USED))
        else:
            gen.assign_all((item(entry, PUT), item(entry, USED)), call(tick))
    with gen.otherwise():
        gen.do(call(renew, key, entry, hand.context))


def _initial(aggregation: Aggregation, gen: CodeWriter) -> Code:
    if aggregation.kind == "count":
        return literal(0)
    return gen.expr(aggregation.initial) if aggregation.kind == "aggregate" else NONE


def _added(aggregation: Aggregation, gen: CodeWriter, old: Code, value: Code | None = None) -> Code:
    if aggregation.kind == "count":
        return binary(old, "+", ONE)
    return gen.expr(aggregation.add, aggregate=old, value=value or gen.obj(gen.hand.value))


def _subtracted(aggregation: Aggregation, gen: CodeWriter, old: Code, value: Code) -> Code:
    if aggregation.kind == "count":
        return binary(old, "-", ONE)
    return gen.expr(aggregation.subtract, aggregate=old, value=value)


def emit_table_aggregate(work: TableAggregate, node: Node, gen: CodeWriter) -> None:
    """Write an aggregation of a grouped table: subtract the old value, then add the new one (KTableAggregate)."""
    hand = gen.hand
    assert hand.old is not None
    found, old, new, time = (gen.var(name) for name in ("found", "old", "new", "time"))
    with gen.guard(node):
        key = gen.raw(hand.key, gen.plan.stores[work.store].key_serde)
        after, before = gen.obj(hand.value), gen.obj(hand.old)
        later = call("max", hand.time, item(found, 1))
        gen.assign(found, method(gen.store(work.store), "get", key))
        gen.assign(old, unless_none(found, item(found, 0)))
        gen.assign_each((new, time), (old, hand.time))
        with gen.when(all_of(is_not_none(before), is_not_none(old))):
            gen.assign(new, _subtracted(work.aggregation, gen, old, before))
            gen.assign(time, later)
        with gen.when(is_not_none(after)):
            if work.aggregation.kind == "reduce":
                with gen.when(is_none(new)):
                    gen.assign(new, after)
                with gen.otherwise():
                    gen.assign(new, _added(work.aggregation, gen, new, after))
                    gen.assign(time, later)
            else:
                with gen.when(is_none(new)):
                    gen.assign(new, _initial(work.aggregation, gen))
                gen.assign(new, _added(work.aggregation, gen, new, after))
                with gen.when(is_not_none(found)):
                    gen.assign(time, later)
    _keep(work, node, gen, (new, old, time))


# -- Windows -------------------------------------------------------------------------------------------------------


def zero() -> int:
    """Return what a count begins with."""
    return 0


def nothing() -> None:
    """Return what a reduce begins with."""
    return None


def count_one(k: Any, v: Any, aggregate: int, t: int, c: Any) -> int:
    """Return a count that is one higher."""
    return aggregate + 1


def both(k: Any, left: int, right: int) -> int:
    """Return the count of two sessions."""
    return left + right


def emit_window_aggregate(
    work: WindowedAggregate, node: Node, gen: CodeWriter, kind: str, size: int, advance: int
) -> None:
    """Write the call of a windowed aggregation's kernel. kind: time, sliding, session; times in milliseconds."""
    definition = gen.plan.stores[work.store]
    cached = gen.is_cached(work.store)
    kernel = gen.kernel(f"{kind}_window", f"{kind.title()}WindowAggregate")
    arguments = [
        literal(work.store),
        *map(literal, (size, advance, work.windows.grace, work.on_close, cached, work.send_old)),
        *_callables(work.aggregation, gen),
        gen.forward_function(node, True),
        gen.name_of(definition.key_serde.decode, "decode"),
    ]
    if kind == "session":
        arguments.append(_merger(work.aggregation, gen))
    window_work = call(gen.kernel("time_window", "WindowWork"), *arguments)
    instance = gen.instance(("window", node.name), "p", call(kernel, RT, gen.store(work.store), window_work))
    if cached and not work.on_close:
        listen(gen, node, work.store, work.send_old, "session" if kind == "session" else "time")
    hand = gen.hand
    drop_null_keys(gen, *([hand.value.is_none()] if kind == "sliding" else []))
    fits = _fits(definition)
    with gen.guard(node):
        key = gen.raw(hand.key, definition.key_serde)
        parts = (key, gen.obj(hand.key), _value(work.aggregation, gen), hand.time, hand.context)
        if kind == "time" and size == advance and cached and not work.on_close and fits is not None:
            _tumble_in_cache(work, gen, instance, size, parts)
        else:
            gen.do(method(instance, "process", *parts))


def _tumble_in_cache(
    work: WindowedAggregate, gen: CodeWriter, instance: Code, size: int, parts: tuple[Code, ...]
) -> None:
    """Write an update of a tumbling window's entry in the cache; what has none there, or may be late, the kernel does."""
    definition = gen.plan.stores[work.store]
    fits = _fits(definition)
    assert fits is not None
    key, _, value, time, context = parts
    observed = attribute(instance, "observed")
    start, row, entry, old, new = (gen.var(name) for name in ("start", "row", "entry", "old", "new"))
    get, tick, renew = _cache_functions(gen, work.store)
    gen.assign(start, binary(time, "-", binary(time, "%", literal(size))))
    gen.assign(row, binary(key, "+", call(gen.name_of(pack_long, "pack_long"), start)))
    gen.assign(entry, call(get, row))
    end, closed = binary(start, "+", literal(size)), binary(observed, "-", literal(work.windows.grace))
    with gen.when(any_of(_holds_nothing(entry), compare(time, "<", literal(0)), compare(end, "<=", closed))):
        gen.do(method(instance, "process", *parts))
    with gen.otherwise():
        with gen.when(compare(time, ">", observed)):
            gen.assign(observed, time)
        gen.assign(item(entry, USED), call(tick))
        if work.aggregation.kind == "count":
            gen.add_to(item(entry, VALUE), ONE)
            _touch(gen, entry, renew, row)
            return
        gen.assign(old, item(entry, VALUE))
        gen.assign(new, _added(work.aggregation, gen, old, value))
        with gen.when(fits(new)):
            gen.assign(item(entry, VALUE), new)
            _touch(gen, entry, renew, row)
        with gen.otherwise():
            later = either(is_none(new), time, call("max", item(entry, TIME), time))
            gen.do(method(gen.store(work.store), "put", key, start, new, later, context))


def _value(aggregation: Aggregation, gen: CodeWriter) -> Code:
    # A count never looks at the value, so that it need not be decoded.
    return NONE if aggregation.kind == "count" else gen.obj(gen.hand.value)


def _callables(aggregation: Aggregation, gen: CodeWriter) -> tuple[Code, Code]:
    """Return the names of the functions `initial()` and `add(k, v, aggregate, t, c)`."""
    if aggregation.kind == "count":
        return gen.name_of(zero, "zero"), gen.name_of(count_one, "count_one")
    names = {"key": "k", "value": "v", "aggregate": "aggregate"}
    if aggregation.kind == "aggregate":
        return gen.callable_of(aggregation.initial, {}), gen.callable_of(aggregation.add, names, "t", "c")
    reduce = gen.callable_of(aggregation.add, names, "t", "c")

    def write(name: Code) -> None:
        aggregate, value = symbol("aggregate"), symbol("v")
        with gen.function(name, "k", "v", "aggregate", "t", "c"):
            combined = call(reduce, symbol("k"), value, aggregate, symbol("t"), symbol("c"))
            gen.returns(either(is_none(aggregate), value, combined))

    return gen.name_of(nothing, "nothing"), gen.later(("reduce", reduce), "reduce", write)


def _merger(aggregation: Aggregation, gen: CodeWriter) -> Code:
    """Return the name of the function `(key, left, right)` that gives the aggregate of two sessions."""
    if aggregation.kind == "count":
        return gen.name_of(both, "both")
    if aggregation.merge is not None:
        return gen.callable_of(aggregation.merge, {"key": "k", "left": "left", "right": "right"})
    reduce = _callables(aggregation, gen)[1]

    def write(name: Code) -> None:
        with gen.function(name, "k", "left", "right"):
            gen.returns(call(reduce, *map(symbol, ("k", "right", "left")), literal(-1), gen.nowhere()))

    return gen.later(("merge", reduce), "merge", write)
