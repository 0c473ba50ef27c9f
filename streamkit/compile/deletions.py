"""Writes the functions that delete the expired rows of a table: its own deletion, and the nodes below it."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamkit.code import NONE, Code, literal, method, symbol
from streamkit.operators.codegen.record_variables import RecordVariables, Slot
from streamkit.operators.codegen.table_code import ABSENT, emit_put
from streamkit.operators.core.processor_node import ProcessorNode

if TYPE_CHECKING:
    from streamkit.compile.generator import Generator


def emit_deletions(gen: Generator) -> None:
    """Write for each store with a time to live the function that deletes a row as the store's table does.

    The inputs of a cogroup share a store and the nodes below it, so only the first one is written. Stores of processors have
    no table; they delete their rows themselves.
    """
    seen: set[str] = set()
    for node in gen.nodes:
        if not isinstance(node, ProcessorNode):
            continue
        store = getattr(node.processor, "store", None)
        if isinstance(store, str) and store not in seen and gen.stores[store].ttl is not None:
            seen.add(store)
            _emit(gen, node, store, bool(getattr(node.processor, "send_old", False)))


def _emit(gen: Generator, node: ProcessorNode, store: str, send_old: bool) -> None:
    def write(name: Code) -> None:
        key = Slot(raw=symbol("kb"), serde=gen.stores[store].key_serde, never_none=True)
        new = symbol("new")
        with gen.function(name, "kb", "old", "t"):
            gen.assign(new, NONE)
            record = RecordVariables(key, Slot(new), symbol("t"), gen.empty_context(), ABSENT)
            with gen.with_record(record), gen.separate_budget():
                gen.set_node(node)
                gen.comment(node)
                emit_put(gen, node, store, new, symbol("old") if send_old else None, symbol("t"))

    function = gen.deferred_function(("expire", store), "expire", write)
    needs_old = send_old and not gen.is_cached(store)
    gen.epilogue(method(gen.store(store), "on_expiry", function, literal(needs_old)))
