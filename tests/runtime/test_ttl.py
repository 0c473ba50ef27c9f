"""State that ends: tables whose rows have a time to live, under the driver and in applications on the embedded log."""

from __future__ import annotations

import random
import tempfile
import threading
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamkit.plan import load
from streamkit.plan.model import Plan
from streamkit.record import TaskId, TopicPartition
from streamkit.runtime.driver import Driver, Remains
from streamkit.runtime.execution import task
from streamkit.runtime.local.client import Application
from streamkit.transport.embedded import EmbeddedTransport
from streamkit.transport.log_interface import EARLIEST, NewTopic
from tests.broker.support import until
from tests.requirements import EVERY_ENGINE
from tests.runtime.expiring_counts import COUNT, Model, Written

KEYS = 6
PARTITIONS = 2


def plan_of(folder: Path, text: str = COUNT, **config: Any) -> Plan:
    path = folder / "topology.yaml"
    path.write_text(text, encoding="utf-8")
    return load(path, {}, {name.replace("_", "."): str(value) for name, value in config.items()})


def piped(driver: Driver, key: str, value: Any, time: int, topic: str = "in") -> list[Written]:
    printed = driver.pipe({"topic": topic, "key": key, "value": value, "timestamp": time})
    return [(each["key"], each["value"], each["timestamp"]) for each in printed]


RESTARTS = st.integers(0, 3).map(lambda number: number == 0)
RECORDS = st.tuples(st.integers(0, KEYS), st.integers(-1_500, 1_500) | st.integers(0, 9), RESTARTS)


@pytest.mark.parametrize("cache", [0, 10_000_000])
@settings(max_examples=60, deadline=None)
@given(records=st.lists(RECORDS, max_size=30))
def test_a_count_is_that_of_the_model_through_restarts(cache: int, records: list[tuple[int, int, bool]]) -> None:
    model, remains = Model(), Remains()
    with tempfile.TemporaryDirectory() as folder:
        plan = plan_of(Path(folder), statestore_cache_max_bytes=cache)
    driver = Driver(plan, remains)
    for key, step, restart in records:
        if restart:
            driver.close()
            driver = Driver(plan, remains)
        time = max(0, model.time + step)
        wanted = model.take(f"k{key}", time)
        if cache:  # a row that comes and goes within a commit leaves no trace
            gone = [name for name, count in Counter(each[0] for each in wanted).items() if count == 2]
            new = wanted[0][0] in gone and wanted[0][1] == 1
            wanted = wanted[1:] if wanted[0][0] in gone else wanted
            wanted = [each for each in wanted if not (new and each[0] == f"k{key}")]
            assert sorted(piped(driver, f"k{key}", "v", time)) == sorted(wanted, key=lambda each: each[0])
        else:
            assert piped(driver, f"k{key}", "v", time) == wanted
        assert dict(driver.opened()["counts"].rows()) == {name: row[0] for name, row in model.rows.items()}
    driver.close()


# -- What a deletion does below ---------------------------------------------------------------------------------------

TABLES = """
streamkit: 1
application: app
config: {statestore.cache.max.bytes: %d, topology.optimization: all}
topics:
  in: {key: string, value: long}
  other: {key: string, value: long}
  out: {key: string, value: long}
pipelines:
  p:
    %s
    to: out
"""
SUM = """
      - group_by: {key: '"all"', value: value, key_serde: string, value_serde: long}
      - aggregate: {initial: 0, add: aggregate + value, subtract: aggregate - value, value_serde: long}
      - to_stream"""
FORMS = {
    "source": "table: in\n    store: {name: s, ttl: 1s}\n    steps:",
    "to_table": "stream: in\n    steps:\n      - to_table: {store: {name: s, ttl: 1s}}",
    "reduce": "stream: in\n    steps:\n      - group_by_key\n      - reduce: {add: value, store: {name: s, ttl: 1s}}",
    "aggregate": "stream: in\n    steps:\n      - group_by_key\n"
    "      - aggregate: {initial: 0, add: value, value_serde: long, store: {name: s, ttl: 1s}}",
    "cogroup": "stream: in\n    steps:\n      - group_by_key\n      - cogroup: {add: value}\n"
    "      - aggregate: {initial: 0, value_serde: long, store: {name: s, ttl: 1s}}",
    "filter": "table: in\n    steps:\n      - filter: {if: 'True', store: {name: s, ttl: 1s}}",
    "map_values": "table: in\n    steps:\n"
    "      - map_values: {value: value, value_serde: long, store: {name: s, ttl: 1s}}",
    "join": "table: in\n    steps:\n"
    "      - left_join: {with: {table: other}, value: left, value_serde: long, store: {name: s, ttl: 1s}}",
    "foreign_key": "table: in\n    steps:\n"
    "      - left_join: {with: {table: other}, on: key, value: left, value_serde: long, store: {name: s, ttl: 1s}}",
    "above": "table: in\n    store: {name: s, ttl: 1s}\n    steps:\n"
    "      - filter: 'True'\n      - map_values: {value: value, value_serde: long}",
    "left of a join": "table: in\n    store: {name: s, ttl: 1s}\n    steps:\n"
    "      - left_join: {with: {table: other}, value: left, value_serde: long}",
}
INPUT = [("a", 1, 0), ("b", 2, 5), ("a", 3, 500), ("c", 4, 1_004), ("c", 5, 1_010), ("c", 6, 1_500), ("a", 7, 1_501)]


@pytest.mark.parametrize("cache", [0, 10_000_000])
@pytest.mark.parametrize("form", FORMS)
def test_every_table_deletes_rows_and_passes_it_on(form: str, cache: int, tmp_path: Path) -> None:
    text = FORMS[form]
    with Driver(plan_of(tmp_path, TABLES % (cache, text + "\n      - to_stream"))) as driver:
        out = [each for record in INPUT for each in piped(driver, *record)]
    wanted = [*INPUT[:5], ("b", None, 1_010), INPUT[5], ("a", None, 1_500), INPUT[6]]
    # The caches of a join's sides come first; answers of a foreign-key join come after the record that asked.
    if form == "foreign_key" or (cache and form == "join"):
        assert sorted(out, key=str) == sorted(wanted, key=str)
    else:
        assert out == wanted


@pytest.mark.parametrize("cache", [0, 10_000_000])
@pytest.mark.parametrize("form", FORMS)
def test_what_was_added_is_subtracted_once(form: str, cache: int, tmp_path: Path) -> None:
    with Driver(plan_of(tmp_path, TABLES % (cache, FORMS[form] + SUM))) as driver:
        sums = [piped(driver, *record)[-1][1] for record in INPUT]
    assert sums == [1, 3, 5, 9, 8, 6, 13]


def test_a_source_topic_takes_no_deletions(tmp_path: Path) -> None:
    """Topology optimization makes the source topic the changelog, but for a store whose rows are deleted."""
    plan = plan_of(tmp_path, TABLES % (0, FORMS["source"] + " [to_stream]"))
    assert (plan.stores["s"].source_topic, plan.changelog_name("s")) == (None, "app-s-changelog")


def test_a_store_of_a_processor_deletes_rows(tmp_path: Path) -> None:
    (tmp_path / "seen.py").write_text(
        "class Seen:\n"
        "    def init(self, context):\n        self.context, self.store = context, context.store('seen')\n"
        "    def process(self, record):\n"
        "        if self.store.put_if_absent(record.key, record.value) is None:\n"
        "            self.context.forward(record)\n"
    )
    text = TABLES % (0, "stream: in\n    steps:\n      - process: {call: 'seen:Seen', stores: seen, value_serde: long}")
    text += "stores:\n  seen: {type: key_value, key: string, value: long, ttl: 1s}\n"
    remains = Remains()
    with Driver(plan_of(tmp_path, text), remains) as driver:
        out = [each for record in INPUT for each in piped(driver, *record)]
    assert out == [INPUT[0], INPUT[1], INPUT[3], INPUT[6]]
    logged = [(row[1], row[2] is None, row[3]) for row in remains.changelogs["app-seen-changelog"]]
    assert logged == [
        (b"a", False, 0), (b"b", False, 5), (b"c", False, 1_004), (b"a", True, 1_000), (b"b", True, 1_010), (b"a", False, 1_501)
    ]  # fmt: skip


def test_timers_come_after_deletions(tmp_path: Path) -> None:
    (tmp_path / "timer.py").write_text(
        "from streamkit import Record\n"
        "class Timer:\n"
        "    def init(self, context):\n"
        "        self.store = context.store('seen')\n"
        "        context.schedule(1000, 'stream_time', self.fire)\n"
        "        self.context = context\n"
        "    def process(self, record):\n        self.store.put(record.key, record.value)\n"
        "    def fire(self, time):\n"
        "        keys = ','.join(key for key, _ in self.store.all())\n"
        "        self.context.forward(Record(keys, time, time))\n"
    )
    text = TABLES % (
        0,
        "stream: in\n    steps:\n      - process: {call: 'timer:Timer', stores: seen, value_serde: long}",
    )
    text += "stores:\n  seen: {type: key_value, key: string, value: long, ttl: 1s}\n"
    with Driver(plan_of(tmp_path, text)) as driver:
        out = [each[:2] for record in (INPUT[0], INPUT[3]) for each in piped(driver, *record)]
    assert out == [("a", 0), ("c", 1_004)]


# -- Many at once -----------------------------------------------------------------------------------------------------


def test_many_rows_are_deleted_in_parts_and_none_twice(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task, "_AT_ONCE", 3)
    with Driver(plan_of(tmp_path, statestore_cache_max_bytes=0)) as driver:
        for number in range(10):
            piped(driver, f"k{number}", "v", number)
        out = piped(driver, "late", "v", 5_000)
    assert out == [("late", 1, 5_000), ("k0", None, 1_000), *((f"k{number}", None, 1_010) for number in range(1, 10))]


# -- Applications -----------------------------------------------------------------------------------------------------


@pytest.fixture
def log(tmp_path: Path) -> Any:
    transport = EmbeddedTransport(tmp_path / "log")
    with_topics = transport.admin()
    with_topics.create_topics([NewTopic("in", PARTITIONS), NewTopic("out", 1)])
    with_topics.close()
    yield transport
    transport.close()


def send(log: EmbeddedTransport, records: list[tuple[int, str, int]]) -> None:
    producer = log.producer()
    producer.send([("in", key.encode(), b"v", time, None, partition) for partition, key, time in records])
    producer.flush()
    producer.close()


def written(log: EmbeddedTransport, topic: str = "out", partitions: int = 1) -> list[Written]:
    places = [TopicPartition(topic, number) for number in range(partitions)]
    consumer = log.consumer(None, read_committed=True)
    try:
        ends = consumer.end_offsets(places)
        consumer.assign(dict.fromkeys(places, EARLIEST))
        found: list[Written] = []
        while any(consumer.position(place) < end for place, end in ends.items()):
            for batch in consumer.poll(1000, 10):
                rows = zip(batch.keys, batch.values, batch.timestamps, strict=True)
                found += [(k.decode(), None if v is None else int.from_bytes(v), t) for k, v, t in rows]
        return found
    finally:
        consumer.close()


def drawn(seed: int, count: int) -> list[tuple[int, str, int]]:
    """Return (partition, key, time) of records that mostly move on, and are sometimes late; a key has one partition."""
    draw, times = random.Random(seed), [0] * PARTITIONS
    records = []
    for _ in range(count):
        number = draw.randrange(8)
        partition = number % PARTITIONS
        times[partition] += draw.choice((0, 0, 1, 3, 150, 700))
        time = max(0, times[partition] - draw.choice((0, 0, 0, 5, 900, 1_800)))
        records.append((partition, f"k{number}", time))
    return records


def modelled(records: list[tuple[int, str, int]]) -> dict[str, list[Written]]:
    """Return what comes out by key: each partition has a stream time of its own."""
    models = [Model() for _ in range(PARTITIONS)]
    found: dict[str, list[Written]] = {}
    for partition, key, time in records:
        for each in models[partition].take(key, time):
            found.setdefault(each[0], []).append(each)
    return found


def by_key(records: list[Written]) -> dict[str, list[Written]]:
    found: dict[str, list[Written]] = {}
    for each in records:
        found.setdefault(each[0], []).append(each)
    return found


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
@pytest.mark.parametrize("kind", ["memory", *EVERY_ENGINE])
def test_an_application_deletes_what_the_model_deletes_through_restarts(
    kind: str, guarantee: str, log: EmbeddedTransport, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(task, "_AT_ONCE", 3)
    text = COUNT.replace("ttl: 1s", "ttl: 1s, type: in_memory") if kind == "memory" else COUNT
    config = {
        "processing_guarantee": guarantee,
        "state_dir": tmp_path / "state",
        "statestore_cache_max_bytes": 0,
        "poll_ms": 5,
    }
    if kind != "memory":
        config["state_engine"] = kind
    records = drawn(7, 200)
    for start in range(0, 200, 50):
        send(log, records[start : start + 50])
        if start == 100:  # on another machine
            config["state_dir"] = tmp_path / "other"
        plan = plan_of(tmp_path, text, **config)
        Application(plan, log).run(until_idle=True, stop=_never())
    wanted = modelled(records)
    assert sum(each[1] is None for found in wanted.values() for each in found) > 20
    assert by_key(written(log)) == wanted
    assert by_key(written(log, "app-counts-changelog", PARTITIONS)) == wanted


def test_an_application_with_a_cache_has_the_rows_of_one_without(log: EmbeddedTransport, tmp_path: Path) -> None:
    records = drawn(11, 200)
    for start in range(0, 200, 50):
        send(log, records[start : start + 50])
        Application(plan_of(tmp_path, state_dir=tmp_path / "state", poll_ms=5), log).run(until_idle=True, stop=_never())
    alive = {key: found[-1] for key, found in modelled(records).items()}
    last = {key: found[-1] for key, found in by_key(written(log)).items()}
    # What came and went within a commit has left no trace.
    assert last == {key: each for key, each in alive.items() if key in last}
    assert {key for key, each in alive.items() if each[1] is not None} <= set(last)


def _never() -> threading.Event:
    return threading.Event()


def test_a_standby_continues_to_delete_where_the_active_task_stopped(log: EmbeddedTransport, tmp_path: Path) -> None:
    config = {"statestore_cache_max_bytes": 0, "commit_interval_ms": 20, "poll_ms": 5}
    plan = plan_of(tmp_path, state_dir=tmp_path / "state", **config)
    records = drawn(3, 150)
    every = [TaskId(0, number) for number in range(PARTITIONS)]
    application = Application(plan, log)
    application.start()
    try:
        until(lambda: application._maintain() or application.ready, "the start")
        (thread,) = application.threads
        for start in range(0, 150, 50):
            send(log, records[start : start + 50])
            wanted = modelled(records[: start + 50])
            until(lambda wanted=wanted: by_key(written(log)) == wanted, "the model's records")
            for active, standby in (([], every), (every, [])):
                thread.assign(active, standby)
                until(lambda: thread.settled() and thread._tasks.restored, "the assignment")
    finally:
        application.stop()
    application.raise_error()
