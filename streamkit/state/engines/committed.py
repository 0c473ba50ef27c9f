"""The entries of a map as of its last commit, for queries (KIP-892, IsolationLevel.READ_COMMITTED)."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import NoReturn, Protocol

from streamkit.state.definitions import BytesMap


def bytes_of(items: Iterable[tuple[bytes, bytes | None]]) -> int:
    """Return the bytes of writes as Java counts them (AbstractTransactionBuffer.stage): each write, again if its key was written before.

    >>> bytes_of([(b"key", b"value"), (b"key", None)])
    11
    """
    return sum(len(key) + len(value or b"") for key, value in items)


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
