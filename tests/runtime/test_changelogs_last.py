"""Under at-least-once, rows reach their changelog after the output of their records."""

from __future__ import annotations

import json
import shutil
import threading
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from streamkit.errors import ProcessingError, RetriableTransportError
from streamkit.plan import load
from streamkit.record import OutputTuple, TopicPartition
from streamkit.runtime.local.client import Application
from streamkit.transport.embedded import EmbeddedTransport
from streamkit.transport.embedded.embedded_clients import EmbeddedProducer
from streamkit.transport.log_interface import EARLIEST, NewTopic

OUT = TopicPartition("out", 0)
TEXT = """\
streamkit: 1
application: app
config: {{bootstrap.servers: embedded, statestore.cache.max.bytes: 0, state.dir: {folder}}}
topics:
  in: {{key: string, value: json, partitions: 1}}
  out: {{key: string, value: json, partitions: 1}}
stores:
  seen: {{type: key_value, value: json}}
pipelines:
  main:
    stream: in
    steps: {steps}
    to: out
"""
ONCE = """\
class Once:
    def init(self, context):
        self.context, self.seen = context, context.store("seen")
    def process(self, record):
        if self.seen.put_if_absent(record.key, record.value) is None:
            self.context.forward(record)
"""
DECIDING = {
    "deduplicate": '[deduplicate: {by: key, within: 1h}, map_values: "1 // value"]',
    "top": '[group_by_key: {}, top: {n: 1, by: -value}, to_stream: {}, map_values: "1 // value[0]"]',
    "ttl": '[group_by_key: {}, count: {store: {name: counts, ttl: 10s}}, to_stream: {}, map_values: "value + 0"]',
    "process": '[process: {call: "once:Once", stores: [seen]}, map_values: "1 // value"]',
}
TABLES = {
    "filter": ('[group_by_key: {}, count: {}, filter: "value < 2", to_stream: {}, map_values: "CHANGED"]', ("a", None)),
    "group_by": ('[to_table: {}, group_by: {key: "CHANGED", key_serde: string}, count: {}, to_stream: {}]', ("1", 0)),
}
"""Steps whose result depends on a table's old value, and what they write once `a` has changed from 1 to 2."""
WINDOWS = (
    "[group_by_key: {}, window: {tumbling: 1s}, count: {}, suppress: {until: window_closes}, to_stream: {key: key.key}]"
)


@pytest.fixture
def log(tmp_path):
    transport = EmbeddedTransport(tmp_path / "log")
    admin = transport.admin()
    admin.create_topics([NewTopic("in", 1), NewTopic("out", 1)])
    admin.close()
    yield transport
    transport.close()


def send(log: EmbeddedTransport, *rows: tuple[str, int, int]) -> None:
    producer = log.producer()
    producer.send([("in", key.encode(), json.dumps(value).encode(), time, None, 0) for key, value, time in rows])
    producer.close()


def run(log: EmbeddedTransport, folder: Path, steps: str) -> None:
    (folder / "once.py").write_text(ONCE)
    path = folder / "topology.yaml"
    path.write_text(TEXT.format(folder=folder / "state", steps=steps))
    Application(load(path, {}, {}), log).run(until_idle=True, stop=threading.Event())


def written(log: EmbeddedTransport) -> set[tuple[str, Any]]:
    consumer = log.consumer(None)
    consumer.add({OUT: EARLIEST})
    batches = consumer.poll(1_000, 0)
    consumer.close()
    return {
        (key.decode(), value and json.loads(value))
        for batch in batches
        for key, value in zip(batch.keys, batch.values, strict=True)
    }


@pytest.mark.parametrize("step", DECIDING)
def test_a_record_that_failed_below_a_step_is_written_once_that_is_repaired(log, tmp_path, step):
    """Its row must not be on the log: the step would take the record for one that was written."""
    send(log, ("a", 1, 0), ("b", 2, 1_000))
    run(log, tmp_path, DECIDING[step])
    send(log, ("c", 0, 20_000))
    with pytest.raises(ProcessingError):
        run(log, tmp_path, DECIDING[step])
    assert 7 not in {value for _, value in written(log)}
    repaired = DECIDING[step].replace("1 // value[0]", "7").replace("1 // value", "7").replace("value + 0", "7")
    run(log, tmp_path, repaired)
    assert {key for key, value in written(log) if value == 7} == ({"a", "b", "c"} if step == "ttl" else {"c"})


@pytest.mark.parametrize("step", TABLES)
def test_what_depends_on_an_old_value_is_written_once_the_step_below_is_repaired(log, tmp_path, step):
    """The new row must not be on the log: it would be the old value too, and the group or the filter would see no change."""
    steps, change = TABLES[step]
    repaired = steps.replace("CHANGED", "value if value is None else str(value)")
    send(log, ("a", 1, 0))
    run(log, tmp_path, repaired)
    send(log, ("a", 2, 1_000))
    with pytest.raises(ProcessingError):
        run(log, tmp_path, steps.replace("CHANGED", "str(1 // (value == 1))"))
    run(log, tmp_path, repaired)
    assert change in written(log)


class SlowLog(EmbeddedTransport):
    """A log that acknowledges rows only once they are flushed, and notes what happens."""

    def __init__(self, directory: Path, events: list[str]):
        super().__init__(directory)
        self.events = events

    def producer(self, *, transactional_id: str | None = None, client_id: str = ""):
        return SlowProducer(self.directory, self.events)


class SlowProducer(EmbeddedProducer):
    def __init__(self, directory: Path, events: list[str]):
        super().__init__(directory, None)
        self.events = events

    def send(self, rows: Sequence[OutputTuple]) -> None:
        self.events += [row[0].rpartition("-")[2] for row in rows if row[0] == "out" or "SUPPRESS" in row[0]]
        super().send(rows)

    def hasten(self, seconds: float) -> bool:
        return False

    def queued(self) -> int:
        return int(self.events[-1:] not in ([], ["flush"]))

    def flush(self) -> None:
        self.events.append("flush")


def test_a_buffer_forgets_what_it_held_once_that_is_acknowledged(log, tmp_path):
    events: list[str] = []
    send(log, ("a", 1, 0), ("b", 2, 1_000), ("c", 0, 20_000))
    run(SlowLog(log.directory, events), tmp_path, WINDOWS)
    assert events[: events.index("changelog")] == ["out", "out", "flush"]
    assert events[-1] == "flush"


class BusyLog(EmbeddedTransport):
    """A log that another process keeps for itself when rows of a changelog first come."""

    def producer(self, *, transactional_id: str | None = None, client_id: str = ""):
        return BusyProducer(self.directory, transactional_id)


class BusyProducer(EmbeddedProducer):
    busy = 2

    def send(self, rows: Sequence[OutputTuple]) -> None:
        if self.busy and any(row[0].endswith("-changelog") for row in rows):
            self.busy -= 1
            raise RetriableTransportError("the embedded log is busy: database is locked")
        super().send(rows)


def test_rows_that_a_busy_log_does_not_take_reach_it_later(log, tmp_path):
    send(log, ("a", 1, 0), ("b", 2, 1_000))
    steps = '[process: {call: "once:Once", stores: [seen]}]'
    run(BusyLog(log.directory), tmp_path, steps)
    assert written(log) == {("a", 1), ("b", 2)}
    # Nobody but the changelog knows what the store had.
    shutil.rmtree(tmp_path / "state")
    send(log, ("a", 3, 2_000), ("c", 4, 3_000))
    run(log, tmp_path, steps)
    assert written(log) == {("a", 1), ("b", 2), ("c", 4)}
