"""Messages of Kafka that kafka-python lacks, as schemas in Kafka's notation: those of streams groups (KIP-1071, KIP-1331), and records of brokers."""

from __future__ import annotations

from kafka.protocol.api_data import ApiData
from kafka.protocol.api_message import ApiMessage


class StreamsGroupHeartbeatRequest(ApiMessage, load_json=__name__):  # type: ignore[misc,call-arg]  # kafka-python has no types
    """Joins a streams group, remains in it or leaves it."""


class StreamsGroupHeartbeatResponse(ApiMessage, load_json=__name__):  # type: ignore[misc,call-arg]
    """The epoch and the tasks of a member."""


class StreamsGroupTopologyDescriptionUpdateRequest(ApiMessage, load_json=__name__):  # type: ignore[misc,call-arg]
    """Gives the coordinator the description of a topology."""


class StreamsGroupTopologyDescriptionUpdateResponse(ApiMessage, load_json=__name__):  # type: ignore[misc,call-arg]
    """Whether the coordinator has kept a description."""


class StreamsGroupDescribeRequest(ApiMessage, load_json=__name__):  # type: ignore[misc,call-arg]
    """Asks for the members of streams groups."""


class StreamsGroupDescribeResponse(ApiMessage, load_json=__name__):  # type: ignore[misc,call-arg]
    """The members of streams groups, with their tasks."""


class TransactionLogValue(ApiData, load_json=__name__):  # type: ignore[misc,call-arg]
    """The value of a record of the transaction coordinators."""
