"""Reads pipelines that keep a store of the file from a topic: global stores and read-only ones."""

from __future__ import annotations

from typing import Any

from streamkit.operators.fields import Ref, StoreOptions
from streamkit.spec import kinds
from streamkit.spec.nodes import Node
from streamkit.spec.reader import BAD, Reader, Use, put

TOPIC_STORES = ("global_store", "read_only_store")
OWN_KEYS = {"process": TOPIC_STORES, "source_name": ("read_only_store",)}
"""The keys that only such pipelines have, and which of them."""
NOT_HERE = ("steps", "to", "for_each")


def topic_store_ref(reader: Reader, kind: str, options: dict[str, Node]) -> Any:
    """Return the Ref of a pipeline that begins with `kind`, or BAD."""
    values: dict[str, Any] = {}
    for key in NOT_HERE:
        if key in options:
            reader.complain(options[key], f"A {kind!r} has no {key!r}: its records go to the store only")
    for key in ("name", "source_name"):
        if key in options and kind in OWN_KEYS.get(key, TOPIC_STORES):
            put(values, key, reader.text(options[key], f"{key!r} of the {kind}", kafka_name=True))
    if "process" in options:
        put(values, "call", kinds.call_ref(reader, options["process"], f"'process' of the {kind}"))
    topic = reader.topic(options[kind], repr(kind)) if options[kind].kind == "scalar" else BAD
    if options[kind].kind != "scalar":
        reader.wrong(options[kind], repr(kind), "one topic")
    store = _store(reader, kind, options)
    if topic is BAD or store is BAD:
        return BAD
    return Ref(kind, topics=(topic,), store=store, **values, position=options[kind].position)


def _store(reader: Reader, kind: str, options: dict[str, Node]) -> Any:
    """Return which of the file's stores is kept, as StoreOptions with nothing but a name."""
    if "store" not in options:
        return reader.complain(options[kind], f"A {kind!r} needs 'store', the name of one of the file's stores")
    node = options["store"]
    if node.kind == "mapping":
        return reader.complain(node, f"'store' of the {kind} must be a name; what the store is stands in 'stores'")
    name = reader.text(node, f"'store' of the {kind}")
    if name is BAD:
        return BAD
    reader.uses.append(Use("store", name, node.position, reader.pipeline))
    return StoreOptions(name, position=node.position)


def check_keys(reader: Reader, origins: list[str], options: dict[str, Node]) -> None:
    """Complain about keys of a pipeline that belong to those that keep a store."""
    for key, owners in OWN_KEYS.items():
        if key in options and len(origins) == 1 and origins[0] not in owners:
            reader.complain(options[key], f"{key!r} belongs to {' and '.join(owners)}, not to {origins[0]!r}")
