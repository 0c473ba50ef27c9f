"""Applications over the embedded log: both guarantees, and two instances that share the tasks."""

from __future__ import annotations

import threading
from contextlib import closing

import pytest

from streamkit.errors import DamagedLogError, ProductionError, TransportError
from streamkit.plan import load
from streamkit.record import TopicPartition
from streamkit.runtime.local.client import Application
from streamkit.transport.embedded import EmbeddedTransport
from streamkit.transport.embedded.database import FILE
from streamkit.transport.embedded.embedded_clients import EmbeddedProducer
from streamkit.transport.embedded.log_tables import MAX_BATCH_BYTES, MAX_READ_BYTES
from streamkit.transport.log_interface import NewTopic, Producer
from tests.broker.support import until
from tests.cli.support import LIMIT_S
from tests.runtime.plans import pass_through

OUT = TopicPartition("out", 0)
GUARANTEES = ["at_least_once", "exactly_once_v2"]


@pytest.fixture
def log(tmp_path):
    transport = EmbeddedTransport(tmp_path / "log")
    admin = transport.admin()
    admin.create_topics([NewTopic("in", 3), NewTopic("out", 1)])
    admin.close()
    yield transport
    transport.close()


def fill(log: EmbeddedTransport, count: int) -> None:
    producer = log.producer()
    producer.send([("in", None, str(n).encode(), n + 1, None, n % 3) for n in range(count)])
    producer.flush()
    producer.close()


def written(log: EmbeddedTransport) -> int:
    consumer = log.consumer(None, read_committed=True)
    try:
        return consumer.end_offsets([OUT])[OUT]
    finally:
        consumer.close()


@pytest.mark.parametrize("part", ["key", "value", "header"])
def test_large_records_are_stored_and_read_a_few_at_a_time(log, part):
    producer = log.producer()
    size = MAX_BATCH_BYTES // 2

    def row(n: int) -> tuple:
        key, value, header = (bytes([n]) * (size if name == part else 1) for name in ("key", "value", "header"))
        return "out", key, value, 1, [("h", header)], 0

    producer.send([row(n) for n in range(12)])
    producer.close()
    consumer = log.consumer(None, read_committed=True)
    consumer.add({OUT: 0})
    read = []
    while len(read) < 12:
        batches = consumer.poll(1_000, 1_000)
        assert [batch for batch in batches if len(batch) > 2] == []
        assert 0 < sum(map(len, batches)) * size <= MAX_READ_BYTES + MAX_BATCH_BYTES
        read += [value[0] for batch in batches for value in batch.values]
    consumer.close()
    assert read == list(range(12))


def test_a_topic_that_is_deleted_while_rows_wait_for_the_log_takes_no_others_with_it(log, monkeypatch):
    producer = log.producer()
    group = producer._group

    def late(rows):
        grouped = group(rows)
        # The partitions are counted, and the log is not locked yet.
        with closing(log.admin()) as admin:
            admin.delete_topics(["in"])
        return grouped

    monkeypatch.setattr(producer, "_group", late)
    with pytest.raises(ProductionError, match="topic in could not be written: the topic does not exist") as raised:
        producer.send([("in", None, b"1", 1, None, None), ("out", None, b"2", 2, None, 0)])
    producer.close()
    # A handler that continues drops these rows.
    assert [row[0] for row in raised.value.rows] == ["in"]
    assert written(log) == 1


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_until_idle_and_again(log, tmp_path, guarantee):
    fill(log, 300)
    for total in (300, 600):
        plan = pass_through(tmp_path, **{"processing.guarantee": guarantee})
        Application(plan, log).run(until_idle=True, stop=threading.Event())
        assert written(log) == total
        fill(log, 300)


class FullLog(EmbeddedTransport):
    """A log with little space left for records; the offsets of a commit still fit, from another connection."""

    def producer(self, *, transactional_id: str | None = None, client_id: str = "") -> Producer:
        producer = EmbeddedProducer(self.directory, transactional_id)
        execute = producer._database._connection.execute
        pages = execute("PRAGMA page_count").fetchone()[0]
        # SQLite's limit of pages answers as a full disk does.
        execute(f"PRAGMA max_page_count = {pages + 8}")
        return producer


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_no_handler_drops_records_because_the_disk_is_full(log, tmp_path, guarantee):
    fill(log, 6_000)
    config = {"processing.guarantee": guarantee, "production.exception.handler": "continue"}
    with pytest.raises(TransportError, match="database or disk is full") as raised:
        Application(pass_through(tmp_path, **config), FullLog(log.directory)).run(
            until_idle=True, stop=threading.Event()
        )
    assert "\n" not in str(raised.value)
    assert written(log) < 6_000
    Application(pass_through(tmp_path, **config), log).run(until_idle=True, stop=threading.Event())
    consumer = log.consumer(None, read_committed=True)
    consumer.add({OUT: 0})
    found = {value for batch in consumer.poll(20_000, 0) for value in batch.values}
    consumer.close()
    assert found == {str(n).encode() for n in range(6_000)}


def test_no_handler_drops_records_of_a_topic_with_an_illegal_name(log, tmp_path):
    fill(log, 1)
    path = tmp_path / "topology.yaml"
    path.write_text(
        "{streamkit: 1, application: names, topics: {in: {}}, pipelines: {p: {stream: in, to: {route: \"'a b'\"}}}, "
        f"config: {{production.exception.handler: continue, state.dir: {tmp_path}}}}}"
    )
    with pytest.raises(
        ProductionError, match=r"; no handler drops records of a topic whose name has ' ', which is not"
    ):
        Application(load(path, env={}), log).run(until_idle=True, stop=threading.Event())


def test_no_handler_drops_records_of_a_repartition_topic_that_is_deleted(log, tmp_path, monkeypatch):
    group = EmbeddedProducer._group

    def late(producer, rows):
        with closing(log.admin()) as admin:
            admin.delete_topics(["app-again"])
        return group(producer, rows)

    fill(log, 1)
    monkeypatch.setattr(EmbeddedProducer, "_group", late)
    config = {"production.exception.handler": "continue", "num.stream.threads": 1, "commit.interval.ms": 0}
    with pytest.raises(ProductionError, match=r"app-again could not be written: .*; no handler drops records"):
        Application(pass_through(tmp_path, **config), log).run(until_idle=True, stop=threading.Event())


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_run_that_begins_at_the_end_is_where_the_next_one_begins(log, tmp_path, guarantee):
    for total in (0, 300, 600):
        fill(log, 300)
        plan = pass_through(tmp_path, **{"processing.guarantee": guarantee, "auto.offset.reset": "latest"})
        Application(plan, log).run(until_idle=True, stop=threading.Event())
        assert written(log) == total


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_two_instances_share_the_tasks(log, tmp_path, guarantee):
    fill(log, 300)
    config = {"processing.guarantee": guarantee, "commit.interval.ms": 10}
    applications = [Application(pass_through(tmp_path / name, **config), log) for name in ("a", "b")]
    errors: list[BaseException] = []

    def run(application: Application) -> None:
        try:
            application.run(until_idle=True, stop=threading.Event())
        except BaseException as error:
            errors.append(error)

    threads = [threading.Thread(target=run, args=(application,)) for application in applications]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(LIMIT_S)
    assert errors == []
    assert written(log) == 300


def test_a_thread_continues_after_its_transactional_id_was_taken(log, tmp_path):
    """It gives its tasks up, and processes them with a new producer when the group has assigned them again."""
    config = {"processing.guarantee": "exactly_once_v2", "commit.interval.ms": 10}
    application = Application(pass_through(tmp_path, **config), log)
    application.start()
    try:
        for total in (30, 60):
            fill(log, 30)
            until(lambda total=total: application._maintain() or written(log) >= total, f"{total} results")
            if total == 30:
                for thread in application.threads:
                    other = log.producer(transactional_id=thread._committer._transactional_id)
                    other.begin()
                    other.close()
    finally:
        application.stop()
    application.raise_error()
    assert written(log) == 60


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_a_changed_record_ends_the_application_with_its_place(log, tmp_path, guarantee):
    fill(log, 30)
    producer = log.producer()
    producer.send([("in", None, b"flipped", 1, None, 2)])
    producer.close()
    file = tmp_path / "log" / FILE
    file.write_bytes(file.read_bytes().replace(b"flipped", b"flopped"))
    plan = pass_through(tmp_path, **{"processing.guarantee": guarantee})
    with pytest.raises(
        DamagedLogError, match=rf"{FILE} is damaged: records of in \[2\] from offset 10 on were changed"
    ):
        Application(plan, log).run(until_idle=True, stop=threading.Event())


CLOSING = """streamkit: 1
application: app
config: {{bootstrap.servers: embedded, state.dir: {folder}, processing.guarantee: {guarantee}}}
topics:
  in: {{key: string, value: string}}
  out: {{key: string, value: string}}
stores:
  seen: {{type: key_value, value: string, key: string}}
pipelines:
  main:
    stream: in
    steps: [process: {{call: "batching:Batch", stores: [seen]}}]
    to: out
"""
BATCH = """
class Batch:
    def init(self, context):
        self.context, self.waiting = context, []
    def process(self, record):
        self.waiting.append(record)
    def close(self):
        seen = self.context.store("seen")
        for record in self.waiting:
            if seen.put_if_absent(record.value, "") is None:
                self.context.forward(record)
"""


@pytest.mark.parametrize("guarantee", GUARANTEES)
def test_what_a_processor_forwards_and_stores_when_it_is_closed_is_written(log, tmp_path, guarantee):
    (tmp_path / "batching.py").write_text(BATCH)
    path = tmp_path / "topology.yaml"
    path.write_text(CLOSING.format(folder=tmp_path / "state", guarantee=guarantee))
    for total in (30, 60, 60):
        fill(log, total)
        Application(load(path, env={}), log).run(until_idle=True, stop=threading.Event())
        assert written(log) == total


def test_a_task_that_moves_takes_what_its_processor_forwards_with_it(log, tmp_path):
    (tmp_path / "batching.py").write_text(BATCH)
    path = tmp_path / "topology.yaml"
    path.write_text(CLOSING.format(folder=tmp_path / "state", guarantee="at_least_once"))
    fill(log, 30)
    application = Application(load(path, env={}), log)

    def read() -> int:
        return sum(task.processed for task in application.status(lag=False).tasks)

    application.start()
    try:
        until(lambda: application._maintain() or read() == 30, "all are processed")
        application.add_thread()
        until(lambda: application._maintain() or written(log), "tasks have moved to the new thread")
    finally:
        application.stop()
    assert written(log) == 30
