"""Interfaces of stores: an ordered map of bytes, and typed stores with caching and changelogging on it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, ClassVar, NamedTuple, Protocol

from streamkit.record import Headers, Key, RecordContext, Value

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from streamkit.state.definitions import StoreDef
    from streamkit.state.files.store_offsets import Owner


class StoreSize(NamedTuple):
    """The size of a store: bytes of its files (None: in memory), and rows (None: not known)."""

    bytes: int | None = None
    rows: int | None = None


class BytesMap(ABC):
    """An ordered map of bytes; reads see writes that are not committed (memory, LevelDB)."""

    metadata: bytes | None = None
    """Bytes that a map on disk writes with its entries, in the batch of each commit; reads do not show them."""
    durable = False
    """Whether entries outlive the process."""

    @abstractmethod
    def get(self, key: bytes) -> bytes | None:
        """Return a value or None."""

    @abstractmethod
    def put(self, key: bytes, value: bytes | None) -> None:
        """Set a value; None deletes."""

    @abstractmethod
    def range(
        self,
        low: bytes | None,
        high: bytes | None,
        reverse: bool = False,
        include_high: bool = True,
        limit: int | None = None,
    ) -> Iterator[tuple[bytes, bytes]]:
        """Return entries from low to high in byte order (inclusive; None: unbounded), stable under writes meanwhile.

        `limit`: return at most so many; the others are not read.
        """

    def stored(self, low: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Return the entries from low up to stop that were committed; a map on disk leaves out what was written since."""
        return self.range(low, stop, include_high=False)

    def delete_range(self, low: bytes | None, high: bytes) -> None:
        """Delete entries from low up to high, that one not included."""
        for key in [key for key, _ in self.range(low, high, include_high=False)]:
            self.put(key, None)

    @abstractmethod
    def put_many(self, items: list[tuple[bytes, bytes | None]]) -> None:
        """Apply many writes at once, the last one of a key winning (restoring)."""

    def bytes_on_disk(self) -> int | None:
        """Return the size of its files; None where there are none. Every thread may call it."""
        return None

    def rows_estimate(self) -> int | None:
        """Return about how many entries there are; None where that is not known. Every thread may call it."""
        return None

    def begin_load(self, executor: Executor) -> None:  # noqa: B027 - only maps on disk have a use for it
        """Prepare for many writes and few reads: `executor` writes commits while the caller makes further changes.

        Each call after a commit that failed raises its error.
        """

    def end_load(self) -> None:  # noqa: B027 - see begin_load
        """End the load: return when all commits are written."""

    @abstractmethod
    def commit(self) -> None:
        """Write everything since the last commit in one write batch."""

    @abstractmethod
    def close(self) -> None:
        """Close the files; uncommitted writes are lost."""


class CurrentTopic:
    """The length of the current record's topic name, which is part of the size of a cached entry."""

    __slots__ = ("size",)

    def __init__(self) -> None:
        self.size = 0
        """In characters; 0 where there is no record, as for punctuators."""


class StoreContext(Protocol):
    """The services of the task that its stores use."""

    @property
    def topic(self) -> CurrentTopic:
        """Return the topic of the current record."""

    def log(self, key: bytes, value: bytes | None, timestamp: int | None, headers: Headers | None) -> None:
        """Append a record to this store's changelog, in the task's partition."""

    def dropped(self, reason: str) -> None:
        """Count a record that a store dropped (dropped-records)."""


FlushListener = Callable[[bytes, Value, Value, int, RecordContext], None]
"""(key bytes, new value or None, old value or None, timestamp in ms, context) for each entry that leaves a cache."""

WindowedFlushListener = Callable[[bytes, int, int, Value, Value, int, RecordContext], None]
"""(key bytes without the window, start, end, new, old, timestamp, context): as above, for window and session stores."""


class Store(ABC):
    """Any store of a task."""

    name: str
    definition: StoreDef
    persistent = False
    volatile: ClassVar[tuple[str, ...]] = ()
    """The attributes, integers all, that a restart of a live task loses, as in Java; a batch job keeps them between runs."""

    @property
    def committed_ms(self) -> int | None:
        """Return when the offset of the store last moved, in ms since the epoch; None where it has none."""
        return None

    def restore_batch(
        self,
        keys: list[bytes],
        values: list[bytes | None],
        timestamps: list[int],
        headers: list[Headers | None],
    ) -> None:
        """Apply consecutive changelog records, given as columns."""
        for key, value, timestamp, header in zip(keys, values, timestamps, headers, strict=True):
            self.restore(key, value, timestamp, header)

    @abstractmethod
    def restore(self, key: bytes, value: bytes | None, timestamp: int, headers: Headers | None) -> None:
        """Apply one changelog record, without logging or forwarding."""

    def begin_load(self, executor: Executor) -> None:  # noqa: B027 - only stores on disk have a use for it
        """Prepare for many calls of restore_batch: `executor` writes commits while the caller restores further records."""

    def end_load(self) -> None:  # noqa: B027 - see begin_load
        """End the load; the caller commits next. Raises the error of a commit that failed."""

    @abstractmethod
    def flush(self) -> None:
        """Empty the cache into the store and the changelog, forwarding each last update to the listener."""

    @abstractmethod
    def commit(self) -> None:
        """Make everything flushed durable in one write batch."""

    def adopt(self, owner: Owner, *, unmarked: bool = False) -> str | None:
        """Use the rows on disk for this owner; return why they can't be used, or None where they can, or there are none.

        `unmarked`: accept rows without metadata, as older releases of streamkit wrote them.
        """
        return None

    def position(self, partition: int) -> int | None:
        """Return the offset up to which the store on disk has a partition of its changelog, exclusive; None: not known."""
        return None

    def note_position(self, partition: int, position: int) -> None:  # noqa: B027 - stores in memory have no metadata
        """Set the offset up to which the store has a partition of its changelog, exclusive; the next commit writes it."""

    def measure(self) -> StoreSize:
        """Return the size of the store. Every thread may call it, also while the store is closed."""
        return StoreSize()

    def forget(self) -> None:  # noqa: B027 - only some stores have a cache
        """Drop all cached entries, which must be flushed: the rows of the map are about to change without the cache."""

    @abstractmethod
    def rows(self) -> Iterator[tuple[Key, Value]]:
        """Yield (key, value) decoded (WindowedKey for windows), cache included, in byte order of keys."""

    @abstractmethod
    def close(self) -> None:
        """Close the files and drop what is in memory."""
