"""`consume` on a real broker: offsets, partitions, times, and internal topics with the marks of transactions in them."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from tests.broker.support import App, Log, application
from tests.cli.support import assert_one_clear_line, streamkit

pytestmark = pytest.mark.broker

TOPOLOGY = """\
topics:
  words: {topic: "{a}words", key: string, value: string, partitions: 2}
  missing: {topic: "{a}missing", value: string, partitions: 1}
pipelines:
  counting:
    stream: words
    steps:
      - group_by: {key: value, key_serde: string}
      - count: counts
"""


@pytest.fixture
def counting(kafka: Log, tmp_path: Path) -> App:
    app = application(tmp_path, kafka, "consuming", TOPOLOGY, processing_guarantee="exactly_once_v2")
    kafka.create(app.topic("words"), 2)
    return app


def produced(app: App, numbers: range) -> None:
    records = [{"value": "abc"[n % 3], "timestamp": 1000 + n, "partition": n % 2} for n in numbers]
    done = streamkit("produce", app.path, "words", stdin="".join(json.dumps(each) + "\n" for each in records))
    assert (done.code, done.err) == (0, "")


def consumed(app: App, topic: str, *options: object) -> list[dict]:
    done = streamkit("consume", app.path, topic, *options)
    assert (done.code, done.err) == (0, "")
    return [json.loads(line) for line in done.out.splitlines()]


def test_records_are_chosen_as_on_the_embedded_log_and_nothing_is_created(counting: App, kafka: Log) -> None:
    produced(counting, range(20))

    def numbers(*options: object) -> list[int]:
        return sorted(record["timestamp"] - 1000 for record in consumed(counting, "words", *options))

    assert numbers("--until-idle", "--offset", 8) == [16, 17, 18, 19]
    assert numbers("--until-idle", "--offset", -1, "--partition", 1) == [19]
    assert numbers("--until-idle", "--from", 1015) == [15, 16, 17, 18, 19]
    assert numbers("--from", 1005, "--to", "1970-01-01T00:00:01.008Z") == [5, 6, 7]
    assert numbers("--tail", 3) == [17, 18, 19]
    assert numbers("--tail", 2, "--where", "value == 'a' and partition == 0") == [12, 18]
    before = kafka.topics(counting.application)
    done = streamkit("consume", counting.path, "missing", "--until-idle")
    assert (done.code, done.out) == (0, "")
    assert counting.topic("missing") in done.err
    assert kafka.topics(counting.application) == before
    assert_one_clear_line(
        streamkit("consume", counting.path, "words", "--partition", 2), 2, "--partition 2", "2 partitions"
    )


def test_internal_topics_are_read_past_the_marks_of_transactions(counting: App, kafka: Log) -> None:
    for begin in (0, 6, 12):
        # Each run ends with a commit, whose mark takes an offset in each partition.
        produced(counting, range(begin, begin + 6))
        assert counting.run().code == 0
    changelog = consumed(counting, "counts-changelog", "--tail", 3)
    assert sorted((record["key"], record["value"]) for record in changelog) == [("a", 6), ("b", 6), ("c", 6)]
    (last,) = consumed(counting, "counts-changelog", "--tail", 1, "--key", "b")
    assert last["value"] == 6
    every = consumed(counting, "counts-changelog", "--until-idle", "--with-offsets")
    # The ends are further away than there are records, so that the first look back does not find all of them.
    assert sum(kafka.ends(f"{counting.application}-counts-changelog")) > len(every)
    again = consumed(counting, "counts-changelog", "--tail", len(every), "--with-offsets")
    assert sorted(map(str, again)) == sorted(map(str, every))
