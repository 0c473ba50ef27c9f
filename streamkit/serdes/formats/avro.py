"""Avro: values are objects, lists and scalars by the schema (JSON, .avsc); logical types become plain data."""

from __future__ import annotations

import io
import json
from datetime import date
from decimal import MAX_PREC, Context, Decimal, InvalidOperation
from functools import cache
from pathlib import Path
from typing import Any

from streamkit.errors import SerdeError
from streamkit.expressions.types import (
    ANY,
    BOOLEAN,
    BYTES,
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
from streamkit.serdes.formats.avro_values import DATE, DECIMAL, AvroValues
from streamkit.serdes.plain import Document, Json
from streamkit.serdes.registry import Part, Read, Schema
from streamkit.serdes.schema_serde import SchemaSerde
from streamkit.serdes.serde import Serde
from streamkit.serdes.size import check_size, check_value

RAW = frozenset(f"{local}timestamp-{unit}" for local in ("", "local-") for unit in ("millis", "micros", "nanos")) | {
    "time-millis",
    "time-micros",
    "uuid",
}
"""Logical types whose value is that of the underlying type: whole numbers, such as event times, and text."""
_EXACT = Context(prec=MAX_PREC)
"""Python's own context rounds to 28 digits."""
OWN = {"date": DATE, "decimal": DECIMAL}
"""Logical types that become text, by their names in schemas."""
_EPOCH = date(1970, 1, 1).toordinal()
_SCALARS = {
    "null": NOTHING, "boolean": BOOLEAN, "int": INTEGER, "long": INTEGER, "float": NUMBER, "double": NUMBER,
    "bytes": BYTES, "string": TEXT,
}  # fmt: skip


class AvroSchema(Schema):
    """A schema in JSON; the values of its records are objects."""

    kind = "AVRO"
    form = "avro"
    extra = "avro"

    def prepare(self) -> None:
        try:
            library = _library()
        except ImportError as error:
            raise self.missing(error) from error
        named: dict[str, Json] = {}
        try:
            for part in self.parts:
                library.parse_schema(_prepared(json.loads(part.text)), named_schemas=named)
            given = json.loads(self.text)
            # Compact as Java's clients write it, so that a registry holds one schema and not two.
            self.text = json.dumps(given, separators=(",", ":"), ensure_ascii=False)
            self._schema = library.parse_schema(_prepared(given), named_schemas=named)
        except library.schema.UnknownType as error:
            reason = f"there is no type {error.name!r} in it; name the file that has it in 'references'"
            raise SerdeError(f"not an Avro schema: {reason}") from error
        except Exception as error:
            raise SerdeError(f"not an Avro schema: {error or type(error).__name__}") from error
        self._write, self._read = library.schemaless_writer, library.schemaless_reader
        self.name = self._schema.get("name") if isinstance(self._schema, dict) else None
        self.type = _type(self._schema, named, {})
        values = AvroValues(self._schema, named)
        self._fits, self._misfit = values.fits, values.misfit

    def needed_by(self, text: str) -> list[str]:
        return [part.name for part in self.parts if part.text != text and f'"{part.name}"' in text]

    @classmethod
    def read_parts(cls, path: Path, text: str, references: list[str], folder: str) -> tuple[Part, ...]:
        parts = super().read_parts(path, text, references, folder)
        return tuple(part._replace(name=_full_name(part)) for part in parts)

    def encode(self, value: Value) -> bytes:
        check_value(value)
        buffer = io.BytesIO()
        try:
            fits = self._fits(value)
            if fits:
                # Tuples are lists here as in all serdes, not fastavro's notation for a type of a union.
                self._write(buffer, self._schema, value, strict_allow_default=True, disable_tuple_notation=True)
        except Exception as error:
            raise SerdeError(f"the value does not fit: {error or type(error).__name__}") from error
        if not fits:
            raise SerdeError(f"the value does not fit: {self._misfit(value)}")
        return check_size(buffer.getvalue())

    def reader(self, written: Schema) -> Read:
        assert isinstance(written, AvroSchema)
        theirs = written._schema
        ours = None if written == self else self._schema
        read, buffer_of = self._read, io.BytesIO

        def decode(data: bytes, start: int) -> Value:
            buffer = buffer_of(data)
            buffer.seek(start)
            try:
                value = read(buffer, theirs, ours)
            except Exception as error:
                raise SerdeError(f"the bytes do not decode: {error!r}") from error
            if buffer.tell() != len(data):
                raise SerdeError(f"{len(data) - buffer.tell()} bytes too many")
            return value

        return decode


@cache
def _library() -> Any:
    import fastavro

    for base in ("bytes", "fixed"):
        fastavro.read.LOGICAL_READERS[f"{base}-{DECIMAL}"] = _read_decimal
        fastavro.write.LOGICAL_WRITERS[f"{base}-{DECIMAL}"] = _write_decimal
    fastavro.read.LOGICAL_READERS[f"int-{DATE}"] = _read_date
    fastavro.write.LOGICAL_WRITERS[f"int-{DATE}"] = _write_date
    return fastavro


def _full_name(part: Part) -> str:
    try:
        schema = json.loads(part.text)
        space = schema.get("namespace")
        return schema["name"] if not space or "." in schema["name"] else f"{space}.{schema['name']}"
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise SerdeError(f"serde avro: the reference {part.name} is no named Avro schema") from error


def _prepared(schema: Json) -> Json:
    """Return a schema with the logical types that expressions use for values."""
    if isinstance(schema, list):
        return [_prepared(each) for each in schema]
    if not isinstance(schema, dict):
        return schema
    made = {
        name: _prepared(each) if name in ("type", "items", "values", "fields") else each
        for name, each in schema.items()
    }
    logical = made.get("logicalType")
    if logical in RAW:
        del made["logicalType"]
    elif logical in OWN and isinstance(made.get("type"), str):
        made["logicalType"] = OWN[logical]
    return made


def _read_date(days: int, *_: object) -> str:
    return date.fromordinal(days + _EPOCH).isoformat()


def _write_date(value: Value, *_: object) -> Value:
    return date.fromisoformat(value).toordinal() - _EPOCH if isinstance(value, str) else value


def _read_decimal(data: bytes, schema: Document, *_: object) -> str:
    number = Decimal(int.from_bytes(data, "big", signed=True))
    return f"{number.scaleb(-schema.get('scale', 0), _EXACT):f}"


def _write_decimal(value: Value, schema: Document, *_: object) -> Value:
    if isinstance(value, bool) or not isinstance(value, (str, int, float, Decimal)):
        return value
    try:
        number = Decimal(str(value))
    except InvalidOperation as error:
        raise ValueError(f"{value!r} is no decimal number") from error
    scaled = number.scaleb(schema.get("scale", 0), _EXACT) if number.is_finite() else number
    if (
        not number.is_finite()
        or scaled != scaled.to_integral_value()
        or (scaled and scaled.adjusted() >= _places(schema))
    ):
        raise ValueError(
            f"{value} is no decimal of {schema.get('precision')} digits, {schema.get('scale', 0)} of them behind the point"
        )
    unscaled = int(scaled)
    size = schema.get("size") or (unscaled + (unscaled < 0)).bit_length() // 8 + 1
    return unscaled.to_bytes(size, "big", signed=True)


def _places(schema: Document) -> int:
    return int(schema.get("precision", 1 << 30))


def _type(schema: Document, named: dict[str, Json], seen: dict[str, Record]) -> Type:
    if isinstance(schema, list):
        return one_of(_type(each, named, seen) for each in schema)
    if isinstance(schema, str):
        return _SCALARS.get(schema) or (_type(named[schema], named, seen) if schema in named else ANY)
    kind = schema.get("type")
    if schema.get("logicalType") in OWN.values():
        return TEXT
    if kind in ("record", "error"):
        if schema["name"] not in seen:
            seen[schema["name"]] = record = Record(schema["name"], {})
            record.fields.update((each["name"], _type(each["type"], named, seen)) for each in schema["fields"])
        return seen[schema["name"]]
    if kind == "array":
        return ListOf(_type(schema["items"], named, seen))
    if kind == "map":
        return MapOf(_type(schema["values"], named, seen))
    if kind in ("enum", "fixed"):
        return TEXT if kind == "enum" else BYTES
    return _type(kind, named, seen)


def make_avro(spec: dict[str, Json], folder: str) -> Serde:
    """Return the serde of `{avro: FILE}` or `{avro: {…}}`. Raises SerdeError."""
    return SchemaSerde(AvroSchema, spec, folder)
