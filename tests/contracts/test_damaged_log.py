"""Flipped bits in the files of the embedded log: each is harmless, or one line that names the file; no result changes in silence."""

from __future__ import annotations

import os
import random
import shutil
import sqlite3
import subprocess
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from streamkit.errors import DamagedLogError, TransportError
from streamkit.record import TopicPartition
from streamkit.transport.embedded import EmbeddedTransport
from streamkit.transport.embedded.database import FILE
from streamkit.transport.embedded.log_tables import encode
from streamkit.transport.log_interface import EARLIEST, CommittedOffset, Member, MemberAssignment, NewTopic

FLIPS = 400
SESSION_MS = 10_000_000
"""Of the member, which sends no more heartbeats."""
PLACES = [TopicPartition(topic, number) for topic, count in (("in", 3), ("out", 2)) for number in range(count)]
GROUPS = ("app", "other")
WAL = f"{FILE}-wal"
INDEX = f"{FILE}-shm"


def assign(members: dict[str, Member]) -> dict[str, MemberAssignment]:
    return {name: MemberAssignment(tuple(PLACES), b"all") for name in members}


def rows(seed: int, count: int) -> list[Any]:
    draw = random.Random(seed)
    found = []
    for number in range(count):
        place = draw.choice(PLACES)
        key = None if number % 7 == 0 else b"key%d" % draw.randrange(50)
        value = None if number % 11 == 0 else draw.randbytes(draw.choice((0, 5, 30, 400)))
        headers = [("name", b"value"), ("none", None)] if number % 5 == 0 else None
        found.append((place.topic, key, value, 1_000 + draw.randrange(100) + number, headers, place.partition))
    return found


def fill(transport: EmbeddedTransport) -> list[Any]:
    """Write topics, records, offsets, a transaction, a group, and free pages; return the open clients, the member last."""
    admin = transport.admin()
    admin.create_topics([NewTopic("in", 3, {"a": "b"}), NewTopic("out", 2), NewTopic("gone", 1)])
    producer = transport.producer()
    producer.send([("gone", None, bytes(9_000), 1, None, 0) for _ in range(10)])
    admin.delete_topics(["gone"])
    drawn = rows(1, 900)
    for start in range(0, len(drawn), 25):
        producer.send(drawn[start : start + 25])
    producer.send([("out", None, random.Random(number).randbytes(9_000), 5, None, 1) for number in range(9)])
    admin.delete_records({PLACES[0]: 30})
    member = transport.membership("app", "me", assign)
    member.join(lambda: b"mine", ["in"])
    while member.poll(100) is None:
        pass
    transactional = transport.producer(transactional_id="id")
    transactional.begin()
    transactional.send(rows(2, 200))
    transactional.commit({place: CommittedOffset(7, "text") for place in PLACES}, member.group_metadata())
    consumer = transport.consumer("other")
    consumer.commit({place: CommittedOffset(3, "") for place in PLACES})
    return [admin, producer, transactional, consumer, member]


def content(transport: EmbeddedTransport) -> dict[str, Any]:
    """Return all that clients of a log can read."""
    found: dict[str, Any] = {}
    admin, reader = transport.admin(), transport.consumer(None)
    try:
        found["topics"] = admin.topics()
        found["settings"] = {name: admin.topic_config(name) for name in found["topics"]}
        found["ids"] = admin.topic_ids(list(found["topics"]))
        found["group"] = {str(member) for member in admin.describe_group("app").members}
        found["ends"] = reader.beginning_offsets(PLACES), reader.end_offsets(PLACES)
        for time in (0, 1_500, 2_000, 2_800, 9_999):
            found[f"time {time}"] = reader.offsets_for_times(dict.fromkeys(PLACES, time))
        for group in GROUPS:
            asking = transport.consumer(group)
            found[group] = asking.committed(PLACES)
            asking.close()
        for place in PLACES:
            reader.assign({place: EARLIEST})
            read: list[Any] = []
            while batches := reader.poll(700, 0):
                for batch in batches:
                    read += zip(batch.offsets, batch.keys, batch.values, batch.timestamps, batch.headers, strict=True)
            found[str(place)] = read
    finally:
        admin.close()
        reader.close()
    return found


def extended(transport: EmbeddedTransport) -> dict[str, Any]:
    """Write further records and offsets; return all content."""
    producer, consumer = transport.producer(), transport.consumer("other")
    try:
        producer.send([(place.topic, b"new", bytes(6_000), 9_000, None, place.partition) for place in PLACES])
        consumer.commit({PLACES[0]: CommittedOffset(8, "later")})
    finally:
        producer.close()
        consumer.close()
    return content(transport)


@pytest.fixture(scope="module")
def closed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log that all clients have closed."""
    return made(tmp_path_factory.mktemp("closed"))[0]


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A log as a process leaves it that is killed: with a write-ahead log."""
    return made(tmp_path_factory.mktemp("killed"))[1]


def made(folder: Path) -> tuple[Path, Path]:
    clients = fill(EmbeddedTransport(folder / "log", SESSION_MS))
    shutil.copytree(folder / "log", folder / "killed")
    for client in clients[:-1]:
        client.close()
    clients[-1].leave()
    # The member is still in this one.
    shutil.copytree(folder / "killed", folder / "closed")
    EmbeddedTransport(folder / "closed").admin().close()
    return folder / "closed", folder / "killed"


def flip(file: Path, bit: int) -> None:
    with file.open("r+b") as opened:
        opened.seek(bit // 8)
        (byte,) = opened.read(1)
        opened.seek(bit // 8)
        opened.write(bytes([byte ^ 1 << bit % 8]))


def flips(original: Path, files: list[str], copy: Path, seed: int, count: int, left_out: str = "") -> Counter[str]:
    """Return how many flipped bits were harmless, and how many gave a line; the others are in `wrong`, which is asserted."""
    draw = random.Random(seed)
    shutil.copytree(original, copy)
    wanted = extended(EmbeddedTransport(copy))
    shutil.rmtree(copy)
    sizes = [(original / file).stat().st_size for file in files]
    outcomes: Counter[str] = Counter()
    wrong = []
    for _ in range(count):
        (file,) = draw.choices(files, sizes)
        bit = draw.randrange((original / file).stat().st_size * 8)
        shutil.copytree(original, copy, ignore=shutil.ignore_patterns(left_out) if left_out else None)
        flip(copy / file, bit)
        try:
            found = extended(EmbeddedTransport(copy))
            outcomes["harmless"] += 1
            if found != wanted:
                changed = [name for name in wanted if found.get(name) != wanted[name]]
                wrong.append(f"{file} byte {bit // 8} bit {bit % 8}: changed {changed}")
        except TransportError as error:
            text = str(error)
            outcomes["told"] += 1
            if "\n" in text or FILE not in text or str(copy) not in text:
                wrong.append(f"{file} byte {bit // 8} bit {bit % 8}: {text}")
        except Exception as error:
            wrong.append(f"{file} byte {bit // 8} bit {bit % 8}: {error!r}")
        shutil.rmtree(copy)
    assert not wrong
    return outcomes


@pytest.mark.slow  # each flipped bit reads the whole log
def test_every_flipped_bit_of_a_closed_log_is_harmless_or_reported(closed: Path, tmp_path: Path) -> None:
    assert not (closed / WAL).exists()
    found = flips(closed, [FILE], tmp_path / "copy", 30, FLIPS)
    assert min(found["told"], found["harmless"]) > FLIPS // 20


@pytest.mark.slow  # as above
@pytest.mark.parametrize("left_out", ["", INDEX])
def test_every_flipped_bit_after_a_kill_is_harmless_or_reported(killed: Path, tmp_path: Path, left_out: str) -> None:
    found = flips(killed, [FILE, WAL], tmp_path / "copy", 31, FLIPS // 2, left_out)
    assert found["told"] > FLIPS // 4


@pytest.mark.parametrize("missing", [False, True])
def test_a_write_ahead_log_without_its_index_is_reported(
    killed: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, missing: bool
) -> None:
    """Nothing else tells whether it was cut between two transactions."""
    shutil.copytree(killed, tmp_path / "copy")
    if missing:
        (tmp_path / "copy" / INDEX).unlink()
    content(EmbeddedTransport(tmp_path / "copy"))
    assert (f"{INDEX} is missing or damaged" in caplog.text) is missing


@pytest.mark.parametrize("empty", [False, True])
def test_a_lost_write_ahead_log_is_reported_without_its_index_too(
    killed: Path, closed: Path, tmp_path: Path, caplog: pytest.LogCaptureFixture, empty: bool
) -> None:
    shutil.copytree(killed, tmp_path / "copy")
    (tmp_path / "copy" / INDEX).unlink()
    if empty:
        os.truncate(tmp_path / "copy" / WAL, 0)
    else:
        (tmp_path / "copy" / WAL).unlink()
    for _ in range(2):  # it is reported once
        EmbeddedTransport(tmp_path / "copy").admin().close()
    shutil.copytree(closed, tmp_path / "closed")
    EmbeddedTransport(tmp_path / "closed").admin().close()
    (said,) = caplog.messages
    assert f"{WAL} and {tmp_path / 'copy' / INDEX} are missing or damaged, and the log was not closed" in said
    assert not list(tmp_path.glob("*/*-open"))


@pytest.mark.parametrize("lost", ["missing", "empty"])
def test_a_write_ahead_log_alone_does_not_begin_a_new_log(killed: Path, tmp_path: Path, lost: str) -> None:
    shutil.copytree(killed, tmp_path / "copy")
    if lost == "missing":
        (tmp_path / "copy" / FILE).unlink()
    else:
        os.truncate(tmp_path / "copy" / FILE, 0)
    for file in (None, WAL):
        if file is not None:
            (tmp_path / "copy" / file).unlink()
        with pytest.raises(DamagedLogError, match=f"{FILE} is missing or empty; restore "):
            EmbeddedTransport(tmp_path / "copy").admin()


@pytest.mark.parametrize("size", [None, 0, 60_000])
def test_a_short_write_ahead_log_is_reported_with_the_command_that_works(
    killed: Path, tmp_path: Path, size: int | None
) -> None:
    shutil.copytree(killed, tmp_path / "copy")
    file = tmp_path / "copy" / WAL
    if size is None:
        file.unlink()
    else:
        os.truncate(file, size)
    transport = EmbeddedTransport(tmp_path / "copy")
    with pytest.raises(DamagedLogError, match=f"{WAL} is (missing or damaged|damaged after byte )") as raised:
        content(transport)
    subprocess.run(str(raised.value).partition("go on without them: ")[2], shell=True, check=True)
    # What is left is as it was at an earlier time.
    assert transport.admin().topics().keys() <= {"in", "out", "gone"}


OLD_TABLES = """
CREATE TABLE IF NOT EXISTS topics (
  id INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, partitions INTEGER NOT NULL, config TEXT NOT NULL);
CREATE TABLE IF NOT EXISTS partitions (
  id INTEGER PRIMARY KEY, topic INTEGER NOT NULL, number INTEGER NOT NULL,
  first INTEGER NOT NULL DEFAULT 0, next INTEGER NOT NULL DEFAULT 0, UNIQUE (topic, number));
CREATE TABLE IF NOT EXISTS batches (
  partition INTEGER NOT NULL, last INTEGER NOT NULL, count INTEGER NOT NULL, latest INTEGER NOT NULL,
  data BLOB NOT NULL, PRIMARY KEY (partition, last));
CREATE TABLE IF NOT EXISTS offsets (
  grp TEXT NOT NULL, topic TEXT NOT NULL, partition INTEGER NOT NULL, offset INTEGER NOT NULL, metadata TEXT NOT NULL,
  PRIMARY KEY (grp, topic, partition)) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS producers (id TEXT PRIMARY KEY, epoch INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS groups (
  name TEXT PRIMARY KEY, generation INTEGER NOT NULL, state TEXT NOT NULL, leader TEXT NOT NULL, since INTEGER NOT NULL
  ) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS members (
  grp TEXT NOT NULL, id TEXT NOT NULL, metadata BLOB NOT NULL, topics TEXT NOT NULL, owned TEXT NOT NULL,
  heartbeat INTEGER NOT NULL, timeout INTEGER NOT NULL, patience INTEGER NOT NULL, joined INTEGER NOT NULL,
  taken INTEGER NOT NULL, assigned TEXT NOT NULL, data BLOB NOT NULL, PRIMARY KEY (grp, id)) WITHOUT ROWID;
PRAGMA user_version = 1;
"""


def old_log(directory: Path, values: list[bytes]) -> EmbeddedTransport:
    """Write a file of version 1, which has no checksums, with batches of two records."""
    directory.mkdir()
    connection = sqlite3.connect(directory / FILE, isolation_level=None)
    connection.executescript(OLD_TABLES)
    connection.execute("INSERT INTO topics VALUES (77, 'in', 1, '{\"a\": \"b\"}')")
    connection.execute("INSERT INTO partitions VALUES (1, 77, 0, 1, ?)", (len(values),))
    for start in range(0, len(values), 2):
        data = encode([None, None], values[start : start + 2], [start, start + 1], [None, None])
        connection.execute("INSERT INTO batches VALUES (1, ?, 2, ?, ?)", (start + 1, start + 1, data))
    connection.execute("INSERT INTO offsets VALUES ('app', 'in', 0, 2, 'text')")
    connection.execute("INSERT INTO producers VALUES ('id', 4)")
    connection.execute("INSERT INTO groups VALUES ('app', 9, 'stable', '', 5)")
    connection.close()
    return EmbeddedTransport(directory)


def read_all(transport: EmbeddedTransport, place: TopicPartition) -> list[Any]:
    consumer = transport.consumer("app")
    try:
        consumer.assign({place: EARLIEST})
        found: list[Any] = []
        while batches := consumer.poll(3, 0):
            found += [pair for batch in batches for pair in zip(batch.offsets, batch.values, strict=True)]
        return found
    finally:
        consumer.close()


def test_a_log_without_checksums_is_read_as_before_and_gets_checksums_for_what_is_new(tmp_path: Path) -> None:
    place = TopicPartition("in", 0)
    log = old_log(tmp_path / "log", [b"%d" % number for number in range(8)])
    assert read_all(log, place) == [(number, b"%d" % number) for number in range(1, 8)]
    producer, consumer, admin = log.producer(transactional_id="id"), log.consumer("app"), log.admin()
    assert consumer.committed([place]) == {place: CommittedOffset(2, "text")}
    assert (admin.topic_config("in"), admin.topic_ids(["in"])) == ({"a": "b"}, {"in": "77"})
    assert [consumer.offsets_for_times({place: time})[place] for time in (0, 5, 99)] == [1, 5, 8]
    producer.begin()
    producer.send([("in", None, b"new", 20, None, 0)])
    producer.commit({}, None)
    assert read_all(log, place)[-2:] == [(7, b"7"), (8, b"new")]
    admin.delete_records({place: 3})
    assert read_all(log, place)[:1] == [(3, b"3")]
    for client in (producer, consumer, admin):
        client.close()
    content = (tmp_path / "log" / FILE).read_bytes()
    (tmp_path / "log" / FILE).write_bytes(content.replace(b"new", b"now"))
    with pytest.raises(
        DamagedLogError, match=r"log.sqlite3 is damaged: records of in \[0\] from offset 8 on were changed"
    ):
        read_all(log, place)


def test_a_batch_without_checksum_that_does_not_decode_is_reported_with_its_place(tmp_path: Path) -> None:
    log = old_log(tmp_path / "log", [b"%d" % number for number in range(8)])
    connection = sqlite3.connect(tmp_path / "log" / FILE)
    with connection:
        connection.execute("UPDATE batches SET data = substr(data, 1, 30) WHERE last = 5")
    connection.close()
    with pytest.raises(
        DamagedLogError, match=r"log.sqlite3 is damaged: records 4 to 5 of in \[0\] were changed: 30 bytes"
    ):
        read_all(log, TopicPartition("in", 0))


def test_a_page_of_another_log_is_found(closed: Path, tmp_path: Path) -> None:
    """Batches of two partitions with the same offsets change places: each is as it was written, but not where."""
    shutil.copytree(closed, tmp_path / "log")
    connection = sqlite3.connect(tmp_path / "log" / FILE)
    same = "SELECT a.rowid, b.rowid FROM records a JOIN records b ON a.last = b.last AND a.count = b.count AND a.rowid < b.rowid"
    first, second = connection.execute(same).fetchone()
    with connection:
        names = "latest, head, crc, data"
        rows = [
            connection.execute(f"SELECT {names} FROM records WHERE rowid = ?", (row,)).fetchone()
            for row in (first, second)
        ]
        for row, found in zip((second, first), rows, strict=True):
            connection.execute(f"UPDATE records SET ({names}) = (?, ?, ?, ?) WHERE rowid = ?", (*found, row))
    connection.close()
    with pytest.raises(DamagedLogError, match="were changed"):
        content(EmbeddedTransport(tmp_path / "log"))
