"""The embedded log among several processes: writers at once, and partitions handed from member to member."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from streamkit.errors import FencedError, StreamkitError, TransportError
from streamkit.record import TopicPartition
from streamkit.transport.embedded import EmbeddedTransport
from streamkit.transport.embedded.database import Database
from streamkit.transport.embedded.embedded_groups import EmbeddedMembership
from streamkit.transport.log_interface import EARLIEST, CommittedOffset, NewTopic, Rebalance
from tests.contracts.embedded_worker import PARTITIONS, TOPIC, spread
from tests.contracts.records import PATIENCE, attempts

WORKER = Path(__file__).with_name("embedded_worker.py")
ALL = frozenset(TopicPartition(TOPIC, n) for n in range(PARTITIONS))
SESSION_MS = 60_000
"""Of a member that is killed: it stays until then however slow the machine is."""


@pytest.fixture
def log(tmp_path: Path) -> EmbeddedTransport:
    transport = EmbeddedTransport(tmp_path / "log")
    transport.admin().create_topics([NewTopic(TOPIC, PARTITIONS)])
    return transport


@pytest.fixture
def spawn(log: EmbeddedTransport) -> Iterator[Callable[..., subprocess.Popen]]:
    started: list[subprocess.Popen] = []

    def start(what: str, *arguments: object) -> subprocess.Popen:
        command = [sys.executable, str(WORKER), what, str(log.directory), *map(str, arguments)]
        environment = {**os.environ, "PYTHONPATH": str(WORKER.parents[2])}
        started.append(subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env=environment))
        return started[-1]

    yield start
    for process in started:
        process.kill()
        process.communicate()


def until(membership: EmbeddedMembership, done: Callable[[Rebalance], bool]) -> Rebalance:
    """Poll until a rebalance is as wanted."""
    for _ in attempts(lambda: "the rebalance"):
        change = membership.poll(500)
        if change is not None and done(change):
            break
    return change


def killed(log: EmbeddedTransport, process: subprocess.Popen, member: str) -> None:
    """Kill the process of a member, and let its session be over, which is a long one."""
    process.kill()
    process.wait()
    database = Database(log.directory)
    with database.write() as execute:
        execute("UPDATE members SET timeout = -1 WHERE grp = 'g' AND id = ?", (member,))
    database.close()


def settle(*memberships: EmbeddedMembership, owned: dict[EmbeddedMembership, frozenset]) -> None:
    """Poll members of one process in turn until every partition is owned; at no time is one owned by two."""
    for _ in attempts(lambda: f"all partitions given out: {owned}"):
        if all(owned[m] for m in memberships) and frozenset().union(*owned.values()) == ALL:
            break
        for membership in memberships:
            change = membership.poll(10)
            if change is None:
                continue
            owned[membership] = change.partitions
            assert sum(map(len, owned.values())) == len(frozenset().union(*owned.values()))


def test_writers_at_once_lose_nothing_and_keep_their_order(log, spawn):
    writers = [spawn("write", f"writer-{n}", 300) for n in range(3)]
    assert [writer.wait(PATIENCE) for writer in writers] == [0, 0, 0]
    consumer = log.consumer(None)
    consumer.assign(dict.fromkeys(ALL, EARLIEST))
    seen: dict[bytes, list[int]] = {}
    while batches := consumer.poll(100, 0):
        for batch in batches:
            for key, value in zip(batch.keys, batch.values, strict=True):
                seen.setdefault(key, []).append(int(value))
    assert seen == {b"writer-%d" % n: list(range(300)) for n in range(3)}


def test_a_waiting_reader_sees_what_another_process_writes(log, spawn):
    consumer = log.consumer(None)
    consumer.assign(dict.fromkeys(ALL, EARLIEST))
    spawn("write", "w", 1)
    assert [batch.values for batch in consumer.poll(10, int(PATIENCE * 1000))] == [[b"0"]]


def test_a_killed_member_hands_over(log, spawn):
    mine = log.membership("g", "a", spread)
    mine.join(bytes, [TOPIC])
    assert until(mine, lambda r: r.partitions == ALL).data == b"a"
    other = spawn("member", "b", SESSION_MS)
    shared = until(mine, lambda r: len(r.partitions) == 2)
    assert shared.revoked == ALL - shared.partitions
    # The follow-up, with which the other gets what was given up here.
    until(mine, lambda r: len(r.partitions) == 2)
    assert other.stdout is not None
    lines = iter(other.stdout.readline, "")
    assert "1 3" in (line.strip() for line in lines)
    killed(log, other, "b")
    assert until(mine, lambda r: r.partitions == ALL).added == shared.revoked
    assert log.admin().group_members("g") == ["a"]
    mine.leave()
    assert log.admin().group_members("g") == []


def test_the_members_follow_when_the_leader_is_killed(log, spawn):
    leader = spawn("member", "a", SESSION_MS)
    assert leader.stdout is not None
    assert leader.stdout.readline().strip() == "0 1 2 3"
    mine = log.membership("g", "b", spread)
    mine.join(bytes, [TOPIC])
    until(mine, lambda r: len(r.partitions) == 2)
    killed(log, leader, "a")
    until(mine, lambda r: r.partitions == ALL)
    mine.leave()


def test_no_partition_is_ever_owned_twice(log):
    members = [log.membership("g", name, spread) for name in ("a", "b", "c")]
    owned: dict = {}
    for count, membership in enumerate(members, 1):
        membership.join(bytes, [TOPIC])
        owned[membership] = frozenset()
        settle(*members[:count], owned=owned)
    members[0].leave()
    del owned[members[0]]
    settle(*members[1:], owned=owned)
    for membership in members[1:]:
        membership.leave()


def test_a_stale_generation_commits_nothing(log):
    place = TopicPartition(TOPIC, 0)
    consumer, producer = log.consumer("g"), log.producer(transactional_id="t")
    member = log.membership("g", "a", spread)
    with pytest.raises(FencedError):
        member.commit({place: CommittedOffset(1)})
    member.join(bytes, [TOPIC])
    until(member, lambda r: r.partitions == ALL)
    member.commit({place: CommittedOffset(1, "m")})
    stale = member.group_metadata()
    member.rebalance()
    until(member, lambda r: r.partitions == ALL)
    producer.begin()
    producer.send([(TOPIC, b"k", b"v", 1, None, 0)])
    with pytest.raises(FencedError):
        producer.commit({place: CommittedOffset(9)}, stale)
    producer.abort()
    assert consumer.committed([place]) == {place: CommittedOffset(1, "m")}
    assert consumer.end_offsets([place]) == {place: 0}
    producer.begin()
    producer.commit({place: CommittedOffset(2)}, member.group_metadata())
    assert consumer.committed([place]) == {place: CommittedOffset(2)}
    member.leave()


def test_a_member_that_does_not_poll_is_left_behind_and_learns_it(log):
    slow_log = EmbeddedTransport(log.directory, max_poll_interval_ms=300)
    slow = slow_log.membership("g", "slow", spread)
    slow.join(bytes, [TOPIC])
    until(slow, lambda r: r.partitions == ALL)
    quick = log.membership("g", "quick", spread)
    quick.join(bytes, [TOPIC])
    until(quick, lambda r: r.partitions == ALL)
    with pytest.raises(FencedError):
        slow.commit({TopicPartition(TOPIC, 0): CommittedOffset(5)})
    with pytest.raises(FencedError, match="went on without"):
        slow.poll(0)
    slow.poll(0)
    assert sorted(log.admin().group_members("g")) == ["quick", "slow"]
    slow.leave()
    quick.leave()


def test_a_place_that_cannot_be_written_is_one_clear_line(tmp_path):
    blocked = tmp_path / "file"
    blocked.write_text("")
    with pytest.raises(TransportError, match="embedded log") as raised:
        EmbeddedTransport(blocked / "log").admin()
    assert "\n" not in str(raised.value)
    (tmp_path / "log.sqlite3").write_bytes(b"no database" * 1000)
    with pytest.raises(TransportError, match="cannot be used"):
        EmbeddedTransport(tmp_path).admin()


def test_a_full_disk_fails_the_write_and_keeps_what_was_there(log):
    producer, consumer = log.producer(), log.consumer(None)
    producer.send([(TOPIC, b"k", b"v", 1, None, 0)])
    # SQLite's limit of pages answers as a full disk does.
    producer._database._connection.execute("PRAGMA max_page_count = 40")
    with pytest.raises(StreamkitError, match="full") as raised:
        producer.send([(TOPIC, b"k", os.urandom(1_000_000), 1, None, 0)])
    assert "\n" not in str(raised.value)
    assert consumer.end_offsets([TopicPartition(TOPIC, 0)]) == {TopicPartition(TOPIC, 0): 1}
    producer.send([(TOPIC, b"k", b"v", 1, None, 0)])
    assert consumer.end_offsets([TopicPartition(TOPIC, 0)]) == {TopicPartition(TOPIC, 0): 2}


def test_removed_members_have_lost_their_partitions(log):
    mine = log.membership("g", "a", spread)
    mine.join(bytes, [TOPIC])
    until(mine, lambda r: r.partitions == ALL)
    admin = log.admin()
    assert admin.remove_members("g") == ["a"]
    assert admin.group_members("g") == admin.remove_members("g") == []
    with pytest.raises(FencedError):
        mine.commit({place: CommittedOffset(1) for place in ALL})
    mine.leave()


def test_the_log_is_for_its_owner_alone(tmp_path: Path) -> None:
    log = EmbeddedTransport(tmp_path / "state" / "embedded")
    for _ in range(2):
        admin = log.admin()
        admin.create_topics([NewTopic(f"t-{_}", 1)])
        paths = list((tmp_path / "state").rglob("*"))
        found = {path.name: oct(path.stat().st_mode & 0o777) for path in (tmp_path / "state", *paths)}
        assert found == {
            "state": "0o700", "embedded": "0o700", "log.sqlite3": "0o600", "log.sqlite3-wal": "0o600", "log.sqlite3-shm": "0o600",
            "log.sqlite3-open": "0o600",
        }  # fmt: skip
        admin.close()
        # The files of an earlier version.
        (tmp_path / "state" / "embedded" / "log.sqlite3").chmod(0o644)
    log.close()


def test_what_goes_to_stores_is_on_disk_before(log, monkeypatch) -> None:
    """A loss of power would otherwise leave a standby with rows that the log has lost."""
    synced: list[int] = []
    with monkeypatch.context() as patch:
        patch.setattr(os, "fsync", lambda descriptor: synced.append(os.fstat(descriptor).st_size))
        for role in ("main", "restore", "global"):
            log.producer().send([(TOPIC, b"k", b"v", 1, None, 0)])
            consumer = log.consumer(None, role=role)
            consumer.assign({TopicPartition(TOPIC, 0): EARLIEST})
            assert consumer.poll(10, 1000)
            consumer.close()
            size = (log.directory / "log.sqlite3-wal").stat().st_size
            assert synced == ([] if role == "main" else [size]), role
            synced.clear()
