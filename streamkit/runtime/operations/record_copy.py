"""Copies a changelog into another topic, converting its rows, so that it can be repeated after a crash at any point."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass
from itertools import islice

from streamkit.changes.finding import Verdict
from streamkit.changes.form import RowForm, rows_from_json, rows_to_json
from streamkit.changes.serde_forms import Reads, compare_rows, has_same_layout, reads, serde_form, shown
from streamkit.errors import MigrationError, SerdeError, TransportError
from streamkit.record import OutputTuple, RecordBatch, TopicPartition
from streamkit.runtime.operations.migration_journal import Entry, Journal, merge_up_to, read_up_to
from streamkit.serdes.formats.windowed import SessionWindowedSerde, TimeWindowedSerde
from streamkit.serdes.partitioner import partition
from streamkit.serdes.serde import Serde
from streamkit.state.definitions import KINDS, StoreDef
from streamkit.state.layouts import LONG8
from streamkit.suggestions import number_of
from streamkit.transport.log_interface import Admin, Consumer, NewTopic, Transport

TRANSACTION_SECONDS = 60
"""How long a copy waits for the end of an open transaction. The coordinator aborts transactions of a dead producer
(transaction.timeout.ms, 10 s in Kafka Streams)."""
_ID_SECONDS = 10
_CHECK_SECONDS = 0.2
_ROWS = 5_000
"""The rows of one call of the producer."""


@dataclass(frozen=True)
class LogAccess:
    """The log, an admin client of it, and the journal of the application."""

    transport: Transport
    admin: Admin
    journal: Journal

    def topic_id(self, topic: str) -> str:
        """Return the id of a topic; empty if the log has no ids."""
        return self.admin.topic_ids([topic]).get(topic, "")

    def partitions(self, topic: str) -> list[TopicPartition]:
        """Return the partitions of a topic; none if it does not exist."""
        existing = self.admin.topics([topic])
        return (
            [TopicPartition(topic, number) for number in range(existing[topic].partitions)] if topic in existing else []
        )

    def ends(self, places: Sequence[TopicPartition]) -> tuple[int, ...]:
        """Return the ends of partitions, including records of open transactions."""
        with closing(self.transport.consumer(None)) as consumer:
            ends = consumer.end_offsets(places)
        return tuple(ends[place] for place in places)

    def records(self, places: Sequence[TopicPartition]) -> int:
        """Return the number of offsets between the beginnings and the ends of partitions."""
        with closing(self.transport.consumer(None)) as consumer:
            begins, ends = consumer.beginning_offsets(places), consumer.end_offsets(places)
        return sum(ends[place] - begins[place] for place in places)


@dataclass(frozen=True)
class Copy:
    """A copy of the committed records of `source` into `target`, which is created for it.

    form: the rows and partitions of the target, as text. rows: the rows of the source, None if unknown. group: read only up to
    the committed offsets of this group, since others write to the source. replaces: the id of an existing target that the copy
    may delete.
    """

    source: str
    target: NewTopic
    conversion: RowConversion
    form: str
    rows: RowForm | None = None
    group: str | None = None
    replaces: str | None = None

    def is_done(self, log: LogAccess) -> bool:
        """Return whether the target has all records of the source. Raises MigrationError if the target must not be written."""
        entry = log.journal.get(self.target.name)
        target = log.partitions(self.target.name)
        target_id = log.topic_id(self.target.name) if target else None
        if entry is not None and entry.done and entry.form == self.form and target and entry.target_id == target_id:
            if self._is_unchanged(log, entry):
                return True
            if log.ends(target) == entry.target_ends:
                return False  # the old version has run again since, the new one has not
            raise MigrationError(self._conflict())
        self._check_source(log)
        is_own = entry is not None and not entry.done and entry.target_id == target_id
        if not target or is_own or target_id == self.replaces:
            return False
        records = log.records(target)
        if records:
            raise MigrationError(
                f"{self.target.name} has {number_of(records, 'record')} already: delete it if those of {self.source} are to take their place"
            )
        return False

    def _conflict(self) -> str:
        """Return the message for a source and a target that have both changed since the copy."""
        if self.group is None:
            return (
                f"both {self.source} and {self.target.name} have records since the first was copied into the second: "
                "delete the one that is not to be kept"
            )
        return (
            f"group {self.group} has read on in {self.source} since that was copied into {self.target.name}, which has further "
            f"records: if only the new version has run, there is nothing to migrate; if the old one has run too, delete "
            f"{self.target.name}, and repeat"
        )

    def _check_source(self, log: LogAccess) -> None:
        """Raise MigrationError if the source is another copy's incomplete target, or if the old version did not write it last."""
        entry = log.journal.get(self.source)
        if entry is not None and entry.done:
            self._check_rows(log, entry)
        further = _continued(log, self.source, {self.target.name})
        if further is not None:
            raise MigrationError(
                f"{self.source} was copied to {further}, which has further records since: the OLD to give is the version that "
                f"wrote them; if they are not to be kept, delete {further}"
            )
        # `begin` notes neither id, because the topic is still complete.
        if entry is None or entry.done or (not entry.source_id and entry.target_id is None):
            return
        if log.partitions(entry.source):
            todo = "complete that migration first, with the OLD and the NEW that began it"
        else:
            todo = f"{entry.source} is gone: `streamkit reset-offsets` lets the application read its inputs again"
        raise MigrationError(f"a migration has not copied all records of {entry.source} to {self.source}: {todo}")

    def _check_rows(self, log: LogAccess, entry: Entry) -> None:
        """Raise MigrationError if a migration has converted rows of the source that the old version would misread."""
        if self.rows is None or entry.target_id != log.topic_id(self.source):
            return
        converted_form, read = map(rows_from_json, (json.loads(entry.form)["rows"], rows_to_json(self.rows)))
        reasons = [why for verdict, why in compare_rows(read, converted_form) if verdict is Verdict.INCOMPATIBLE]
        if reasons:
            raise MigrationError(
                f"a migration has made other rows of {self.source} ({'; '.join(reasons)}): the OLD to give is the version that "
                "it made them for"
            )

    def _is_unchanged(self, log: LogAccess, entry: Entry) -> bool:
        places = log.partitions(self.source)
        if not places or log.topic_id(self.source) != entry.source_id:
            return True
        return self._source_ends(log, places) == entry.source_ends

    def _source_ends(self, log: LogAccess, places: Sequence[TopicPartition]) -> tuple[int, ...]:
        """Return the offsets that a copy reads up to now, by partition."""
        if self.group is None:
            return log.ends(places)
        with closing(log.transport.consumer(self.group)) as consumer:
            wanted = self._wanted(consumer, places)
        return tuple(wanted[place] for place in places)

    def begin(self, log: LogAccess) -> None:
        """Note that the target is incomplete, so that no version starts with it. Raises TransportError."""
        entry = log.journal.get(self.target.name)
        if entry is None or (entry.done and not log.partitions(self.target.name)) or entry.form != self.form:
            own = entry.target_id if entry is not None and not entry.done else None
            log.journal.put(self.target.name, Entry(False, self.source, self.form, target_id=own))

    def run(self, log: LogAccess) -> None:
        """Copy all records, unless that is done. Raises MigrationError, TransportError."""
        if self.is_done(log):
            return
        places = log.partitions(self.source)
        source_id = log.topic_id(self.source)
        ends = self._ends(log, places)
        before = log.topic_id(self.target.name) if log.partitions(self.target.name) else None
        log.journal.put(self.target.name, Entry(False, self.source, self.form, source_id, target_id=before))
        if before is not None:
            log.admin.delete_topics([self.target.name])
        log.admin.create_topics([self.target])
        target_id = new_id(log, self.target.name, bool(source_id))
        log.journal.put(self.target.name, Entry(False, self.source, self.form, source_id, target_id=target_id))
        self._write(log, ends)
        source_ends = self._source_ends(log, places)
        if source_ends != tuple(ends.values()):
            what = "was written to" if self.group is None else f"was read by group {self.group}"
            raise MigrationError(f"{self.source} {what} while it was copied: stop all instances, and repeat")
        target_ends = log.ends(log.partitions(self.target.name))
        done = Entry(True, self.source, self.form, source_id, source_ends, target_id, target_ends)
        log.journal.put(self.target.name, done)

    def check(self, log: LogAccess) -> None:
        """Convert all records without writing them, if any may change.

        Raises MigrationError for a record that does not convert.
        """
        places = log.partitions(self.source)
        if self.conversion.copies_bytes and self._partitions(len(places)) is None:
            return
        with closing(log.transport.consumer(self.group, read_committed=True)) as consumer:
            for batch in read_up_to(consumer, self._wanted(consumer, places)):
                converted(batch, self.target.name, self.conversion, self._partitions(len(places)))

    def count(self, log: LogAccess) -> int:
        """Return the number of offsets that a copy reads; compaction and transactions leave fewer records."""
        places = log.partitions(self.source)
        with closing(log.transport.consumer(self.group, read_committed=True)) as consumer:
            begins, ends = consumer.beginning_offsets(places), self._wanted(consumer, places)
        return sum(max(0, end - begins[place]) for place, end in ends.items())

    def _partitions(self, old: int) -> Partitions | None:
        new = self.target.partitions
        moves = old != new or (self.conversion.key is not None and new > 1)
        return Partitions(old, new) if moves else None

    def _wanted(self, consumer: Consumer, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        if self.group is None:
            return consumer.end_offsets(places)
        committed = consumer.committed(places)
        return {place: committed[place].offset if place in committed else 0 for place in places}

    def _ends(self, log: LogAccess, places: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        """Return the offsets to read up to, once no transaction is open."""
        deadline = time.monotonic() + TRANSACTION_SECONDS
        with closing(log.transport.consumer(self.group, read_committed=True)) as consumer:
            while True:
                ends = self._wanted(consumer, places)
                if self.group is not None or tuple(ends[place] for place in places) == log.ends(places):
                    return {place: ends[place] for place in places}
                if time.monotonic() > deadline:
                    raise MigrationError(
                        f"{self.source} has records of an open transaction: stop all instances, and repeat"
                    )
                time.sleep(_CHECK_SECONDS)

    def _write(self, log: LogAccess, ends: Mapping[TopicPartition, int]) -> None:
        with (
            closing(log.transport.consumer(None, read_committed=True)) as consumer,
            closing(log.transport.producer()) as producer,
        ):
            for rows in self._rows(consumer, ends):
                producer.send(rows)
            producer.flush()

    def _rows(self, consumer: Consumer, ends: Mapping[TopicPartition, int]) -> Iterator[list[OutputTuple]]:
        """Yield the rows of the target in the order in which they are written, in lists."""
        partitions, conversion = self._partitions(len(ends)), self.conversion

        def rows_of(batch: RecordBatch) -> list[OutputTuple]:
            return converted(batch, self.target.name, conversion, partitions)

        if partitions is None:
            yield from map(rows_of, read_up_to(consumer, ends))
            return
        merged = merge_up_to(consumer, ends, rows_of)
        kept = (row for latest, row in merged if not conversion.is_late(row, latest))
        while rows := list(islice(kept, _ROWS)):
            yield rows


def _continued(log: LogAccess, source: str, seen: set[str]) -> str | None:
    """Return a topic that migrations copied from this `source` and that has new records since then; None without one."""
    for name, entry in log.journal.copies_of(source).items():
        places = log.partitions(name)
        is_present = bool(places) and entry.target_id == log.topic_id(name) and entry.source_id == log.topic_id(source)
        if name in seen or not is_present:
            continue
        if log.ends(places) != entry.target_ends:
            return name
        later = _continued(log, name, {*seen, name})
        if later is not None:
            return later
    return None


def new_id(log: LogAccess, topic: str, has_ids: bool) -> str:
    """Return the id of a topic that was just created, once brokers have its metadata."""
    deadline = time.monotonic() + _ID_SECONDS
    while not (id_ := log.topic_id(topic)) and has_ids:
        if time.monotonic() > deadline:
            raise TransportError(f"topic {topic} was created, and no broker returns its id")
        time.sleep(_CHECK_SECONDS)
    return id_


def staging_topic(changelog: str) -> str:
    """Return the topic that contains the rows of a changelog while it is replaced."""
    return f"{changelog.removesuffix('-changelog')}-staging-changelog"


@dataclass(frozen=True)
class Replacement:
    """A copy of a changelog over itself: into a second topic, from which it is written again, and which is then deleted.

    At any point one of the two topics is complete, and the journal shows which one.
    """

    source: str
    target: NewTopic
    conversion: RowConversion
    form: str
    rows: RowForm

    @property
    def _staging(self) -> NewTopic:
        name = staging_topic(self.target.name)
        return NewTopic(name, self.target.partitions, self.target.config, self.target.replication_factor)

    def _copies(self, log: LogAccess) -> tuple[Copy, Copy]:
        staged = log.journal.get(self._staging.name)
        first = Copy(self.source, self._staging, self.conversion, self.form, self.rows)
        replaces = staged.source_id if staged is not None and staged.done else None
        return first, Copy(self._staging.name, self.target, RowConversion(), self.form, replaces=replaces)

    def _check_form(self, log: LogAccess) -> None:
        """Raise MigrationError if only the second topic is known to be complete and its rows have another form."""
        staged, entry = log.journal.get(self._staging.name), log.journal.get(self.source)
        is_other = staged is not None and staged.done and staged.form != self.form
        is_open = (entry is not None and not entry.done) or not log.partitions(self.source)
        if is_other and is_open and log.partitions(self._staging.name):
            raise MigrationError(
                f"a migration that makes other rows of {self.source} is incomplete, and {self._staging.name} has all of them: "
                "complete it with the NEW that began it, and then migrate from that NEW"
            )

    def _is_replaced(self, log: LogAccess) -> bool:
        self._check_form(log)
        entry = log.journal.get(self.source)
        if entry is not None and entry.done and entry.form == self.form:
            return log.partitions(self.source) != [] and log.topic_id(self.source) == entry.target_id
        first, second = self._copies(log)
        return first.is_done(log) and second.is_done(log)

    def is_done(self, log: LogAccess) -> bool:
        """Return whether the changelog has the new form. Raises MigrationError if it must not be written."""
        return self._is_replaced(log) and not log.partitions(self._staging.name)

    def begin(self, log: LogAccess) -> None:
        """Note that the changelog is incomplete, so that no version starts with it. Raises TransportError."""
        entry = log.journal.get(self.source)
        if entry is None or entry.form != self.form:
            log.journal.put(self.source, Entry(False, self._staging.name, self.form))

    def check(self, log: LogAccess) -> None:
        """Convert all records without writing them. Raises MigrationError for one that does not convert."""
        first, _ = self._copies(log)
        if not self._is_replaced(log) and not first.is_done(log):
            first.check(log)

    def count(self, log: LogAccess) -> int:
        """Return the number of offsets that the copy reads."""
        if self._is_replaced(log):
            return 0
        first, second = self._copies(log)
        return (second if first.is_done(log) else first).count(log)

    def run(self, log: LogAccess) -> None:
        """Copy, replace and delete the second topic. Raises MigrationError, TransportError."""
        if not self._is_replaced(log):
            if not log.topic_id(self.source) and log.partitions(self.source):
                raise MigrationError(
                    f"{self.source} has no id on this log, which a copy over itself needs: rename the store"
                )
            self._copies(log)[0].run(log)
            self._copies(log)[1].run(log)
        if log.partitions(self._staging.name):
            log.admin.delete_topics([self._staging.name])


# Converts the rows of a changelog: from the serdes of one version to those of the next, and to other partitions.

Convert = Callable[[bytes], bytes]

_TIME = LONG8.size


@dataclass(frozen=True)
class RowConversion:
    """How rows change.

    None: keys, or values, do not change. routing: returns the part of a changelog's key by which its record is partitioned;
    None: rows can't change partitions. history: the history of a versioned store (ms).
    """

    key: Convert | None = None
    value: Convert | None = None
    routing: Convert | None = None
    history: int | None = None

    @property
    def copies_bytes(self) -> bool:
        """Whether no byte changes."""
        return self.key is None and self.value is None

    def is_late(self, row: OutputTuple, latest: int) -> bool:
        """Return whether the old store has dropped a row, which it logs too; `latest`: the time of its store by then.

        In another partition, whose time may be earlier, it would become a version.
        """
        return self.history is not None and (row[3] or 0) < latest - self.history


def conversion_of(old: StoreDef, new: StoreDef, old_rows: RowForm, new_rows: RowForm) -> RowConversion:
    """Return the conversion of the rows of a store. Raises MigrationError if there is none."""
    kind = old_rows.kind
    if not has_same_layout(old_rows, new_rows):
        reasons = [why for verdict, why in compare_rows(old_rows, new_rows) if verdict is Verdict.INCOMPATIBLE]
        raise MigrationError("; ".join(reasons))
    key = _side(old.key_serde, new.key_serde)
    value = _side(old.value_serde, new.value_serde)
    right = old.right_serde is not None and new.right_serde is not None and _side(old.right_serde, new.right_serde)
    if (key or value or right) and not KINDS[kind].implementation_class().converts:
        changed = [
            f"{name} {shown(before)}, is {shown(after)}"
            for name, before, after in (
                ("its key was", old_rows.key, new_rows.key),
                ("its value was", old_rows.value, new_rows.value),
                ("its right value was", old_rows.right, new_rows.right),
            )
            if before != after
        ]
        why = "; ".join(changed) or "schema ids of a registry belong to one topic"
        raise MigrationError(f"rows of {old.kind.rows} have a layout of their own, whose serdes can't change: {why}")
    return RowConversion(_inside(kind, key), value, _routing(kind, old.key_serde), old.history)


def _side(old: Serde, new: Serde) -> Convert | None:
    before, after = serde_form(old), serde_form(new)
    # Serdes of one form differ if a registry has another subject for them: schema ids are not copied to other topics.
    if old == new or (before != after and reads(before, after)[0] is Reads.YES):
        return None
    decode, encode = old.decode, new.encode
    return lambda data: encode(decode(data))


def _around(kind: str) -> tuple[int, int] | None:
    return KINDS[kind].implementation_class().around


def _inside(kind: str, convert: Convert | None) -> Convert | None:
    """Return a conversion of the serialized key within the keys of a changelog."""
    before, after = _around(kind) or (0, 0)
    if convert is None or not after:
        return convert
    return lambda data: data[:before] + convert(data[before:-after]) + data[-after:]


def _routing(kind: str, serde: Serde) -> Convert | None:
    around = _around(kind)
    if around is None:
        return None
    before, after = around
    # Records with windowed keys are partitioned by the key alone (WindowedStreamPartitioner).
    if isinstance(serde, TimeWindowedSerde):
        after += _TIME
    elif isinstance(serde, SessionWindowedSerde):
        after += 2 * _TIME
    return lambda data: data[before : len(data) - after]


@dataclass(frozen=True)
class Partitions:
    """The partition counts of a copy."""

    old: int
    new: int


def converted(
    batch: RecordBatch, target: str, conversion: RowConversion, partitions: Partitions | None
) -> list[OutputTuple]:
    """Return the rows for the target topic; tombstones remain tombstones.

    partitions None: rows stay in their partitions. Raises MigrationError for a row that does not convert or is not in the
    partition of its key.
    """
    columns = zip(batch.keys, batch.values, batch.timestamps, batch.headers, strict=True)
    if conversion.copies_bytes and partitions is None:
        number = batch.partition
        return [(target, key, value, time, headers, number) for key, value, time, headers in columns]
    rows: list[OutputTuple] = []
    for key, value, timestamp, headers in columns:
        try:
            rows.append(_row(target, key, value, conversion, partitions, batch.partition, (timestamp, headers)))
        except (SerdeError, MigrationError) as error:
            place = TopicPartition(batch.topic, batch.partition)
            raise MigrationError(
                f"{place.topic}-{place.partition} offset {batch.offsets[len(rows)]}: {error}"
            ) from error
    return rows


def _row(
    target: str,
    key: bytes | None,
    value: bytes | None,
    conversion: RowConversion,
    partitions: Partitions | None,
    number: int,
    rest: tuple[int, list[tuple[str, bytes | None]] | None],
) -> OutputTuple:
    if key is None:
        raise MigrationError("the record has no key")
    new_key = key if conversion.key is None else conversion.key(key)
    if partitions is not None:
        assert conversion.routing is not None
        if partition(conversion.routing(key), partitions.old) != number:
            raise MigrationError("the record is not in the partition that Kafka's default partitioner gives its key")
        number = partition(conversion.routing(new_key), partitions.new)
    new_value = value if value is None or conversion.value is None else conversion.value(value)
    return target, new_key, new_value, *rest, number
