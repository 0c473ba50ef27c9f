"""Kafka's errors as streamkit's: the one place that knows librdkafka's codes."""

from __future__ import annotations

import logging
import sys
from collections.abc import Callable
from typing import Any

from confluent_kafka import KafkaException

from streamkit.errors import (
    FencedError,
    RetriableTransportError,
    TopicError,
    TransportError,
    UnreachableError,
)

# librdkafka logs to stderr unless it is given a logger; without a handler Python's last resort would print there too.
logger = logging.getLogger("streamkit.kafka")
logger.addHandler(logging.NullHandler())

_UNREACHABLE = {"_ALL_BROKERS_DOWN", "_TRANSPORT", "_RESOLVE", "_TIMED_OUT", "_WAIT_COORD"}
_FENCED = {
    "_FENCED",
    "FENCED_INSTANCE_ID",
    "ILLEGAL_GENERATION",
    "INVALID_PRODUCER_EPOCH",
    "PRODUCER_FENCED",
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
    # After requests that a broker may or may not have received, one of a later number arrives first.
    "OUT_OF_ORDER_SEQUENCE_NUMBER",
    # The broker has forgotten the producer.
    "INVALID_PRODUCER_ID_MAPPING",
    "UNKNOWN_PRODUCER_ID",
    "TRANSACTION_ABORTABLE",
}
"""What ends a transaction but not its application: it starts again from the last commit (StreamsProducer, KIP-691)."""
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
    """Remembers why brokers refuse a client; a caller that waits for an answer sees only that none comes."""

    def __init__(self) -> None:
        self.reason: str | None = None

    def __call__(self, error: Any) -> None:
        """Take an error of librdkafka's error callback."""
        if error.name() in ("_AUTHENTICATION", "_SSL"):
            # The rest is the name of the connection, and how long it took.
            text = error.str().partition("/bootstrap: ")[2] or error.str()
            self.reason = text.partition(" (after ")[0]


def call(function: Callable, *arguments: Any) -> Any:
    """Call a function of librdkafka. Raises KafkaException.

    Its binding sometimes throws a fatal error as it is, a KafkaError, which is no exception: only a bare clause catches it.
    """
    try:
        return function(*arguments)
    except:  # noqa: E722
        thrown: Any = sys.exc_info()[1]
        if isinstance(thrown, BaseException):
            raise
    raise KafkaException(thrown)


def kafka_error(error: Any) -> Any:
    """Return the KafkaError inside a KafkaException, or the error itself."""
    inner = error.args[0] if isinstance(error, BaseException) and error.args else error
    return inner if hasattr(inner, "code") else error


def translate(error: Any, what: str, address: str) -> TransportError:
    """Return the streamkit error for a KafkaException or KafkaError; `what` says what could not be done."""
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
