"""Rows that are told apart by numbers of arrival keep apart after a restart."""

from __future__ import annotations

import json
import shutil
import threading

import pytest

from streamkit.plan import load
from streamkit.record import TopicPartition
from streamkit.runtime.local.client import Application
from streamkit.transport.embedded import EmbeddedTransport
from streamkit.transport.log_interface import EARLIEST, NewTopic

TEXT = """\
streamkit: 1
application: app
config: {{bootstrap.servers: embedded, state.dir: {folder}}}
topics:
  in: {{key: string, value: json, partitions: 1}}
  other: {{key: string, value: json, partitions: 1}}
  out: {{key: string, value: json, partitions: 1}}
pipelines:
  others: {others}
  main:
    stream: in
    steps: [{step}]
    to: out
"""
JOINS = {
    "streams": ("{stream: other}", 'join: {with: others, within: 1h, value: "[left, right]"}'),
    "grace": (
        "{table: other, store: {name: rows, versioned: 1h}}",
        'join: {with: others, grace: 10s, value: "[left, right]"}',
    ),
}


def send(log: EmbeddedTransport, topic: str, *rows: tuple[int, int]) -> None:
    producer = log.producer()
    producer.send([(topic, b"a", json.dumps(value).encode(), time, None, 0) for value, time in rows])
    producer.close()


def written(log: EmbeddedTransport) -> set[tuple[int, ...]]:
    consumer = log.consumer(None)
    consumer.add({TopicPartition("out", 0): EARLIEST})
    batches = consumer.poll(1_000, 0)
    consumer.close()
    return {tuple(json.loads(value)) for batch in batches for value in batch.values if value is not None}


@pytest.mark.parametrize("restored", [False, True], ids=["kept", "restored"])
@pytest.mark.parametrize("join", JOINS)
def test_a_record_does_not_replace_one_of_an_earlier_run(tmp_path, join, restored):
    """They have the same key and time."""
    others, step = JOINS[join]
    path, state = tmp_path / "topology.yaml", tmp_path / "state"
    path.write_text(TEXT.format(folder=state, others=others, step=step))
    log = EmbeddedTransport(tmp_path / "log")
    admin = log.admin()
    admin.create_topics([NewTopic(topic, 1) for topic in ("in", "other", "out")])
    admin.close()
    send(log, "other", (5, 0))
    for rows in ([(1, 100)], [(2, 100)], [(3, 20_000)]):
        send(log, "in", *rows)
        if rows == [(3, 20_000)]:
            send(log, "other", (6, 20_000))
        Application(load(path, {}, {}), log).run(until_idle=True, stop=threading.Event())
        if restored:
            shutil.rmtree(state)
    pairs = written(log)
    log.close()
    assert {(1, 6), (2, 6)} <= pairs if join == "streams" else {(1, 5), (2, 5)} <= pairs
