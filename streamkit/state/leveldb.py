"""An ordered map on LevelDB whose uncommitted writes live in an overlay, so that a commit is one write batch."""

from __future__ import annotations

import errno
from collections.abc import Iterator
from contextlib import contextmanager
from heapq import merge
from itertools import islice, takewhile
from pathlib import Path
from typing import Any

from streamkit.errors import StateError, StateLockedError, TaskCorruptedError
from streamkit.state.base import BytesMap
from streamkit.state.memory import KeyOrder


class LevelMap(BytesMap):
    """A persistent map. Raises StateLockedError, or StateError in words for full, read-only or damaged directories."""

    def __init__(self, path: str | Path):
        self._path = Path(path)
        self._pending: dict[bytes, bytes | None] = {}
        self._order = KeyOrder(self._pending)
        self._db = self._open()
        self._db_get = self._db.get

    def _open(self) -> Any:
        import plyvel  # imported here: topologies without persistent stores run without it

        with self._translated():
            self._path.mkdir(parents=True, exist_ok=True)
            return plyvel.DB(str(self._path), create_if_missing=True, bloom_filter_bits=10)

    def get(self, key: bytes) -> bytes | None:
        """Return a value or None; what was put since the last commit counts."""
        pending = self._pending
        if key in pending:
            return pending[key]
        try:
            return self._db_get(key)
        except Exception as error:
            raise _state_error(self._path, error) from error

    def put(self, key: bytes, value: bytes | None) -> None:
        """Set a value; None deletes."""
        if self._order.active and key not in self._pending:
            self._order.touch(key)
        self._pending[key] = value

    def put_many(self, items: list[tuple[bytes, bytes | None]]) -> None:
        """Apply many writes at once, the last one of a key winning."""
        self._pending.update(items)
        self._order.reset()

    def delete_range(self, low: bytes | None, high: bytes) -> None:
        """Delete entries from low up to high, without sorting what is not committed: mostly it is a whole segment."""
        pending, start = self._pending, low or b""
        with self._translated():
            stored = set(self._db.iterator(start=low, stop=high, include_value=False))
        for key in [key for key in pending if start <= key < high and key not in stored]:
            del pending[key]
        pending.update(dict.fromkeys(stored))
        self._order.reset()

    def range(
        self,
        low: bytes | None,
        high: bytes | None,
        reverse: bool = False,
        include_high: bool = True,
        limit: int | None = None,
    ) -> Iterator[tuple[bytes, bytes]]:
        """Return entries from low to high in byte order, at most `limit`, as they are now."""
        pending = self._pending
        fresh = [(key, pending[key]) for key in self._order.keys(low, high, reverse, include_high)]
        if low is not None and high is not None and low > high:
            return iter(())
        stop = high + b"\x00" if high is not None and include_high else high
        with self._translated():
            # Backwards, plyvel loses a row that stands at the very start: that bound is checked here instead.
            stored = self._db.iterator(start=None if reverse else low, stop=stop, reverse=reverse)
        if reverse and low is not None:
            stored = takewhile(lambda entry: entry[0] >= low, stored)
        return islice(self._merged(fresh, stored, reverse), limit)

    def _merged(self, fresh: list, stored: Any, reverse: bool) -> Iterator[tuple[bytes, bytes]]:
        if not fresh:
            with self._translated():
                yield from stored
            return
        hidden = {key for key, _ in fresh}
        old = (entry for entry in stored if entry[0] not in hidden)
        with self._translated():
            for key, value in merge(fresh, old, key=lambda entry: entry[0], reverse=reverse):
                if value is not None:
                    yield key, value

    def commit(self) -> None:
        """Write the overlay in one synchronous write batch."""
        if not self._pending:
            return
        with self._translated():
            batch = self._db.write_batch(sync=True)
            for key, value in self._pending.items():
                if value is None:
                    batch.delete(key)
                else:
                    batch.put(key, value)
            batch.write()
        self._pending.clear()
        self._order.reset()

    def close(self) -> None:
        """Close the files; what was not committed is gone."""
        self._pending.clear()
        self._order.reset()
        self._db.close()

    @contextmanager
    def _translated(self) -> Iterator[None]:
        import plyvel

        try:
            yield
        except (plyvel.Error, OSError, RuntimeError) as error:
            raise _state_error(self._path, error) from error


def _state_error(path: Path, error: Exception) -> StateError:
    """Return what went wrong in a state directory as one line; LevelDB tells only by its text."""
    text = str(error)
    number = getattr(error, "errno", None)
    lowered = text.lower()
    if "lock" in lowered and ("unavailable" in lowered or "already held" in lowered):
        return StateLockedError(f"The store in {path} is in use by another process")
    if number == errno.ENOSPC or "no space left" in lowered:
        return StateError(f"No space is left for the store in {path}")
    if number in (errno.EROFS, errno.EACCES, errno.EPERM) or "read-only" in lowered or "permission denied" in lowered:
        return StateError(f"The store in {path} can't be written: {text}")
    if "corruption" in lowered:
        return TaskCorruptedError(f"The store in {path} is damaged: {text}")
    return StateError(f"The store in {path} can't be used: {text}")
