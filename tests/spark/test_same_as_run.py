"""History on a real broker: a batch job comes to what the live application comes to, over several partitions."""

from __future__ import annotations

import json
import os
import random
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamkit.errors import UsageError
from streamkit.plan import load
from streamkit.runtime.spark.job_options import JSON_LINES, JobOptions, Place, Range
from streamkit.runtime.spark.submission.submit_job import submit
from streamkit.runtime.spark.submission.topic_difference import Difference
from streamkit.serdes.partitioner import partition as partition_of
from tests.broker.support import App, Log, application
from tests.broker.word_count import TEXT as WORD_COUNT
from tests.broker.word_count import latest, truth
from tests.spark.support import read_lines

pytestmark = pytest.mark.broker

# A million is what docs/spark.md speaks of; the tests' own number keeps them short.
RECORDS = int(os.environ.get("STREAMKIT_SPARK_RECORDS", "20000"))
PARTITIONS = 4
START = 1_700_000_000_000

WINDOWS = """\
topics:
  sales: {topic: "{a}sales", key: string, value: long, partitions: 4}
  sums: {topic: "{a}sums", key: {windowed: string, size: 1m}, value: long, partitions: 4}
pipelines:
  sums:
    stream: sales
    steps:
      - group_by_key
      - window: {tumbling: 1m, grace: 10s}
      - aggregate: {initial: 0, add: aggregate + value, value_serde: long}
      - to_stream
    to: sums
"""
TOTALS = """\
topics:
  sales: {topic: "{a}sales", key: string, value: long, partitions: 4}
  totals: {topic: "{a}totals", key: string, value: long, partitions: 4}
pipelines:
  totals:
    stream: sales
    steps:
      - group_by_key
      - aggregate: {initial: 0, add: aggregate * 3 + value, value_serde: long}
      - to_stream
    to: totals
"""
JOIN = """\
topics:
  clicks: {topic: "{a}clicks", key: string, value: string, partitions: 4}
  views: {topic: "{a}views", key: string, value: string, partitions: 4}
  both: {topic: "{a}both", key: string, value: json, partitions: 4}
pipelines:
  views: {stream: views}
  both:
    stream: clicks
    steps:
      - join: {with: views, within: 2s, grace: 1s, value: "[left, right]"}
    to: both
"""


@pytest.fixture
def log(broker) -> Iterator[Log]:
    found = Log(broker.address)
    yield found
    found.close()


def times(draw: random.Random, count: int) -> list[int]:
    """Rising times with some that are late, and a few that are too late."""
    return [START + 20 * number - (draw.randrange(200_000) if draw.random() < 0.05 else 0) for number in range(count)]


def feed(app: App, topic: str, values: list[bytes], seed: int) -> None:
    draw = random.Random(seed)
    keys = [f"k{draw.randrange(500)}".encode() for _ in values]
    app.log.create(app.topic(topic), PARTITIONS)
    app.log.write(
        (app.topic(topic), key, value, time, None, partition_of(key, PARTITIONS))
        for key, value, time in zip(keys, values, times(draw, len(values)), strict=True)
    )


def reprocessed(spark: Any, app: App, topic: str, folder: Path, **options: Any) -> list[dict]:
    plan = load(app.path)
    out = folder / "out"
    submit(plan, JobOptions(outputs={app.topic(topic): Place(str(out), JSON_LINES)}, **options), spark)
    return read_lines(out)


def compared(spark: Any, app: App, topic: str) -> Difference:
    (found,) = submit(load(app.path), JobOptions(compare=(app.topic(topic),)), spark)
    return found


def words(app: App, count: int, seed: int = 1) -> list[str]:
    """Write lines of words, in turns to all partitions."""
    draw = random.Random(seed)
    texts = [" ".join(f"w{int(draw.paretovariate(0.5)) % 2000}" for _ in range(5)) for _ in range(count)]
    name = app.topic("lines")
    app.log.write((name, None, text.encode(), START + at, None, at % PARTITIONS) for at, text in enumerate(texts))
    return texts


def word_count(folder: Path, log: Log) -> App:
    app = application(folder, log, "spark-wc", WORD_COUNT.replace("partitions: 2", f"partitions: {PARTITIONS}"))
    log.create(app.topic("lines"), PARTITIONS)
    log.create(app.topic("counts"), PARTITIONS)
    return app


def test_word_count(spark: Any, log: Log, tmp_path: Path) -> None:
    app = word_count(tmp_path, log)
    texts = words(app, RECORDS)
    found = reprocessed(spark, app, "counts", tmp_path)
    assert {each["key"]: each["value"] for each in found} == truth(texts)
    assert len(found) == len(truth(texts))
    assert app.run().code == 0
    assert latest(log.read(app.topic("counts"))) == truth(texts)
    assert compared(spark, app, "counts") == Difference(app.topic("counts"), len(found), 0, 0, 0, ())


def test_windows_with_late_records(spark: Any, log: Log, tmp_path: Path) -> None:
    app = application(tmp_path, log, "spark-windows", WINDOWS)
    feed(app, "sales", [number.to_bytes(8, "big") for number in range(RECORDS)], 1)
    assert app.run().code == 0
    found = compared(spark, app, "sums")
    assert found.is_none, found
    # Some are late enough to be dropped: not everything is in a sum.
    total = sum(each["value"] for each in reprocessed(spark, app, "sums", tmp_path))
    assert 0 < total < sum(range(RECORDS))


@pytest.mark.parametrize("most", [100, 1_000_000])
def test_totals_sorted_by_key_or_not(
    most: int, monkeypatch: pytest.MonkeyPatch, spark: Any, log: Log, tmp_path: Path
) -> None:
    monkeypatch.setattr("streamkit.runtime.spark.submission.submit_job._MAX_UNSORTED", most)
    app = application(tmp_path, log, f"spark-totals-{most}", TOTALS)
    feed(app, "sales", [(number % 7).to_bytes(8, "big") for number in range(3000)], 1)
    assert app.run().code == 0
    found = compared(spark, app, "totals")
    assert found.is_none, found
    assert found.equal == len(latest(log.read(app.topic("totals"))))


def test_stream_join(spark: Any, log: Log, tmp_path: Path) -> None:
    app = application(tmp_path, log, "spark-join", JOIN)
    feed(app, "clicks", [f"c{number}".encode() for number in range(RECORDS // 2)], 1)
    feed(app, "views", [f"v{number}".encode() for number in range(RECORDS // 2)], 2)
    assert app.run().code == 0
    found = compared(spark, app, "both")
    assert found.is_none, found
    assert found.equal > 0


def test_what_differs_is_shown(spark: Any, log: Log, tmp_path: Path) -> None:
    app = word_count(tmp_path, log)
    words(app, 50)
    assert app.run().code == 0
    name = app.topic("counts")
    log.write([(name, b"w1", (7).to_bytes(8, "big"), START, None, None), (name, b"other", b"\0" * 8, START, None, 0)])
    found = compared(spark, app, "counts")
    assert (found.different, found.missing, found.surplus) == (1, 0, 1)
    assert {"key": "w1", "n": 1, "now": 7}.items() <= next(each for each in found.examples if each["now"] == 7).items()


def test_into_a_shadow_topic(spark: Any, log: Log, tmp_path: Path) -> None:
    app = word_count(tmp_path, log)
    texts = words(app, 200)
    submit(load(app.path), JobOptions(shadow="-again"), spark)
    assert latest(log.read(app.topic("counts-again"))) == truth(texts)
    assert log.read(app.topic("counts")) == []


def test_a_part_of_history(spark: Any, log: Log, tmp_path: Path) -> None:
    app = word_count(tmp_path, log)
    texts = words(app, 400)
    part = Range(start=str(START + 100), end=str(START + 300))
    found = reprocessed(spark, app, "counts", tmp_path, range=part)
    assert {each["key"]: each["value"] for each in found} == truth(texts[100:300])
    offsets = tmp_path / "offsets.json"
    offsets.write_text(json.dumps({app.topic("lines"): {str(number): 90 for number in range(PARTITIONS)}}))
    (tmp_path / "second").mkdir()
    found = reprocessed(spark, app, "counts", tmp_path / "second", range=Range(start=str(offsets)))
    assert {each["key"]: each["value"] for each in found} == truth(texts[360:])
    for wrong, text in (
        ({"line": {"0": 1}}, r"--until .*: the job does not read line-0 from the log; it reads|did you mean"),
        ({app.topic("lines"): {"77": 1}}, r"the job does not read \S+-77 from the log$"),
        ({app.topic("lines"): {"0": 1 << 40}}, r"--until .*-0 ends at offset \d+, before 1099511627776"),
    ):
        offsets.write_text(json.dumps(wrong))
        with pytest.raises(UsageError, match=text):
            submit(load(app.path), JobOptions(shadow="-again", range=Range(end=str(offsets))), spark)
    reported: list[str] = []
    out = {app.topic("counts"): Place(str(tmp_path / "third"), JSON_LINES)}
    submit(load(app.path), JobOptions(outputs=out, range=Range(end=str(START - 1))), spark, reported.append)
    assert f"there are no records to read: --from earliest, --until {START - 1}" in reported
    assert (tmp_path / "third" / "_SUCCESS").exists()


def test_a_live_run_continues_from_history(spark: Any, log: Log, tmp_path: Path) -> None:
    app = word_count(tmp_path, log)
    before = words(app, 300)
    submit(load(app.path), JobOptions(write_state=True), spark)
    assert log.read(app.topic("counts")) == []
    assert app.log.read_so_far(app.application, app.topic("lines")) == len(before)
    after = words(app, 100, seed=2)
    assert app.run().code == 0
    counts = latest(log.read(app.topic("counts")))
    whole = truth([*before, *after])
    # Only what the live run saw is written, with the counts of everything.
    assert counts == {word: whole[word] for word in truth(after)}


def test_windows_go_on_from_history(spark: Any, log: Log, tmp_path: Path) -> None:
    seeded = application(tmp_path, log, "spark-seeded", WINDOWS)
    whole = application(tmp_path, log, "spark-whole", WINDOWS)
    values = [number.to_bytes(8, "big") for number in range(3000)]
    for app in (seeded, whole):
        feed(app, "sales", values, 1)
    submit(load(seeded.path), JobOptions(write_state=True), spark)
    assert whole.run().code == 0
    middle = len(log.read(whole.topic("sums")))
    for app in (seeded, whole):
        draw = random.Random(5)
        rows = [(f"k{draw.randrange(500)}".encode(), START + 60_000 + 20 * number) for number in range(500)]
        app.log.write(
            (app.topic("sales"), key, b"\0" * 7 + b"\1", time, None, partition_of(key, PARTITIONS))
            for key, time in rows
        )
        assert app.run().code == 0
    assert middle

    def last(app: App) -> dict[bytes | None, bytes | None]:
        return {raw.key: raw.value for raw in log.read(app.topic("sums"))}

    found = last(seeded)
    assert found
    assert found.items() <= last(whole).items()
