"""What an application tells of itself, and reading beside its threads."""

from __future__ import annotations

import threading

import pytest

from streamkit.errors import StateError
from streamkit.metrics import DropReason
from streamkit.plan import load
from streamkit.runtime.local.client import Application
from streamkit.runtime.local.gate import Gate
from tests.broker.support import until
from tests.cli.support import LIMIT_S
from tests.runtime.fake_log import FakeLog, FakeProducer
from tests.runtime.plans import pass_through


def filled(count: int = 9) -> FakeLog:
    log = FakeLog({})
    log.append([("in", None, str(n).encode(), n, None, n % 3) for n in range(count)])
    return log


@pytest.fixture
def running(tmp_path):
    application = Application(pass_through(tmp_path), filled())
    application.start()
    yield application
    application.stop()


def test_a_new_application_has_a_status(tmp_path):
    status = Application(pass_through(tmp_path), FakeLog({})).status()
    assert (status.state, status.threads, status.lag, status.restoring) == ("CREATED", (), 0, ())


def test_tasks_positions_and_lag(running):
    def settled():
        status = running.status()
        done = {task.id: task.processed for task in status.tasks}
        return status if len(done) == 6 and sum(done.values()) == 18 and status.lag == 0 else None

    status = until(settled, "18 records processed, nothing behind")
    assert status.state == "RUNNING"
    assert {thread.state for thread in status.threads} == {"RUNNING"}
    inputs = [each for task in status.tasks for each in task.inputs]
    assert {(each.topic, each.partition, each.position, each.end) for each in inputs if each.topic == "in"} == {
        ("in", partition, 3, 3) for partition in range(3)
    }
    topics = {topic.topic: topic for topic in status.topics}
    assert (topics["in"].consumed, topics["in"].produced, topics["in"].lag) == (9, 0, 0)
    assert (topics["app-again"].consumed, topics["app-again"].produced) == (9, 9)
    assert (topics["out"].consumed, topics["out"].produced, topics["out"].lag) == (0, 9, None)
    assert sum(thread.totals["process-total"] for thread in status.threads) == 18


def test_an_end_that_is_not_known_leaves_the_lag_open(tmp_path, monkeypatch):
    from streamkit.errors import UnreachableError
    from tests.runtime.fake_log import FakeConsumer

    application = Application(pass_through(tmp_path), filled())
    application.start()
    try:
        until(lambda: sum(task.processed for task in application.status(lag=False).tasks) == 18, "18 records processed")

        def refuse(self, partitions):
            raise UnreachableError("no broker")

        monkeypatch.setattr(FakeConsumer, "end_offsets", refuse)
        assert application.status().lag is None
    finally:
        application.stop()


def test_a_commit_that_waits_for_the_log_blocks_no_reader(tmp_path, monkeypatch):
    flushing, go_on = threading.Event(), threading.Event()

    def flush(self):
        flushing.set()
        assert go_on.wait(LIMIT_S)

    monkeypatch.setattr(FakeProducer, "flush", flush)
    application = Application(pass_through(tmp_path, **{"commit.interval.ms": 1}), filled())
    application.start()
    try:
        assert flushing.wait(LIMIT_S)
        for thread in application.threads:
            with thread.gate.entered(LIMIT_S):
                pass
    finally:
        go_on.set()
        application.stop()


def test_waiting_queries_run_while_the_owner_is_busy():
    gate, stop, seen = Gate(), threading.Event(), []

    def own() -> None:
        gate.acquire()
        while not stop.is_set():
            gate.admit_waiting()
        gate.release()

    owner = threading.Thread(target=own)
    owner.start()
    try:
        for number in range(100):
            with gate.entered(LIMIT_S):
                seen.append(number)
    finally:
        stop.set()
        owner.join(LIMIT_S)
    assert seen == list(range(100))


def test_the_owner_learns_whether_a_query_waited_too_long(monkeypatch):
    now = [0.0]
    monkeypatch.setattr("streamkit.runtime.local.gate.monotonic", lambda: now[0])
    gate = Gate()
    gate.acquire()
    for waited, too_long in ((0.0, False), (1.0, True)):
        came = threading.Thread(target=_enter, args=(gate,))
        came.start()
        until(lambda: gate.waiting, "somebody waits")
        now[0] += waited
        assert gate.admit_waiting() is too_long
        came.join(LIMIT_S)
    assert gate.admit_waiting() is False
    gate.release()


def _enter(gate: Gate) -> None:
    with gate.entered(LIMIT_S):
        pass


def test_a_query_ends_although_the_owner_of_the_store_admits_none():
    gate = Gate()
    gate.acquire()
    with pytest.raises(StateError, match="busy"), gate.entered(0.01):
        pytest.fail("came in")
    gate.admit_waiting()
    gate.release()
    with gate.entered(0.01):
        pass


GLOBAL = """streamkit: 1
application: app
config: {state.dir: "${DIR}", deserialization.exception.handler: continue}
topics:
  rates: {key: string, value: long, partitions: 1}
  words: {key: string, value: string, partitions: 1}
  out: {partitions: 1}
pipelines:
  rates: {global_table: rates, store: {name: rates}}
  words: {stream: words, to: out}
"""


def test_records_that_global_stores_drop_are_counted_and_logged(tmp_path, caplog):
    path = tmp_path / "topology.yaml"
    path.write_text(GLOBAL)
    log = FakeLog({"rates": 1, "words": 1, "out": 1})
    application = Application(load(path, env={"DIR": str(tmp_path / "state")}), log)
    application.start()
    try:
        log.append([("rates", None, bytes(8), 1, None, 0), ("rates", b"a", b"short", 2, None, 0)])
        drops = until(lambda: len(found := application.status(lag=False).drops) == 2 and found, "two reasons")
    finally:
        application.stop()
    assert [(drop.task, drop.dropped, drop.message) for drop in drops if drop.reason == DropReason.NULL] == [
        ("global", 1, "topic rates, partition 0, offset 0")
    ]
    lines = [record.getMessage() for record in caplog.records if "task global" in record.getMessage()]
    assert lines == [
        "task global: dropped 1 record in the last minute (topic rates, no key or no value)",
        "task global: dropped 1 record in the last minute (topic rates does not decode)",
    ]
