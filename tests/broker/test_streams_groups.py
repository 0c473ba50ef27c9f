"""Instances of streamkit in a streams group (KIP-1071), alone and beside Java Kafka Streams."""

from __future__ import annotations

import re
import subprocess
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from dataclasses import replace
from pathlib import Path

import pytest
from kafka.errors import KafkaConnectionError, NotCoordinatorError

from streamkit.errors import FencedError, TransportError
from streamkit.record import TaskId, TopicPartition
from streamkit.transport.kafka import KafkaTransport
from streamkit.transport.kafka.messages import StreamsGroupDescribeRequest
from streamkit.transport.kafka.streams_membership import StreamsMembership, description_message
from streamkit.transport.log_interface import (
    CommittedOffset,
    DescribedNode,
    DescribedTopology,
    GroupDescription,
    NodeKind,
    Rebalance,
    StreamsInstance,
    StreamsTopology,
    SubTopologyTopics,
)
from tests.broker.kafka_broker import Broker
from tests.broker.support import App, Log, kill, until
from tests.broker.word_count import feed, latest, lines, truth, word_count
from tests.cli.support import LIMIT_S, command
from tests.java import build

pytestmark = pytest.mark.broker

PART = 2000
LOST = KafkaConnectionError("socket disconnected")
SETTINGS = """\
group.streams.heartbeat.interval.ms=200
group.streams.min.heartbeat.interval.ms=100
group.streams.initial.rebalance.delay.ms=0
group.streams.assignment.interval.ms=0
group.streams.session.timeout.ms=6000
group.streams.min.session.timeout.ms=1000
group.streams.max.session.timeout.ms=60000
group.streams.num.standby.replicas=1
group.streams.topology.description.plugin.class=org.apache.kafka.server.streams.InMemoryTopologyDescriptionPlugin
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
        if process.poll() is None:
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


def test_killed_instances_lose_and_double_nothing(log: Log, tmp_path: Path) -> None:
    guarantee = "exactly_once_v2"
    app = application(tmp_path, log, guarantee)
    with instance(app, 1):
        with java(app, guarantee) as killed_java, instance(app, 2) as killed:
            settles(app, share_tasks(4), "all have tasks")
            fed(app, 1)
            until(lambda: counts_so_far(app, 1), "all have counted")
            fed(app, 2)
            kill([killed, killed_java])
            until(lambda: counts_so_far(app, 2), "what is left has counted")
            fed(app, 3)
        until(lambda: counts_so_far(app, 3), "streamkit has counted to the end")


def test_an_application_moves_from_a_classic_group_and_back(log: Log, tmp_path: Path) -> None:
    app = application(tmp_path, log)
    fed(app, 1)
    assert app.run("--set", "group.protocol=classic").code == 0
    assert counts_so_far(app, 1)
    fed(app, 2)
    assert app.run().code == 0
    assert counts_so_far(app, 2)
    fed(app, 3)
    assert app.run("--set", "group.protocol=classic").code == 0
    assert counts_so_far(app, 3)


class Members:
    """Members of one streams group, whose topology reads one topic."""

    def __init__(self, log: Log, group: str, topics: tuple[str, ...] = ("in",)):
        self.log, self.group, self.poll_ms = log, group, 60_000
        self.offset_sums: dict[TaskId, int] = {}
        for topic in topics:
            log.create(f"{group}-{topic}", 4)
        names = tuple(f"{group}-{topic}" for topic in topics)
        self.topology = StreamsTopology(
            {0: SubTopologyTopics(names, (), (), (), ())},
            lambda task: [TopicPartition(name, task.partition) for name in names],
            lambda data: StreamsInstance(data.decode(), self.poll_ms, threads=len(data), offset_sums=self.offset_sums),
            lambda assignment: b"",
        )
        self.opened: list[StreamsMembership] = []

    def join(self, name: str, static_id: str = "") -> StreamsMembership:
        settings = {"consumer": {"group.instance.id": static_id}} if static_id else {}
        member = KafkaTransport(self.log.address, settings).streams_membership(self.group, name, self.topology)
        assert isinstance(member, StreamsMembership)
        self.opened.append(member)
        member.join(name.encode, ())
        return member

    def own(self, *shares: int) -> list[Rebalance]:
        """Poll all members until they own so many partitions each; return the last assignments."""
        last: dict[StreamsMembership, Rebalance] = {}

        def settled() -> bool:
            for member in self.opened:
                last[member] = member.poll(50) or last.get(member) or Rebalance(0, *[frozenset()] * 3, b"")
            return [len(last[member].partitions) for member in self.opened] == list(shares)

        until(settled, f"{shares} are owned")
        return [last[member] for member in self.opened]

    def close(self) -> None:
        for member in self.opened:
            member.leave()


@pytest.fixture
def members(log: Log, request: pytest.FixtureRequest) -> Iterator[Members]:
    opened = Members(log, re.sub(r"\W", "-", request.node.name))
    yield opened
    opened.close()


def loses_an_answer(member: StreamsMembership, error: Exception = LOST, with_tasks: bool = True) -> None:
    """Let a heartbeat fail that the coordinator has answered: the next one, or the next one whose answer has tasks."""
    send, lost = member._coordinator.send, []

    def broken(request: object) -> object:
        answer = send(request)
        if not lost and (not with_tasks or answer.active_tasks is not None):
            lost.append(answer)
            raise error
        return answer

    member._coordinator.send = broken


@pytest.mark.parametrize("error", [LOST, NotCoordinatorError()], ids=["connection", "coordinator"])
@pytest.mark.parametrize("static", ["", "one"])
def test_tasks_in_a_lost_answer_are_asked_for_again(members: Members, error: Exception, static: str) -> None:
    first, second = members.join("a", static), members.join("b")
    members.own(2, 2)
    loses_an_answer(first, error)
    second.leave()
    members.opened.remove(second)
    (rebalance,) = members.own(4)
    assert len(rebalance.added) == 2


def test_a_member_whose_tasks_were_taken_back_in_a_lost_answer_loses_all(members: Members) -> None:
    first = members.join("a")
    members.own(4)
    loses_an_answer(first)
    members.join("b")
    with pytest.raises(FencedError, match="its tasks are lost"):
        members.own(2, 2)
    with pytest.raises(FencedError):
        first.commit({TopicPartition(f"{members.group}-in", 0): CommittedOffset(1)})
    members.own(2, 2)
    first.commit({TopicPartition(f"{members.group}-in", 0): CommittedOffset(1)})
    assert members.log.committed(members.group, f"{members.group}-in")[0][0] == 1


def test_tasks_that_are_being_given_up_when_an_answer_is_lost_are_lost(members: Members) -> None:
    """The coordinator takes them for given up, and a commit of them would count although others have them."""
    first = members.join("a")
    members.own(4)
    members.join("b")
    rebalance = None
    while rebalance is None:
        rebalance = first.poll(1000)
    (revoked, _) = rebalance.revoked
    loses_an_answer(first, with_tasks=False)
    with pytest.raises(FencedError):
        until(lambda: first.poll(100, join=False) or False, "the loss")
    with pytest.raises(FencedError):
        first.commit({revoked: CommittedOffset(1)})
    members.own(2, 2)


def test_a_member_without_threads_leaves_until_it_has_some(members: Members) -> None:
    first, _ = members.join("a"), members.join("b")
    members.own(2, 2)
    first.join(lambda: b"", ())
    with pytest.raises(FencedError):
        members.own(0, 4)
    members.own(0, 4)
    first.join(lambda: b"a", ())
    members.own(2, 2)


def test_a_member_that_is_not_polled_leaves(members: Members) -> None:
    members.poll_ms = 1000
    first = members.join("a")
    members.own(4)
    members.opened[:] = [members.join("b")]
    assert members.own(4)
    members.opened.append(first)
    with pytest.raises(FencedError):
        members.own(4, 0)


def test_a_group_of_another_protocol_is_waited_for(log: Log, tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    classic = word_count(tmp_path, log)
    with instance(classic, 1):
        until(lambda: described(classic).members, "the classic member")
        members = Members(log, classic.application)
        members.join("a")
        until(lambda: "has members of another protocol; waiting for them to end" in caplog.text, "the warning")
    members.own(4)
    members.close()


def test_removed_members_say_so_once_and_join_again(members: Members) -> None:
    members.join("a")
    members.own(4)
    with closing(KafkaTransport(members.log.address).admin()) as admin:
        assert admin.remove_members(members.group) == [members.opened[0].member_id]
    with pytest.raises(FencedError):
        members.own(0)
    members.own(4)


def test_a_member_gives_up_its_tasks_before_another_has_them(members: Members) -> None:
    first, second = members.join("a"), None
    members.own(4)
    second = members.join("b")
    rebalance = None
    while rebalance is None:
        rebalance = first.poll(1000)
    assert len(rebalance.revoked) == 2
    # Not before the first member polls again, however often the second does.
    got = [second.poll(200) for _ in range(5)]
    assert not any(each.partitions for each in got if each)
    members.own(2, 2)


def kept_description(member: StreamsMembership) -> dict | None:
    """The description of the topology that the broker has for a member's group."""
    answer = member._coordinator.send(
        StreamsGroupDescribeRequest(group_ids=[member._group], include_topology_description=True)
    )
    kept = answer.groups[0].topology_description
    return None if kept is None else kept.to_dict()


def test_a_broker_that_asks_is_given_the_description_once(members: Members, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    nodes = (
        DescribedNode("read", NodeKind.SOURCE, sources=("in",), successors=("work", "write")),
        DescribedNode("work", NodeKind.PROCESSOR, stores=("a", "b")),
        DescribedNode("write", NodeKind.SINK, sink="out"),
    )
    stores = ((DescribedNode("rows", NodeKind.SOURCE, sources=("all",), successors=("keep",)), nodes[1]),)
    described_there = DescribedTopology({0: nodes}, stores)
    members.topology = replace(members.topology, description=described_there)
    first = members.join("a")
    members.own(4)
    until(lambda: kept_description(first) is not None, "the broker has the description")
    assert kept_description(first) == description_message(described_there).to_dict()
    second = members.join("b")
    members.own(2, 2)
    assert [each.getMessage() for each in caplog.records].count(
        f"group {members.group} has the description of its topology"
    ) == 1
    assert kept_description(second) == description_message(described_there).to_dict()


def test_a_broker_before_4_4_which_refuses_offsets_is_told_none(kafka: Log) -> None:
    with closing(Members(kafka, "older")) as members:
        members.offset_sums = {TaskId(0, 0): 5}
        members.join("a")
        members.own(4)


def test_a_group_refuses_another_topology(members: Members) -> None:
    members.join("a")
    members.own(4)
    other = Members(members.log, members.group, ("in", "more"))
    stranger = other.join("b")
    with pytest.raises(TransportError, match="has another topology; stop all its members first"):
        stranger.poll(60_000)
    other.close()


def test_a_static_member_has_its_tasks_again(members: Members) -> None:
    first, second = members.join("a", "one"), members.join("b", "two")
    before = members.own(2, 2)[0].partitions
    first.leave()
    members.opened[0] = members.join("c", "one")
    members.opened.pop()
    assert members.own(2, 2)[0].partitions == before
    assert second.poll(0) is None


def test_a_static_member_waits_for_the_session_of_the_one_before(members: Members) -> None:
    first = members.join("a", "one")
    members.own(4)
    # Its heartbeats end, as those of a process that was killed.
    first._coordinator.send = lambda request: threading.Event().wait()
    members.opened[:] = [members.join("b", "one")]
    assert len(members.own(4)[0].partitions) == 4
