"""Administration of a Kafka cluster."""

from __future__ import annotations

import logging
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from time import monotonic, sleep
from typing import TYPE_CHECKING, TypeVar

from confluent_kafka import ConsumerGroupState, KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType  # type: ignore[attr-defined]  # not in its __all__
from confluent_kafka.admin import NewTopic as KafkaNewTopic  # type: ignore[attr-defined]  # not in its __all__

from streamkit.errors import RetriableTransportError, TopicError, TransportError, UnreachableError
from streamkit.record import TopicPartition
from streamkit.transport.kafka.kafka_errors import Refusals, kafka_error, translate
from streamkit.transport.kafka.native_client import new_client
from streamkit.transport.kafka.oauth import for_librdkafka
from streamkit.transport.log_interface import (
    Admin,
    EndedTransaction,
    GroupDescription,
    GroupMember,
    NewTopic,
    OpenTransaction,
    Outcome,
    TopicInfo,
)

if TYPE_CHECKING:
    from confluent_kafka.admin._group import MemberDescription
    from confluent_kafka.admin._metadata import ClusterMetadata
    from kafka import KafkaAdminClient

    from streamkit.transport.kafka.transaction_markers import MarkerLooks

Result = TypeVar("Result")

_REBALANCING = (ConsumerGroupState.PREPARING_REBALANCING, ConsumerGroupState.COMPLETING_REBALANCING)
_REQUEST_SECONDS = 1.0
_PAUSE_SECONDS = 0.2
_ABSENT = {"UNKNOWN_TOPIC_OR_PART", "LEADER_NOT_AVAILABLE"}
"""The errors of a topic that a broker may be creating."""


class KafkaAdmin(Admin):
    """An AdminClient; every call ends within `timeout` seconds."""

    def __init__(self, config: dict[str, str], timeout: float, logger: logging.Logger):
        self._config = config
        self._address = config["bootstrap.servers"]
        self._timeout = timeout
        self._refusals = Refusals()
        self._python_client: KafkaAdminClient | None = None
        self._marker_looks: MarkerLooks | None = None
        settings: dict[str, object] = {**for_librdkafka(config), "error_cb": self._refusals}
        try:
            # The stub has no callbacks.
            self._client = new_client(lambda: AdminClient(settings, logger=logger))  # type: ignore[arg-type]
        except KafkaException as error:
            raise translate(error, "the settings of the admin client were rejected", self._address) from error

    def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicInfo]:
        with self._translated("topics could not be listed"):
            known = self._list().topics
        wanted = known if names is None else [name for name in names if name in known]
        # A topic that is being deleted or that elects its leaders is listed with an error.
        return {name: TopicInfo(name, len(known[name].partitions)) for name in wanted if known[name].error is None}

    def partitions_of(self, topic: str, seconds: float = 0) -> int | None:
        deadline = monotonic() + seconds
        while True:
            with self._translated(f"topic {topic} could not be looked up"):
                # Unlike a request for all topics, one that names the topic makes the broker create it.
                found = self._client.list_topics(topic, self._timeout).topics[topic]
            if found.error is None:
                return len(found.partitions)
            if found.error.name() not in _ABSENT or monotonic() > deadline:
                return None
            sleep(_PAUSE_SECONDS)

    def _list(self) -> ClusterMetadata:
        """Request all topics; between attempts check whether brokers refuse the connection."""
        deadline = monotonic() + self._timeout
        while True:
            try:
                return self._client.list_topics(timeout=min(_REQUEST_SECONDS, self._timeout))
            except KafkaException as error:
                self._client.poll(0)
                if self._refusals.reason is not None:
                    raise TransportError(f"{self._address} refuses the connection: {self._refusals.reason}") from error
                if monotonic() > deadline:
                    raise

    def topic_config(self, name: str) -> dict[str, str]:
        resource = ConfigResource(ResourceType.TOPIC, name)
        futures = self._client.describe_configs([resource], request_timeout=self._timeout)
        entries = self._result(futures[resource], f"the settings of topic {name} could not be read") or {}
        return {entry.name: entry.value for entry in entries.values() if entry.value is not None}

    def topic_ids(self, names: Sequence[str]) -> dict[str, str]:
        if not names:
            return {}
        with self._translated("topics could not be described"):
            futures = self._client.describe_topics(TopicCollection(list(names)), request_timeout=self._timeout)
        ids = {}
        for name, future in futures.items():
            described = self._result(future, f"topic {name} could not be described", KafkaError.UNKNOWN_TOPIC_OR_PART)
            # Brokers before 2.8 have no topic ids, and return zeros.
            if described is not None and any(
                described.topic_id.get_most_significant_bits().to_bytes(8, "big", signed=True)
            ):
                ids[name] = str(described.topic_id)
        return ids

    def create_topics(self, topics: Sequence[NewTopic]) -> None:
        if not topics:
            return
        new = [
            KafkaNewTopic(
                t.name, num_partitions=t.partitions, replication_factor=t.replication_factor, config=dict(t.config)
            )
            for t in topics
        ]
        with self._translated("topics could not be created"):
            futures = self._client.create_topics(new, operation_timeout=self._timeout, request_timeout=self._timeout)
        for name, future in futures.items():
            self._result(future, f"topic {name} could not be created", KafkaError.TOPIC_ALREADY_EXISTS)
        self._wait("created", {topic.name for topic in topics}, exist=True)

    def delete_topics(self, names: Sequence[str]) -> None:
        if not names:
            return
        with self._translated("topics could not be deleted"):
            futures = self._client.delete_topics(
                list(names), operation_timeout=self._timeout, request_timeout=self._timeout
            )
        for name, future in futures.items():
            self._result(future, f"topic {name} could not be deleted", KafkaError.UNKNOWN_TOPIC_OR_PART)
        self._wait("deleted", set(names), exist=False)

    def delete_records(self, before: Mapping[TopicPartition, int]) -> None:
        if not before:
            return
        partitions = [KafkaPartition(p.topic, p.partition, offset) for p, offset in before.items()]
        with self._translated("records could not be deleted"):
            futures = self._client.delete_records(
                partitions, request_timeout=self._timeout, operation_timeout=self._timeout
            )
        for partition, future in futures.items():
            self._result(future, f"records of {partition.topic} [{partition.partition}] could not be deleted")

    def describe_group(self, group: str) -> GroupDescription:
        deadline = monotonic() + self._timeout
        while True:
            try:
                return self._describe(group)
            except (RetriableTransportError, UnreachableError):
                # A broker may have just started, or a coordinator just moved. kafka-python waits for neither, and a connection
                # remembers the first coordinator that it found.
                self._disconnect()
                if monotonic() > deadline:
                    raise
            sleep(_PAUSE_SECONDS)

    def _describe(self, group: str) -> GroupDescription:
        # librdkafka aborts the process if brokers stop answering while it looks for the coordinator (its issue 4605). It is
        # used only for groups of the new consumer protocol, which kafka-python lists but can't describe.
        from streamkit.transport.kafka.python_client import classic_group, is_consumer_group, streams_group

        client = self._connected(f"group {group} could not be described")
        described = classic_group(client, group, self._address) or streams_group(client, group, self._address)
        if described is not None:
            return described
        if is_consumer_group(client, group, self._address):
            return self._describe_consumer_group(group)
        return GroupDescription()

    def _describe_consumer_group(self, group: str) -> GroupDescription:
        futures = self._client.describe_consumer_groups([group], request_timeout=self._timeout)
        described = self._result(futures[group], f"group {group} could not be described", KafkaError.GROUP_ID_NOT_FOUND)
        if described is None:
            return GroupDescription()
        members = tuple(
            GroupMember(member.member_id, member.client_id, _assigned(member)) for member in described.members
        )
        return GroupDescription(members, described.state in _REBALANCING)

    def open_transactions(self, partitions: Sequence[TopicPartition], group: str = "") -> list[OpenTransaction]:
        from streamkit.transport.kafka import transaction_markers

        return transaction_markers.open_transactions(self._config, partitions, group, self._timeout)

    def _connected(self, what: str) -> KafkaAdminClient:
        from streamkit.transport.kafka.python_client import connected_admin

        self._python_client = self._python_client or connected_admin(self._config, self._timeout, what)
        return self._python_client

    def lacks_markers(self, transactional_id: str, topics: Collection[str], group: str, *, refresh: bool) -> bool:
        if self._marker_looks is None:
            from streamkit.transport.kafka.transaction_markers import MarkerLooks

            self._marker_looks = MarkerLooks(
                self._connected(f"could not search for markers of {transactional_id}"), self._address
            )
        return self._marker_looks.lacks(transactional_id, topics, group, refresh=refresh)

    def end_lost(
        self, transactional_id: str, partitions: Sequence[TopicPartition], group: str, *, one_open: bool = False
    ) -> list[EndedTransaction]:
        from streamkit.transport.kafka import transaction_markers

        return transaction_markers.end_lost(self._config, transactional_id, partitions, group, one_open, self._timeout)

    def outcome_of(self, transaction: OpenTransaction) -> Outcome:
        from streamkit.transport.kafka import transaction_markers

        return transaction_markers.outcome(self._config, transaction, self._timeout)

    def end_transaction(self, transaction: OpenTransaction, committed: bool) -> None:
        from streamkit.transport.kafka import transaction_markers

        transaction_markers.end(self._config, transaction, committed, self._timeout)

    def remove_members(self, group: str) -> list[str]:
        from streamkit.transport.kafka.python_client import remove_from_streams_group, remove_members, streams_group

        members = self.group_members(group)
        client = self._connected(f"members of group {group} could not be removed")
        if members and streams_group(client, group, self._address) is not None:
            remove_from_streams_group(client, group, members, self._address)
        elif members:
            remove_members(self._config, group, members)
        return members

    def close(self) -> None:
        del self._client
        self._disconnect()

    def _disconnect(self) -> None:
        client, self._python_client, self._marker_looks = self._python_client, None, None
        if client is not None:
            client.close()

    def _wait(self, done: str, names: set[str], *, exist: bool) -> None:
        """Wait until this client's broker knows of the change. Brokers learn it a little later than the controller."""
        deadline = monotonic() + self._timeout
        while len(self.topics(names)) != (len(names) if exist else 0):
            if monotonic() > deadline:
                raise TopicError(f"topics were not {done} within {self._timeout:g} s: {', '.join(sorted(names))}")

    def _result(self, future: Future[Result], what: str, harmless: int | None = None) -> Result | None:
        """Return the result of a request, or None if it failed with the error code `harmless`."""
        try:
            return future.result(self._timeout * 2)
        except KafkaException as error:
            if harmless is not None and kafka_error(error).code() == harmless:
                return None
            raise translate(error, what, self._address) from error
        except TimeoutError as error:
            raise TransportError(f"{what}: no answer from {self._address}") from error

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        try:
            yield
        except KafkaException as error:
            raise translate(error, what, self._address) from error


def _assigned(member: MemberDescription) -> frozenset[TopicPartition]:
    """Return the partitions of a member; none while it joins."""
    assignment = member.assignment
    places = [] if assignment is None else assignment.topic_partitions
    return frozenset(TopicPartition(place.topic, place.partition) for place in places)
