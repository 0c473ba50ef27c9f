"""The Kafka consumer: manual assignment, records as columns, positions tracked here."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from threading import Thread
from time import monotonic, sleep
from typing import TYPE_CHECKING, NamedTuple, Protocol, TypeVar, TypeVarTuple, cast

from confluent_kafka import Consumer as Client
from confluent_kafka import KafkaError, KafkaException
from confluent_kafka import TopicPartition as KafkaPartition

from streamkit.errors import (
    OffsetOutOfRangeError,
    RetriableTransportError,
    TopicError,
    TransportError,
    UnknownTopicError,
    UnreachableError,
)
from streamkit.record import Columns, Headers, RecordBatch, TopicPartition
from streamkit.transport.kafka.kafka_errors import UNKNOWN, kafka_error, logger, translate
from streamkit.transport.kafka.native_client import create_consumer
from streamkit.transport.kafka.oauth import for_librdkafka
from streamkit.transport.log_interface import EARLIEST, LATEST, CommittedOffset, Consumer

if TYPE_CHECKING:
    from streamkit import _native
    from streamkit.transport.kafka.kafka_membership import CommittedOffsets


log = logging.getLogger(__name__)

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")

# Records of a paused partition are buffered, up to this many; then librdkafka pauses the partition too, which drops the
# records that it has fetched and fetches them again on resume.
MAX_BUFFERED_RECORDS = 20_000
# Seconds without a response from any broker after which poll raises; longer than a broker's restart.
UNREACHABLE_SECONDS = 60.0
RETRY_SECONDS = 0.1
REFRESH_SECONDS = 1.0
# Seconds between two looks for partitions that librdkafka has ceased to fetch, and the longest pause between them.
FETCH_CHECK_SECONDS = 15.0
LONGEST_FETCH_CHECK_SECONDS = 240.0
ENDS_SECONDS = 3.0
BLIND_LOOKS = 2
# Seconds for which a topic may be unknown, since the metadata of a broker that has just started is incomplete.
INCOMPLETE_SECONDS = 3.0
NO_GROUP = "streamkit-no-group"
"""librdkafka requires a group even for a consumer that never commits."""
# With auto.offset.reset=error, librdkafka reports the second instead of the first.
OUT_OF_RANGE = {"OFFSET_OUT_OF_RANGE", "_AUTO_OFFSET_RESET"}
_TRANSIENT = {"_ALL_BROKERS_DOWN", "_TRANSPORT", "_RESOLVE", "_TIMED_OUT"}


class KafkaConsumer(Consumer):
    """A librdkafka consumer; `timeout` seconds limit each call that waits for a response, except poll."""

    def __init__(self, config: dict[str, str], timeout: float, committed: CommittedOffsets):
        self._address = config["bootstrap.servers"]
        self._group = config["group.id"]
        self._timeout = timeout
        self._committed = committed
        self._positions: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._paused_in_client: set[TopicPartition] = set()
        self._buffered: dict[TopicPartition, deque[RecordBatch]] = {}
        self._drained = False
        """Whether the last read took all that librdkafka had fetched."""
        self._late_events: list[Event] = []
        """Events that arrived together with one that raised an error."""
        self._down_since: float | None = None
        self._next_try = 0.0
        self._standstill = Standstill()
        self._config = config
        self._client, self._reader = self._connect()

    def _connect(self) -> tuple[Client, Reader]:
        try:
            client, link = create_consumer({**for_librdkafka(self._config), "error_cb": self._on_error}, logger)
        except KafkaException as error:
            raise translate(error, "the settings of the consumer were rejected", self._address) from error
        return client, MessageReader(client) if link is None else NativeReader(client, link)

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        self.remove(list(self._positions))
        self.add(positions)

    def add(self, positions: Mapping[TopicPartition, int]) -> None:
        if not positions:
            return
        exact = {partition: offset for partition, offset in positions.items() if offset >= 0}
        # EARLIEST and LATEST become offsets now: "latest" is the end at this moment, not at the first fetch.
        for name, find in ((EARLIEST, self.beginning_offsets), (LATEST, self.end_offsets)):
            named = [partition for partition, offset in positions.items() if offset == name]
            if named:
                exact.update(find(named))
        self._assign_in(self._client, self._reader, exact)
        self._positions.update(exact)

    def _assign_in(self, client: Client, reader: Reader, positions: Mapping[TopicPartition, int]) -> None:
        wanted = [KafkaPartition(p.topic, p.partition, offset) for p, offset in positions.items()]
        reader.forward(list(positions))
        self._call(client.incremental_assign, "partitions could not be assigned", wanted)

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        gone = [partition for partition in partitions if partition in self._positions]
        if not gone:
            return
        # First, because librdkafka keeps a partition paused even if it is assigned again.
        self.resume(gone)
        self._call(self._client.incremental_unassign, "partitions could not be given up", _kafka(gone))
        for partition in gone:
            del self._positions[partition]
            self._ends.pop(partition, None)
            self._buffered.pop(partition, None)
        self._late_events = [event for event in self._late_events if (event.topic, event.partition) not in gone]
        self._reader.forget(gone)

    def poll(self, max_records: int, timeout_ms: int) -> list[RecordBatch]:
        if self._late_events:
            events, self._late_events = self._late_events, []
            self._note_events(events, [])
        if self._buffered:
            ready = self._take_buffered(max_records)
            if ready:
                return ready
        now = monotonic()
        # A client that has records for each poll may have ceased to fetch one of its partitions too.
        if now >= self._standstill.due + (0 if self._drained else 2 * FETCH_CHECK_SECONDS):
            self._check_fetching(now)
        deadline = now + timeout_ms / 1000
        while True:
            left = max(deadline - monotonic(), 0)
            batches, events = self._call(self._reader.take, "records could not be read", max_records, left)
            self._drained = sum(map(len, batches)) < max_records
            if not batches and not events:
                self._check_reachable()
                return []
            if events:
                self._down_since = None
                self._note_events(events, batches)
            if self._paused:
                batches = self._buffer_paused(batches)
            if batches:
                self._down_since = None
                self._advance(batches)
                return batches

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self._paused.update(p for p in partitions if p in self._positions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        awake = [partition for partition in partitions if partition in self._paused]
        self._paused.difference_update(awake)
        stopped = self._paused_in_client.intersection(awake)
        if stopped:
            self._paused_in_client -= stopped
            self._call(self._client.resume, "partitions could not be resumed", _kafka(stopped))

    def position(self, partition: TopicPartition) -> int:
        try:
            position = self._positions[partition]
        except KeyError as error:
            raise TransportError(f"{partition.topic} [{partition.partition}] is not assigned") from error
        if partition in self._buffered:
            return position
        return max(position, self._ends.get(partition, 0))

    def lags(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        # From the last fetch, as in Java's client, because a request would wait behind the fetch that the broker is delaying.
        return {
            partition: 0
            for partition in partitions
            if partition not in self._buffered and self._ends.get(partition, -1) >= self._positions.get(partition, 0)
        }

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return self._list_offsets(dict.fromkeys(partitions, LATEST))

    def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return self._list_offsets(dict.fromkeys(partitions, EARLIEST))

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        offsets = self._list_offsets({partition: max(time, 0) for partition, time in times.items()})
        none = [partition for partition, offset in offsets.items() if offset < 0]
        return {**offsets, **self.end_offsets(none)}

    def committed(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, CommittedOffset]:
        return self._committed.read(partitions) if partitions else {}

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset]) -> None:
        if not offsets:
            return
        rows = [KafkaPartition(p.topic, p.partition, c.offset, c.metadata) for p, c in offsets.items()]
        what = "offsets could not be committed"
        try:
            done = self._client.commit(offsets=rows, asynchronous=False)
        except KafkaException as error:
            raise translate(error, what, self._address) from error
        self._raise_first(done, what)

    def group_metadata(self) -> bytes:
        metadata: bytes = self._client.consumer_group_metadata()
        return metadata

    def close(self) -> None:
        self._reader.close()
        self._client.close()

    def _list_offsets(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Request offsets by time, or by EARLIEST and LATEST, which are numbers of the protocol; one request per broker."""
        if not times:
            return {}
        what = "offsets could not be looked up"
        wanted = [KafkaPartition(p.topic, p.partition, time) for p, time in times.items()]
        offsets = self._request(self._client.offsets_for_times, what, wanted)
        return {TopicPartition(p.topic, p.partition): p.offset for p in offsets}

    def _request(
        self,
        function: Callable[[list[KafkaPartition], float], list[KafkaPartition]],
        what: str,
        wanted: list[KafkaPartition],
    ) -> list[KafkaPartition]:
        """Call a function that sends a request about partitions; repeat it after transient errors while time is left.

        Java's client does the same: the leader of a new topic or the coordinator of a group may not be ready yet.
        """
        began = monotonic()
        while True:
            answered: list[KafkaPartition] = []
            try:
                answered = self._call(function, what, wanted, self._timeout)
                self._raise_first(answered, what)
                return answered
            except RetriableTransportError:
                if monotonic() > began + self._timeout:
                    raise
            except TopicError as error:
                if monotonic() > began + INCOMPLETE_SECONDS:
                    if kafka_error(error.__cause__).name() in UNKNOWN:
                        raise UnknownTopicError(str(error)) from error.__cause__
                    raise
            sleep(RETRY_SECONDS)
            without = {partition.topic for partition in answered if partition.error is not None} or {
                partition.topic for partition in wanted
            }
            self._refresh_leaders(without, began + self._timeout)

    def _refresh_leaders(self, topics: Iterable[str], deadline: float) -> None:
        """Look up the leaders of partitions: requests about one that had none would not, for topic.metadata.refresh.interval.ms."""
        for topic in topics:
            if monotonic() < deadline:
                with suppress(KafkaException):
                    self._client.list_topics(topic, REFRESH_SECONDS)

    def _check_fetching(self, now: float) -> None:
        """Replace the client if it has ceased to fetch partitions that have records, as happens after restarts of brokers."""
        waiting = self._positions.keys() - self._paused - self._buffered.keys()
        # A client that no longer serves anything would never notice that brokers are back.
        is_down = self._down_since is not None and now - self._down_since < self._patience
        positions = {} if is_down else {place: self.position(place) for place in waiting}
        stuck = self._standstill.look(now, positions, self._ends_now)
        if not stuck:
            return
        places = ", ".join(f"{place.topic}-{place.partition} at {positions[place]}" for place in sorted(stuck))
        log.warning("the client has stopped reading %s, although there are records; it is replaced", places)
        self._replace(*self._connect())

    def _replace(self, client: Client, reader: Reader) -> None:
        """Read on with a new client. Raises TransportError, and keeps the old one, if it can't be assigned the partitions."""
        try:
            self._assign_in(client, reader, self._positions)
        except TransportError:
            _close_in_thread(client, reader)
            raise
        _close_in_thread(self._client, self._reader)
        self._client, self._reader, self._down_since = client, reader, None
        # The new client reads the kept records again; partition ends that the old client has seen may come after them.
        self._late_events.clear()
        self._buffered.clear()
        self._ends.clear()
        self._paused_in_client.clear()

    def _ends_now(self, partitions: Iterable[TopicPartition], new_client: bool) -> dict[TopicPartition, int]:
        """Return the ends of partitions, without those whose ends are not available at once. `new_client`: request them with a new client."""
        wanted = [KafkaPartition(p.topic, p.partition, LATEST) for p in partitions]
        if not new_client:
            return _ends_from(self._client, wanted)
        client, reader = self._connect()
        ends = _ends_from(client, wanted)
        _close_in_thread(client, reader)
        return ends

    def _call(self, function: Callable[[*Arguments], Result], what: str, *arguments: *Arguments) -> Result:
        try:
            return function(*arguments)
        except KafkaException as error:
            raise translate(error, what, self._address) from error

    def _raise_first(self, partitions: Iterable[KafkaPartition], what: str) -> None:
        for partition in partitions:
            if partition.error is not None:
                where = f"{what}: {partition.topic} [{partition.partition}]"
                raise translate(partition.error, where, self._address) from KafkaException(partition.error)

    def _advance(self, batches: list[RecordBatch]) -> None:
        for batch in batches:
            self._positions[TopicPartition(batch.topic, batch.partition)] = batch.offsets[-1] + 1

    def _note_events(self, events: list[Event], batches: list[RecordBatch]) -> None:
        """Note the ends of partitions; raise the first error that is not transient.

        The records that arrived with it and the events after it are kept for the next polls, since librdkafka reports each
        event once.
        """
        delivered = {TopicPartition(batch.topic, batch.partition) for batch in batches}
        early: list[Event] = []
        for number, event in enumerate(events, 1):
            error, place = event.error, TopicPartition(event.topic or "", event.partition)
            if error.code() == KafkaError._PARTITION_EOF:
                self._ends[place] = event.offset
            elif error.name() == "GROUP_AUTHORIZATION_FAILED" and self._group == NO_GROUP:
                continue  # librdkafka looks up the coordinator of every group, but it is not used here.
            elif error.name() in UNKNOWN:
                self._on_error(error)
            elif error.name() in OUT_OF_RANGE and (place in delivered or place in self._buffered):
                early.append(event)  # the caller will read on elsewhere, and would lose the records before it
            elif error.name() not in _TRANSIENT:
                # librdkafka's position is after the records that arrived with the error.
                self._buffer(batches)
                self._late_events = [*early, *events[number:]]
                place_text = f"{place.topic} [{place.partition}]" if event.topic is not None else "records"
                where = f"{place_text} could not be read"
                if error.name() in OUT_OF_RANGE:
                    raise OffsetOutOfRangeError(f"{where}: {error.str()}", *place) from KafkaException(error)
                raise translate(error, where, self._address) from KafkaException(error)
        self._late_events = early

    def _buffer(self, batches: list[RecordBatch]) -> None:
        for batch in batches:
            self._buffered.setdefault(TopicPartition(batch.topic, batch.partition), deque()).append(batch)

    def _buffer_paused(self, batches: list[RecordBatch]) -> list[RecordBatch]:
        ready = [batch for batch in batches if (batch.topic, batch.partition) not in self._paused]
        self._buffer([batch for batch in batches if (batch.topic, batch.partition) in self._paused])
        full = [
            place
            for place in self._paused.difference(self._paused_in_client).intersection(self._buffered)
            if sum(map(len, self._buffered[place])) >= MAX_BUFFERED_RECORDS
        ]
        if full:
            try:
                self._call(self._client.pause, "partitions could not be paused", _kafka(full))
            except TransportError:
                self._buffer(ready)
                raise
            self._paused_in_client.update(full)
        return ready

    def _take_buffered(self, max_records: int) -> list[RecordBatch]:
        ready: list[RecordBatch] = []
        left = max_records
        for place in [place for place in self._buffered if place not in self._paused]:
            waiting = self._buffered[place]
            while waiting and left > 0:
                batch = waiting.popleft()
                if len(batch) > left:
                    waiting.appendleft(batch.slice(left, len(batch)))
                    batch = batch.slice(0, left)
                ready.append(batch)
                left -= len(batch)
            if not waiting:
                del self._buffered[place]
        self._advance(ready)
        return ready

    def _on_error(self, error: KafkaError) -> None:
        if error.name() in _TRANSIENT and self._down_since is None:
            self._down_since = monotonic()
            log.warning("the connection to %s is lost (%s); trying again", self._address, error.str())
        elif error.name() in UNKNOWN:
            # librdkafka continues once it exists: the metadata of a broker that has just started is incomplete.
            log.warning("the broker does not know a partition to read: %s; waiting for it", error.str())

    @property
    def _patience(self) -> float:
        """Seconds without a response from any broker after which poll raises."""
        return min(UNREACHABLE_SECONDS, self._timeout * 4)

    def _check_reachable(self) -> None:
        """Raise UnreachableError if the brokers have been down for long and still none responds."""
        if self._down_since is None or monotonic() - self._down_since < self._patience:
            return
        try:
            self._client.list_topics(timeout=1)
        except KafkaException as error:
            if not self._replace_unanswered():
                text = f"no Kafka broker answers at {self._address} ({kafka_error(error).str()})"
                raise UnreachableError(text) from error
        self._down_since = None

    def _replace_unanswered(self) -> bool:
        """Read on with a new client if it gets a response; return whether it does: librdkafka may miss that brokers are back."""
        now = monotonic()
        if now < self._next_try:
            return False
        self._next_try = now + FETCH_CHECK_SECONDS
        client, reader = self._connect()
        try:
            client.list_topics(timeout=ENDS_SECONDS)
        except KafkaException:
            _close_in_thread(client, reader)
            return False
        log.warning("the client gets no answer from %s, although a new one does; it is replaced", self._address)
        self._replace(client, reader)
        return True


class Standstill:
    """Finds partitions that a client has ceased to fetch.

    It compares positions and ends in the log every FETCH_CHECK_SECONDS. A partition is stuck if its position is the same
    in three looks while there were records after it in the last two. After each find the pause is doubled, as a client may
    need long for a part of the log that contains only aborted records. A client that does not read may get no response to
    the request for the ends either: after BLIND_LOOKS without one, a new client asks. Not at once, because brokers that are
    slow or restart would have to serve many new clients.
    """

    def __init__(self) -> None:
        self.due = monotonic() + FETCH_CHECK_SECONDS
        """When the next look is due, by the monotonic clock."""
        self._pause = FETCH_CHECK_SECONDS
        self._positions: Mapping[TopicPartition, int] = {}
        self._behind: set[TopicPartition] = set()
        self._blind = 0

    def look(
        self,
        now: float,
        positions: Mapping[TopicPartition, int],
        ends: Callable[[Iterable[TopicPartition], bool], Mapping[TopicPartition, int]],
    ) -> set[TopicPartition]:
        """Return the partitions of `positions` that are stuck.

        `ends` looks up the ends of those that may, with a new client if its second argument is true.
        """
        silent = {place for place, position in positions.items() if self._positions.get(place) == position}
        # Without a request for partitions that move.
        new_client = self._blind >= BLIND_LOOKS
        newer = ends(silent, new_client) if silent else {}
        self._blind = self._blind + 1 if silent and not newer and not new_client else 0
        behind = {place for place, end in newer.items() if end > positions[place]}
        stuck = behind & self._behind
        if silent and not newer:
            behind = self._behind & silent
        if stuck:
            self._pause = min(2 * self._pause, LONGEST_FETCH_CHECK_SECONDS)
        elif self._positions and not behind:
            self._pause = FETCH_CHECK_SECONDS
        self.due = now + self._pause
        self._positions, self._behind = ({}, set()) if stuck else (positions, behind)
        return stuck


def _ends_from(client: Client, wanted: list[KafkaPartition]) -> dict[TopicPartition, int]:
    try:
        offsets = client.offsets_for_times(wanted, ENDS_SECONDS)
    except KafkaException:
        return {}
    return {TopicPartition(p.topic, p.partition): p.offset for p in offsets if p.error is None}


def _close_in_thread(client: Client, reader: Reader) -> None:
    """Close a client that may be stuck, and take long to close or never end."""

    def close() -> None:
        with suppress(Exception):
            reader.close()
            client.close()

    Thread(target=close, name="closing a consumer", daemon=True).start()


def _kafka(partitions: Iterable[TopicPartition]) -> list[KafkaPartition]:
    return [KafkaPartition(partition.topic, partition.partition) for partition in partitions]


# Reads columns through the native extension, from a separate queue.
# Partitions are forwarded from the client's queue to the extension's queue, which contains only records, ends of partitions and
# errors of partitions. The client's own queue keeps the events that confluent-kafka serves: log lines, statistics, errors of
# the client, tokens. Each `take` lets it serve them.

SLICE_SECONDS = 0.1
"""The longest wait for records before the client's own queue is served again."""
MAX_CLIENT_EVENTS = 100


class NativeReader:
    """Reads through a link of the extension, which belongs to the client."""

    def __init__(self, client: Client, link: _native.Consumer):
        self._consume = cast("Callable[[int, float], list[ConsumedMessage]]", client.consume)
        self._link = link
        self._unproven: set[TopicPartition] = set()
        """Partitions without a record or an end from the link so far: the end of an earlier assignment may still cancel their
        forwarding.
        """

    def forward(self, partitions: Sequence[TopicPartition]) -> None:
        """Forward partitions before they are assigned, so that librdkafka keeps the forwarding."""
        for partition in partitions:
            self._link.forward(*partition)
        self._unproven.update(partitions)

    def forget(self, partitions: Sequence[TopicPartition]) -> None:
        """Stop forwarding these partitions."""
        self._unproven.difference_update(partitions)

    def take(self, max_records: int, seconds: float) -> Taken:
        """Return available records and events; wait for the first one of either. Raises KafkaException."""
        end = monotonic() + seconds
        while True:
            # First, so that later records of a partition do not come before those that wait in the client's queue.
            for partition in self._unproven:
                self._link.forward(*partition)
            # Runs callbacks. A record is here only if it came before its partition was forwarded.
            messages = self._consume(min(MAX_CLIENT_EVENTS, max_records), 0)
            if messages:
                return split(messages)
            left = max(end - monotonic(), 0)
            groups, events = self._link.take(max_records, round(min(left, SLICE_SECONDS) * 1000))
            if groups or events:
                return self._proven(_taken(groups, events))
            if left <= SLICE_SECONDS:
                return [], []

    def close(self) -> None:
        """Free the queue, before the client is closed."""
        self._link.close()

    def _proven(self, taken: Taken) -> Taken:
        if self._unproven:
            batches, events = taken
            self._unproven.difference_update([(batch.topic, batch.partition) for batch in batches])
            # Other errors of a partition may come from its earlier assignment.
            ends = [event for event in events if event.error.code() == KafkaError._PARTITION_EOF]
            self._unproven.difference_update([(event.topic, event.partition) for event in ends])
        return taken


def _taken(groups: Sequence[_native.Group], events: Sequence[_native.Event]) -> Taken:
    batches = [
        RecordBatch(topic, partition, Columns(keys, values, timestamps, headers, offsets), times)
        for topic, partition, keys, values, timestamps, headers, offsets, times in groups
    ]
    reported = [Event(topic, place, offset, KafkaError(code, reason)) for topic, place, offset, code, reason in events]
    return batches, reported


# Columns of librdkafka's messages: the hottest code of the project, hence one comprehension per column.

NO_TIMESTAMP = -1


class Event(NamedTuple):
    """An error or the end of a partition among the records; `topic` is None for an error of the client."""

    topic: str | None
    partition: int
    offset: int
    error: KafkaError


Taken = tuple[list[RecordBatch], list[Event]]
"""Records as batches, and the events among them."""


class Reader(Protocol):
    """Takes records and events that a client has fetched."""

    def forward(self, partitions: Sequence[TopicPartition]) -> None:
        """Prepare for partitions that are about to be assigned."""

    def forget(self, partitions: Sequence[TopicPartition]) -> None:
        """Note that partitions are no longer assigned."""

    def take(self, max_records: int, seconds: float) -> Taken:
        """Return available records and events; wait for the first one of either. Raises KafkaException."""

    def close(self) -> None:
        """Free the reader's resources before the client is closed."""


class ConsumedMessage(Protocol):
    """confluent_kafka.Message with the types of a record; only an event (see `error`) has None in some of them."""

    def topic(self) -> str: ...
    def partition(self) -> int: ...
    def offset(self) -> int: ...
    def key(self) -> bytes | None: ...
    def value(self) -> bytes | None: ...
    def headers(self) -> Headers | None: ...
    def timestamp(self) -> tuple[int, int]: ...
    def error(self) -> KafkaError | None: ...


class MessageReader:
    """Reads through confluent-kafka's messages."""

    def __init__(self, client: Client):
        # The stub of a message allows None in each field, which only events have.
        self._consume = cast("Callable[[int, float], list[ConsumedMessage]]", client.consume)
        self._assigned: set[TopicPartition] = set()

    def forward(self, partitions: Sequence[TopicPartition]) -> None:
        self._assigned.update(partitions)

    def forget(self, partitions: Sequence[TopicPartition]) -> None:
        self._assigned.difference_update(partitions)

    def take(self, max_records: int, seconds: float) -> Taken:
        # With a time-out, consume() waits for all max_records, so take available records first, then wait for one.
        messages = self._consume(max_records, 0)
        if not messages and seconds > 0:
            messages = self._consume(1, seconds)
            if messages and max_records > 1:
                messages += self._consume(max_records - 1, 0)
        only = next(iter(self._assigned)) if len(self._assigned) == 1 else None
        return split(messages, only) if messages else ([], [])

    def close(self) -> None:
        """Do nothing, since the client owns all resources."""


def split(messages: Sequence[ConsumedMessage], only: TopicPartition | None = None) -> Taken:
    """Return the records among messages as one batch per partition, in the order of first appearance, and the events.

    only: the only assigned partition; None if there are several.
    """
    batches = _to_batches(messages) if only is None else [_batch(*only, messages)]
    # Events, and few records, have no timestamp.
    if not any(NO_TIMESTAMP in batch.timestamps for batch in batches):
        return batches, []
    records, events = [], []
    for message in messages:
        error = message.error()
        if error is None:
            records.append(message)
        else:
            events.append(Event(message.topic(), message.partition(), message.offset(), error))
    return _to_batches(records) if records else [], events


def _to_batches(messages: Sequence[ConsumedMessage]) -> list[RecordBatch]:
    numbers = [m.partition() for m in messages]
    topics = [m.topic() for m in messages]
    first = (topics[0], numbers[0])
    if numbers.count(first[1]) == len(numbers) and topics.count(first[0]) == len(topics):
        return [_batch(*first, messages)]
    groups: dict[tuple[str, int], list[ConsumedMessage]] = {}
    last: tuple[str, int] | None = None
    add: Callable[[ConsumedMessage], None] = list[ConsumedMessage]().append
    # Messages arrive in runs of one partition, so most iterations are a comparison and an append.
    for place, message in zip(zip(topics, numbers, strict=True), messages, strict=True):
        if place != last:
            last, add = place, groups.setdefault(place, []).append
        add(message)
    return [_batch(topic, number, group) for (topic, number), group in groups.items()]


def _batch(topic: str, partition: int, messages: Sequence[ConsumedMessage]) -> RecordBatch:
    first, last = messages[0].offset(), messages[-1].offset()
    # Offsets ascend: if the first and the last match the count, there is no gap. An error of the client has no offset.
    gapless = first is not None and last is not None and last - first + 1 == len(messages)
    return RecordBatch(
        topic,
        partition,
        Columns(
            [m.key() for m in messages],
            [m.value() for m in messages],
            [m.timestamp()[1] for m in messages],
            [m.headers() for m in messages],
            list(range(first, last + 1)) if gapless else [m.offset() for m in messages],
        ),
    )
