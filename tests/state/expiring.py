"""Stores whose rows have a time to live, as a task keeps them, and a model of a few lines of what becomes of their rows."""

from __future__ import annotations

import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

from streamkit.runtime.execution import task
from streamkit.state.engines.ages import tick_of
from streamkit.state.engines.overlay import METADATA_KEY
from streamkit.state.stores.cache import DATA, TIME, VALUE
from tests.state.support import Recorder, Variant, definition, make

TTL = 1_000
STORE = definition("timestamped_key_value", ttl=TTL)
AWKWARD = [METADATA_KEY, METADATA_KEY + b"\x00", METADATA_KEY + b"\x00a", METADATA_KEY + b"\x01", METADATA_KEY + b"a"]


class Model:
    """What a time to live means: rows by key, deleted at the first tick at or after their timestamp plus it."""

    def __init__(self) -> None:
        self.rows: dict[bytes, tuple[int, int]] = {}
        self.time = self.looked_at = -1
        self.deleted: list[tuple[bytes, int]] = []

    def write(self, key: bytes, value: int | None, timestamp: int) -> None:
        if value is None:
            self.rows.pop(key, None)
        else:
            self.rows[key] = (value, timestamp)

    def pass_time(self, time: int) -> None:
        tick = tick_of(TTL)
        self.time = max(self.time, time)
        now = self.time // tick * tick
        if now > self.looked_at:
            due = {key: -((timestamp + TTL) // -tick) * tick for key, (_, timestamp) in self.rows.items()}
            for at, key in sorted((at, key) for key, at in due.items() if at <= now):
                del self.rows[key]
                self.deleted.append((key, at))
            self.looked_at = now


class Kept:
    """A store that is written, left and opened again, with what a task does about time."""

    def __init__(self, variant: Variant, directory: Path):
        self.variant, self.directory = variant, directory
        self.times: dict[str, int] = {}
        self.changelog = Recorder()
        self.committed: tuple[dict[str, int], int] | None = None
        """Times, and the length of the changelog, with the last commit."""
        self._open()
        self.commit()

    def _open(self) -> None:
        self.store, context = make(self.variant, STORE, self.directory, max_bytes=400)
        self.store._log = self.changelog.log
        self.expiry = task.Expiry([self.store], self.times)
        assert self.store.topic is context.topic

    def pass_time(self, time: int, commit: bool) -> None:
        due = self.expiry.next_due()
        assert due is not None
        if time < due:
            return
        self.expiry.run(time, lambda: True)
        while self.expiry.unfinished:
            if commit:
                self.commit()
            self.expiry.run(time, lambda: True)

    def add(self, key: bytes, timestamp: int) -> None:
        """Count as generated code does: in the cache's entry where it holds a value."""
        entry = self.store.entries.get(key)
        if entry is not None and entry[VALUE] is not None:
            entry[VALUE], entry[DATA], entry[TIME] = entry[VALUE] + 1, None, max(entry[TIME], timestamp)
            self.store.cache.renew(key, entry, None)
            return
        count, latest = self.store.get(key) or (0, 0)
        self.store.put(key, count + 1, max(latest, timestamp))

    def commit(self) -> None:
        self.store.flush()
        self.store.commit()
        self.committed = dict(self.times), len(self.changelog.logged)

    def crash(self, time: int) -> None:
        """Go on with what was committed last, at that stream time; a sweep that was under way is gone through to its end."""
        assert self.committed is not None
        self.store.close()
        self.times, length = dict(self.committed[0]), self.committed[1]
        del self.changelog.logged[length:]
        self._open()
        self.expiry.start(time)
        while self.expiry.unfinished:
            self.expiry.run(time, lambda: True)

    def restart(self, time: int) -> None:
        """Commit, and go on with what is on disk, or with what the changelog gives."""
        self.commit()
        self.store.close()
        self._open()
        if self.variant.engine is None:
            self.changelog.replay(self.store)
        self.expiry.start(time)
        assert not self.expiry.unfinished

    def restored(self) -> list[tuple]:
        """Return the rows of a store that has read the changelog in batches, as a standby does."""
        columns = [list(column) for column in zip(*self.changelog.logged, strict=True)] or [[], [], [], []]
        with tempfile.TemporaryDirectory() as directory:
            copy, _ = make(replace(self.variant, cached=False), STORE, Path(directory))
            half = len(columns[0]) // 2
            for part in (slice(None, half), slice(half, None)):
                copy.restore_batch(*(column[part] for column in columns))
                copy.commit()
            rows = list(copy.all())
            end_all(copy)
            copy.close()
        return rows


def end_all(store: Any) -> None:
    """See that all rows of a store end in order, by what the index leads to, and that nothing is left of either."""
    wanted = dues(store, list(store.all()))
    ended = []

    def expire(key: bytes, _: Any, time: int) -> None:
        ended.append((time, key))
        store.put(key, None, time)

    store.on_expiry(expire, False)
    for _ in store.expire(2**62):
        pass
    assert ended == wanted
    store.flush()
    store.commit()
    assert not any(True for _ in store._map._inner.range(None, None))
    assert not store._map._new


def dues(store: Any, rows: list[tuple]) -> list[tuple[int, bytes]]:
    """Return when each row is due, and its key, in order."""
    return sorted((store._map.due_at(time), key) for key, _, time in rows)


def leads(store: Any, rows: list[tuple]) -> bool:
    """Return whether each row has an entry no later than it is due."""
    first = {key: time for time, key in reversed(list(store._map.due(2**62)))}
    return all(first[key] <= due for due, key in dues(store, rows))
