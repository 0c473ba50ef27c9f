"""Parses pipelines that fill a store of the file from a topic: global stores and read-only ones."""

from __future__ import annotations

from streamkit.expressions.call_signatures import Usage
from streamkit.operators.core.parsed_values import Ref, StoreOptions
from streamkit.spec.call_readers import call_ref
from streamkit.spec.yaml_nodes.nodes import Node
from streamkit.spec.yaml_nodes.reader import BAD, Bad, Options, Reader, Use, put

TOPIC_STORES = ("global_store", "read_only_store")
OWN_KEYS = {"process": TOPIC_STORES, "source_name": ("read_only_store",)}
"""The keys of such pipelines alone, and the kinds that have them."""
NOT_HERE = ("steps", "to", "for_each")


def topic_store_ref(reader: Reader, kind: str, options: dict[str, Node]) -> Ref | Bad:
    """Return the Ref of a pipeline that begins with `kind`, or BAD."""
    values: Options = {}
    for key in NOT_HERE:
        if key in options:
            reader.report(options[key], f"A {kind!r} has no {key!r}: its records go to the store only")
    for key in ("name", "source_name"):
        if key in options and kind in OWN_KEYS.get(key, TOPIC_STORES):
            put(values, key, reader.text(options[key], f"{key!r} of the {kind}", kafka_name=True))
    if "process" in options:
        usage = Usage(("record",), context=True, makes=True)
        put(values, "call", call_ref(reader, options["process"], f"'process' of the {kind}", usage))
    topic = reader.topic(options[kind], repr(kind)) if options[kind].kind == "scalar" else BAD
    if options[kind].kind != "scalar":
        reader.report_mismatch(options[kind], repr(kind), "one topic")
    store = _store(reader, kind, options)
    if topic is BAD or store is BAD:
        return BAD
    return Ref(kind, topics=(topic,), store=store, **values, position=options[kind].position)


def _store(reader: Reader, kind: str, options: dict[str, Node]) -> StoreOptions | Bad:
    """Return the file's store that is filled, as StoreOptions with a name alone."""
    if "store" not in options:
        return reader.report(options[kind], f"A {kind!r} needs 'store', the name of one of the file's stores")
    node = options["store"]
    if node.kind == "mapping":
        return reader.report(node, f"'store' of the {kind} must be a name; what the store is stands in 'stores'")
    name = reader.text(node, f"'store' of the {kind}")
    if name is BAD:
        return BAD
    reader.uses.append(Use("store", name, node.position, reader.pipeline))
    return StoreOptions(name, position=node.position)


def check_keys(reader: Reader, origins: list[str], options: dict[str, Node]) -> None:
    """Report keys that belong to pipelines that fill a store, in other pipelines."""
    for key, owners in OWN_KEYS.items():
        if key in options and len(origins) == 1 and origins[0] not in owners:
            reader.report(options[key], f"{key!r} belongs to {' and '.join(owners)}, not to {origins[0]!r}")
