"""Avro: values are objects, lists and scalars by the schema (JSON, .avsc); logical types become plain data."""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import date
from decimal import MAX_PREC, Context, Decimal, InvalidOperation
from functools import cache, partial
from numbers import Integral, Real
from pathlib import Path
from typing import Any, TypeGuard, cast

from streamkit.code import (
    CONDITION,
    Code,
    all_of,
    any_of,
    assigned,
    attribute,
    binary,
    call,
    compare,
    is_none,
    literal,
    method,
    negated,
    symbol,
)
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
from streamkit.record import Operand, Value
from streamkit.serdes.plain import Document, Json, shown
from streamkit.serdes.registry import Part, Read, Schema
from streamkit.serdes.schema_serde import SchemaSerde
from streamkit.serdes.size import check_size, check_value

RAW = frozenset(f"{local}timestamp-{unit}" for local in ("", "local-") for unit in ("millis", "micros", "nanos")) | {
    "time-millis",
    "time-micros",
    "uuid",
}
"""Logical types whose value is that of the underlying type: whole numbers, such as event times, and text."""
_EXACT = Context(prec=MAX_PREC)
"""Python's own context rounds to 28 digits."""
DATE, DECIMAL = "streamkit-date", "streamkit-decimal"
"""Logical types that become text. Their names are streamkit's own, since fastavro's converters apply to the whole process."""
OWN = {"date": DATE, "decimal": DECIMAL}
"""Logical types that become text, by their names in schemas."""
_EPOCH = date(1970, 1, 1).toordinal()
_SCALARS = {
    "null": NOTHING, "boolean": BOOLEAN, "int": INTEGER, "long": INTEGER, "float": NUMBER, "double": NUMBER,
    "bytes": BYTES, "string": TEXT,
}  # fmt: skip


class UnionRecord(dict[str, Value]):
    """A record of a union as it was read: an object that keeps the full name of its type, so that it is written as the same type."""

    __slots__ = ("type_name",)
    type_name: str

    def copy(self) -> UnionRecord:
        """Return a copy of the same type; `merge` begins with it."""
        return _union_record(self.type_name, self)


def _union_record(name: str, fields: Mapping[str, Value]) -> UnionRecord:
    record = UnionRecord(fields)
    record.type_name = name
    return record


def _with_types(value: Value) -> Value:
    """Return a copy of what fastavro has read, with UnionRecords in place of records with names, which are those in unions."""
    if isinstance(value, tuple):
        name, fields = value
        return _union_record(name, {field: _with_types(item) for field, item in fields.items()})
    if isinstance(value, dict):
        return {name: _with_types(item) for name, item in value.items()}
    return [_with_types(item) for item in value] if isinstance(value, list) else value


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
            schema = json.loads(self.text)
            # Compact as Java's clients write it, so that a registry holds one schema and not two.
            self.text = json.dumps(schema, separators=(",", ":"), ensure_ascii=False)
            self._schema = library.parse_schema(_prepared(schema), named_schemas=named)
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
        self._typed = values.typed if values.has_choice(self._schema) else None
        self._shares_defaults = values.decode_defaults()

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
                # Tuples are lists here as in all serdes, not fastavro's notation for a type of a union, unless it is needed.
                typed = self._typed
                noted = value if typed is None else typed(self._schema, value)
                self._write(
                    buffer, self._schema, noted, strict_allow_default=True, disable_tuple_notation=typed is None
                )
        except Exception as error:
            raise SerdeError(f"the value does not fit: {error or type(error).__name__}") from error
        if not fits:
            raise SerdeError(f"the value does not fit: {self._misfit(value)}")
        return check_size(buffer.getvalue())

    def reader(self, written: Schema) -> Read:
        assert isinstance(written, AvroSchema)
        theirs = written._schema
        ours = None if written == self else self._schema
        read, buffer_of, typed = self._read, io.BytesIO, self._typed is not None
        # fastavro gives all records the same default object, which a step may change in place.
        copies = typed or (ours is not None and self._shares_defaults)

        def decode(data: bytes, start: int) -> Value:
            buffer = buffer_of(data)
            buffer.seek(start)
            try:
                value = read(buffer, theirs, ours, return_record_name=typed)
            except Exception as error:
                raise SerdeError(f"the bytes do not decode: {error!r}") from error
            if buffer.tell() != len(data):
                raise SerdeError(f"{len(data) - buffer.tell()} bytes too many")
            return _with_types(value) if copies else value

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
        return [_prepared(part) for part in schema]
    if not isinstance(schema, dict):
        return schema
    prepared = {
        name: _prepared(part) if name in ("type", "items", "values", "fields") else part
        for name, part in schema.items()
    }
    logical = prepared.get("logicalType")
    if logical in RAW:
        del prepared["logicalType"]
    elif logical in OWN and isinstance(prepared.get("type"), str):
        prepared["logicalType"] = OWN[logical]
    return prepared


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
        or (scaled and scaled.adjusted() >= int(schema.get("precision", 1 << 30)))
    ):
        raise ValueError(
            f"{value} is no decimal of {schema.get('precision')} digits, {schema.get('scale', 0)} of them behind the point"
        )
    unscaled = int(scaled)
    size = schema.get("size") or (unscaled + (unscaled < 0)).bit_length() // 8 + 1
    return unscaled.to_bytes(size, "big", signed=True)


def _type(schema: Document, named: dict[str, Json], seen: dict[str, Record]) -> Type:
    if isinstance(schema, list):
        return one_of(_type(choice, named, seen) for choice in schema)
    if isinstance(schema, str):
        return _SCALARS.get(schema) or (_type(named[schema], named, seen) if schema in named else ANY)
    kind = schema.get("type")
    if schema.get("logicalType") in OWN.values():
        return TEXT
    if kind in ("record", "error"):
        if schema["name"] not in seen:
            seen[schema["name"]] = record = Record(schema["name"], {})
            record.fields.update((field["name"], _type(field["type"], named, seen)) for field in schema["fields"])
        return seen[schema["name"]]
    if kind == "array":
        return ListOf(_type(schema["items"], named, seen))
    if kind == "map":
        return MapOf(_type(schema["values"], named, seen))
    if kind in ("enum", "fixed"):
        return TEXT if kind == "enum" else BYTES
    return _type(kind, named, seen)


make_avro = partial(SchemaSerde, AvroSchema)
"""Return the serde of `{avro: FILE}` or `{avro: {…}}`. Raises SerdeError."""


# Which values fit an Avro schema.


_RANGES = {"int": (-(2**31), 2**31 - 1), "long": (-(2**63), 2**63 - 1)}
_BEYOND_FLOAT = float(2**128 - 2**103)
"""The least number that becomes infinite in 32 bits."""
_EXPECTED = {
    "null": "null",
    "boolean": "true or false",
    "int": "a whole number of 32 bits",
    "long": "a whole number of 64 bits",
    "float": "a number within the range of a float",
    "double": "a number",
    "string": "text",
    "bytes": "bytes",
    "fixed": "bytes",
    "enum": "text",
    "array": "a list",
    "map": "an object",
    "record": "an object",
    "error": "an object",
}
_RECORDS = ("record", "error")
_OBJECTS = (*_RECORDS, "map")
"""The types whose values are objects."""
_ABSENT = object()
_Test = Callable[[Value], bool]


def _is_integer(value: Value) -> bool:
    return isinstance(value, Integral) and not isinstance(value, bool)


def _is_number(value: Value) -> bool:
    return isinstance(value, Real) and not isinstance(value, bool)


def _is_sequence(value: Value) -> bool:
    return isinstance(value, Sequence) and not isinstance(value, str)


def _is_list(value: Value) -> TypeGuard[Sequence[Value]]:
    return _is_sequence(value) and not isinstance(value, (bytes, bytearray, memoryview))


_SCOPE = {
    **{test.__name__: test for test in (_is_integer, _is_number, _is_sequence, _is_list)},
    "_absent": _ABSENT,
    "_mapping": Mapping,
    "_bytes": (bytes, bytearray, memoryview),
    "_decimal": (str, int, float, Decimal, bytes, bytearray),
}


class AvroValues:
    """The values that fit a schema: `fits` is compiled from expressions of Python, one for each record and each type of items.

    There are two kinds of tests. A strict test is true for values that fit. A loose test is true for values that fastavro takes
    within a union.
    """

    def __init__(self, schema: Json, named: Mapping[str, Json]):
        """Compile the tests of a schema that fastavro has parsed. named: the types that it refers to, by their full names."""
        self._schema = schema
        self._named = named
        self._names: dict[tuple[object, bool], str] = {}
        self._sources: dict[str, str] = {}
        self._scope: dict[str, object] = dict(_SCOPE)
        self.fits = self._compiled(schema)

    def misfit(self, value: Value) -> str:
        """Return which part of a value does not fit, and what it must be."""
        return self._misfit(self._schema, value, "")

    # -- The types of records in unions --

    def has_choice(self, schema: Json, seen: set[str] | None = None) -> bool:
        """Return whether the schema has a union of several types whose values are objects."""
        seen = set() if seen is None else seen
        kind, inner = self._resolved(schema)
        if kind == "union":
            objects = [member for member in inner if self._resolved(member)[0] in _OBJECTS]
            return len(objects) > 1 or any(self.has_choice(member, seen) for member in inner)
        if _is_record(kind):
            if inner["name"] in seen:
                return False
            seen.add(inner["name"])
            return any(self.has_choice(field["type"], seen) for field in inner["fields"])
        return kind in ("array", "map") and self.has_choice(inner["items" if kind == "array" else "values"], seen)

    def typed(self, schema: Json, value: Value) -> Value:
        """Return a value that fits, with the type of each object in a union in fastavro's notation: a tuple of name and value."""
        kind, inner = self._resolved(schema)
        if kind == "union":
            member = self._member(inner, value)
            kind, inner = self._resolved(member)
            noted = self.typed(member, value)
            return (inner.get("name", kind), noted) if kind in _OBJECTS else noted
        if isinstance(value, Mapping):
            fields = {field["name"]: field["type"] for field in inner["fields"]} if _is_record(kind) else {}
            types = dict.fromkeys(value, inner["values"]) if kind == "map" else fields
            return {name: self.typed(types[name], item) if name in types else item for name, item in value.items()}
        return [self.typed(inner["items"], item) for item in value] if kind == "array" and _is_list(value) else value

    def _member(self, union: Sequence[Json], value: Value) -> Json:
        """Return the type of a union that a value is written as: that of which it was read, else the one that fastavro chooses."""
        fitting = [member for member in union if self._compiled(member)(value)]
        if not isinstance(value, Mapping):
            return fitting[0]
        types, shared = {}, {}
        for member in fitting:
            kind, inner = self._resolved(member)
            name = inner.get("name", kind)
            # Records are read with their types, so that any other object is a map.
            fields = {field["name"] for field in inner["fields"]} if _is_record(kind) else {kind, *value}
            types[name], shared[name] = member, len(fields & value.keys()) + (kind == "map")
        name = value.type_name if isinstance(value, UnionRecord) else ""
        return types[name if name in types else max(shared, key=lambda each: shared[each])]

    # -- Defaults --

    def decode_defaults(self) -> bool:
        """Give defaults, which schemas have as JSON, the form of values that were read; return whether any is a list or an object."""
        schemas = [inner for kind, inner in map(self._resolved, self._named.values()) if _is_record(kind)]
        fields = [field for record in schemas for field in record["fields"] if "default" in field]
        values = [self._default(field["type"], field["default"]) for field in fields]
        for field, value in zip(fields, values, strict=True):
            field["default"] = value
        return any(isinstance(value, (list, dict)) for value in values)

    def _default(self, schema: Json, value: Value) -> Value:
        kind, inner = self._resolved(schema)
        if kind == "union":
            # fastavro, like Avro since 1.12, takes a default of any type of a union.
            choices = [(member, self._default(member, value)) for member in inner]
            return next((choice for member, choice in choices if self._compiled(member)(choice)), value)
        if kind in ("bytes", "fixed") and isinstance(value, str):
            data = value.encode("latin-1", "replace")
            return _read_decimal(data, inner) if _logical(kind, inner) == DECIMAL else data
        if kind in ("float", "double") and (isinstance(value, int) or value in ("NaN", "Infinity", "-Infinity")):
            return float(value)
        if kind == "array" and isinstance(value, list):
            return [self._default(inner["items"], item) for item in value]
        if kind == "map" and isinstance(value, dict):
            return {name: self._default(inner["values"], item) for name, item in value.items()}
        if _is_record(kind) and isinstance(value, dict):
            given = {field["name"]: field["default"] for field in inner["fields"] if "default" in field} | value
            types = {field["name"]: field["type"] for field in inner["fields"]}
            return {name: self._default(types[name], item) for name, item in given.items() if name in types}
        return _read_date(value) if _logical(kind, inner) == DATE and isinstance(value, int) else value

    # -- The tests --

    def _compiled(self, schema: Json) -> _Test:
        return cast(_Test, self._scope[self._function(schema, strict=True)])

    def _function(self, schema: Json, strict: bool) -> str:
        """Return the name of the test of a schema, within the scope of all tests."""
        kind, schema = self._resolved(schema)
        # Names are known before the test is complete, as records may contain themselves.
        key = (_key(schema), strict)
        if key not in self._names:
            self._names[key] = name = f"_test_{len(self._scope)}"
            self._scope[name] = None
            value = symbol("v")
            test = self._record(schema, value, strict) if _is_record(kind) else self._test(schema, value, strict)
            self._sources[name] = source = f"lambda v: {test.at(CONDITION)}"
            self._scope[name] = eval(source, self._scope)
            same = self._names.get((key[0], True))
            if same is not None and self._sources.get(same) == source:
                self._names[key] = same
        return self._names[key]

    def _resolved(self, schema: Document) -> tuple[str, Document]:
        """Return the type of a schema, and the schema itself, looked up if it is a name."""
        while not isinstance(schema, list):
            kind = schema if isinstance(schema, str) else schema["type"]
            if isinstance(kind, str) and kind in _EXPECTED:
                return kind, schema
            schema = self._named[kind] if isinstance(kind, str) else kind
        return "union", schema

    def _test(self, schema: Json, value: Code, strict: bool) -> Code:
        kind, schema = self._resolved(schema)
        if kind == "union":
            return self._union(schema, value, strict)
        if kind in ("array", "map"):
            return self._items(kind, schema, value, strict)
        if _is_record(kind):
            return call(self._function(schema, strict), value)
        if _logical(kind, schema) == DECIMAL:
            return call("isinstance", value, symbol("_decimal"))
        if kind in _RANGES:
            low, high = map(literal, _RANGES[kind])
            test = all_of(_is_a(value, "int", "_is_integer"), compare(low, "<=", value, "<=", high))
            return any_of(test, _is_text(value)) if _logical(kind, schema) == DATE else test
        if kind in ("float", "double"):
            test = any_of(_class_is(value, "float"), _is_a(value, "int", "_is_number"))
            return all_of(test, _in_range(value)) if kind == "float" and strict else test
        if kind in ("bytes", "fixed"):
            return call("isinstance", value, symbol("_bytes"))
        return {"null": is_none, "boolean": _is_boolean}.get(kind, _is_text)(value)

    def _items(self, kind: str, schema: Document, value: Code, strict: bool) -> Code:
        items = value if kind == "array" else method(value, "values")
        test = symbol(self._function(schema["items" if kind == "array" else "values"], strict))
        if kind == "array":
            container = _is_a(value, "list", "_is_list" if strict else "_is_sequence")
        else:
            container = _is_mapping(value)
        return all_of(container, call("all", call("map", test, items)))

    def _record(self, schema: Document, value: Code, strict: bool) -> Code:
        tests = [_is_mapping(value)]
        absent = symbol("_absent")
        for field in schema["fields"]:
            # fastavro reads an absent field without a default as null, and reports it unless null fits.
            name = literal(field["name"])
            field_value = method(value, "get", name, absent) if "default" in field else method(value, "get", name)
            known = compare(assigned("f", field_value), "is", absent)
            tests.append(any_of(known, self._test(field["type"], symbol("f"), strict)))
        return all_of(*tests)

    def _union(self, schema: Document, value: Code, strict: bool) -> Code:
        """Return the test of a union. fastavro writes the first type that accepts the value, or the record with the most fields."""
        kinds = [self._resolved(member)[0] for member in schema]
        tests = [self._test(member, value, strict) for member in schema]
        # Beside null, no other type takes a value that this one takes.
        ambiguous = strict and len(schema) - kinds.count("null") > 1
        guards: list[Code] = []
        for at, kind in enumerate(kinds if ambiguous else ()):
            loose = self._test(schema[at], value, strict=False)
            # fastavro prefers double to float.
            if loose.source != tests[at].source and (kind != "float" or "double" not in kinds):
                before = [tests[i] for i in range(at) if kinds[i] in ("bytes", "fixed", "map")]
                guards.append(any_of(*before, tests[at], negated(loose)))
        return all_of(any_of(*tests), *guards)

    # -- Messages --

    def _misfit(self, schema: Document, value: Value, path: str) -> str:
        kind, schema = self._resolved(schema)
        for step, inner, part in self._parts(kind, schema, value):
            if not self._compiled(inner)(part):
                return self._misfit(inner, part, path + step)
        logical = {DATE: "a date", DECIMAL: "a decimal number"}.get(_logical(kind, schema) or "")
        kinds = [self._resolved(member)[0] for member in schema] if kind == "union" else []
        expected = logical or _EXPECTED.get(kind) or f"of one type of its union ({', '.join(kinds)})"
        return f"{path.removeprefix('.') or 'it'} must be {expected}, not {shown(value, 80)}"

    def _parts(self, kind: str, schema: Document, value: Operand) -> Iterator[tuple[str, Json, Value]]:
        if kind == "union":
            others = [member for member in schema if self._resolved(member)[0] != "null"]
            if len(others) == 1:
                yield "", others[0], value
        elif kind == "array" and _is_list(value):
            yield from ((f"[{number}]", schema["items"], item) for number, item in enumerate(value))
        elif kind == "map" and isinstance(value, Mapping):
            yield from ((f"[{name!r}]", schema["values"], item) for name, item in value.items())
        elif _is_record(kind) and isinstance(value, Mapping):
            for field in schema["fields"]:
                if field["name"] in value or "default" not in field:
                    yield f".{field['name']}", field["type"], value.get(field["name"])


def _key(schema: Json) -> object:
    """Return the key of a schema's test: the name of a record, else the schema itself, which its owner keeps alive."""
    if isinstance(schema, str):
        return schema
    return schema["name"] if isinstance(schema, dict) and "name" in schema else id(schema)


def _logical(kind: str, schema: Json) -> str | None:
    """Return DATE or DECIMAL if fastavro converts the schema's values."""
    logical = schema.get("logicalType") if isinstance(schema, dict) else None
    return logical if (logical, kind) in ((DATE, "int"), (DECIMAL, "bytes"), (DECIMAL, "fixed")) else None


def _is_record(kind: str) -> bool:
    return kind in _RECORDS


# Values of the exact class, which are nearly all, need no call.


def _class_is(value: Code, kind: str) -> Code:
    return compare(attribute(value, "__class__"), "is", symbol(kind))


def _is_a(value: Code, kind: str, test: str) -> Code:
    return any_of(_class_is(value, kind), call(test, value))


def _is_text(value: Code) -> Code:
    return any_of(_class_is(value, "str"), call("isinstance", value, symbol("str")))


def _is_boolean(value: Code) -> Code:
    return _class_is(value, "bool")


def _is_mapping(value: Code) -> Code:
    return any_of(_class_is(value, "dict"), call("isinstance", value, symbol("_mapping")))


def _in_range(value: Code) -> Code:
    """Return the test that a number is within the range of a float, infinite or NaN."""
    is_finite = compare(binary(value, "-", value), "==", literal(0))
    return any_of(compare(literal(-_BEYOND_FLOAT), "<", value, "<", literal(_BEYOND_FLOAT)), negated(is_finite))
