"""The JSON Schema of topology files (draft 2020-12), for editors: made from the operators' fields and the settings.

`python -m streamkit.spec.schema` writes schemas/topology.schema.json; `--check` exits 1 when that file is out of date.
The schema knows shapes; `streamkit validate` knows the rest.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from streamkit import plugins, serdes
from streamkit.config.check import PREFIXES
from streamkit.config.resets import BY_DURATION, POLICIES
from streamkit.config.settings import ALIASES, SETTINGS, Setting
from streamkit.errors import UsageError
from streamkit.operators import fields
from streamkit.spec.materialized import DURATIONS, STORE_KEYS
from streamkit.spec.model import STORE_TYPES, TIMESTAMP_POLICIES
from streamkit.spec.names import MAX_LENGTH
from streamkit.spec.sections import TIMED
from streamkit.spec.topic_stores import TOPIC_STORES

Json = dict[str, Any]
PATH = Path("schemas/topology.schema.json")
VARIABLE: Json = {"type": "string", "pattern": r"^\$\{.*\}$"}
CALLABLE = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$"


def ref(name: str, description: str = "") -> Json:
    """Return a reference to a definition, with a description of its own."""
    return {"$ref": f"#/$defs/{name}", **({"description": description} if description else {})}


def _object(properties: Json, required: tuple[str, ...] = (), description: str = "") -> Json:
    found: Json = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        found["required"] = list(required)
    if description:
        found["description"] = description
    return found


def _optional(schema: Json) -> Json:
    """Return the schema of an option, which may also be null or a variable."""
    description = {"description": schema["description"]} if "description" in schema else {}
    inner = {key: value for key, value in schema.items() if key != "description"}
    return {**description, "anyOf": [inner, {"type": "null"}, VARIABLE]}


def _words(words: tuple[str, ...]) -> Json:
    return {"enum": list(words)}


def _ref_of(kind: fields.PipelineRef) -> Json:
    one = {"anyOf": [ref("pipelineReference"), ref("inlineSource")]}
    return {"anyOf": [one, {"type": "array", "items": one, "minItems": 1}]} if kind.many else one


def _cogroup_input() -> Json:
    return _object({"from": ref("pipelineReference"), "add": ref("expression")}, ("from", "add"))


KINDS: dict[type, Callable[[Any], Json]] = {
    fields.Expr: lambda kind: ref("expression"),
    fields.SerdeField: lambda kind: ref("serde"),
    fields.Text: lambda kind: ref("name") if kind.kafka_name else {"type": "string"},
    fields.Duration: lambda kind: ref("duration"),
    fields.SignedDuration: lambda kind: ref("signedDuration"),
    fields.Integer: lambda kind: {"type": "integer", "minimum": kind.minimum},
    fields.Choice: lambda kind: _words(kind.words),
    fields.Flag: lambda kind: {"type": "boolean"},
    fields.TopicConfig: lambda kind: _topic_config(),
    fields.DurationOr: lambda kind: {"anyOf": [_words(kind.words), ref("duration")]},
    fields.StoreField: lambda kind: ref("store"),
    fields.StoreNames: lambda kind: {"anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}]},
    fields.BaseName: lambda kind: ref("name"),
    fields.PipelineRef: _ref_of,
    fields.CogroupInputs: lambda kind: {"type": "array", "items": _cogroup_input()},
    fields.Branches: lambda kind: {
        "anyOf": [
            {"type": "object", "additionalProperties": ref("branch")},
            {"type": "array", "items": ref("listedBranch")},
        ]
    },
    fields.DefaultBranch: lambda kind: {"anyOf": [{"type": "string"}, {"const": True}]},
    fields.HeaderMap: lambda kind: {
        "type": "object",
        "additionalProperties": {"anyOf": [ref("expression"), {"type": "null"}]},
    },
    fields.Callable_: lambda kind: ref("callable"),
}


def operator_schema(operator: Any) -> Json:
    """Return the schema of what stands after a step's name."""
    options: Json = {}
    for field in operator.fields:
        options[field.name] = _optional({**KINDS[type(field.kind)](field.kind), "description": field.doc})
    options["on_error"] = _optional(ref("onError", "What happens to records at which the step fails."))
    required = tuple(field.name for field in operator.fields if field.required)
    forms = [_object(options, required)]
    main = next((field for field in operator.fields if field.name == operator.main), None)
    if main is not None:
        forms.append(KINDS[type(main.kind)](main.kind))
    if not required:
        forms.append({"type": "null"})
    return {"description": getattr(operator, "summary", operator.name), "anyOf": forms}


def _steps(operators: Mapping[str, Any]) -> Json:
    alone = [name for name, operator in operators.items() if not any(field.required for field in operator.fields)]
    mappings = _object({name: ref(f"step.{name}") for name in operators})
    return {"anyOf": [{"enum": alone}, {**mappings, "minProperties": 1, "maxProperties": 1}]}


def _setting(setting: Setting) -> Json:
    types = {"int": ["integer", "string"], "bool": ["boolean", "string"], "text": ["string", "number"]}
    found: Json = {"description": setting.description}
    if setting.default is not None:
        found["default"] = list(setting.default) if isinstance(setting.default, tuple) else setting.default
    if setting.kind == "list":
        return {**found, "type": ["string", "array"], "items": {"type": ["string", "number"]}}
    if setting.kind == "text" and setting.words:
        return {**found, "anyOf": [_words(setting.words), VARIABLE]}
    return {**found, "type": types.get(setting.kind, "string")}


def _config() -> Json:
    from streamkit.config import clients

    properties: Json = {name: _optional(_setting(setting)) for name, setting in SETTINGS.items()}
    for old, new in ALIASES.items():
        properties[old] = {**_optional(_setting(SETTINGS[new])), "deprecated": True}
    client = {name: ref("clientSetting") for name in sorted(clients.KNOWN) if name not in properties}
    prefixes = "|".join(prefix.replace(".", r"\.") for prefix in PREFIXES)
    return {
        "type": "object",
        "description": "Settings of Kafka Streams and of its clients, by their names in Java.",
        "properties": {**properties, **client},
        "patternProperties": {rf"^({prefixes}|topic\.|client\.tag\.)": ref("clientSetting")},
        "additionalProperties": False,
    }


def _source_options() -> Json:
    return {
        "stream": _optional(ref("streamTopics", "One topic, several, or a pattern; each is one builder.stream call.")),
        "table": _optional({"type": "string", "description": "The topic of a table."}),
        "global_table": _optional({"type": "string", "description": "The topic of a global table."}),
        "store": _optional(ref("store", "The store of the table; without it no Materialized is passed.")),
        "name": _optional(ref("name", "The Consumed name.")),
    }


def _topic_store_options() -> Json:
    return {
        "global_store": _optional({"type": "string", "description": "The topic of a global store."}),
        "read_only_store": _optional({"type": "string", "description": "The topic of a read-only store."}),
        "process": _optional(ref("callable", "What writes the topic's records to the store; by itself each is a row.")),
        "source_name": _optional(ref("name", "The name of a read-only store's source.")),
    }


def _ends() -> Json:
    return {
        "steps": _optional({"type": "array", "items": ref("step"), "description": "What happens, in order."}),
        "to": _optional(ref("sink", "The topic that the result goes to.")),
        "for_each": _optional(ref("forEach", "A Python callable that takes each record.")),
    }


def _branch_options() -> Json:
    meaning = "Whether what hangs below it is built with the branch, not after all branches."
    chained = {"type": "boolean", "description": meaning}
    return {"if": ref("expression"), **_ends(), "chained": _optional(chained)}


def _definitions(operators: Mapping[str, Any], added: Iterable[str]) -> Json:
    one_of = [
        {"required": [name], "properties": {name: {"not": {"type": "null"}}}}
        for name in ("stream", "table", "global_table", *TOPIC_STORES, "from")
    ]
    call = _object({"call": ref("callable")}, ("call",))
    return {
        "clientSetting": {"type": ["string", "number", "boolean", "array", "null"]},
        "name": {"type": "string", "pattern": r"^[A-Za-z0-9._-]+$|\$\{", "maxLength": MAX_LENGTH},
        "callable": {
            "anyOf": [
                {"type": "string", "pattern": CALLABLE},
                _object({"call": {"type": "string"}}, ("call",)),
                VARIABLE,
            ]
        },
        "expression": {
            "description": "An expression in Python's syntax, or {call: module:callable}.",
            "anyOf": [{"type": ["string", "number", "boolean"]}, call],
        },
        "duration": {
            "anyOf": [
                {"type": "integer", "minimum": 0},
                {"type": "string", "pattern": r"^([0-9]+(ms|s|m|h|d)|[Pp].+)$"},
            ]
        },
        "signedDuration": {
            "anyOf": [{"type": "integer"}, {"type": "string", "pattern": r"^-?([0-9]+(ms|s|m|h|d)|[Pp].+)$"}]
        },
        "serde": {
            "anyOf": [
                _words(tuple(each for each in [*serdes.names(), *added] if each not in serdes.FORMS)),
                {"type": "object", "minProperties": 1},
                VARIABLE,
            ]
        },
        "store": {"anyOf": [ref("name"), _object(_store_options())]},
        "pipelineReference": {"type": "string", "pattern": r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)?$|\$\{"},
        "streamTopics": {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}, "minItems": 1},
                _object({"pattern": {"type": "string"}}, ("pattern",)),
            ]
        },
        "inlineSource": {**_object(_source_options()), "anyOf": one_of[:3]},
        "onError": {
            "anyOf": [_words(("fail", "continue")), _object({"dead_letter": {"type": "string"}}, ("dead_letter",))]
        },
        "sink": {
            "anyOf": [
                {"type": "string"},
                {
                    **_object(
                        {
                            "topic": _optional({"type": "string", "description": "The topic's entry in `topics`."}),
                            "route": _optional(ref("expression", "The physical topic of each record.")),
                            "name": _optional(ref("name", "The name of the sink node.")),
                            "partition": _optional(ref("expression", "The partition of each record.")),
                        }
                    ),
                    "oneOf": [{"required": ["topic"]}, {"required": ["route"]}],
                },
            ]
        },
        "forEach": _object({"call": ref("callable"), "name": _optional(ref("name"))}, ("call",)),
        "branch": {"anyOf": [ref("expression"), _object(_branch_options(), ("if",))]},
        "listedBranch": {
            "anyOf": [
                ref("expression"),
                _object(
                    {
                        "name": _optional({"type": "string", "description": "Its place by default."}),
                        **_branch_options(),
                    },
                    ("if",),
                ),
            ]
        },
        "step": _steps(operators),
        "pipeline": {
            **_object(
                {**_source_options(), **_topic_store_options(), "from": _optional(ref("pipelineReference")), **_ends()}
            ),
            "oneOf": one_of,
        },
        "topic": _topic(),
        "function": {
            "anyOf": [
                call,
                _object(
                    {
                        "params": _optional({"type": "array", "items": {"type": "string"}}),
                        "expr": {"type": ["string", "number", "boolean"]},
                    },
                    ("expr",),
                ),
            ]
        },
        "customStore": _custom_store(),
        **{f"step.{name}": operator_schema(operator) for name, operator in operators.items()},
    }


def _store_options() -> Json:
    docs = {
        "name": "The store's name; without it the name is generated (Materialized.with).",
        "type": "Where the rows are, as `persistent` says too.",
        "persistent": "Whether the rows are on disk (default) or in memory.",
        "caching": "Whether updates wait in the cache (default: true).",
        "logging": "Whether there is a changelog to restore the store from (default: true).",
        "config": "Settings of the changelog's topic.",
        "retention": "How long windows and sessions are kept.",
        "segment_interval": "How long the time is whose windows, sessions or versions expire together.",
        "versioned": "How long the history of a versioned store is.",
        "ttl": "How long a row stays that nothing writes to; then it is deleted (streamkit's own).",
    }
    kinds: Json = {key: {"type": "boolean"} for key in STORE_KEYS}
    kinds |= {"name": ref("name"), "type": _words(fields.STORE_KINDS), "config": _topic_config()}
    kinds |= dict.fromkeys(DURATIONS, ref("duration"))
    return {key: _optional({**kinds[key], "description": docs[key]}) for key in STORE_KEYS}


def _topic_config() -> Json:
    return {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean", "array", "null"]}}


def _topic() -> Json:
    policies = {"anyOf": [_words(TIMESTAMP_POLICIES), ref("expression")]}
    options = {
        "topic": {**ref("name"), "description": "The physical name; the entry's name by default."},
        "key": ref("serde", "The serde of keys."),
        "value": ref("serde", "The serde of values."),
        "timestamp": {**policies, "description": "What to do with invalid timestamps, or milliseconds."},
        "reset": {
            "anyOf": [_words(POLICIES), _object({BY_DURATION: ref("duration")}, (BY_DURATION,))],
            "description": "Where reading begins without a committed offset.",
        },
        "partitions": {"type": "integer", "minimum": 1, "description": "Used when streamkit creates the topic."},
        "replication_factor": {"type": "integer", "minimum": -1, "description": "-1: the broker's default."},
        "config": {**_topic_config(), "description": "Settings of the topic."},
    }
    schema = _object({name: _optional(option) for name, option in options.items()})
    return {"anyOf": [schema, {"type": "null"}]}


def _custom_store() -> Json:
    options: Json = {"type": _words(STORE_TYPES), "key": ref("serde"), "value": ref("serde")}
    options |= {flag: {"type": "boolean"} for flag in ("persistent", "caching", "logging")}
    options |= {length: ref("duration") for length in TIMED}
    options["config"] = {**_topic_config(), "description": "Settings of the changelog's topic."}
    return _object({name: _optional(option) for name, option in options.items()}, ("type",))


def build(operators: Mapping[str, Any], added: Iterable[str] = ()) -> Json:
    """Return the schema of files with these steps; `added`: names of serdes beside streamkit's own."""

    def entries(name: str, description: str) -> Json:
        return _optional({"type": "object", "additionalProperties": ref(name), "description": description})

    properties: Json = {
        "streamkit": {"description": "The version of the language.", "const": 1},
        "application": {
            **ref("name"),
            "description": "application.id: the consumer group, and prefix of internal topics.",
        },
        "description": _optional({"type": "string", "description": "Free text."}),
        "config": _optional(_config()),
        "defaults": _optional(_object({"key": _optional(ref("serde")), "value": _optional(ref("serde"))})),
        "topics": entries("topic", "Every external topic that the file reads or writes."),
        "functions": entries("function", "Functions for expressions, by name."),
        "stores": entries("customStore", "Stores for custom processors."),
        "pipelines": entries("pipeline", "Pipelines, built in file order."),
    }
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "streamkit topology, version 1",
        **_object(properties, ("streamkit", "application")),
        "$defs": _definitions(operators, added),
    }


def with_plugins() -> Json:
    """Return the schema with the steps and serdes of installed plugins."""
    from streamkit.operators import STEPS

    return build(STEPS, plugins.load(plugins.SERDES))


def keep(path: Path, schema: Json, module: str, arguments: list[str]) -> int:
    """Write a schema to its file, or with `--check` compare it; `module` is what writes it, for people.

    Returns the exit code; raises UsageError for other arguments.
    """
    if arguments not in ([], ["--check"]):
        raise UsageError(f"usage: python -m {module} [--check]")
    text = json.dumps(schema, indent=1, ensure_ascii=False) + "\n"
    if not arguments:
        path.parent.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return 0
    current = path.read_text(encoding="utf-8") if path.exists() else ""
    if current != text:
        print(f"{path} is out of date; run python -m {module}")
    return int(current != text)


def main(arguments: list[str]) -> int:
    """Write the schema, with `--check` compare it, with `--plugins` print it with what installed plugins add.

    Returns the exit code; raises UsageError for other arguments.
    """
    from streamkit.operators import OPERATORS

    if arguments == ["--plugins"]:
        print(json.dumps(with_plugins(), indent=1, ensure_ascii=False))
        return 0
    return keep(PATH, build(OPERATORS), "streamkit.spec.schema", arguments)


if __name__ == "__main__":
    try:
        sys.exit(main(sys.argv[1:]))
    except UsageError as error:
        print(error, file=sys.stderr)
        sys.exit(error.exit_code)
