"""Parses the stores of steps (`store:`), settings of topics, and pipelines that fill a store from a topic."""

from __future__ import annotations

from streamkit import config as settings
from streamkit.errors import ConfigError
from streamkit.expressions.calls import Usage
from streamkit.operators.core.fields import STORE_KINDS
from streamkit.operators.core.parsed_values import Ref, StoreOptions
from streamkit.spec.call_readers import call_ref
from streamkit.spec.yaml_nodes import Node
from streamkit.spec.yaml_reader import BAD, Bad, Options, Reader, put

STORE_KEYS = (
    "name", "type", "persistent", "caching", "logging", "config", "retention", "segment_interval", "versioned",
    "ttl",
)  # fmt: skip
DURATIONS = {"retention": 0, "segment_interval": 1, "versioned": 0, "ttl": 1}
"""The options that are durations, and the minimum of each in milliseconds."""
NOT_WITH_TTL = {
    "versioned": "versioned tables, whose rows expire with their history",
    "retention": "windows and sessions",
    "segment_interval": "windows, sessions and versions",
}
"""Options that a store with a time to live can't have, and the kinds of store that have them."""


def store_options(reader: Reader, node: Node, what: str) -> StoreOptions | Bad:
    """Return the StoreOptions of `NAME` or of a mapping. If it has a name, record that it creates that store."""
    if node.kind != "mapping":
        text = reader.text(node, what, kafka_name=True)
        return text if text is BAD else _define(reader, StoreOptions(text, position=node.position), node)
    options = reader.options(node, what, STORE_KEYS)
    values: Options = {}
    for key in ("persistent", "caching", "logging"):
        if key in options:
            put(values, key, reader.boolean(options[key], f"{key!r} of a store"))
    for key, least in DURATIONS.items():
        if key in options:
            put(values, key, reader.duration(options[key], f"{key!r} of a store", least))
    _check_ttl(reader, options, values)
    _put_type(reader, options, values)
    put_config(reader, options, values)
    name = reader.text(options["name"], "The name of a store", kafka_name=True) if "name" in options else None
    name_node = options.get("name", node)
    return name if name is BAD else _define(reader, StoreOptions(name, **values, position=node.position), name_node)


def _check_ttl(reader: Reader, options: dict[str, Node], values: Options) -> None:
    """Report a time to live beside options that exclude it."""
    if "ttl" not in options:
        return
    values["ttl_position"] = options["ttl"].position
    for key, kinds in NOT_WITH_TTL.items():
        if key in options:
            reader.report(options["ttl"], f"'ttl' is only for stores of rows by key, and {key!r} is for {kinds}")


def _put_type(reader: Reader, options: dict[str, Node], values: Options) -> None:
    """Set `persistent` from the kind of store in `type`, if that option is present (Materialized.withStoreType)."""
    if "type" not in options:
        return
    if "persistent" in options:
        reader.report(options["persistent"], "'type' already determines 'persistent'; remove one of the two")
        return
    kind = reader.choice(options["type"], "'type' of a store", STORE_KINDS)
    if kind is not BAD:
        values["persistent"] = kind == "persistent"


def put_config(reader: Reader, options: dict[str, Node], values: Options) -> None:
    """Set the settings of a store's changelog, which need logging (withLoggingEnabled)."""
    if "config" not in options:
        return
    if values.get("logging") is False:
        reader.report(options["config"], "'config' is for the changelog, which 'logging: false' turns off")
        return
    values["config"] = tuple(topic_config(reader, options["config"], "'config' of a store").items())


def topic_config(reader: Reader, node: Node, what: str) -> dict[str, str]:
    """Return the settings of a topic as text, each checked by its name and value."""
    texts = {}
    for name, (key, value) in reader.entries(node, what).items():
        if reader.is_null(value):
            continue
        try:
            texts[name] = settings.topic_value(name, reader.data(value))
        except ConfigError as error:
            unknown = isinstance(error, settings.UnknownSettingError)
            reader.report(key if unknown else value, str(error))
    return texts


def _define(reader: Reader, options: StoreOptions, node: Node) -> StoreOptions:
    if options.name is not None:
        reader.define("store", options.name, node)
    return options


# Parses pipelines that fill a store of the file from a topic: global stores and read-only ones.

TOPIC_STORES = ("global_store", "read_only_store")
OWN_KEYS = {"process": TOPIC_STORES, "source_name": ("read_only_store",)}
"""The keys that only such pipelines have, and the kinds that have them."""
NOT_HERE = ("steps", "to", "for_each")


def topic_store_ref(reader: Reader, kind: str, options: dict[str, Node]) -> Ref | Bad:
    """Return the Ref of a pipeline that begins with `kind`, or BAD."""
    values: Options = {}
    for key in NOT_HERE:
        if key in options:
            reader.report(options[key], f"A {kind!r} has no {key!r}: its records go only to the store")
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
    """Return the store that the pipeline fills, as StoreOptions that have only its name."""
    if "store" not in options:
        return reader.report(options[kind], f"A {kind!r} needs 'store', the name of one of the file's stores")
    node = options["store"]
    if node.kind == "mapping":
        return reader.report(node, f"'store' of the {kind} must be a name; define the store in the section 'stores'")
    name = reader.text(node, f"'store' of the {kind}")
    if name is BAD:
        return BAD
    reader.use("store", name, node)
    return StoreOptions(name, position=node.position)


def check_keys(reader: Reader, origins: list[str], options: dict[str, Node]) -> None:
    """Report keys that only pipelines that fill a store may have, if the pipeline is another one."""
    for key, owners in OWN_KEYS.items():
        if key in options and len(origins) == 1 and origins[0] not in owners:
            reader.report(options[key], f"{key!r} belongs to {' and '.join(owners)}, not to {origins[0]!r}")
