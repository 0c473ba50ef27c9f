"""Reads the form of an application from its log (internal topics, records, offsets) and from the marks in its state directory."""

from __future__ import annotations

import logging
import re
from collections.abc import Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from pathlib import Path

from streamkit.changes.finding import Verdict
from streamkit.changes.form import Form, OnLog, Place, RowForm, StoreForm, TopicForm
from streamkit.changes.of_plan import rows_of
from streamkit.changes.serde_forms import compare_rows
from streamkit.errors import IncompatibleStateError, Position
from streamkit.plan.model import Plan, internal_topics_on_log
from streamkit.record import TopicPartition
from streamkit.state.directory import sealed, translated, unsealed, write_atomically
from streamkit.transport.log_interface import Admin, Consumer, Transport

_TOPIC = re.compile(
    r".+-repartition|.+-subscription-(registration|response)-topic"
    r"|.*KTABLE-FK-JOIN-SUBSCRIPTION-(REGISTRATION|RESPONSE)-\d{10}-topic"
)
_CHANGELOG = "-changelog"
_BATCH = 500
_POLL_MS = 200
_GENERATED = ("KSTREAM", "KTABLE", "COGROUPKSTREAM")
"""Prefixes of generated names, which are not the names of applications."""


def internal_topics(plan: Plan, existing: Mapping[str, int], admin: Admin, transport: Transport) -> dict[str, int]:
    """Return which of the `existing` topics are the application's internal ones, with their partition counts.

    The prefix of a topic may be the name of another application that begins with this one's. Such a topic is left out if a
    group of that name has members or committed offsets. Raises TransportError.
    """
    application, known = plan.application, set(internal_topics_on_log(plan).values())
    prefix = f"{application}-"
    prefixed = {
        name: count
        for name, count in existing.items()
        if name.startswith(prefix) and (name.endswith(_CHANGELOG) or _TOPIC.fullmatch(name.removeprefix(prefix)))
    }
    others = Groups(admin, transport, existing)
    return {name: count for name, count in prefixed.items() if name in known or not others.may_own(application, name)}


def unknown_changelogs(plan: Plan, existing: Mapping[str, int], admin: Admin, transport: Transport) -> dict[str, int]:
    """Return the changelogs of the application that no store of the plan has, with their partition counts."""
    known = set(internal_topics_on_log(plan).values())
    internal = internal_topics(plan, existing, admin, transport)
    return {name: count for name, count in internal.items() if name.endswith(_CHANGELOG) and name not in known}


def records_of(transport: Transport, counts: Mapping[str, int]) -> dict[str, int]:
    """Return the number of offsets in each topic; after compaction and with transactions there are fewer records."""
    with closing(transport.consumer(None)) as consumer:
        return _records(consumer, _partitions_of(list(counts), counts))


class Groups:
    """Finds groups by name; each name is looked up once."""

    def __init__(self, admin: Admin, transport: Transport, existing: Mapping[str, int]):
        self._admin, self._transport = admin, transport
        self._partitions = [TopicPartition(name, number) for name, count in existing.items() for number in range(count)]
        self._exists_by_name: dict[str, bool] = {}

    def may_own(self, application: str, topic: str) -> bool:
        """Return whether a group whose name begins with the application's may own the topic."""
        rest = topic.removeprefix(f"{application}-").split("-")
        if rest[0] in _GENERATED:
            return False
        return any(self._exists("-".join([application, *rest[:count]])) for count in range(1, len(rest) - 1))

    def _exists(self, group: str) -> bool:
        if group not in self._exists_by_name:
            self._exists_by_name[group] = bool(self._admin.group_members(group)) or self._has_committed(group)
        return self._exists_by_name[group]

    def _has_committed(self, group: str) -> bool:
        with closing(self._transport.consumer(group)) as consumer:
            return bool(consumer.committed(self._partitions))


def read_log(plan: Plan, transport: Transport) -> tuple[OnLog, dict[str, int], dict[str, int]]:
    """Return the application's topics on the log, and the partition counts of its internal topics and of all topics.

    Raises TransportError.
    """
    application = plan.application
    with closing(transport.admin()) as admin:
        existing = admin.partition_counts()
        counts = internal_topics(plan, existing, admin, transport)
        members = tuple(admin.group_members(application))
        changelogs = [name for name in counts if name.endswith(_CHANGELOG)]
        configs = {name: admin.topic_config(name) for name in changelogs}
    topics = [name for name in counts if name not in configs]
    with closing(transport.consumer(application)) as consumer:
        records = _records(consumer, _partitions_of(changelogs, counts))
        unread = _unread(consumer, _partitions_of(topics, counts))
    empty = _without_records(transport, unread)
    zeros = dict.fromkeys
    left = _sums({partition: 0 if partition in empty else stop - start for partition, (start, stop) in unread.items()})
    on_log = OnLog({**zeros(changelogs, 0), **records}, {**zeros(topics, 0), **left}, configs, members)
    return on_log, counts, existing


def _partitions_of(topics: Sequence[str], counts: Mapping[str, int]) -> list[TopicPartition]:
    return [TopicPartition(name, number) for name in topics for number in range(counts[name])]


def _records(consumer: Consumer, partitions: list[TopicPartition]) -> dict[str, int]:
    if not partitions:
        return {}
    begins, ends = consumer.beginning_offsets(partitions), consumer.end_offsets(partitions)
    return _sums({partition: ends[partition] - begins[partition] for partition in partitions})


def _unread(consumer: Consumer, partitions: list[TopicPartition]) -> dict[TopicPartition, tuple[int, int]]:
    """Return the offsets from the first to read to the end, by partition, where there are some."""
    if not partitions:
        return {}
    committed, ends = consumer.committed(partitions), consumer.end_offsets(partitions)
    begins = consumer.beginning_offsets(partitions)
    read = {
        partition: committed[partition].offset if partition in committed else begins[partition]
        for partition in partitions
    }
    starts = {partition: max(read[partition], begins[partition]) for partition in partitions}
    return {
        partition: (starts[partition], ends[partition])
        for partition in partitions
        if starts[partition] < ends[partition]
    }


def _without_records(transport: Transport, ranges: Mapping[TopicPartition, tuple[int, int]]) -> set[TopicPartition]:
    """Return the partitions whose range of offsets has only ends of transactions and records of aborted ones."""
    empty: set[TopicPartition] = set()
    if not ranges:
        return empty
    with closing(transport.consumer(None, read_committed=True)) as consumer:
        stable = consumer.end_offsets(list(ranges))
        # The records of an open transaction may still count.
        waiting = {partition for partition, (_, stop) in ranges.items() if stable[partition] >= stop}
        consumer.assign({partition: ranges[partition][0] for partition in waiting})
        while waiting:
            batches = consumer.poll(_BATCH, _POLL_MS)
            places = {(batch.topic, batch.partition): batch for batch in batches}
            with_records = {partition for partition in waiting if partition in places}
            consumer.remove(with_records)
            waiting -= with_records
            ended = {partition for partition in waiting if consumer.position(partition) >= ranges[partition][1]}
            waiting -= ended
            empty |= ended
    return empty


def _sums(numbers: Mapping[TopicPartition, int]) -> dict[str, int]:
    sums: dict[str, int] = {}
    for partition, number in numbers.items():
        sums[partition.topic] = sums.get(partition.topic, 0) + number
    return sums


def form_on_log(plan: Plan, new: Form, on_log: OnLog, counts: Mapping[str, int], label: str) -> Form:
    """Return the form of the version that wrote the topics on the log; the forms of rows come from the state directory.

    Stores of the new version without a changelog are taken over, since a log has no trace of them.
    """
    prefix = f"{plan.application}-"
    place = Place("", "", Position(label, 1, 1))
    marks = read_marks(plan)
    stores: dict[str, StoreForm] = {name: store for name, store in new.stores.items() if not _has_changelog(store)}
    for topic in on_log.records:
        name = topic.removeprefix(prefix).removesuffix(_CHANGELOG)
        mark = marks.get(name)
        rows: RowForm | None = mark.rows if mark is not None else None
        stores[name] = StoreForm(name, None, False, frozenset(), place, rows)
    names = [topic.removeprefix(prefix) for topic in on_log.unread]
    return Form(
        label=label,
        application=plan.application,
        sub_topologies=(),
        stores=stores,
        topics={name: TopicForm(name, frozenset(), place) for name in names},
        counts={name.removeprefix(prefix): count for name, count in counts.items()},
        has_tasks=False,
    )


def _has_changelog(store: StoreForm) -> bool:
    return not store.is_global and store.details is not None and store.details.logged


# Marks in the state directory: the form of the rows of each changelog, from the version that wrote them.
#
# Neither a log nor the settings of a topic have this form; the marks do, on each machine that has run the application.
# Changelogs without a mark are not checked.


log = logging.getLogger(__name__)

_FILE = ".streamkit-changelogs"
_FORMAT = 1


@dataclass(frozen=True)
class Mark:
    """The rows of a store's changelog; topic_id: the id of the topic on the log, empty if topics have no ids."""

    rows: RowForm
    topic_id: str = ""


def read_marks(plan: Plan) -> dict[str, Mark]:
    """Return the marks of this machine by store; none if the file is missing, damaged or of a newer format."""
    path = _path(plan)
    try:
        data = unsealed(path.read_text(encoding="utf-8"))
        if data["format"] != _FORMAT:
            return {}
        return {name: Mark(RowForm(**mark["rows"]), mark["topic_id"]) for name, mark in data["stores"].items()}
    except OSError:
        # The start reports a state directory that can't be used.
        return {}
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        # The start continues without a check, and writes the file again.
        log.warning("%s can't be read (%s): changelogs are not checked", path, error)
        return {}


def write_marks(plan: Plan, topic_ids: Mapping[str, str]) -> None:
    """Write the marks of this version's changelogs; keep the marks of other stores.

    topic_ids: the ids of changelogs on the log, by name. Raises StateError.
    """
    known = read_marks(plan)
    marks = dict(known)
    for name, rows in _logged(plan).items():
        marks[name] = Mark(rows, topic_ids.get(plan.changelog_name(name) or "", ""))
    path = _path(plan)
    if marks == known and path.exists():
        return  # a write with fsync takes time at each start
    text = sealed({"format": _FORMAT, "stores": {name: asdict(mark) for name, mark in marks.items()}})
    with translated(path):
        write_atomically(path, text)


def check_marks(plan: Plan, topic_ids: Mapping[str, str]) -> None:
    """Raise IncompatibleStateError if a changelog on the log has rows that this version would misread.

    topic_ids: of the changelogs that exist. A topic that was deleted and created again has another id and is not checked.
    """
    marks, misread = read_marks(plan), []
    for name, rows in _logged(plan).items():
        topic, mark = plan.changelog_name(name) or "", marks.get(name)
        if mark is None or topic not in topic_ids or mark.topic_id != topic_ids[topic]:
            continue
        bad = [why for verdict, why in compare_rows(mark.rows, rows) if verdict is Verdict.INCOMPATIBLE]
        if bad:
            misread.append(f"store {name}: {'; '.join(bad)} (changelog {topic})")
    if misread:
        raise IncompatibleStateError(
            f"state of {plan.application} would be misread: {'. '.join(misread)}. Give the store another name, reset "
            "the application with `streamkit reset-offsets`, or start with --force; `streamkit diff OLD NEW` shows all changes "
            "between two versions"
        )


def _path(plan: Plan) -> Path:
    return Path(plan.config.state_dir) / plan.application / _FILE


def _logged(plan: Plan) -> dict[str, RowForm]:
    return {name: rows for name, rows in rows_of(plan).items() if plan.stores[name].changelog_topic is not None}
