"""The code of aggregations: inline for streams and tables, calls of a kernel for windows."""

from __future__ import annotations

from typing import Any

from streamkit.operators.emitting import emit_keep, emit_null_key_check, listen
from streamkit.state.keys import pack_long

_FITS = {
    "long": "{0}.__class__ is int and -0x8000000000000000 <= {0} <= 0x7FFFFFFFFFFFFFFF",
    "integer": "{0}.__class__ is int and -0x80000000 <= {0} <= 0x7FFFFFFF",
    "double": "{0}.__class__ is float",
}
"""What tells that a value is its serde's, and so needs no check by encoding it; by the names of serdes of a fixed size."""


def emit_stream_aggregate(node: Any, gen: Any) -> None:
    """Write an aggregation without windows (KStreamAggregate, KStreamReduce)."""
    work = node.processor
    emit_null_key_check(gen, f" or {gen.hand.value.test_var()} is None")
    gen.hand.value.never_none = True
    if work.aggregation.kind == "count" and gen.is_cached(work.store):
        _count_in_cache(node, gen)
        return
    if gen.is_cached(work.store) and _fits(gen.plan.stores[work.store]):
        _aggregate_in_cache(node, gen)
        return
    found, old, new, time = (gen.var(name) for name in ("found", "old", "new", "time"))
    with gen.guard(node):
        key = gen.raw(gen.hand.key, gen.plan.stores[work.store].key_serde)
        gen.line(f"{found} = {gen.store(work.store)}.get({key})")
        gen.line(f"if {found} is None:")
        with gen.indented():
            gen.line(f"{old}, {time} = {_initial(work.aggregation, gen)}, {gen.hand.time}")
            if work.aggregation.kind == "reduce":
                gen.line(f"{new} = {gen.obj(gen.hand.value)}")
        gen.line("else:")
        with gen.indented():
            gen.line(f"{old}, {time} = {found}")
            gen.line(f"if {gen.hand.time} > {time}:")
            with gen.indented():
                gen.line(f"{time} = {gen.hand.time}")
            if work.aggregation.kind == "reduce":
                gen.line(f"{new} = {_added(work.aggregation, gen, old)}")
        if work.aggregation.kind != "reduce":
            gen.line(f"{new} = {_added(work.aggregation, gen, old)}")
    _keep(node, gen, new, old, time)


def _fits(definition: Any) -> str:
    """Return what tells that a value is one of a store's serde, as a format; empty where only encoding it can tell."""
    spec = definition.value_serde.spec
    return _FITS.get(spec, "") if isinstance(spec, str) else ""


def _keep(node: Any, gen: Any, new: str, old: str, time: str) -> None:
    work = node.processor
    put_time = time
    if work.aggregation.kind != "count":
        # A deletion has the time of the record in hand in store and changelog, whatever is forwarded.
        put_time = gen.var("at")
        gen.line(f"{put_time} = {gen.hand.time} if {new} is None else {time}")
    emit_keep(gen, node, work.store, new, old if work.send_old else None, put_time, time)


def _count_in_cache(node: Any, gen: Any) -> None:
    """Write counting on the entries of the cache themselves (see state.cache), the hottest code there is."""
    work = node.processor
    store = gen.store(work.store)
    key = gen.raw(gen.hand.key, gen.plan.stores[work.store].key_serde)
    entry, found = gen.var("entry"), gen.var("found")
    get, tick, mark = _cache_functions(gen, work.store)
    time, context = gen.hand.time, gen.hand.context
    gen.line(f"{entry} = {get}({key})")
    gen.line(f"if {entry} is None or {entry}[0] is None:")
    with gen.indented():
        with gen.guard(node):
            gen.line(f"{found} = {store}.get({key})")
            gen.line(f"if {found} is None:")
            with gen.indented():
                gen.line(f"{store}.put({key}, 1, {time}, {context})")
            gen.line("else:")
            with gen.indented():
                gen.line(f"{store}.put({key}, {found}[0] + 1, max({found}[1], {time}), {context})")
        gen.fill_empty()
    gen.line("else:")
    with gen.indented():
        gen.line(f"{entry}[0] += 1")
        _touch(gen, entry, mark, key, f"{entry}[4] = {tick}()")
    listen(gen, node, work.store, work.send_old)


def _aggregate_in_cache(node: Any, gen: Any) -> None:
    """Write an aggregation that changes an entry of the cache itself, where the value that it holds has a fixed size."""
    work = node.processor
    store = gen.store(work.store)
    definition = gen.plan.stores[work.store]
    entry, found, old, new, time = (gen.var(name) for name in ("entry", "found", "old", "new", "time"))
    get, tick, mark = _cache_functions(gen, work.store)
    is_reduce = work.aggregation.kind == "reduce"
    with gen.guard(node):
        key = gen.raw(gen.hand.key, definition.key_serde)
        gen.line(f"{entry} = {get}({key})")
        gen.line(f"if {entry} is None or {entry}[0] is None:")
        with gen.indented():
            gen.line(f"{entry} = None")
            gen.line(f"{found} = {store}.get({key})")
            gen.line(f"{old}, {time} = {found} or ({_initial(work.aggregation, gen)}, {gen.hand.time})")
        gen.line("else:")
        with gen.indented():
            gen.line(f"{old}, {time} = {entry}[0], {entry}[1]")
            # Looking at an entry makes it the youngest, even if nothing comes of it.
            gen.line(f"{entry}[4] = {tick}()")
        gen.line(f"if {gen.hand.time} > {time}:")
        with gen.indented():
            gen.line(f"{time} = {gen.hand.time}")
        if is_reduce:
            gen.line(f"if {old} is None:")
            with gen.indented():
                gen.line(f"{new} = {gen.obj(gen.hand.value)}")
            gen.line("else:")
            with gen.indented():
                gen.line(f"{new} = {_added(work.aggregation, gen, old)}")
        else:
            gen.line(f"{new} = {_added(work.aggregation, gen, old)}")
    gen.line(f"if {entry} is not None and {_fits(definition).format(new)}:")
    with gen.indented():
        gen.line(f"{entry}[0] = {new}")
        _touch(gen, entry, mark, key, f"{entry}[4]")
    gen.line("else:")
    with gen.indented():
        _keep(node, gen, new, old, time)


def _cache_functions(gen: Any, name: str) -> tuple[str, str, str]:
    """Return the names of the functions that find an entry of a store's cache, give the next stamp, and mark a key dirty."""
    store = gen.store(name)
    return (
        gen.prologue(("entries", name), "entry_of", f"{store}.entries.get"),
        gen.prologue(("tick", name), "tick", f"{store}.cache.tick"),
        gen.prologue(("mark", name), "mark", f"{store}.cache.dirty.append"),
    )


def _touch(gen: Any, entry: str, mark: str, key: str, stamp: str) -> None:
    """Write what follows a new value of an entry of the cache; `stamp`: when it was looked at."""
    gen.line(f"{entry}[2], {entry}[5] = {gen.hand.context}, None")
    gen.line(f"if {gen.hand.time} > {entry}[1]:")
    with gen.indented():
        gen.line(f"{entry}[1] = {gen.hand.time}")
    gen.line(f"if not {entry}[3]:")
    with gen.indented():
        gen.line(f"{mark}({key})")
    gen.line(f"{entry}[3] = {stamp}")


def _initial(aggregation: Any, gen: Any) -> str:
    if aggregation.kind == "count":
        return "0"
    return gen.expr(aggregation.initial) if aggregation.kind == "aggregate" else "None"


def _added(aggregation: Any, gen: Any, old: str, value: str | None = None) -> str:
    if aggregation.kind == "count":
        return f"{old} + 1"
    return gen.expr(aggregation.add, aggregate=old, value=value or gen.obj(gen.hand.value))


def _subtracted(aggregation: Any, gen: Any, old: str, value: str) -> str:
    if aggregation.kind == "count":
        return f"{old} - 1"
    return gen.expr(aggregation.subtract, aggregate=old, value=value)


def emit_table_aggregate(node: Any, gen: Any) -> None:
    """Write an aggregation of a grouped table: subtract the old value, then add the new one (KTableAggregate)."""
    work = node.processor
    kind = work.aggregation.kind
    found, old, new, time = (gen.var(name) for name in ("found", "old", "new", "time"))
    with gen.guard(node):
        key = gen.raw(gen.hand.key, gen.plan.stores[work.store].key_serde)
        after, before = gen.obj(gen.hand.value), gen.obj(gen.hand.old)
        later = f"{time} = max({gen.hand.time}, {found}[1])"
        gen.line(f"{found} = {gen.store(work.store)}.get({key})")
        gen.line(f"{old} = None if {found} is None else {found}[0]")
        gen.line(f"{new}, {time} = {old}, {gen.hand.time}")
        gen.line(f"if {before} is not None and {old} is not None:")
        with gen.indented():
            gen.line(f"{new} = {_subtracted(work.aggregation, gen, old, before)}")
            gen.line(later)
        gen.line(f"if {after} is not None:")
        with gen.indented():
            if kind == "reduce":
                gen.line(f"if {new} is None:")
                with gen.indented():
                    gen.line(f"{new} = {after}")
                gen.line("else:")
                with gen.indented():
                    gen.line(f"{new} = {_added(work.aggregation, gen, new, after)}")
                    gen.line(later)
            else:
                gen.line(f"if {new} is None:")
                with gen.indented():
                    gen.line(f"{new} = {_initial(work.aggregation, gen)}")
                gen.line(f"{new} = {_added(work.aggregation, gen, new, after)}")
                gen.line(f"if {found} is not None:")
                with gen.indented():
                    gen.line(later)
    _keep(node, gen, new, old, time)


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


def emit_window_aggregate(node: Any, gen: Any, kind: str, size: int, advance: int) -> None:
    """Write the call of a windowed aggregation's kernel. kind: time, sliding, session; times in milliseconds."""
    work = node.processor
    definition = gen.plan.stores[work.store]
    cached = gen.is_cached(work.store)
    kernel = gen.kernel(f"{kind}_window", f"{kind.title()}WindowAggregate")
    arguments = [
        repr(work.store),
        *(repr(each) for each in (size, advance, work.windows.grace, work.on_close, cached, work.send_old)),
        *_callables(work.aggregation, gen),
        gen.forward_function(node, True),
        gen.name_of(definition.key_serde.decode, "decode"),
    ]
    if kind == "session":
        arguments.append(_merger(work.aggregation, gen))
    window_work = f"{gen.kernel('time_window', 'WindowWork')}({', '.join(arguments)})"
    source = f"{kernel}(rt, {gen.store(work.store)}, {window_work})"
    instance = gen.instance(("window", node.name), "p", source)
    if cached and not work.on_close:
        listen(gen, node, work.store, work.send_old, "session" if kind == "session" else "time")
    emit_null_key_check(gen, f" or {gen.hand.value.test_var()} is None" if kind == "sliding" else "")
    with gen.guard(node):
        key = gen.raw(gen.hand.key, definition.key_serde)
        parts = (key, gen.obj(gen.hand.key), _value(work.aggregation, gen), gen.hand.time, gen.hand.context)
        if kind == "time" and size == advance and cached and not work.on_close and _fits(definition):
            _tumble_in_cache(node, gen, instance, size, parts)
        else:
            gen.line(f"{instance}.process({', '.join(parts)})")


def _tumble_in_cache(node: Any, gen: Any, instance: str, size: int, parts: tuple[str, ...]) -> None:
    """Write an update of a tumbling window's entry in the cache; what has none there, or may be late, the kernel does."""
    work = node.processor
    key, _, _, time, context = parts
    start, row, entry, old, new = (gen.var(name) for name in ("start", "row", "entry", "old", "new"))
    get, tick, mark = _cache_functions(gen, work.store)
    gen.line(f"{start} = {time} - {time} % {size}")
    gen.line(f"{row} = {key} + {gen.name_of(pack_long, 'pack_long')}({start})")
    gen.line(f"{entry} = {get}({row})")
    late = f"{start} + {size} <= {instance}.observed - {work.windows.grace}"
    gen.line(f"if {entry} is None or {entry}[0] is None or {time} < 0 or {late}:")
    with gen.indented():
        gen.line(f"{instance}.process({', '.join(parts)})")
    gen.line("else:")
    with gen.indented():
        gen.line(f"if {time} > {instance}.observed:")
        with gen.indented():
            gen.line(f"{instance}.observed = {time}")
        gen.line(f"{entry}[4] = {tick}()")
        if work.aggregation.kind == "count":
            gen.line(f"{entry}[0] += 1")
            _touch(gen, entry, mark, row, f"{entry}[4]")
            return
        gen.line(f"{old} = {entry}[0]")
        gen.line(f"{new} = {_added(work.aggregation, gen, old, parts[2])}")
        gen.line(f"if {_fits(gen.plan.stores[work.store]).format(new)}:")
        with gen.indented():
            gen.line(f"{entry}[0] = {new}")
            _touch(gen, entry, mark, row, f"{entry}[4]")
        gen.line("else:")
        with gen.indented():
            later = f"{time} if {new} is None else max({entry}[1], {time})"
            gen.line(f"{gen.store(work.store)}.put({key}, {start}, {new}, {later}, {context})")


def _value(aggregation: Any, gen: Any) -> str:
    # A count never looks at the value, so that it need not be decoded.
    return "None" if aggregation.kind == "count" else gen.obj(gen.hand.value)


def _callables(aggregation: Any, gen: Any) -> tuple[str, str]:
    """Return the names of the functions `initial()` and `add(k, v, aggregate, t, c)`."""
    if aggregation.kind == "count":
        return gen.name_of(zero, "zero"), gen.name_of(count_one, "count_one")
    names = {"key": "k", "value": "v", "aggregate": "aggregate"}
    if aggregation.kind == "aggregate":
        return gen.callable_of(aggregation.initial, {}), gen.callable_of(aggregation.add, names, "t, c")
    reduce = gen.callable_of(aggregation.add, names, "t, c")
    return gen.name_of(nothing, "nothing"), gen.later(
        ("reduce", reduce), "reduce", lambda name: _reducer(gen, name, reduce)
    )


def _reducer(gen: Any, name: str, reduce: str) -> None:
    gen.line(f"def {name}(k, v, aggregate, t, c):")
    with gen.indented():
        gen.line(f"return v if aggregate is None else {reduce}(k, v, aggregate, t, c)")


def _merger(aggregation: Any, gen: Any) -> str:
    """Return the name of the function `(key, left, right)` that gives the aggregate of two sessions."""
    if aggregation.kind == "count":
        return gen.name_of(both, "both")
    if aggregation.merge is not None:
        return gen.callable_of(aggregation.merge, {"key": "k", "left": "left", "right": "right"})
    reduce = _callables(aggregation, gen)[1]
    return gen.later(("merge", reduce), "merge", lambda name: _session_reducer(gen, name, reduce))


def _session_reducer(gen: Any, name: str, reduce: str) -> None:
    context = "(None, None, -1, -1)" if gen.full_context else "None"
    gen.line(f"def {name}(k, left, right):")
    with gen.indented():
        gen.line(f"return {reduce}(k, right, left, -1, {context})")
