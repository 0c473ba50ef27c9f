"""What a group membership must do on every log that offers one: cooperative, generations checked, losses told once."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from uuid import uuid4

import pytest

from streamkit.errors import ConfigError, FencedError, TransportError, UnreachableError
from streamkit.record import TopicPartition
from streamkit.transport.embedded import EmbeddedTransport
from streamkit.transport.kafka import KafkaTransport
from streamkit.transport.log_interface import (
    CommittedOffset,
    Member,
    MemberAssignment,
    Membership,
    NewTopic,
    Rebalance,
    Transport,
    decode_generation,
    withhold,
)
from tests.contracts.records import KAFKA, attempts

PARTITIONS = 4


class Group:
    """A group of its own on a topic of its own, whose leader gives partitions out in turn."""

    def __init__(self, make: Callable[..., Transport]):
        self._make = make
        self.transport = make()
        self.name, self.topic = f"group-{uuid4()}", f"topic-{uuid4()}"
        self.members: list[Membership] = []
        self.owned: dict[Membership, frozenset[TopicPartition]] = {}
        self.last: dict[Membership, Rebalance] = {}
        self.seen: dict[str, Member] = {}
        admin = self.transport.admin()
        admin.create_topics([NewTopic(self.topic, PARTITIONS)])
        admin.close()

    @property
    def all(self) -> frozenset[TopicPartition]:
        return frozenset(TopicPartition(self.topic, number) for number in range(PARTITIONS))

    def member(self, metadata: bytes = b"", **settings: str) -> Membership:
        transport = self._make(**{"session.timeout.ms": "60000", **settings})
        made = transport.membership(self.name, f"member-{len(self.members)}", self.decide)
        made.join(lambda: metadata, [self.topic])
        self.members.append(made)
        self.owned[made] = frozenset()
        return made

    def decide(self, members: dict[str, Member]) -> dict[str, MemberAssignment]:
        self.seen = dict(members)
        names = sorted(members)
        shares: dict[str, list[TopicPartition]] = {name: [] for name in names}
        for number in range(PARTITIONS):
            shares[names[number % len(names)]].append(TopicPartition(self.topic, number))
        return {name: MemberAssignment(tuple(share), b"data of " + name.encode()) for name, share in shares.items()}

    def settle(self, *members: Membership) -> None:
        """Poll members in turn until one generation gives each a part and every partition to one; never any to two.

        The last partition may be given out before another member has come out of the same rebalance.
        """
        for _ in attempts(lambda: f"one generation that gives out all partitions: {self.owned}"):
            if (
                all(self.owned[m] for m in members)
                and frozenset().union(*map(self.owned.get, members)) == self.all
                and len({decode_generation(m.group_metadata()).number for m in members}) == 1
            ):
                break
            for membership in members:
                change = membership.poll(10)
                if change is None:
                    continue
                self.last[membership] = change
                before, self.owned[membership] = self.owned[membership], change.partitions
                assert change.revoked == before - change.partitions
                assert change.added == change.partitions - before
                held = [self.owned[each] for each in members]
                assert sum(map(len, held)) == len(frozenset().union(*held))

    def leave(self, member: Membership) -> None:
        member.leave()
        self.members.remove(member)
        del self.owned[member]


@pytest.fixture(params=[KAFKA, "embedded"])
def group(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Group]:
    if request.param == "kafka":
        address = request.getfixturevalue("broker").address

        def make(**settings: str) -> Transport:
            return KafkaTransport(address, {"consumer": settings})

    else:

        def make(**settings: str) -> Transport:
            timeouts = [
                int(settings[name]) for name in ("session.timeout.ms", "max.poll.interval.ms") if name in settings
            ]
            return EmbeddedTransport(tmp_path / "log", *timeouts)

    made = Group(make)
    yield made
    for member in made.members:
        member.leave()


def commit(member: Membership, partition: TopicPartition, offset: int) -> None:
    member.commit({partition: CommittedOffset(offset, f"m{offset}")})


def keep_polling(member: Membership) -> None:
    """Poll until that fails."""
    for _ in attempts(lambda: "a poll that fails"):
        member.poll(100)


def committed(group: Group, partition: TopicPartition) -> CommittedOffset:
    consumer = group.transport.consumer(group.name, read_committed=True)
    try:
        return consumer.committed([partition])[partition]
    finally:
        consumer.close()


def test_members_share_and_hand_over(group):
    first = group.member(b"metadata of first")
    group.settle(first)
    assert group.last[first].data == b"data of " + first.member_id.encode()
    assert group.seen[first.member_id] == Member(b"metadata of first", frozenset([group.topic]), frozenset())
    second = group.member()
    group.settle(first, second)
    assert sorted(len(owned) for owned in group.owned.values()) == [2, 2]
    third = group.member()
    group.settle(first, second, third)
    group.leave(first)
    group.settle(second, third)
    assert sorted(group.transport.admin().group_members(group.name)) == sorted([second.member_id, third.member_id])


def test_the_leader_learns_what_members_own_and_report_again(group):
    member = group.member(b"old")
    group.settle(member)
    generation = group.last[member].generation
    member.join(lambda: b"new", [group.topic])
    for _ in attempts(lambda: "a rebalance after the member has said something new"):
        change = member.poll(100)
        if change is not None:
            break
    assert group.seen == {member.member_id: Member(b"new", frozenset([group.topic]), group.all)}
    assert change.generation > generation
    assert (change.added, change.revoked) == (frozenset(), frozenset())


def test_each_requested_rebalance_happens(group):
    first, second = group.member(), group.member()
    group.settle(first, second)
    for asking in (first, second, second):
        before = {member: decode_generation(member.group_metadata()).number for member in (first, second)}
        asking.rebalance()
        for _ in attempts(lambda: "a generation after each that was there"):
            if all(decode_generation(m.group_metadata()).number != before[m] for m in (first, second)):
                break
            for member in (first, second):
                member.poll(10)


def test_commits_carry_their_metadata_and_stale_ones_are_refused(group):
    partition = TopicPartition(group.topic, 0)
    member = group.member()
    with pytest.raises(FencedError):
        commit(member, partition, 1)
    group.settle(member)
    commit(member, partition, 1)
    assert committed(group, partition) == CommittedOffset(1, "m1")
    stale = member.group_metadata()
    group.settle(member, group.member())
    producer = group.transport.producer(transactional_id=f"t-{uuid4()}")
    producer.begin()
    producer.send([(group.topic, b"k", b"v", 1, None, 0)])
    with pytest.raises(FencedError):
        producer.commit({partition: CommittedOffset(9)}, stale)
    producer.abort()
    producer.begin()
    producer.commit({partition: CommittedOffset(2, "m2")}, member.group_metadata())
    producer.close()
    assert committed(group, partition) == CommittedOffset(2, "m2")


def test_a_member_that_gave_up_is_notified_once_and_joins_again(group):
    partition = TopicPartition(group.topic, 0)
    member = group.member()
    group.settle(member)
    member.give_up("for a test")
    with pytest.raises(FencedError):
        commit(member, partition, 1)
    with pytest.raises(FencedError, match="went on without"):
        member.poll(0)
    group.owned[member] = frozenset()
    group.settle(member)
    commit(member, partition, 2)


def test_a_member_that_stays_does_not_join(group):
    first = group.member()
    group.settle(first)
    second = group.member()
    # The second is no member until the first has joined again.
    for _ in attempts(lambda: "a rebalance that the second member asks for"):
        if first.rebalancing() or len(group.transport.admin().group_members(group.name)) >= 2:
            break
        assert first.poll(0, join=False) is None
        assert second.poll(10) is None
    group.settle(first, second)


@pytest.mark.broker
def test_a_static_member_comes_back_without_a_rebalance(broker):
    group = Group(lambda **settings: KafkaTransport(broker.address, {"consumer": settings}))
    partition = TopicPartition(group.topic, 0)
    first = group.member(**{"group.instance.id": "one"})
    group.settle(first)
    producer = group.transport.producer(transactional_id=f"t-{uuid4()}")
    producer.begin()
    producer.commit({partition: CommittedOffset(1)}, first.group_metadata())
    producer.close()
    generation = group.last[first].generation
    first.leave()
    again = group.member(**{"group.instance.id": "one"})
    group.settle(again)
    assert group.last[again].generation == generation
    other = group.member(**{"group.instance.id": "one"})
    group.settle(other)
    with pytest.raises(TransportError, match=r"taken over this group\.instance\.id"):
        commit(again, partition, 1)
    with pytest.raises(TransportError, match=r"taken over this group\.instance\.id"):
        keep_polling(again)
    for member in (again, other):
        member.leave()


@pytest.mark.broker
def test_a_group_of_another_kind_is_recognized(broker):
    from kafka import KafkaConsumer

    group = Group(lambda **settings: KafkaTransport(broker.address, {"consumer": settings}))
    # A topic that is too new for its first look at the cluster it would find only at the next one.
    looks = {"metadata_max_age_ms": 200, "metrics_enabled": False}
    # It is not polled below: it stays in the group by its heartbeats alone, which a busy machine may delay.
    looks |= {"session_timeout_ms": 60_000}
    other = KafkaConsumer(group.topic, bootstrap_servers=broker.address, group_id=group.name, **looks)
    for _ in attempts(lambda: "an assignment to the other client"):
        if other.assignment():
            break
        other.poll(100)
    member = group.member()
    with pytest.raises(TransportError, match="its members are not streamkit's"):
        keep_polling(member)
    member.leave()
    other.close()


def test_no_broker_and_bad_settings_are_one_line():
    nowhere = KafkaTransport("127.0.0.1:1", {"common": {"default.api.timeout.ms": "300"}})
    with pytest.raises(UnreachableError, match=r"127\.0\.0\.1:1") as raised:
        nowhere.membership("g", "m", lambda members: {}).join(bytes, ["t"])
    assert "\n" not in str(raised.value)
    slow = {"heartbeat.interval.ms": "5000", "session.timeout.ms": "5000"}
    with pytest.raises(ConfigError, match=r"heartbeat\.interval\.ms is 5000; it must be less"):
        KafkaTransport("127.0.0.1:1", {"consumer": slow}).membership("g", "m", lambda members: {})


def test_a_member_under_another_id_claims_nothing_of_its_old_self() -> None:
    """kafka-python joins on with what it had when it is given up between joining and being assigned."""
    from types import SimpleNamespace

    from kafka.structs import MemberState

    from streamkit.transport.kafka.kafka_membership import KafkaMembership

    member = KafkaMembership({"bootstrap.servers": "127.0.0.1:1"}, 1.0, "group", lambda members: {})
    now = SimpleNamespace(state=MemberState.STABLE, generation_id=3, member_id="first")
    owned = {TopicPartition("t", 0)}
    coordinator = SimpleNamespace(
        group_metadata=lambda: now, _subscription=SimpleNamespace(assigned_partitions=lambda: owned)
    )
    member._client = SimpleNamespace(_coordinator=coordinator)
    assert member._take().partitions == owned
    assert member._claimed() == owned
    now.member_id, now.generation_id = "second", 5
    assert member._claimed() == frozenset()
    with pytest.raises(FencedError):
        member._check_lost()
    # While the join is repeated, kafka-python still has what was lost.
    assert member._claimed() == frozenset()
    assert member._take().partitions == owned
    assert member._claimed() == owned


def test_what_two_members_claim_is_given_to_neither() -> None:
    """One of them was removed from the group and does not know it; the other has to give the partition up first."""
    claimed, free = TopicPartition("t", 0), TopicPartition("t", 1)
    members = {name: Member(b"", frozenset({"t"}), frozenset({claimed})) for name in ("owner", "stale")}
    for wanted in members:
        decided = withhold(members, {wanted: MemberAssignment((claimed, free))})
        assert {name: assignment.partitions for name, assignment in decided.items()} == {
            **dict.fromkeys(members, ()),
            wanted: (free,),
        }


def test_only_members_commit_while_there_are_any(group: Group) -> None:
    """A command that moves the offsets of an application must not do so while an instance starts."""
    place = TopicPartition(group.topic, 0)
    consumer = group.transport.consumer(group.name)
    try:
        consumer.commit({place: CommittedOffset(5, "")})
        member = group.member()
        group.settle(member)
        with pytest.raises(FencedError):
            consumer.commit({place: CommittedOffset(7, "")})
        assert consumer.committed([place])[place].offset == 5
    finally:
        consumer.close()
