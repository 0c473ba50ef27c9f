"""The Kafka producer: rows to `produce`, errors collected from delivery reports."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from threading import Thread
from time import monotonic
from typing import Any

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaError, KafkaException, Message
from confluent_kafka import Producer as Client
from confluent_kafka import TopicPartition as KafkaPartition

from streamkit.errors import (
    FencedError,
    ProductionError,
    RetriableTransportError,
    StreamkitError,
    TransportError,
    UnreachableError,
)
from streamkit.record import OutputRow, TopicPartition
from streamkit.transport.base import CommittedOffset, Producer
from streamkit.transport.kafka.errors import LOST_SEQUENCE, UNKNOWN, call, kafka_error, translate
from streamkit.transport.kafka.oauth import for_librdkafka

_FULL_QUEUE_WAIT = 0.05
_WAIT_AFTER_LOSS = 3.0
"""Seconds for the offsets of a transaction, or its abort, once a broker was lost: librdkafka may wait for the coordinator
as it knew it without an end, where a new producer ends the transaction at once."""
# What Java's default production handler has written again. Not so a missing topic, which it waits for without an end.
_RETRIABLE = {
    "_MSG_TIMED_OUT",
    # What a transaction that has failed already says to everything but its abort.
    "_STATE",
    "KAFKA_STORAGE_ERROR",
    "NETWORK_EXCEPTION",
    "NOT_ENOUGH_REPLICAS",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
    "NOT_LEADER_FOR_PARTITION",
    "REQUEST_TIMED_OUT",
    *LOST_SEQUENCE,
}


class KafkaProducer(Producer):
    """A librdkafka producer; `timeout` seconds bound each transactional call."""

    def __init__(self, config: dict[str, Any], timeout: float, logger: logging.Logger):
        self._address = config["bootstrap.servers"]
        self._timeout = timeout
        self._transactional = "transactional.id" in config
        self._initialised = False
        self._lost = False
        self._disconnected = False
        """Whether a broker was lost since offsets were last added to a transaction."""
        self._failure: StreamkitError | None = None
        self._refused: list[tuple] = []
        reports = {"delivery.report.only.error": True, "on_delivery": self._on_error, "error_cb": self._on_client_error}
        try:
            self._client = Client({**for_librdkafka(config), **reports}, logger=logger)
        except KafkaException as error:
            raise translate(error, "the producer was refused its settings", self._address) from error

    def send(self, rows: Sequence[OutputRow | tuple]) -> None:
        produce = self._client.produce
        iterator = iter(rows)
        while True:
            try:
                # A try around the loop costs nothing; the row that failed is in hand, the iterator goes on behind it.
                for topic, key, value, timestamp, headers, partition in iterator:
                    # produce(topic, value, key, partition, callback, on_delivery, timestamp, headers): by position is
                    # faster than by name. To librdkafka 0 is now, so event time 0 becomes 1.
                    produce(
                        topic,
                        value,
                        key,
                        -1 if partition is None else partition,
                        None,
                        None,
                        (timestamp or 1) if timestamp is not None and timestamp != -1 else 0,
                        headers,  # type: ignore[arg-type]
                    )
                break
            except BufferError:
                self._send_when_free((topic, key, value, timestamp, headers, partition))
            except KafkaException as error:
                self._refuse((topic, key, value, timestamp, headers, partition), kafka_error(error), error)
        self._serve(self._client.poll, 0)
        self._raise_failure()

    def _send_when_free(self, row: tuple) -> None:
        topic, key, value, timestamp, headers, partition = row
        time = (timestamp or 1) if timestamp is not None and timestamp != -1 else 0
        place = -1 if partition is None else partition
        while True:
            self._serve(self._client.poll, _FULL_QUEUE_WAIT)
            try:
                return self._client.produce(topic, value, key, place, None, None, time, headers)
            except BufferError:
                continue
            except KafkaException as error:
                return self._refuse(row, kafka_error(error), error)

    def flush(self) -> None:
        # The queue empties within delivery.timeout.ms, be it by failures.
        while self._serve(self._client.flush, 1.0):
            self._raise_failure()
        self._raise_failure()

    def begin(self) -> None:
        self._need_transactions()
        if not self._initialised:
            self._call(self._client.init_transactions, "the transactional id could not be taken", self._timeout)
            self._initialised = True
        self._forget()
        self._call(self._client.begin_transaction, "a transaction could not begin")

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset], group_metadata: bytes | None) -> None:
        self._need_transactions()
        self.flush()
        if offsets:
            if group_metadata is None:
                raise TransportError("offsets in a transaction need the metadata of their group")
            positions = [KafkaPartition(p.topic, p.partition, c.offset, c.metadata) for p, c in offsets.items()]
            self._call(
                self._client.send_offsets_to_transaction,
                "offsets could not be added to the transaction",
                positions,
                group_metadata,
                self._timeout,
            )
            self._disconnected = False
        self._call(self._client.commit_transaction, "the transaction could not be committed", self._timeout)
        self._raise_failure()

    def abort(self) -> None:
        self._need_transactions()
        seconds = min(_WAIT_AFTER_LOSS, self._timeout) if self._disconnected else self._timeout
        self._call(self._client.abort_transaction, "the transaction could not be aborted", seconds)
        self._forget()

    def close(self) -> None:
        if self._lost:
            return
        # A producer that was fenced raises this at every call; its owner knows it already.
        with suppress(KafkaException, SystemError):
            if not self._transactional:
                self._client.flush(self._timeout)
            self._client.purge()
            self._client.poll(0)

    def _serve(self, function: Callable, seconds: float) -> Any:
        """Let librdkafka call back; a fatal error (fenced) comes out of it, also wrapped by the callback it interrupts."""
        try:
            return call(function, seconds)
        except (KafkaException, SystemError) as error:
            found = error if isinstance(error, KafkaException) else error.__cause__
            if not isinstance(found, KafkaException):
                # Fenced, too: the fatal error went to a callback of another call, and this one has none to raise.
                kind = FencedError if self._transactional else RetriableTransportError
                raise kind("the producer failed for good") from error
            raise translate(found, "records could not be written", self._address) from error

    def _call(self, function: Callable, what: str, *arguments: Any) -> None:
        """Call a transactional function, again while librdkafka calls the error retriable and time is left.

        The last argument, if any, is the function's own time-out in seconds.
        """
        deadline = monotonic() + (arguments[-1] if arguments else self._timeout)
        while True:
            try:
                self._bounded(function, what, *arguments)
                return
            except KafkaException as error:
                inner = kafka_error(error)
                if inner.retriable() and monotonic() < deadline:
                    continue
                translated = self._transaction_error(error, what)
                # Not every lost connection is reported.
                self._disconnected = self._disconnected or isinstance(translated, UnreachableError)
                raise translated from error

    def _bounded(self, function: Callable, what: str, *arguments: Any) -> None:
        """Call and wait no longer than twice the time-out, for offsets _WAIT_AFTER_LOSS seconds once a broker was lost.

        A broker that is back before librdkafka has missed it may be taken for gone for good: the call that waits for it
        then never returns, whatever its own time-out. Raises RetriableTransportError; the producer is of no use any more.
        """
        if self._lost:
            raise RetriableTransportError(f"{what}: the producer has lost its broker")
        outcome: list[Exception | None] = []

        def run() -> None:
            try:
                call(function, *arguments)
                outcome.append(None)
            except Exception as error:
                outcome.append(error)

        thread = Thread(target=run, name="transaction", daemon=True)
        began = monotonic()
        thread.start()
        if function == self._client.send_offsets_to_transaction:
            self._await_offsets(thread)
        else:
            thread.join(2 * self._timeout)
        if not outcome:
            # The thread keeps the client from being destroyed, which would wait for the same call.
            self._lost = True
            raise RetriableTransportError(f"{what}: no answer in {monotonic() - began:.0f} s")
        if outcome[0] is not None:
            raise outcome[0]

    def _await_offsets(self, thread: Thread) -> None:
        began = monotonic()
        while thread.is_alive():
            waited = monotonic() - began
            limit = _WAIT_AFTER_LOSS if self._disconnected else 2 * self._timeout
            if waited >= limit:
                return
            thread.join(min(1.0, limit - waited))
            self._serve(self._client.poll, 0)

    def _transaction_error(self, error: KafkaException, what: str) -> StreamkitError:
        translated = translate(error, what, self._address)
        if self._failure is None or isinstance(translated, FencedError):
            return translated
        # The record that failed says more than the transaction that fails with it.
        failure, self._failure = self._failure, None
        return failure

    def _on_client_error(self, error: KafkaError) -> None:
        if error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
            self._disconnected = True

    def _on_error(self, error: KafkaError, message: Message) -> None:
        # What an abort or a close throws away did not fail.
        if error.code() not in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
            kind, time = message.timestamp()
            known = time if kind != TIMESTAMP_NOT_AVAILABLE else None
            # Delivery reports leave a partition that was never chosen at -1, and the bytes as they were given.
            place = message.partition()
            number = place if place is not None and place >= 0 else None
            self._refuse((message.topic(), message.key(), message.value(), known, message.headers(), number), error)

    def _refuse(self, row: tuple, error: Any, cause: Exception | None = None) -> None:
        self._refused.append(row)
        self._failure = self._failure or self._production_error(row[0], error, cause)

    def _forget(self) -> None:
        self._failure, self._refused = None, []

    def _production_error(self, topic: str | None, error: Any, cause: Exception | None = None) -> StreamkitError:
        fenced = error.code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
        # What has failed for good, the calls that end the transaction say.
        fenced = fenced or (self._transactional and error.code() == KafkaError._FATAL)
        hint = f" (broker {self._address})" if error.code() == KafkaError._MSG_TIMED_OUT else ""
        if error.name() in UNKNOWN:
            hint = "; create the topic, or give it `partitions` in the file"
        kind = FencedError if fenced else ProductionError
        failure = kind(f"a record for topic {topic} could not be written: {error.str()}{hint}")
        if isinstance(failure, ProductionError):
            failure.retriable = error.name() in _RETRIABLE
        # It is raised later, from the next call: the cause is kept by hand.
        failure.__cause__ = cause or KafkaException(error)
        return failure

    def _raise_failure(self) -> None:
        if self._failure is not None:
            failure, refused = self._failure, self._refused
            self._forget()
            if isinstance(failure, ProductionError):
                failure.rows = refused
            raise failure

    def _need_transactions(self) -> None:
        if not self._transactional:
            raise TransportError("this producer has no transactional id")
