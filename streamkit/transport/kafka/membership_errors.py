"""Translation of kafka-python's errors to those of streamkit."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from kafka import errors as kafka_errors

from streamkit.errors import (
    FencedError,
    ForeignMembersError,
    RetriableTransportError,
    StreamkitError,
    TransportError,
    UnreachableError,
)


@contextmanager
def translated(what: str, address: str) -> Iterator[None]:
    """Translate kafka-python's errors to those of streamkit; their messages begin with `what`."""
    try:
        yield
    except kafka_errors.KafkaError as error:
        raise _translate(error, what, address) from error


_UNREACHABLE = (
    kafka_errors.KafkaTimeoutError,
    kafka_errors.KafkaConnectionError,
    kafka_errors.NodeNotReadyError,
    kafka_errors.MetadataEmptyBrokerList,
)
_FENCED = (kafka_errors.UnknownMemberIdError, kafka_errors.IllegalGenerationError, kafka_errors.CommitFailedError)
_MESSAGES = {
    kafka_errors.FencedInstanceIdError: "another process has taken over this group.instance.id",
    kafka_errors.InvalidSessionTimeoutError: "the brokers do not allow this session.timeout.ms",
}


def _translate(error: kafka_errors.KafkaError, what: str, address: str) -> StreamkitError:
    inner = error.args[0] if error.args and isinstance(error.args[0], kafka_errors.KafkaError) else error
    text = f"{what}: {inner}"
    if isinstance(inner, kafka_errors.InconsistentGroupProtocolError):
        return ForeignMembersError(f"{what}: its members are not streamkit's; stop them first")
    for kind, message in _MESSAGES.items():
        if isinstance(inner, kind):
            return TransportError(f"{what}: {message}")
    if isinstance(inner, kafka_errors.RebalanceInProgressError):
        return RetriableTransportError(text)
    if isinstance(inner, _FENCED):
        return FencedError(text)
    if isinstance(inner, _UNREACHABLE):
        return UnreachableError(f"{what}: no Kafka broker answers at {address} ({inner})")
    return RetriableTransportError(text) if inner.retriable else TransportError(text)
