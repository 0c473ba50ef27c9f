"""JSON whose values are checked against a JSON Schema file, when they are read and when they are written."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from streamkit.errors import SerdeError
from streamkit.serdes.files import SchemaSerde
from streamkit.serdes.json_text import from_text, to_text


class JsonSchemaSerde(SchemaSerde):
    """`{json_schema: FILE}`: the bytes of the json serde."""

    form = "json_schema"
    extra = "json-schema"

    def prepare(self, path: Path) -> None:
        try:
            from jsonschema.validators import validator_for
        except ImportError as error:
            raise self.missing(error) from error
        try:
            schema = json.loads(path.read_text(encoding="utf-8"))
            kind = validator_for(schema)
            kind.check_schema(schema)
        except Exception as error:
            reason = str(error).partition("\n")[0]
            raise SerdeError(f"serde json_schema: {path.name} is not a JSON Schema: {reason}") from error
        self._validator = kind(schema)

    def _checked(self, value: Any) -> Any:
        problem = next(self._validator.iter_errors(value), None)
        if problem is not None:
            where = problem.json_path
            raise SerdeError(
                f"serde json_schema: the value does not fit {self.spec['json_schema']}: {where}: {problem.message}"
            )
        return value

    def encode(self, value: Any) -> bytes:
        return to_text(self._checked(value))

    def decode(self, data: bytes) -> Any:
        value = from_text(data)
        return None if value is None else self._checked(value)

    def to_json(self, value: Any) -> Any:
        return value

    def from_json(self, data: Any) -> Any:
        return data
