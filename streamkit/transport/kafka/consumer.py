"""The Kafka consumer: partitions assigned by hand, records as columns, positions kept here."""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any

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
from streamkit.record import RecordBatch, TopicPartition
from streamkit.transport.base import EARLIEST, LATEST, CommittedOffset, Consumer
from streamkit.transport.kafka.columns import is_clean, split, to_batches
from streamkit.transport.kafka.errors import UNKNOWN, kafka_error, logger, translate
from streamkit.transport.kafka.oauth import for_librdkafka

if TYPE_CHECKING:
    from streamkit.transport.kafka.committed import CommittedOffsets

log = logging.getLogger(__name__)

# A paused partition's records that arrive are held back, up to this many; then librdkafka is told to pause, which
# throws away what it has fetched and fetches it again on resume.
HELD_RECORDS = 20_000
# How long no broker may answer before poll gives up: longer than a broker's restart.
UNREACHABLE_SECONDS = 60.0
RETRY_SECONDS = 0.1
# How long a topic may be unknown: what a broker that has just started tells of topics is not complete.
INCOMPLETE_SECONDS = 3.0
NO_GROUP = "streamkit-no-group"
"""librdkafka wants a group even of a consumer that never commits."""
# With auto.offset.reset=error librdkafka says the second for the first.
OUT_OF_RANGE = {"OFFSET_OUT_OF_RANGE", "_AUTO_OFFSET_RESET"}
_PASSING = {"_ALL_BROKERS_DOWN", "_TRANSPORT", "_RESOLVE", "_TIMED_OUT"}


class KafkaConsumer(Consumer):
    """A librdkafka consumer; `timeout` seconds bound each call that waits for an answer, except poll."""

    def __init__(self, config: dict[str, Any], timeout: float, committed: CommittedOffsets):
        self._address = config["bootstrap.servers"]
        self._group = config["group.id"]
        self._timeout = timeout
        self._committed = committed
        self._positions: dict[TopicPartition, int] = {}
        self._ends: dict[TopicPartition, int] = {}
        self._paused: set[TopicPartition] = set()
        self._stopped: set[TopicPartition] = set()
        self._held: dict[TopicPartition, deque[RecordBatch]] = {}
        self._single: TopicPartition | None = None
        self._down_since: float | None = None
        try:
            self._client = Client({**for_librdkafka(config), "error_cb": self._on_error}, logger=logger)
        except KafkaException as error:
            raise translate(error, "the consumer was refused its settings", self._address) from error

    def assign(self, positions: Mapping[TopicPartition, int]) -> None:
        self.remove(list(self._positions))
        self.add(positions)

    def add(self, positions: Mapping[TopicPartition, int]) -> None:
        if not positions:
            return
        exact = {partition: offset for partition, offset in positions.items() if offset >= 0}
        # Named positions become numbers now: "latest" is the end at this moment, not at the first fetch.
        for name, find in ((EARLIEST, self.beginning_offsets), (LATEST, self.end_offsets)):
            named = [partition for partition, offset in positions.items() if offset == name]
            if named:
                exact.update(find(named))
        wanted = [KafkaPartition(p.topic, p.partition, offset) for p, offset in exact.items()]
        self._call(self._client.incremental_assign, "partitions could not be assigned", wanted)
        self._positions.update(exact)
        self._assignment_changed()

    def remove(self, partitions: Iterable[TopicPartition]) -> None:
        gone = [partition for partition in partitions if partition in self._positions]
        if not gone:
            return
        self._call(self._client.incremental_unassign, "partitions could not be given up", _kafka(gone))
        for partition in gone:
            del self._positions[partition]
            self._ends.pop(partition, None)
            self._held.pop(partition, None)
        self._paused.difference_update(gone)
        self._stopped.difference_update(gone)
        self._assignment_changed()

    def poll(self, max_records: int, timeout_ms: int) -> list[RecordBatch]:
        if self._held:
            ready = self._take_held(max_records)
            if ready:
                return ready
        consume = self._client.consume
        deadline = None
        while True:
            # With a timeout consume() waits until it has all max_records; so take what there is, then wait for one.
            messages = self._call(consume, "records could not be read", max_records, 0)
            if not messages:
                if deadline is None:
                    deadline = monotonic() + timeout_ms / 1000
                left = deadline - monotonic()
                messages = self._call(consume, "records could not be read", 1, max(left, 0))
                if not messages:
                    self._check_reachable()
                    return []
                if max_records > 1:
                    messages += self._call(consume, "records could not be read", max_records - 1, 0)
            batches = to_batches(messages, self._single)
            if not is_clean(batches):
                batches = self._without_events(messages)
            if self._paused:
                batches = self._hold_paused(batches)
            if batches:
                self._down_since = None
                self._advance(batches)
                return batches

    def pause(self, partitions: Iterable[TopicPartition]) -> None:
        self._paused.update(p for p in partitions if p in self._positions)

    def resume(self, partitions: Iterable[TopicPartition]) -> None:
        awake = [partition for partition in partitions if partition in self._paused]
        self._paused.difference_update(awake)
        stopped = self._stopped.intersection(awake)
        if stopped:
            self._stopped -= stopped
            self._call(self._client.resume, "partitions could not be resumed", _kafka(stopped))

    def position(self, partition: TopicPartition) -> int:
        try:
            position = self._positions[partition]
        except KeyError as error:
            raise TransportError(f"{partition.topic} [{partition.partition}] is not assigned") from error
        if partition in self._held:
            return position
        return max(position, self._ends.get(partition, 0))

    def lags(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        # Known from what was fetched, as in Java's client: a question would wait for the fetch that the broker is holding.
        return {
            partition: 0
            for partition in partitions
            if partition not in self._held and self._ends.get(partition, -1) >= self._positions.get(partition, 0)
        }

    def end_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return self._list_offsets(dict.fromkeys(partitions, LATEST))

    def beginning_offsets(self, partitions: Sequence[TopicPartition]) -> dict[TopicPartition, int]:
        return self._list_offsets(dict.fromkeys(partitions, EARLIEST))

    def offsets_for_times(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        found = self._list_offsets({partition: max(time, 0) for partition, time in times.items()})
        none = [partition for partition, offset in found.items() if offset < 0]
        return {**found, **self.end_offsets(none)}

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
        return self._client.consumer_group_metadata()

    def close(self) -> None:
        self._client.close()

    def _list_offsets(self, times: Mapping[TopicPartition, int]) -> dict[TopicPartition, int]:
        """Ask for offsets by time, or by EARLIEST and LATEST, which are the protocol's own numbers, in one request a broker."""
        if not times:
            return {}
        what = "offsets could not be looked up"
        wanted = [KafkaPartition(p.topic, p.partition, time) for p, time in times.items()]
        found = self._ask(self._client.offsets_for_times, what, wanted)
        return {TopicPartition(p.topic, p.partition): p.offset for p in found}

    def _ask(self, function: Callable, what: str, wanted: list[KafkaPartition]) -> list[KafkaPartition]:
        """Ask brokers about partitions, again while the fault is a passing one and time is left.

        As Java's client does: a new topic's leader or a group's coordinator may not have taken up its work yet.
        """
        began = monotonic()
        while True:
            try:
                found = self._call(function, what, wanted, self._timeout)
                self._raise_first(found, what)
                return found
            except RetriableTransportError:
                if monotonic() > began + self._timeout:
                    raise
            except TopicError as error:
                if monotonic() > began + INCOMPLETE_SECONDS:
                    if kafka_error(error.__cause__).name() in UNKNOWN:
                        raise UnknownTopicError(str(error)) from error.__cause__
                    raise
            sleep(RETRY_SECONDS)

    def _call(self, function: Callable, what: str, *arguments: Any) -> Any:
        try:
            return function(*arguments)
        except KafkaException as error:
            raise translate(error, what, self._address) from error

    def _raise_first(self, partitions: Iterable[Any], what: str) -> None:
        for partition in partitions:
            if partition.error is not None:
                where = f"{what}: {partition.topic} [{partition.partition}]"
                raise translate(partition.error, where, self._address) from KafkaException(partition.error)

    def _assignment_changed(self) -> None:
        self._single = next(iter(self._positions)) if len(self._positions) == 1 else None

    def _advance(self, batches: list[RecordBatch]) -> None:
        for batch in batches:
            self._positions[TopicPartition(batch.topic, batch.partition)] = batch.offsets[-1] + 1

    def _without_events(self, messages: list[Any]) -> list[RecordBatch]:
        """Take ends of partitions from the messages and raise the first real error. Records without a time stay."""
        records = [message for message in messages if message.error() is None]
        for message in messages:
            error = message.error()
            if error is None:
                continue
            self._down_since = None
            place = TopicPartition(message.topic(), message.partition())
            if error.code() == KafkaError._PARTITION_EOF:
                self._ends[place] = message.offset()
            elif error.name() == "GROUP_AUTHORIZATION_FAILED" and self._group == NO_GROUP:
                continue  # librdkafka looks for the coordinator of any group, which is not used here.
            elif error.name() not in _PASSING:
                # What came with the error would be lost, as librdkafka's position is past it.
                self._keep(to_batches(records, None) if records else [])
                of = f"{place.topic} [{place.partition}]" if place.topic is not None else "records"
                where = f"{of} could not be read"
                if error.name() in OUT_OF_RANGE:
                    raise OffsetOutOfRangeError(f"{where}: {error.str()}", *place) from KafkaException(error)
                raise translate(error, where, self._address) from KafkaException(error)
        return to_batches(records, None) if records else []

    def _keep(self, batches: list[RecordBatch]) -> None:
        for batch in batches:
            self._held.setdefault(TopicPartition(batch.topic, batch.partition), deque()).append(batch)

    def _hold_paused(self, batches: list[RecordBatch]) -> list[RecordBatch]:
        ready = []
        for batch in batches:
            place = TopicPartition(batch.topic, batch.partition)
            if place not in self._paused:
                ready.append(batch)
                continue
            self._keep([batch])
            if place not in self._stopped and sum(map(len, self._held[place])) >= HELD_RECORDS:
                self._call(self._client.pause, "partitions could not be paused", _kafka([place]))
                self._stopped.add(place)
        return ready

    def _take_held(self, max_records: int) -> list[RecordBatch]:
        ready: list[RecordBatch] = []
        left = max_records
        for place in [place for place in self._held if place not in self._paused]:
            waiting = self._held[place]
            while waiting and left > 0:
                batch = waiting.popleft()
                if len(batch) > left:
                    batch, rest = split(batch, left)
                    waiting.appendleft(rest)
                ready.append(batch)
                left -= len(batch)
            if not waiting:
                del self._held[place]
        self._advance(ready)
        return ready

    def _on_error(self, error: KafkaError) -> None:
        if error.name() in _PASSING and self._down_since is None:
            self._down_since = monotonic()
            log.warning("the connection to %s is lost (%s); trying again", self._address, error.str())

    def _check_reachable(self) -> None:
        """Raise UnreachableError when brokers were reported down long ago and still none answers."""
        if self._down_since is None or monotonic() - self._down_since < min(UNREACHABLE_SECONDS, self._timeout * 4):
            return
        try:
            self._client.list_topics(timeout=1)
        except KafkaException as error:
            text = f"no Kafka broker answers at {self._address} ({kafka_error(error).str()})"
            raise UnreachableError(text) from error
        self._down_since = None


def _kafka(partitions: Iterable[TopicPartition]) -> list[KafkaPartition]:
    return [KafkaPartition(partition.topic, partition.partition) for partition in partitions]
