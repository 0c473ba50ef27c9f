"""The entries of a map as of its last commit, for queries (KIP-892, IsolationLevel.READ_COMMITTED)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import NoReturn, Protocol

from streamkit.state.definitions import BytesMap


class BytesOf:
    """Counts the bytes of a dict's keys and values, of each key once: a count goes on after the previous one."""

    def __init__(self, data: dict[bytes, bytes | None]):
        self._data = data
        self._rows = self._bytes = 0

    def __call__(self) -> int:
        """Return the bytes."""
        data = self._data
        if len(data) < self._rows:
            self.reset()
        for key, value in islice(reversed(data.items()), len(data) - self._rows):
            self._bytes += len(key) + len(value or b"")
        self._rows = len(data)
        return self._bytes

    def reset(self) -> None:
        """Begin again."""
        self._rows = self._bytes = 0


class Scan(Protocol):
    """Returns entries as BytesMap.range does."""

    def __call__(
        self, low: bytes | None, high: bytes | None, reverse: bool, include_high: bool, limit: int | None
    ) -> Iterator[tuple[bytes, bytes]]: ...


class CommittedMap(BytesMap):
    """A map that is only read, by two functions of the map whose commits it shows."""

    def __init__(self, get: Callable[[bytes], bytes | None], scan: Scan):
        self._get = get
        self._scan = scan

    def get(self, key: bytes) -> bytes | None:
        """Return a committed value or None."""
        return self._get(key)

    def range(
        self,
        low: bytes | None,
        high: bytes | None,
        reverse: bool = False,
        include_high: bool = True,
        limit: int | None = None,
    ) -> Iterator[tuple[bytes, bytes]]:
        """Return committed entries from low to high in byte order."""
        return self._scan(low, high, reverse, include_high, limit)

    def put(self, key: bytes, value: bytes | None) -> NoReturn:
        """Raise AssertionError: queries write nothing."""
        raise AssertionError("a committed view is only read")

    def put_many(self, items: list[tuple[bytes, bytes | None]]) -> NoReturn:
        """Raise AssertionError: queries write nothing."""
        raise AssertionError("a committed view is only read")

    def commit(self) -> None:
        """Do nothing: there are no writes."""

    def close(self) -> None:
        """Do nothing: the map itself is closed by its store."""
