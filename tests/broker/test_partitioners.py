"""Partitions that expressions give, over several partitions, on the real broker and on the embedded log."""

from __future__ import annotations

from pathlib import Path

import pytest
from confluent_kafka.admin import AdminClient, NewPartitions

from streamkit.serdes.partitioner import partition as partition_of
from tests.broker.counting import Process
from tests.broker.support import App, Log, application, until

pytestmark = pytest.mark.broker

COUNT = 3
TOPOLOGY = """defaults: {key: string, value: string}
topics:
  in: {topic: "{a}in"}
  windows: {topic: "{a}windows", key: {windowed: string, size: 1s}, value: long, partitions: 1}
  orders: {topic: "{a}orders"}
  customers: {topic: "{a}customers"}
  joined: {topic: "{a}joined", partitions: 1}
pipelines:
  in:
    stream: in
    steps:
      - repartition:
          name: spread
          partitions: 3
          partition: "[] if value == 'drop' else None if value == 'key' else [2, 0] if value == 'both' else len(value) % partitions"
      - group_by_key
      - window: {tumbling: 1s}
      - count
      - to_stream
      - repartition: {name: windowed, key_serde: {windowed: string, size: 1s}}
    to: windows
  customers: {table: customers}
  orders:
    table: orders
    steps:
      - join:
          with: customers
          on: value
          value: left + right
          value_serde: string
          name: fk
          partition: len(key) % partitions
          other_partition: "[(len(key) + 1) % partitions]"
      - to_stream
    to: joined
"""


@pytest.fixture(params=["embedded", "kafka"])
def app(request: pytest.FixtureRequest, tmp_path: Path) -> App:
    log: Log = request.getfixturevalue(request.param)
    found = application(tmp_path, log, "partitioners", TOPOLOGY)
    for name in ("in", "orders", "customers"):
        log.create(found.topic(name), COUNT)
    return found


def test_records_go_where_expressions_say(app: App) -> None:
    values = ["drop", "key", "both", "x", "xy", "xyz"]
    app.log.write((app.topic("in"), b"k", value.encode(), 1, None, 0) for value in values)
    orders = {"o" * n: "c" * (n % 4 + 1) for n in range(1, 10)}
    customers = ["c" * n for n in range(1, 5)]
    app.log.write((app.topic("orders"), k.encode(), v.encode(), 1, None, len(k) % COUNT) for k, v in orders.items())
    app.log.write((app.topic("customers"), k.encode(), b"!", 2, None, (len(k) + 1) % COUNT) for k in customers)
    done = app.run()
    assert done.code == 0
    dropped = (
        f"dropped 1 record in the last minute (topic {app.topic('in')}, the step's partition expression gives none)"
    )
    assert done.err.strip().endswith(dropped)

    spread = {(row.value, row.partition) for row in app.log.read(f"{app.application}-spread-repartition")}
    assert spread == {
        (b"key", partition_of(b"k", COUNT)),
        (b"both", 0),
        (b"both", 2),
        (b"x", 1),
        (b"xy", 2),
        (b"xyz", 0),
    }
    windowed = app.log.read(f"{app.application}-windowed-repartition")
    # All bytes of a windowed key count here, unlike in a topic that `to` writes.
    assert [row.partition for row in windowed] == [partition_of(row.key or b"", COUNT) for row in windowed]
    assert windowed
    registration = app.log.read(f"{app.application}-fk-subscription-registration-topic")
    assert registration
    assert [row.partition for row in registration] == [(len(row.key or b"") + 1) % COUNT for row in registration]
    response = app.log.read(f"{app.application}-fk-subscription-response-topic")
    assert [row.partition for row in response] == [len(row.key or b"") % COUNT for row in response]
    joined = {row.key.decode(): row.value for row in app.log.read(app.topic("joined")) if row.key is not None}
    assert joined == {key: f"{value}!".encode() for key, value in orders.items()}


GROWING = """\
topics:
  words: {topic: "{a}words", key: string, value: string}
  windows: {topic: "{a}windows", key: {windowed: string, size: 1s}, value: long}
pipelines:
  words:
    stream: words
    steps: [group_by_key: {}, window: {tumbling: 1s}, count: {}, to_stream: {}]
    to: windows
"""


def test_windowed_keys_are_spread_over_the_partitions_that_an_output_gains(kafka: Log, tmp_path: Path) -> None:
    app = application(
        tmp_path, kafka, "growing", GROWING, metadata_max_age_ms=100, statestore_cache_max_bytes=0, num_stream_threads=1
    )
    topic = app.topic("windows")
    for name in ("words", "windows"):
        kafka.create(app.topic(name), 1)

    def places() -> set[int]:
        kafka.write((app.topic("words"), b"k%d" % n, b"v", 1, None, 0) for n in range(20))
        return {row.partition for row in kafka.read(topic)}

    with Process(app, tmp_path) as process:
        until(places, "windows are written")
        admin = AdminClient({"bootstrap.servers": kafka.address})
        admin.create_partitions([NewPartitions(topic, COUNT)])[topic].result(60)
        until(lambda: len(places()) == COUNT, "windows in all partitions")
        process.end()
    grown = [row for row in kafka.read(topic) if row.partition]
    # By the key, without the window.
    assert [row.partition for row in grown] == [partition_of((row.key or b"")[:-8], COUNT) for row in grown]
