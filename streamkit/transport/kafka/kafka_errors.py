"""Translates librdkafka's errors to those of streamkit, by the names of their codes."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import TypeVar, TypeVarTuple, cast

from confluent_kafka import KafkaError, KafkaException

from streamkit.errors import (
    FencedError,
    RetriableTransportError,
    TopicError,
    TransportError,
    UnreachableError,
)

Arguments = TypeVarTuple("Arguments")
Result = TypeVar("Result")

# librdkafka logs to stderr unless it has a logger; without a handler, Python's handler of last resort would print there too.
logger = logging.getLogger("streamkit.kafka")
logger.addHandler(logging.NullHandler())

_UNREACHABLE = {"_ALL_BROKERS_DOWN", "_TRANSPORT", "_RESOLVE", "_TIMED_OUT", "_WAIT_COORD"}
_FENCED = {
    "_FENCED",
    "FENCED_INSTANCE_ID",
    "FENCED_MEMBER_EPOCH",
    "ILLEGAL_GENERATION",
    "INVALID_PRODUCER_EPOCH",
    "PRODUCER_FENCED",
    "STALE_MEMBER_EPOCH",
    "UNKNOWN_MEMBER_ID",
}
UNKNOWN = {"UNKNOWN_TOPIC_OR_PART", "_UNKNOWN_TOPIC", "_UNKNOWN_PARTITION"}
_TOPIC = {
    *UNKNOWN,
    "_AUTO_OFFSET_RESET",
    "OFFSET_OUT_OF_RANGE",
    "TOPIC_EXCEPTION",
    "TOPIC_ALREADY_EXISTS",
    "INVALID_PARTITIONS",
    "INVALID_REPLICATION_FACTOR",
    "INVALID_CONFIG",
    "POLICY_VIOLATION",
    "TOPIC_AUTHORIZATION_FAILED",
}
LOST_SEQUENCE = {
    # After requests without a response, a request with a later sequence number arrived first.
    "OUT_OF_ORDER_SEQUENCE_NUMBER",
    # The broker no longer has the state of the producer.
    "INVALID_PRODUCER_ID_MAPPING",
    "UNKNOWN_PRODUCER_ID",
    "TRANSACTION_ABORTABLE",
}
"""Errors that end a transaction but not the application, which restarts from the last commit (StreamsProducer, KIP-691)."""
_RETRIABLE = {
    *LOST_SEQUENCE,
    "COORDINATOR_LOAD_IN_PROGRESS",
    "COORDINATOR_NOT_AVAILABLE",
    "CONCURRENT_TRANSACTIONS",
    "FENCED_LEADER_EPOCH",
    "KAFKA_STORAGE_ERROR",
    "LEADER_NOT_AVAILABLE",
    "NETWORK_EXCEPTION",
    "NOT_COORDINATOR",
    "NOT_CONTROLLER",
    "NOT_LEADER_FOR_PARTITION",
    "OFFSET_NOT_AVAILABLE",
    "REBALANCE_IN_PROGRESS",
    "REQUEST_TIMED_OUT",
    "UNKNOWN_LEADER_EPOCH",
    "UNSTABLE_OFFSET_COMMIT",
    "_DESTROY_BROKER",
    "_IN_PROGRESS",
    "_RETRY",
    "_TIMED_OUT_QUEUE",
}


class Refusals:
    """Stores the reason why brokers refuse a client; a call that waits for a response only times out."""

    def __init__(self) -> None:
        self.reason: str | None = None

    def __call__(self, error: KafkaError) -> None:
        """Store the reason of an error; called by librdkafka as its error callback."""
        if error.name() in ("_AUTHENTICATION", "_SSL"):
            # The other parts are the name of the connection, and its duration.
            text = error.str().partition("/bootstrap: ")[2] or error.str()
            self.reason = text.partition(" (after ")[0]


def call(function: Callable[[*Arguments], Result], *arguments: *Arguments) -> Result:
    """Call a function of librdkafka.

    Raises KafkaException. The binding sometimes raises a fatal error as a KafkaError, which is not an exception; only a
    bare clause catches it.
    """
    try:
        return function(*arguments)
    except:  # noqa: E722
        thrown: object = sys.exc_info()[1]
        if isinstance(thrown, BaseException):
            raise
    raise KafkaException(thrown)


def kafka_error(error: object) -> KafkaError:
    """Return the KafkaError inside a KafkaException, or the error itself."""
    inner = error.args[0] if isinstance(error, BaseException) and error.args else error
    # Every KafkaException has a KafkaError; callers pass one of the two.
    return cast(KafkaError, inner if hasattr(inner, "code") else error)


def translate(error: object, what: str, address: str) -> TransportError:
    """Return the streamkit error for a KafkaException or KafkaError; its message begins with `what`."""
    inner = kafka_error(error)
    if not hasattr(inner, "code"):
        return TransportError(f"{what}: {error}")
    name = inner.name()
    text = f"{what}: {inner.str()}"
    if name in _UNREACHABLE:
        return UnreachableError(f"{what}: no Kafka broker answers at {address} ({inner.str()})")
    if name in _FENCED:
        return FencedError(text)
    if name in _TOPIC:
        return TopicError(text)
    if name in _RETRIABLE or inner.retriable():
        return RetriableTransportError(text)
    return TransportError(text)
