"""Every name of kafka-python that is not part of its documented interface, and that membership in a group needs.

An upgrade that changes one fails here, by its name.
"""

from __future__ import annotations

import ast
import inspect
import threading
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace

import pytest
from kafka import KafkaAdminClient, KafkaConsumer
from kafka.coordinator.assignors.abstract import AbstractPartitionAssignor, RebalanceProtocol
from kafka.errors import KafkaTimeoutError, UnknownTopicOrPartitionError
from kafka.net.manager import KafkaConnectionManager
from kafka.protocol.consumer import OffsetFetchResponse
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment, ConsumerProtocolSubscription
from kafka.structs import MemberState
from kafka.structs import TopicPartition as KafkaPartition

from streamkit.errors import FencedError, UnreachableError
from streamkit.record import TopicPartition
from streamkit.transport.kafka import kafka_membership
from streamkit.transport.kafka.kafka_membership import CommittedOffsets, KafkaMembership
from streamkit.transport.kafka.python_client import connected_admin
from tests.cli.support import LIMIT_S

KAFKA_PYTHON = ("kafka_membership.py", "python_client.py", "transaction_markers.py")
PRIVATE = {
    *("_coordinator", "_subscription", "_heartbeat_enabled", "_offset_fetch_futures", "_handle_offset_fetch_response"),
    *("_manager", "_net", "_find_coordinator_ids", "_describe_groups_request"),
}
METHODS = {
    "request_rejoin": (),
    "need_rejoin": (),
    "ensure_active_group": (),
    "poll_heartbeat": (),
    "group_metadata": (),
    "commit_offsets_sync": ("offsets", "timeout_ms"),
    "maybe_leave_group": ("reason", "timeout_ms"),
}
"""Of the coordinator, with the parameters that are passed."""


@pytest.fixture(scope="module")
def consumer() -> Iterator[KafkaConsumer]:
    # With a version given it connects to nothing before its first use.
    opened = KafkaConsumer(bootstrap_servers="127.0.0.1:1", group_id="group", api_version=(2, 8, 0))
    yield opened
    opened.close()


def test_the_consumer_has_a_coordinator_with_a_subscription_and_a_heartbeat(consumer: KafkaConsumer) -> None:
    coordinator = consumer._coordinator
    assert coordinator._subscription.assigned_partitions() == set()
    assert coordinator._heartbeat_enabled is False


def test_a_client_that_reaches_no_broker_leaves_no_thread() -> None:
    """An application that waits for its brokers makes one again and again."""
    config, before = {"bootstrap.servers": "127.0.0.1:1"}, threading.active_count()
    with pytest.raises(UnreachableError):
        connected_admin(config, 0.1)
    offsets = CommittedOffsets(config, 0.1, "group", read_committed=True)
    with pytest.raises(UnreachableError):
        offsets.read([TopicPartition("in", 0)])
    assert threading.active_count() == before


@pytest.mark.parametrize("name", METHODS)
def test_the_coordinator_has_what_a_member_calls(consumer: KafkaConsumer, name: str) -> None:
    parameters = inspect.signature(getattr(consumer._coordinator, name)).parameters
    assert set(METHODS[name]) <= set(parameters)
    required = [
        each.name for each in parameters.values() if each.default is each.empty and each.kind < each.VAR_POSITIONAL
    ]
    assert set(required) <= set(METHODS[name])


def test_a_member_outside_a_group_has_no_generation(consumer: KafkaConsumer) -> None:
    metadata = consumer._coordinator.group_metadata()
    assert (metadata.generation_id, metadata.member_id) == (-1, "")
    assert metadata.state is MemberState.UNJOINED


def test_the_admin_client_has_what_describes_a_group() -> None:
    for owner, name, passed in (
        (KafkaAdminClient, "_find_coordinator_ids", ("keys",)),
        (KafkaAdminClient, "_describe_groups_request", ("group_ids",)),
        (KafkaConnectionManager, "run", ("coro",)),
        (KafkaConnectionManager, "send", ("request", "node_id")),
    ):
        assert set(passed) <= set(inspect.signature(getattr(owner, name)).parameters), name


def test_assignors_have_the_methods_that_ours_overrides() -> None:
    for name in ("supported_protocols", "metadata", "assign", "on_assignment"):
        theirs = inspect.signature(getattr(AbstractPartitionAssignor, name)).parameters
        ours = inspect.signature(getattr(kafka_membership._Assignor, name)).parameters
        assert list(theirs) == list(ours), name
    assert RebalanceProtocol.COOPERATIVE.name == "COOPERATIVE"


def test_messages_of_the_consumer_protocol_take_what_is_passed() -> None:
    part = ConsumerProtocolSubscription.TopicPartition(topic="t", partitions=[0, 1])
    said = ConsumerProtocolSubscription(version=1, topics=["t"], user_data=b"x", owned_partitions=[part])
    assert (said.topics, said.user_data) == (["t"], b"x")
    assert ConsumerProtocolAssignment(1, [("t", [0])], b"y").user_data == b"y"


def test_no_other_private_name_is_in_use() -> None:
    """What stands after a dot, begins with one underscore and is not an attribute of our own object."""
    found = set()
    for path in Path(kafka_membership.__file__).parent.glob("*.py"):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            if isinstance(node, ast.Attribute) and node.attr.startswith("_") and not node.attr.startswith("__"):
                owner = node.value
                ours = isinstance(owner, ast.Name) and owner.id in ("self", "cls")
                if not ours and path.name in KAFKA_PYTHON:
                    found.add(node.attr)
    assert found == PRIVATE


def test_a_read_of_committed_offsets_that_failed_leaves_no_answer_for_the_next(
    consumer: KafkaConsumer, monkeypatch: pytest.MonkeyPatch
) -> None:
    """kafka-python shares the request of a caller that no longer waits with the next one for the same partitions."""
    reader = CommittedOffsets({"bootstrap.servers": "127.0.0.1:1"}, 1.0, "group", True)
    reader._client = consumer
    pending = consumer._coordinator._offset_fetch_futures
    place = TopicPartition("topic", 0)

    def fails(partitions: list[KafkaPartition], timeout_ms: int) -> None:
        pending[frozenset(partitions)] = object()
        raise KafkaTimeoutError

    monkeypatch.setattr(consumer._coordinator, "fetch_committed_offsets", fails)
    with pytest.raises(UnreachableError):
        reader.read([place])
    assert pending == {}


@pytest.mark.parametrize("version", [7, 8])
def test_an_unknown_topic_is_not_taken_for_one_without_a_committed_offset(version: int) -> None:
    """Its records would be read by the reset policy: again from their beginning, or not those before the end."""
    values = {"partition_index": 0, "committed_offset": -1, "error_code": UnknownTopicOrPartitionError.errno}
    if version < 8:
        topic = OffsetFetchResponse.OffsetFetchResponseTopic
        topics = [topic(name="in", partitions=[topic.OffsetFetchResponsePartition(**values)])]
        response = OffsetFetchResponse(topics=topics, version=version)
    else:
        group = OffsetFetchResponse.OffsetFetchResponseGroup
        topic = group.OffsetFetchResponseTopics
        topics = [topic(name="in", partitions=[topic.OffsetFetchResponsePartitions(**values)])]
        response = OffsetFetchResponse(groups=[group(group_id="app", topics=topics)], version=version)
    consumer = KafkaConsumer(bootstrap_servers="127.0.0.1:1", group_id="group", api_version=(2, 8, 0))
    try:
        coordinator = consumer._coordinator
        assert coordinator._handle_offset_fetch_response(response) == {}
        kafka_membership.raise_unknown(coordinator)
        with pytest.raises(UnknownTopicOrPartitionError, match="in-0"):
            coordinator._handle_offset_fetch_response(response)
    finally:
        consumer.close()


@pytest.mark.parametrize("is_removed", [False, True])
def test_a_rebalance_that_is_requested_during_one_is_not_forgotten(is_removed: bool) -> None:
    """kafka-python takes every request for done once a join has ended, also one that came after its subscription was sent."""
    membership = KafkaMembership({"bootstrap.servers": "127.0.0.1:1"}, 1.0, "app", lambda members: {})
    requested, sent = [True], []

    def join() -> None:
        sent.append(bytes(membership._assignor.metadata([]).user_data))
        if len(sent) == 1:
            membership.rebalance()
            # The group has removed the member in the meantime.
            membership._number = 1 if is_removed else membership._number
        requested[0] = False

    coordinator = SimpleNamespace(
        ensure_active_group=join,
        need_rejoin=lambda: requested[0],
        request_rejoin=lambda: requested.__setitem__(0, True),
        group_metadata=lambda: SimpleNamespace(state=MemberState.UNJOINED, generation_id=-1, member_id=""),
        poll_heartbeat=lambda: None,
        _heartbeat_enabled=True,
        _subscription=SimpleNamespace(assigned_partitions=list),
    )
    membership._client = SimpleNamespace(_coordinator=coordinator)  # type: ignore[assignment]
    if is_removed:
        with pytest.raises(FencedError):
            membership.poll(LIMIT_S * 1000)
    for _ in range(3):
        membership.poll(LIMIT_S * 1000)
    assert len(set(sent)) == len(sent) == 2
    assert not membership.rebalancing()
