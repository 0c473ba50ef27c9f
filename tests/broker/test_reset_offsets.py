"""`reset-offsets` beside kafka-streams-application-reset on the same broker and group: what both leave is the same."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path

import pytest
from confluent_kafka import Consumer

from tests.broker.resetting import INPUTS, INTERNAL, LATE, JavaTool, Left, Resettable, java_tool
from tests.broker.support import Log, until
from tests.cli.support import assert_one_clear_line, streamkit

pytestmark = pytest.mark.broker

BOTH = ",".join(f"{{a}}{name}" for name in INPUTS)
MIDDLE = datetime.fromtimestamp(LATE / 1000 - 1, UTC).strftime("%Y-%m-%dT%H:%M:%S.000")


@pytest.fixture(scope="module")
def tool() -> Iterator[JavaTool]:
    with java_tool() as running:
        yield running


@pytest.fixture(scope="module")
def resettable(broker, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Resettable]:
    log = Log(broker.address)
    yield Resettable(tmp_path_factory.mktemp("resettable"), log)
    log.close()


def by_java(tool: JavaTool, resettable: Resettable, *options: object) -> tuple[int, Left]:
    """What Kafka's tool does to the application in the middle of its work."""
    app = resettable.app
    resettable.put_back()
    code, _ = tool.reset("--bootstrap-server", app.log.address, "--application-id", app.application, *options)
    return code, resettable.left()


def by_streamkit(resettable: Resettable, *options: object) -> tuple[int, Left]:
    resettable.put_back()
    done = streamkit("reset-offsets", resettable.app.path, "--execute", *options)
    return done.code, resettable.left()


@pytest.mark.parametrize(
    "options",
    [
        [],
        ["--to-earliest"],
        ["--to-latest"],
        ["--to-offset", 4],
        ["--to-offset", 0],
        ["--to-offset", 1000],
        ["--to-datetime", MIDDLE],
        ["--to-datetime", f"{MIDDLE}+01:00"],
        ["--to-datetime", "2037-01-01T00:00:00.000Z"],
        ["--by-duration", "P3650D"],
        ["--by-duration", "PT1H"],
        ["--shift-by", 2],
        ["--shift-by", -4],
        ["--shift-by", 100],
        ["--from-file", "{plan}"],
        ["--internal-topics", f"{{i}}{INTERNAL[0]},{{i}}{INTERNAL[2]}"],
    ],
    ids=lambda options: " ".join(map(str, options)) or "nothing",
)
def test_every_option_does_what_kafkas_tool_does(
    options: list, tool: JavaTool, resettable: Resettable, tmp_path: Path
) -> None:
    app = resettable.app
    plan = tmp_path / "plan.csv"
    rows = [(app.topic(name), partition, 3 * partition) for name in INPUTS for partition in range(3)]
    plan.write_text("".join(f"{topic},{partition},{offset}\n" for topic, partition, offset in rows))
    given = [str(each).format(plan=plan, i=f"{app.application}-") for each in options]
    theirs = by_java(tool, resettable, "--input-topics", BOTH.format(a=f"{app.application}."), *given)
    assert by_streamkit(resettable, *given) == theirs
    assert theirs[0] == 0
    assert len(theirs[1].offsets) == 6


def test_input_topics_narrow_the_reset(tool: JavaTool, resettable: Resettable) -> None:
    topic = resettable.app.topic("users")
    theirs = by_java(tool, resettable, "--input-topics", topic)
    assert by_streamkit(resettable, "--input-topics", topic) == theirs
    assert by_streamkit(resettable, "--input-topics", "users") == theirs
    assert theirs[1].offsets["clicks", 0] == (5, "AgAAAAAAAAPo")
    assert theirs[1].offsets["users", 0] == (0, "")


def test_intermediate_topics_go_to_their_ends(tool: JavaTool, resettable: Resettable) -> None:
    clicks, users = map(resettable.app.topic, INPUTS)
    theirs = by_java(tool, resettable, "--input-topics", clicks, "--intermediate-topics", users)
    assert by_streamkit(resettable, "--input-topics", "clicks", "--intermediate-topics", "users") == theirs
    assert theirs[1].offsets["users", 0] == (10, "")


def test_a_dry_run_changes_nothing(tool: JavaTool, resettable: Resettable) -> None:
    resettable.put_back()
    before = resettable.left()
    code, _ = tool.reset(
        "--bootstrap-server",
        resettable.app.log.address,
        "--application-id",
        resettable.app.application,
        "--input-topics",
        resettable.app.topic("clicks"),
        "--dry-run",
    )
    assert (code, resettable.left()) == (0, before)
    done = streamkit("reset-offsets", resettable.app.path, "--format", "json")
    assert (done.code, resettable.left()) == (0, before)
    found = json.loads(done.out)
    assert found["executed"] is False
    assert {each["topic"] for each in found["internal_topics"]} == {
        f"{resettable.app.application}-{name}" for name in INTERNAL
    }
    first = found["offsets"][0]
    assert (first["partition"], first["before"], first["after"]) == (0, 5, 2)


def test_a_topic_that_is_not_internal_is_refused(tool: JavaTool, resettable: Resettable) -> None:
    wrong = ["--internal-topics", f"{resettable.app.application}-notes"]
    # Kafka's tool has moved the offsets by the time it looks at the names.
    code, _ = by_java(tool, resettable, *wrong)
    assert code == 1
    resettable.put_back()
    before = resettable.left()
    done = streamkit("reset-offsets", resettable.app.path, "--execute", *wrong)
    assert_one_clear_line(done, 2, f"{resettable.app.application}-notes", "counts-changelog")
    assert resettable.left() == before


@pytest.fixture
def member(resettable: Resettable) -> Iterator[Consumer]:
    """A live member of the application's group."""
    resettable.put_back()
    consumer = Consumer(
        {
            "bootstrap.servers": resettable.app.log.address,
            "group.id": resettable.app.application,
            "enable.auto.commit": False,
            "log_level": 0,
        }
    )
    consumer.subscribe([resettable.app.topic("clicks")])
    until(lambda: consumer.poll(0.1) is not None or consumer.assignment(), "the member has joined")
    yield consumer
    consumer.close()


def test_an_active_group_is_left_alone(tool: JavaTool, resettable: Resettable, member: Consumer) -> None:
    app = resettable.app
    before = resettable.left()
    code, _ = tool.reset("--bootstrap-server", app.log.address, "--application-id", app.application)
    assert (code, resettable.left()) == (1, before)
    assert_one_clear_line(streamkit("reset-offsets", app.path, "--execute"), 1, app.application, "--force")
    assert resettable.left() == before


@pytest.mark.parametrize("who", ["java", "streamkit"])
def test_force_removes_members(who: str, tool: JavaTool, resettable: Resettable, member: Consumer) -> None:
    app = resettable.app
    if who == "java":
        options = ["--bootstrap-server", app.log.address, "--application-id", app.application]
        code, _ = tool.reset(*options, "--input-topics", BOTH.format(a=f"{app.application}."), "--force")
    else:
        code = streamkit("reset-offsets", app.path, "--execute", "--force").code
    left = resettable.left()
    assert code == 0
    assert {place: offset for place, (offset, _) in left.offsets.items()} == {
        (name, partition): 2 if (name, partition) == ("clicks", 0) else 0 for name in INPUTS for partition in range(3)
    }
    assert left.internal == {"notes"}
