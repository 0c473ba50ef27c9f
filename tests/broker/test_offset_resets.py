"""Where a new application begins to read, on the real broker and on the embedded log."""

from __future__ import annotations

import time
from contextlib import closing
from pathlib import Path

import pytest

from streamkit.record import TopicPartition
from tests.broker.support import App, Log, application
from tests.cli.support import assert_one_clear_line

pytestmark = pytest.mark.broker

HOUR = 3_600_000
TOPOLOGY = """topics:
  whole: {topic: "{a}whole", value: string, reset: earliest}
  two-hours: {topic: "{a}two-hours", value: string, reset: {by_duration: 2h}}
  application: {topic: "{a}application", value: string}
  too-old: {topic: "{a}too-old", value: string, reset: {by_duration: 1m}}
  out: {topic: "{a}out", value: string, partitions: 1}
pipelines:
  all:
    stream: [whole]
    steps: [{merge: [{stream: two-hours}, {stream: application}, {stream: too-old}]}, {map_values: {value: topic + ' ' + value, value_serde: string}}]
    to: out
"""
INPUTS = ("whole", "two-hours", "application", "too-old")


@pytest.fixture(params=["embedded", "kafka"])
def log(request: pytest.FixtureRequest) -> Log:
    found: Log = request.getfixturevalue(request.param)
    return found


def read(app: App) -> dict[str, list[str]]:
    found: dict[str, list[str]] = {name: [] for name in INPUTS}
    for row in app.log.read(app.topic("out")):
        assert row.value is not None
        topic, text = row.value.decode().split(" ")
        found[topic.removeprefix(f"{app.application}.")].append(text)
    return found


def test_each_topic_begins_according_to_its_policy(log: Log, tmp_path: Path) -> None:
    app = application(tmp_path, log, "resets", TOPOLOGY, auto_offset_reset="by_duration:PT5H30M")
    now = time.time_ns() // 1_000_000
    for name in INPUTS:
        log.create(app.topic(name), 1)
        log.write((app.topic(name), None, f"{age}h".encode(), now - age * HOUR, None, 0) for age in (9, 5, 1))
    done = app.run()
    assert (done.code, done.err) == (0, "")
    assert read(app) == {"whole": ["9h", "5h", "1h"], "two-hours": ["1h"], "application": ["5h", "1h"], "too-old": []}
    # Else another process would wait for these records, before it is idle, and nobody reads them.
    assert log.read_so_far(app.application, app.topic("too-old")) == 3
    # What is committed goes before the policy.
    log.write([(app.topic("two-hours"), None, b"late", now - 8 * HOUR, None, 0)])
    assert app.run().code == 0
    assert read(app)["two-hours"] == ["1h", "late"]


def test_records_that_were_deleted_before_they_were_read(log: Log, tmp_path: Path) -> None:
    app = application(tmp_path, log, "resets", TOPOLOGY)
    place = TopicPartition(app.topic("whole"), 0)
    for name in INPUTS:
        log.create(app.topic(name), 1)
    for count in (1, 4):
        log.write((place.topic, None, b"%dh" % n, n, None, 0) for n in range(count))
        if count == 1:
            assert app.run().code == 0
    with closing(log.transport.admin()) as admin:
        admin.delete_records({place: 3})
    lost = (
        f"{place.topic}-0: the records from offset 1 to 2 were deleted before they were read, by the topic's retention"
    )
    app.path.write_text(app.path.read_text().replace("reset: earliest", "reset: none"))
    assert_one_clear_line(app.run(), 1, lost, "its reset policy is none", "streamkit reset-offsets")
    app.path.write_text(app.path.read_text().replace("reset: none", "reset: earliest"))
    done = app.run()
    assert (done.code, done.err.count("\n")) == (0, 1)
    assert (
        f"{lost} (retention.ms, retention.bytes) or on request (delete-records); continuing from the beginning"
        in done.err
    )
    assert read(app)["whole"] == ["0h", "2h", "3h"]
