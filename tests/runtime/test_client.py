"""An application over a log in memory: topics, threads, idleness, stopping, failures."""

from __future__ import annotations

import os
import threading
import time
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import pytest

from streamkit.errors import ConfigError, InvalidTopologyError, ProductionError, StateLockedError, TopicError
from streamkit.record import TopicPartition
from streamkit.runtime.driver import Driver, run_lines
from streamkit.runtime.local.client import Application
from streamkit.runtime.local.states import ClientState
from streamkit.runtime.operations import group_lag
from streamkit.state.directory import StateDirectory
from tests.runtime.fake_log import FakeLog, FakeProducer
from tests.runtime.plans import pass_through


def filled(log: FakeLog, count: int = 9) -> FakeLog:
    log.append([("in", None, str(n).encode(), n, None, n % 3) for n in range(count)])
    return log


def output(log: FakeLog) -> list[int]:
    return sorted(int(row[2]) for row in log.rows[TopicPartition("out", 0)])


def test_until_idle_reads_internal_topics_too(tmp_path):
    log = filled(FakeLog({}))
    states = []
    application = Application(pass_through(tmp_path), log, lambda new, old: states.append(new))
    application.run(until_idle=True, stop=threading.Event())
    assert output(log) == list(range(9))
    assert log.partitions == {"in": 3, "out": 1, "app-again": 3}
    assert log.offsets[TopicPartition("in", 2)].offset == 3
    assert states[-2:] == [ClientState.PENDING_SHUTDOWN, ClientState.NOT_RUNNING]
    assert ClientState.RUNNING in states


def test_continues_where_it_stopped(tmp_path):
    log = filled(FakeLog({}))
    Application(pass_through(tmp_path), log).run(until_idle=True, stop=threading.Event())
    filled(log, 3)
    Application(pass_through(tmp_path), log).run(until_idle=True, stop=threading.Event())
    assert len(output(log)) == 12


def test_missing_source_topics_are_named(tmp_path):
    plan = pass_through(tmp_path)
    topics = {**plan.external_topics, "in": replace(plan.external_topics["in"], partitions=None)}
    with pytest.raises(TopicError, match="source topics are missing: in; create them"):
        Application(replace(plan, external_topics=topics), FakeLog({})).start()


def test_internal_topics_must_have_the_right_count(tmp_path):
    with pytest.raises(InvalidTopologyError, match="existing internal topic app-again has 7 partitions"):
        Application(pass_through(tmp_path), FakeLog({"app-again": 7})).start()


def test_two_processes_do_not_share_a_state_directory(tmp_path):
    owner = StateDirectory(tmp_path, "app")
    application = Application(pass_through(tmp_path), FakeLog({}))
    with pytest.raises(StateLockedError):
        application.start()
    assert application.state is ClientState.ERROR
    owner.close()


def test_state_that_lay_too_long_is_deleted_at_the_start(tmp_path, caplog):
    caplog.set_level("INFO")
    for name, age in (("7_0", 3_600), ("7_1", 60), ("global", 3_600)):
        (tmp_path / "app" / name).mkdir(parents=True)
        (tmp_path / "app" / name / "rows").touch()
        then = time.time() - age
        os.utime(tmp_path / "app" / name, (then, then))
    plan = pass_through(tmp_path, **{"state.cleanup.dir.max.age.ms": 600_000})
    Application(plan, FakeLog({})).run(until_idle=True, stop=threading.Event())
    assert not (tmp_path / "app" / "7_0").exists()
    assert (tmp_path / "app" / "7_1" / "rows").exists()
    assert (tmp_path / "app" / "global" / "rows").exists()
    assert "the state of task 7_0 is older than state.cleanup.dir.max.age.ms (600000) and is deleted" in caplog.text


def test_exactly_once_needs_a_log_with_transactions(tmp_path):
    with pytest.raises(ConfigError, match="exactly_once_v2 needs transactions"):
        Application(pass_through(tmp_path, **{"processing.guarantee": "exactly_once_v2"}), FakeLog({}))


def test_a_failing_thread_ends_the_application_with_its_error(tmp_path, monkeypatch):
    def refuse(self, rows):
        raise ProductionError("app-again: record too large")

    monkeypatch.setattr(FakeProducer, "send", refuse)
    application = Application(pass_through(tmp_path), filled(FakeLog({})))
    with pytest.raises(ProductionError, match="record too large"):
        application.run(stop=threading.Event())
    assert application.state is ClientState.ERROR


def test_the_driver_reads_internal_topics_back():
    with Driver(pass_through()) as driver:
        assert driver.pipe({"topic": "in", "key": "k", "value": "v", "timestamp": 7}) == [
            {"topic": "out", "key": "k", "value": "v", "timestamp": 7}
        ]


def test_an_absent_timestamp_is_the_clocks():
    with Driver(pass_through()) as driver:
        driver.pipe({"advance_wall_clock": "5s"})
        assert driver.pipe({"topic": "in", "value": "v"})[0]["timestamp"] == 5000


def test_unknown_topics_get_the_nearest_name():
    with Driver(pass_through()) as driver, pytest.raises(TopicError, match=r"lines:2: .*'inn'; did you mean 'in'\?"):
        list(run_lines(driver, ["", '{"topic": "inn"}'], "lines"))


def test_what_came_before_a_failure_is_printed():
    with Driver(pass_through()) as driver:
        lines = run_lines(driver, ['{"topic": "in", "value": "a"}', '{"topic": "in", "timestamp": -1}'])
        assert next(lines)["value"] == "a"
        with pytest.raises(Exception, match="the timestamp -1 is negative"):
            next(lines)


def test_partitions_that_are_added_end_the_instance(tmp_path):
    log = filled(FakeLog({}))
    application = Application(pass_through(tmp_path, **{"metadata.max.age.ms": 1}), log)
    application.start()
    log.partitions["in"] = 4
    application.wait(threading.Event())
    application.stop()
    with pytest.raises(
        InvalidTopologyError, match=r"topic in has 4 partitions, but app\.yaml declares 3; write `partitions: 4`"
    ):
        application.raise_error()
    assert application.state is ClientState.ERROR


def test_records_are_looked_for_as_long_as_positions_advance(monkeypatch) -> None:
    """A long part of the log that holds only aborted records takes more than one wait."""
    clock = SimpleNamespace(now=0.0)
    monkeypatch.setattr(group_lag, "monotonic", lambda: clock.now)
    place = TopicPartition("in", 0)

    class Consumer:
        at = 0

        def assign(self, positions: Any) -> None:
            self.at = positions[place]

        def poll(self, limit: int, timeout_ms: int) -> list[Any]:
            clock.now += 1.5
            self.at += 1
            return []

        def position(self, partition: TopicPartition) -> int:
            return min(self.at, stuck_at)

    stuck_at = 9
    consumer: Any = Consumer()
    assert not group_lag.has_records(consumer, {place: 0}, {place: 9})
    assert group_lag.has_records(consumer, {place: 0}, {place: 10})
