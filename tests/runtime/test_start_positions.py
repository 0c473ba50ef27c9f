"""Where reading begins without a committed offset: by the topic's policy, else by `auto.offset.reset`."""

from __future__ import annotations

import threading
from contextlib import closing
from types import SimpleNamespace
from typing import Any

import pytest

from streamkit.compile.compiler import FATAL
from streamkit.errors import (
    InvalidTopologyError,
    ProcessingError,
    StreamkitError,
    TaskCorruptedError,
    TopicError,
    UnreachableError,
)
from streamkit.plan import load
from streamkit.plan.model import Plan
from streamkit.record import TopicPartition
from streamkit.runtime.local import internal_topics
from streamkit.runtime.local.client import Application
from streamkit.runtime.local.internal_topics import PartitionCounts, TopicsOnLog, TopicWatch, prepare_topics
from streamkit.runtime.local.state_updater import reset_positions
from streamkit.transport.embedded import EmbeddedTransport
from streamkit.transport.log_interface import EARLIEST, LATEST, NewTopic
from tests.broker.support import until
from tests.runtime.counting import rows
from tests.runtime.fake_log import FakeAdmin, FakeLog

HOUR = 3_600_000
NOW = 100 * HOUR
FILE = """streamkit: 1
application: app
config: {{{config}}}
topics:
  in: {{value: string, {entry}}}
  counts: {{value: long}}
pipelines:
  p:
    stream: in
    steps: [group_by: value, count: counts, to_stream]
    to: counts
"""


def position(tmp_path, *, config: str = "", entry: str = "", topic: str = "in", now: int = NOW) -> int:
    path = tmp_path / "app.yaml"
    path.write_text(FILE.format(config=config, entry=entry))
    shared: Any = SimpleNamespace(plan=load(path), clock=lambda: now)
    log = FakeLog({topic: 1})
    log.append([(topic, None, b"x", NOW - hours * HOUR, None, 0) for hours in (5, 3, 1)])
    place = TopicPartition(topic, 0)
    return reset_positions(shared, log.consumer(None), [place])[place]


@pytest.mark.parametrize(
    ("entry", "config", "expected"),
    [
        ("", "", EARLIEST),
        ("reset: latest", "", LATEST),
        ("reset: earliest", "auto.offset.reset: latest", EARLIEST),
        ("", "auto.offset.reset: latest", LATEST),
        ("", "auto.offset.reset: earliest, main.consumer.auto.offset.reset: latest", LATEST),
        ("reset: {by_duration: 4h}", "auto.offset.reset: latest", 1),
        ("reset: {by_duration: 3h}", "", 1),
        ("reset: {by_duration: 2h}", "", 2),
        ("reset: {by_duration: PT0S}", "", 3),
        ("reset: {by_duration: 90000000}", "", 0),
        ("", "consumer.auto.offset.reset: by_duration:PT2H", 2),
    ],
)
def test_policies(tmp_path, entry, config, expected):
    assert position(tmp_path, entry=entry, config=config) == expected


def test_a_time_before_all_times_is_the_beginning(tmp_path):
    assert position(tmp_path, entry="reset: {by_duration: 1h}", now=10) == 0


def test_the_policy_none_is_an_error(tmp_path):
    for settings in ({"entry": "reset: none"}, {"config": "auto.offset.reset: none"}):
        with pytest.raises(StreamkitError, match="no offset is committed for in-0, and its reset policy is none"):
            position(tmp_path, **settings)


def test_internal_topics_are_read_from_their_beginning_whatever_the_policy(tmp_path):
    assert position(tmp_path, config="auto.offset.reset: latest", topic="app-counts-repartition") == EARLIEST


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_the_end_at_which_reading_begins_is_committed_before_the_first_record(tmp_path, guarantee):
    path, place = tmp_path / "app.yaml", TopicPartition("in", 0)
    config = f"processing.guarantee: {guarantee}, commit.interval.ms: 60000, state.dir: {tmp_path / 'state'}"
    path.write_text(FILE.format(config=config, entry="partitions: 1, reset: latest"))
    log = EmbeddedTransport(tmp_path / "log")
    application = Application(load(path), log)
    application.start()
    with closing(log.consumer("app")) as consumer, closing(log.producer()) as producer:
        until(lambda: application._maintain() or consumer.committed([place]), "a commit without a record")
        application.stop()
        producer.send([("in", None, b"meanwhile", 2, None, 0)])
    Application(load(path), log).run(until_idle=True, stop=threading.Event())
    # A second start at the end would skip it.
    assert rows(log, "counts") == [("meanwhile", 1)]


WATCHED = """streamkit: 1
application: app
config: {metadata.max.age.ms: 0}
defaults: {key: string, value: string}
topics: {orders: {partitions: 1}, out: {partitions: 1}}
pipelines:
  orders: {stream: orders, to: out}
  logs: {stream: {pattern: "logs-.+"}, to: out}
"""


def watching(plan: Plan, log: EmbeddedTransport) -> TopicWatch:
    topics = prepare_topics(plan, log)
    return TopicWatch(plan, log, topics, PartitionCounts(topics, log))


def test_records_that_running_tasks_would_not_read_end_the_application(tmp_path):
    path = tmp_path / "app.yaml"
    path.write_text(WATCHED)
    plan, log = load(path), EmbeddedTransport(tmp_path / "log")
    with closing(log.admin()) as admin:
        admin.create_topics([NewTopic("logs-a", 1)])
        watch = watching(plan, log)
        admin.create_topics([NewTopic("log-b", 1)])
        watch.check()
        admin.create_topics([NewTopic("logs-b", 2)])
        with pytest.raises(
            InvalidTopologyError, match=r"pattern of .*app.yaml matches new topics: logs-b; restart to read"
        ):
            watch.check()
        watch = watching(plan, log)
        watch.check()
        admin.delete_topics(["orders"])
        # The metadata of a broker that has just started are incomplete.
        watch.check()
        admin.create_topics([NewTopic("orders", 1)])
        with pytest.raises(InvalidTopologyError, match=r"were deleted and created again .*: orders; .*reset-offsets"):
            watch.check()


def test_topics_that_are_deleted_end_the_application(tmp_path, monkeypatch):
    monkeypatch.setattr(internal_topics, "_MISSING_SECONDS", 0)
    path = tmp_path / "app.yaml"
    path.write_text(
        WATCHED.replace(
            "stream: orders,",
            "stream: orders, steps: [group_by_key, {count: sums}, to_stream, {map_values: {value: str(value), value_serde: string}}],",
        )
    )
    plan, log = load(path), EmbeddedTransport(tmp_path / "log")
    with closing(log.admin()) as admin:
        admin.create_topics([NewTopic("logs-a", 1)])
        for name in ("orders", "app-sums-changelog"):
            watch = watching(plan, log)
            admin.delete_topics([name])
            watch.check()
            with pytest.raises(TopicError, match=rf"were deleted while the application used them: {name};"):
                watch.check()
        watch = watching(plan, log)
        admin.delete_topics(["app-sums-changelog"])
        admin.create_topics([NewTopic("app-sums-changelog", 1)])
        with pytest.raises(
            InvalidTopologyError, match=r"changelogs were deleted and .*: app-sums-changelog; they lack"
        ):
            watch.check()


def test_topics_that_are_only_written_are_counted_anew(tmp_path):
    path = tmp_path / "app.yaml"
    path.write_text(WATCHED)
    plan, log = load(path), EmbeddedTransport(tmp_path / "log")
    with closing(log.admin()) as admin:
        admin.create_topics([NewTopic("logs-a", 1)])
        topics = prepare_topics(plan, log)
        counts = PartitionCounts(topics, log)
        watch = TopicWatch(plan, log, topics, counts)
        # A route may name a topic that is created later.
        with pytest.raises(ProcessingError, match="topic routed could not be written: it does not exist; create"):
            counts("routed")
        admin.create_topics([NewTopic("routed", 3)])
        assert counts("routed") == 3
        admin.delete_topics(["out"])
        admin.create_topics([NewTopic("out", 4)])
        assert counts("out") == 1
        watch.check()
        assert counts("out") == 4


def test_records_wait_for_the_number_of_partitions_while_no_broker_answers(monkeypatch):
    log = FakeLog({})
    counts = PartitionCounts(TopicsOnLog({}, {}), log)

    def refuse(*_: object) -> None:
        raise UnreachableError("no broker")

    with monkeypatch.context() as away:
        away.setattr(FakeAdmin, "topics", refuse)
        # No handler drops a record because of it: its task processes it again.
        with pytest.raises(TaskCorruptedError, match="no broker") as raised:
            counts("routed")
        assert isinstance(raised.value, FATAL)
    log.partitions["routed"] = 2
    assert counts("routed") == 2


GLOBAL = """streamkit: 1
application: app
config: {metadata.max.age.ms: 0}
defaults: {key: string, value: string}
topics: {words: {partitions: 1}, names: {}, out: {partitions: 1}}
pipelines:
  names: {global_table: names, store: {name: names}}
  words: {stream: words, to: out}
"""


def test_records_that_global_stores_would_not_read_end_the_application(tmp_path):
    path = tmp_path / "app.yaml"
    path.write_text(GLOBAL)
    plan, log = load(path), EmbeddedTransport(tmp_path / "log")
    with closing(log.admin()) as admin:
        for count, message in (
            (1, r"created again while the application read them: names; .*: the next start reads them"),
            (2, r"the number of partitions has changed: names from 1 to 2; restart to read them all"),
        ):
            admin.delete_topics(["names"])
            admin.create_topics([NewTopic("names", 1)])
            watch = watching(plan, log)
            watch.check()
            admin.delete_topics(["names"])
            admin.create_topics([NewTopic("names", count)])
            with pytest.raises(InvalidTopologyError, match=message):
                watch.check()
