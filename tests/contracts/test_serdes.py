"""One suite for every serde: what the runtime relies on, whatever the format."""

from __future__ import annotations

import contextlib
import json
import pickle
import sys
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest

from streamkit import serdes
from streamkit.code import symbol
from streamkit.errors import SerdeError
from streamkit.record import WindowedKey
from streamkit.serdes.registry import Registry
from streamkit.serdes.serde import Binding, Serde

AVRO = {
    "type": "record",
    "name": "R",
    "fields": [{"name": "id", "type": "long"}, {"name": "b", "type": ["null", "bytes"]}],
}
PROTO = 'syntax = "proto3"; message First { int32 a = 1; } message R { int64 id = 1; optional bytes b = 2; }'


class Case(NamedTuple):
    """A serde's spec, a value of it, and one that it refuses."""

    spec: Any
    value: Any
    wrong: Any


ROW = {"id": 2**40, "b": b"\x00\xff"}
CASES = {
    "string": Case("string", "ä€", 1),
    "bytes": Case("bytes", b"\x00\xff", "a"),
    "boolean": Case("boolean", True, 1),
    "short": Case("short", -2, 2**15),
    "integer": Case("integer", 2**31 - 1, 2**31),
    "long": Case("long", -(2**63), "1"),
    "float": Case("float", 1.5, "1"),
    "double": Case("double", -0.1, None),
    "uuid": Case("uuid", "123e4567-e89b-12d3-a456-426614174000", "x"),
    "json": Case("json", {"b": 1, "a": ["ä", None, 1.5]}, {1, 2}),
    "lines": Case("lines", ["a", "", "ä"], "a"),
    "csv": Case({"csv": {"fields": {"id": "long", "t": "string"}}}, {"id": 5, "t": 'a,"'}, {"x": 1}),
    "windowed": Case({"windowed": "string", "size": 5}, WindowedKey("a", 1, 6), "a"),
    "session_windowed": Case({"session_windowed": {"avro": "r.avsc"}}, WindowedKey(ROW, 1, 9), WindowedKey(1, 1, 2)),
    "avro": Case({"avro": "r.avsc"}, ROW, {"idd": 1}),
    "protobuf": Case({"protobuf": "r.proto", "message": "R"}, ROW, {"idd": 1}),
    "json_schema": Case({"json_schema": "r.json"}, {"id": 1}, {"id": "x"}),
}
FRAMED = [name for name in CASES if name in ("avro", "protobuf", "json_schema", "session_windowed")]


@pytest.fixture(params=[*CASES, *(f"{name} of a registry" for name in FRAMED)])
def case(request: pytest.FixtureRequest, tmp_path: Path) -> tuple[Serde, Case]:
    (tmp_path / "r.avsc").write_text(json.dumps(AVRO))
    (tmp_path / "r.proto").write_text(PROTO)
    (tmp_path / "r.json").write_text('{"type": "object", "properties": {"id": {"type": "integer"}}}')
    name, _, framed = request.param.partition(" of ")
    serde = serdes.parse(CASES[name].spec, str(tmp_path))
    return (serde.bind(binding("topic")) if framed else serde), CASES[name]


def test_a_format_is_one_module_and_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    module = ModuleType("streamkit.serdes.formats.upper_text")
    module.make_upper = lambda spec, folder: (spec, folder)  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, module.__name__, module)
    monkeypatch.setitem(serdes.FORMATS, "upper", serdes.Format("upper_text"))
    assert serdes.parse("upper", "here") == ("upper", "here")
    assert "upper" in serdes.names()


def binding(topic: str | None) -> Binding:
    """For an application whose registry takes nothing and learns in this process only."""
    registry = Registry({"schema.registry.url": ("http://127.0.0.1:1",)})
    registry.start_dry_run()
    return Binding(registry, topic, True)


def test_values_come_back(case: tuple[Serde, Case]) -> None:
    serde, (_, value, _) = case
    data = serde.encode(value)
    assert type(data) is bytes
    assert serde.decode(data) == value
    assert serde.encode(serde.decode(data)) == data


def test_values_have_a_json_form(case: tuple[Serde, Case]) -> None:
    serde, (_, value, _) = case
    assert serde.from_json(json.loads(json.dumps(serde.to_json(value)))) == value
    assert serde.to_json(None) is None
    assert serde.from_json(None) is None


def test_it_is_data(case: tuple[Serde, Case]) -> None:
    serde, (spec, value, _) = case
    again = pickle.loads(pickle.dumps(serde))
    assert again == serde
    assert hash(again) == hash(serde)
    assert again.spec == serde.spec == spec
    assert again.decode(again.encode(value)) == value
    assert [other for other in ("void", {"windowed": "void", "size": 1}) if serde == serdes.parse(other)] == []


def test_refusals_are_one_kind_of_error(case: tuple[Serde, Case]) -> None:
    serde, (_, _, wrong) = case
    with pytest.raises(SerdeError) as refused:
        serde.encode(wrong)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("data", [1, -1.5, True, "zz", "1", [], [1], {}, {"a": 1}], ids=repr)
def test_json_of_another_form_is_read_or_refused(case: tuple[Serde, Case], data: object) -> None:
    with contextlib.suppress(SerdeError):
        case[0].from_json(data)


@pytest.mark.parametrize("data", [b"", b"\x00", b"\xff\xfe", b"zz", b"{", b"1" * 40], ids=repr)
def test_other_bytes_are_decoded_or_refused(case: tuple[Serde, Case], data: bytes) -> None:
    with contextlib.suppress(SerdeError):
        case[0].decode(data)


def test_inline_code_does_what_the_methods_do(case: tuple[Serde, Case]) -> None:
    serde, (_, value, _) = case
    data = serde.encode(value)
    assert [name for name in serde.inline_globals if not name.startswith("_s_")] == []
    names = {"v": value, "b": data, **serde.inline_globals}
    v, b = symbol("v"), symbol("b")
    write, read, same = serde.encode_source(v), serde.decode_source(b), serde.canonical_source(b)
    assert write is None or eval(write.source, names) == data
    assert read is None or eval(read.source, names) == value
    assert same is None or not eval(same.source, names) or serde.encode(serde.decode(data)) == data


def test_only_serdes_of_a_registry_differ_by_topic(case: tuple[Serde, Case]) -> None:
    serde, (_, value, _) = case
    alone = Binding(None, "other", True)
    plain = serde.bind(alone)
    assert plain.bind(alone) == plain
    assert plain.on_topic("third", True) == plain
    assert plain.decode(plain.encode(value)) == value
    here, there, nowhere = (plain.bind(binding(topic)) for topic in ("here", "there", None))
    assert (here == there) is (here == plain)
    assert nowhere.by_topic is (here != plain)
    assert nowhere.on_topic("here", True) == here
