"""Writes dead letters back to the source topics of their records, and stores which ones were written."""

from __future__ import annotations

import base64
import binascii
import zlib
from collections.abc import Callable, Iterator
from contextlib import closing
from typing import TypeAlias

from streamkit.errors import StreamkitError, TopicError
from streamkit.plan.model import Plan
from streamkit.record import TopicPartition
from streamkit.runtime.execution.dead_letters import DeadLetter, dead_letter_topics, read_dead_letter
from streamkit.runtime.records import RecordJson, headers_to_json
from streamkit.serdes.plain import Json
from streamkit.transport.log_interface import CommittedOffset, Consumer, Producer, Transport

BATCH = 1000
FIRST_STEP = 50
STEP_BYTES = 32_000_000
"""The number of dead letters in the first step back from the ends of the topics, and in later ones; sorted in memory."""
POLL_MS = 200
MAX_METADATA = 4000
"""In characters; a broker accepts 4096 (offset.metadata.max.bytes)."""

_FACTS = ("error", "message", "step", "topic", "partition", "offset", "timestamp", "failed_at")

Filter = Callable[[DeadLetter], bool]
Offsets: TypeAlias = dict[TopicPartition, int]


class Replay:
    """Reads the dead letters of a plan, up to the ends of their topics at the time of its creation.

    The consumer group `<application>-replay` stores the progress: its committed offset is the first dead letter that was not
    written back, and the offset's metadata lists the later ranges that were. Raises TopicError if no topic exists.
    """

    def __init__(self, plan: Plan, transport: Transport, topics: list[str] | None, *, again: bool = False):
        """`topics`: names on the log, by default those of the plan; `again`: also dead letters that were written back before."""
        self._transport = transport
        self._group = f"{plan.application}-replay"
        self._again = again
        with closing(transport.admin()) as admin:
            self._partitions = admin.partition_counts()
        wanted = dead_letter_topics(plan) if topics is None else topics
        existing = [topic for topic in wanted if topic in self._partitions]
        if not existing:
            raise TopicError(_no_topics(plan, wanted))
        self._places = [
            TopicPartition(topic, number) for topic in existing for number in range(self._partitions[topic])
        ]
        self._progress: dict[TopicPartition, _Progress] = {}

    def target(self, letter: DeadLetter) -> TopicPartition | None:
        """Return the partition of a dead letter's record.

        Partition -1: the key selects it, because the original one no longer exists. None if the record can't be written back: a
        timer was the cause, or its topic does not exist.
        """
        count = self._partitions.get(letter.topic or "")
        if letter.topic is None or count is None:
            return None
        return TopicPartition(letter.topic, letter.partition if 0 <= letter.partition < count else -1)

    def dead_letters(self, wanted: Filter) -> Iterator[DeadLetter]:
        """Yield the dead letters that a filter selects, without writing."""
        with closing(self._consumer()) as consumer:
            for letter, fresh in self._scan(consumer):
                if fresh and wanted(letter):
                    yield letter

    def newest(self) -> Iterator[DeadLetter]:
        """Yield the dead letters that were not written back, from the ends of the topics to their beginnings.

        In each step backwards, the dead letters are ordered by timestamp, the newest first.
        """
        with closing(self._consumer()) as consumer:
            first, ends = self._open_ranges(consumer)
            step = FIRST_STEP
            while first:
                starts = {place: max(start, ends[place] - max(1, step // len(first))) for place, start in first.items()}
                letters = [letter for letter in self._letters(consumer, starts, ends) if self._is_open(letter)]
                yield from sorted(letters, key=lambda letter: (letter.timestamp, letter.place_offset), reverse=True)
                size = sum(len(letter.value or b"") + len(letter.key or b"") for letter in letters)
                step = BATCH if size * BATCH <= STEP_BYTES * step else max(1, STEP_BYTES * step // size)
                ends = starts
                first = {place: start for place, start in first.items() if start < ends[place]}

    def execute(self, wanted: Filter, most: int | None = None) -> Iterator[DeadLetter]:
        """Write back at most `most` dead letters, and yield each afterwards.

        Each batch is one transaction with records and offsets. A dead letter without a target is skipped. Raises
        TransportError, ProductionError, StreamkitError.
        """
        consumer = self._consumer()
        producer = self._transport.producer(transactional_id=self._group, client_id=self._group)
        try:
            producer.begin()
            batch: list[DeadLetter] = []
            left = most
            for letter, fresh in self._scan(consumer):
                target = self.target(letter) if fresh and left != 0 and wanted(letter) else None
                progress = self._progress[letter.place]
                progress.note(letter.place_offset, target is not None)
                if target is None:
                    continue
                left = None if left is None else left - 1
                number = None if target.partition < 0 else target.partition
                producer.send(
                    [(target.topic, letter.key, letter.value, letter.timestamp, letter.headers or None, number)]
                )
                batch.append(letter)
                if len(batch) == BATCH or left == 0:
                    self._commit(producer, consumer)
                    producer.begin()
                    yield from batch
                    batch = []
                if left == 0:
                    break
            self._commit(producer, consumer)
            yield from batch
        finally:
            producer.close()
            consumer.close()

    def _commit(self, producer: Producer, consumer: Consumer) -> None:
        try:
            offsets = {place: progress.committed() for place, progress in self._progress.items() if progress.changed}
            producer.commit(offsets, consumer.group_metadata())
        except BaseException:
            producer.abort()
            raise

    def _consumer(self) -> Consumer:
        return self._transport.consumer(self._group, read_committed=True, client_id=self._group)

    def _scan(self, consumer: Consumer) -> Iterator[tuple[DeadLetter, bool]]:
        """Yield every dead letter from the first one that was not written back, and whether it remains to be written."""
        first, ends = self._open_ranges(consumer)
        for letter in self._letters(consumer, first, ends):
            yield letter, self._is_open(letter)

    def _is_open(self, letter: DeadLetter) -> bool:
        return self._again or not self._progress[letter.place].done(letter.place_offset)

    def _open_ranges(self, consumer: Consumer) -> tuple[Offsets, Offsets]:
        """Return the first offset not written back and the end, for each partition with dead letters to read."""
        ends = consumer.end_offsets(self._places)
        first = consumer.beginning_offsets(self._places)
        committed = consumer.committed(self._places)
        self._progress = {place: _Progress(committed.get(place)) for place in self._places}
        positions = first if self._again else {p: max(first[p], self._progress[p].floor) for p in self._places}
        return {place: start for place, start in positions.items() if start < ends[place]}, ends

    def _letters(self, consumer: Consumer, first: Offsets, ends: Offsets) -> Iterator[DeadLetter]:
        """Yield the letters from these offsets to these ends."""
        consumer.assign(first)
        open_places = set(first)
        while open_places:
            for batch in consumer.poll(BATCH, POLL_MS):
                place = TopicPartition(batch.topic, batch.partition)
                columns = zip(batch.keys, batch.values, batch.timestamps, batch.headers, strict=True)
                for offset, record in zip(batch.offsets, columns, strict=True):
                    if offset < ends[place]:
                        yield read_dead_letter(place, offset, record)
            open_places = {place for place in open_places if consumer.position(place) < ends[place]}


def dead_letter_json(letter: DeadLetter, form: RecordJson, replay: Replay) -> dict[str, Json]:
    """Return a dead letter as an object, with key and value in the JSON form of its source topic."""
    key, value = form.decode_source(letter.topic, letter.key, letter.value)
    return {
        "dead_letter": {"topic": letter.place[0], "partition": letter.place[1], "offset": letter.place_offset},
        **{name: getattr(letter, name) for name in _FACTS},
        "headers": headers_to_json(letter.headers),
        "key": key,
        "value": value,
        "replayable": replay.target(letter) is not None,
    }


class _Progress:
    """The dead letters of one partition that were written back: all before `floor`, and ranges after it."""

    def __init__(self, committed: CommittedOffset | None):
        self.floor = committed.offset if committed else 0
        self.changed = False
        self._before = _decode(committed.metadata if committed else "", self.floor)
        self._first_open: int | None = None
        self._last = -1
        self._runs: list[list[int]] = []
        self._in_run = False

    def done(self, offset: int) -> bool:
        """Return whether an earlier run has written back a dead letter."""
        return offset < self.floor or any(first <= offset <= last for first, last in self._before)

    def note(self, offset: int, put_back: bool) -> None:
        """Note a dead letter, in the order of offsets, and whether it is written back now."""
        self._last = offset
        self.changed = self.changed or put_back
        if not put_back and not self.done(offset):
            self._first_open = offset if self._first_open is None else self._first_open
            self._in_run = False
        elif self._in_run:
            self._runs[-1][1] = offset
        else:
            self._runs.append([offset, offset])
            self._in_run = True

    def committed(self) -> CommittedOffset:
        """Return the offset to commit. Raises StreamkitError if the metadata of an offset can't hold all ranges."""
        later = [[first, last] for first, last in self._before if last > self._last]
        if self._first_open is None:
            return CommittedOffset(max(self.floor, self._last + 1), _encode(later, max(self.floor, self._last + 1)))
        ranges = [run for run in self._runs if run[0] > self._first_open] + later
        return CommittedOffset(self._first_open, _encode(ranges, self._first_open))


def _encode(ranges: list[list[int]], floor: int) -> str:
    """Return ranges of offsets as text: as distances, which compress well. Raises StreamkitError beyond 4,000 characters."""
    if not ranges:
        return ""
    parts, at = [], floor
    for first, last in ranges:
        parts.append(f"{max(0, first - at)}+{last - max(first, at)}")
        at = last
    text = base64.b64encode(zlib.compress(" ".join(parts).encode(), 9)).decode()
    if len(text) > MAX_METADATA:
        raise StreamkitError(
            f"what would be put back lies in {len(ranges)} separate places, more than can be remembered; "
            "take a wider filter, or a smaller --limit"
        )
    return text


def _decode(text: str, floor: int) -> list[tuple[int, int]]:
    """Return the ranges of _encode's text; none for a text that it did not write."""
    ranges, at = [], floor
    try:
        for part in zlib.decompress(base64.b64decode(text, validate=True)).decode().split() if text else ():
            distance, _, length = part.partition("+")
            first = at + int(distance)
            at = first + int(length)
            ranges.append((first, at))
    except (binascii.Error, zlib.error, ValueError):
        return []
    return ranges


def _no_topics(plan: Plan, wanted: list[str]) -> str:
    if not wanted:
        return f"{plan.file} writes no dead letters: neither errors.dead.letter.queue.topic.name nor `on_error` of a step is set"
    return f"there are no dead letters: {', '.join(wanted)} does not exist"
