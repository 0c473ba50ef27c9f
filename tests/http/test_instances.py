"""Two processes of one application: every key is answered by either, also just after one was killed."""

from __future__ import annotations

import os
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from streamkit.transport import open_transport
from streamkit.transport.embedded import EmbeddedTransport
from streamkit.transport.log_interface import NewTopic, Transport
from tests.broker.support import fresh, until
from tests.cli.support import LIMIT_S, command
from tests.http.support import request
from tests.ports import free_ports

KEYS = [f"key-{number:03d}" for number in range(60)]
COUNTS = """\
streamkit: 1
application: {application}
config:
  num.standby.replicas: {standbys}
  commit.interval.ms: 100
  poll.ms: 10
  session.timeout.ms: 6000
topics:
  {topic}: {{key: string, value: string, partitions: 4}}
pipelines:
  counts:
    stream: {topic}
    steps: [group_by_key, {{count: counts}}]
"""


class Instance:
    """A process that runs the topology with its own state."""

    def __init__(self, folder: Path, file: Path, servers: str):
        self.address = f"127.0.0.1:{free_ports(1)[0]}"
        folder.mkdir()
        self.log = folder / "log.txt"
        arguments = ["run", file, "--http", self.address]
        arguments += ["--set", f"state.dir={folder / 'state'}", "--set", f"bootstrap.servers={servers}"]
        with self.log.open("wb") as output:
            self.process = subprocess.Popen(command(*arguments), stdout=output, stderr=output)

    def get(self, key: str, **query) -> tuple[int, dict]:
        answer = request(self.address, "/stores/counts/get", key=key, **query)
        return answer.status, answer.json

    def ready(self) -> bool:
        assert self.process.poll() is None, self.log.read_text()
        try:
            return request(self.address, "/ready").status == 200
        except OSError:
            return False

    def tasks(self, kind: str) -> int:
        instance = request(self.address, "/status", scope="local").json
        return sum(task["kind"] == kind for thread in instance["threads"] for task in thread["tasks"])

    def end(self, number: int = signal.SIGTERM) -> None:
        if self.process.poll() is None:
            os.kill(self.process.pid, number)
        self.process.wait(LIMIT_S)


@contextmanager
def two(folder: Path, servers: str, transport: Transport, *, standbys: int) -> Iterator[list[Instance]]:
    """Two instances that share the tasks, have counted every key twice and hold `standbys` of each other's."""
    file = folder / "topology.yaml"
    # All tests share one broker: what another one has written and committed there is not to be counted here.
    topic = fresh("events")
    file.write_text(COUNTS.format(application=fresh("shared"), topic=topic, standbys=standbys))
    admin = transport.admin()
    admin.create_topics([NewTopic(topic, 4)])
    admin.close()
    producer = transport.producer()
    producer.send([(topic, key.encode(), b"x", 1, None, None) for key in KEYS * 2])
    producer.flush()
    producer.close()
    instances: list[Instance] = []
    try:
        for name in ("a", "b"):
            instances.append(Instance(folder / name, file, servers))
            until(instances[-1].ready, f"instance {name} is ready")
        for kind, count in (("active", 2), ("standby", 2 * standbys)):
            until(
                lambda kind=kind, count=count: [each.tasks(kind) for each in instances] == [count, count],
                f"each has {count} {kind} tasks",
            )
        for each in instances:
            for key in KEYS:
                until(lambda each=each, key=key: _value(*each.get(key)) == 2, f"{key} is counted")
        yield instances
    finally:
        for each in instances:
            each.end(signal.SIGKILL)


def _value(status: int, body: dict) -> int | None:
    return body["value"] if status == 200 else None


@pytest.fixture(params=["embedded", pytest.param("kafka", marks=pytest.mark.broker)])
def log(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[tuple[str, Transport]]:
    """`bootstrap.servers` of a log, and a transport to it."""
    if request.param == "embedded":
        servers, transport = f"embedded:{tmp_path / 'log'}", EmbeddedTransport(tmp_path / "log")
    else:
        servers = request.getfixturevalue("broker").address
        transport = open_transport(servers, None, tmp_path)
    yield servers, transport
    transport.close()


def check_every_key_from_either_instance(instances: list[Instance]) -> None:
    here = dict.fromkeys((each.address for each in instances), 0)
    for each in instances:
        # Every key is at one instance only, and still each one answers for all.
        for key in KEYS:
            status, _ = each.get(key, scope="local")
            here[each.address] += status == 200
            assert _value(*each.get(key)) == 2
        rows = request(each.address, "/stores/counts/all", limit=1000).json["rows"]
        assert [(row["key"], row["value"]) for row in rows] == [(key, 2) for key in KEYS]
        both = request(each.address, "/status").json["instances"]
        assert {instance["address"] for instance in both} == here.keys()
    assert min(here.values()) > 0
    assert sum(here.values()) == len(KEYS)


def keys_at(instance: Instance) -> list[str]:
    """The keys of the instance's own tasks."""
    return [key for key in KEYS if instance.get(key, scope="local")[0] == 200]


def test_every_key_from_either_instance_and_from_the_one_that_is_left(tmp_path, log):
    with two(tmp_path, *log, standbys=0) as instances:
        check_every_key_from_either_instance(instances)
        left, killed = instances
        lost = keys_at(killed)
        killed.end(signal.SIGKILL)
        # First one that was at the other instance: its tasks move after the session, and are unknown until then.
        answers = [left.get(key) for key in (lost[0], *KEYS)]
        assert answers[0][0] == 503
        assert {status for status, _ in answers} <= {200, 503}
        assert {body["value"] for status, body in answers if status == 200} == {2}
        for key in KEYS:
            until(lambda key=key: _value(*left.get(key)) == 2, f"{key} is answered by the one that is left")


def test_keys_of_a_killed_instance_are_read_from_standbys_at_once(tmp_path, log):
    with two(tmp_path, *log, standbys=1) as instances:
        check_every_key_from_either_instance(instances)
        left, killed = instances
        lost = keys_at(killed)
        for key in lost:
            until(
                lambda key=key: _value(*left.get(key, stale="true", scope="local")) == 2,
                f"{key} has reached its standby",
            )
        killed.end(signal.SIGKILL)
        # The group does not know of it yet: what was there is read from the standbys here.
        status, body = left.get(lost[0], stale="true")
        assert (status, body["value"], body["stale"]) == (200, 2, True)
        for key in KEYS:
            until(lambda key=key: _value(*left.get(key, stale="true")) == 2, f"{key} is answered")
        page = request(left.address, "/stores/counts/all", limit=1000, stale="true").json
        assert [(row["key"], row["value"]) for row in page["rows"]] == [(key, 2) for key in KEYS]
        assert len(page["partitions"]) == 4
