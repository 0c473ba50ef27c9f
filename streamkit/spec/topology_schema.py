"""The JSON Schema of topology files (draft 2020-12) for editors, generated from the operators' fields and the settings.

`python -m streamkit.spec.topology_schema` writes schemas/topology.schema.json; `--check` exits 1 when that file is out of date.
The schema describes only the structure of files; `streamkit validate` checks the rest.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any, TypeAlias

from streamkit import plugins, serdes
from streamkit.config.settings import ALIASES, BY_DURATION, POLICIES, SETTINGS, Setting, SettingValue
from streamkit.config.values import PREFIXES
from streamkit.errors import StreamkitError, UsageError
from streamkit.operators import OPERATORS, STEPS
from streamkit.operators.core import fields
from streamkit.operators.core.operator import Operator, StepDeclaration
from streamkit.serdes.plain import Document
from streamkit.spec.macros import TYPES
from streamkit.spec.markdown import without_links
from streamkit.spec.sections import STORE_DURATIONS
from streamkit.spec.steps import SOURCES
from streamkit.spec.store_entries import DURATIONS, STORE_KEYS, TOPIC_STORES
from streamkit.spec.topology_file import load
from streamkit.spec.topology_model import TIMESTAMP_POLICIES, Macro
from streamkit.spec.yaml_reader import MAX_LENGTH
from streamkit.state.definitions import IN_FILE

PATH = Path("schemas/topology.schema.json")


def _steps(operators: Mapping[str, StepDeclaration]) -> Schema:
    alone = [name for name, operator in operators.items() if not any(field.required for field in operator.fields)]
    mappings = object_of({name: ref(f"step.{name}") for name in operators})
    return {"anyOf": [{"enum": alone}, {**mappings, "minProperties": 1, "maxProperties": 1}]}


def _setting(setting: Setting[SettingValue]) -> Schema:
    types = {"int": ["integer", "string"], "bool": ["boolean", "string"], "text": ["string", "number"]}
    schema: Schema = {"description": setting.description}
    if setting.default not in (None, ""):
        schema["default"] = list(setting.default) if isinstance(setting.default, tuple) else setting.default
    if setting.kind == "list":
        return {**schema, "type": ["string", "array"], "items": {"type": ["string", "number"]}}
    if setting.kind == "text" and setting.words:
        return {**schema, "anyOf": [one_of_words(setting.words), VARIABLE]}
    return {**schema, "type": types.get(setting.kind, "string")}


def _config() -> Schema:
    from streamkit.config import clients

    properties: Schema = {name: optional(_setting(setting)) for name, setting in SETTINGS.items()}
    for old, new in ALIASES.items():
        properties[old] = {**optional(_setting(SETTINGS[new])), "deprecated": True}
    client = {name: ref("clientSetting") for name in sorted(clients.KNOWN) if name not in properties}
    prefixes = "|".join(prefix.replace(".", r"\.") for prefix in PREFIXES)
    return {
        "type": "object",
        "description": "Settings of Kafka Streams and of its clients, by their names in Java.",
        "properties": {**properties, **client},
        "patternProperties": {rf"^({prefixes}|topic\.|client\.tag\.)": ref("clientSetting")},
        "additionalProperties": False,
    }


def _source_options() -> Schema:
    return {
        "stream": optional(ref("streamTopics", "One topic, several, or a pattern; each is one builder.stream call.")),
        "table": optional({"type": "string", "description": "The topic of a table."}),
        "global_table": optional({"type": "string", "description": "The topic of a global table."}),
        "store": optional(ref("store", "The store of the table; without it no Materialized is passed.")),
        "name": optional(ref("name", "The Consumed name.")),
    }


def _topic_store_options() -> Schema:
    return {
        "global_store": optional({"type": "string", "description": "The topic of a global store."}),
        "read_only_store": optional({"type": "string", "description": "The topic of a read-only store."}),
        "process": optional(
            ref(
                "callable",
                "The processor that writes the topic's records to the store; by default each record is a row.",
            )
        ),
        "source_name": optional(ref("name", "The name of a read-only store's source.")),
    }


def _ends() -> Schema:
    return {
        "steps": optional({"type": "array", "items": ref("step"), "description": "What happens, in order."}),
        "to": optional(ref("sink", "The topic that the result goes to.")),
        "for_each": optional(ref("forEach", "A Python callable that takes each record.")),
    }


def _branch_options() -> Schema:
    meaning = "Whether its steps are built with the branch, not after all branches."
    chained = {"type": "boolean", "description": meaning}
    return {"if": ref("expression"), **_ends(), "chained": optional(chained)}


def _macro_definitions(
    definitions: Schema, operators: Mapping[str, StepDeclaration], macros: Mapping[str, Macro] | None
) -> Schema:
    """Return the definition of a macro, and variants named `NAME.macros` of the definitions that contain steps.

    The variants accept macros as steps. A schema can't refer to names in a file, so without `macros` they accept any other name.
    """
    branching = [
        name
        for name, operator in operators.items()
        if any(isinstance(f.kind, fields.Branches) for f in operator.fields)
    ]
    names = ["step", "pipeline", "branch", "listedBranch", *(f"step.{name}" for name in branching)]
    text = json.dumps({f"{name}.macros": definitions[name] for name in names})
    for name in names:
        text = text.replace(f'"#/$defs/{name}"', f'"#/$defs/{name}.macros"')
    definitions_of_macros: Schema = json.loads(text)
    one = {"type": "object", "minProperties": 1, "maxProperties": 1}
    if macros is None:
        others = {"not": {"enum": list(operators)}}
        definitions_of_macros["step.macros"]["anyOf"] += [
            {"type": "string", **others},
            {**one, "propertyNames": others},
        ]
    else:
        alone = [name for name, macro in macros.items() if not any(p.is_required for p in macro.parameters.values())]
        uses = {**object_of({name: _use(macro) for name, macro in macros.items()}), **one}
        definitions_of_macros["step.macros"]["anyOf"] += [{"enum": alone}, uses, VARIABLE]
    types = one_of_words(tuple(TYPES))
    text_of = {"type": "string", "description": "Free text."}
    default = {"description": "The value if a use has none; null leaves the option out."}
    parameter = object_of({"type": types, "default": default, "description": optional(text_of)}, ("type",))
    parameters = {"type": "object", "additionalProperties": {"anyOf": [types, parameter]}}
    steps = {"type": "array", "items": ref("step.macros"), "description": "The steps; `${NAME}` is a parameter."}
    definitions_of_macros["macro"] = object_of(
        {"description": optional(text_of), "params": optional(parameters), "steps": steps}, ("steps",)
    )
    return definitions_of_macros


_ARGUMENTS: Schema = {
    "expression": {"$ref": "#/$defs/expression"},
    "integer": {"type": "integer"},
    "number": {"type": "number"},
    "boolean": {"type": "boolean"},
    "duration": {"$ref": "#/$defs/signedDuration"},
    "name": {"$ref": "#/$defs/name"},
    "stream": {"anyOf": [{"$ref": "#/$defs/pipelineReference"}, {"$ref": "#/$defs/inlineSource"}]},
    "streams": {"type": ["string", "object", "array"]},
    "serde": {"$ref": "#/$defs/serde"},
    "steps": {"type": "array", "items": {"$ref": "#/$defs/step.macros"}},
}
"""The schemas of arguments, by the type of the parameter; other types take text."""


def _use(macro: Macro) -> Schema:
    """Return the schema of a macro's arguments."""
    options, required = {}, tuple(name for name, parameter in macro.parameters.items() if parameter.is_required)
    for name, parameter in macro.parameters.items():
        schema: Schema = dict(_ARGUMENTS.get(parameter.type, {"type": "string"}))
        options[name] = optional({**schema, "description": parameter.description} if parameter.description else schema)
    forms = [object_of(options, required)]
    needed = required or tuple(options)
    forms += [options[needed[0]]] if len(needed) == 1 else []
    forms += [] if required else [{"type": "null"}]
    return {**({"description": macro.description} if macro.description else {}), "anyOf": forms}


def _definitions(operators: Mapping[str, StepDeclaration], added: Iterable[str]) -> Schema:
    return {
        **_values(added),
        **_parts_of_pipelines(),
        "step": _steps(operators),
        "pipeline": {
            **object_of(
                {**_source_options(), **_topic_store_options(), "from": optional(ref("pipelineReference")), **_ends()}
            ),
            "oneOf": _one_of(*SOURCES, *TOPIC_STORES, "from"),
        },
        "topic": _topic(),
        "function": {
            "anyOf": [
                _called(),
                object_of(
                    {
                        "params": optional({"type": "array", "items": {"type": "string"}}),
                        "expr": {"type": ["string", "number", "boolean"]},
                    },
                    ("expr",),
                ),
            ]
        },
        "customStore": _custom_store(),
        "generator": _generator(),
        **{f"step.{name}": operator_schema(operator) for name, operator in operators.items()},
    }


def _one_of(*names: str) -> list[Schema]:
    """Return the condition that one of these options has a value."""
    return [{"required": [name], "properties": {name: {"not": {"type": "null"}}}} for name in names]


def _called() -> Schema:
    return object_of({"call": ref("callable"), "with": optional({"type": "object"})}, ("call",))


def _values(added: Iterable[str]) -> Schema:
    """Return the definitions of values without parts of a pipeline. added: the names of further serdes."""
    return {
        "clientSetting": {"type": ["string", "number", "boolean", "array", "null"]},
        "name": {"type": "string", "pattern": r"^[A-Za-z0-9._-]+$|\$\{", "maxLength": MAX_LENGTH},
        "callable": {
            "anyOf": [
                {"type": "string", "pattern": CALLABLE},
                object_of({"call": {"type": "string"}, "with": optional({"type": "object"})}, ("call",)),
                VARIABLE,
            ]
        },
        "expression": {
            "description": "An expression in Python's syntax, or {call: module:callable}.",
            "anyOf": [{"type": ["string", "number", "boolean"]}, _called()],
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
                one_of_words(tuple(name for name in [*serdes.names(), *added] if name not in serdes.FORMS)),
                {"type": "object", "minProperties": 1},
                VARIABLE,
            ]
        },
        "store": {"anyOf": [ref("name"), object_of(_store_options())]},
    }


def _parts_of_pipelines() -> Schema:
    return {
        "pipelineReference": {"type": "string", "pattern": r"^[A-Za-z0-9_-]+(\.[A-Za-z0-9_-]+)?$|\$\{"},
        "streamTopics": {
            "anyOf": [
                {"type": "string"},
                {"type": "array", "items": {"type": "string"}, "minItems": 1},
                object_of({"pattern": {"type": "string"}}, ("pattern",)),
            ]
        },
        "inlineSource": {**object_of(_source_options()), "anyOf": _one_of(*SOURCES)},
        "onError": {
            "anyOf": [
                one_of_words(("fail", "continue")),
                object_of({"dead_letter": {"type": "string"}}, ("dead_letter",)),
            ]
        },
        "sink": {
            "anyOf": [
                {"type": "string"},
                {
                    **object_of(
                        {
                            "topic": optional({"type": "string", "description": "The topic's entry in `topics`."}),
                            "route": optional(ref("expression", "The physical topic of each record.")),
                            "name": optional(ref("name", "The name of the sink node.")),
                            "partition": optional(ref("expression", "The partition of each record.")),
                        }
                    ),
                    "oneOf": [{"required": ["topic"]}, {"required": ["route"]}],
                },
            ]
        },
        "forEach": object_of(
            {"call": ref("callable"), "with": optional({"type": "object"}), "name": optional(ref("name"))}, ("call",)
        ),
        "branch": {"anyOf": [ref("expression"), object_of(_branch_options(), ("if",))]},
        "listedBranch": {
            "anyOf": [
                ref("expression"),
                object_of(
                    {
                        "name": optional({"type": "string", "description": "The default is its position."}),
                        **_branch_options(),
                    },
                    ("if",),
                ),
            ]
        },
    }


def _store_options() -> Schema:
    docs = {
        "name": "The store's name; without it the name is generated (Materialized.with).",
        "type": "Where the rows are: on disk or in memory, like `persistent`.",
        "persistent": "Whether the rows are on disk (default) or in memory.",
        "caching": "Whether updates wait in the cache (default: true).",
        "logging": "Whether there is a changelog to restore the store from (default: true).",
        "config": "Settings of the changelog's topic.",
        "retention": "How long windows and sessions are kept.",
        "segment_interval": "The span of time whose windows, sessions or versions expire together.",
        "versioned": "The length of the history of a versioned store.",
        "ttl": "The time after its last write at which a row is deleted (only in streamkit).",
    }
    kinds: Schema = {key: {"type": "boolean"} for key in STORE_KEYS}
    kinds |= {"name": ref("name"), "type": one_of_words(fields.STORE_KINDS), "config": topic_config()}
    kinds |= dict.fromkeys(DURATIONS, ref("duration"))
    return {key: optional({**kinds[key], "description": docs[key]}) for key in STORE_KEYS}


def _topic() -> Schema:
    policies = {"anyOf": [one_of_words(TIMESTAMP_POLICIES), ref("expression")]}
    options = {
        "topic": {**ref("name"), "description": "The physical name; the entry's name by default."},
        "key": ref("serde", "The serde of keys."),
        "value": ref("serde", "The serde of values."),
        "timestamp": {
            **policies,
            "description": "A policy for invalid timestamps, or an expression that returns milliseconds.",
        },
        "reset": {
            "anyOf": [one_of_words(POLICIES), object_of({BY_DURATION: ref("duration")}, (BY_DURATION,))],
            "description": "Where reading begins without a committed offset.",
        },
        "partitions": {"type": "integer", "minimum": 1, "description": "Used when streamkit creates the topic."},
        "replication_factor": {"type": "integer", "minimum": -1, "description": "-1: the broker's default."},
        "config": {**topic_config(), "description": "Settings of the topic."},
    }
    schema = object_of({name: optional(option) for name, option in options.items()})
    return {"anyOf": [schema, {"type": "null"}]}


def _generator() -> Schema:
    late = object_of({"part": {"type": "number", "minimum": 0, "maximum": 1}, "by": ref("duration")}, ("part", "by"))
    options = {
        "key": ref("expression", "The key of a record; the default is null."),
        "value": ref("expression", "The value of a record."),
        "every": ref("duration", "The time between two records; the default is 1s."),
        "count": {
            "type": "integer",
            "minimum": 0,
            "description": "The number of records; unlimited by default.",
        },
        "late": {**late, "description": "The fraction of late records, and their maximum delay."},
    }
    return object_of({name: optional(option) for name, option in options.items()}, ("value",))


def _custom_store() -> Schema:
    options: Schema = {"type": one_of_words(IN_FILE), "key": ref("serde"), "value": ref("serde")}
    options |= {flag: {"type": "boolean"} for flag in ("persistent", "caching", "logging")}
    options |= {length: ref("duration") for length in STORE_DURATIONS}
    options["config"] = {**topic_config(), "description": "Settings of the changelog's topic."}
    return object_of({name: optional(option) for name, option in options.items()}, ("type",))


def build(
    operators: Mapping[str, StepDeclaration], added: Iterable[str] = (), macros: Mapping[str, Macro] | None = None
) -> Schema:
    """Return the schema of files with these steps. added: the names of further serdes.

    macros: the macros of the file that the schema is for; None: the schema is for any file.
    """

    def entries(name: str, description: str) -> Schema:
        schema = {"type": "object", "additionalProperties": ref(name)}
        return optional({**schema, "description": description} if description else schema)

    properties: Schema = {
        "streamkit": {"description": "The version of the language.", "const": 1},
        "application": {
            **ref("name"),
            "description": "application.id: the consumer group, and prefix of internal topics.",
        },
        "description": optional({"type": "string", "description": "Free text."}),
        "include": optional(
            {
                "anyOf": [{"type": "string"}, {"type": "array", "items": {"type": "string"}}],
                "description": "Files with further config, topics, functions, stores and macros.",
            }
        ),
        "config": optional(_config()),
        "defaults": optional(object_of({"key": optional(ref("serde")), "value": optional(ref("serde"))})),
        "topics": entries("topic", "Every external topic that the file reads or writes."),
        "functions": entries("function", "Functions for expressions, by name."),
        "stores": entries("customStore", "Stores for custom processors."),
        "macros": entries("macro", "Steps with parameters, which pipelines use as steps."),
        "pipelines": {"description": "Pipelines, built in file order."},
        "generators": entries("generator", "Generators of test data for topics, by the topics' entries."),
    }
    definitions = _definitions(operators, added)
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        "title": "streamkit topology, version 1",
        **object_of(properties, ("streamkit", "application")),
        "if": {"anyOf": [{"required": ["macros"]}, {"required": ["include"]}]},
        "then": {"properties": {"pipelines": entries("pipeline.macros", "")}},
        "else": {"properties": {"pipelines": entries("pipeline", "")}},
        "$defs": {**definitions, **_macro_definitions(definitions, operators, macros)},
    }


def with_plugins(macros: Mapping[str, Macro] | None = None) -> Schema:
    """Return the schema with the steps and serdes of installed plugins, and the macros of a file."""
    return build(STEPS, plugins.load(plugins.SERDES), macros)


def keep(path: Path, schema: Schema, module: str, arguments: list[str]) -> int:
    """Write a schema to its file, or with `--check` compare it; return the exit code.

    module: the module that writes the schema, for messages.
    """
    if arguments not in ([], ["--check"]):
        print(f"usage: python -m {module} [--check]", file=sys.stderr)
        return UsageError.exit_code
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
    """Write the schema, or compare it with `--check`; return the exit code.

    `--plugins` prints it with the additions of installed plugins, `--macros FILE` also with the macros of a file and of the
    files that it includes.
    """
    if arguments[:1] == ["--macros"] and len(arguments) == 2:
        try:
            macros = load(arguments[1]).macros
        except StreamkitError as error:
            print(error, file=sys.stderr)
            return error.exit_code
        print(json.dumps(with_plugins(macros), indent=1, ensure_ascii=False))
        return 0
    if arguments == ["--plugins"]:
        print(json.dumps(with_plugins(), indent=1, ensure_ascii=False))
        return 0
    return keep(PATH, build(OPERATORS), "streamkit.spec.topology_schema", arguments)


# The JSON Schemas of steps' options: one for each kind of field, and their common parts.

Schema: TypeAlias = dict[str, Document]
"""A JSON Schema, or the schemas of an object's properties."""
VARIABLE: Schema = {"type": "string", "pattern": r"^\$\{.*\}$"}
CALLABLE = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$"


def ref(name: str, description: str = "") -> Schema:
    """Return a reference to a definition, with a separate description."""
    return {"$ref": f"#/$defs/{name}", **({"description": description} if description else {})}


def object_of(properties: Schema, required: tuple[str, ...] = (), description: str = "") -> Schema:
    schema: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        schema["required"] = list(required)
    if description:
        schema["description"] = description
    return schema


def optional(schema: Schema) -> Schema:
    """Return the schema of an option, which may also be null or a variable."""
    description = {"description": schema["description"]} if "description" in schema else {}
    inner = {key: value for key, value in schema.items() if key != "description"}
    return {**description, "anyOf": [inner, {"type": "null"}, VARIABLE]}


def one_of_words(words: tuple[str, ...]) -> Schema:
    return {"enum": list(words)}


def _ref_of(kind: fields.PipelineRef) -> Schema:
    one = {"anyOf": [ref("pipelineReference"), ref("inlineSource")]}
    return {"anyOf": [one, {"type": "array", "items": one, "minItems": 1}]} if kind.many else one


def _cogroup_input() -> Schema:
    return object_of({"from": ref("pipelineReference"), "add": ref("expression")}, ("from", "add"))


FIELD_SCHEMAS: dict[type, Callable[[Any], Schema]] = {
    fields.Expr: lambda kind: ref("expression"),
    fields.SerdeField: lambda kind: ref("serde"),
    fields.Text: lambda kind: ref("name") if kind.kafka_name else {"type": "string"},
    fields.Duration: lambda kind: ref("duration"),
    fields.SignedDuration: lambda kind: ref("signedDuration"),
    fields.Integer: lambda kind: {"type": "integer", "minimum": kind.minimum},
    fields.Fraction: lambda kind: {"type": "number", "minimum": 0, "maximum": 1},
    fields.Choice: lambda kind: one_of_words(kind.words),
    fields.Flag: lambda kind: {"type": "boolean"},
    fields.TopicConfig: lambda kind: topic_config(),
    fields.DurationOr: lambda kind: {"anyOf": [one_of_words(kind.words), ref("duration")]},
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
    fields.Arguments: lambda kind: {"type": "object"},
    fields.CacheField: lambda kind: object_of(
        {"size": {"type": "integer", "minimum": 1}, "ttl": optional(ref("duration"))}, ("size",)
    ),
}


def operator_schema(operator: StepDeclaration) -> Schema:
    """Return the schema of a step's options, and of its short forms."""
    options: Schema = {}
    for field in operator.fields:
        options[field.name] = optional(
            {**FIELD_SCHEMAS[type(field.kind)](field.kind), "description": without_links(field.doc)}
        )
    if isinstance(operator, Operator):
        options["on_error"] = optional(ref("onError", "What happens to records at which the step fails."))
    required = tuple(field.name for field in operator.fields if field.required)
    main = next((field for field in operator.fields if field.name == operator.main), None)
    if main is not None and main.name != "call" and "call" in options:
        others = tuple(name for name in required if name != main.name)
        either = [{"required": [main.name]}, {"required": ["call"]}]
        forms = [{**object_of(options, others), "anyOf": either}]
    else:
        forms = [object_of(options, required)]
    if main is not None:
        forms.append(FIELD_SCHEMAS[type(main.kind)](main.kind))
        if isinstance(main.kind, fields.Integer | fields.Fraction | fields.Duration | fields.DurationOr):
            forms.append(VARIABLE)
    if not required:
        forms.append({"type": "null"})
    return {"description": without_links(getattr(operator, "summary", operator.name)), "anyOf": forms}


def topic_config() -> Schema:
    return {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean", "array", "null"]}}


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
