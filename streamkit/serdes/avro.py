"""Avro by a schema file: plain binary Avro, without the framing of a registry."""

from __future__ import annotations

import io
import json
from pathlib import Path
from typing import Any

from streamkit.errors import SerdeError
from streamkit.serdes.files import SchemaSerde


class AvroSerde(SchemaSerde):
    """`{avro: FILE}`: values are objects, lists and scalars as the schema (JSON, .avsc) says."""

    form = "avro"
    extra = "avro"

    def prepare(self, path: Path) -> None:
        try:
            import fastavro
        except ImportError as error:
            raise self.missing(error) from error
        try:
            self._schema = fastavro.parse_schema(json.loads(path.read_text(encoding="utf-8")))
        except Exception as error:
            raise SerdeError(f"serde avro: {path.name} is not an Avro schema: {error}") from error
        self._write, self._read = fastavro.schemaless_writer, fastavro.schemaless_reader

    def encode(self, value: Any) -> bytes:
        buffer = io.BytesIO()
        try:
            self._write(buffer, self._schema, value, strict=True)
        except Exception as error:
            raise SerdeError(f"serde avro: the value does not fit {self.spec['avro']}: {error}") from error
        return buffer.getvalue()

    def decode(self, data: bytes) -> Any:
        buffer = io.BytesIO(data)
        try:
            value = self._read(buffer, self._schema, None)
        except Exception as error:
            raise SerdeError(f"serde avro: the bytes are not of {self.spec['avro']}: {error!r}") from error
        if buffer.tell() != len(data):
            raise SerdeError(f"serde avro: {len(data) - buffer.tell()} bytes too many for {self.spec['avro']}")
        return value
