"""JSON whose values are validated by a JSON Schema, when they are read and when they are written."""

from __future__ import annotations

import json
from functools import partial

from streamkit.errors import SerdeError
from streamkit.expressions.types import (
    ANY,
    BOOLEAN,
    INTEGER,
    NOTHING,
    NUMBER,
    TEXT,
    ListOf,
    MapOf,
    Record,
    Type,
    one_of,
)
from streamkit.record import Value
from streamkit.serdes.formats.json_text import from_text, to_text
from streamkit.serdes.plain import Document, Json
from streamkit.serdes.registry import Read, Schema
from streamkit.serdes.schema_serde import SchemaSerde

_SCALARS = {"string": TEXT, "integer": INTEGER, "number": NUMBER, "boolean": BOOLEAN, "null": NOTHING}


class JsonSchema(Schema):
    """The bytes are the same as with the json serde."""

    kind = "JSON"
    form = "json_schema"
    extra = "json-schema"

    def prepare(self) -> None:
        try:
            from jsonschema.validators import validator_for
            from referencing import Registry, Resource
            from referencing.jsonschema import DRAFT202012
        except ImportError as error:
            raise self.missing(error) from error
        try:
            schema = json.loads(self.text)
            kind = validator_for(schema)
            kind.check_schema(schema)
            parts = [
                (part.name, Resource.from_contents(json.loads(part.text), default_specification=DRAFT202012))
                for part in self.parts
            ]
        except Exception as error:
            reason = str(error).partition("\n")[0]
            raise SerdeError(f"not a JSON Schema: {reason}") from error
        self._validator = kind(schema, registry=Registry().with_resources(parts))
        self.name = schema.get("title") if isinstance(schema, dict) else None
        self.type = _Types(schema).of(schema, self.name or "the object")

    def encode(self, value: Value) -> bytes:
        # The size is checked first, because validation visits a shared part once for each reference.
        data = to_text(value)
        self._check(value)
        return data

    def reader(self, written: Schema) -> Read:
        check = self._check

        def decode(data: bytes, start: int) -> Value:
            value = from_text(data[start:] if start else data)
            if value is not None:
                check(value)
            return value

        return decode

    def _check(self, value: Value) -> None:
        problem = next(self._validator.iter_errors(value), None)
        if problem is not None:
            raise SerdeError(f"the value does not fit: {problem.json_path}: {problem.message}")

    def to_json(self, value: Document) -> Document:
        return value

    def from_json(self, data: Json) -> Value:
        return data


_OPEN = ("patternProperties", "allOf", "anyOf", "oneOf", "if", "dependentSchemas", "$dynamicRef", "$recursiveRef")


class _Types:
    """Derives the types of fields from a schema; ANY if it has keywords that this class does not interpret."""

    def __init__(self, root: Json):
        self.root = root
        self.known: dict[str, Type] = {}

    def of(self, schema: Json, name: str) -> Type:
        """Return the type of a part of the schema; `name` is the name of its object in messages."""
        if not isinstance(schema, dict) or any(word in schema for word in _OPEN):
            return ANY
        if "$ref" in schema:
            return self._referred(schema["$ref"]) if len(schema) == 1 else ANY
        kind = schema.get("type")
        if isinstance(kind, list):
            return one_of(self.of({**schema, "type": choice}, name) for choice in kind)
        if kind == "array":
            return ListOf(self.of(schema.get("items"), name)) if "prefixItems" not in schema else ANY
        if kind != "object":
            return _SCALARS.get(kind, ANY) if isinstance(kind, str) else ANY
        properties = schema.get("properties", {})
        others = schema.get("additionalProperties", True)
        if not properties and isinstance(others, dict):
            return MapOf(self.of(others, name))
        fields = {field: self.of(inner, field) for field, inner in properties.items()}
        return Record(name, fields, closed=others is False)

    def _referred(self, reference: str) -> Type:
        if reference not in self.known:
            self.known[reference] = ANY  # for a schema that refers to itself
            self.known[reference] = self.of(_local(reference, self.root), reference.rpartition("/")[2])
        return self.known[reference]


def _local(reference: str, root: Json) -> Json:
    if not reference.startswith("#/"):
        return None
    schema = root
    for step in reference[2:].split("/"):
        schema = schema.get(step) if isinstance(schema, dict) else None
    return schema


make_json_schema = partial(SchemaSerde, JsonSchema)
"""Return the serde of `{json_schema: FILE}` or `{json_schema: {…}}`. Raises SerdeError."""
