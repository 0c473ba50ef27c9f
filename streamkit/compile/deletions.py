"""What deletes a table's row whose time to live is over: the table's own deletion, with what lies below it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from streamkit.code import NONE, Code, literal, method, symbol
from streamkit.operators.emitting import ABSENT, emit_keep
from streamkit.operators.hand import Hand, Slot

if TYPE_CHECKING:
    from streamkit.compile.generator import Generator


def emit_deletions(gen: Generator) -> None:
    """Have each store with a time to live delete its rows as the table does that it belongs to.

    The inputs of a cogroup share a store and what lies below them: the first one stands for all. Stores of processors have
    no table: they delete their rows themselves.
    """
    seen: set[str] = set()
    for node in gen.nodes:
        processor: Any = getattr(node, "processor", None)
        store = getattr(processor, "store", None)
        if isinstance(store, str) and store not in seen and gen.plan.stores[store].ttl is not None:
            seen.add(store)
            _emit(gen, node, store, processor.send_old)


def _emit(gen: Generator, node: Any, store: str, send_old: bool) -> None:
    def write(name: Code) -> None:
        key = Slot(raw=symbol("kb"), serde=gen.plan.stores[store].key_serde, never_none=True)
        new = symbol("new")
        with gen.function(name, "kb", "old", "t"):
            gen.assign(new, NONE)
            record = Hand(key, Slot(new), symbol("t"), gen.nowhere(), ABSENT)
            with gen.holding(record), gen.apart():
                gen.within(node)
                gen.comment(node)
                emit_keep(gen, node, store, new, symbol("old") if send_old else None, symbol("t"))

    function = gen.later(("expire", store), "expire", write)
    wants_old = send_old and not gen.is_cached(store)
    gen.epilogue(method(gen.store(store), "on_expiry", function, literal(wants_old)))
