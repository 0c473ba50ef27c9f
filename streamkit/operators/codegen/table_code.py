"""Generates code for several operators: storing, forwarding and looking up values of tables, and calls of Python functions."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from typing import TYPE_CHECKING, ClassVar

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
from streamkit.expressions import Expression, load_callable
from streamkit.metrics import DropReason
from streamkit.operators.codegen.code_writer import Changes, CodeWriter, Node, Processor, RecordVariables, Slot
from streamkit.operators.core.frozen import frozen
from streamkit.operators.core.operator import BuildError
from streamkit.operators.core.parsed_values import BatchCall, CallRef, Step
from streamkit.operators.core.value_getters import (
    DerivedGetter,
    FilterGetter,
    Getter,
    JoinGetter,
    MapValuesGetter,
    StoreGetter,
    SuppressGetter,
    TransformGetter,
)
from streamkit.record import Value
from streamkit.serdes.serde import Serde
from streamkit.state.definitions import NOT_PUT, VALID_TO_UNDEFINED
from streamkit.state.layouts import split_session_key, unpack_long

if TYPE_CHECKING:
    from streamkit.state.stores.session_store import SessionStore
    from streamkit.state.stores.window_store import WindowStore

ABSENT = Slot(NONE)
"""An absent value."""


def emit_put(
    gen: CodeWriter,
    node: Node,
    store: str,
    new: Code,
    old: Code | None,
    put_time: Code,
    time: Code | None = None,
    put: str = "put",
) -> None:
    """Write code that puts a table's new value under the current key, and forwards the change.

    `new`: a variable; `old`: a variable, or None if old values are not sent. `put_time`: the time in the store and the
    changelog; `time` (by default the same): the time of the forwarded record, which differs if an aggregation deletes a row.
    A cache forwards a change when it leaves the cache. A versioned store forwards no change that is older than its history
    (TimestampedTupleForwarder). `put`: the method that puts the value into a store without versions.
    """
    definition = gen.stores[store]
    variable = gen.store(store)
    record = gen.record
    key = gen.bytes_of(record.key, definition.key_serde)
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
        gen.do(method(variable, put, key, new, put_time, record.context))
    if gen.is_cached(store):
        emit_flush_listener(gen, node, store, old is not None)
    else:
        gen.forward(node, **change)


def emit_get_value(gen: CodeWriter, store: str, old: Code) -> None:
    """Write code that reads the current key's value from a table's store into the variable `old`."""
    key = gen.bytes_of(gen.record.key, gen.stores[store].key_serde)
    gen.assign(old, method(gen.store(store), "get", key))
    gen.assign(old, unless_none(old, item(old, 0)))


def emit_computed(
    gen: CodeWriter, node: Node, store: str | None, send_old: bool, compute: Callable[[Slot], Code]
) -> None:
    """Write code that forwards the values which `compute` returns for the new and the old value of a table's row."""
    record, new, old = gen.record, gen.var("new"), gen.var("old")
    assert record.old is not None
    with gen.guard(node):
        gen.assign(new, compute(record.value))
        if not send_old:
            gen.assign(old, NONE)
        elif store is None:
            gen.assign(old, compute(record.old))
        elif not gen.is_cached(store):
            emit_get_value(gen, store, old)
    if store is not None:
        emit_put(gen, node, store, new, old if send_old else None, record.time)
    else:
        gen.forward(node, value=Slot(new), old=Slot(old))


def emit_flush_listener(gen: CodeWriter, node: Node, store: str, send_old: bool, window: str | None = None) -> None:
    """Write code that forwards changes that leave a store's cache to the children of a node."""
    listener = gen.flush_listener(node, gen.stores[store].key_serde, window) if node.children else NONE
    gen.epilogue(method(gen.store(store), "set_listener", listener, literal(send_old)))


def lookup_function(gen: CodeWriter, getter: Getter) -> Code:
    """Return the name of a function `(key bytes)` that returns a table's (value, timestamp) or None.

    For versioned tables it also takes `as_of`, in milliseconds (KTableValueGetter).
    """
    if isinstance(getter, StoreGetter):
        store = gen.store(getter.store)
        lookup = {"window": WindowLookup, "session": SessionLookup}.get(gen.stores[getter.store].type)
        get = attribute(store, "get") if lookup is None else call(gen.name_of(lookup, lookup.__name__), store)
        return gen.prologue(("get", getter.store), "get", get)
    return gen.deferred_function(("lookup", id(getter)), "get", lambda name: _write_lookup(gen, name, getter))


def key_serde_of(gen: CodeWriter, getter: Getter) -> Serde:
    """Return the serde of the key bytes that a lookup takes; for windowed tables, the serde of their keys in topics."""
    definition = gen.stores[getter.stores[-1]]
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
            time = literal(-1)
            if gen.stores[getter.buffer].keeps_headers:
                time = method(gen.store(getter.buffer), "prior_time", KEY)
            with gen.when(held):
                gen.returns(unless_none(value, tuple_of(value, time)))
            gen.returns(call(lookup_function(gen, getter.parent), KEY))
            return
        if isinstance(getter, TransformGetter):
            node, row = gen.node(getter.node), _row(gen, getter)
            transformer = emit_transformer(gen, node, getter.call, (), ("transform", id(getter)))
            with gen.with_record(row):
                held = call(lookup_function(gen, getter.parent), KEY, starred(symbol("as_of")))
                headers = _kept_headers(gen, getter)
                gen.returns(method(transformer, "look_up", gen.object_of(row.key), held, *headers))
            return
        assert isinstance(getter, FilterGetter | MapValuesGetter)
        gen.assign(FOUND, call(lookup_function(gen, getter.parent), KEY, starred(symbol("as_of"))))
        with gen.when(is_none(FOUND)):
            gen.returns(NONE)
        gen.unpack((VALUE, TIME), FOUND)
        with gen.with_record(_row(gen, getter)):
            if isinstance(getter, FilterGetter):
                test = gen.expr(getter.predicate)
                gen.returns(either(test, NONE, FOUND) if getter.negate else either(test, FOUND, NONE))
            else:
                gen.assign(VALUE, gen.expr(getter.value))
                gen.returns(unless_none(VALUE, tuple_of(VALUE, TIME)))


def _kept_headers(gen: CodeWriter, getter: Getter) -> list[Code]:
    """Return the headers of the row from which a lookup computes its result; none if the store has none to keep."""
    buffers = []
    while isinstance(getter, DerivedGetter | SuppressGetter):
        if isinstance(getter, SuppressGetter):
            buffers.append(method(gen.store(getter.buffer), "holds", KEY))
        getter = getter.parent
    if not isinstance(getter, StoreGetter) or not gen.stores[getter.store].restores_headers:
        return []
    headers = method(gen.store(getter.store), "row_headers", KEY)
    # What a buffer holds has no headers of its own.
    return [either(any_of(*buffers), NONE, headers) if buffers else headers]


def _row(gen: CodeWriter, getter: Getter) -> RecordVariables:
    # A lookup has no record and therefore no headers, topic, partition or offset.
    key = Slot(raw=KEY, serde=key_serde_of(gen, getter), never_none=True)
    return RecordVariables(key, Slot(VALUE, never_none=True), TIME, gen.empty_context())


def _join_lookup(gen: CodeWriter, getter: JoinGetter) -> None:
    left, right = symbol("left"), symbol("right")
    gen.assign(left, call(lookup_function(gen, getter.left), KEY))
    if getter.kind != "outer":
        with gen.when(is_none(left)):
            gen.returns(NONE)
    gen.assign(right, call(lookup_function(gen, getter.right), KEY))
    if getter.kind != "left":
        with gen.when(is_none(right) if getter.kind == "inner" else all_of(is_none(left), is_none(right))):
            gen.returns(NONE)
    values = {"left": symbol("lv"), "right": symbol("rv")}
    with gen.with_record(_row(gen, getter)):
        gen.assign(values["left"], either(is_not_none(left), item(left, 0), NONE))
        gen.assign(values["right"], either(is_not_none(right), item(right, 0), NONE))
        gen.assign(VALUE, gen.expr(getter.value, **values))
        times = (either(is_not_none(side), item(side, 1), literal(-1)) for side in (left, right))
        gen.assign(TIME, call("max", *times))
        gen.returns(unless_none(VALUE, tuple_of(VALUE, TIME)))


def emit_transformer(
    gen: CodeWriter, node: Node, target: CallRef, stores: tuple[str, ...], key: tuple[Hashable, ...]
) -> Code:
    """Return the variable of a transformer of a table's values, which is created once per task; `key` identifies it."""
    index = gen.index(node)
    connected = connected_stores(gen, stores)
    context = call(gen.kernel("processor_calls", "TransformContext"), RT, index, connected)
    created = call(gen.kernel("processor_calls", "Transformer"), gen.name_of(load_callable(target), "user"), context)
    transformer = gen.instance(key, "p", created)
    gen.on_lifecycle("init", node, call("initialise", index, attribute(transformer, "init")))
    gen.on_lifecycle("close", node, method(transformer, "close"))
    return transformer


def connected_stores(gen: CodeWriter, names: tuple[str, ...], writes_read_only: bool = False) -> Code:
    """Return the stores that a processor may use: the ones that it names, and all global ones, which it may only read.

    It may also only read read-only stores, unless it is the processor that writes them (`writes_read_only`).
    """
    written = [name for name in names if writes_read_only or not gen.stores[name].options.get("read_only")]
    shared = [*gen.global_stores, *(name for name in names if name not in written)]
    own = mapping_of({name: gen.store(name) for name in written})
    return call(gen.kernel("processor_calls", "ProcessorStores"), own, literal(tuple(shared)))


def drop_null_keys(gen: CodeWriter, *more: Code) -> None:
    """Write code that drops records that have no key or for which one of the tests in `more` holds."""
    gen.drop_where(any_of(gen.record.key.is_none(), *more))
    gen.record.key.never_none = True


def drop_superseded(gen: CodeWriter, versioned_parent: bool) -> None:
    """Write code that drops changes of a versioned table that are not the latest; for other tables, write nothing."""
    if versioned_parent:
        gen.drop_where(negated(gen.record.latest), DropReason.STALE)


def emit_process_call(node: Node, gen: CodeWriter, instance: Code, key_serde: Serde) -> None:
    """Write the call of a kernel's `process(key bytes, key, value, timestamp, context)`."""
    with gen.guard(node):
        record = gen.record
        key = gen.bytes_of(record.key, key_serde)
        gen.do(
            method(
                instance,
                "process",
                key,
                gen.object_of(record.key),
                gen.object_of(record.value),
                record.time,
                record.context,
            )
        )


def emit_joined(node: Node, gen: CodeWriter, result: Code, left: bool, value: Expression, **more: Code) -> None:
    """Write the join of a stream's record with the result of a lookup, `result`: (value, timestamp) or None.

    `left`: whether a record without a match is forwarded, with None as the right side. `more`: other names in `value`.
    """
    right, joined = gen.var("right"), gen.var("v")
    with gen.guard(node):
        gen.assign(right, result)
        with gen.when(is_not_none(right)):
            gen.assign(right, item(right, 0))
    if not left:
        gen.only_where(is_not_none(right))
    with gen.guard(node):
        gen.assign(joined, gen.expr(value, left=gen.object_of(gen.record.value), right=right, **more))
    gen.forward(node, value=Slot(joined))


def joiner_function(gen: CodeWriter, value: Expression) -> Code:
    """Return the name of a join's function `(key, left, right)`."""
    return gen.callable_of(value, {"key": "k", "left": "left", "right": "right"})


def serdes_of(gen: CodeWriter, listed: tuple[Serde, ...]) -> Code:
    """Return a tuple of serdes."""
    return tuple_of(*(gen.name_of(serde, "serde") for serde in listed))


def forward_by_bytes(gen: CodeWriter, node: Node, key_serde: Serde) -> Code:
    """Return the name of a function `(key bytes, value, timestamp, context)` that forwards to a node's children."""

    def write(name: Code) -> None:
        key = Slot(raw=KEY, serde=key_serde, never_none=True)
        with (
            gen.function(name, "kb", "v", "t", "c"),
            gen.with_record(RecordVariables(key, Slot(VALUE), TIME, symbol("c"))),
        ):
            gen.forward(node)

    return gen.deferred_function(("by bytes", node.name), "fb", write)


# Lookups of windowed tables by the bytes of their keys (KStreamWindowAggregateValueGetter, KStreamSessionWindowAggregateValueGetter).


class WindowLookup:
    """Looks up (value, timestamp) by a key with its window's start; returns None without a row."""

    def __init__(self, store: WindowStore):
        self._fetch = store.fetch

    def __call__(self, key: bytes) -> tuple[Value, int] | None:
        return self._fetch(key[:-8], unpack_long(key, len(key) - 8)[0])


class SessionLookup:
    """Looks up (value, end) by a key with its session's end and start; returns None without a row."""

    def __init__(self, store: SessionStore):
        self._fetch = store.fetch_session

    def __call__(self, key: bytes) -> tuple[Value, int] | None:
        raw, start, end = split_session_key(key)
        value = self._fetch(raw, start, end)
        return None if value is None else (value, end)


# Generates the code of steps whose Python functions take lists of records (`batch`).


MODULE = "batch_calls"


@frozen
class BatchProcessor(Processor):
    """Holds records back until a batch is complete or the run ends, and calls a function with all of them.

    kernel: the step's class at run time.
    """

    call: BatchCall
    kernel: str
    stores: tuple[str, ...] = ()

    needs_context: ClassVar[bool] = True
    holds_records: ClassVar[bool] = True

    def emit(self, node: Node, gen: CodeWriter) -> None:
        target = gen.name_of(load_callable(self.call.call), "user")
        context = emit_context(gen, node, self.stores)
        # Not if other nodes write to the same topics or stores: the order of records must not depend on batches.
        size = 0 if gen.mixes_order(node) else self.call.size
        batches = call(gen.kernel(MODULE, "Batches"), literal(size), literal(self.call.form))
        step = call(gen.kernel(MODULE, self.kernel), target, context, batches, gen.replays(), emit_steps(gen, node))
        emit_holding_step(gen, node, step)


def refuse_batch(step: Step, option: str) -> None:
    """Raise BuildError if a step on a table has a function over batches, because a table's change also has an old value."""
    if isinstance(step.options[option], BatchCall):
        raise BuildError(step.at(option), f"{step.operator}: `batch` is for streams; this step's upstream is a table")


def emit_context(gen: CodeWriter, node: Node, stores: tuple[str, ...]) -> Code:
    """Return the piece that creates the context of the user's code."""
    # Before the function that forwards to all children, because functions are written in the order in which they are requested.
    children = mapping_of({name: gen.child_function(name) for name in node.children})
    forward = gen.forward_function(node, False)
    connected = connected_stores(gen, stores)
    return call(gen.kernel(MODULE, "BatchContext"), RT, gen.index(node), connected, forward, children)


def emit_steps(gen: CodeWriter, node: Node) -> Code:
    """Return the piece with the node's properties that a holding step needs: its index, and its functions to forward and to fail."""
    return tuple_of(gen.index(node), gen.forward_function(node, False), symbol("fail"))


def emit_holding_step(gen: CodeWriter, node: Node, created: Code, by: Expression | None = None) -> None:
    """Write the call that passes the current record to a step that holds it back. created: the code that creates the step.

    by: the expression for the function's argument, by default key and value.
    """
    step = gen.instance(("holding", node.name), "p", created)
    gen.on_lifecycle("init", node, call("initialise", gen.index(node), attribute(step, "init")))
    gen.on_lifecycle("close", node, method(step, "close"))
    with gen.guard(node):
        record = gen.record
        key, value = gen.object_of(record.key), gen.object_of(record.value)
        argument = value if by is None else gen.expr(by)
        gen.do(method(step, "add", key, value, record.time, record.context, argument))
