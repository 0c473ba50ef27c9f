"""The Kafka producer: passes rows to `produce`, and collects errors from delivery reports."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from threading import Thread
from time import monotonic, sleep
from typing import TYPE_CHECKING, Any, TypeVar, TypeVarTuple, cast

from confluent_kafka import TIMESTAMP_NOT_AVAILABLE, KafkaError, KafkaException, Message
from confluent_kafka import TopicPartition as KafkaPartition

from streamkit.errors import (
    FencedError,
    ProducerLostError,
    ProductionError,
    RetriableTransportError,
    StreamkitError,
    TransportError,
    UnreachableError,
)
from streamkit.record import Headers, OutputTuple, TopicPartition
from streamkit.transport.kafka.kafka_errors import UNKNOWN, call, kafka_error, translate
from streamkit.transport.kafka.native_client import create_producer
from streamkit.transport.kafka.oauth import for_librdkafka
from streamkit.transport.log_interface import CommittedOffset, Producer

if TYPE_CHECKING:
    from streamkit import _native

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")

_FULL_QUEUE_WAIT = 0.05
_RETRY_SECONDS = 0.05
_MANY_ROWS = 256
"""The number of rows from which a thread of the extension enqueues them, while the next records are processed."""
_SECONDS_AFTER_LOSS = 3.0
"""Seconds for the offsets of a transaction, or its abort, after a broker was lost.

librdkafka may wait indefinitely for the former coordinator, while a new producer ends the transaction at once.
"""
_LOG_LEVEL = 6
"""The level of librdkafka's lines about lost connections."""
# Errors after which another attempt may write the record, besides those of every call: as after these, Java's default production
# handler retries. It also waits for a missing topic, without a limit.
_RETRIABLE = {
    "_MSG_TIMED_OUT",
    # The error of every call except the abort of a transaction that has failed.
    "_STATE",
    "NOT_ENOUGH_REPLICAS",
    "NOT_ENOUGH_REPLICAS_AFTER_APPEND",
}
_FATAL = {
    "CLUSTER_AUTHORIZATION_FAILED",
    "SASL_AUTHENTICATION_FAILED",
    "SECURITY_DISABLED",
    "TOPIC_AUTHORIZATION_FAILED",
    "TOPIC_EXCEPTION",
    "TRANSACTIONAL_ID_AUTHORIZATION_FAILED",
    "UNKNOWN",
    "_AUTHENTICATION",
}
"""The errors for which no handler drops the record, as nothing is wrong with it (RecordCollectorImpl.isFatalException)."""


_SHRINK = 8
_LEAST_BATCH = 512


class _ConnectionLog(logging.LoggerAdapter[logging.Logger]):
    """Passes on the lines of a client, and notes those about a lost connection.

    librdkafka calls `error_cb` only for a coordinator, and for the last broker that is lost.
    """

    def __init__(self, logger: logging.Logger, note_lost: Callable[[], None]):
        super().__init__(logger, {})
        self._note_lost = note_lost

    def log(self, level: int, msg: object, *args: object, **kwargs: Any) -> None:
        if args and args[0] == "FAIL":
            self._note_lost()
        super().log(level, msg, *args, **kwargs)


class KafkaProducer(Producer):
    """A librdkafka producer; `timeout` seconds limit each transactional call.

    lingers: rows wait for fuller batches even if the caller hastens, as the user has set how long. shrink: called with a size in
    bytes if a topic takes only smaller batches; later producers need it as their batch.size.
    """

    def __init__(
        self,
        config: dict[str, str],
        timeout: float,
        logger: logging.Logger,
        *,
        lingers: bool = False,
        shrink: Callable[[int], None] = lambda size: None,
    ):
        self._address = config["bootstrap.servers"]
        self._timeout = timeout
        self._lingers = lingers
        self._transactional = "transactional.id" in config
        self._initialised = False
        self._batch_size = int(config.get("batch.size", 0))
        self._shrink = shrink
        self._outgrown = False
        """Whether a topic takes only smaller batches than this producer makes."""
        self._unusable = False
        self._disconnected = False
        """Whether a broker was lost since offsets were last added to a transaction."""
        self._lost_broker = False
        self._failure: StreamkitError | None = None
        self._failed_rows: list[OutputTuple] = []
        self._sending: tuple[OutputTuple, ...] = ()
        """The rows that the extension's thread is sending."""
        self._looked_up: set[str] = set()
        """The topics whose partitions were looked up since the last call of `send` began."""
        reports = {"delivery.report.only.error": True, "on_delivery": self._on_error, "error_cb": self._on_client_error}
        settings: dict[str, object] = {**for_librdkafka(config), **reports}
        if self._transactional:
            settings |= {"log.connection.close": True, "log_level": max(_LOG_LEVEL, int(config.get("log_level", 0)))}
        try:
            self._client, self._link = create_producer(settings, _ConnectionLog(logger, self._note_lost_broker))
        except KafkaException as error:
            raise translate(error, "the settings of the producer were rejected", self._address) from error

    def send(self, rows: Sequence[OutputTuple]) -> None:
        if not rows and not self._sending:
            return
        self._looked_up.clear()
        if self._link is None:
            self._produce(rows)
        else:
            self._produce_through(self._link, rows)
        self._run_callbacks(self._client.poll, 0)
        self._raise_failure()

    def _produce_through(self, link: _native.Producer, rows: Sequence[OutputTuple]) -> None:
        self._finish_sending()
        if len(rows) >= _MANY_ROWS:
            sent = tuple(rows)
            if link.begin(sent):
                self._sending = sent
                return
        self._hand_over(link, rows, *link.send(rows, 0))

    def _finish_sending(self) -> None:
        """Wait until librdkafka has the rows of the last call."""
        rows, self._sending = self._sending, ()
        if rows and self._link is not None:
            self._hand_over(self._link, rows, *self._link.finish())

    def _hand_over(self, link: _native.Producer, rows: Sequence[OutputTuple], place: int, code: int) -> None:
        """Enqueue the rows starting at the one that librdkafka refused; `code`: its error, or 0."""
        while code:
            if code == KafkaError._QUEUE_FULL:
                self._run_callbacks(self._client.poll, _FULL_QUEUE_WAIT)
            elif not self._learns_partition(rows[place][0], code):
                text = _unwritable_name(rows[place][4]) or f"Unable to produce message: {KafkaError(code).str()}"
                self._note_failure(rows[place], KafkaError(code, text))
                place += 1
            place, code = link.send(rows, place)

    def _produce(self, rows: Sequence[OutputTuple]) -> None:
        produce = self._client.produce
        iterator = iter(rows)
        while True:
            try:
                # A try around the loop costs nothing: the variables hold the failed row, and the iterator continues after it.
                for topic, key, value, timestamp, headers, partition in iterator:
                    if headers and (text := _unwritable_name(headers)):
                        row = topic, key, value, timestamp, headers, partition
                        self._note_failure(row, KafkaError(KafkaError._INVALID_ARG, text))
                        continue
                    # produce(topic, value, key, partition, callback, on_delivery, timestamp, headers): positional
                    # arguments are faster. librdkafka reads 0 as the current time, so event time 0 becomes 1.
                    produce(
                        topic,
                        value,
                        key,
                        -1 if partition is None else partition,
                        None,
                        None,
                        (timestamp or 1) if timestamp is not None and timestamp != -1 else 0,
                        headers,  # type: ignore[arg-type]  # its list of headers is invariant
                    )
                break
            except BufferError:
                self._send_when_free((topic, key, value, timestamp, headers, partition))
            except KafkaException as error:
                refused = topic, key, value, timestamp, headers, partition
                if self._learns_partition(topic, kafka_error(error).code()):
                    self._send_when_free(refused)
                else:
                    self._note_failure(refused, kafka_error(error), error)

    def _learns_partition(self, topic: str, code: int) -> bool:
        """Look up a topic if librdkafka refuses a row for a partition that it does not know; return whether it was looked up.

        The partition may be newer than what librdkafka knows, for which Java's producer waits. Each call of `send` looks a topic up once.
        """
        if code != KafkaError._UNKNOWN_PARTITION or topic in self._looked_up:
            return False
        self._looked_up.add(topic)
        with suppress(KafkaException):
            self._client.list_topics(topic, self._timeout)
        return True

    def _send_when_free(self, row: OutputTuple) -> None:
        topic, key, value, timestamp, headers, partition = row
        time = (timestamp or 1) if timestamp is not None and timestamp != -1 else 0
        place = -1 if partition is None else partition
        while True:
            self._run_callbacks(self._client.poll, _FULL_QUEUE_WAIT)
            try:
                return self._client.produce(topic, value, key, place, None, None, time, headers)  # type: ignore[arg-type]  # as above
            except BufferError:
                continue
            except KafkaException as error:
                return self._note_failure(row, kafka_error(error), error)

    def flush(self) -> None:
        self._finish_sending()
        # The queue is empty within delivery.timeout.ms, after which undelivered rows fail.
        while self._run_callbacks(self._client.flush, 1.0):
            self._raise_failure()
        self._raise_failure()

    def hasten(self, seconds: float) -> bool:
        if self._lingers:
            # Nothing else may call librdkafka until the next commit, and errors come only with a call.
            self._run_callbacks(self._client.poll, 0)
            self._raise_failure()
            return not self.queued()
        self._finish_sending()
        # While it runs, librdkafka treats linger.ms as 0.
        left = self._run_callbacks(self._client.flush, seconds)
        self._raise_failure()
        return not left

    def queued(self) -> int:
        return len(self._client) + len(self._sending)

    def lost_broker(self) -> bool:
        self._run_callbacks(self._client.poll, 0)
        lost, self._lost_broker = self._lost_broker, False
        return lost

    def begin(self) -> None:
        self._require_transactional_id()
        if not self._initialised:
            self._call(self._client.init_transactions, "the transactional id could not be taken", self._timeout)
            self._initialised = True
        self._clear_failure()
        self._call(self._client.begin_transaction, "a transaction could not begin")

    def commit(self, offsets: Mapping[TopicPartition, CommittedOffset], group_metadata: bytes | None) -> None:
        self._require_transactional_id()
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
        self._require_transactional_id()
        self._drop_sending()
        seconds = min(_SECONDS_AFTER_LOSS, self._timeout) if self._disconnected else self._timeout
        try:
            self._call(self._client.abort_transaction, "the transaction could not be aborted", seconds)
        except ProductionError as error:
            # The failed records are aborted anyway.
            raise RetriableTransportError(f"the transaction could not be aborted: {error}") from error
        finally:
            self._clear_failure()
        if self._outgrown:
            raise RetriableTransportError("a topic takes only smaller batches")

    def close(self) -> None:
        self._drop_sending()
        # The client of an unusable producer may never return from a call.
        if not self._unusable:
            # A fenced producer raises this from every call, and an earlier call has raised it to the owner.
            with suppress(KafkaException, SystemError):
                if not self._transactional:
                    self._client.flush(self._timeout)
            # Also after a flush that raised: the remaining rows would fail when the client is destroyed.
            with suppress(KafkaException, SystemError):
                self._client.purge()
                self._client.poll(0)
        if self._link is not None:
            self._link.close()

    def _drop_sending(self) -> None:
        """Wait until the extension's thread has no rows; rows that librdkafka refused are lost."""
        if self._sending and self._link is not None:
            self._sending = ()
            self._link.finish()

    def _run_callbacks(self, function: Callable[[float], Result], seconds: float) -> Result:
        """Run librdkafka's callbacks. It raises fatal errors (fenced), also wrapped by the callback that they interrupt."""
        try:
            return call(function, seconds)
        except (KafkaException, SystemError) as error:
            cause = error if isinstance(error, KafkaException) else error.__cause__
            if not isinstance(cause, KafkaException):
                # Fenced as well: a callback of another call received the fatal error, and this call has none to raise.
                cause = KafkaException(KafkaError(KafkaError._FATAL, "the producer failed permanently"))
                if self._transactional:
                    raise FencedError("the producer failed permanently") from error
            if not self._transactional and kafka_error(cause).code() == KafkaError._FATAL:
                raise self._production_error(None, kafka_error(cause), cause) from error
            raise translate(cause, "records could not be written", self._address) from error

    def _call(self, function: Callable[[*Arguments], object], what: str, *arguments: *Arguments) -> None:
        """Call a transactional function; repeat it while its error is retriable and time is left.

        The last argument, if any, is the function's own time-out in seconds.
        """
        limit = arguments[-1] if arguments else None
        deadline = monotonic() + (limit if isinstance(limit, int | float) else self._timeout)
        while True:
            try:
                self._call_in_thread(function, what, *arguments)
                return
            except KafkaException as error:
                inner = kafka_error(error)
                if inner.code() == KafkaError._CONFLICT:
                    # librdkafka still waits for the response to an earlier call that has timed out.
                    raise ProducerLostError(f"{what}: {inner.str()}") from error
                if inner.retriable() and monotonic() < deadline:
                    sleep(_RETRY_SECONDS)
                    continue
                translated = self._transaction_error(error, what)
                # librdkafka does not report every lost connection.
                if isinstance(translated, UnreachableError):
                    self._note_lost_broker()
                raise translated from error

    def _call_in_thread(self, function: Callable[[*Arguments], object], what: str, *arguments: *Arguments) -> None:
        """Call and wait at most twice the time-out; for offsets, _SECONDS_AFTER_LOSS after a broker was lost.

        If a broker restarts before librdkafka notices that it was down, the call that waits for it may never return,
        despite its own time-out. Raises ProducerLostError.
        """
        if self._unusable:
            raise ProducerLostError(f"{what}: the producer has lost its broker")
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
        called: object = function
        if called == self._client.send_offsets_to_transaction:
            self._wait_for_offsets(thread)
        else:
            thread.join(2 * self._timeout)
        if not outcome:
            # The thread keeps a reference to the client, whose destruction would wait for the same call.
            self._unusable = True
            raise ProducerLostError(f"{what}: no answer in {monotonic() - began:.0f} s")
        if outcome[0] is not None:
            raise outcome[0]

    def _wait_for_offsets(self, thread: Thread) -> None:
        began = monotonic()
        while thread.is_alive():
            waited = monotonic() - began
            limit = _SECONDS_AFTER_LOSS if self._disconnected else 2 * self._timeout
            if waited >= limit:
                return
            thread.join(min(1.0, limit - waited))
            self._run_callbacks(self._client.poll, 0)

    def _transaction_error(self, error: KafkaException, what: str) -> StreamkitError:
        translated = translate(error, what, self._address)
        if kafka_error(error).code() == KafkaError.UNKNOWN:
            # The coordinator failed on its side, for example because it timed the transaction out at that moment. As after a
            # lost response, it is unknown whether the transaction is committed. Java's producer fails permanently.
            translated = RetriableTransportError(str(translated))
        self._note_undelivered()
        if self._failure is None or isinstance(translated, FencedError):
            return translated
        # The error of the record is the reason; the error of the transaction is a consequence.
        failure, self._failure = self._failure, None
        return failure

    def _on_client_error(self, error: KafkaError) -> None:
        if error.code() in (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN):
            self._note_lost_broker()

    def _note_lost_broker(self) -> None:
        self._disconnected = self._lost_broker = True

    def _on_error(self, error: KafkaError, message: Message) -> None:
        # Rows that an abort or a close drops did not fail.
        if error.code() not in (KafkaError._PURGE_QUEUE, KafkaError._PURGE_INFLIGHT):
            kind, time = message.timestamp()
            known = time if kind != TIMESTAMP_NOT_AVAILABLE else None
            # In a delivery report the partition is -1 if none was chosen; the bytes are those of the row.
            place = message.partition()
            number = place if place is not None and place >= 0 else None
            row = message.topic(), message.key(), message.value(), known, message.headers(), number
            # The row of a record: its topic and headers have their types.
            self._note_undelivered_row(cast(OutputTuple, row), error)

    def _note_failure(self, row: OutputTuple, error: KafkaError, cause: Exception | None = None) -> None:
        self._failed_rows.append(row)
        failure = self._production_error(row[0], error, cause)
        if self._failure is None or _weight(failure) > _weight(self._failure):
            self._failure = failure

    def _note_undelivered_row(self, row: OutputTuple, error: KafkaError) -> None:
        """Note a row that was not delivered. A batch that is too large for its topic may have valid rows: smaller ones are needed.

        Java's producer splits such a batch (RecordAccumulator.splitAndReenqueue).
        """
        self._note_failure(row, error)
        size = sum(map(len, filter(None, (row[1], row[2]))))
        if error.code() == KafkaError.MSG_SIZE_TOO_LARGE and size < self._batch_size and self._batch_size > 1:
            if not self._outgrown:
                self._outgrown = True
                smaller = self._batch_size // _SHRINK
                self._shrink(smaller if smaller >= _LEAST_BATCH else 1)
            text = f"the topic takes only batches smaller than {self._batch_size} bytes (max.message.bytes), as from now on"
            self._failure = ProductionError(f"a record for topic {row[0]} could not be written: {text}")
            self._failure.retriable = True

    def _note_undelivered(self) -> None:
        """Note the rows that the extension sent but that were not delivered."""
        if self._link is not None:
            for row, code in self._link.failures():
                self._note_undelivered_row(row, KafkaError(code))

    def _clear_failure(self) -> None:
        self._note_undelivered()
        self._failure, self._failed_rows = None, []

    def _production_error(self, topic: str | None, error: KafkaError, cause: Exception | None) -> StreamkitError:
        fenced = error.code() in (KafkaError._FENCED, KafkaError.INVALID_PRODUCER_EPOCH)
        # The calls that end a transaction raise the meaning of a fatal error.
        fenced = fenced or (self._transactional and error.code() == KafkaError._FATAL)
        hint = f" (broker {self._address})" if error.code() == KafkaError._MSG_TIMED_OUT else ""
        if error.name() in UNKNOWN:
            hint = "; create the topic, or give it `partitions` in the file"
        kind = FencedError if fenced else ProductionError
        what = "records" if topic is None else f"a record for topic {topic}"
        failure = kind(f"{what} could not be written: {error.str()}{hint}")
        if isinstance(failure, ProductionError):
            failure.lost_producer = error.code() == KafkaError._FATAL
            transient = isinstance(translate(error, what, self._address), RetriableTransportError | UnreachableError)
            failure.retriable = failure.lost_producer or transient or error.name() in _RETRIABLE
            failure.droppable = error.name() not in _FATAL
            failure.is_missing = error.name() in UNKNOWN
        # The next call raises it; `raise … from` would set the cause only there.
        failure.__cause__ = cause or KafkaException(error)
        return failure

    def _raise_failure(self) -> None:
        self._note_undelivered()
        if self._failure is not None:
            failure, refused = self._failure, self._failed_rows
            self._failure, self._failed_rows = None, []
            if isinstance(failure, ProductionError):
                failure.rows = refused
            raise failure

    def _require_transactional_id(self) -> None:
        if not self._transactional:
            raise TransportError("this producer has no transactional id")


def _weight(failure: StreamkitError) -> int:
    """Return how much a failure decides about all rows that failed: no handler may drop rows that another attempt may write."""
    if not isinstance(failure, ProductionError):
        return 1
    return 2 if failure.retriable else int(not failure.droppable)


def _unwritable_name(headers: Headers | None) -> str | None:
    """Return the reason if a header's name could not be read back: librdkafka's clients read names only up to a null character."""
    for name, _ in headers or ():
        if "\0" in name:
            return f"the name of header {name!r} contains a null character"
    return None
