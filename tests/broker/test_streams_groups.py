"""Instances of streamkit in a streams group (KIP-1071), alone and beside Java Kafka Streams."""

from __future__ import annotations

import subprocess
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from pathlib import Path

import pytest

from streamkit.transport.kafka import KafkaTransport
from streamkit.transport.log_interface import GroupDescription
from tests.broker.kafka_broker import Broker
from tests.broker.support import App, Log, kill, until
from tests.broker.word_count import feed, latest, lines, truth, word_count
from tests.cli.support import LIMIT_S, command
from tests.java import build

pytestmark = pytest.mark.broker

PART = 2000
SETTINGS = """\
group.streams.heartbeat.interval.ms=200
group.streams.min.heartbeat.interval.ms=100
group.streams.initial.rebalance.delay.ms=0
group.streams.assignment.interval.ms=0
group.streams.session.timeout.ms=6000
group.streams.min.session.timeout.ms=1000
group.streams.max.session.timeout.ms=60000
"""


@pytest.fixture(scope="module")
def log(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Log]:
    """A broker whose streams groups settle within a second."""
    with Broker(tmp_path_factory.mktemp("broker"), settings=SETTINGS, version=build.ANCHOR) as broker:
        opened = Log(broker.address)
        yield opened
        opened.close()


def application(folder: Path, log: Log, guarantee: str = "at_least_once", **config: object) -> App:
    return word_count(
        folder, log, group_protocol="streams", processing_guarantee=guarantee, commit_interval_ms=100, **config
    )


@contextmanager
def instance(app: App, number: int) -> Iterator[subprocess.Popen]:
    """One more process of the application, with a state directory of its own; it ends in order."""
    state = app.state.parent / f"state-{number}"
    with (app.state.parent / f"stderr-{number}").open("w") as err:
        process = subprocess.Popen(command("run", app.path, "--set", f"state.dir={state}"), stderr=err)
    try:
        yield process
        process.terminate()
        assert process.wait(LIMIT_S) == 0
    finally:
        kill([process])


@contextmanager
def java(app: App, guarantee: str) -> Iterator[subprocess.Popen]:
    """The same application in Java; it ends in order."""
    file = app.state.parent / "java.properties"
    settings = {
        "application.id": app.application,
        "bootstrap.servers": app.log.address,
        "state.dir": app.state.parent / "java-state",
        "processing.guarantee": guarantee,
        "group.protocol": "streams",
        "commit.interval.ms": 100,
        "num.stream.threads": 2,
    }
    file.write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    program = build.command("broker/java_word_count", "WordCount", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
    arguments = [str(file), app.topic("lines"), app.topic("counts")]
    with (app.state.parent / "java-out").open("w") as out:
        process = subprocess.Popen([*program, *arguments], stdout=out, stderr=subprocess.STDOUT)
    try:
        yield process
        process.terminate()
        process.wait(LIMIT_S)
    finally:
        kill([process])


def described(app: App) -> GroupDescription:
    transport = KafkaTransport(app.log.address)
    with closing(transport.admin()) as admin:
        return admin.describe_group(app.application)


def settles(app: App, fits: Callable[[GroupDescription], bool], what: str) -> None:
    until(lambda: not (group := described(app)).rebalancing and fits(group), what)


def share_tasks(members: int) -> Callable[[GroupDescription], bool]:
    """Each of so many members has a task, all four tasks are assigned."""

    def fits(group: GroupDescription) -> bool:
        return len(group.members) == members and all(member.partitions for member in group.members)

    return fits


def counts_so_far(app: App, parts: int) -> bool:
    counted = latest(app.log.read(app.topic("counts"), committed_only=True))
    return counted == truth(lines(5 * PART)[: parts * PART])


def fed(app: App, part: int) -> None:
    feed(app, lines(5 * PART)[(part - 1) * PART : part * PART], (part - 1) * PART)


@pytest.mark.parametrize("guarantee", ["at_least_once", "exactly_once_v2"])
def test_tasks_move_between_java_and_streamkit_in_one_group(log: Log, tmp_path: Path, guarantee: str) -> None:
    app = application(tmp_path, log, guarantee)
    with instance(app, 1):
        settles(app, share_tasks(1), "streamkit has all tasks")
        fed(app, 1)
        until(lambda: counts_so_far(app, 1), "streamkit has counted")
        with java(app, guarantee):
            # A member for each of Java's threads, and one for the instance of streamkit.
            settles(app, share_tasks(3), "both have tasks")
            fed(app, 2)
            until(lambda: counts_so_far(app, 2), "both have counted")
            with instance(app, 2):
                settles(app, share_tasks(4), "three have tasks")
                fed(app, 3)
                until(lambda: counts_so_far(app, 3), "three have counted")
            fed(app, 4)
            until(lambda: counts_so_far(app, 4), "two have counted")
        settles(app, share_tasks(1), "Java has left")
        fed(app, 5)
        until(lambda: counts_so_far(app, 5), "streamkit has counted to the end")
    assert described(app).members == ()
