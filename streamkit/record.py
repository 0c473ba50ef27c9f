"""Records: columns of a batch, rows for the producer, windowed keys, and the object that processors see."""

from __future__ import annotations

from dataclasses import dataclass
from dataclasses import replace as _replace
from typing import Any, NamedTuple

Headers = list[tuple[str, bytes | None]]
"""Record headers in order; `None` stands for no headers at all, which is what most records have."""


class TopicPartition(NamedTuple):
    """A partition of a topic, by physical topic name."""

    topic: str
    partition: int


class OutputRow(NamedTuple):
    """A record to be written: a plain tuple of the same shape is used on the hot path.

    `partition` None: the transport's default partitioner (murmur2 of the key; DefaultStreamPartitioner).
    `timestamp` in milliseconds; None (or -1) lets the producer assign one (suppress changelogs).
    """

    topic: str
    key: bytes | None
    value: bytes | None
    timestamp: int | None
    headers: Headers | None
    partition: int | None


class RecordBatch:
    """Consecutive records of one partition as parallel columns.

    keys, values: bytes or None; timestamps: milliseconds; headers: Headers or None; offsets: int. All of one length.
    """

    __slots__ = ("headers", "keys", "offsets", "partition", "timestamps", "topic", "values")

    def __init__(
        self,
        topic: str,
        partition: int,
        columns: tuple[list[Any], list[Any], list[int], list[Headers | None], list[int]],
    ):
        self.topic = topic
        self.partition = partition
        self.keys, self.values, self.timestamps, self.headers, self.offsets = columns

    def __len__(self) -> int:
        return len(self.offsets)


class WindowedKey:
    """A key with the window that it belongs to; `start` and `end` in milliseconds (Windowed).

    Expressions read its fields as they read those of any object: `key.start` is `key["start"]`.
    """

    __slots__ = ("end", "key", "start")

    def __init__(self, key: Any, start: int, end: int):
        self.key = key
        self.start = start
        self.end = end

    def __getitem__(self, name: str) -> Any:
        if name == "key":
            return self.key
        if name == "start":
            return self.start
        if name == "end":
            return self.end
        raise KeyError(name)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, WindowedKey) and (self.key, self.start, self.end) == (
            other.key,
            other.start,
            other.end,
        )

    def __hash__(self) -> int:
        return hash((self.key, self.start, self.end))

    def __repr__(self) -> str:
        return f"[{self.key!r}@{self.start}/{self.end}]"


@dataclass(frozen=True, slots=True)
class Record:
    """What a custom processor receives and forwards (org.apache.kafka.streams.processor.api.Record)."""

    key: Any
    value: Any
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...] = ()

    def replace(self, **changes: Any) -> Record:
        """Return a copy with other fields.

        >>> Record("k", 1, 5).replace(value=2).value
        2
        """
        return _replace(self, **changes)
