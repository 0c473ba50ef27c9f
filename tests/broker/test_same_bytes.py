"""Changelogs, repartition topics and outputs on a real broker: byte for byte those of Kafka Streams over the same input."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.broker.cases import in_java, inputs, on_log, rows, twin, wait_until_quiet
from tests.broker.support import App, Log, finish, kill
from tests.java import build

pytestmark = pytest.mark.broker

AT_ONCE = {
    "tumbling-late-records": "DEFAULT",
    "stream-table-join": "DEFAULT",
    "table-join-outer": "DEFAULT",
    "stream-join-left": "DEFAULT",
    "session-merges": "HEADERS",
    "table-filter": "HEADERS",
}
"""Cases, and the format of their stores."""
# Where records go through the log in between, what else has arrived by then matters; and a suppress buffer logs at
# commits, which is to be after each record.
ONE_BY_ONE = {
    "foreign-key-join-left": (16, "DEFAULT"),
    "suppress-tumbling-final": (11, "HEADERS"),
    "customer-360": (12, "HEADERS"),
}
"""Cases, how many of their records, and the format of their stores."""


def format_of(kept: str) -> str:
    """The format of stores, or that of older versions: before 4.4 no steps kept headers."""
    return "DEFAULT" if build.runs_older() else kept


def with_headers(records: list[dict]) -> list[dict]:
    """The records, every third of them with a header: some changelogs have it, as outputs do, but none before 4.3."""
    if build.runs_older():
        return records
    return [
        record if number % 3 else {**record, "headers": [["number", str(number)]]}
        for number, record in enumerate(records)
    ]


def everything(app: App, name: str) -> dict[str, list[tuple]]:
    """All records of the application's own topics, with its name as `name`; the inputs are not its own."""
    own = app.application.encode()
    found = {}
    for topic, partitions in app.log.topics(app.application).items():
        records = []
        for raw in app.log.read(app.application + topic):
            key, value = (None if each is None else each.replace(own, name.encode()) for each in (raw.key, raw.value))
            # The producer gives suppressed records the time of writing.
            time_ms = None if "-SUPPRESS-" in topic else raw.timestamp
            records.append((raw.partition, key, value, time_ms, raw.headers))
        if "-SUPPRESS-" in topic:
            # A flush writes its keys in the order of a Java HashSet; each key's records are in order.
            records.sort(key=lambda record: record[1])
        found[f"{topic} ({partitions})"] = records
    return found


def assert_same(ours: App, theirs: App) -> None:
    want, have = everything(theirs, "app"), everything(ours, "app")
    for topic, records in want.items():
        assert have.get(topic) == records, topic
    inputs_of_both = {topic for topic in have if topic not in want}
    assert [topic for topic in inputs_of_both if not topic.startswith(".")] == []


@pytest.mark.parametrize("case", AT_ONCE)
def test_at_once(case: str, kafka: Log, tmp_path: Path) -> None:
    ours = on_log(case, tmp_path, kafka, dsl_store_format=format_of(AT_ONCE[case]))
    theirs = twin(ours, tmp_path)
    kafka.write(rows(ours, with_headers(inputs(case))))
    with in_java(theirs):
        assert ours.run().code == 0
        wait_until_quiet(theirs)
    assert_same(ours, theirs)


@pytest.mark.parametrize("case", ONE_BY_ONE)
def test_one_by_one(case: str, kafka: Log, tmp_path: Path) -> None:
    count, kept = ONE_BY_ONE[case]
    # No purge: on a slow machine it is due at any record, and takes repartition topics from only one of both.
    quick = {"commit_interval_ms": 5, "poll_ms": 10, "linger_ms": 0, "repartition_purge_interval_ms": 3_600_000}
    ours = on_log(case, tmp_path, kafka, dsl_store_format=format_of(kept), **quick)
    theirs = twin(ours, tmp_path)
    process = ours.start()
    try:
        with in_java(theirs):
            for row in rows(ours, with_headers(inputs(case, as_given=True)[:count])):
                kafka.write([row])
                wait_until_quiet(ours)
                wait_until_quiet(theirs)
        process.terminate()
        assert finish([process])[0].code == 0
    finally:
        kill([process])
    assert_same(ours, theirs)
