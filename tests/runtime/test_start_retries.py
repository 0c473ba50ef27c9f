"""A log that does not answer, when an application starts and when it is about to end."""

from __future__ import annotations

import logging
import threading

import pytest

from streamkit.errors import ProductionError, UnreachableError
from streamkit.plan import load
from streamkit.record import TopicPartition
from streamkit.runtime.local import client
from streamkit.runtime.local.client import Application
from streamkit.runtime.local.states import ClientState
from tests.cli.support import LIMIT_S
from tests.runtime.fake_log import FakeAdmin, FakeConsumer, FakeLog, FakeProducer
from tests.runtime.plans import pass_through


@pytest.fixture(autouse=True)
def hurry(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(client, "RETRY_SECONDS", 0.001)


class Away:
    """Has FakeAdmin fail so often; `asked` counts, `reached` is set once it was asked twice."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch, times: int):
        self.asked = 0
        self.reached = threading.Event()
        answer = FakeAdmin.topics

        def topics(admin, names=None):
            self.asked += 1
            if self.asked >= 2:
                self.reached.set()
            if self.asked <= times:
                raise UnreachableError("topics could not be listed: no Kafka broker answers at a:1")
            return answer(admin, names)

        monkeypatch.setattr(FakeAdmin, "topics", topics)


def filled() -> FakeLog:
    log = FakeLog({})
    log.append([("in", None, str(n).encode(), n, None, n % 3) for n in range(9)])
    return log


def output(log: FakeLog) -> list[int]:
    return sorted(int(row[2]) for row in log.rows[TopicPartition("out", 0)])


def warnings(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [each.getMessage() for each in caplog.records if each.levelno == logging.WARNING]


def test_a_start_waits_for_a_broker(tmp_path, monkeypatch, caplog):
    away = Away(monkeypatch, 3)
    log = filled()
    Application(pass_through(tmp_path), log).run(until_idle=True, stop=threading.Event())
    assert output(log) == list(range(9))
    assert away.asked > 3
    # Of many tries the first is a line, then one now and then.
    said = "topics could not be listed: no Kafka broker answers at a:1; trying again"
    assert warnings(caplog).count(said) == 1


def test_what_has_to_end_waits_for_the_task_time_out_only(tmp_path, monkeypatch):
    Away(monkeypatch, 10**9)
    application = Application(pass_through(tmp_path, **{"task.timeout.ms": 20}), FakeLog({}))
    with pytest.raises(UnreachableError, match=r"answers at a:1; it was tried for 20 ms \(task\.timeout\.ms\)"):
        application.run(until_idle=True, stop=threading.Event())
    assert application.state is ClientState.ERROR


def test_a_service_waits_without_an_end_and_ends_in_order(tmp_path, monkeypatch):
    away = Away(monkeypatch, 10**9)
    application = Application(pass_through(tmp_path, **{"task.timeout.ms": 0}), FakeLog({}))
    stop = threading.Event()
    thread = threading.Thread(target=application.run, kwargs={"stop": stop})
    thread.start()
    assert away.reached.wait(LIMIT_S)
    stop.set()
    thread.join(LIMIT_S)
    assert application.state is ClientState.NOT_RUNNING
    assert application.error is None


def logged(monkeypatch: pytest.MonkeyPatch, line: str) -> threading.Event:
    """Return an event that is set once a line is logged."""
    found = threading.Event()
    handler = logging.Handler()
    handler.addFilter(lambda record: record.getMessage() == line)
    handler.emit = lambda record: found.set()
    # After the handler that keeps the lines for the test.
    monkeypatch.setattr(logging.getLogger(), "handlers", [*logging.getLogger().handlers, handler])
    return found


def test_a_signal_ends_a_start_whose_call_gets_no_answer(tmp_path, monkeypatch, caplog):
    monkeypatch.setattr(client, "QUIET_SECONDS", 0)
    caplog.set_level(logging.INFO, "streamkit")
    told = logged(monkeypatch, "no answer from embedded yet; waiting for it")
    never = threading.Event()

    def topics(admin, names=None):
        never.wait()

    monkeypatch.setattr(FakeAdmin, "topics", topics)
    application = Application(pass_through(tmp_path), FakeLog({}))
    stop = threading.Event()
    thread = threading.Thread(target=application.run, kwargs={"stop": stop})
    thread.start()
    assert told.wait(LIMIT_S)
    stop.set()
    thread.join(LIMIT_S)
    assert application.state is ClientState.NOT_RUNNING
    never.set()
    # What was tried has an answer.
    assert warnings(caplog) == []


def test_what_was_tried_without_success_is_a_warning(monkeypatch, caplog):
    monkeypatch.setattr(client, "QUIET_SECONDS", 0)
    line = "no answer from a:1 yet; waiting for it; tried a:1: Connection refused"
    told = logged(monkeypatch, line)
    retries = client.StartRetries(None, None, "a:1", lambda: "a:1: Connection refused")
    assert retries.call_in_thread(lambda: told.wait(LIMIT_S))
    assert warnings(caplog) == [line]


@pytest.mark.parametrize("handler", ["fail", "continue"])
def test_records_that_wait_too_long_at_the_last_commit_are_made_again(tmp_path, monkeypatch, caplog, handler):
    """The commit before the end: nothing is left to read, and what was put out is not on the log yet."""
    refused = []
    flush = FakeProducer.flush
    flushed = []

    def refuse_once(producer):
        flushed.append(producer)
        if not refused:
            refused.append(ProductionError("a record for topic app-again could not be written: Message timed out"))
            refused[0].retriable = True
            raise refused[0]
        flush(producer)

    monkeypatch.setattr(FakeProducer, "flush", refuse_once)
    log = filled()
    plan = pass_through(tmp_path, **{"production.exception.handler": handler})
    Application(plan, log).run(until_idle=True, stop=threading.Event())
    assert set(output(log)) == set(range(9))
    # The producer that could not write them may never write anything again.
    assert flushed[0] not in flushed[1:]
    assert any("its tasks start again from their last commit" in line for line in warnings(caplog))


GLOBAL = """
streamkit: 1
application: names
topics: {names: {value: string}, words: {value: string}, out: {value: string}}
pipelines:
  names: {global_table: names, store: {name: names}}
  out: {stream: words, to: out}
"""


def test_a_stop_ends_the_restore_of_global_stores(tmp_path, monkeypatch):
    """Their topic may never be read to its end, as when its leader is gone."""
    path = tmp_path / "topology.yaml"
    path.write_text(GLOBAL)
    log = FakeLog({"names": 1, "words": 1, "out": 1})
    log.append([("names", b"k", b"v", 1, None, 0)])
    stop = threading.Event()

    def poll(*_):
        stop.set()
        return []

    monkeypatch.setattr(FakeConsumer, "poll", poll)
    application = Application(load(path, {"state.dir": str(tmp_path / "state")}), log)
    application.run(stop=stop)
    assert application.state is ClientState.NOT_RUNNING
