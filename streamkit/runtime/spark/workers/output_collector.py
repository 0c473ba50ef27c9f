"""Converts the output of tasks into rows for the next stage, with their partitions and their positions within a partition."""

from __future__ import annotations

import marshal
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import islice
from operator import itemgetter
from pathlib import Path
from typing import TYPE_CHECKING, TypeAlias

from streamkit.errors import ProcessingError
from streamkit.record import Headers, OutputTuple
from streamkit.runtime.records import RecordJson
from streamkit.runtime.spark.workers import arrow_rows
from streamkit.serdes.formats.json_text import plain_text, to_text
from streamkit.serdes.partitioner import partition as partition_of
from streamkit.serdes.plain import Document, Json
from streamkit.serdes.size import MAX_DEPTH
from streamkit.state.definitions import BytesMap
from streamkit.state.engines.open_maps import DEFAULT_ENGINE, open_map

if TYPE_CHECKING:
    import numpy as np
    import pyarrow as pa
    from numpy.typing import NDArray

BATCH = 20_000
MAX_KEYS = 300_000
"""Maximum number of final records per topic that are kept in memory."""
UNKNOWN_PARTITION = -1
"""The partition of a record for a topic whose partition count is unknown."""


@dataclass(frozen=True)
class OutputSpec:
    """The records that a job keeps, and their partitions."""

    partitions: Mapping[str, int]
    """The partition count of each topic, by its name on the log."""
    topics: frozenset[str] | None = None
    """Topics whose records are read or written; None: all."""
    final: frozenset[str] = frozenset()
    """Topics that get only the final record of each key."""
    forbidden: frozenset[str] = frozenset()
    """Topics that a route must not choose, because the file reads them in a stage that may already have run."""


class OutputCollector:
    """Collects the output of the tasks of one Spark task (RecordCollector).

    source: the number of the task as a writer; directory: returns the directory for data that is too large for memory.
    """

    def __init__(self, spec: OutputSpec, source: int, directory: Callable[[], Path]):
        self._spec = spec
        self._directory = directory
        self._source = source
        self._sequence = 0
        self._highest: dict[tuple[str, int], int] = {}
        self._final: dict[str, FinalRecords] = {}

    def position(self) -> Json:
        """Return what determines the order of the next rows: the number of rows, and the highest timestamps so far."""
        return [self._sequence, [[*place, highest] for place, highest in sorted(self._highest.items())]]

    def restore(self, position: Document) -> None:
        """Continue from the result of `position`."""
        self._sequence, highest = position
        self._highest = {(topic, place): time for topic, place, time in highest}

    def collect(self, output: list[OutputTuple]) -> Iterator[pa.RecordBatch]:
        """Empty a task's output and yield its rows, without final records."""
        rows = self._kept(output)
        del output[:]
        for start in range(0, len(rows), BATCH):
            yield self._batch(rows[start : start + BATCH])

    def finish(self) -> Iterator[pa.RecordBatch]:
        """Yield the final records."""
        for records in self._final.values():
            rows = records.drain()
            while chunk := list(islice(rows, BATCH)):
                yield self._batch(chunk)
        self._final = {}

    def _kept(self, output: list[OutputTuple]) -> list[OutputTuple]:
        spec = self._spec
        topics = {row[0] for row in output}
        refused = topics & spec.forbidden
        if refused:
            raise ProcessingError(
                f"a route chose topic {min(refused)}, which the file also reads; a batch job can't feed it back"
            )
        rows = output
        if spec.topics is not None and not topics <= spec.topics:
            kept = spec.topics
            rows = [row for row in output if row[0] in kept]
        if topics.isdisjoint(spec.final) or not rows:
            return list(rows)
        return self._without_final(rows, {row[0] for row in rows})

    def _without_final(self, rows: Sequence[OutputTuple], topics: set[str]) -> list[OutputTuple]:
        """Put the rows of final topics aside; return the others."""
        final = self._spec.final
        if len(topics) == 1 and topics <= final:
            self._put_final(next(iter(topics)), rows)
            return []
        for topic in topics & final:
            self._put_final(topic, [row for row in rows if row[0] == topic])
        return [row for row in rows if row[0] not in final]

    def _put_final(self, topic: str, rows: Sequence[OutputTuple]) -> None:
        if topic not in self._final:
            path = f"final-{len(self._final)}"
            self._final[topic] = FinalRecords(lambda: self._directory() / path, MAX_KEYS)
        self._final[topic].put(rows)

    def _batch(self, rows: list[OutputTuple]) -> pa.RecordBatch:
        count = len(rows)
        topics, keys, values, times, headers, partitions = zip(*rows, strict=True)
        numbers = self._numbers(count)
        places = self._places(topics, keys, partitions, numbers)
        stamps = [-1 if time is None else time for time in times]
        order = self._order(topics, places, stamps)
        return arrow_rows.to_batch(
            (topics, places, keys, values, stamps, headers, order, [self._source] * count, numbers)
        )

    def _numbers(self, count: int) -> list[int]:
        """Return the indices of the next rows in the task's output."""
        first = self._sequence
        self._sequence += count
        return list(range(first, first + count))

    def _places(
        self,
        topics: tuple[str, ...],
        keys: tuple[bytes | None, ...],
        partitions: tuple[int | None, ...],
        numbers: list[int],
    ) -> list[int]:
        counts = self._spec.partitions
        names = set(topics)
        if len(names) == 1 and (count := counts.get(topics[0])) and partitions.count(None) == len(partitions):
            return self._by_keys(keys, count, numbers)
        places = []
        for topic, key, partition, number in zip(topics, keys, partitions, numbers, strict=True):
            places.append(_place(counts.get(topic), key, number) if partition is None else partition)
        return places

    def _by_keys(self, keys: tuple[bytes | None, ...], count: int, numbers: list[int]) -> list[int]:
        import pyarrow as pa

        column = pa.array(keys, pa.binary())
        partitions: list[int] = partitions_of(column, count).tolist()
        if column.null_count:
            return [
                _place(count, None, number) if key is None else at
                for at, key, number in zip(partitions, keys, numbers, strict=True)
            ]
        return partitions

    def _order(self, topics: tuple[str, ...], places: list[int], stamps: list[int]) -> NDArray[np.int64]:
        """Return the highest timestamp so far in each row's partition, which is the merge order of downstream tasks."""
        import numpy as np

        times = np.array(stamps, dtype=np.int64)
        order = np.empty_like(times)
        numbers = np.array(places)
        names = np.array(topics) if len(set(topics)) > 1 else None
        for topic in set(topics):
            of_topic = None if names is None else names == topic
            for place in np.unique(numbers if of_topic is None else numbers[of_topic]).tolist():
                rows = numbers == place if of_topic is None else of_topic & (numbers == place)
                before = self._highest.get((topic, place), -1)
                highest = np.maximum.accumulate(np.maximum(times[rows], before))
                self._highest[topic, place] = int(highest[-1])
                order[rows] = highest
        return order


def _place(count: int | None, key: bytes | None, number: int) -> int:
    if count is None:
        return UNKNOWN_PARTITION
    # A producer may choose any partition for a record without a key. A job takes partitions in turn, so that runs are reproducible.
    return number % count if key is None else partition_of(key, count)


_PRESENT = b"k"
"""The prefix of keys on disk, so that the empty key stands for None."""


class FinalRecords:
    """Keeps the last row of each key."""

    def __init__(self, path: Callable[[], Path], max_keys_in_memory: int):
        self._path = path
        self._max_keys_in_memory = max_keys_in_memory
        self._rows: dict[bytes | None, OutputTuple] = {}
        self._map: BytesMap | None = None

    def put(self, rows: Sequence[OutputTuple]) -> None:
        """Add rows, which move to disk beyond `max_keys_in_memory` keys. Raises StateError."""
        self._rows.update(zip(map(itemgetter(1), rows), rows, strict=True))
        if len(self._rows) > self._max_keys_in_memory:
            self._spill()

    def drain(self) -> Iterator[OutputTuple]:
        """Yield the last row of each key, and remove all rows."""
        if self._map is None:
            yield from self._rows.values()
        else:
            self._spill()
            for _, row in self._map.range(None, None):
                yield marshal.loads(row)
            self._map.close()
            self._map = None
        self._rows = {}

    def _spill(self) -> None:
        if self._map is None:
            self._map = open_map(DEFAULT_ENGINE, self._path())
        self._map.put_many(
            [(b"" if key is None else _PRESENT + key, marshal.dumps(row)) for key, row in self._rows.items()]
        )
        self._map.commit()
        self._rows = {}


LINE = "value"
LINES_DDL = f"{LINE} string"
_LONGEST = 1 << 30
"""The maximum length of a line in bytes: Spark's limit for text."""


LineColumns: TypeAlias = tuple[
    Sequence[str],
    Sequence[bytes | None],
    Sequence[bytes | None],
    Sequence[int],
    Sequence[Headers | None],
    Sequence[int],
]
"""Records: topics, keys, values, timestamps, headers and partitions."""


class JsonOutputCollector(OutputCollector):
    """Collects the output of a task as lines of JSON."""

    def __init__(self, spec: OutputSpec, source: int, directory: Callable[[], Path], form: RecordJson):
        super().__init__(spec, source, directory)
        self._form = form

    def _batch(self, rows: list[OutputTuple]) -> pa.RecordBatch:
        topics, keys, values, times, headers, partitions = zip(*rows, strict=True)
        places = self._places(topics, keys, partitions, self._numbers(len(rows)))
        stamps = [-1 if time is None else time for time in times]
        return lines_of(self._form, (topics, keys, values, stamps, headers, places))


def lines_of(form: RecordJson, columns: LineColumns) -> pa.RecordBatch:
    """Return records as an Arrow batch of lines; partition -1: unknown."""
    import pyarrow as pa

    lines = _of_one_topic(form, columns) or list(map(_line, _records(form, columns)))
    return pa.RecordBatch.from_arrays([pa.array(lines, pa.binary()).cast(pa.string())], names=[LINE])


def _line(record: dict[str, Json]) -> bytes:
    # A value within the serdes' limits may exceed them in a line, which is longer and one level deeper.
    return to_text(record, _LONGEST, MAX_DEPTH + 1)


def _of_one_topic(form: RecordJson, columns: LineColumns) -> list[bytes]:
    """Return the lines of one topic's records, decoded column by column; an empty list if the records do not allow that."""
    topics, keys, values, times, headers, partitions = columns
    if len(set(topics)) > 1 or any(headers) or min(partitions, default=-1) < 0:
        return []
    topic = topics[0]
    cells = form.columns(topic, keys, values)
    if cells is None:
        return []
    write = plain_text if form.is_plain(topic) else _line
    return [
        write({"topic": topic, "key": key, "value": value, "timestamp": time, "partition": number})
        for key, value, time, number in zip(*cells, times, partitions, strict=True)
    ]


def _records(form: RecordJson, columns: LineColumns) -> Iterator[dict[str, Json]]:
    for row in zip(*columns, strict=True):
        record = form.decode(row)
        if row[5] >= 0:
            record["partition"] = row[5]
        yield record


# Kafka's partitioner for a column of keys. Hashing one key at a time would take longer than the rest of a shuffle.


_M = 0x5BD1E995
_SEED = 0x9747B28C
_LONGEST_KEY = 256
"""The maximum length of a key in bytes; longer keys are hashed one by one."""


def partitions_of(keys: pa.Array, count: int) -> NDArray[np.int64]:
    """Return the partition of each key in an Arrow column of bytes, as a NumPy array; 0 for null. count: the number of partitions."""
    import numpy as np

    size = len(keys)
    if count == 1 or not size:
        return np.zeros(size, dtype=np.int64)
    buffers = keys.buffers()
    if buffers[2] is None:
        data = np.zeros(4, dtype=np.uint32)
    else:
        # Padded, so that a word can be read from any byte.
        data = np.append(np.frombuffer(buffers[2], dtype=np.uint8), np.zeros(4, dtype=np.uint8)).astype(np.uint32)
    bounds = np.frombuffer(buffers[1], dtype=np.int32)[keys.offset : keys.offset + size + 1].astype(np.int64)
    lengths = np.diff(bounds)
    numbers = (_hashes(data, bounds[:-1], np.minimum(lengths, _LONGEST_KEY)) & np.uint32(0x7FFFFFFF)).astype(
        np.int64
    ) % count
    for at in np.flatnonzero(lengths > _LONGEST_KEY).tolist():
        numbers[at] = partition_of(keys[at].as_py(), count)
    if keys.null_count:
        numbers[~np.asarray(keys.is_valid())] = 0
    return numbers


def _hashes(data: NDArray[np.uint32], offsets: NDArray[np.int64], lengths: NDArray[np.int64]) -> NDArray[np.uint32]:
    """Return murmur2 of each key (Utils.murmur2), computed word by word for all keys at once."""
    import numpy as np

    m = np.uint32(_M)
    h = np.uint32(_SEED) ^ lengths.astype(np.uint32)
    words = lengths >> 2
    for word in range(int(words.max())):
        longer = np.flatnonzero(words > word)
        at = offsets[longer] + 4 * word
        k = data[at] | data[at + 1] << 8 | data[at + 2] << 16 | data[at + 3] << 24
        k = k * m
        k = (k ^ k >> np.uint32(24)) * m
        h[longer] = h[longer] * m ^ k
    rest = lengths & 3
    ends = offsets + 4 * words
    for byte in (2, 1, 0):
        longer = np.flatnonzero(rest > byte)
        h[longer] ^= data[ends[longer] + byte] << np.uint32(8 * byte)
    longer = np.flatnonzero(rest)
    h[longer] = h[longer] * m
    h = (h ^ h >> np.uint32(13)) * m
    return h ^ h >> np.uint32(15)
