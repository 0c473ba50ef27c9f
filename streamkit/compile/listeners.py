"""Writes the functions that forward the entries that leave the cache of a store."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamkit.code import Code, binary, call, symbol
from streamkit.operators.codegen.record_variables import RecordVariables, Slot
from streamkit.operators.core.processor_node import ProcessorNode
from streamkit.record import WindowedKey
from streamkit.serdes.formats.windowed import SessionWindowedSerde, TimeWindowedSerde
from streamkit.serdes.serde import Serde
from streamkit.state.keys import TWO_LONGS, pack_long

if TYPE_CHECKING:
    from streamkit.compile.generator import Generator

KEY, START, END, TIME, CONTEXT = map(symbol, ("kb", "start", "end", "t", "c"))
WINDOWED, TOPIC_KEY = symbol("k"), symbol("wb")
"""A windowed key, and its bytes in a topic."""


def emit_listener(gen: Generator, name: Code, node: ProcessorNode, key_serde: Serde, window: str | None) -> None:
    """Write a listener (state.store_interface.FlushListener) that forwards the entries that leave the cache to the children of a node.

    `window`: "time" or "session" for the form with start and end (WindowedFlushListener); a session's time is its end.
    """
    bounds = () if window is None else ("start", "end")
    with gen.function(name, "kb", *bounds, "v", "old", "t", "c"):
        key = Slot(raw=KEY, serde=key_serde, never_none=True)
        if window is not None:
            key = _windowed_key(gen, node, key_serde, window)
        _forward(gen, node, key, END if window == "session" else TIME)


def _forward(gen: Generator, node: ProcessorNode, key: Slot, time: Code) -> None:
    gen.record = RecordVariables(key, Slot(symbol("v")), time, CONTEXT, Slot(symbol("old")))
    gen.set_node(node)
    with gen.separate_budget():
        gen.forward(node)


def _windowed_key(gen: Generator, node: ProcessorNode, key_serde: Serde, window: str) -> Slot:
    """Write the forms of a windowed key that nodes below read: the key, its bytes in a topic, or both; return them as a slot."""
    serde, tail = _topic_form(gen, node, key_serde, window)
    seen = Slot(raw=TOPIC_KEY, serde=serde, never_none=True)
    # A first pass, whose lines are discarded, finds the forms that are read.
    with gen.rehearsed():
        _forward(gen, node, seen, TIME)
    made = call(gen.name_of(WindowedKey, "WindowedKey"), gen.decoded(key_serde, KEY, True), START, END)
    key = Slot(serde=serde, never_none=True, shown=made)
    if seen.var_used[0]:
        key.var = WINDOWED
        gen.assign(WINDOWED, made)
    if seen.raw_used[0] or not seen.var_used[0]:
        key.raw = TOPIC_KEY
        gen.assign(TOPIC_KEY, binary(KEY, "+", tail))
    return key


def _topic_form(gen: Generator, node: ProcessorNode, key_serde: Serde, window: str) -> tuple[Serde, Code]:
    """Return the serde of windowed keys in topics, and the piece of the bytes that follow the key there."""
    if window == "session":
        return SessionWindowedSerde(key_serde), call(gen.name_of(TWO_LONGS.pack, "pack"), END, START)
    sizes = (gen.stores[store].window_size for store in node.stores)
    serde = TimeWindowedSerde(key_serde, next(filter(None, sizes), 0))
    return serde, call(gen.name_of(pack_long, "pack"), START)
