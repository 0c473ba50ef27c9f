"""Records of the topics of the file and of internal ones, changes of stores, and dead letters with their replay."""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from dataclasses import dataclass, replace
from itertools import islice

from starlette.requests import Request
from starlette.responses import Response

from streamkit.durations import option_time
from streamkit.errors import (
    QueryError,
    SerdeError,
    StoreUnavailableError,
    StreamkitError,
    TopicError,
    UnknownNameError,
    UsageError,
)
from streamkit.http.endpoint import Arguments, Endpoint, Parameter, json_response
from streamkit.http.event_stream import Event, EventStream
from streamkit.http.service import Service
from streamkit.plan.model import find_readable, internal_topics_on_log
from streamkit.record import TopicPartition
from streamkit.runtime.execution.dead_letters import DeadLetter, dead_letter_topics
from streamkit.runtime.local.queries import require_store
from streamkit.runtime.operations.dead_letter_replay import Replay, dead_letter_json
from streamkit.runtime.operations.topic_reading import (
    KeyCondition,
    Range,
    Reading,
    RecordFilter,
    SelectedRecord,
    Target,
    TopicForms,
    first_offsets,
    record_json,
)
from streamkit.runtime.records import RecordJson
from streamkit.serdes.plain import Json
from streamkit.suggestions import number_of

MOST_RECORDS = 500
RECORDS = 50
_KEY = Parameter(
    "key", "Only this key: text, or JSON in the form of its serde; for windowed keys, the key alone also matches."
)
_PARTITION = Parameter("partition", "Only this partition.", "integer")
_RECORDS = (
    Parameter("limit", f"The number of records, at most {MOST_RECORDS}.", "integer", default=RECORDS),
    Parameter("from", "Only records of this time or later: ISO 8601, milliseconds, or `-5m` for five minutes ago."),
    Parameter("to", "Only records before this time."),
    Parameter("offset", "Begin in each partition at this offset; without it and `from` the last records.", "integer"),
    _KEY,
    _PARTITION,
)
_CHANGES = (_KEY, _PARTITION)


def list_topics(service: Service, request: Request) -> Response:
    """Return the topics that can be read."""
    plan = service.application.plan
    topics = [
        {"name": topic.entry, "topic": topic.name, "kind": "file", "read": topic.read, "written": topic.written}
        for topic in plan.external_topics.values()
    ]
    topics += [
        {"name": name, "topic": on_log, "kind": "internal", "read": True, "written": True}
        for name, on_log in internal_topics_on_log(plan).items()
    ]
    return json_response({"application": plan.application, "topics": topics})


def list_partitions(service: Service, request: Request) -> Response:
    """Return the offsets of every partition."""
    with reader(service), closing(PartitionOffsets(service)) as offsets:
        return json_response(offsets.now())


def partition_changes(service: Service, request: Request) -> Response:
    """Return the offsets of every partition, again and again."""
    Arguments(request, ())
    return EventStream(PartitionOffsets(service), service.streams)


def topic_records(service: Service, request: Request) -> Response:
    """Return records of a topic."""
    arguments = Arguments(request, _RECORDS)
    since, until = _time(arguments, "from"), _time(arguments, "to")
    offset = arguments.number("offset", None, 0)
    if offset is not None and since is not None:
        raise QueryError("offset and from exclude each other")
    start = Target("time", since) if since is not None else Target("earliest")
    if offset is not None:
        start = Target("offset", offset)
    selection = Selection(
        _topic(service, request), Range(start, since, until, _partitions(arguments)), arguments.text("key")
    )
    limit = arguments.number("limit", RECORDS, 1, MOST_RECORDS)
    return json_response(read_page(service, selection, limit, last=offset is None and since is None))


def topic_changes(service: Service, request: Request) -> Response:
    """Return the records of a topic from now on."""
    selection = _new(Arguments(request, _CHANGES), _topic(service, request))
    return EventStream(NewRecords(service, selection, "record", shown), service.streams)


def store_changes(service: Service, request: Request) -> Response:
    """Return the changes of a store from now on, read from its changelog."""
    plan, name = service.application.plan, request.path_params["store"]
    require_store(plan, name)
    changelog = plan.changelog_name(name)
    if changelog is None:
        raise QueryError(f"store {name} has no changelog, from which changes are read (`logging: false`)")
    selection = _new(Arguments(request, _CHANGES), changelog)
    return EventStream(NewRecords(service, selection, "change", _change), service.streams)


def _change(record: SelectedRecord) -> dict[str, Json]:
    document = shown(record)
    return {
        name: document[name]
        for name in ("key", "value", "timestamp", "partition", "offset", "error")
        if name in document
    }


def _new(arguments: Arguments, topic: str) -> Selection:
    return Selection(topic, Range(Target("latest"), partitions=_partitions(arguments)), arguments.text("key"))


def _topic(service: Service, request: Request) -> str:
    try:
        return find_readable(service.application.plan, request.path_params["topic"])
    except UsageError as error:
        raise UnknownNameError(str(error)) from error


def _partitions(arguments: Arguments) -> frozenset[int] | None:
    number = arguments.number("partition", None, 0)
    return None if number is None else frozenset((number,))


def _time(arguments: Arguments, name: str) -> int | None:
    text = arguments.text(name)
    try:
        return None if text is None else option_time(name, text)
    except UsageError as error:
        raise QueryError(str(error)) from error


_ANSWERS = {
    400: "A parameter makes no sense for this topic or store.",
    404: "There is no such topic or store.",
    503: "The topic can't be read now, or too many requests read topics.",
}

# Reads topics for requests: pages of records with limits, new records as events, and the offsets of partitions.

SECONDS = 5.0
"""The time after which a page is returned with the records found so far."""
LARGE = 1 << 16
"""Bytes of a value beyond which it is not shown."""
RECORDS_A_SECOND = 1000
"""Records that one stream reads a second, so that it takes little time from stream threads."""
BEHIND = 10_000
"""The number of records that a stream may be behind the end of a partition before it jumps to the end."""
_READERS_WAIT_SECONDS = 2.0
_OFFSETS_SECONDS = 2.0
"""The time between two looks at the offsets of all partitions."""


@dataclass(frozen=True)
class Selection:
    """The records of a request."""

    topic: str
    """By its name on the log."""
    span: Range
    key: str | None = None

    def filter(self, service: Service) -> RecordFilter:
        """Return the conditions. Raises QueryError for a key that the topic can't have."""
        plan = service.application.plan
        forms = TopicForms(plan, self.topic)
        try:
            key = None if self.key is None else KeyCondition(forms, self.key)
        except SerdeError as error:
            raise QueryError(f"key {self.key}: {error}") from error
        return RecordFilter(plan, forms, self.span, key, None)

    def places(self, service: Service) -> list[TopicPartition]:
        """Return the partitions to read. Raises QueryError, StoreUnavailableError for a topic that does not exist."""
        with closing(service.application.transport.admin()) as admin:
            topics = admin.topics([self.topic])
        if self.topic not in topics:
            raise StoreUnavailableError(f"topic {self.topic} does not exist on the log")
        count = topics[self.topic].partitions
        wanted = range(count) if self.span.partitions is None else sorted(self.span.partitions)
        if any(number >= count for number in wanted):
            raise QueryError(
                f"partition is {max(wanted)}: topic {self.topic} has {number_of(count, 'partition')}, counted from 0"
            )
        return [TopicPartition(self.topic, number) for number in wanted]


@contextmanager
def reader(service: Service) -> Iterator[None]:
    """Limit the requests that read topics at the same time. Raises StoreUnavailableError."""
    if not service.readers.acquire(timeout=_READERS_WAIT_SECONDS):
        raise StoreUnavailableError("too many requests read topics: send it again")
    try:
        yield
    finally:
        service.readers.release()


def read_page(service: Service, selection: Selection, limit: int, *, last: bool) -> dict[str, Json]:
    """Return at most `limit` records: the last ones of the selection, or the first ones.

    `complete` is false if the time limit expired before the whole selection was searched.
    """
    deadline = time.monotonic() + SECONDS
    with reader(service):
        record_filter = selection.filter(service)
        places = selection.places(service)
        with closing(service.application.transport.consumer(None, read_committed=True, client_id="http")) as consumer:
            late = _Late(deadline)
            reading = Reading(consumer, record_filter, late)
            first = first_offsets(consumer, selection.span.start, places)
            ends = consumer.end_offsets(places)
            records = reading.last(limit, first, ends) if last else reading.first(limit, first, ends)
    return {
        "topic": selection.topic,
        "records": [shown(record) for record in records],
        "complete": not late.hit,
        "partitions": [
            {"partition": partition.partition, "first": first[partition], "end": ends[partition]}
            for partition in places
        ],
    }


class _Late:
    """Whether a time limit has expired; `hit`: whether a check has found that it has."""

    def __init__(self, deadline: float):
        self._deadline = deadline
        self.hit = False

    def __call__(self) -> bool:
        self.hit = self.hit or time.monotonic() > self._deadline
        return self.hit


def shown(record: SelectedRecord) -> dict[str, Json]:
    """Return a record as an object with its offset; large parts are replaced by a reason."""
    row = record.row
    sizes = {name: len(data) for name, data in (("key", row.key), ("value", row.value)) if data and len(data) > LARGE}
    if not sizes:
        return record_json(record, offsets=True)
    reasons = {name: f"{size:,} bytes are too many to be shown here" for name, size in sizes.items()}
    key, value = (None if name in sizes else getattr(record.decoded, name) for name in ("key", "value"))
    decoded = record.decoded._replace(key=key, value=value, problems={**record.decoded.problems, **reasons})
    return record_json(record._replace(decoded=decoded), offsets=True)


class NewRecords:
    """The records of topics from now on, as events of a stream.

    It reads at most RECORDS_A_SECOND. If the log is more than BEHIND ahead, it jumps to the end and sends an event with
    the number of offsets that it has skipped. It reads the log only: stream threads do nothing for it.
    """

    def __init__(self, service: Service, selection: Selection, name: str, form: Callable[[SelectedRecord], Json]):
        """name: of the events; form: their data. Raises QueryError, StoreUnavailableError."""
        self._name = name
        self._form = form
        record_filter = selection.filter(service)
        self._places = selection.places(service)
        self._consumer = service.application.transport.consumer(None, read_committed=True, client_id="http")
        try:
            first = first_offsets(self._consumer, Target("latest"), self._places)
        except StreamkitError:
            self._consumer.close()
            raise
        reading = Reading(self._consumer, record_filter, lambda: False, poll_records=RECORDS_A_SECOND // 4)
        self._polls = reading.follow(first)
        self._read = sum(first.values())
        self._pause_until = 0.0
        self._look_at = float("inf")
        """The time of the next look at the ends of the partitions; they are assigned with the first poll."""

    def read(self) -> list[Event]:
        """Return the next records, and how many were skipped."""
        events = self._skipped()
        pause = self._pause_until - time.monotonic()
        if pause > 0:
            time.sleep(min(pause, 0.25))
            return events
        records = next(self._polls)
        now_read = sum(map(self._consumer.position, self._places))
        self._pause_until = time.monotonic() + (now_read - self._read) / RECORDS_A_SECOND
        self._read = now_read
        self._look_at = min(self._look_at, time.monotonic() + 1)
        return events + [Event(self._name, self._form(record)) for record in records]

    def _skipped(self) -> list[Event]:
        now = time.monotonic()
        if now < self._look_at:
            return []
        self._look_at = now + 1
        ends = self._consumer.end_offsets(self._places)
        far = {p: end for p, end in ends.items() if end - self._consumer.position(p) > BEHIND}
        if not far:
            return []
        count = sum(end - self._consumer.position(partition) for partition, end in far.items())
        self._consumer.remove(far)
        self._consumer.add(far)
        self._read += count
        return [Event("skipped", {"offsets": count, "partitions": sorted(partition.partition for partition in far)})]

    def close(self) -> None:
        """Close the consumer."""
        with suppress(StreamkitError):
            self._consumer.close()


class PartitionOffsets:
    """The first and the end offset of each partition of the topics of the file and of internal ones, as events too."""

    def __init__(self, service: Service):
        plan, transport = service.application.plan, service.application.transport
        external = [topic.name for topic in plan.external_topics.values()]
        self._topics = dict.fromkeys([*external, *internal_topics_on_log(plan).values()])
        self._closing = service.streams.closing
        self._admin = transport.admin()
        self._consumer = transport.consumer(None, read_committed=True, client_id="http")
        self._next = 0.0

    def now(self) -> dict[str, Json]:
        """Return the offsets, and their time in milliseconds. Raises LogUnavailable; a topic that does not exist has none."""
        topics = self._admin.topics(self._topics)
        places = [
            TopicPartition(name, number)
            for name in self._topics
            if name in topics
            for number in range(topics[name].partitions)
        ]
        first, ends = self._consumer.beginning_offsets(places), self._consumer.end_offsets(places)
        partitions: list[Json] = [
            {
                "topic": partition.topic,
                "partition": partition.partition,
                "first": first[partition],
                "end": ends[partition],
            }
            for partition in places
        ]
        return {"time": time.time_ns() // 1_000_000, "partitions": partitions}

    def read(self) -> list[Event]:
        """Wait for the next time to look, and return the offsets; none if the server closes."""
        left = self._next - time.monotonic()
        if left > 0 and self._closing.wait(min(left, 1.0)):
            return []
        if time.monotonic() < self._next:
            return []
        self._next = time.monotonic() + _OFFSETS_SECONDS
        return [Event("partitions", self.now())]

    def close(self) -> None:
        """Close the clients."""
        for client in (self._consumer, self._admin):
            with suppress(StreamkitError):
                client.close()


# Dead letters: what failed and why, and their replay.

MOST_LETTERS = 500
LETTERS = 50
MOST_REPLAYED = 1000
"""The number of letters that one request replays."""
_LIST = (Parameter("limit", f"The number of letters, at most {MOST_LETTERS}.", "integer", default=LETTERS),)
_REPLAY = (
    Parameter("topic", "The dead-letter topic of one letter; without it all are replayed."),
    Parameter("partition", "Its partition.", "integer"),
    Parameter("offset", "Its offset.", "integer"),
)


def list_dead_letters(service: Service, request: Request) -> Response:
    """Return the last dead letters that were not replayed, and the number of dead letters of each kind."""
    limit = Arguments(request, _LIST).number("limit", LETTERS, 1, MOST_LETTERS)
    plan = service.application.plan
    topics = dead_letter_topics(plan)
    with reader(service):
        try:
            replay = Replay(plan, service.application.transport, topics)
        except TopicError:
            # Nothing has failed, or nothing writes dead letters.
            return json_response({"topics": topics, "letters": [], "kinds": [], "total": 0, "complete": True})
        return json_response({"topics": topics, **_found(replay, RecordJson(plan), limit)})


def _found(replay: Replay, form: RecordJson, limit: int) -> dict[str, Json]:
    deadline = time.monotonic() + SECONDS
    newest: list[DeadLetter] = []
    kinds: Counter[tuple[str, str, str]] = Counter()
    complete = True
    for letter in replay.newest():
        if len(newest) < limit:
            newest.append(letter)
        kinds[letter.error, letter.step, letter.topic or ""] += 1
        if time.monotonic() > deadline:
            complete = False
            break
    return {
        "letters": [_shown(letter, form, replay) for letter in newest],
        "kinds": [
            {"error": error, "step": step, "topic": topic, "count": count}
            for (error, step, topic), count in kinds.most_common(LETTERS)
        ],
        "total": kinds.total(),
        "complete": complete,
    }


def _shown(letter: DeadLetter, form: RecordJson, replay: Replay) -> dict[str, Json]:
    large = [data for data in (letter.key, letter.value) if data is not None and len(data) > LARGE]
    if large:
        letter = replace(letter, key=None, value=None)
    return {**dead_letter_json(letter, form, replay), **({"large": True} if large else {})}


def replay_dead_letters(service: Service, request: Request) -> Response:
    """Write one dead letter back to the topic of its record, or the oldest ones."""
    arguments = Arguments(request, _REPLAY)
    chosen = arguments.text("topic"), arguments.number("partition", None, 0), arguments.number("offset", None, 0)
    if None in chosen and chosen != (None, None, None):
        raise QueryError("topic, partition and offset name one letter together; without all of them all are replayed")
    plan = service.application.plan

    def wanted(letter: DeadLetter) -> bool:
        return chosen[0] is None or (*letter.place, letter.place_offset) == chosen

    if not service.replaying.acquire(blocking=False):
        raise StoreUnavailableError("dead letters are being replayed by another request: send it again")
    try:
        with reader(service):
            replay = Replay(plan, service.application.transport, dead_letter_topics(plan))
            most = MOST_REPLAYED if chosen[0] is None else 1
            count = sum(1 for _ in islice(replay.execute(wanted, most), None))
    except TopicError as error:
        raise QueryError(str(error)) from error
    finally:
        service.replaying.release()
    if chosen[0] is not None and not count:
        raise UnknownNameError(
            f"there is no dead letter {chosen[0]}-{chosen[1]}@{chosen[2]} to replay: it does not exist, was replayed before, or its "
            "topic no longer exists"
        )
    return json_response({"replayed": count})


ENDPOINTS = (
    Endpoint("/topics", "The topics of the file, and the internal ones.", list_topics),
    Endpoint(
        "/partitions",
        "First and end offset of each partition of these topics.",
        list_partitions,
        answers={503: "The log does not respond, or too many requests read topics."},
    ),
    Endpoint(
        "/partitions/changes",
        "The same every two seconds, as server-sent events `partitions`.",
        partition_changes,
        content="text/event-stream",
    ),
    Endpoint("/topics/{topic}/records", "Records of a topic, decoded.", topic_records, _RECORDS, answers=_ANSWERS),
    Endpoint(
        "/topics/{topic}/changes",
        "New records of a topic, as server-sent events `record`.",
        topic_changes,
        _CHANGES,
        answers=_ANSWERS,
        content="text/event-stream",
    ),
    Endpoint(
        "/stores/{store}/changes",
        "Changes of a store from now on, on all instances, as server-sent events `change`; value null: deleted.",
        store_changes,
        _CHANGES,
        answers=_ANSWERS,
        content="text/event-stream",
    ),
    Endpoint(
        "/dead-letters",
        "The last dead letters that were not replayed, with their reasons.",
        list_dead_letters,
        _LIST,
        answers={503: "The log does not respond, or too many requests read topics."},
    ),
    Endpoint(
        "/dead-letters/replay",
        f"Write one dead letter back to the topic of its record, or all: at most {MOST_REPLAYED:,} per request.",
        replay_dead_letters,
        _REPLAY,
        method="POST",
        answers={
            400: "The letter is not named completely.",
            404: "There is no such letter to replay.",
            503: "Another request replays letters.",
        },
    ),
)
