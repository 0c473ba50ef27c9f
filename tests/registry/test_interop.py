"""What streamkit writes is read by Confluent's client and by Java, through one registry, and the reverse."""

from __future__ import annotations

import json
import subprocess
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka.serialization import MessageField, SerializationContext

from streamkit import serdes
from streamkit.serdes.formats.protobuf import ProtobufSchema
from streamkit.serdes.registry import Registry
from streamkit.serdes.serde import Binding, Serde
from tests.broker.support import Log, fresh
from tests.cli.support import LIMIT_S, assert_one_clear_line, streamkit
from tests.java import build
from tests.registry.server import SchemaRegistry

ORDER = {
    "type": "record",
    "name": "Order",
    "namespace": "shop",
    "fields": [
        {"name": "id", "type": "long"},
        {"name": "customer", "type": "string"},
        {"name": "note", "type": ["null", "string"], "default": None},
        {"name": "lines", "type": {"type": "array", "items": {"type": "map", "values": "double"}}},
        {"name": "at", "type": {"type": "long", "logicalType": "timestamp-millis"}},
    ],
}
ORDERS = [
    {"id": 1, "customer": "Ann", "note": None, "lines": [{"a": 1.5}], "at": 1000},
    {"id": -(2**62), "customer": "Bérénice", "note": "x", "lines": [], "at": 0},
]
JSON_SCHEMA = {"title": "User", "type": "object", "properties": {"id": {"type": "integer"}, "name": {"type": "string"}}}
PROTO = 'syntax = "proto3"; message First { int32 a = 1; } message Second { string b = 1; repeated int64 c = 2; }'


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
    (tmp_path / "user.json").write_text(json.dumps(JSON_SCHEMA))
    (tmp_path / "all.proto").write_text(PROTO)
    return tmp_path


def bound(server: SchemaRegistry, folder: Path, spec: Any, topic: str) -> Serde:
    registry = Registry({"schema.registry.url": (server.url,)})
    return serdes.parse(spec, str(folder)).bind(Binding(registry, topic, False))


def both_ways(serde: Serde, write: Callable[..., bytes], read: Callable[..., Any], topic: str, value: Any) -> None:
    context = SerializationContext(topic, MessageField.VALUE)
    assert read(serde.encode(value), context) == value
    data = write(value, context)
    assert data == serde.encode(value)
    assert serde.decode(data) == value


def test_avro_and_confluent(registry: SchemaRegistry, folder: Path) -> None:
    # Confluent's client takes long to import, and every process imports this file to collect its tests.
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer

    client, topic = SchemaRegistryClient({"url": registry.url}), fresh("avro")
    # The other side takes dates for times; this test is about the bytes.
    fields = [field for field in ORDER["fields"] if field["name"] != "at"]  # type: ignore[index]
    (folder / "order.avsc").write_text(json.dumps({**ORDER, "fields": fields}))
    serde = bound(registry, folder, {"avro": "order.avsc"}, topic)
    for order in ORDERS:
        value = {name: item for name, item in order.items() if name != "at"}
        schema = json.dumps({**ORDER, "fields": fields}, separators=(",", ":"))
        both_ways(serde, AvroSerializer(client, schema), AvroDeserializer(client), topic, value)


def test_json_schema_and_confluent(registry: SchemaRegistry, folder: Path) -> None:
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer

    client, topic = SchemaRegistryClient({"url": registry.url}), fresh("json")
    serde = bound(registry, folder, {"json_schema": "user.json"}, topic)
    value, context = {"id": 5, "name": "Ann"}, SerializationContext(topic, MessageField.VALUE)
    text = json.dumps(JSON_SCHEMA)
    assert JSONDeserializer(text, schema_registry_client=client)(serde.encode(value), context) == value
    assert serde.decode(JSONSerializer(text, client)(value, context)) == value  # type: ignore[arg-type]


@pytest.mark.parametrize("name", ["First", "Second"])
def test_protobuf_and_confluent(registry: SchemaRegistry, folder: Path, name: str) -> None:
    from confluent_kafka.schema_registry import SchemaRegistryClient
    from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer

    # Confluent's client wants .proto files in a binary form, which only Confluent's registry makes: without one here.
    topic = fresh("protobuf")
    serde = bound(registry, folder, {"protobuf": "all.proto", "message": name}, topic)
    value = {"a": 7} if name == "First" else {"b": "x", "c": [1, 2**40]}
    message_class = ProtobufSchema(PROTO, (), name)._class
    context = SerializationContext(topic, MessageField.VALUE)
    data = serde.encode(value)
    assert ProtobufDeserializer(message_class, {"use.deprecated.format": False})(data, context) == message_class(
        **value
    )
    client = SchemaRegistryClient.new_client({"url": "mock://"})
    written = ProtobufSerializer(message_class, client, {"use.deprecated.format": False})(
        message_class(**value), context
    )
    assert written is not None
    assert serde.decode(data[:5] + written[5:]) == value
    assert written[5:] == data[5:]


ONLINE = """
streamkit: 1
application: app
config: {{schema.registry.url: {url}}}
topics:
  in: {{topic: {topic}, value: {{avro: order.avsc}}}}
  out: {{value: {{avro: {{subject: {subject}}}}}}}
  gone: {{value: {{avro: {{subject: gone}}}}}}
pipelines:
  p:
    stream: in
    to: out
  q:
    stream: out
    steps:
      - filter: value.custmer
"""


def test_validate_asks_the_registry(registry: SchemaRegistry, folder: Path) -> None:
    topic, file = fresh("online"), folder / "app.yaml"
    subject = f"{topic}-other"
    registry.register(subject, ORDER)
    registry.register(f"{topic}-value", {**ORDER, "fields": [{"name": "id", "type": "string"}]})
    registry.ask(f"config/{topic}-value", {"compatibility": "FULL"}, "PUT")
    file.write_text(ONLINE.format(url=registry.url, topic=topic, subject=subject))
    # Without the registry nothing is known of the subject's fields.
    assert streamkit("validate", file).out == ""
    done = streamkit("validate", "--online", file)
    assert (done.code, done.err) == (1, "")
    missing, field = done.out.splitlines()
    assert missing.startswith(f"{file}:8:3: schema registry {registry.url}: subject gone: it has none")
    assert field == f"{file}:16:23: shop.Order has no field 'custmer'; did you mean 'customer'?"
    text = file.read_text().replace("custmer", "customer").replace("subject: gone", f"subject: {subject}")
    file.write_text(text)
    done = streamkit("validate", "--online", file)
    assert done.code == 1
    assert done.out == (
        f"{file}:6:3: serde avro: order.avsc is not compatible with the latest version of subject {topic}-value,"
        " by that subject's rule\n"
    )
    registry.ask(f"config/{topic}-value", {"compatibility": "NONE"}, "PUT")
    assert streamkit("validate", "--online", file).code == 0
    done = streamkit("validate", "--online", file, "--set", "schema.registry.url=http://127.0.0.1:1")
    assert done.code == 1
    assert done.out.startswith(f"{file}:1:1: schema registry http://127.0.0.1:1 doesn't answer: subject ")


TOPOLOGY = """
streamkit: 1
application: {application}
config:
  bootstrap.servers: embedded:{state}/log
  state.dir: {state}
  schema.registry.url: {url}
topics:
  orders: {{topic: {orders}, key: string, value: {{avro: order.avsc}}, partitions: 2}}
  notes: {{topic: {notes}, key: string, value: {{avro: {{subject: {notes}-value}}}}, partitions: 2}}
  copies: {{topic: {orders}-copies, key: string, value: {{avro: order.avsc}}, partitions: 2}}
pipelines:
  copies:
    stream: orders
    to: copies
  notes:
    stream: orders
    steps:
      - filter: value.id != 0
      - group_by: {{key: value.customer}}
      - reduce: {{add: value, store: latest}}
      - to_stream
      - map_values: {{value: "merge(value, {{'note': 'seen ' + str(value.at)}})"}}
    to: notes
"""


def test_avro_and_java_over_a_running_application(registry: SchemaRegistry, folder: Path) -> None:
    application, orders, notes = fresh("shop"), fresh("orders"), fresh("notes")
    # Java writes what streamkit reads, and the reverse; both sides meet in the registry only.
    lines = [{**order, "note": {"string": order["note"]} if order["note"] else None} for order in ORDERS]
    sent = java(registry, "write", orders, *lines, schema=folder / "order.avsc")
    registry.register(f"{notes}-value", json.dumps(ORDER, separators=(",", ":")))
    file = folder / "shop.yaml"
    file.write_text(
        TOPOLOGY.format(application=application, state=folder / "state", url=registry.url, orders=orders, notes=notes)
    )
    assert streamkit("validate", file).out == ""
    serde = bound(registry, folder, {"avro": "order.avsc"}, orders)
    assert [serde.decode(bytes.fromhex(line)) for line in sent] == ORDERS
    records = "".join(json.dumps({"key": "k", "value": order, "timestamp": 1}) + "\n" for order in ORDERS)
    assert streamkit("produce", file, "orders", stdin=records).code == 0
    old_fields = [field for field in ORDER["fields"] if field["name"] != "note"]  # type: ignore[index]
    (folder / "old.avsc").write_text(json.dumps({**ORDER, "fields": old_fields}))
    old = json.dumps({"key": "k", "value": {"id": 99, "customer": "old", "lines": [], "at": 7}, "timestamp": 1})
    (folder / "old.yaml").write_text(file.read_text().replace("order.avsc", "old.avsc"))
    assert streamkit("produce", folder / "old.yaml", "orders", stdin=old).code == 0
    done = streamkit("run", file, "--until-idle")
    assert (done.code, done.err) == (0, "")
    log = Log(f"embedded:{folder}/state/log")
    try:
        assert {raw.value.hex() for raw in log.read(orders) if raw.value} > set(sent)
        written = [raw.value.hex() for raw in log.read(notes) if raw.value]
        copies = [raw.value for raw in log.read(f"{orders}-copies") if raw.value]
    finally:
        log.close()
    # Nobody reads the values in between, yet what an older schema wrote is written by this one's.
    number = registry.ask(f"subjects/{orders}-copies-value/versions/latest")["id"]
    assert {data[:5] for data in copies} == {b"\0" + number.to_bytes(4, "big")}
    copied = bound(registry, folder, {"avro": "order.avsc"}, f"{orders}-copies")
    assert sorted(order["id"] for order in map(copied.decode, copies)) == [-(2**62), 1, 99]
    found = [json.loads(line) for line in java(registry, "read", notes, *written) if '"old"' not in line]
    expected = [{**order, "note": f"seen {order['at']}"} for order in ORDERS]
    assert sorted(found, key=lambda order: order["id"]) == sorted(expected, key=lambda order: order["id"])
    subjects = [name for name in registry.ask("subjects") if name.startswith(application)]
    assert sorted(subjects) == [f"{application}-latest-changelog-value", f"{application}-latest-repartition-value"]
    read = streamkit("consume", file, "notes", "--until-idle")
    notes_read = [json.loads(line)["value"]["note"] for line in read.out.splitlines()]
    assert sorted(notes_read) == ["seen 0", "seen 1000", "seen 7"]


def test_no_handler_drops_records_while_the_registry_is_away(registry: SchemaRegistry, folder: Path) -> None:
    application, orders, notes = fresh("away"), fresh("orders"), fresh("notes")
    registry.register(f"{notes}-value", ORDER)
    file = folder / "shop.yaml"
    file.write_text(
        TOPOLOGY.format(application=application, state=folder / "state", url=registry.url, orders=orders, notes=notes)
    )
    record = json.dumps({"key": "k", "value": ORDERS[0], "timestamp": 1})
    assert streamkit("produce", file, "orders", stdin=record).code == 0
    handlers = [f"{what}.exception.handler=continue" for what in ("deserialization", "processing")]
    options = [option for handler in handlers for option in ("--set", handler)]
    done = streamkit("run", file, "--until-idle", *options, "--set", "schema.registry.url=http://127.0.0.1:1")
    assert_one_clear_line(done, 1, "schema registry http://127.0.0.1:1 doesn't answer", orders, "offset 0")
    assert streamkit("run", file, "--until-idle", *options).code == 0
    assert len(streamkit("consume", file, "notes", "--until-idle").out.splitlines()) == 1


def java(server: SchemaRegistry, mode: str, topic: str, *lines: Any, schema: Path | None = None) -> list[str]:
    """Give the program lines and return those that it prints."""
    command = build.command("registry/java", "AvroBytes", "-XX:TieredStopAtLevel=1")
    arguments = [mode, server.apicurio_url, topic, *([str(schema)] if schema else [])]
    given = "\n".join(line if isinstance(line, str) else json.dumps(line) for line in lines)
    done = subprocess.run(
        [*command, *arguments], input=given, capture_output=True, text=True, check=False, timeout=LIMIT_S
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()
