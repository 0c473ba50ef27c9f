"""`lag` counts the records that can be read: a marker of a transaction is an offset, and no record."""

from __future__ import annotations

import json
from contextlib import closing
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from streamkit.plan import load
from streamkit.record import TopicPartition
from streamkit.runtime.local.client import is_behind
from streamkit.runtime.local.internal_topics import prepare_topics
from streamkit.runtime.operations.group_lag import has_records
from streamkit.transport.log_interface import CommittedOffset
from tests.broker.support import App, Log, application, until
from tests.cli.support import assert_one_clear_line, streamkit

pytestmark = pytest.mark.broker

COUNTING = """topics:
  in: {topic: "{a}in", value: string}
  out: {topic: "{a}out", key: string, value: long, partitions: 1}
pipelines:
  counts:
    stream: in
    steps: [{group_by: {key: value, key_serde: string}}, {count: counts}, to_stream]
    to: out
"""


@pytest.fixture(params=["embedded", "kafka"])
def log(request: pytest.FixtureRequest) -> Log:
    return request.getfixturevalue(request.param)


def test_a_complete_run_with_exactly_once_has_no_lag(log: Log, tmp_path: Path) -> None:
    app = application(tmp_path, log, "lagging", COUNTING, processing_guarantee="exactly_once_v2")
    log.create(app.topic("in"), 2)
    log.write((app.topic("in"), None, b"abc"[n % 3 : n % 3 + 1], 1, None, n % 2) for n in range(6))
    assert_one_clear_line(streamkit("lag", app.path, "--max", 5), 1, "the lag is 6, more than 5")
    assert app.run().code == 0
    internal = f"{app.application}-counts-repartition"
    with closing(log.transport.producer(transactional_id=app.topic("aborted"))) as producer:
        producer.begin()
        producer.send([(internal, b"a", b"b", 1, None, 0)])
        producer.flush()
        producer.abort()
    done = streamkit("lag", app.path, "--max", 0, "--format", "json")
    assert (done.code, done.err) == (0, "")
    found = json.loads(done.out)
    assert found["lag"] == 0
    (repartition,) = (each for each in found["partitions"] if (each["topic"], each["partition"]) == (internal, 0))
    # On Kafka the partition ends with a record that was aborted and a marker. No commit passes either.
    assert (repartition["end"] > (repartition["committed"] or 0)) == log.address.startswith("127")


def idle_check(app: App, log: Log) -> Any:
    """Return what is_behind needs of an application that runs exactly once."""
    plan = load(app.path)
    return SimpleNamespace(
        plan=plan,
        topics=prepare_topics(plan, log.transport),
        transport=log.transport,
        settings=SimpleNamespace(exactly_once=True, read_committed=True),
    )


def inputs_of(shared: Any) -> list[TopicPartition]:
    return [place for task in shared.topics.tasks() for place in shared.topics.partitions_of(task)]


def test_a_commit_whose_records_are_not_shown_yet_is_no_end(kafka: Log, tmp_path: Path) -> None:
    """A commit returns before the broker has written its markers: for a moment a repartition topic seems to have ended."""
    app = application(tmp_path, kafka, "hidden", COUNTING, processing_guarantee="exactly_once_v2")
    kafka.create(app.topic("in"), 1)
    shared = idle_check(app, kafka)
    inputs = inputs_of(shared)
    (repartition,) = (place for place in inputs if place.topic.endswith("-repartition"))

    def at_end() -> dict[TopicPartition, int]:
        with closing(kafka.transport.consumer(None, read_committed=True)) as consumer:
            return consumer.end_offsets(inputs)

    assert not is_behind(shared, at_end())
    with closing(kafka.transport.producer(transactional_id=app.topic("id"))) as producer:
        producer.begin()
        producer.send([(repartition.topic, b"a", b"b", 1, None, 0)])
        producer.flush()
        assert at_end()[repartition] == 0
        assert is_behind(shared, at_end())
        producer.commit({}, None)
    until(lambda: not is_behind(shared, at_end()), "the records of the transaction are shown")
    assert is_behind(shared, dict.fromkeys(inputs, 0))


def test_records_that_are_read_and_deleted_during_the_check_were_there(log: Log) -> None:
    place = TopicPartition("purged", 0)
    log.create("purged", 1)
    log.write(("purged", None, b"a", 1, None, 0) for _ in range(3))
    with closing(log.transport.admin()) as admin:
        admin.delete_records({place: 2})
    with closing(log.transport.consumer(None)) as consumer:
        assert has_records(consumer, {place: 0}, {place: 3})
        assert has_records(consumer, {place: 2}, {place: 3})
        assert not has_records(consumer, {place: 3}, {place: 3})


def test_markers_of_many_producers_after_a_commit_are_no_records(kafka: Log, tmp_path: Path) -> None:
    """Each thread that wrote to a repartition topic leaves a marker there, and no commit passes markers at the end."""
    app = application(tmp_path, kafka, "marked", COUNTING, processing_guarantee="exactly_once_v2")
    kafka.create(app.topic("in"), 1)
    shared = idle_check(app, kafka)
    (repartition,) = (place for place in inputs_of(shared) if place.topic.endswith("-repartition"))
    producers = [kafka.transport.producer(transactional_id=app.topic(each)) for each in "ab"]
    try:
        for producer in producers:
            producer.begin()
            producer.send([(repartition.topic, b"a", b"b", 1, None, 0)])
            producer.flush()
        for producer in producers:
            producer.commit({}, None)
    finally:
        for producer in producers:
            producer.close()
    with closing(kafka.transport.consumer(app.application, read_committed=True)) as consumer:
        until(lambda: consumer.end_offsets([repartition])[repartition] == 4, "both markers are written")
        consumer.commit({repartition: CommittedOffset(1)})
        assert is_behind(shared, {})
        consumer.commit({repartition: CommittedOffset(2)})
    assert not is_behind(shared, {})
