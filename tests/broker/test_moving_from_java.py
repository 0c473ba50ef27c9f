"""One application in turn by Java Kafka Streams and by streamkit: from each other's offsets, changelogs and topics."""

from __future__ import annotations

import json
import random
import shutil
import subprocess
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient

from streamkit.runtime.execution.metadata import decode
from tests.broker.cases import in_java, rows, tried, wait_until_quiet, written
from tests.broker.support import App, Log, application, kill, until
from tests.broker.word_count import latest, lines, truth, truth_of, word_count
from tests.cli.support import LIMIT_S, command
from tests.java import build
from tests.requirements import EVERY_ENGINE

pytestmark = pytest.mark.broker

PART, SEED = 3000, 5


def java(app: App, guarantee: str, done: Callable[[], bool]) -> None:
    """Run the Java program on the application until `done`, and end it in order; its instances do not leave their group."""
    settings = {
        "application.id": app.application,
        "bootstrap.servers": app.log.address,
        "state.dir": app.state.parent / "java-state",
        "processing.guarantee": guarantee,
        "commit.interval.ms": 100,
        "num.stream.threads": 2,
        "session.timeout.ms": 1000 * LIMIT_S,
    }
    file = app.state.parent / "java.properties"
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    command = build.command("broker/java_word_count", "WordCount", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    arguments = [str(file), app.topic("lines"), app.topic("counts")]
    process = subprocess.Popen([*command, *arguments], stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    try:
        until(lambda: done() or process.poll() is not None, "Java has counted")
        assert process.poll() is None, process.communicate()[0]
        process.terminate()
        process.wait(LIMIT_S)
    finally:
        kill([process])


def counted(app: App) -> dict[str, int]:
    return latest(app.log.read(app.topic("counts"), committed_only=True))


def topic_ids(app: App) -> dict[str, str]:
    """The ids of all topics of the application: one that was made anew has another."""
    admin = AdminClient({"bootstrap.servers": app.log.address})
    own = [f"{app.application}-{name}" for name in app.log.topics(f"{app.application}-")]
    names = [*own, app.topic("lines"), app.topic("counts")]
    return {
        name: str(future.result().topic_id) for name, future in admin.describe_topics(TopicCollection(names)).items()
    }


def finished(app: App, parts: int) -> bool:
    """Tell whether so many parts of the lines are counted and committed."""
    return app.log.read_so_far(app.application, app.topic("lines")) == parts * PART and counted(app) == truth(
        lines(3 * PART, SEED)[: parts * PART]
    )


def partition_times(app: App) -> dict[int, tuple[int, dict[str, int]]]:
    committed = app.log.committed(app.application, app.topic("lines"))
    return {number: decode(text) for number, (_, text) in committed.items()}


def fed(app: App, part: int) -> dict[int, tuple[int, dict[str, int]]]:
    """Write the lines of one part; return the metadata to be committed by the application that reads them."""
    start = (part - 1) * PART
    texts = enumerate(lines(3 * PART, SEED)[start : start + PART], start)
    app.log.write((app.topic("lines"), None, text.encode(), 1000 + n, None, n % 2) for n, text in texts)
    return {number: (1000 + part * PART - 2 + number, {}) for number in (0, 1)}


def waits_for_javas_sessions(app: App) -> None:
    """Run until idle: the start waits while Java's instances are members, whose sessions end after it has logged that."""
    said = app.state.parent / "stderr"
    with said.open("w") as err:
        process = subprocess.Popen(command("run", app.path, "--until-idle"), stderr=err)
    line = "the group has members that are not streamkit's; waiting up to"
    try:
        until(lambda: line in said.read_text() or process.poll() is not None, line)
        app.log.remove_members(app.application)
        assert process.wait(LIMIT_S) == 0, said.read_text()
    finally:
        kill([process])
    assert line in said.read_text()
    assert len(said.read_text().splitlines()) == 1


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_java_streamkit_java(kafka: Log, tmp_path: Path, guarantee: str) -> None:
    app = word_count(tmp_path, kafka, processing_guarantee=guarantee)
    times = fed(app, 1)
    java(app, guarantee, lambda: finished(app, 1))
    assert partition_times(app) == times
    made = topic_ids(app)
    assert len(made) == 4

    times = fed(app, 2)
    if guarantee == "at_least_once":
        waits_for_javas_sessions(app)
    else:
        kafka.remove_members(app.application)
        done = app.run()
        assert (done.code, done.err) == (0, "")
    assert finished(app, 2)
    assert partition_times(app) == times

    times = fed(app, 3)
    java(app, guarantee, lambda: finished(app, 3))
    assert partition_times(app) == times
    assert latest(kafka.read(f"{app.application}-counts-changelog", committed_only=True)) == truth_of(3 * PART, SEED)
    assert topic_ids(app) == made


EVERY_STORE = """\
defaults: {key: string, value: string}
topics:
  a: {topic: "{a}a"}
  b: {topic: "{a}b"}
  t: {topic: "{a}t"}
  v: {topic: "{a}v"}
  left: {topic: "{a}left"}
  right: {topic: "{a}right"}
  windows: {topic: "{a}windows", key: {windowed: string, size: 2s}, partitions: 1}
  sliding: {topic: "{a}sliding", key: {windowed: string, size: 500ms}, value: long, partitions: 1}
  sessions: {topic: "{a}sessions", key: {session_windowed: string}, partitions: 1}
  closed: {topic: "{a}closed", key: {windowed: string, size: 1s}, value: long, partitions: 1}
  closed-sessions: {topic: "{a}closed-sessions", key: {session_windowed: string}, value: long, partitions: 1}
  settled: {topic: "{a}settled", partitions: 1}
  outer: {topic: "{a}outer", partitions: 1}
  lefts: {topic: "{a}lefts", partitions: 1}
  inner: {topic: "{a}inner", partitions: 1}
  selves: {topic: "{a}selves", partitions: 1}
  versions: {topic: "{a}versions", partitions: 1}
  tables: {topic: "{a}tables", partitions: 1}
  foreign: {topic: "{a}foreign", partitions: 1}
pipelines:
  a: {stream: a}
  b: {stream: b}
  windows:
    from: a
    steps: [group_by_key, {window: {hopping: 2s, advance: 500ms}}, {reduce: {add: aggregate + value}}, to_stream]
    to: windows
  sliding: {from: a, steps: [group_by_key, {window: {sliding: 500ms}}, count, to_stream], to: sliding}
  sessions:
    from: a
    steps: [group_by_key, {window: {session: 400ms}}, {reduce: {add: aggregate + value}}, to_stream]
    to: sessions
  closed:
    from: a
    steps: [group_by_key, {window: {tumbling: 1s}}, count, {suppress: window_closes}, to_stream]
    to: closed
  closed-sessions:
    from: a
    steps: [group_by_key, {window: {session: 300ms}}, count, {suppress: window_closes}, to_stream]
    to: closed-sessions
  outer:
    from: a
    steps: [outer_join: {with: b, within: 300ms, grace: 500ms, value: '(left or "-") + (right or "-")', value_serde: string}]
    to: outer
  lefts:
    from: a
    steps: [left_join: {with: b, before: 100ms, after: 400ms, value: 'left + (right or "-")', value_serde: string}]
    to: lefts
  inner: {from: a, steps: [join: {with: b, within: 300ms, value: left + right, value_serde: string}], to: inner}
  selves: {from: a, steps: [join: {with: a, within: 200ms, value: left + right, value_serde: string}], to: selves}
  t: {table: t, store: t}
  settled: {from: t, steps: [suppress: 700ms, to_stream], to: settled}
  v: {table: v, store: {name: v, versioned: 10s}}
  versions: {from: a, steps: [left_join: {with: v, value: 'left + (right or "-")', value_serde: string}], to: versions}
  tables:
    from: t
    steps: [outer_join: {with: v, value: '(left or "-") + (right or "-")', value_serde: string, store: tables}, to_stream]
    to: tables
  right: {table: right, store: right}
  left: {table: left, store: left}
  foreign:
    from: left
    steps: [left_join: {with: right, on: "value[:2]", value: 'left + (right or "-")', value_serde: string}, to_stream]
    to: foreign
"""


def drawn(seed: int, part: int) -> list[dict]:
    """Records of a part: their times ascend, and rows of the two tables of the foreign-key join are not in the same part."""
    draw, time_ms, records = random.Random(seed + part), 2_592_000_000 + part * 3_000, []
    for number in range(60):
        time_ms += draw.choice((1, 30, 60))
        topic = draw.choice(("a", "a", "a", "b", "b", "t", "v"))
        value = None if topic in "tv" and draw.random() < 0.2 else f"{topic}{part}.{number} "
        records.append({"topic": topic, "key": f"k{draw.randrange(5)}", "value": value, "timestamp": time_ms})
    for number, place in enumerate(draw.sample(range(12), 10)):
        key, value = (f"r{place % 4}", f"R{part}") if part % 2 else (f"l{place}", f"r{draw.randrange(4)} of {part}")
        topic = "right" if part % 2 else "left"
        deleted = draw.random() < 0.2
        if topic == "left" or place < 4:
            records.append(
                {"topic": topic, "key": key, "value": None if deleted else value, "timestamp": time_ms + 1 + number}
            )
    return records


def outputs(records: list[dict]) -> dict[str, Counter[str]]:
    """Records by their topic, in any order: that of two tasks and of a suppressed batch differs."""
    found: dict[str, Counter[str]] = {}
    for record in records:
        found.setdefault(record["topic"], Counter())[json.dumps(record, sort_keys=True)] += 1
    return found


@pytest.mark.parametrize("engine", EVERY_ENGINE[:1])
def test_every_kind_of_store_is_restored_from_the_changelog_of_the_other(
    kafka: Log, tmp_path: Path, engine: str
) -> None:
    """streamkit, Java and streamkit again: the output is that of one run.

    Java runs in the directory of streamkit, where it finds no stores of its own; streamkit's are then deleted.
    """
    settings = {
        "state_engine": engine,
        "statestore_cache_max_bytes": 0,
        "repartition_purge_interval_ms": 3_600_000,
    }
    app = application(tmp_path, kafka, "stores", EVERY_STORE, **settings)
    at_once = "config:\n  __emit.interval.ms.kstreams.outer.join.spurious.results.fix__: 0\n"
    app.path.write_text(app.path.read_text().replace("config:\n", at_once))
    for name in ("a", "b", "t", "v", "left", "right"):
        kafka.create(app.topic(name), 1)
    parts = [drawn(7, part) for part in range(4)]
    for number, part in enumerate(parts):
        kafka.write(rows(app, part))
        if number == 1:
            with in_java(app):
                wait_until_quiet(app)
            kafka.remove_members(app.application)
            shutil.rmtree(app.state)
        else:
            done = app.run()
            assert done.code == 0, done
    found, wanted = outputs(written(app)), outputs(tried(app, [record for part in parts for record in part]))
    assert {topic: found.get(topic) for topic in wanted if found.get(topic) != wanted[topic]} == {}
    assert len(wanted) == 13
