"""Parses the stores of steps (`store:`), and settings of topics."""

from __future__ import annotations

from streamkit import config as settings
from streamkit.errors import ConfigError, Position
from streamkit.operators.core.fields import STORE_KINDS
from streamkit.operators.core.parsed_values import StoreOptions
from streamkit.spec.yaml_nodes.nodes import Node
from streamkit.spec.yaml_nodes.reader import BAD, Bad, Options, Reader, StoreDefinition, put

STORE_KEYS = (
    "name", "type", "persistent", "caching", "logging", "config", "retention", "segment_interval", "versioned",
    "ttl",
)  # fmt: skip
DURATIONS = {"retention": 0, "segment_interval": 1, "versioned": 0, "ttl": 1}
"""The options that are durations, and the least that each may be in milliseconds."""
NOT_WITH_TTL = {
    "versioned": "tables with a history, whose versions expire by it",
    "retention": "windows and sessions",
    "segment_interval": "windows, sessions and versions",
}
"""Options of stores that a time to live does not go with, and the kind of store of each."""


def store_options(reader: Reader, node: Node, what: str) -> StoreOptions | Bad:
    """Return the StoreOptions of `NAME` or of a mapping, and record that it makes a store of that name, if it has one."""
    if node.kind != "mapping":
        text = reader.text(node, what, kafka_name=True)
        return text if text is BAD else _defined(reader, StoreOptions(text, position=node.position), node.position)
    options = reader.options(node, what, STORE_KEYS)
    values: Options = {}
    for key in ("persistent", "caching", "logging"):
        if key in options:
            put(values, key, reader.boolean(options[key], f"{key!r} of a store"))
    for key, least in DURATIONS.items():
        if key in options:
            put(values, key, reader.duration(options[key], f"{key!r} of a store", least))
    _check_ttl(reader, options, values)
    put_type(reader, options, values)
    put_config(reader, options, values)
    name = reader.text(options["name"], "The name of a store", kafka_name=True) if "name" in options else None
    return (
        name if name is BAD else _defined(reader, StoreOptions(name, **values, position=node.position), node.position)
    )


def _check_ttl(reader: Reader, options: dict[str, Node], values: Options) -> None:
    """Report a time to live beside options of stores without one."""
    if "ttl" not in options:
        return
    values["ttl_position"] = options["ttl"].position
    for key, why in NOT_WITH_TTL.items():
        if key in options:
            reader.report(options["ttl"], f"'ttl' is for rows by their keys, and {key!r} for {why}")


def put_type(reader: Reader, options: dict[str, Node], values: Options, key: str = "type") -> None:
    """Set `persistent` by the kind of store that `key` names, if it is there (Materialized.withStoreType)."""
    if key not in options:
        return
    if "persistent" in options:
        reader.report(options["persistent"], f"{key!r} already says what 'persistent' would")
        return
    kind = reader.choice(options[key], f"{key!r} of a store", STORE_KINDS)
    if kind is not BAD:
        values["persistent"] = kind == "persistent"


def put_config(reader: Reader, options: dict[str, Node], values: Options) -> None:
    """Set the settings of a store's changelog, which need logging (withLoggingEnabled)."""
    if "config" not in options:
        return
    if values.get("logging") is False:
        reader.report(options["config"], "'config' is for the changelog, which 'logging: false' does without")
        return
    values["config"] = tuple(topic_config(reader, options["config"], "'config' of a store").items())


def topic_config(reader: Reader, node: Node, what: str) -> dict[str, str]:
    """Return the settings of a topic as text, each checked by its name and value."""
    found = {}
    for name, (key, value) in reader.entries(node, what).items():
        if reader.is_null(value):
            continue
        try:
            found[name] = settings.topic_value(name, reader.data(value))
        except ConfigError as error:
            unknown = isinstance(error, settings.UnknownSettingError)
            reader.report(key if unknown else value, str(error))
    return found


def _defined(reader: Reader, options: StoreOptions, position: Position) -> StoreOptions:
    if options.name is not None:
        reader.stores.append(StoreDefinition(options.name, position))
    return options
