"""What stores are: an ordered map of bytes at the bottom, typed stores with caching and changelogging above it."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

from streamkit.record import Headers

if TYPE_CHECKING:
    from concurrent.futures import Executor

    from streamkit.state.offsets import Owner


class StoreSize(NamedTuple):
    """What a store takes: bytes of its files (None: in memory), and rows (None: not known)."""

    bytes: int | None = None
    rows: int | None = None


class BytesMap(ABC):
    """An ordered map of bytes; reads see writes that are not committed (memory, LevelDB)."""

    metadata: bytes | None = None
    """What a map on disk writes beside its entries, in the batch of each commit; reads do not show it."""
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

        `limit`: at most so many; what a caller does not need is not read.
        """

    def stored(self, low: bytes, stop: bytes) -> Iterator[tuple[bytes, bytes]]:
        """Return the entries from low up to stop that were committed; what was written since is left out on disk."""
        return self.range(low, stop, include_high=False)

    def delete_range(self, low: bytes | None, high: bytes) -> None:
        """Delete entries from low up to high, that one not included."""
        for key in [key for key, _ in self.range(low, high, include_high=False)]:
            self.put(key, None)

    @abstractmethod
    def put_many(self, items: list[tuple[bytes, bytes | None]]) -> None:
        """Apply many writes at once, the last one of a key winning (restoring)."""

    def bytes_on_disk(self) -> int | None:
        """Return the size of its files; None where there are none. Any thread may ask."""
        return None

    def rows_estimate(self) -> int | None:
        """Return about how many entries there are; None where that is not known. Any thread may ask."""
        return None

    def begin_load(self, beside: Executor) -> None:  # noqa: B027 - only maps on disk gain by it
        """Expect many writes and hardly a read; what is committed is written by `beside` while more is made.

        A commit that could not be written is reported by each call after it.
        """

    def end_load(self) -> None:  # noqa: B027 - see begin_load
        """Be as before `begin_load`: all that was committed is written."""

    @abstractmethod
    def commit(self) -> None:
        """Write everything since the last commit in one write batch."""

    @abstractmethod
    def close(self) -> None:
        """Release files; what was not committed is gone."""


class CurrentTopic:
    """How long the name of the topic is that the current record came from: part of what a cached entry costs."""

    __slots__ = ("size",)

    def __init__(self) -> None:
        self.size = 0
        """In characters; 0 where there is no record, as for punctuators."""


class StoreContext(Protocol):
    """What a store may ask of the task that owns it."""

    @property
    def topic(self) -> CurrentTopic:
        """Return where the current record came from."""

    def log(self, key: bytes, value: bytes | None, timestamp: int | None, headers: Headers | None) -> None:
        """Append a record to this store's changelog, in the task's partition."""

    def dropped(self, count: int = 1) -> None:
        """Count records that a store refused because they had expired (dropped-records)."""


FlushListener = Callable[[bytes, Any, Any, int, Any], None]
"""(key bytes, new value or None, old value or None, timestamp in ms, context) for each entry that leaves a cache."""

WindowedFlushListener = Callable[[bytes, int, int, Any, Any, int, Any], None]
"""(key bytes without the window, start, end, new, old, timestamp, context): as above, for window and session stores."""


class Store(ABC):
    """Any store of a task."""

    name: str
    persistent = False

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

    def begin_load(self, beside: Executor) -> None:  # noqa: B027 - most gain by it only where they have files
        """Expect many records of the changelog, by restore_batch; commits are written by `beside` while more is made."""

    def end_load(self) -> None:  # noqa: B027 - see begin_load
        """Be as before `begin_load`; a commit is due. Raises what writing a commit has raised."""

    @abstractmethod
    def flush(self) -> None:
        """Empty the cache into the store and the changelog, forwarding each last update to the listener."""

    @abstractmethod
    def commit(self) -> None:
        """Make everything flushed durable in one write batch."""

    def adopt(self, owner: Owner, *, unmarked: bool = False) -> str | None:
        """Take what lies on disk for this owner; return in words why it can't be used, None where it can, or there is none.

        `unmarked`: rows without metadata are accepted, as an older streamkit has left them.
        """
        return None

    def position(self, partition: int) -> int | None:
        """Return the offset before which the store on disk has all of a partition of its changelog; None: not known."""
        return None

    def note_position(self, partition: int, position: int) -> None:  # noqa: B027 - stores in memory keep nothing
        """Have the next commit say that the store has everything before `position` of a partition of its changelog."""

    def measure(self) -> StoreSize:
        """Return what the store takes. Any thread may ask, also while the store is closed."""
        return StoreSize()

    def forget(self) -> None:  # noqa: B027 - most stores hold nothing back
        """Drop cached entries that are written through: the rows below will change without the cache."""

    @abstractmethod
    def rows(self) -> Iterator[tuple[Any, Any]]:
        """Yield (key, value) decoded (WindowedKey for windows), cache included, in byte order of keys."""

    @abstractmethod
    def close(self) -> None:
        """Release what the store holds."""
