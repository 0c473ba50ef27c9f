"""Records: columns of a batch, rows for the producer, windowed keys, and the object that processors see."""

from __future__ import annotations

import re
from bisect import bisect_left
from collections.abc import Sequence
from dataclasses import dataclass
from itertools import compress
from typing import Any, NamedTuple, TypeAlias

Headers = list[tuple[str, bytes | None]]
"""Record headers in order; `None` means no headers, as in most records."""

Key: TypeAlias = object
"""A key as its serde decodes it, in code that passes it on. Its type depends on the serde and the user's functions."""

Value: TypeAlias = object
"""A value as its serde decodes it, or the aggregate that a step makes: of any type, like a key."""

Operand: TypeAlias = Any
"""A key or a value in code that uses it without a check of its type: in expressions, and in the code of users."""

FullContext: TypeAlias = tuple[Headers | None, str | None, int, int]
"""The context of a record in generated code if a node reads more than headers: (headers, topic, partition, offset)."""

RecordContext: TypeAlias = Headers | FullContext | None
"""The context of a record in generated code: its headers, or all of `FullContext`."""


class TopicPartition(NamedTuple):
    """A partition of a topic, by physical topic name."""

    topic: str
    partition: int


PLACE_ON_LOG = re.compile(r"(.+)-([0-9]+)@([0-9]+)", re.ASCII)
"""A record as text: TOPIC-PARTITION@OFFSET."""


class TaskId(NamedTuple):
    """A sub-topology on one partition; its text is that of Kafka Streams (org.apache.kafka.streams.processor.TaskId).

    >>> str(TaskId(0, 1)), TaskId.parse("0_1").partition
    ('0_1', 1)
    """

    sub_topology: int
    partition: int

    def __str__(self) -> str:
        return f"{self.sub_topology}_{self.partition}"

    @classmethod
    def parse(cls, text: str) -> TaskId:
        """Return the id of a text such as "0_1". Raises ValueError for any other."""
        sub_topology, partition = text.split("_")
        return cls(int(sub_topology), int(partition))


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


OutputTuple: TypeAlias = tuple[str, bytes | None, bytes | None, int | None, Headers | None, int | None]
"""The fields of an OutputRow as a plain tuple, which the hot path makes; an OutputRow is one too."""


class Columns(NamedTuple):
    """Consecutive records of one partition as parallel columns, all of one length.

    keys, values: bytes or None; timestamps: milliseconds; headers: Headers or None; offsets: int, a range if there are no gaps.
    """

    keys: list[bytes | None]
    values: list[bytes | None]
    timestamps: list[int]
    headers: list[Headers | None]
    offsets: Sequence[int]

    def slice(self, start: int, stop: int) -> Columns:
        """Return the records from place `start` up to `stop`."""
        return Columns(
            self.keys[start:stop],
            self.values[start:stop],
            self.timestamps[start:stop],
            self.headers[start:stop],
            self.offsets[start:stop],
        )

    def keep(self, wanted: Sequence[bool]) -> Columns:
        """Return the records at whose place `wanted` holds."""
        return Columns(
            list(compress(self.keys, wanted)),
            list(compress(self.values, wanted)),
            list(compress(self.timestamps, wanted)),
            list(compress(self.headers, wanted)),
            list(compress(self.offsets, wanted)),
        )


class RecordBatch:
    """Consecutive records of a partition: its topic and number, and their columns.

    `times`: the lowest and the highest timestamp (ms), if the client library knows them.
    """

    __slots__ = ("columns", "headers", "keys", "offsets", "partition", "times", "timestamps", "topic", "values")

    def __init__(self, topic: str, partition: int, columns: Columns, times: tuple[int, int] | None = None):
        self.topic = topic
        self.partition = partition
        self.columns = columns
        self.times = times
        self.keys, self.values, self.timestamps, self.headers, self.offsets = columns

    def __len__(self) -> int:
        return len(self.offsets)

    def slice(self, start: int, stop: int) -> RecordBatch:
        """Return the records from place `start` up to `stop`."""
        return RecordBatch(self.topic, self.partition, self.columns.slice(start, stop))

    def before(self, offset: int | None) -> RecordBatch:
        """Return the records before an offset, all if it is None."""
        if offset is None or not self.offsets or self.offsets[-1] < offset:
            return self
        return self.slice(0, bisect_left(self.offsets, offset))


class WindowedKey:
    """A key with the window that it belongs to; `start` and `end` in milliseconds (Windowed).

    Expressions read its fields as they read those of any object: `key.start` is `key["start"]`.
    """

    __slots__ = ("end", "key", "start")

    def __init__(self, key: Operand, start: int, end: int):
        self.key = key
        self.start = start
        self.end = end

    def __getitem__(self, name: str) -> Operand:
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


@dataclass(frozen=True, slots=True, init=False)
class Record:
    """A record as custom processors receive and forward it (org.apache.kafka.streams.processor.api.Record)."""

    key: Operand
    value: Operand
    timestamp: int
    headers: tuple[tuple[str, bytes | None], ...] = ()

    def __init__(self, key: Key, value: Value, timestamp: int, headers: tuple[tuple[str, bytes | None], ...] = ()):
        # The one that a frozen dataclass generates takes twice as long.
        _set_key(self, key)
        _set_value(self, value)
        _set_timestamp(self, timestamp)
        _set_headers(self, headers)

    def replace(self, **changes: Operand) -> Record:
        """Return a copy with other fields.

        >>> Record("k", 1, 5).replace(value=2).value
        2
        """
        copy = Record(self.key, self.value, self.timestamp, self.headers)
        for name, value in changes.items():
            if name not in _SETTERS:
                raise TypeError(f"a record has no field {name!r}; it has {', '.join(_SETTERS)}")
            _SETTERS[name](copy, value)
        return copy


_SETTERS = {name: vars(Record)[name].__set__ for name in ("key", "value", "timestamp", "headers")}
_set_key, _set_value, _set_timestamp, _set_headers = _SETTERS.values()
