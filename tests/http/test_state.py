"""What is shown of an application is true: with an instance that was killed, paused, and with records that were dropped."""

from __future__ import annotations

import re
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from streamkit.transport import open_transport
from streamkit.transport.embedded import EmbeddedTransport
from streamkit.transport.log_interface import NewTopic, Transport
from tests.broker.support import fresh, until
from tests.cli.support import streamkit
from tests.http.support import request, served
from tests.http.test_instances import Instance

WAITING = 2000
SLOW_TO_EXPIRE = """\
streamkit: 1
application: {application}
config:
  commit.interval.ms: 100
  poll.ms: 10
  session.timeout.ms: 300000
topics:
  {topic}: {{key: string, value: string, partitions: 4}}
pipelines:
  counts:
    stream: {topic}
    steps: [group_by_key, {{count: counts}}]
"""
DROPPING = """\
streamkit: 1
application: dropping
config:
  bootstrap.servers: embedded
  poll.ms: 10
  deserialization.exception.handler: continue
  errors.dead.letter.queue.topic.name: dead
topics:
  numbers: {key: string, value: long}
  results: {key: string, value: long}
  dead: {}
pipelines:
  halves:
    stream: numbers
    steps:
      - map_values: {value: 100 // value, value_serde: long, on_error: continue}
    to: results
  windows:
    stream: results
    steps: [group_by_key, {window: {tumbling: 1s, grace: 0s}}, {count: per-second}]
"""


@pytest.fixture(params=["embedded", pytest.param("kafka", marks=pytest.mark.broker)])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Transport]]:
    """`bootstrap.servers` of a log, and a transport to it."""
    if request.param == "embedded":
        servers, transport = f"embedded:{tmp_path / 'log'}", EmbeddedTransport(tmp_path / "log")
    else:
        servers = request.getfixturevalue("broker").address
        transport = open_transport(servers, None, str(tmp_path))
    yield servers, transport
    transport.close()


def write(transport: Transport, topic: str, count: int) -> None:
    """Write records to the four partitions in turn."""
    producer = transport.producer()
    producer.send([(topic, b"k%d" % number, b"x", 1, None, number % 4) for number in range(count)])
    producer.flush()
    producer.close()


def test_the_partitions_of_a_killed_instance_count_and_are_shown(tmp_path: Path, log: tuple[str, Transport]) -> None:
    servers, transport = log
    topic, application = fresh("events"), fresh("killed")
    admin = transport.admin()
    admin.create_topics([NewTopic(topic, 4)])
    admin.close()
    file = tmp_path / "topology.yaml"
    file.write_text(SLOW_TO_EXPIRE.format(application=application, topic=topic))
    instances: list[Instance] = []
    try:
        for name in ("a", "b"):
            instances.append(Instance(tmp_path / name, file, servers))
            until(instances[-1].ready, f"instance {name} is ready")
        left, killed = instances
        until(lambda: [each.tasks("active") for each in instances] == [2, 2], "each has two tasks")

        def settled() -> Any:
            found = request(left.address, "/status").json
            # An instance shows a task that has moved until its next look at its tasks.
            owners = {each["owner"] for each in found["inputs"]}
            is_settled = found["condition"] == "RUNNING" and found["lag"] == 0
            return found if is_settled and owners == {left.address, killed.address} else None

        state = until(settled, "both run, with nothing to do")
        assert (state["level"], state["problems"]) == ("ok", [])
        lost = {each["partition"] for each in state["inputs"] if each["owner"] == killed.address}

        killed.end(signal.SIGKILL)
        write(transport, topic, WAITING)

        def waiting() -> Any:
            found = request(left.address, "/status").json
            return found if found["lag"] == WAITING // 2 else None

        state = until(waiting, "the records of the killed instance wait")
        assert (state["condition"], state["level"]) == ("GONE", "error")
        gone = {each["partition"] for each in state["inputs"] if each["state"] == "GONE"}
        assert gone == lost
        assert {each["owner"] for each in state["inputs"] if each["state"] == "GONE"} == {killed.address}
        assert [each["shown_state"] for each in state["instances"]] == ["RUNNING", "GONE"]
        # These go by what is committed.
        until(lambda: request(left.address, "/lag").json["lag"] == WAITING // 2, "the other half is committed")

        def metric() -> float:
            lines = request(left.address, "/metrics").text.splitlines()
            return sum(float(line.split()[-1]) for line in lines if line.startswith("streamkit_records_lag{"))

        until(lambda: metric() == WAITING // 2, "the metric is up to date")
        check_commands(left, killed, file, servers)
    finally:
        for each in instances:
            each.end(signal.SIGKILL)


def check_commands(left: Instance, killed: Instance, file: Path, servers: str) -> None:
    shown = streamkit("status", f"http://{left.address}").out.splitlines()
    assert f": GONE: the instance at {killed.address} does not answer" in shown[0]
    assert f"{WAITING // 2:,} records wait" in shown[0]
    assert sum(killed.address in line for line in shown if line.startswith("events")) == 2
    lag = streamkit("lag", file, "--set", f"bootstrap.servers={servers}").out
    assert f"2 active members, lag {WAITING // 2:,}" in lag.splitlines()[0]


def test_partitions_without_an_owner_are_listed(tmp_path: Path, log: tuple[str, Transport]) -> None:
    """A member of the group that reads other topics owns none of the partitions."""
    servers, transport = log
    topic, application = fresh("events"), fresh("unowned")
    admin = transport.admin()
    admin.create_topics([NewTopic(topic, 4)])
    admin.close()
    write(transport, topic, 40)
    file = tmp_path / "topology.yaml"
    file.write_text(SLOW_TO_EXPIRE.format(application=application, topic=topic))
    member = transport.membership(application, "other", lambda members: {})
    member.join(lambda: b"", [topic])
    try:
        until(lambda: member.poll(100), "the member has joined")
        first, *rows = streamkit("lag", file, "--set", f"bootstrap.servers={servers}").out.splitlines()
    finally:
        member.leave()
    assert first == f"{application}: 4 of 4 input partitions have no owner, 1 active member, lag 40"
    assert [line.split()[2:] for line in rows[1:]] == [["no", "owner", "-", "10", "10"]] * 4


def log_with_topics(folder: Path) -> EmbeddedTransport:
    log = EmbeddedTransport(folder / "log")
    admin = log.admin()
    admin.create_topics([NewTopic(name, 1) for name in ("numbers", "results", "dead")])
    admin.close()
    return log


def test_a_paused_instance_is_shown_as_paused(tmp_path: Path) -> None:
    log = log_with_topics(tmp_path)
    with served(tmp_path / "app", log, text=DROPPING) as (address, application):
        assert request(address, "/pause", method="POST").json == {"paused": True}
        # Owners are asked for once a second: just after the start they may be those of before.
        until(lambda: request(address, "/status").json["condition"] == "PAUSED", "the status shows the pause")
        assert request(address, "/status").json["instances"][0]["paused"]
        assert request(address, "/health").json == {"state": "RUNNING", "paused": True}
        assert 'streamkit_paused{client_id="dropping"} 1.0' in request(address, "/metrics").text
        first = streamkit("status", f"http://{address}").out.splitlines()[0]
        assert first.startswith(f"dropping: PAUSED: {address} is PAUSED (")
        assert application.status().shown_state == "PAUSED"
        request(address, "/resume", method="POST")
        assert request(address, "/status").json["condition"] == "RUNNING"
    log.close()


def test_dropped_records_and_dead_letters_are_shown_by_task_and_reason(tmp_path: Path) -> None:
    log = log_with_topics(tmp_path)
    rows = [(b"a", 5, 10_000), (b"a", 0, 10_001), (b"a", 4, 1_000), (b"b", 0, 10_002), (b"a", None, 10_003)]
    with served(tmp_path / "app", log, text=DROPPING) as (address, _):
        producer = log.producer()
        producer.send(
            [("numbers", key, b"odd" if n is None else n.to_bytes(8, "big"), time, None, 0) for key, n, time in rows]
        )
        producer.flush()
        producer.close()

        def shown() -> Any:
            drops = request(address, "/status").json["drops"]
            return drops if sum(each["dropped"] for each in drops) == 4 else None

        drops = {each["reason"]: each for each in until(shown, "four records are dropped")}
        text = streamkit("status", f"http://{address}").out
        metrics = request(address, "/metrics").text
    log.close()
    counts = {reason: (each["task"], each["dropped"], each["dead_letters"]) for reason, each in drops.items()}
    assert counts == {
        "halves.map_values failed: ZeroDivisionError": ("0_0", 2, 0),
        "topic numbers does not decode": ("0_0", 1, 1),
        "late: its window is closed, or its time has passed": ("1_0", 1, 0),
    }
    assert (
        "topic numbers, partition 0, offset 3: division by zero"
        in drops["halves.map_values failed: ZeroDivisionError"]["message"]
    )
    assert drops["late: its window is closed, or its time has passed"]["message"].startswith(
        "topic results, partition 0, offset "
    )
    assert text.splitlines()[0].startswith(
        f"dropping: DEAD LETTERS: {address} wrote 1 dead letter, the last in task 0_0"
    )
    rows = [
        line
        for line in map(re.compile(" {2,}").split, text.splitlines())
        if line[1:2] == ["late: its window is closed, or its time has passed"]
    ]
    assert [row[:5] for row in rows] == [["1_0", "late: its window is closed, or its time has passed", "1", "2", "0"]]
    assert "topic numbers does not decode" in text
    assert 'reason="topic numbers does not decode"' in metrics
