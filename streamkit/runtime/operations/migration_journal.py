"""The journal of migrations: a topic of the application with the progress of each copy."""

from __future__ import annotations

import heapq
import json
import logging
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import asdict, dataclass
from operator import itemgetter

from streamkit.errors import IncompatibleStateError
from streamkit.plan.model import Plan, internal_topics_on_log
from streamkit.record import OutputTuple, RecordBatch, TopicPartition
from streamkit.transport.log_interface import Admin, Consumer, NewTopic, Transport

log = logging.getLogger(__name__)

JOURNAL = "streamkit-migration"
OFFSETS = "offsets"
"""The key of the entry of the group's offsets; the keys of other entries are names of topics."""
HISTORY = "history"
"""The source of a changelog that is computed from the history of the inputs (`streamkit evolve`)."""
_BATCH = 5000
_POLL_MS = 200


@dataclass(frozen=True)
class Entry:
    """The progress of one copy.

    Ends are the end offsets of partitions, or the group's offsets if the source is read only up to those. `form`: the rows and
    partitions of the target. `target_id` is None until the target is created. An id is empty if topics have no ids.
    """

    done: bool
    source: str
    form: str
    source_id: str = ""
    source_ends: tuple[int, ...] = ()
    target_id: str | None = None
    target_ends: tuple[int, ...] = ()


class Journal:
    """The entries of an application by target; the last entry of a target counts."""

    def __init__(self, plan: Plan, transport: Transport, admin: Admin):
        self.topic = journal_topic(plan.application)
        self._transport, self._admin = transport, admin
        self._replicas = plan.config.replication_factor
        self._entries = read_entries(plan.application, admin.topics([self.topic]), transport)

    def get(self, target: str) -> Entry | None:
        """Return the entry of a target; None if there is none."""
        return self._entries.get(target)

    def copies_of(self, source: str) -> dict[str, Entry]:
        """Return the entries of complete copies of a topic by target."""
        return {target: entry for target, entry in self._entries.items() if entry.done and entry.source == source}

    def put(self, target: str, entry: Entry) -> None:
        """Write an entry and wait until the log has it. Raises TransportError."""
        if not self._entries:
            self._admin.create_topics([NewTopic(self.topic, 1, {"cleanup.policy": "compact"}, self._replicas)])
        with closing(self._transport.producer()) as producer:
            producer.send([(self.topic, target.encode(), json.dumps(asdict(entry)).encode(), None, None, 0)])
            producer.flush()
        self._entries[target] = entry


def journal_topic(application: str) -> str:
    """Return the name of an application's journal."""
    return f"{application}-{JOURNAL}"


def read_entries(application: str, existing: Collection[str], transport: Transport) -> dict[str, Entry]:
    """Return the entries of an application by target. `existing`: the topics on the log. Raises TransportError."""
    topic = journal_topic(application)
    return dict(_read(transport, topic)) if topic in existing else {}


def check_migrated(plan: Plan, entries: Mapping[str, Entry]) -> None:
    """Raise IncompatibleStateError if a migration has begun to write changelogs or offsets of this version but is incomplete."""
    own = {*internal_topics_on_log(plan).values(), OFFSETS}
    open_targets = sorted(name for name, entry in entries.items() if name in own and not entry.done)
    if open_targets:
        computed = any(entries[name].source == HISTORY for name in open_targets)
        again = "streamkit evolve OLD NEW --checkpoint DIR" if computed else "streamkit migrate OLD NEW --execute"
        raise IncompatibleStateError(
            f"a migration of {plan.application} is incomplete ({', '.join(open_targets)}): run `{again}` again, or start "
            "with --force"
        )


def _read(transport: Transport, topic: str) -> Iterator[tuple[str, Entry]]:
    place = TopicPartition(topic, 0)
    with closing(transport.consumer(None)) as consumer:
        for batch in read_up_to(consumer, consumer.end_offsets([place])):
            for key, value in zip(batch.keys, batch.values, strict=True):
                try:
                    fields = json.loads(value or b"")
                    fields = {
                        name: tuple(field) if isinstance(field, list) else field for name, field in fields.items()
                    }
                    yield (key or b"").decode(), Entry(**fields)
                except (ValueError, TypeError, AttributeError) as error:
                    log.warning("a record of %s is not a migration entry and is ignored: %s", topic, error)


def read_up_to(consumer: Consumer, ends: Mapping[TopicPartition, int]) -> Iterator[RecordBatch]:
    """Yield all records before these offsets, in the order of each partition. Raises TransportError."""
    begins = consumer.beginning_offsets(list(ends))
    waiting = {place for place, end in ends.items() if begins[place] < end}
    consumer.assign({place: begins[place] for place in waiting})
    while waiting:
        for batch in consumer.poll(_BATCH, _POLL_MS):
            wanted = batch.before(ends[TopicPartition(batch.topic, batch.partition)])
            if len(wanted):
                yield wanted
        # A partition may end with control records of transactions, so positions decide, not records.
        waiting = {place for place in waiting if consumer.position(place) < ends[place]}


def merge_up_to(
    consumer: Consumer, ends: Mapping[TopicPartition, int], rows_of: Callable[[RecordBatch], Sequence[OutputTuple]]
) -> Iterator[tuple[int, OutputTuple]]:
    """Yield each record before these offsets as its partition's highest timestamp so far, and its row, ordered by that timestamp.

    Records of a partition keep their order. If partitions are merged into one, no record becomes later, relative to stream time, than
    it was in its own partition. `rows_of` returns one row for each record of a batch. Raises TransportError.
    """
    begins = consumer.beginning_offsets(list(ends))
    places = sorted(place for place, end in ends.items() if begins[place] < end)
    consumer.assign({place: begins[place] for place in places})
    fetched: dict[TopicPartition, list[RecordBatch]] = {place: [] for place in places}

    def fetch() -> None:
        # A partition that is ahead of the others waits, so that its records do not fill the memory.
        full = {place for place in places if fetched[place]}
        consumer.pause(full)
        consumer.resume(set(places) - full)
        for batch in consumer.poll(_BATCH, _POLL_MS):
            place = TopicPartition(batch.topic, batch.partition)
            fetched[place].append(batch.before(ends[place]))

    def of(place: TopicPartition) -> Iterator[tuple[int, OutputTuple]]:
        latest = -1
        while fetched[place] or consumer.position(place) < ends[place]:
            if not fetched[place]:
                fetch()
            batches, fetched[place] = fetched[place], []
            for batch in batches:
                for timestamp, row in zip(batch.timestamps, rows_of(batch), strict=True):
                    latest = max(latest, timestamp)
                    yield latest, row

    return heapq.merge(*map(of, places), key=itemgetter(0))
