"""Avro, Protobuf and JSON Schema by files: bytes, plain data, refusals, other versions of a schema, what types they give."""

from __future__ import annotations

import json
import math
import pickle
import re
from pathlib import Path
from typing import Any

import pytest

from streamkit import serdes
from streamkit.errors import SerdeError
from streamkit.expressions.helpers import merge, merge_in_python
from streamkit.expressions.types import ANY, TEXT, ListOf, MapOf, Record, member
from streamkit.serdes.formats.avro import AvroSchema, UnionRecord
from streamkit.serdes.formats.json_schema import JsonSchema
from streamkit.serdes.formats.protobuf import ProtobufSchema, _compiled
from streamkit.serdes.plain import plain
from streamkit.serdes.registry import Registry, Stored
from streamkit.serdes.serde import Binding, Serde


def round_trip(serde: Serde, value: Any) -> Any:
    again = pickle.loads(pickle.dumps(serde))
    assert again == serde
    assert hash(again) == hash(serde)
    assert serde.from_json(json.loads(json.dumps(serde.to_json(value)))) == value
    assert serde.to_json(None) is None
    assert serde.from_json(None) is None
    return again.decode(serde.encode(value))


# -- Avro --

USER = {
    "type": "record",
    "name": "User",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "name", "type": ["null", "string"]},
        {"name": "raw", "type": "bytes"},
    ],
}


def avro(folder: Path, schema: Any, **more: Any) -> Serde:
    (folder / "a.avsc").write_text(schema if isinstance(schema, str) else json.dumps(schema, indent=2))
    return serdes.parse({"avro": {"file": "a.avsc", **more} if more else "a.avsc"}, str(folder))


def test_avro_writes_what_its_file_allows(tmp_path: Path) -> None:
    serde = avro(tmp_path, USER)
    value = {"id": 1, "name": "Ann", "raw": b"\x01"}
    assert serde.encode(value) == b"\x02\x02\x06Ann\x02\x01"
    assert round_trip(serde, value) == value
    for wrong in ({"id": "x"}, {**value, "more": 1}, {"name": "Ann"}, 5):
        with pytest.raises(SerdeError, match=r"serde avro \(a.avsc\): the value does not fit"):
            serde.encode(wrong)
    with pytest.raises(SerdeError, match="do not decode"):
        serde.decode(b"\x02")
    with pytest.raises(SerdeError, match="too many"):
        serde.decode(serde.encode(value) + b"x")


@pytest.mark.parametrize("text", ['{"type": "nothing"}', "{", "[1]"])
def test_no_avro_schema(tmp_path: Path, text: str) -> None:
    with pytest.raises(SerdeError, match=r"serde avro \(a.avsc\): not an Avro schema"):
        avro(tmp_path, text)


@pytest.mark.parametrize(
    ("schema", "value", "data"),
    [
        ({"type": "long", "logicalType": "timestamp-millis"}, 1_700_000_000_000, None),
        ({"type": "long", "logicalType": "timestamp-micros"}, -5, "09"),
        ({"type": "long", "logicalType": "local-timestamp-millis"}, 5, "0a"),
        ({"type": "int", "logicalType": "time-millis"}, 86_399_999, None),
        ({"type": "int", "logicalType": "date"}, "1970-01-02", "02"),
        ({"type": "int", "logicalType": "date"}, "1969-12-31", "01"),
        ({"type": "int", "logicalType": "date"}, "0001-01-01", None),
        ({"type": "string", "logicalType": "uuid"}, "123e4567-e89b-12d3-a456-426614174000", None),
        ({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}, "1.28", "040080"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}, "-1.28", "0280"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 5, "scale": 2}, "0.00", "0200"),
        ({"type": "bytes", "logicalType": "decimal", "precision": 5}, "12345", None),
        ({"type": "fixed", "name": "F", "size": 4, "logicalType": "decimal", "precision": 5, "scale": 1}, "-0.1", "ffffffff"),
        ({"type": "bytes", "logicalType": "of-tomorrow"}, b"x", "0278"),
        (["null", {"type": "int", "logicalType": "date"}], "2024-02-29", None),
        (["null", {"type": "bytes", "logicalType": "decimal", "precision": 3, "scale": 1}], "9.5", None),
        ({"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 2}, "-" + 36 * "9" + ".99", None),
        ({"type": "bytes", "logicalType": "decimal", "precision": 38, "scale": 37}, "1." + 36 * "0" + "1", None),
        ({"type": "enum", "name": "E", "symbols": ["A", "B"]}, "B", "02"),
    ],
)  # fmt: skip
def test_logical_types_are_plain_data(tmp_path: Path, schema: Any, value: Any, data: str | None) -> None:
    serde = avro(tmp_path, schema)
    assert round_trip(serde, value) == value
    if data is not None:
        assert serde.encode(value).hex() == data


@pytest.mark.parametrize(
    ("value", "text"), [(1.5, "1.50"), (2, "2.00"), ("3.1", "3.10"), ("1e1", "10.00"), (-0.25, "-0.25")]
)
def test_numbers_become_decimals(tmp_path: Path, value: Any, text: str) -> None:
    serde = avro(tmp_path, {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2})
    assert serde.decode(serde.encode(value)) == text


@pytest.mark.parametrize("value", ["1.234", 0.001, "x", "100.00", "1e3", 10**30, "NaN", "Infinity", True, None])
def test_no_decimal(tmp_path: Path, value: Any) -> None:
    serde = avro(tmp_path, {"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2})
    with pytest.raises(SerdeError):
        serde.encode(value)


def test_logical_types_of_fastavro_stay_as_they_are(tmp_path: Path) -> None:
    import datetime
    import io

    import fastavro

    avro(tmp_path, {"type": "int", "logicalType": "date"}).encode("2024-01-01")
    buffer = io.BytesIO(b"\x02")
    schema = fastavro.parse_schema({"type": "int", "logicalType": "date"})
    assert fastavro.schemaless_reader(buffer, schema, None) == datetime.date(1970, 1, 2)


def test_another_version_of_an_avro_schema() -> None:
    old = AvroSchema(json.dumps(USER))
    fields = [
        {"name": "id", "type": "double"},
        {"name": "city", "type": "string", "default": "?"},
        {"name": "nick", "aliases": ["name"], "type": ["null", "string"]},
    ]
    new = AvroSchema(json.dumps({**USER, "fields": fields}))
    written = old.encode({"id": 1, "name": "Ann", "raw": b""})
    assert new.reader(old)(written, 0) == {"id": 1.0, "city": "?", "nick": "Ann"}
    assert new.reader(old)(b"12345" + written, 5) == {"id": 1.0, "city": "?", "nick": "Ann"}
    unfit = AvroSchema(json.dumps({**USER, "fields": [{"name": "id", "type": "string"}]}))
    with pytest.raises(SerdeError, match="do not decode"):
        unfit.reader(old)(written, 0)


def test_fields_with_a_default_may_be_absent(tmp_path: Path) -> None:
    serde = avro(tmp_path, {**USER, "fields": [{"name": "n", "type": "int", "default": 7}]})
    assert serde.decode(serde.encode({})) == {"n": 7}


DEFAULTS = {
    "bytes": ("bytes", "\u00ff", b"\xff"),
    "fixed": ({"type": "fixed", "name": "F", "size": 1}, "\u00ff", b"\xff"),
    "double": ("double", "Infinity", math.inf),
    "date": ({"type": "int", "logicalType": "date"}, 1, "1970-01-02"),
    "decimal": ({"type": "bytes", "logicalType": "decimal", "precision": 4, "scale": 2}, "\u0001", "0.01"),
    "union": (["null", "bytes"], "\u00ff", b"\xff"),
    "array": ({"type": "array", "items": "bytes"}, ["\u00ff"], [b"\xff"]),
    "map": ({"type": "map", "values": "bytes"}, {"a": "\u00ff"}, {"a": b"\xff"}),
    "record": (
        {"type": "record", "name": "Inner", "fields": [{"name": "m", "type": "bytes", "default": "\u00ff"}]},
        {},
        {"m": b"\xff"},
    ),
}


@pytest.mark.parametrize("kind", DEFAULTS)
def test_a_default_has_the_form_of_a_value_that_was_read(kind: str) -> None:
    type_, default, value = DEFAULTS[kind]
    old = AvroSchema(json.dumps({"type": "record", "name": "R", "fields": []}))
    new = AvroSchema(json.dumps({**fields(), "fields": [{"name": "n", "type": type_, "default": default}]}))
    assert new.reader(old)(b"", 0) == {"n": value}
    assert new.reader(new)(new.encode({}), 0) == {"n": value}


def test_a_record_may_be_changed_without_a_change_of_its_schemas_default() -> None:
    old = AvroSchema(json.dumps(fields(a="int")))
    tags = {"name": "tags", "type": {"type": "array", "items": "string"}, "default": []}
    read = AvroSchema(json.dumps({**fields(), "fields": [{"name": "a", "type": "int"}, tags]})).reader(old)
    read(b"\x02", 0)["tags"].append("changed")
    assert read(b"\x02", 0) == {"a": 1, "tags": []}


def fields(**types: Any) -> dict[str, Any]:
    return {"type": "record", "name": "R", "fields": [{"name": name, "type": type_} for name, type_ in types.items()]}


DATE = {"type": "int", "logicalType": "date"}


@pytest.mark.parametrize(
    ("type_", "wrong", "expected"),
    [
        ("null", [0, False, "", []], "null"),
        ("boolean", ["false", 0, 1, None, [], 1.0], "true or false"),
        ("int", [2.5, 2.0, True, 2**31, -(2**31) - 1, "1", None], "a whole number of 32 bits"),
        ("long", [2.9999999, 2.0, False, 2**63, -(2**63) - 1, "1", None, math.nan], "a whole number of 64 bits"),
        ({"type": "long", "logicalType": "timestamp-millis"}, [1.5, "1970-01-01"], "a whole number of 64 bits"),
        (DATE, [2.5, True, 2**31, None], "a date"),
        ("float", [3e307, -3.5e38, 10**400, "1.5", "NaN", True, None], "a number within the range of a float"),
        ("double", ["1.5", "Infinity", False, b"1", None], "a number"),
        ("string", [1, b"x", None, ["x"]], "text"),
        ("bytes", ["x", [1], 1, None], "bytes"),
        ({"type": "array", "items": "string"}, ["abc", b"ab", {"a": 1}, {"a"}, None], "a list"),
        ({"type": "array", "items": "int"}, [b"ab", bytearray(b"ab")], "a list"),
        ({"type": "map", "values": "int"}, [[], "", [("a", 1)], None], "an object"),
        ({"type": "record", "name": "Empty", "fields": []}, [[], "", b"", ()], "an object"),
        (["null", "float"], [3e307, -3e307], "a number within the range of a float"),
        (["null", {"type": "array", "items": "int"}], [b"ab", "ab"], "a list"),
        ([{"type": "array", "items": "int"}, "bytes"], [b"ab"], r"of one type of its union \(array, bytes\)"),
        (["float", "string"], [3e307, None], r"of one type of its union \(float, string\)"),
    ],
)
def test_avro_writes_no_value_of_another_type(type_: Any, wrong: list[Any], expected: str) -> None:
    schema = AvroSchema(json.dumps(fields(n=type_)))
    for value in wrong:
        with pytest.raises(SerdeError, match=rf"^the value does not fit: n must be {expected}, not "):
            schema.encode({"n": value})


@pytest.mark.parametrize(
    ("type_", "value", "data"),
    [
        ("float", 3.4028235e38, "ffff7f7f"),
        ("float", math.inf, "0000807f"),
        ("float", -math.inf, "000080ff"),
        ("float", math.nan, "0000c07f"),
        ("float", 2, "00000040"),
        ("double", 1e300, "9c7500883ce4377e"),
        ("double", 2, "0000000000000040"),
        ("int", -(2**31), "ffffffff0f"),
        ("long", 2**63 - 1, "feffffffffffffffff01"),
        (DATE, 3, "06"),
        ({"type": "array", "items": "int"}, (1, 2), "04020400"),
        (["null", {"type": "array", "items": "string"}], ("string", "b"), "02040c737472696e67026200"),
        (["float", "double"], 1e300, "029c7500883ce4377e"),
        (["double", "float"], 1e300, "009c7500883ce4377e"),
        (["bytes", {"type": "array", "items": "int"}], b"x", "000278"),
        ([{"type": "map", "values": "double"}, fields(x="float")], {"x": 1e300}, "000202789c7500883ce4377e00"),
    ],
)
def test_avro_writes_what_fits(type_: Any, value: Any, data: str) -> None:
    assert AvroSchema(json.dumps(type_)).encode(value).hex() == data


def test_avro_refuses_a_record_whose_type_in_a_union_would_lose_its_value() -> None:
    small, large = fields(x="float"), {**fields(x="double"), "name": "Large"}
    schema = AvroSchema(json.dumps([small, large]))
    assert schema.encode({"x": 1.5}).hex() == "000000c03f"
    with pytest.raises(SerdeError, match=r"of one type of its union \(record, record\)"):
        schema.encode({"x": 1e300})


SMALL = {"type": "record", "name": "Small", "namespace": "shop", "fields": [{"name": "x", "type": "int"}]}
LIKE = {**SMALL, "name": "Like"}
WIDE = {
    **SMALL,
    "name": "Wide",
    "fields": [*SMALL["fields"], {"name": "y", "type": ["null", "int"], "default": None}],
}


@pytest.mark.parametrize(
    ("type_", "data"),
    [
        ([SMALL, LIKE], "0202"),
        ([SMALL, WIDE], "020200"),
        ([SMALL, WIDE], "02020202"),
        ([SMALL, LIKE, WIDE], "0002"),
        ([{"type": "map", "values": "int"}, SMALL], "0202"),
        ([{"type": "map", "values": "int"}, SMALL], "000202780200"),
        (fields(n=["null", SMALL, LIKE]), "0402"),
        (fields(n={"type": "array", "items": [SMALL, LIKE]}), "040002020200"),
        (fields(n={"type": "map", "values": ["null", SMALL, LIKE]}), "02026b040200"),
    ],
)
def test_avro_writes_a_record_of_a_union_as_the_type_of_which_it_was_read(type_: Any, data: str) -> None:
    """Such as the events of a topic: a filter, a store or `merge` must not turn one into another with the same fields."""
    schema = AvroSchema(json.dumps(type_))
    value = pickle.loads(pickle.dumps(schema.reader(schema)(bytes.fromhex(data), 0)))
    assert schema.encode(value).hex() == data
    if isinstance(value, UnionRecord):
        assert schema.encode(merge(value, {})) == schema.encode(merge_in_python(value, {})) == bytes.fromhex(data)
    else:
        assert schema.encode(json.loads(json.dumps(value))) is not None


def test_an_object_of_a_union_is_written_to_other_schemas() -> None:
    read = AvroSchema(json.dumps([SMALL, LIKE]))
    value = read.reader(read)(bytes.fromhex("0202"), 0)
    assert value == {"x": 1}
    assert plain(value) == {"x": 1}
    assert AvroSchema(json.dumps([WIDE, LIKE])).encode(value).hex() == "0202"
    for other, data in ((LIKE, "02"), ({"type": "map", "values": "int"}, "02027802" + "00"), ([SMALL], "0002")):
        assert AvroSchema(json.dumps(other)).encode(value).hex() == data


def test_the_place_of_what_does_not_fit() -> None:
    node = {
        "type": "record",
        "name": "Node",
        "fields": [
            {"name": "n", "type": "int", "default": 1},
            {"name": "next", "type": ["null", "Node"], "default": None},
            {"name": "tags", "type": {"type": "map", "values": {"type": "array", "items": "long"}}, "default": {}},
        ],
    }
    schema = AvroSchema(json.dumps(node))
    for value, place in (
        ({"n": 1.5}, "n must"),
        ({"next": {"next": {"n": "x"}}}, r"next\.next\.n must"),
        ({"tags": {"a": [1], "b": [1, 2.5]}}, r"tags\['b'\]\[1\] must"),
        (5, "it must be an object, not 5"),
    ):
        with pytest.raises(SerdeError, match=f"^the value does not fit: {place}"):
            schema.encode(value)
    deep: Any = {}
    for _ in range(480):
        deep = {"next": deep}
    assert schema.reader(schema)(schema.encode(deep), 0)["next"]["n"] == 1


def test_avro_schemas_refer_to_others(tmp_path: Path) -> None:
    (tmp_path / "user.avsc").write_text(json.dumps(USER))
    order = {"type": "record", "name": "Order", "fields": [{"name": "by", "type": "shop.User"}]}
    serde = avro(tmp_path, order, references=["user.avsc"])
    value = {"by": {"id": 1, "name": None, "raw": b""}}
    assert round_trip(serde, value) == value
    assert member(member(serde.type, "by"), "name") is TEXT  # type: ignore[arg-type]
    with pytest.raises(SerdeError, match=r"no type 'shop.User' in it; name the file"):
        avro(tmp_path, order)
    (tmp_path / "user.avsc").write_text('"string"')
    with pytest.raises(SerdeError, match="no named Avro schema"):
        avro(tmp_path, order, references=["user.avsc"])


def test_types_of_avro() -> None:
    node = {
        "type": "record",
        "name": "Node",
        "fields": [
            {"name": "next", "type": ["null", "Node"]},
            {"name": "tags", "type": {"type": "map", "values": "string"}},
            {"name": "children", "type": {"type": "array", "items": "Node"}},
        ],
    }
    type_ = AvroSchema(json.dumps(node)).type
    assert isinstance(type_, Record)
    assert member(type_, "next") is type_
    assert isinstance(type_.fields["tags"], MapOf)
    assert isinstance(type_.fields["children"], ListOf)
    assert type_.fields["children"].item is type_
    assert member(type_, "prev") is None


# -- JSON Schema --


def test_json_schema_writes_what_its_file_allows(tmp_path: Path) -> None:
    (tmp_path / "user.json").write_text(
        '{"type": "object", "required": ["id"], "properties": {"id": {"type": "integer"}}}'
    )
    serde = serdes.parse({"json_schema": "user.json"}, str(tmp_path))
    assert serde.encode({"id": 1}) == b'{"id":1}'
    assert round_trip(serde, {"id": 1, "x": [None]}) == {"id": 1, "x": [None]}
    assert serde.decode(b"null") is None
    with pytest.raises(SerdeError, match=r"serde json_schema \(user.json\).*'id' is a required"):
        serde.encode({})
    with pytest.raises(SerdeError, match="not of type 'integer'"):
        serde.decode(b'{"id":"a"}')
    (tmp_path / "bad.json").write_text('{"type": "nothing"}')
    with pytest.raises(SerdeError, match="not a JSON Schema"):
        serdes.parse({"json_schema": "bad.json"}, str(tmp_path))


def test_json_schemas_refer_to_others(tmp_path: Path) -> None:
    (tmp_path / "city.json").write_text('{"type": "string", "minLength": 2}')
    (tmp_path / "user.json").write_text('{"type": "object", "properties": {"city": {"$ref": "city.json"}}}')
    serde = serdes.parse({"json_schema": {"file": "user.json", "references": ["city.json"]}}, str(tmp_path))
    assert round_trip(serde, {"city": "Rome"}) == {"city": "Rome"}
    with pytest.raises(SerdeError, match="too short"):
        serde.encode({"city": "R"})


@pytest.mark.parametrize(
    ("schema", "field", "known"),
    [
        ({"type": "object", "properties": {"a": {}}, "additionalProperties": False}, "b", False),
        ({"type": "object", "properties": {"a": {}}, "additionalProperties": False}, "a", True),
        ({"type": "object", "properties": {"a": {}}}, "b", True),
        ({"type": "object", "additionalProperties": {"type": "string"}}, "b", True),
        ({"type": "object", "additionalProperties": False, "patternProperties": {"^b": {}}}, "b", True),
        ({"type": ["object", "null"], "additionalProperties": False}, "b", False),
        ({"$ref": "#/$defs/x", "$defs": {"x": {"type": "object", "additionalProperties": False}}}, "b", True),
        ({"allOf": [{"type": "object"}], "type": "object", "additionalProperties": False}, "b", True),
        ({"$ref": "#"}, "b", True),
        ({"type": "string"}, "b", False),
        (True, "b", True),
    ],
)
def test_types_of_json_schema(schema: Any, field: str, known: bool) -> None:
    assert (member(JsonSchema(json.dumps(schema)).type, field) is not None) is known


def test_types_of_json_schema_follow_references() -> None:
    inner = {"type": "object", "properties": {"again": {"$ref": "#/$defs/x"}}, "additionalProperties": False}
    schema = {"type": "array", "items": {"$ref": "#/$defs/x"}, "$defs": {"x": inner}}
    type_ = JsonSchema(json.dumps(schema)).type
    assert isinstance(type_, ListOf)
    assert member(type_.item, "agian") is None
    assert member(type_.item, "again") is ANY


# -- Protobuf --

PROTO = """
syntax = "proto3";
package shop;
import "google/protobuf/timestamp.proto";
enum Kind { NONE = 0; BIG = 1; }
message Part { string name = 1; }
message Order {
  message Line { int32 pieces = 1; }
  int64 id = 1;
  repeated Part parts = 2;
  map<string, double> prices = 3;
  Kind kind = 4;
  Part main = 5;
  optional bool open = 6;
  bytes raw = 7;
  repeated int32 numbers = 8;
  oneof pay { string card = 9; Part voucher = 10; }
  google.protobuf.Timestamp at = 11;
  map<string, Part> named = 12;
}
"""
ORDER = {
    "id": 2**60,
    "parts": [{"name": "a"}, {"name": "b"}],
    "prices": {"x": 1.5},
    "kind": "BIG",
    "main": None,
    "open": False,
    "raw": b"\x00",
    "numbers": [1, 2],
    "card": "",
    "voucher": None,
    "at": {"seconds": 5, "nanos": 0},
    "named": {"x": {"name": "y"}},
}


def test_protobuf_writes_what_its_file_allows(tmp_path: Path) -> None:
    (tmp_path / "order.proto").write_text(PROTO)
    serde = serdes.parse({"protobuf": "order.proto", "message": "Order"}, str(tmp_path))
    assert round_trip(serde, ORDER) == ORDER
    assert serde.encode({"id": 1}) == b"\x08\x01"
    assert serde.decode(b"")["kind"] == "NONE"
    assert serdes.parse({"protobuf": "order.proto"}, str(tmp_path)).decode(b"\n\x01a") == {"name": "a"}
    for name in ("Order.Line", "shop.Order.Line"):
        line = serdes.parse({"protobuf": {"file": "order.proto", "message": name}}, str(tmp_path))
        assert line.decode(line.encode({"pieces": 3})) == {"pieces": 3}
    with pytest.raises(SerdeError):
        serde.decode(b"\xff")


@pytest.mark.parametrize(
    ("value", "message"),
    [
        ({"idd": 1}, "Order has no field 'idd'; did you mean 'id'?"),
        ({"parts": [{"nam": "x"}]}, "Part has no field 'nam'; did you mean 'name'?"),
        ({"kind": "BIGG"}, "Kind has no value 'BIGG'; did you mean 'BIG'?"),
        ({"id": "x"}, "the value does not fit Order"),
        ({"parts": [1]}, "an object is expected, not int"),
        (1, "an object is expected, not int"),
    ],
)
def test_values_that_are_no_message(value: Any, message: str) -> None:
    with pytest.raises(SerdeError) as failed:
        ProtobufSchema(PROTO, (), "Order").encode(value)
    assert message in str(failed.value)


SCALARS = """
syntax = "proto3";
message Item {
  int32 small = 1; int64 large = 2; float ratio = 3; double amount = 4; bool open = 5; string name = 6; bytes raw = 7;
  repeated float ratios = 8; repeated string names = 9; map<string, float> prices = 10; map<bool, int32> counts = 11;
}
"""


@pytest.mark.parametrize(
    ("name", "wrong"),
    [
        ("small", [2.0, True, 2**31, "1"]),
        ("large", [2.5, False, 2**63]),
        ("ratio", [1e300, -1e39, 10**400, "1.5", True]),
        ("amount", [10**400, "1.5", False]),
        ("open", [0, 2, 2**70, "false", 1.0]),
        ("name", [b"x", 1]),
        ("raw", ["x", [1]]),
        ("ratios", [[1e300], b"x", {1: 2}, [True]]),
        ("names", ["abc", {"a": 1}, [b"x"]]),
        ("prices", [{"a": 1e300}, [], {1: 1.5}]),
        ("counts", [{1: 1}, {"true": 1}]),
    ],
)
def test_protobuf_writes_no_value_of_another_type(name: str, wrong: list[Any]) -> None:
    schema = ProtobufSchema(SCALARS)
    for value in wrong:
        with pytest.raises(SerdeError, match="the value does not fit Item: "):
            schema.encode({name: value})


def test_protobuf_writes_one_member_of_a_oneof() -> None:
    """The library keeps the last one that is set: the new value would be lost if its field came first."""
    schema = ProtobufSchema(
        'syntax = "proto3"; message Paid { oneof how { string card = 1; string cash = 2; } optional int32 n = 3; }'
    )
    read = schema.reader(schema)(schema.encode({"cash": "b", "n": 0}), 0)
    assert read == {"card": None, "cash": "b", "n": 0}
    assert schema.reader(schema)(schema.encode({**read, "cash": None, "card": "a"}), 0)["card"] == "a"
    with pytest.raises(
        SerdeError, match=r"'cash' and 'card' are both set; at most one field of the oneof how may be set"
    ):
        schema.encode({**read, "card": "a"})


def test_protobuf_writes_the_ends_of_numbers() -> None:
    schema = ProtobufSchema(SCALARS)
    value = {
        "small": -(2**31),
        "large": 2**63 - 1,
        "ratio": math.inf,
        "amount": 3,
        "counts": {True: 1},
        "ratios": (3.4028235e38,),
    }
    read = schema.reader(schema)(schema.encode(value), 0)
    assert {name: read[name] for name in value} == {**value, "ratios": [3.4028234663852886e38]}
    with pytest.raises(SerdeError, match=r"Item\.ratio must be a number within the range of a float, not 1e\+300"):
        schema.encode({"ratio": 1e300})


def test_no_protobuf_schema(tmp_path: Path) -> None:
    (tmp_path / "order.proto").write_text(PROTO)
    with pytest.raises(SerdeError, match=r"no message 'X'; it has: Part, Order"):
        serdes.parse({"protobuf": "order.proto", "message": "X"}, str(tmp_path))
    (tmp_path / "bad.proto").write_text('syntax = "proto3";\nmessage A { strin a = 1; }')
    with pytest.raises(SerdeError, match=r'serde protobuf \(bad.proto\): not a Protobuf schema: 2:13: "strin" is not'):
        serdes.parse({"protobuf": "bad.proto"}, str(tmp_path))
    (tmp_path / "far.proto").write_text('syntax = "proto3"; import "absent.proto"; message A { string a = 1; }')
    with pytest.raises(SerdeError, match=r"absent.proto"):
        serdes.parse({"protobuf": "far.proto"}, str(tmp_path))


def test_protobuf_files_import_others(tmp_path: Path) -> None:
    (tmp_path / "deep").mkdir()
    (tmp_path / "deep" / "city.proto").write_text('syntax = "proto3"; message City { string name = 1; }')
    (tmp_path / "user.proto").write_text('syntax = "proto3"; import "deep/city.proto"; message User { City city = 1; }')
    (tmp_path / "team.proto").write_text(
        'syntax = "proto3";\nimport public "user.proto";\nimport "deep/city.proto";\nmessage Team { repeated User users = 1; City at = 2; }'
    )
    serde = serdes.parse({"protobuf": "team.proto"}, str(tmp_path))
    value = {"users": [{"city": {"name": "Rome"}}], "at": {"name": "Oslo"}}
    assert round_trip(serde, value) == value


def test_the_path_of_a_message_in_its_file() -> None:
    assert ProtobufSchema(PROTO).lead == b"\0"
    assert ProtobufSchema(PROTO, (), "Order").lead == b"\x02\x02"
    assert ProtobufSchema(PROTO, (), "Order.Line").lead == b"\x04\x02\x00"
    schema = ProtobufSchema(PROTO, (), "Order")
    read = schema.framed_reader(ProtobufSchema(PROTO))
    data = schema.encode({"id": 5})
    assert read(b"\x02\x02" + data, 0)["id"] == 5
    for path, message in (
        (b"\0", "shop.Part, not a shop.Order"),
        (b"\x02\x08", "no message at"),
        (b"\x80", "breaks off"),
    ):
        with pytest.raises(SerdeError, match=message):
            read(path + data, 0)
    first = ProtobufSchema(PROTO).framed_reader(ProtobufSchema(PROTO))
    # Some writers spell the first message out.
    assert first(b"\x02\x00\n\x01a", 0) == {"name": "a"}
    assert first(b"\0\n\x01a", 0) == {"name": "a"}


@pytest.mark.parametrize(
    ("theirs", "ours", "value", "read"),
    [
        ("int32 a = 1;", "int64 a = 1;", {"a": -1}, {"a": -1}),
        ("int32 a = 1;", "repeated int32 a = 1;", {"a": 7}, {"a": [7]}),
        ("string a = 1; int32 b = 2;", "bytes a = 1;", {"a": "x"}, {"a": b"x"}),
        ("int64 a = 1;", "int32 a = 1;", {"a": 2**40}, "M.a is int64 there, int32 here"),
        ("string a = 1;", "int32 a = 1;", {"a": "x"}, "M.a is string there, int32 here"),
        ("int32 a = 1;", "sint32 a = 1;", {"a": 5}, "M.a is int32 there, sint32 here"),
        ("repeated int32 a = 1;", "int32 a = 1;", {"a": [1, 2]}, "M.a is a list there, not here"),
        ("map<string, int64> a = 1;", "map<string, int32> a = 1;", {"a": {"k": 1}}, "value is int64 there, int32 here"),
    ],
)
def test_a_protobuf_record_of_another_version_is_read_as_it_was_written_or_refused(theirs, ours, value, read) -> None:
    writer, reader = (ProtobufSchema(f'syntax = "proto3"; message M {{ {fields} }}') for fields in (theirs, ours))
    data = writer.lead + writer.encode(value)
    if isinstance(read, str):
        with pytest.raises(SerdeError, match=re.escape(read)):
            reader.framed_reader(writer)(data, 0)
    else:
        assert reader.framed_reader(writer)(data, 0) == read


def test_protobuf_writes_no_message_without_a_required_field() -> None:
    with pytest.raises(SerdeError, match=r"it has no b, which is required"):
        ProtobufSchema('syntax = "proto2"; message M { optional int32 a = 1; required int32 b = 2; }').encode({"a": 7})


def test_a_protobuf_schema_of_several_topics_is_compiled_once(tmp_path: Path) -> None:
    (tmp_path / "p.proto").write_text(
        'syntax = "proto3"; message Shared { int64 a = 1; } message Other { int64 b = 1; }'
    )
    before = _compiled.cache_info().misses
    for message in ("Shared", "Other", "Shared"):
        serde = serdes.parse({"protobuf": {"file": "p.proto", "message": message}}, str(tmp_path))
        pickle.loads(pickle.dumps(serde))
    assert _compiled.cache_info().misses == before + 1


def test_types_of_protobuf() -> None:
    type_ = ProtobufSchema(PROTO, (), "Order").type
    assert member(type_, "idd") is None
    parts, named = member(type_, "parts"), member(type_, "named")
    assert isinstance(parts, ListOf)
    assert member(parts.item, "name") is TEXT
    assert isinstance(named, MapOf)
    assert member(named.value, "name") is TEXT


# -- Schemas of subjects --

VERSIONS = {
    "avro": [json.dumps(fields(a="int")), json.dumps(fields(b={"type": "string"}, a="int"))],
    "protobuf": [f'syntax = "proto3"; message R {{ int64 a = 1; {more} }}' for more in ("", "string b = 2;")],
    "json_schema": ['{"type": "object"}', '{"type": "object", "required": ["b"]}'],
}
KINDS = {"avro": AvroSchema, "protobuf": ProtobufSchema, "json_schema": JsonSchema}


class Growing(Registry):
    """Has the first version of a subject, and the second one after the first request; each version has its number as id."""

    asked = 0

    def of_subject(self, subject: str, version: int | None = None) -> Stored:
        Growing.asked += 1
        return self.by_id(min(Growing.asked, 2))

    def by_id(self, number: int) -> Stored:
        form = self.settings["form"]
        return Stored(number, KINDS[form].kind, VERSIONS[form][number - 1])


@pytest.mark.parametrize("form", VERSIONS)
def test_all_topics_of_a_subject_get_the_id_of_the_schema_that_encodes(
    form: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(Growing, "asked", 0)
    registry = Growing({"form": form})
    serde = serdes.parse({form: {"subject": "s"}})
    first, later = (serde.bind(Binding(registry, topic, False)) for topic in ("first", "later"))
    data = first.encode({"a": 1})
    assert first.decode(data) == {"a": 1}
    again = pickle.loads(pickle.dumps(later))
    for each in (later, again):
        assert each.encode({"a": 1}) == data
        assert each.decode(data) == {"a": 1}
    assert data[:5] == b"\0\0\0\0\x01"
