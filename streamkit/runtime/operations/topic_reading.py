"""Reads the records of a topic of a topology without a group, selected by position, time, key or expression."""

from __future__ import annotations

import csv
import json
import time
from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import NamedTuple

from streamkit import durations
from streamkit.errors import ConfigError, Position, Problem, SerdeError, TopologyError, UsageError
from streamkit.expressions import Expression, Function, parse
from streamkit.expressions.infer import infer
from streamkit.expressions.types import INTEGER, TEXT, Type
from streamkit.plan.model import Plan, SinkNode, SourceNode
from streamkit.record import Headers, Key, RecordBatch, TopicPartition, Value
from streamkit.runtime.execution.dead_letters import human_reason
from streamkit.runtime.records import RecordJson, headers_to_json
from streamkit.serdes.plain import TEXTS, Document, Json, json_of_key
from streamkit.serdes.serde import Serde
from streamkit.serdes.sides import RAW, Side, changes_side, side_of, split_changed
from streamkit.transport.log_interface import Consumer

RAISED = "raised to the first offset"
LOWERED = "lowered to the end"
NOTHING_LATER = "no record so late: the end"
NOT_COMMITTED = "nothing committed: counted from the end"
NOT_NAMED = "not in the file"


@dataclass(frozen=True)
class Target:
    """One way to choose offsets.

    kind: earliest, latest, offset (`number`), shift (by `number`), time (`number` in ms) or file (`offsets`).
    """

    kind: str = "earliest"
    number: int = 0
    offsets: Mapping[TopicPartition, int] = field(default_factory=dict)


def to_datetime(text: str) -> Target:
    """Return the target of a time, such as Java's `YYYY-MM-DDTHH:mm:SS.sss`. Raises UsageError."""
    return Target("time", durations.option_time("--to-datetime", text))


def by_duration(text: str) -> Target:
    """Return the target of a duration before now. Raises UsageError."""
    try:
        is_number = text.isascii() and text.isdigit() and len(text) <= 20
        return Target("time", time.time_ns() // 1_000_000 - durations.parse(int(text) if is_number else text))
    except ConfigError as error:
        raise UsageError(f"--by-duration {text}: {error}") from None


def from_file(path: str) -> Target:
    """Return the target of a file with lines TOPIC,PARTITION,OFFSET. Raises UsageError."""
    offsets = {}
    try:
        with open(path, encoding="utf-8-sig", newline="") as file:
            for number, row in enumerate(csv.reader(file), 1):
                if row:
                    place, offset = _row(f"{path}:{number}:1", row)
                    offsets[place] = offset
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"{path}: {getattr(error, 'strerror', None) or 'not UTF-8 text'}") from error
    if not offsets:
        raise UsageError(f"{path}: is empty; expected lines TOPIC,PARTITION,OFFSET")
    return Target("file", offsets=offsets)


def _row(where: str, row: Sequence[str]) -> tuple[TopicPartition, int]:
    try:
        topic, partition, offset = (cell.strip() for cell in row)
        return TopicPartition(topic, int(partition)), int(offset)
    except ValueError:
        raise UsageError(f"{where}: expected TOPIC,PARTITION,OFFSET") from None


def resolve(
    consumer: Consumer, target: Target, before: Mapping[TopicPartition, int | None]
) -> dict[TopicPartition, tuple[int | None, str]]:
    """Return the new offset of each partition, and a remark if it differs from the target.

    before: the partitions with the committed offsets of the group. An offset of None does not change. Offsets outside a
    partition become its first or end offset (StreamsResetter.checkOffsetRange). Raises UsageError for partitions of the
    file that are not among these.
    """
    places = list(before)
    beginnings, ends = consumer.beginning_offsets(places), consumer.end_offsets(places)
    if target.kind == "earliest":
        return {place: (beginnings[place], "") for place in places}
    if target.kind == "latest":
        return {place: (ends[place], "") for place in places}
    if target.kind == "time":
        offsets = consumer.offsets_for_times(dict.fromkeys(places, target.number))
        return {place: (offsets[place], NOTHING_LATER if offsets[place] >= ends[place] else "") for place in places}
    if target.kind == "file":
        strange = sorted(target.offsets.keys() - before.keys())
        if strange:
            topic, partition = strange[0]
            raise UsageError(f"{topic},{partition} is not a partition of the application's input topics")
    chosen: dict[TopicPartition, tuple[int | None, str]] = {}
    for place in places:
        wanted, note = _wanted(target, place, before[place], ends[place])
        if wanted is None:
            chosen[place] = None, note
        elif wanted >= ends[place]:
            chosen[place] = ends[place], LOWERED if wanted > ends[place] else note
        else:
            chosen[place] = max(wanted, beginnings[place]), RAISED if wanted < beginnings[place] else note
    return chosen


def _wanted(target: Target, place: TopicPartition, committed: int | None, end: int) -> tuple[int | None, str]:
    if target.kind == "offset":
        return target.number, ""
    if target.kind == "shift":
        # Without a committed offset Java's consumer is at the end (the default of auto.offset.reset).
        return (end if committed is None else committed) + target.number, NOT_COMMITTED if committed is None else ""
    return target.offsets.get(place), "" if place in target.offsets else NOT_NAMED


# The range of a topic to read: partitions, offsets and times.


class Range(NamedTuple):
    """A range: the start, and times (ms) that bound the records; `until` is exclusive."""

    start: Target
    since: int | None = None
    until: int | None = None
    partitions: frozenset[int] | None = None

    @property
    def first_offset(self) -> int:
        """The lowest offset of a record in the range."""
        return self.start.number if self.start.kind == "offset" else 0


def first_offsets(consumer: Consumer, start: Target, places: Sequence[TopicPartition]) -> Mapping[TopicPartition, int]:
    """Return the first offset to read of each partition, within its offsets."""
    # Without committed offsets a shift counts from the end.
    return {place: offset or 0 for place, (offset, _) in resolve(consumer, start, dict.fromkeys(places)).items()}


POLL_RECORDS = 1000
POLL_MS = 200
_FURTHER = 4
"""The factor by which the search for the last records goes back further if it has not found enough."""

Offsets = Mapping[TopicPartition, int]


class Row(NamedTuple):
    """A record as stored on the log."""

    topic: str
    partition: int
    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: Headers | None


class SelectedRecord(NamedTuple):
    """A record that meets the conditions."""

    row: Row
    decoded: Decoded


def record_json(selected: SelectedRecord, *, offsets: bool = False) -> dict[str, Json]:
    """Return a record as an object. If its key or value did not decode, that is {"base64": …}, and `error` has the reason."""
    row, decoded = selected
    record: dict[str, Json] = {
        "topic": row.topic,
        "key": decoded.sides[0].json(decoded.key),
        "value": decoded.sides[1].json(decoded.value),
        "timestamp": row.timestamp,
    }
    if row.headers:
        record["headers"] = headers_to_json(row.headers)
    record["partition"] = row.partition
    if offsets:
        record["offset"] = row.offset
    if decoded.problems:
        record["error"] = "; ".join(f"{name}: {reason}" for name, reason in decoded.problems.items())
    return record


class Reading:
    """Reads assigned partitions, and commits nothing. `stopped` returns whether to end now."""

    def __init__(
        self,
        consumer: Consumer,
        record_filter: RecordFilter,
        stopped: Callable[[], bool],
        poll_records: int = POLL_RECORDS,
    ):
        self._poll_records = poll_records
        self._consumer = consumer
        self._filter = record_filter
        self._stopped = stopped

    def follow(
        self, first: Offsets, *, until_idle: bool = False, most: int | None = None
    ) -> Iterator[list[SelectedRecord]]:
        """Yield the selected records as they arrive, one list per poll; with `until_idle`, stop at the current end."""
        self._consumer.assign(first)
        # If every record is selected, no record is fetched that is not printed.
        size = self._poll_records
        if most is not None and self._filter.is_open:
            size = min(size, most)
        while not self._stopped():
            batches = self._consumer.poll(size, POLL_MS)
            yield list(self._wanted(batches))
            if not batches and until_idle and self._is_past(self._consumer.end_offsets(list(first))):
                return

    def between(
        self, first: Offsets, ends: Offsets, enough: Callable[[TopicPartition], bool] = lambda place: False
    ) -> Iterator[list[SelectedRecord]]:
        """Yield the selected records before these ends; a partition yields no more once a poll has returned enough."""
        left = {place: offset for place, offset in first.items() if offset < ends[place]}
        self._consumer.assign(left)
        while left and not self._stopped():
            yield list(self._wanted(self._consumer.poll(POLL_RECORDS, POLL_MS), ends))
            done = [place for place in left if self._consumer.position(place) >= ends[place] or enough(place)]
            self._consumer.remove(done)
            for place in done:
                del left[place]

    def first(self, number: int, first: Offsets, ends: Offsets) -> list[SelectedRecord]:
        """Return the first of the selected records before these ends.

        Of the first `number` of each partition, by offset, the `number` with the earliest timestamps; in the order of
        timestamp, partition and offset.
        """
        kept: dict[TopicPartition, list[SelectedRecord]] = {place: [] for place in first}
        for records in self.between(first, ends, lambda place: len(kept[place]) >= number):
            for record in records:
                kept[TopicPartition(record.row.topic, record.row.partition)].append(record)
        return sorted((record for rows in kept.values() for record in rows[:number]), key=_order)[:number]

    def last(self, number: int, first: Offsets, ends: Offsets) -> list[SelectedRecord]:
        """Return the last of the selected records before these ends.

        Of the last `number` of each partition, by offset, the `number` with the latest timestamps; in the order of
        timestamp, partition and offset. Since offsets may be missing and records may not be selected, the search goes back
        until each partition has `number` records or is at `first`.
        """
        kept: dict[TopicPartition, deque[SelectedRecord]] = {place: deque(maxlen=number) for place in first}
        distance = max(number, POLL_RECORDS if not self._filter.is_open else number)
        incomplete = list(first) if number else []
        while incomplete and not self._stopped():
            positions = {place: max(first[place], ends[place] - distance) for place in incomplete}
            for place in incomplete:
                kept[place].clear()
            for records in self.between(positions, ends):
                for record in records:
                    kept[TopicPartition(record.row.topic, record.row.partition)].append(record)
            incomplete = [
                place for place in incomplete if len(kept[place]) < number and positions[place] > first[place]
            ]
            distance *= _FURTHER
        records = sorted((record for rows in kept.values() for record in rows), key=_order)
        return records[-number:] if number else []

    def _is_past(self, ends: Offsets) -> bool:
        return all(self._consumer.position(place) >= end for place, end in ends.items())

    def _wanted(self, batches: list[RecordBatch], ends: Offsets | None = None) -> Iterator[SelectedRecord]:
        for batch in batches:
            end = None if ends is None else ends[TopicPartition(batch.topic, batch.partition)]
            columns = (batch.offsets, batch.timestamps, batch.keys, batch.values, batch.headers)
            for fields in zip(*columns, strict=True):
                if end is not None and fields[0] >= end:
                    break
                row = Row(batch.topic, batch.partition, *fields)
                decoded = self._filter.decode_matching(row)
                if decoded is not None:
                    yield SelectedRecord(row, decoded)


def _order(record: SelectedRecord) -> tuple[int, int, int]:
    return record.row.timestamp, record.row.partition, record.row.offset


# Selects records of a topic: by time, by key, by an expression.

NAMES = ("key", "value", "timestamp", "headers", "topic", "partition", "offset")


def parse_condition(
    option: str, text: str, names: Iterable[str], functions: Mapping[str, Function] | None = None
) -> Expression:
    """Return the expression of an option. Raises UsageError with every mistake and its place in the option."""
    try:
        return parse(text, names, Position(option, 1, 1), functions)
    except TopologyError as error:
        raise UsageError(str(error)) from None


class RecordFilter:
    """The range, a key and an expression, in the order of their costs. Raises UsageError for a wrong expression."""

    def __init__(self, plan: Plan, forms: TopicForms, span: Range, key: KeyCondition | None, where: str | None):
        self._forms = forms
        self._span = span
        self._key = key
        self._names: frozenset[str] = frozenset()
        self._predicate: Callable[..., bool] | None = None
        if where is not None:
            self._compile(plan, where)
        self.is_open = key is None and where is None and span.until is None
        """Whether it accepts nearly every record."""
        self.failed = 0
        """The number of records for which the expression raised an error; they are skipped."""
        self.failure = ""
        """The reason of the first of these errors."""

    def _compile(self, plan: Plan, where: str) -> None:
        expression = parse_condition("--where", where, NAMES, plan.functions)
        types: dict[str, Type] = {"timestamp": INTEGER, "partition": INTEGER, "offset": INTEGER, "topic": TEXT}
        if len(self._forms.pairs) == 1:
            key, value = self._forms.pairs[0]
            types |= {"key": key.type, "value": value.type}
        problems: list[Problem] = []
        infer(expression, types, problems)
        if problems:
            raise UsageError(str(TopologyError(problems)))
        self._names = expression.names
        test = expression.function((*NAMES, "now"))
        self._predicate = lambda *facts: test(*facts, lambda: time.time_ns() // 1_000_000)

    def decode_matching(self, row: Row) -> Decoded | None:
        """Return the decoded record if it meets the conditions. Raises RegistryError."""
        span = self._span
        if row.offset < span.first_offset:
            return None
        if span.since is not None and row.timestamp < span.since:
            return None
        if span.until is not None and row.timestamp >= span.until:
            return None
        decoded = self._forms.read(row.key, row.value)
        if self._key is not None and not self._key.matches(decoded):
            return None
        return decoded if self._predicate is None or self._is_true(self._predicate, row, decoded) else None

    def _is_true(self, predicate: Callable[..., bool], row: Row, decoded: Decoded) -> bool:
        unreadable = self._names & decoded.problems.keys()
        try:
            if unreadable:
                name = min(unreadable)
                raise SerdeError(f"{name}: {decoded.problems[name]}")
            facts = (row.timestamp, row.headers, row.topic, row.partition, row.offset)
            return bool(predicate(decoded.key, decoded.value, *facts))
        except Exception as error:
            # The handlers of the topology do not apply to a condition: its errors are counted and reported.
            self.failed += 1
            self.failure = self.failure or human_reason(error)
            return False


class KeyCondition:
    """A key as text or JSON, compared decoded in each form that the topic's keys may have."""

    def __init__(self, forms: TopicForms, text: str):
        """Raises SerdeError if no form has such a key."""
        self._keys: dict[int, Document] = {}
        """The JSON form of the key by the id of each form."""
        reason = None
        for side, _ in forms.pairs:
            try:
                self._keys[id(side)] = _wanted_key(side, text)
            except SerdeError as error:
                reason = reason or error
        if not self._keys:
            raise reason or SerdeError("the topic has no keys that can be compared")

    def matches(self, decoded: Decoded) -> bool:
        """Return whether a record has the key; for a windowed key, the key alone also matches."""
        wanted = self._keys.get(id(decoded.sides[0]), _NOTHING)
        if wanted is _NOTHING or decoded.key is None:
            return False
        key: Document = decoded.sides[0].to_json(decoded.key)
        if decoded.sides[0].is_windowed:
            return all(_text(key[name]) == _text(part) for name, part in wanted.items())
        return _text(key) == _text(wanted)


_NOTHING = object()


def _text(value: Json) -> str:
    """Return a JSON form as text that is equal for equal data, regardless of the order of fields."""
    return json.dumps(value, sort_keys=True)


def _wanted_key(side: Side, text: str) -> Json:
    serde = side.serde
    is_text = serde is not None and serde.spec in TEXTS
    if serde is not None and is_text and not side.is_windowed:
        return serde.to_json(serde.from_json(text))
    value = json_of_key(text)
    if side.is_windowed:
        if not isinstance(value, dict) or not {"key", "start"} <= value.keys() <= {"key", "start", "end"}:
            value = {"key": text if is_text else value}
        return {name: _normal(serde, part) if name == "key" else part for name, part in value.items()}
    return _normal(serde, value)


def _normal(serde: Serde | None, value: Json) -> Json:
    """Return the JSON form of a value after a round trip through the serde. Raises SerdeError if it does not encode."""
    if serde is None:
        return value
    if serde.spec == "bytes" and isinstance(value, (str, int, float)):
        value = serde.to_json(str(value).encode())
    return serde.to_json(serde.decode(serde.encode(serde.from_json(value))))


# Reads the records of any topic of a topology: those of the file, and the application's internal ones.


class Decoded(NamedTuple):
    """A record's key and value as objects, or as bytes if `problems` has a reason under `key` or `value`."""

    key: Key
    value: Value
    sides: tuple[Side, Side]
    problems: dict[str, str]


_WITHOUT_PROBLEMS: dict[str, str] = {}


class TopicForms:
    """The forms of the records of one topic, by its name on the log; the first form that decodes is used."""

    def __init__(self, plan: Plan, topic: str):
        self.pairs = _pairs(plan, topic)

    def read(self, key: bytes | None, value: bytes | None) -> Decoded:
        """Return a decoded record. Raises RegistryError if the schema registry does not answer."""
        for sides in self.pairs:
            try:
                return Decoded(
                    None if key is None else sides[0].decode(key),
                    None if value is None else sides[1].decode(value),
                    sides,
                    _WITHOUT_PROBLEMS,
                )
            except SerdeError:
                continue
        problems: dict[str, str] = {}
        parts = [
            self._part(place, name, data, problems) for place, name, data in ((0, "key", key), (1, "value", value))
        ]
        return Decoded(parts[0][0], parts[1][0], (parts[0][1], parts[1][1]), problems)

    def _part(self, place: int, name: str, data: bytes | None, problems: dict[str, str]) -> tuple[Value, Side]:
        """Return the key or the value; if no form decodes it, its bytes and the reason of the first form."""
        for sides in self.pairs:
            try:
                return None if data is None else sides[place].decode(data), sides[place]
            except SerdeError as error:
                problems.setdefault(name, str(error))
        return data, RAW


def _pairs(plan: Plan, topic: str) -> list[tuple[Side, Side]]:
    if topic not in plan.external_topics:
        sides = list(_internal(plan, topic)) or list(_changelog(plan, topic))
        if sides:
            return sides[:1]
    return [(side_of(key), side_of(value)) for key, value in RecordJson(plan).candidates(topic)]


# -- Internal topics ----------------------------------------------------------------------------------------------------


def _internal(plan: Plan, topic: str) -> Iterator[tuple[Side, Side]]:
    """Yield the form of a repartition, subscription or response topic for each node that reads or writes it."""
    for node in plan.nodes:
        if not isinstance(node, (SourceNode, SinkNode)) or not node.internal:
            continue
        names = node.topics if isinstance(node, SourceNode) else (node.topic,)
        if any(name is not None and plan.internal_name(name) == topic for name in names):
            values = {"plain": side_of(node.value_serde), "changed": changes_side(node.value_serde, split_changed)}
            yield side_of(node.key_serde), values.get(node.value_kind, RAW)


def _changelog(plan: Plan, topic: str) -> Iterator[tuple[Side, Side]]:
    for name, store in plan.stores.items():
        if plan.changelog_name(name) == topic:
            yield store.kind.implementation_class().changelog_sides(store)
