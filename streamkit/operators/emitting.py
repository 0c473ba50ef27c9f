"""Code that the processors of several operators write alike: keeping a table's value, looking tables up."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamkit import serdes
from streamkit.code import (
    NONE,
    TRUE,
    Code,
    all_of,
    any_of,
    attribute,
    call,
    compare,
    either,
    is_none,
    is_not_none,
    item,
    literal,
    mapping_of,
    method,
    negated,
    starred,
    symbol,
    tuple_of,
    unless_none,
)
from streamkit.expressions import load_callable
from streamkit.operators.getters import (
    FilterGetter,
    Getter,
    JoinGetter,
    MapValuesGetter,
    StoreGetter,
    SuppressGetter,
    TransformGetter,
)
from streamkit.operators.hand import Hand, Slot
from streamkit.serdes.base import Serde
from streamkit.state.definitions import NOT_PUT, VALID_TO_UNDEFINED

if TYPE_CHECKING:
    from streamkit.expressions import Expression
    from streamkit.operators.fields import CallRef
    from streamkit.operators.writer import Changes, CodeWriter, Node

ABSENT = Slot(NONE)
"""An absent value."""


def emit_keep(
    gen: CodeWriter,
    node: Node,
    store: str,
    new: Code,
    old: Code | None,
    put_time: Code,
    time: Code | None = None,
    put: str = "put",
) -> None:
    """Write the putting of a table's new value under the current key, and the forwarding of the change.

    `new`: a variable; `old`: a variable, or None where old values are not sent. `put_time` stands in the store and the
    changelog, `time` (default the same) on the forwarded record: they differ for deletions by an aggregation. A cache
    forwards what leaves it later on; a versioned store forwards nothing that came too late (TimestampedTupleForwarder).
    `put`: the method of a store without versions that keeps the value.
    """
    definition = gen.plan.stores[store]
    variable = gen.store(store)
    hand = gen.hand
    key = gen.raw(hand.key, definition.key_serde)
    change: Changes = {
        "value": Slot(new),
        "old": Slot(old) if old is not None else ABSENT,
        "time": time if time is not None else put_time,
        "latest": TRUE,
    }
    if definition.type == "versioned":
        valid_to = gen.var("valid_to")
        with gen.guard(node):
            gen.assign(valid_to, method(variable, "put", key, new, put_time))
        with gen.when(compare(valid_to, "!=", literal(NOT_PUT))):
            change["latest"] = compare(valid_to, "==", literal(VALID_TO_UNDEFINED))
            gen.forward(node, **change)
        return
    with gen.guard(node):
        gen.do(method(variable, put, key, new, put_time, hand.context))
    if gen.is_cached(store):
        listen(gen, node, store, old is not None)
    else:
        gen.forward(node, **change)


def emit_row(gen: CodeWriter, store: str, old: Code) -> None:
    """Write the reading of the value that a table's store has for the current key into the variable `old`."""
    key = gen.raw(gen.hand.key, gen.plan.stores[store].key_serde)
    gen.assign(old, method(gen.store(store), "get", key))
    gen.assign(old, unless_none(old, item(old, 0)))


def listen(gen: CodeWriter, node: Node, store: str, send_old: bool, window: str | None = None) -> None:
    """Write that what leaves a store's cache is forwarded to the children of a node."""
    listener = gen.flush_listener(node, gen.plan.stores[store].key_serde, window) if node.children else NONE
    gen.epilogue(method(gen.store(store), "set_listener", listener, literal(send_old)))


def lookup(gen: CodeWriter, getter: Getter) -> Code:
    """Return the name of a function `(key bytes)` that gives a table's (value, timestamp) or None.

    For versioned tables it takes `as_of` (milliseconds) too (KTableValueGetter).
    """
    if isinstance(getter, StoreGetter):
        store = gen.store(getter.store)
        windowed = {"window": "WindowLookup", "session": "SessionLookup"}.get(gen.plan.stores[getter.store].type)
        found = attribute(store, "get") if windowed is None else call(gen.kernel("lookup", windowed), store)
        return gen.prologue(("get", getter.store), "get", found)
    return gen.later(("lookup", id(getter)), "get", lambda name: _write_lookup(gen, name, getter))


def key_serde_of(gen: CodeWriter, getter: Getter) -> Serde:
    """Return the serde of the key bytes that a lookup takes; of windowed tables that of their keys in topics."""
    definition = gen.plan.stores[getter.stores[-1]]
    if definition.type == "window":
        return serdes.parse({"windowed": definition.key_serde, "size": definition.window_size})
    if definition.type == "session":
        return serdes.parse({"session_windowed": definition.key_serde})
    return definition.key_serde


RT = symbol("rt")
KEY, FOUND, VALUE, TIME = symbol("kb"), symbol("found"), symbol("v"), symbol("t")


def _write_lookup(gen: CodeWriter, name: Code, getter: Getter) -> None:
    with gen.function(name, "kb", "*as_of"):
        if isinstance(getter, JoinGetter):
            _join_lookup(gen, getter)
            return
        if isinstance(getter, SuppressGetter):
            held, value = symbol("held"), symbol("value")
            gen.unpack((held, value), method(gen.store(getter.buffer), "prior", KEY))
            with gen.when(held):
                gen.returns(unless_none(value, tuple_of(value, literal(-1))))
            gen.returns(call(lookup(gen, getter.parent), KEY))
            return
        if isinstance(getter, TransformGetter):
            node, row = gen.node(getter.node), _row(gen, getter)
            transformer = emit_transformer(gen, node, getter.call, (), ("transform", id(getter)))
            with gen.holding(row):
                found = call(lookup(gen, getter.parent), KEY, starred(symbol("as_of")))
                gen.returns(method(transformer, "look_up", gen.obj(row.key), found))
            return
        assert isinstance(getter, FilterGetter | MapValuesGetter)
        gen.assign(FOUND, call(lookup(gen, getter.parent), KEY, starred(symbol("as_of"))))
        with gen.when(is_none(FOUND)):
            gen.returns(NONE)
        gen.unpack((VALUE, TIME), FOUND)
        with gen.holding(_row(gen, getter)):
            if isinstance(getter, FilterGetter):
                test = gen.expr(getter.predicate)
                gen.returns(either(test, NONE, FOUND) if getter.negate else either(test, FOUND, NONE))
            else:
                gen.assign(VALUE, gen.expr(getter.value))
                gen.returns(unless_none(VALUE, tuple_of(VALUE, TIME)))


def _row(gen: CodeWriter, getter: Getter) -> Hand:
    # Lookups have no record of their own: its headers are absent, and so are topic, partition and offset.
    key = Slot(raw=KEY, serde=key_serde_of(gen, getter), never_none=True)
    return Hand(key, Slot(VALUE, never_none=True), TIME, gen.nowhere())


def _join_lookup(gen: CodeWriter, getter: JoinGetter) -> None:
    left, right = symbol("left"), symbol("right")
    gen.assign(left, call(lookup(gen, getter.left), KEY))
    if getter.kind != "outer":
        with gen.when(is_none(left)):
            gen.returns(NONE)
    gen.assign(right, call(lookup(gen, getter.right), KEY))
    if getter.kind != "left":
        with gen.when(is_none(right) if getter.kind == "inner" else all_of(is_none(left), is_none(right))):
            gen.returns(NONE)
    values = {"left": symbol("lv"), "right": symbol("rv")}
    with gen.holding(_row(gen, getter)):
        gen.assign(values["left"], either(is_not_none(left), item(left, 0), NONE))
        gen.assign(values["right"], either(is_not_none(right), item(right, 0), NONE))
        gen.assign(VALUE, gen.expr(getter.value, **values))
        times = (either(is_not_none(side), item(side, 1), literal(-1)) for side in (left, right))
        gen.assign(TIME, call("max", *times))
        gen.returns(unless_none(VALUE, tuple_of(VALUE, TIME)))


def emit_transformer(
    gen: CodeWriter, node: Node, target: CallRef, stores: tuple[str, ...], key: tuple[Any, ...]
) -> Code:
    """Return the variable of a transformer of a table's values, made once a task; `key` tells it from others."""
    index = gen.index(node)
    connected = connected_stores(gen, stores)
    context = call(gen.kernel("transform", "TransformContext"), RT, index, connected)
    made = call(gen.kernel("transform", "Transformer"), gen.name_of(load_callable(target), "user"), context)
    transformer = gen.instance(key, "p", made)
    gen.on("init", node, call("initialise", index, attribute(transformer, "init")))
    gen.on("close", node, method(transformer, "close"))
    return transformer


def connected_stores(gen: CodeWriter, names: tuple[str, ...], keeps: bool = False) -> Code:
    """Return the stores that a processor may use: those that it names, and all global ones, which it can only read.

    So are read-only stores, unless the processor `keeps` what it names.
    """
    plan = gen.plan
    written = [name for name in names if keeps or not plan.stores[name].options.get("read_only")]
    shared = [name for sub in plan.sub_topologies if sub.is_global for name in sub.stores]
    shared += [name for name in names if name not in written]
    own = mapping_of({name: gen.store(name) for name in written})
    return call(gen.kernel("process", "ProcessorStores"), own, literal(tuple(shared)))


def drop_null_keys(gen: CodeWriter, *more: Code) -> None:
    """Write the dropping of records without a key, and of those for which one of `more` holds."""
    gen.drop_where(any_of(gen.hand.key.is_none(), *more))
    gen.hand.key.never_none = True


def not_latest(gen: CodeWriter, versioned_parent: bool) -> tuple[Code, ...]:
    """Return the test that a change of a versioned table came too late to be the latest; nothing for other tables."""
    return (negated(gen.hand.latest),) if versioned_parent else ()


def emit_call(node: Node, gen: CodeWriter, instance: Code, key_serde: Serde) -> None:
    """Write the call of a kernel's `process(key bytes, key, value, timestamp, context)`."""
    with gen.guard(node):
        hand = gen.hand
        key = gen.raw(hand.key, key_serde)
        gen.do(method(instance, "process", key, gen.obj(hand.key), gen.obj(hand.value), hand.time, hand.context))


def emit_enriched(node: Node, gen: CodeWriter, found: Code, left: bool, value: Expression, **more: Code) -> None:
    """Write the join of a stream's record with what a lookup `found` gives: (value, timestamp) or None.

    `left`: without a match the right side is None; else the record goes no further. `more`: further names that `value`
    may use.
    """
    right, joined = gen.var("right"), gen.var("v")
    with gen.guard(node):
        gen.assign(right, found)
        with gen.when(is_not_none(right)):
            gen.assign(right, item(right, 0))
    if not left:
        gen.only_where(is_not_none(right))
    with gen.guard(node):
        gen.assign(joined, gen.expr(value, left=gen.obj(gen.hand.value), right=right, **more))
    gen.forward(node, value=Slot(joined))


def joiner(gen: CodeWriter, value: Expression) -> Code:
    """Return the name of a join's function `(key, left, right)`."""
    return gen.callable_of(value, {"key": "k", "left": "left", "right": "right"})


def serdes_of(gen: CodeWriter, listed: tuple[Serde, ...]) -> Code:
    """Return a tuple of serdes."""
    return tuple_of(*(gen.name_of(serde, "serde") for serde in listed))


def forward_by_bytes(gen: CodeWriter, node: Node, key_serde: Serde) -> Code:
    """Return the name of a function `(key bytes, value, timestamp, context)` that forwards to a node's children."""

    def write(name: Code) -> None:
        key = Slot(raw=KEY, serde=key_serde, never_none=True)
        with gen.function(name, "kb", "v", "t", "c"), gen.holding(Hand(key, Slot(VALUE), TIME, symbol("c"))):
            gen.forward(node)

    return gen.later(("by bytes", node.name), "fb", write)
