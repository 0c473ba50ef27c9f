"""The JSON Schemas of steps' options: one for each kind of field, and their common parts."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeAlias

from streamkit.operators.core import fields
from streamkit.operators.core.operator import AnyOperator
from streamkit.serdes.plain import Json
from streamkit.spec.documents.markdown import without_links

Schema: TypeAlias = dict[str, Json]
"""A JSON Schema, or the schemas of an object's properties."""
VARIABLE: Schema = {"type": "string", "pattern": r"^\$\{.*\}$"}
CALLABLE = r"^[A-Za-z_]\w*(\.[A-Za-z_]\w*)*:[A-Za-z_]\w*(\.[A-Za-z_]\w*)*$"


def ref(name: str, description: str = "") -> Schema:
    """Return a reference to a definition, with a description of its own."""
    return {"$ref": f"#/$defs/{name}", **({"description": description} if description else {})}


def object_of(properties: Schema, required: tuple[str, ...] = (), description: str = "") -> Schema:
    found: Schema = {"type": "object", "properties": properties, "additionalProperties": False}
    if required:
        found["required"] = list(required)
    if description:
        found["description"] = description
    return found


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


def operator_schema(operator: AnyOperator) -> Schema:
    """Return the schema of a step's options, and of its short forms."""
    options: Schema = {}
    for field in operator.fields:
        options[field.name] = optional(
            {**FIELD_SCHEMAS[type(field.kind)](field.kind), "description": without_links(field.doc)}
        )
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
    if not required:
        forms.append({"type": "null"})
    return {"description": without_links(getattr(operator, "summary", operator.name)), "anyOf": forms}


def topic_config() -> Schema:
    return {"type": "object", "additionalProperties": {"type": ["string", "number", "boolean", "array", "null"]}}
