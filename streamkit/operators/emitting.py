"""Code that the processors of several operators write alike: keeping a table's value, looking tables up."""

from __future__ import annotations

from typing import Any

from streamkit import serdes
from streamkit.operators.getters import FilterGetter, Getter, JoinGetter, MapValuesGetter, StoreGetter, SuppressGetter
from streamkit.operators.hand import Hand, Slot
from streamkit.state.definitions import NOT_PUT, VALID_TO_UNDEFINED

NONE = Slot("None")
"""An absent value."""


def emit_keep(
    gen: Any, node: Any, store: str, new: str, old: str | None, put_time: str, time: str | None = None
) -> None:
    """Write the putting of a table's new value under the key in hand, and the forwarding of the change.

    `new`: a variable; `old`: a variable, or None where old values are not sent. `put_time` stands in the store and the
    changelog, `time` (default the same) on the forwarded record: they differ for deletions by an aggregation. A cache
    forwards what leaves it later on; a versioned store forwards nothing that came too late (TimestampedTupleForwarder).
    """
    definition = gen.plan.stores[store]
    variable = gen.store(store)
    hand = gen.hand
    key = gen.raw(hand.key, definition.key_serde)
    change = {"value": Slot(new), "old": Slot(old) if old is not None else NONE, "time": time or put_time}
    if definition.type == "versioned":
        valid_to = gen.var("valid_to")
        with gen.guard(node):
            gen.line(f"{valid_to} = {variable}.put({key}, {new}, {put_time})")
        gen.line(f"if {valid_to} != {NOT_PUT}:")
        with gen.indented():
            gen.forward(node, **change, latest=f"{valid_to} == {VALID_TO_UNDEFINED}")
        return
    with gen.guard(node):
        gen.line(f"{variable}.put({key}, {new}, {put_time}, {hand.context})")
    if gen.is_cached(store):
        listen(gen, node, store, old is not None)
    else:
        gen.forward(node, **change, latest="True")


def listen(gen: Any, node: Any, store: str, send_old: bool, window: str | None = None) -> None:
    """Have what leaves a store's cache forwarded to the children of a node."""
    listener = gen.flush_listener(node, gen.plan.stores[store].key_serde, window)
    gen.epilogue(f"{gen.store(store)}.set_listener({listener}, {send_old})")


def lookup(gen: Any, getter: Getter) -> str:
    """Return the name of a function `(key bytes)` that gives a table's (value, timestamp) or None.

    For versioned tables it takes `as_of` (milliseconds) too (KTableValueGetter).
    """
    if isinstance(getter, StoreGetter):
        store = gen.store(getter.store)
        windowed = {"window": "WindowLookup", "session": "SessionLookup"}.get(gen.plan.stores[getter.store].type)
        source = f"{store}.get" if windowed is None else f"{gen.kernel('lookup', windowed)}({store})"
        found: str = gen.prologue(("get", getter.store), "get", source)
        return found
    return gen.later(("lookup", id(getter)), "get", lambda name: _write_lookup(gen, name, getter))


def key_serde_of(gen: Any, getter: Getter) -> Any:
    """Return the serde of the key bytes that a lookup takes; of windowed tables that of their keys in topics."""
    definition = gen.plan.stores[getter.stores[-1]]
    if definition.type == "window":
        return serdes.parse({"windowed": definition.key_serde, "size": definition.window_size})
    if definition.type == "session":
        return serdes.parse({"session_windowed": definition.key_serde})
    return definition.key_serde


def _write_lookup(gen: Any, name: str, getter: Getter) -> None:
    gen.line(f"def {name}(kb, *as_of):")
    with gen.indented():
        if isinstance(getter, JoinGetter):
            _join_lookup(gen, getter)
            return
        if isinstance(getter, SuppressGetter):
            gen.line(f"held, value = {gen.store(getter.buffer)}.prior(kb)")
            gen.line("if held:")
            with gen.indented():
                gen.line("return None if value is None else (value, -1)")
            gen.line(f"return {lookup(gen, getter.parent)}(kb)")
            return
        assert isinstance(getter, FilterGetter | MapValuesGetter)
        gen.line(f"found = {lookup(gen, getter.parent)}(kb, *as_of)")
        gen.line("if found is None:")
        with gen.indented():
            gen.line("return None")
        gen.line("v, t = found")
        saved, gen.hand = gen.hand, _hand(gen, getter)
        if isinstance(getter, FilterGetter):
            test = gen.expr(getter.predicate)
            gen.line(f"return None if {test} else found" if getter.negate else f"return found if {test} else None")
        elif isinstance(getter, MapValuesGetter):
            gen.line(f"v = {gen.expr(getter.value)}")
            gen.line("return None if v is None else (v, t)")
        gen.hand = saved


def _hand(gen: Any, getter: Getter) -> Any:
    # Lookups have no record of their own: its headers are absent, and so are topic, partition and offset.
    context = "(None, None, -1, -1)" if gen.full_context else "None"
    return Hand(
        Slot(raw="kb", serde=key_serde_of(gen, getter), never_none=True), Slot("v", never_none=True), "t", context
    )


def _join_lookup(gen: Any, getter: JoinGetter) -> None:
    gen.line(f"left = {lookup(gen, getter.left)}(kb)")
    if getter.kind != "outer":
        gen.line("if left is None:")
        with gen.indented():
            gen.line("return None")
    gen.line(f"right = {lookup(gen, getter.right)}(kb)")
    missing = {"inner": "right is None", "left": None, "outer": "left is None and right is None"}[getter.kind]
    if missing:
        gen.line(f"if {missing}:")
        with gen.indented():
            gen.line("return None")
    saved, gen.hand = gen.hand, _hand(gen, getter)
    gen.line("lv = left[0] if left is not None else None")
    gen.line("rv = right[0] if right is not None else None")
    gen.line(f"v = {gen.expr(getter.value, left='lv', right='rv')}")
    gen.line("t = max(left[1] if left is not None else -1, right[1] if right is not None else -1)")
    gen.line("return None if v is None else (v, t)")
    gen.hand = saved


def emit_null_key_check(gen: Any, more: str = "") -> None:
    """Write the dropping of a record without a key (`more`: or of what else is dropped); what follows is the other case."""
    gen.line(f"if {gen.hand.key.test_var()} is None{more}:")
    with gen.indented():
        gen.drop()
    gen.line("else:")
    gen.depth += 1
    gen.hand.key.never_none = True


def emit_call(node: Any, gen: Any, instance: str, key_serde: Any) -> None:
    """Write the call of a kernel's `process(key bytes, key, value, timestamp, context)`."""
    with gen.guard(node):
        hand = gen.hand
        key = gen.raw(hand.key, key_serde)
        record = (key, gen.obj(hand.key), gen.obj(hand.value), hand.time, hand.context)
        gen.line(f"{instance}.process({', '.join(record)})")


def emit_enriched(node: Any, gen: Any, found: str, left: bool, value: Any) -> None:
    """Write the join of a stream's record with what a lookup `found` gives: (value, timestamp) or None.

    `left`: without a match the right side is None; else the record goes no further.
    """
    right, joined = gen.var("right"), gen.var("v")
    with gen.guard(node):
        gen.line(f"{right} = {found}")
        gen.line(f"if {right} is not None:")
        with gen.indented():
            gen.line(f"{right} = {right}[0]")
    if not left:
        gen.line(f"if {right} is not None:")
        gen.depth += 1
    with gen.guard(node):
        gen.line(f"{joined} = {gen.expr(value, left=gen.obj(gen.hand.value), right=right)}")
    gen.forward(node, value=Slot(joined))


def joiner(gen: Any, value: Any) -> str:
    """Return the name of a join's function `(key, left, right)`."""
    name: str = gen.callable_of(value, {"key": "k", "left": "left", "right": "right"})
    return name


def names_of(gen: Any, serdes: tuple[Any, ...]) -> str:
    """Return the source of a tuple of serdes."""
    return f"({', '.join(gen.name_of(serde, 'serde') for serde in serdes)})"


def forward_by_bytes(gen: Any, node: Any, key_serde: Any) -> str:
    """Return the name of a function `(key bytes, value, timestamp, context)` that forwards to a node's children."""

    def write(name: str) -> None:
        gen.line(f"def {name}(kb, v, t, c):")
        with gen.indented():
            gen.hand = Hand(Slot(raw="kb", serde=key_serde, never_none=True), Slot("v"), "t", "c")
            gen.forward(node)
            gen.fill_empty()

    name: str = gen.later(("by bytes", node.name), "fb", write)
    return name
