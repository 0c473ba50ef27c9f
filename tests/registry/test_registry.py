"""Serdes with a real schema registry: framing, subjects, versions, references, settings, and what goes wrong there."""

from __future__ import annotations

import http.server
import json
import pickle
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from uuid import uuid4

import pytest

from streamkit import serdes
from streamkit.errors import RegistryError, SerdeError
from streamkit.serdes.registry import Registry
from streamkit.serdes.serde import Binding, Serde
from tests.registry.server import SchemaRegistry

PROTO = (
    'syntax = "proto3"; package shop; message Part { string name = 1; } message Order { int64 id = 1; Part part = 2; }'
)
VALUES = [
    ("avro", {}, {"id": 7, "city": "Rome"}),
    ("protobuf", {"message": "Order"}, {"id": 7, "part": {"name": "x"}}),
    ("json_schema", {}, {"id": 7, "city": "Rome"}),
]


def record(name: str, *fields: dict[str, Any]) -> dict[str, Any]:
    return {"type": "record", "name": name, "namespace": "shop", "fields": list(fields)}


def name_of_test() -> str:
    return f"t{uuid4().hex[:8]}"


def connected(server: SchemaRegistry, **settings: Any) -> Registry:
    return Registry(
        {"schema.registry.url": (server.url,), **{name.replace("_", "."): settings[name] for name in settings}}
    )


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Schemas with a name that no other test uses, so that no test depends on what others registered."""
    name = name_of_test()
    fields = ({"name": "id", "type": "long"}, {"name": "city", "type": "string", "default": "?"})
    (tmp_path / "avro").write_text(json.dumps(record(name, *fields), indent=2))
    (tmp_path / "protobuf").write_text(PROTO.replace("package shop", f"package {name}"))
    properties = {"id": {"type": "integer"}, "city": {"type": "string"}}
    (tmp_path / "json_schema").write_text(json.dumps({"title": name, "type": "object", "properties": properties}))
    return tmp_path


def serde_of(folder: Path, form: str, more: dict[str, Any]) -> Serde:
    return serdes.parse({form: {"file": form, **more}}, str(folder))


@pytest.mark.parametrize(("form", "more", "value"), VALUES)
def test_framing(registry: SchemaRegistry, folder: Path, form: str, more: dict[str, Any], value: Any) -> None:
    plain, topic = serde_of(folder, form, more), name_of_test()
    serde = plain.bind(Binding(connected(registry), topic, False))
    data = serde.encode(value)
    number = registry.ask(f"subjects/{topic}-value/versions/latest")["id"]
    assert data[:5] == b"\0" + number.to_bytes(4, "big")
    lead = b"\x02\x02" if form == "protobuf" else b""
    assert data[5:] == lead + plain.encode(value)
    assert serde.decode(data) == value
    again = pickle.loads(pickle.dumps(serde))
    assert again == serde
    assert again.encode(value) == data
    by_subject = serdes.parse({form: {"subject": f"{topic}-value", **more}}).bind(
        Binding(connected(registry), "other", True)
    )
    assert by_subject.decode(data) == value
    assert by_subject.encode(value) == data
    assert by_subject.from_json(by_subject.to_json(value)) == value
    assert registry.versions("other-key") == []


@pytest.mark.parametrize(
    ("strategy", "is_key", "subject"),
    [
        ("TopicNameStrategy", False, "{topic}-value"),
        ("TopicNameStrategy", True, "{topic}-key"),
        ("RecordNameStrategy", False, "{record}"),
        ("TopicRecordNameStrategy", True, "{topic}-{record}"),
    ],
)
def test_subjects(registry: SchemaRegistry, folder: Path, strategy: str, is_key: bool, subject: str) -> None:
    topic, settings = name_of_test(), {f"{'key' if is_key else 'value'}_subject_name_strategy": strategy}
    serde = serde_of(folder, "avro", {}).bind(Binding(connected(registry, **settings), topic, is_key))
    serde.encode({"id": 1})
    full_name = f"shop.{json.loads((folder / 'avro').read_text())['name']}"
    assert registry.versions(subject.format(topic=topic, record=full_name)) == [1]


def test_values_of_all_versions_are_read_as_one(registry: SchemaRegistry, folder: Path) -> None:
    serde, topic = serde_of(folder, "avro", {}), name_of_test()
    bound = serde.bind(Binding(connected(registry), topic, False))
    name = json.loads((folder / "avro").read_text())["name"]
    for fields, value, read in (
        (({"name": "id", "type": "int"},), {"id": 1}, {"id": 1, "city": "?"}),
        (
            ({"name": "extra", "type": "string"}, {"name": "id", "type": "long"}, {"name": "city", "type": "string"}),
            {"extra": "x", "id": 2, "city": "Oslo"},
            {"id": 2, "city": "Oslo"},
        ),
    ):
        (folder / "other.avsc").write_text(json.dumps(record(name, *fields)))
        other = serdes.parse({"avro": "other.avsc"}, str(folder)).bind(Binding(connected(registry), topic, False))
        assert bound.decode(other.encode(value)) == read
    assert len(registry.versions(f"{topic}-value")) == 2


def test_the_latest_version_writes(registry: SchemaRegistry, folder: Path) -> None:
    topic = name_of_test()
    fields = json.loads((folder / "avro").read_text())
    fields["fields"].append({"name": "more", "type": "int", "default": 5})
    number = registry.register(f"{topic}-value", fields)
    latest = connected(registry, use_latest_version=True)
    data = serde_of(folder, "avro", {}).bind(Binding(latest, topic, False)).encode({"id": 1, "city": "x"})
    assert data == b"\0" + number.to_bytes(4, "big") + b"\x02\x02x\x0a"
    assert registry.versions(f"{topic}-value") == [1]


def test_the_latest_version_must_fit(registry: SchemaRegistry, folder: Path) -> None:
    topic = name_of_test()
    fields = json.loads((folder / "avro").read_text())
    registry.register(f"{topic}-value", {**fields, "fields": [{"name": "id", "type": "string"}]})
    registry.ask(f"config/{topic}-value", {"compatibility": "BACKWARD"}, "PUT")
    serde = serde_of(folder, "avro", {})
    with pytest.raises(RegistryError, match=f"not compatible with the latest version of {topic}-value"):
        serde.bind(Binding(connected(registry, use_latest_version=True), topic, False)).encode({"id": 1})
    with pytest.raises(RegistryError, match=f"registering avro for subject {topic}-value: .*409"):
        serde.bind(Binding(connected(registry), topic, False)).encode({"id": 1})
    with pytest.raises(RegistryError, match="subject absent-value: it has none"):
        serde.bind(Binding(connected(registry, use_latest_version=True), "absent", False)).encode({"id": 1})
    assert connected(registry).is_compatible(f"{topic}-value", serde.schema) is False  # type: ignore[attr-defined]
    assert connected(registry).is_compatible("nothing-there", serde.schema) is None  # type: ignore[attr-defined]


def test_nothing_is_registered_where_that_is_off(registry: SchemaRegistry, folder: Path) -> None:
    topic, serde = name_of_test(), serde_of(folder, "avro", {})
    off = connected(registry, auto_register_schemas=False)
    with pytest.raises(RegistryError, match=f"{topic}-value .auto.register.schemas is false.: it has none"):
        serde.bind(Binding(off, topic, False)).encode({"id": 1})
    assert registry.versions(f"{topic}-value") == []
    # As others write it, with blanks.
    number = registry.register(f"{topic}-value", json.loads((folder / "avro").read_text()))
    normal = connected(registry, auto_register_schemas=False, normalize_schemas=True)
    data = serde.bind(Binding(normal, topic, False)).encode({"id": 1})
    assert data[:5] == b"\0" + number.to_bytes(4, "big")


@pytest.mark.parametrize("form", ["avro", "protobuf"])
def test_references(registry: SchemaRegistry, folder: Path, form: str) -> None:
    topic, name = name_of_test(), name_of_test()
    if form == "avro":
        (folder / "part").write_text(json.dumps(record(name, {"name": "name", "type": "string"})))
        (folder / "whole").write_text(json.dumps(record(f"{name}W", {"name": "part", "type": f"shop.{name}"})))
        spec: Any = {"file": "whole", "references": ["part"]}
    else:
        (folder / f"{name}.proto").write_text('syntax = "proto3"; message Part { string name = 1; }')
        (folder / "whole").write_text(f'syntax = "proto3"; import "{name}.proto"; message Whole {{ Part part = 1; }}')
        spec = "whole"
    serde = serdes.parse({form: spec}, str(folder)).bind(Binding(connected(registry), topic, False))
    value = {"part": {"name": "x"}}
    data = serde.encode(value)
    assert serde.decode(data) == value
    part = f"shop.{name}" if form == "avro" else f"{name}.proto"
    stored = registry.ask(f"subjects/{topic}-value/versions/latest")
    assert stored["references"] == [{"name": part, "subject": part, "version": 1}]
    # Somebody else has no files, and finds everything in the registry.
    by_subject = serdes.parse({form: {"subject": f"{topic}-value"}}).bind(Binding(connected(registry), topic, False))
    assert by_subject.decode(data) == value


@pytest.mark.parametrize("registers", [True, False])
def test_references_name_the_versions_that_encode(registry: SchemaRegistry, folder: Path, registers: bool) -> None:
    topic, name = name_of_test(), name_of_test()
    street = {"name": "street", "type": "string"}
    (folder / "address").write_text(json.dumps(record(name, street)))
    (folder / "order").write_text(
        json.dumps(record(f"{name}O", {"name": "to", "type": f"shop.{name}"}, {"name": "n", "type": "int"}))
    )
    serde = serdes.parse({"avro": {"file": "order", "references": ["address"]}}, str(folder))
    value = {"to": {"street": "Main"}, "n": 3}
    part = f"shop.{name}"
    number = registry.register(part, record(name, street))
    if not registers:
        # Not by the client, which remembers the versions that it has seen.
        references = [{"name": part, "subject": part, "version": 1}]
        body = {"schema": serde.schema.text, "references": references}  # type: ignore[attr-defined]
        registry.ask(f"subjects/{topic}-value/versions", body)
    # Another team adds a field, so that the latest version is not the one of the file.
    registry.register(part, record(name, street, {"name": "zip", "type": "int", "default": 0}))
    bound = serde.bind(Binding(connected(registry, auto_register_schemas=registers), topic, False))
    data = bound.encode(value)
    stored = registry.ask(f"subjects/{topic}-value/versions/latest")
    assert data[:5] == b"\0" + stored["id"].to_bytes(4, "big")
    assert [reference["version"] for reference in stored["references"]] == [1]
    assert registry.ask(f"subjects/{part}/versions/1")["id"] == number
    assert registry.versions(part) == [1, 2]
    by_subject = serdes.parse({"avro": {"subject": f"{topic}-value"}}).bind(Binding(connected(registry), topic, False))
    assert by_subject.decode(data) == value
    assert connected(registry).is_compatible(f"{topic}-value", serde.schema) is True  # type: ignore[attr-defined]


def test_a_part_that_is_not_registered_is_compared_as_its_latest_version(
    registry: SchemaRegistry, folder: Path
) -> None:
    topic, name = name_of_test(), name_of_test()
    (folder / "part").write_text(json.dumps(record(name, {"name": "a", "type": "int", "default": 0})))
    (folder / "whole").write_text(json.dumps(record(f"{name}W", {"name": "part", "type": f"shop.{name}"})))
    serde = serdes.parse({"avro": {"file": "whole", "references": ["part"]}}, str(folder))
    serde.bind(Binding(connected(registry), topic, False)).encode({"part": {}})
    (folder / "part").write_text(json.dumps(record(name, {"name": "b", "type": "int", "default": 0})))
    changed = serdes.parse({"avro": {"file": "whole", "references": ["part"]}}, str(folder))
    assert connected(registry).is_compatible(f"{topic}-value", changed.schema) is True  # type: ignore[attr-defined]
    assert registry.versions(f"shop.{name}") == [1]


def test_versions_by_number(registry: SchemaRegistry, folder: Path) -> None:
    topic = name_of_test()
    name = json.loads((folder / "avro").read_text())["name"]
    for field in ("a", "b"):
        registry.register(f"{topic}-value", record(name, {"name": field, "type": "int", "default": 0}))
    for version, field in ((1, "a"), (2, "b"), (None, "b")):
        options = {"subject": f"{topic}-value", **({"version": version} if version else {})}
        serde = serdes.parse({"avro": options}).bind(Binding(connected(registry), topic, False))
        assert serde.decode(serde.encode({})) == {field: 0}


# -- What goes wrong --


def test_records_of_something_else(registry: SchemaRegistry, folder: Path) -> None:
    binding = Binding(connected(registry), name_of_test(), False)
    bound = {form: serde_of(folder, form, more).bind(binding) for form, more, _ in VALUES}
    data = {form: bound[form].encode(value) for form, _, value in VALUES[:1]}
    with pytest.raises(SerdeError, match=r"serde avro \(avro\): not in a registry's framing"):
        bound["avro"].decode(b'{"id":1}')
    with pytest.raises(SerdeError, match="not in a registry's framing"):
        bound["avro"].decode(b"\0\0\0")
    with pytest.raises(RegistryError, match="schema 999999: it has none"):
        bound["avro"].decode(b"\0\x00\x0f\x42\x3f\x02")
    with pytest.raises(SerdeError, match="the record is AVRO"):
        bound["json_schema"].decode(data["avro"])
    with pytest.raises(SerdeError, match="bytes do not decode"):
        bound["avro"].decode(data["avro"][:-2])
    with pytest.raises(SerdeError, match="does not fit"):
        bound["avro"].encode({"idd": 1})


def test_subjects_of_something_else(registry: SchemaRegistry) -> None:
    subject = name_of_test()
    number = registry.register(name_of_test(), record("Other"))
    registry.register(subject, {"type": "object", "properties": {"a": {"type": "string"}}}, "JSON")
    serde = serdes.parse({"avro": {"subject": subject}}).bind(Binding(connected(registry), "t", False))
    with pytest.raises(SerdeError, match=f"subject {subject} holds JSON schemas"):
        serde.decode(b"\0" + number.to_bytes(4, "big"))
    absent = serdes.parse({"avro": {"subject": "absent"}}).bind(Binding(connected(registry), "t", False))
    with pytest.raises(RegistryError, match="subject absent: it has none"):
        absent.encode(1)


def test_no_registry_answers() -> None:
    # A port that was free a moment ago.
    with http.server.HTTPServer(("127.0.0.1", 0), http.server.BaseHTTPRequestHandler) as closed:
        url = f"http://127.0.0.1:{closed.server_port}"
    serde = serdes.parse({"avro": {"subject": "s"}}).bind(
        Binding(Registry({"schema.registry.url": (url,)}), "t", False)
    )
    with pytest.raises(RegistryError, match=f"schema registry {url} doesn't answer: subject s"):
        serde.encode(1)


class Guarded(http.server.BaseHTTPRequestHandler):
    """A registry that wants to know who asks; the real one here knows only OAuth servers."""

    seen: list[str | None]

    def do_GET(self) -> None:
        who = self.headers.get("Authorization")
        self.seen.append(who)
        code, body = (200, {"id": 1, "version": 1, "subject": "s", "schema": '"long"'})
        if who not in ("Basic YW5uOnM6M2NyZXQ=", "Bearer t0ken"):
            code, body = 401, {"error_code": 401, "message": "Unauthorized"}
        data = json.dumps(body).encode()
        self.send_response(code)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def log_message(self, *_arguments: Any) -> None:
        """Say nothing."""


@pytest.fixture
def guarded() -> Iterator[str]:
    Guarded.seen = []
    with http.server.HTTPServer(("127.0.0.1", 0), Guarded) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"127.0.0.1:{server.server_port}"
        server.shutdown()
        thread.join()


@pytest.mark.parametrize(
    ("scheme", "settings"),
    [
        ("http://", {"basic.auth.credentials.source": "USER_INFO", "basic.auth.user.info": "ann:s:3cret"}),
        ("http://", {"basic.auth.user.info": "ann:s:3cret"}),
        ("http://ann:s%3A3cret@", {}),
        ("http://ann:s%3A3cret@", {"basic.auth.credentials.source": "URL"}),
        ("http://", {"bearer.auth.token": "t0ken"}),
        (
            "http://",
            {
                "bearer.auth.credentials.source": "STATIC_TOKEN",
                "bearer.auth.token": "t0ken",
                "bearer.auth.logical.cluster": "c",
            },
        ),
    ],
)
def test_credentials(guarded: str, scheme: str, settings: dict[str, str]) -> None:
    registry = Registry({"schema.registry.url": (scheme + guarded,), **settings})
    assert registry.of_subject("s").text == '"long"'
    assert "cret" not in repr(registry)


def test_settings_that_do_not_go_together() -> None:
    registry = Registry({"schema.registry.url": ("http://a:b@127.0.0.1:1",), "basic.auth.user.info": "x:y"})
    with pytest.raises(
        RegistryError, match=r"the settings of the schema registry: basic.auth.user.info configured with"
    ):
        registry.of_subject("s")


def test_wrong_credentials_are_not_shown(guarded: str) -> None:
    registry = Registry({"schema.registry.url": (f"http://bob:hidden@{guarded}",)})
    with pytest.raises(RegistryError, match=r"Unauthorized \(HTTP 401\)") as refused:
        registry.of_subject("s")
    assert "hidden" not in str(refused.value)


class Muddled(http.server.BaseHTTPRequestHandler):
    """Something in front of a registry that once answers for it, as a proxy does."""

    answers: list[dict[str, Any]]

    def do_GET(self) -> None:
        data = json.dumps(self.answers.pop(0)).encode()
        self.send_response(200)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        self.wfile.write(data)

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        self.do_GET()

    def log_message(self, *_arguments: Any) -> None:
        """Say nothing."""


@pytest.fixture
def muddled() -> Iterator[Binding]:
    with http.server.HTTPServer(("127.0.0.1", 0), Muddled) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield Binding(Registry({"schema.registry.url": (f"http://127.0.0.1:{server.server_port}",)}), "t", False)
        server.shutdown()
        thread.join()


@pytest.mark.parametrize("answer", [{}, {"error_code": 503, "message": "busy"}, {"schema": None, "id": "1"}])
def test_an_answer_without_a_schema_is_no_fault_of_the_record(muddled: Binding, folder: Path, answer: Any) -> None:
    """No handler drops a record because of a RegistryError, and the next attempt asks again."""
    serde = serde_of(folder, "avro", {}).bind(muddled)
    schema = (folder / "avro").read_text()
    Muddled.answers = [answer, {"id": 7}, answer, {"schema": schema[:-1]}, {"schema": schema}]
    with pytest.raises(RegistryError, match=r"registering avro for subject t-value: the answer is not that of"):
        serde.encode({"id": 1, "city": "Rome"})
    data = serde.encode({"id": 1, "city": "Rome"})
    assert data[:5] == b"\0\0\0\0\x07"
    with pytest.raises(RegistryError, match=r"schema 7: the answer is not that of a schema registry"):
        serde.decode(data)
    with pytest.raises(RegistryError, match=r"schema 7: not an Avro schema: "):
        serde.decode(data)
    assert serde.decode(data) == {"id": 1, "city": "Rome"}
