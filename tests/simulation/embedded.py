"""Histories on the embedded log: its SQLite file below a folder in memory, whose transactions are whole, and whose machine may lose power.

A killed process leaves what it has committed. A loss of power ends all processes; it leaves of the write-ahead log what the kernel
has written back, which is all that is older than a few seconds, and of the rest a part, of which the last bytes may be garbage.
"""

from __future__ import annotations

import os
from collections import Counter, deque
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from random import Random
from typing import ClassVar

# All of streamkit through this module, which loads it with simulated threads.
from tests.simulation.history import (
    PARTITIONS,
    Entry,
    Group,
    History,
    NewTopic,
    OutputTuple,
    Partition,
    RetriableTransportError,
    TopicPartition,
    Transport,
    database,
    embedded,
    embedded_clients,
    embedded_groups,
    files,
)
from tests.simulation.scheduler import EPOCH_S, Owner, current, statement

Database, FILE = database.Database, database.FILE

_WRITTEN_BACK_S = 3.0
"""The age from which on what is written is on disk although nobody has synced it."""
_FULL = 2
"""The value of SQLite's `synchronous` with which a commit is on disk."""
_POLL_S = 0.05
_LAST_S = 6.0


class EmbeddedHistory(History):
    """One seed."""

    log_settings: ClassVar[dict[str, object]] = {"bootstrap.servers": "embedded:log"}

    def __init__(self, seed: int, folder: Path, left_out: Collection[int | str] = ()):
        super().__init__(seed, folder, left_out)
        self._log_folder = folder / "log"
        self._opened_files: list[tuple[Owner, database.Database]] = []
        self._sizes: deque[tuple[float, int]] = deque([(0.0, 0)])
        """Of the write-ahead log, by the time."""
        self._lost_power = False
        self._quiet_at = 0.0
        """From when on it may end."""
        self._away: dict[int, float] = {}
        """Until when a process does not start again."""
        self._patch()
        random = Random(f"topics of {seed}")
        embedded_clients.randbits = random.getrandbits  # type: ignore[assignment]
        self._open()
        admin = embedded_clients.EmbeddedAdmin(self._log_folder)
        admin.create_topics([NewTopic(name, PARTITIONS) for name in self.broker.topics])
        admin.close()
        # From here on the tables and the topics are on disk.
        self._writer._database._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")

    def _open(self) -> None:
        self._writer = embedded_clients.EmbeddedProducer(self._log_folder, None)

    def _patch(self) -> None:
        history, opens, transaction = self, Database.__init__, Database._transaction

        def __init__(self: database.Database, directory: Path, *, synced: bool = False) -> None:
            opens(self, directory, synced=synced)
            thread = current().current
            history._opened_files.append((thread.owner if thread else Owner("test"), self))

        @contextmanager
        def _transaction(self: database.Database, begin: str) -> Iterator[database.Execute]:
            # Nobody else runs inside: a transaction that is interrupted by the end of its process is as one that has not begun.
            current().interrupt() if begin.endswith("IMMEDIATE") else statement()
            with transaction(self, begin) as execute:
                yield execute
            if begin.endswith("IMMEDIATE"):
                if self._connection.execute("PRAGMA synchronous").fetchone()[0] >= _FULL:
                    # SQLite has synced the whole file.
                    history._sizes = deque([(history.scheduler.now, history._log_size())])
                current().interrupt()

        def sync(self: database.Database) -> None:
            statement()
            history._sizes = deque([(history.scheduler.now, history._log_size())])

        Database.__init__ = __init__  # type: ignore[method-assign]
        Database.sync = sync  # type: ignore[method-assign]
        Database._transaction = _transaction  # type: ignore[method-assign]
        database._FIRST_WAIT = database._LONGEST_WAIT = _POLL_S
        files.on_open = self._check_opened
        busy, reads, random = self._draw.choice((0.0, 0.005, 0.05)), embedded_clients.read, self.scheduler.random

        def read(execute: database.Execute, place: TopicPartition, *more: int) -> object:
            running = current().current
            if (
                running is not None
                and running.name != "_strike"
                and random.random() < busy
                and current().now < self._faults_s
            ):
                raise RetriableTransportError(f"the embedded log is busy at {place}")
            return reads(execute, place, *more)

        embedded_clients.read = read  # type: ignore[assignment]

    def transport(self) -> Transport:
        return embedded.EmbeddedTransport(self._log_folder, 4_000, 20_000)

    # -- What happens --

    def _log_size(self) -> int:
        file = self._log_folder / f"{FILE}-wal"
        return file.stat().st_size if file.exists() else 0

    def _tick(self) -> None:
        while True:
            now = self.scheduler.now
            self._sizes.append((now, self._log_size()))
            while self._sizes[1][0] < now - _WRITTEN_BACK_S:
                self._sizes.popleft()
            self._close_dead()
            self.scheduler.sleep(0.25)

    def _close_dead(self) -> None:
        for owner, each in self._opened_files:
            if owner.dead:
                each.close()
        self._opened_files = [(owner, each) for owner, each in self._opened_files if not owner.dead]

    def _writes_until(self) -> float:
        # So that there is something to do for who starts last.
        return max([self._faults_s, self._quiet_at, *(until + _LAST_S for until in self._away.values())])

    def _produce(self, rows: list[OutputTuple]) -> None:
        self._writer.send(rows)

    def _kinds(self) -> list[Callable[[], None]]:
        return [self._kill, self._stop, self._fence, self._leave, self._remove, self._resize, self._lose_power]

    def _await_moment(self) -> bool:
        return False

    def _start_again(self) -> None:
        for process in self.processes:
            if not process.alive and self.scheduler.now >= self._away.get(process.number, 0.0):
                self._start_one(process)

    def _is_away(self) -> bool:
        return self.scheduler.now < max([self._quiet_at, *self._away.values()])

    def _hand_over(self) -> None:
        """End a process for some time, so that another one takes its tasks on, with the state that it has."""
        process = self._process()
        self.note(f"{process.owner.name} is killed")
        process.kill()
        self._away[process.number] = self.scheduler.now + _LAST_S

    def _lose_power(self) -> None:
        """All processes are of one machine."""
        self.note("the machine loses power")
        self._lost_power = True
        for process in self.processes:
            if self._draw.random() < 0.5:
                process.lose_power(self._draw)
            else:
                # Its files are old enough to be on disk.
                process.kill()
            # Some start later, when others have gone on with their tasks.
            self._away[process.number] = self.scheduler.now + self._draw.choice((0.0, 0.0, 3.0, 10.0))
        late = max(self._away.values()) - self.scheduler.now
        if late and self._draw.random() < 0.7:
            self._quiet_at = max(self._quiet_at, self.scheduler.now + late + 2 * _LAST_S)
            self._later(late + _LAST_S / 2, self._hand_over)
        file = self._log_folder / FILE
        log = file.with_name(f"{FILE}-wal")
        saved = {path: path.read_bytes() for path in (file, log) if path.exists()}
        self._close_dead()
        for _, each in self._opened_files:
            each.close()
        self._opened_files.clear()
        for path, data in saved.items():
            path.write_bytes(data)
        if log in saved:
            log.write_bytes(self._torn(saved[log], self._sizes[0][1]))
        file.with_name(f"{FILE}-shm").unlink(missing_ok=True)
        self.scheduler.booted = self.scheduler.now
        written = EPOCH_S + self.scheduler.now - 1
        for path in saved:
            os.utime(path, (written, written))
        self._sizes = deque([(self.scheduler.now, self._log_size())])
        self._open()

    def _torn(self, data: bytes, safe: int) -> bytes:
        """Return what is left: all of the first `safe` bytes, and a part of the others."""
        draw = self._draw
        cut = draw.randint(min(safe, len(data)), len(data))
        garbage = draw.choice((0, 0, draw.randrange(20_000)))
        self.note(f"{len(data) - cut} bytes of the log are lost")
        return data[:cut] + draw.randbytes(min(garbage, len(data) - cut))

    def _fence(self) -> None:
        with self._writer._database.read() as execute:
            ids = sorted(name for (name,) in database.every(execute, "producers", "id"))
        if ids:
            chosen = self._draw.choice(ids)
            self.note(f"another producer takes {chosen}")
            producer = embedded_clients.EmbeddedProducer(self._log_folder, chosen)
            producer.begin()
            producer.close()

    def _remove(self) -> None:
        with self._writer._database.read() as execute:
            ids = sorted(embedded_groups.members(execute, "app"))
        if ids:
            chosen = self._draw.choice(ids)
            self.note(f"{chosen} is removed from its group")
            with self._writer._database.write() as execute:
                embedded_groups.remove(execute, "app", chosen)

    # -- What came out --

    def _left(self) -> dict[str, int]:
        self._read_log()
        return super()._left()

    def _complete(self) -> bool:
        return not self._is_away() and super()._complete()

    def _read_log(self) -> None:
        """Take the records and the offsets of the log as those of the broker."""
        consumer = embedded_clients.EmbeddedConsumer(self._log_folder, "app")
        admin = embedded_clients.EmbeddedAdmin(self._log_folder)
        places = [TopicPartition(each.name, n) for each in admin.topics().values() for n in range(each.partitions)]
        admin.close()
        topics: dict[str, list[Partition]] = {}
        first, ends = consumer.beginning_offsets(places), consumer.end_offsets(places)
        consumer.add(first)
        for place in places:
            gone = [Entry(None, None, 0, None, "deleted") for _ in range(first[place])]
            topics.setdefault(place.topic, []).append(Partition(gone, first[place]))
        while any(consumer.position(place) < ends[place] for place in places):
            for batch in consumer.poll(100_000, 0):
                rows = zip(batch.keys, batch.values, strict=True)
                entries = topics[batch.topic][batch.partition].entries
                entries += [Entry(key, value, 0, None, "plain") for key, value in rows]
        self.broker.topics = topics
        self.broker.groups["app"] = Group(offsets=consumer.committed(places))
        consumer.close()

    def _judge(self) -> None:
        self._read_log()
        truth = Counter(key for key, _ in self._texts("events"))
        words = Counter(word for _, line in self._texts("lines") for word in line.split())
        if self._lost_power:
            # The input of the last moments is lost, too.
            self._events, self._words = truth, words
        elif (truth, words) != (self._events, self._words):
            self.verdict.wrong.append("the log does not have the input that was written")
        super()._judge()

    def _texts(self, topic: str) -> Iterator[tuple[str, str]]:
        for partition in self.broker.topics[topic]:
            yield from ((str(each.key, "utf-8"), str(each.value, "utf-8")) for each in partition.entries if each.key)

    def _check_opened(self, path: Path, rows: dict[bytes, bytes]) -> None:
        """Note a store whose changelog has lost what it is made of: it must be restored, which nobody does if its offset exists."""
        if self._lost_power:
            running, self.scheduler.current = self.scheduler.current, None
            try:
                self._read_log()
                self.verdict.wrong += [
                    f"{path.relative_to(self.folder)} is used: {text}"
                    for text in self._differing([rows])
                    if "nowhere" in text
                ]
            finally:
                self.scheduler.current = running

    def _judge_stores(self) -> Iterator[str]:
        # Those of tasks that have moved may have what is lost: their next owner restores them.
        return iter(()) if self._lost_power else super()._judge_stores()
