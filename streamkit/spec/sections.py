"""Parses the sections of a file except steps: config, defaults, topics, functions, stores, pipelines."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace

from streamkit import config as settings
from streamkit import plugins, serdes
from streamkit.config.settings import BY_DURATION, POLICIES, ApplicationSettings, OffsetReset
from streamkit.errors import ConfigError
from streamkit.expressions import Expression, Function, Library
from streamkit.expressions.calls import Usage
from streamkit.expressions.translate import FUNCTIONS
from streamkit.operators.core import fields
from streamkit.operators.core.parsed_values import CallRef, Ref
from streamkit.spec import steps, yaml_reader
from streamkit.spec.call_readers import called_options
from streamkit.spec.store_entries import OWN_KEYS, TOPIC_STORES, check_keys, put_config, topic_config, topic_store_ref
from streamkit.spec.topology_model import (
    TIMESTAMP_POLICIES,
    ConfigEntry,
    Defaults,
    PipelineSpec,
    StoreSpec,
    TopicSpec,
)
from streamkit.spec.yaml_nodes import Node, locator
from streamkit.spec.yaml_reader import BAD, Bad, Options, Reader, Route, put, shown
from streamkit.state.definitions import IN_FILE, KINDS
from streamkit.suggestions import did_you_mean

TOPIC_KEYS = ("topic", "key", "value", "timestamp", "reset", "partitions", "replication_factor", "config")
ORIGINS = (*steps.SOURCES, *TOPIC_STORES, "from")
PIPELINE_KEYS = (*ORIGINS, "name", "store", *OWN_KEYS, "steps", "to", "for_each")
STORE_DURATIONS = {
    option: [kind.name for kind in KINDS.values() if option in kind.options]
    for option in dict.fromkeys(option for kind in KINDS.values() for option in kind.options)
}
"""Which kinds of stores an option of `stores` belongs to."""
STORE_KEYS = ("type", "persistent", "caching", "logging", "config", "key", "value", *STORE_DURATIONS)


def read_config(reader: Reader, node: Node) -> dict[str, ConfigEntry]:
    """Return the settings of the file, each checked by its name and value."""
    config = {}
    for name, (key, value) in reader.entries(node, "'config'").items():
        if reader.is_null(value):
            continue
        if value.kind == "mapping":
            reader.report(value, f"{name!r} must be a value; names are written out: {name}.…: value")
            continue
        data = reader.data(value)
        try:
            settings.check(name, data)
        except ConfigError as error:
            unknown = isinstance(error, settings.UnknownSettingError)
            reader.report(key if unknown else value, str(error))
        else:
            config[name] = ConfigEntry(data, key.position)
            if name == ApplicationSettings.errors_dead_letter_queue_topic_name.name and isinstance(data, str):
                reader.routes.append(Route(value, data))
    return config


def read_defaults(reader: Reader, node: Node | None) -> Defaults:
    """Return the default serdes of the file: string for keys and json for values if it names none."""
    options = reader.options(node, "'defaults'", ("key", "value")) if node is not None else {}
    serdes_of_sides: Options = {
        "key": serdes.parse("string", reader.folder),
        "value": serdes.parse("json", reader.folder),
    }
    for side in options:
        put(serdes_of_sides, side, steps.serde(reader, options[side], f"{side!r} of 'defaults'"))
    return Defaults(**serdes_of_sides)


# -- Topics --------------------------------------------------------------------------------------------------------


def read_topics(reader: Reader, node: Node, defaults: Defaults) -> dict[str, TopicSpec]:
    """Return the external topics by the names of their entries."""
    entries = reader.entries(node, "'topics'")
    for name, (key, _) in entries.items():
        reader.define("topic", name, key)
    topics = {name: _topic(reader, name, key, body, defaults) for name, (key, body) in entries.items()}
    first: dict[str, TopicSpec] = {}
    for name, spec in topics.items():
        other = first.setdefault(spec.topic, spec)
        if other is not spec:
            reader.report(
                entries[name][0],
                f"The topics {name!r} and {other.name!r} ({other.position}) are both {spec.topic!r} on the log; write one entry",
            )
    return topics


def _topic(reader: Reader, name: str, key: Node, body: Node, defaults: Defaults) -> TopicSpec:
    what = f"The topic {name!r}"
    mistake = yaml_reader.kafka_name_mistake(name)
    if mistake:
        reader.report(key, f"The name of a topic {shown(name)} {mistake}")
    options = reader.options(body, what, TOPIC_KEYS)
    values: Options = {"topic": name, "key": defaults.key, "value": defaults.value}
    if "topic" in options:
        put(values, "topic", reader.text(options["topic"], "The name of a topic", kafka_name=True))
    for side in ("key", "value"):
        if side in options:
            put(values, side, steps.serde(reader, options[side], f"{side!r} of the topic {name!r}"))
    if "timestamp" in options:
        put(values, "timestamp", _timestamp(reader, options["timestamp"]))
    if "reset" in options:
        put(values, "reset", _reset(reader, options["reset"]))
    if "partitions" in options:
        put(values, "partitions", reader.integer(options["partitions"], "'partitions'", 1))
    if "replication_factor" in options:
        put(values, "replication_factor", _replication(reader, options["replication_factor"]))
    if "config" in options:
        values["config"] = topic_config(reader, options["config"], "'config' of a topic")
    return TopicSpec(name, **values, position=key.position)


def _reset(reader: Reader, node: Node) -> OffsetReset | Bad:
    """Return the OffsetReset of one of the policies or of `{by_duration: D}`."""
    if node.kind != "mapping":
        policy = reader.choice(node, "'reset'", (*POLICIES, BY_DURATION))
        if policy == BY_DURATION:
            return reader.report(node, "'reset' needs a duration; write reset: {by_duration: 1h}")
        return policy if policy is BAD else OffsetReset(policy)
    options = reader.options(node, "'reset'", (BY_DURATION,), (BY_DURATION,))
    if BY_DURATION not in options:
        return BAD
    back = reader.duration(options[BY_DURATION], "'by_duration' of 'reset'")
    return back if back is BAD else OffsetReset(BY_DURATION, back)


def _replication(reader: Reader, node: Node) -> int | Bad:
    if node.kind == "scalar" and reader.value(node) == -1:  # the broker's default, as in replication.factor
        return -1
    return reader.integer(node, "'replication_factor'", 1, 2**15 - 1)


def _timestamp(reader: Reader, node: Node) -> Expression | str | Bad:
    value = reader.value(node) if node.kind == "scalar" else None
    if value in TIMESTAMP_POLICIES:
        return value
    if isinstance(value, str) and yaml_reader.IDENTIFIER.fullmatch(value) and value not in fields.STREAM_NAMES:
        hint = did_you_mean(value, TIMESTAMP_POLICIES)
        if hint:
            return reader.report(node, f"'timestamp' is {value!r}{hint}")
    return steps.expression(reader, node, "'timestamp'", fields.STREAM_NAMES)


# -- Functions and stores ------------------------------------------------------------------------------------------


class _Installed(Mapping[str, Function]):
    """The functions of installed packages (entry points `streamkit.functions`)."""

    def __getitem__(self, name: str) -> Function:
        plugins.warn_of_own(plugins.FUNCTIONS, frozenset(FUNCTIONS))
        module, attribute = plugins.references(plugins.FUNCTIONS)[name]
        return Function(name, call=CallRef(module, attribute, ""))

    def __iter__(self) -> Iterator[str]:
        return iter(plugins.references(plugins.FUNCTIONS))

    def __len__(self) -> int:
        return len(plugins.references(plugins.FUNCTIONS))


def read_functions(reader: Reader, node: Node | None) -> dict[str, Function]:
    """Return the functions of the file by name, and let `reader` use them and those of installed packages in expressions."""
    functions: dict[str, Function] = {}
    for name, (key, body) in (reader.entries(node, "'functions'") if node is not None else {}).items():
        if yaml_reader.IDENTIFIER.fullmatch(name):
            reader.define("function", name, key)
            put(functions, name, _function(reader, name, key, body))
        else:
            reader.report(key, f"The name of a function {name!r} must be a letter, then letters, digits or _")
    library = Library(functions, _Installed())
    reader.functions = library
    reader.problems.extend(library.problems)
    # The places of problems are found; the functions of the model must be picklable.
    return {name: replace(function, locate=None) for name, function in functions.items()}


def _function(reader: Reader, name: str, key: Node, body: Node) -> Function | Bad:
    what = f"The function {name!r}"
    options = reader.options(body, what, ("call", "with", "params", "expr"))
    if body.kind != "mapping":
        return BAD
    if ("call" in options) == ("expr" in options):
        return reader.report(key, f"{what} must have either 'call', or 'params' and 'expr'")
    if "call" in options:
        if "params" in options:
            reader.report(options["params"], "'params' belongs to 'expr'; a callable has parameters of its own")
        call = called_options(reader, options, Usage())
        # The function exists even when its call is wrong, so that its uses are not reported as well.
        return Function(name, call=CallRef("", name, "") if call is BAD else call, position=key.position)
    if "with" in options:
        reader.report(options["with"], "'with' belongs to 'call'; an expression has 'params'")
    params = _params(reader, options["params"]) if "params" in options else ()
    node = options["expr"]
    if node.kind != "scalar":
        return reader.report(node, f"'expr' must be an expression, not {reader.kind(node)}; {steps.quoting(node)}")
    value = reader.value(node)
    reader.expressions.append(node)
    text = value if isinstance(value, str) else repr(value)  # a number or a boolean is a constant expression
    return Function(name, params, text, None, key.position, node.position, locator(node))


def _params(reader: Reader, node: Node) -> tuple[str, ...]:
    parameters: list[str] = []
    for item in reader.items(node, "'params'"):
        name = reader.text(item, "A parameter")
        if name is BAD:
            continue
        if not yaml_reader.IDENTIFIER.fullmatch(name):
            reader.report(item, f"The parameter {name!r} must be a letter, then letters, digits or _")
        elif name in parameters:
            reader.report(item, f"The parameter {name!r} stands twice")
        else:
            parameters.append(name)
    return tuple(parameters)


def read_stores(reader: Reader, node: Node, defaults: Defaults) -> dict[str, StoreSpec]:
    """Return the stores for custom processors by name."""
    stores: dict[str, StoreSpec] = {}
    for name, (key, body) in reader.entries(node, "'stores'").items():
        mistake = yaml_reader.kafka_name_mistake(name)
        if mistake:
            reader.report(key, f"The name of a store {shown(name)} {mistake}")
        reader.define("store", name, key)
        put(stores, name, _store(reader, name, key, body, defaults))
    return stores


def _store(reader: Reader, name: str, key: Node, body: Node, defaults: Defaults) -> StoreSpec | Bad:
    what = f"The store {name!r}"
    options = reader.options(body, what, STORE_KEYS, ("type",))
    type_ = reader.choice(options["type"], f"'type' of the store {name!r}", IN_FILE) if "type" in options else BAD
    values: Options = {"key": defaults.key, "value": defaults.value}
    for side in ("key", "value"):
        if side in options:
            put(values, side, steps.serde(reader, options[side], f"{side!r} of the store {name!r}"))
    for flag in ("persistent", "caching", "logging"):
        if flag in options:
            put(values, flag, reader.boolean(options[flag], f"{flag!r} of the store {name!r}"))
    if values.get("caching") is True and type_ is not BAD and not KINDS[type_].cached:
        # Java throws here: IllegalStateException of VersionedKeyValueStoreBuilder.withCachingEnabled.
        cached = [kind for kind in IN_FILE if KINDS[kind].cached]
        reader.report(options["caching"], f"'caching' belongs to stores of type {' or '.join(cached)}, not {type_}")
    put_config(reader, options, values)
    for length, types in STORE_DURATIONS.items():
        if length not in options:
            continue
        if type_ is not BAD and type_ not in types:
            reader.report(options[length], f"{length!r} belongs to stores of type {' or '.join(types)}, not {type_}")
        put(values, length, reader.duration(options[length], f"{length!r} of the store {name!r}", 1))
    _check_lengths(reader, what, type_, key, options, values)
    return BAD if type_ is BAD else StoreSpec(name, type_, **values, position=key.position)


def _check_lengths(
    reader: Reader, what: str, type_: str | Bad, key: Node, options: dict[str, Node], values: Options
) -> None:
    for needed in () if type_ is BAD else KINDS[type_].needed:
        if needed not in options:
            reader.report(key, f"{what} needs {needed!r}, since its type is {type_}")
    if "segment_interval" in options and values.get("persistent") is False:
        reader.report(
            options["segment_interval"], f"'segment_interval' of the store {what[10:]} is for persistent stores"
        )
    if values.get("retention") is not None and values["retention"] < values.get("window_size", 0):
        reader.report(options["retention"], f"'retention' of {what[4:]} must be at least its 'window_size'")


# -- Pipelines -----------------------------------------------------------------------------------------------------


def read_pipelines(reader: Reader, node: Node) -> dict[str, PipelineSpec]:
    """Return the pipelines by name, in file order."""
    pipelines: dict[str, PipelineSpec] = {}
    for name, (key, body) in reader.entries(node, "'pipelines'").items():
        if not yaml_reader.PIPELINE.fullmatch(name):
            reader.report(key, f"The name of a pipeline {shown(name)} must be made of letters, digits, _ and -")
        reader.pipeline = name
        reader.define("pipeline", name, key)
        put(pipelines, name, _pipeline(reader, name, key, body))
    reader.pipeline = ""
    return pipelines


def _pipeline(reader: Reader, name: str, key: Node, body: Node) -> PipelineSpec | Bad:
    what = f"The pipeline {name!r}"
    if name in PIPELINE_KEYS and body.kind != "mapping":
        return reader.report(key, f"{name!r} is a key of a pipeline, and begins a pipeline here; indent it more")
    options = reader.options(body, what, PIPELINE_KEYS)
    origins = [origin for origin in ORIGINS if origin in options]
    source: Ref | Bad = BAD
    if len(origins) != 1:
        came = f"both {' and '.join(origins)}" if origins else "none"
        if body.kind == "mapping" or reader.is_null(body):
            reader.report(key, f"{what} must begin with exactly one of {', '.join(ORIGINS)}, not {came}")
    elif origins[0] in TOPIC_STORES:
        source = topic_store_ref(reader, origins[0], options)
    elif origins == ["from"]:
        source = steps.pipeline_ref(reader, options["from"], "'from'")
        for extra in ("name", "store"):
            if extra in options:
                message = f"{extra!r} belongs to {', '.join(steps.SOURCES)}, not to 'from'"
                reader.report(options[extra], message)
    else:
        source = steps.source_ref(reader, origins[0], options, options[origins[0]].position)
    check_keys(reader, origins, options)
    ends = {} if origins and origins[0] in TOPIC_STORES else steps.read_ends(reader, options)
    # The pipeline exists even when its source is wrong, so that references to it are not reported as well.
    return PipelineSpec(name, source or Ref("stream", position=key.position), **ends, position=key.position)
