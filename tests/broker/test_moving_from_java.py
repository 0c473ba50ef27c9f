"""One application in turn by Java Kafka Streams and by streamkit: from each other's offsets, changelogs and topics."""

from __future__ import annotations

import subprocess
from collections.abc import Callable
from pathlib import Path

import pytest
from confluent_kafka import TopicCollection
from confluent_kafka.admin import AdminClient

from streamkit.runtime.execution.metadata import decode
from tests.broker.support import App, Log, kill, until
from tests.broker.word_count import latest, lines, truth, truth_of, word_count
from tests.cli.support import LIMIT_S, command
from tests.java import build

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
