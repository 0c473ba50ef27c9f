"""Administration of a Kafka cluster."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from contextlib import contextmanager
from time import monotonic, sleep
from typing import Any

from confluent_kafka import KafkaError, KafkaException, TopicCollection
from confluent_kafka import TopicPartition as KafkaPartition
from confluent_kafka.admin import AdminClient, ConfigResource, ResourceType
from confluent_kafka.admin import NewTopic as KafkaNewTopic

from streamkit.errors import RetriableTransportError, TopicError, TransportError
from streamkit.record import TopicPartition
from streamkit.transport.base import Admin, NewTopic, TopicInfo
from streamkit.transport.kafka.errors import Refusals, kafka_error, translate
from streamkit.transport.kafka.oauth import for_librdkafka

_LOOK_SECONDS = 1.0
_PAUSE_SECONDS = 0.2


class KafkaAdmin(Admin):
    """An AdminClient; every call ends after `timeout` seconds at the latest."""

    def __init__(self, config: dict[str, Any], timeout: float, logger: logging.Logger):
        self._config = config
        self._address = config["bootstrap.servers"]
        self._timeout = timeout
        self._refusals = Refusals()
        settings: dict[str, Any] = {**for_librdkafka(config), "error_cb": self._refusals}
        try:
            self._client = AdminClient(settings, logger=logger)
        except KafkaException as error:
            raise translate(error, "the admin client was refused its settings", self._address) from error

    def topics(self, names: Iterable[str] | None = None) -> dict[str, TopicInfo]:
        with self._translated("topics could not be listed"):
            known = self._list().topics
        wanted = known if names is None else [name for name in names if name in known]
        # A topic that is being deleted or that elects its leaders is listed with an error.
        return {name: TopicInfo(name, len(known[name].partitions)) for name in wanted if known[name].error is None}

    def _list(self) -> Any:
        """Ask for all topics, and look now and then whether brokers refuse to answer at all."""
        deadline = monotonic() + self._timeout
        while True:
            try:
                return self._client.list_topics(timeout=min(_LOOK_SECONDS, self._timeout))
            except KafkaException as error:
                self._client.poll(0)
                if self._refusals.reason is not None:
                    raise TransportError(f"{self._address} refuses the connection: {self._refusals.reason}") from error
                if monotonic() > deadline:
                    raise

    def topic_config(self, name: str) -> dict[str, str]:
        resource = ConfigResource(ResourceType.TOPIC, name)
        futures = self._client.describe_configs([resource], request_timeout=self._timeout)
        entries = self._result(futures[resource], f"the settings of topic {name} could not be read")
        return {entry.name: entry.value for entry in entries.values() if entry.value is not None}

    def topic_ids(self, names: Sequence[str]) -> dict[str, str]:
        if not names:
            return {}
        with self._translated("topics could not be described"):
            futures = self._client.describe_topics(TopicCollection(list(names)), request_timeout=self._timeout)
        found = {}
        for name, future in futures.items():
            described = self._result(future, f"topic {name} could not be described", KafkaError.UNKNOWN_TOPIC_OR_PART)
            # Brokers before 2.8 know no ids, and give zeros.
            if described is not None and any(
                described.topic_id.get_most_significant_bits().to_bytes(8, "big", signed=True)
            ):
                found[name] = str(described.topic_id)
        return found

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
        self._wait("created", {topic.name for topic in topics}, there=True)

    def delete_topics(self, names: Sequence[str]) -> None:
        if not names:
            return
        with self._translated("topics could not be deleted"):
            futures = self._client.delete_topics(
                list(names), operation_timeout=self._timeout, request_timeout=self._timeout
            )
        for name, future in futures.items():
            self._result(future, f"topic {name} could not be deleted", KafkaError.UNKNOWN_TOPIC_OR_PART)
        self._wait("deleted", set(names), there=False)

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

    def group_members(self, group: str) -> list[str]:
        deadline = monotonic() + self._timeout
        while True:
            try:
                return self._described(group)
            except RetriableTransportError:
                # A broker that has just started, or a coordinator that has just moved.
                if monotonic() > deadline:
                    raise
            sleep(_PAUSE_SECONDS)

    def _described(self, group: str) -> list[str]:
        futures = self._client.describe_consumer_groups([group], request_timeout=self._timeout)
        described = self._result(futures[group], f"group {group} could not be described", KafkaError.GROUP_ID_NOT_FOUND)
        return [member.member_id for member in described.members] if described is not None else []

    def remove_members(self, group: str) -> list[str]:
        from streamkit.transport.kafka.python_client import remove_members

        members = self.group_members(group)
        if members:
            remove_members(self._config, group, members)
        return members

    def close(self) -> None:
        del self._client

    def _wait(self, done: str, names: set[str], *, there: bool) -> None:
        """Return when this client's broker shows the change; brokers learn of it a little later than the controller."""
        deadline = monotonic() + self._timeout
        while len(self.topics(names)) != (len(names) if there else 0):
            if monotonic() > deadline:
                raise TopicError(f"topics were not {done} within {self._timeout:g} s: {', '.join(sorted(names))}")

    def _result(self, future: Future, what: str, harmless: int | None = None) -> Any:
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
