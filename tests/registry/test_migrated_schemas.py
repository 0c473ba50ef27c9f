"""`migrate` where rows have the schema ids of a registry."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.broker.support import Log, fresh
from tests.cli.support import streamkit
from tests.registry.server import SchemaRegistry

ORDER = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "customer", "type": "string"}, {"name": "amount", "type": "long"}],
}
TOPOLOGY = """
streamkit: 1
application: {application}
config:
  bootstrap.servers: embedded:{state}/log
  state.dir: {state}
  schema.registry.url: {url}
topics:
  orders: {{key: string, value: {{avro: order.avsc}}, partitions: 1}}
  sums: {{key: string, value: {{avro: order.avsc}}, partitions: 1}}
pipelines:
  sums:
    stream: orders
    steps:
      - group_by_key
      - reduce: {{add: "merge(value, {{'amount': aggregate.amount + value.amount}})", store: latest}}
      - to_stream
    to: sums
"""


@pytest.fixture
def files(tmp_path: Path, registry: SchemaRegistry) -> tuple[Path, Path]:
    """Two versions with another name of their store, of which the old one has added up two orders."""
    (tmp_path / "order.avsc").write_text(json.dumps(ORDER))
    old, new = tmp_path / "old.yaml", tmp_path / "new.yaml"
    old.write_text(TOPOLOGY.format(application=fresh("moved"), state=tmp_path / "state", url=registry.url))
    new.write_text(old.read_text().replace("store: latest", "store: newest"))
    add(old, 3)
    add(old, 4)
    return old, new


def add(file: Path, amount: int) -> None:
    record = {"key": "a", "value": {"customer": "Ann", "amount": amount}, "timestamp": 1}
    assert streamkit("produce", file, "orders", stdin=json.dumps(record)).code == 0
    done = streamkit("run", file, "--until-idle")
    assert done.code == 0, done.err


def test_rows_get_ids_of_the_new_subject(registry: SchemaRegistry, files: tuple[Path, Path], tmp_path: Path) -> None:
    old, new = files
    before = registry.ask("subjects")
    done = streamkit("migrate", old, new)
    assert (done.code, done.err) == (0, "")
    assert "rows get the new serdes" in done.out
    assert registry.ask("subjects") == before
    assert streamkit("migrate", old, new, "--execute").code == 0
    (subject,) = set(registry.ask("subjects")) - set(before)
    assert subject.endswith("-newest-changelog-value")
    add(new, 5)
    log = Log(f"embedded:{tmp_path / 'state' / 'log'}")
    try:
        topics = [topic for topic in log.topics("") if topic.endswith("-newest-changelog")]
        number = registry.ask(f"subjects/{subject}/versions/latest")["id"]
        assert {(raw.value or b"")[:5] for raw in log.read(topics[0])} == {b"\0" + number.to_bytes(4, "big")}
    finally:
        log.close()
    values = [json.loads(line)["value"] for line in streamkit("consume", new, "sums", "--until-idle").out.splitlines()]
    assert values[-1]["amount"] == 12


def test_another_version_of_a_schema_is_left_to_the_user(files: tuple[Path, Path], tmp_path: Path) -> None:
    old, new = files
    fields = [*ORDER["fields"], {"name": "note", "type": "string", "default": ""}]
    (tmp_path / "later.avsc").write_text(json.dumps({**ORDER, "fields": fields}))
    new.write_text(old.read_text().replace("order.avsc", "later.avsc"))
    done = streamkit("migrate", old, new)
    assert done.code == 0
    assert "nothing is to do" in done.out
    assert "unknown: store latest: the value has another avro schema" in done.out
