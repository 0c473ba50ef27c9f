"""Reads ranges of offsets as rows, and writes rows as records and stores as changelogs, with the clients of a live run."""

from __future__ import annotations

import json
import os
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING

from streamkit import durations
from streamkit.config.application_config import ROLES
from streamkit.errors import StateError, TopicError, TransportError, UsageError
from streamkit.plan.model import Plan
from streamkit.plan.partitions import Layout
from streamkit.record import OutputTuple, TopicPartition
from streamkit.runtime.execution import metadata
from streamkit.runtime.spark.job_options import Range
from streamkit.runtime.spark.workers import arrow_rows
from streamkit.runtime.spark.workers.output_collector import UNKNOWN_PARTITION
from streamkit.runtime.spark.workers.worker import StageWork, mark_errors, run_tasks
from streamkit.suggestions import did_you_mean, number_of
from streamkit.transport import open_transport
from streamkit.transport.log_interface import Admin, CommittedOffset, Consumer, NewTopic, Transport

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

_POLL_RECORDS = 20_000
_POLL_MS = 1000
_SENT = "sent bigint"
_MAX_EMPTY_POLLS = 60
"""The number of consecutive empty polls of _POLL_MS after which a range that should have more records fails."""


@dataclass(frozen=True)
class Address:
    """How to open the log; sent to the workers."""

    servers: str
    settings: Mapping[str, Mapping[str, str]]
    state_dir: str
    read_committed: bool
    creates: bool = True
    """Whether to create an embedded log that does not exist."""

    @classmethod
    def of(cls, plan: Plan, *, creates: bool = True) -> Address:
        """Return the address of a plan's log, with its security settings."""
        config = plan.config
        servers = config.bootstrap_servers
        text = servers if isinstance(servers, str) else ",".join(servers)
        settings = {role: config.client(role) for role in ROLES}
        return cls(text, settings, config.state_dir, config.read_committed(), creates)

    @contextmanager
    def opened(self) -> Iterator[Transport]:
        """Open the log, and close it at the end."""
        with closing(open_transport(self.servers, self.settings, self.state_dir, creates=self.creates)) as transport:
            yield transport

    @contextmanager
    def admin(self) -> Iterator[Admin]:
        """Open the log for administration."""
        with self.opened() as transport, closing(transport.admin()) as admin:
            yield admin

    @contextmanager
    def consumer(self, group: str | None = None) -> Iterator[Consumer]:
        """Open the log for reading."""
        with (
            self.opened() as transport,
            closing(
                transport.consumer(group, read_committed=self.read_committed, client_id="streamkit-submit")
            ) as reader,
        ):
            yield reader


@dataclass(frozen=True)
class LogRange:
    """Offsets of a partition, from `start` up to `stop`."""

    place: TopicPartition
    start: int
    stop: int


@dataclass(frozen=True)
class LogReading:
    """Ranges of the log, one for each Spark task."""

    address: Address
    ranges: tuple[LogRange, ...]


def read_frame(spark: SparkSession, reading: LogReading) -> DataFrame:
    """Return the records of ranges as rows, with one Spark task per range."""
    return _numbers(spark, reading).mapInArrow(partial(read_ranges, reading), arrow_rows.DDL)


def run_frame(spark: SparkSession, reading: LogReading, work: StageWork) -> DataFrame:
    """Return the output of a stage that reads one topic: each task reads its partition from the log, without a shuffle."""
    return _numbers(spark, reading).mapInArrow(partial(run_ranges, reading, work), work.ddl)


def _numbers(spark: SparkSession, reading: LogReading) -> DataFrame:
    count = len(reading.ranges)
    return spark.range(0, count, 1, max(1, count))


def read_ranges(reading: LogReading, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the records of the ranges whose numbers are in `batches`."""
    yield from _read(reading, batches)


def run_ranges(reading: LogReading, work: StageWork, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Yield the output of the tasks of the ranges whose numbers are in `batches`."""
    return run_tasks(work, _read(reading, batches))


@mark_errors
def _read(reading: LogReading, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    numbers = [number for batch in batches for number in batch.column(0).to_pylist()]
    if not numbers:
        return
    with reading.address.consumer() as consumer:
        for number in numbers:
            yield from _read_range(consumer, reading.ranges[number])


def _read_range(consumer: Consumer, part: LogRange) -> Iterator[pa.RecordBatch]:
    if part.start >= part.stop:
        return
    consumer.assign({part.place: part.start})
    empty = 0
    while consumer.position(part.place) < part.stop:
        batches = consumer.poll(_POLL_RECORDS, _POLL_MS)
        empty = 0 if batches else empty + 1
        if empty > _MAX_EMPTY_POLLS:
            raise TransportError(
                f"{part.place.topic}-{part.place.partition}: no record arrived for {_MAX_EMPTY_POLLS} s at offset "
                f"{consumer.position(part.place)} of {part.stop}"
            )
        for batch in batches:
            batch = batch.before(part.stop)
            if len(batch):
                yield arrow_rows.constant_batch((part.place.topic, part.place.partition), batch.columns)
    consumer.assign({})


# -- Writing ---------------------------------------------------------------------------------------------------------


def write_log(frame: DataFrame, address: Address, suffix: str = "") -> int:
    """Write rows to their topics, with `suffix` appended to the topic names; return the number of rows.

    Each Spark task has an idempotent producer. If Spark repeats a task, the task's records are written again.
    """
    rows = frame.mapInArrow(partial(send_rows, address, suffix), _SENT).collect()
    return sum(row[0] for row in rows)


@mark_errors
def send_rows(address: Address, suffix: str, batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
    """Send rows, and yield their number."""
    import pyarrow as pa

    sent = 0
    with address.opened() as transport:
        producer = None
        try:
            for batch in batches:
                if not len(batch):
                    continue
                if producer is None:
                    producer = transport.producer(client_id="streamkit-submit")
                producer.send(_output_rows(batch, suffix))
                sent += len(batch)
            if producer is not None:
                producer.flush()
        finally:
            if producer is not None:
                producer.close()
    yield pa.RecordBatch.from_arrays([pa.array([sent], pa.int64())], names=["sent"])


def _output_rows(batch: pa.RecordBatch, suffix: str) -> list[OutputTuple]:
    topics = arrow_rows.values_of(batch.column(arrow_rows.TOPIC))
    if suffix:
        topics = [topic + suffix for topic in topics]
    columns = [
        arrow_rows.values_of(batch.column(index)) for index in (arrow_rows.KEY, arrow_rows.VALUE, arrow_rows.TIMESTAMP)
    ]
    places = arrow_rows.values_of(batch.column(arrow_rows.PARTITION))
    numbers = [None if place == UNKNOWN_PARTITION else place for place in places]
    return list(zip(topics, *columns, arrow_rows.headers_of(batch.column(arrow_rows.HEADERS)), numbers, strict=True))


def ensure_topics(address: Address, topics: Mapping[str, tuple[int | None, int | None, Mapping[str, str]]]) -> None:
    """Create missing topics, given as (partitions, replication factor, config) by name; None: the broker's default.

    Raises TopicError if a topic exists with fewer partitions than the rows have.
    """
    with address.admin() as admin:
        existing = admin.topics(topics)
        for name, (partitions, _, _) in topics.items():
            if name in existing and partitions is not None and existing[name].partitions < partitions:
                raise TopicError(
                    f"topic {name} has {number_of(existing[name].partitions, 'partition')}; {partitions} are written"
                )
        missing = [
            NewTopic(name, partitions or 1, config, replicas or -1)
            for name, (partitions, replicas, config) in topics.items()
            if name not in existing
        ]
        admin.create_topics(missing)


def topic_counts(address: Address) -> dict[str, int]:
    """Return the partition counts of all topics on the log. Raises UnreachableError."""
    with address.admin() as admin:
        return admin.partition_counts()


def check_seedable(plan: Plan, address: Address, layout: Layout) -> None:
    """Raise StateError if the application is running, or has offsets or a changelog with records."""
    names = [topic.name for topic in layout.changelogs]
    with address.admin() as admin:
        members = admin.group_members(plan.application)
        if members:
            raise StateError(
                f"--write-state: application {plan.application} is running ({number_of(len(members), 'member')}); stop it first"
            )
        existing = admin.topics(names)
    places = [TopicPartition(name, number) for name, info in existing.items() for number in range(info.partitions)]
    with address.consumer() as consumer:
        ends = consumer.end_offsets(places)
    taken = sorted({place.topic for place, end in ends.items() if end > 0})
    if taken:
        raise StateError(
            f"--write-state: changelog {taken[0]} already holds records; `streamkit reset-offsets` removes what the "
            "application has"
        )


def create_internal_topics(address: Address, layout: Layout) -> None:
    """Create changelogs and repartition topics as a live run would."""
    with address.admin() as admin:
        admin.create_topics([*layout.repartitions, *layout.changelogs])


def commit_offsets(plan: Plan, address: Address, offsets: DataFrame, ranges: Iterable[LogRange]) -> None:
    """Commit the tasks' offsets for the application's group; for partitions without records, commit the ends of the ranges."""
    globals_ = plan.global_topics
    committed = {
        span.place: CommittedOffset(span.stop, metadata.encode(metadata.UNKNOWN))
        for span in ranges
        if span.place.topic not in globals_
    }
    for row in offsets.select("key", "value").collect():
        offset, text = json.loads(bytes(row["value"]))
        committed[TopicPartition(*json.loads(bytes(row["key"])))] = CommittedOffset(offset, text)
    with address.consumer(plan.application) as consumer:
        consumer.commit(committed)


# The offsets that a job reads: `--from` and `--until` as offsets of the log, resolved once before the job.


EARLIEST, LATEST, COMMITTED = "earliest", "latest", "committed"


def find_ranges(
    address: Address, group: str, requested: Range, topics: Mapping[str, int], from_beginning: Sequence[str] = ()
) -> tuple[list[LogRange], list[str]]:
    """Return the ranges of all partitions of topics, and warnings about records that retention has removed.

    from_beginning: topics that are read from their beginning regardless of `--from` (global tables). Raises TransportError if
    retention has removed the beginning of a range, StateError if `committed` offsets are missing or lower than in earlier
    runs, and UsageError for an invalid position.
    """
    places = [TopicPartition(topic, number) for topic, count in topics.items() for number in range(count)]
    with address.consumer(group) as consumer:
        beginnings, ends = consumer.beginning_offsets(places), consumer.end_offsets(places)
        first = _positions(consumer, requested.start, places, beginnings, "--from")
        if requested.needs_beginning:
            first = dict.fromkeys(places, 0)
        if requested.end == COMMITTED:
            live = [place for place in places if place.topic not in from_beginning]
            stops = _committed_stops(consumer, group, live, requested.to_end, beginnings, ends)
        else:
            stops = _positions(consumer, requested.end, places, ends, "--until")
    ranges, warnings = [], []
    for place in places:
        start = beginnings[place] if place.topic in from_beginning else requested.continued.get(place, first[place])
        if place in requested.continued and start > ends[place]:
            raise TransportError(
                f"{place.topic}-{place.partition}: earlier runs read up to offset {start}, but the log ends at "
                f"{ends[place]}: the topic was deleted and created again"
            )
        if start < beginnings[place]:
            text = (
                f"{place.topic}-{place.partition}: offsets {start} to {beginnings[place] - 1} are no longer in the log"
                " (retention)"
            )
            if not requested.tolerate_loss:
                raise TransportError(f"{text}; --on-data-loss warn reads what is left")
            warnings.append(text)
        start = max(start, beginnings[place])
        stop = min(stops.get(place, ends[place]), ends[place])
        is_behind = max(stop, beginnings[place]) < start
        if requested.end == COMMITTED and place in requested.continued and is_behind:
            raise StateError(
                f"{place.topic}-{place.partition}: earlier runs read up to offset {start}, but group {group} has "
                f"committed {stop}: the group was reset to an earlier offset; begin with a new checkpoint"
            )
        ranges.append(LogRange(place, start, max(start, stop)))
    return ranges, warnings


def _committed_stops(
    consumer: Consumer,
    group: str,
    places: Sequence[TopicPartition],
    to_end: Collection[str],
    beginnings: Mapping[TopicPartition, int],
    ends: Mapping[TopicPartition, int],
) -> dict[TopicPartition, int]:
    """Return the committed offsets. A partition without one gets its end if its topic is in `to_end`, else its beginning."""
    committed = consumer.committed(places)
    read = [place for place in places if place.topic not in to_end]
    if not any(place in committed for place in read) and any(ends[place] > beginnings[place] for place in read):
        topics = ", ".join(sorted({place.topic for place in read}))
        raise StateError(
            f"group {group} has committed no offsets of {topics}, so `--until committed` would read nothing"
        )
    default = {place: (ends if place.topic in to_end else beginnings)[place] for place in places}
    return {place: committed[place].offset if place in committed else default[place] for place in places}


def _positions(
    consumer: Consumer, text: str, places: list[TopicPartition], default: dict[TopicPartition, int], option: str
) -> dict[TopicPartition, int]:
    if text == (EARLIEST if option == "--from" else LATEST):
        return default
    if text == COMMITTED:
        committed = consumer.committed(places)
        return {place: committed[place].offset if place in committed else default[place] for place in places}
    if os.path.isfile(text):
        offsets = _offsets_of(text, option)
        _check_on_log(consumer, offsets, places, f"{option} {text}")
        return {place: offsets.get(place, default[place]) for place in places}
    return consumer.offsets_for_times(dict.fromkeys(places, _time(text, option)))


def _check_on_log(
    consumer: Consumer, offsets: Mapping[TopicPartition, int], places: list[TopicPartition], shown: str
) -> None:
    """Raise UsageError for an offset of a partition that the job does not read from the log, and for one after its end."""
    topics = sorted({place.topic for place in places})
    for place in sorted(offsets.keys() - set(places)):
        hint = did_you_mean(place.topic, topics, f"it reads {', '.join(topics)}") if place.topic not in topics else ""
        raise UsageError(f"{shown}: the job does not read {place.topic}-{place.partition} from the log{hint}")
    ends = consumer.end_offsets(list(offsets))
    for place, offset in offsets.items():
        if offset > ends[place]:
            raise UsageError(f"{shown}: {place.topic}-{place.partition} ends at offset {ends[place]}, before {offset}")


def check_position(text: str, option: str) -> None:
    """Raise UsageError for a position that is neither a keyword, a time nor a file; the file's contents are not checked."""
    if text not in (EARLIEST if option == "--from" else LATEST, COMMITTED) and not os.path.isfile(text):
        _time(text, option)


def _offsets_of(path: str, option: str) -> dict[TopicPartition, int]:
    try:
        with open(path, encoding="utf-8") as file:
            document = json.load(file)
        return {
            TopicPartition(topic, int(number)): _offset(offset)
            for topic, offsets in document.items()
            for number, offset in offsets.items()
        }
    except (OSError, ValueError, AttributeError) as error:
        raise UsageError(f'{option} {path}: expected {{"topic": {{"0": 42, …}}, …}}: {error}') from error


def _offset(value: object) -> int:
    if type(value) is not int or value < 0:
        raise ValueError(f"{value!r} is not an offset")
    return value


def _time(text: str, option: str) -> int:
    return durations.option_time(
        option, text, EARLIEST if option == "--from" else LATEST, COMMITTED, "a file of offsets"
    )
