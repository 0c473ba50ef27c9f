"""The connection of kafka-python: its settings, converted from those of librdkafka, and its errors."""

from __future__ import annotations

import os
import ssl
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

from kafka import KafkaAdminClient
from kafka import errors as kafka_errors
from kafka.admin import MemberToRemove
from kafka.errors import (
    GroupIdNotFoundError,
    KafkaError,
    NoError,
    UnknownMemberIdError,
    UnsupportedVersionError,
    for_code,
)
from kafka.net.compat import KafkaNetClient
from kafka.net.sasl.oauth import AbstractTokenProvider
from kafka.protocol.consumer.metadata import ConsumerProtocolAssignment

from streamkit.errors import (
    ConfigError,
    FencedError,
    ForeignMembersError,
    NotPermittedError,
    RetriableTransportError,
    StreamkitError,
    TransportError,
    UnreachableError,
)
from streamkit.record import TopicPartition
from streamkit.transport.kafka import oauth
from streamkit.transport.log_interface import GroupDescription, GroupMember

if TYPE_CHECKING:
    from kafka import KafkaAdminClient
    from kafka.net.compat import KafkaNetClient
    from kafka.net.sasl.oauth import AbstractTokenProvider
    from kafka.protocol.admin.groups import DescribeGroupsResponse

    from streamkit.transport.kafka.messages import StreamsGroupDescribeResponse


_REBALANCING = ("PreparingRebalance", "CompletingRebalance", "Assigning", "Reconciling")


def python_settings(config: Mapping[str, str]) -> dict[str, object]:
    """Return the arguments of kafka-python's clients for address, security and client id in librdkafka's settings.

    Raises ConfigError for settings that kafka-python does not support, and for certificates and keys that can't be read.
    """
    protocol = config.get("security.protocol", "plaintext").upper()
    converted: dict[str, object] = {
        "bootstrap_servers": [server.strip() for server in config["bootstrap.servers"].split(",")],
        "security_protocol": protocol,
    }
    if config.get("client.id"):
        converted["client_id"] = config["client.id"]
    if protocol.endswith("SSL"):
        converted["ssl_context"] = ssl_context(config)
    if protocol.startswith("SASL"):
        converted.update(_sasl(config))
    return converted


def ssl_context(config: Mapping[str, str]) -> ssl.SSLContext:
    """Return the TLS context for librdkafka's settings. Raises ConfigError."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    verified = config.get("enable.ssl.certificate.verification", "true").lower() != "false"
    context.check_hostname = verified and config.get("ssl.endpoint.identification.algorithm", "https") != "none"
    if not verified:
        context.verify_mode = ssl.CERT_NONE
    if config.get("ssl.cipher.suites"):
        with _config_errors("ssl.cipher.suites"):
            context.set_ciphers(config["ssl.cipher.suites"])
    _trust(context, config)
    _identify(context, config)
    return context


def _trust(context: ssl.SSLContext, config: Mapping[str, str]) -> None:
    place, text = config.get("ssl.ca.location"), config.get("ssl.ca.pem")
    if place and place != "probe":
        with _config_errors(f"ssl.ca.location: {place}"):
            if os.path.isdir(place):
                context.load_verify_locations(capath=place)
            else:
                context.load_verify_locations(cafile=place)
    elif text:
        with _config_errors("ssl.ca.pem"):
            context.load_verify_locations(cadata=text)
    else:
        context.load_default_certs()
    revoked = config.get("ssl.crl.location")
    if revoked:
        with _config_errors(f"ssl.crl.location: {revoked}"):
            context.load_verify_locations(cafile=revoked)
        context.verify_flags |= ssl.VERIFY_CRL_CHECK_LEAF


def _identify(context: ssl.SSLContext, config: Mapping[str, str]) -> None:
    """Load the client's certificate and key, from files or from text."""
    certificate, key = config.get("ssl.certificate.location"), config.get("ssl.key.location")
    password = config.get("ssl.key.password", "")
    if config.get("ssl.certificate.pem"):
        # Python loads a client certificate only from a file; this temporary one is deleted before the call returns.
        with tempfile.NamedTemporaryFile("w", suffix=".pem") as file, _config_errors("ssl.certificate.pem"):
            file.write(f"{config['ssl.certificate.pem']}\n{config.get('ssl.key.pem', '')}\n")
            file.flush()
            context.load_cert_chain(file.name, password=password)
    elif certificate:
        # Without a password, OpenSSL would prompt for one at the terminal if the key is encrypted.
        with _config_errors(f"ssl.certificate.location: {certificate}, ssl.key.location: {key or certificate}"):
            context.load_cert_chain(certificate, key, password)


@contextmanager
def _config_errors(what: str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise ConfigError(f"{what}: no such file") from error
    except ssl.SSLError as error:
        raise ConfigError(f"{what}: {(error.reason or 'not usable').lower().replace('_', ' ')}") from error
    except (OSError, ValueError) as error:
        raise ConfigError(f"{what}: {getattr(error, 'strerror', None) or 'not usable'}") from error


def _sasl(config: Mapping[str, str]) -> dict[str, object]:
    mechanism = (config.get("sasl.mechanisms") or config.get("sasl.mechanism") or "GSSAPI").upper()
    if mechanism == "OAUTHBEARER":
        return {"sasl_mechanism": mechanism, "sasl_oauth_token_provider": _provider(config)}
    if mechanism == "GSSAPI":
        service = config.get("sasl.kerberos.service.name", "kafka")
        return {"sasl_mechanism": mechanism, "sasl_kerberos_service_name": service}
    missing = [name for name in ("sasl.username", "sasl.password") if not config.get(name)]
    if missing:
        raise ConfigError(f"sasl.mechanism {mechanism} needs {' and '.join(missing)}")
    return {
        "sasl_mechanism": mechanism,
        "sasl_plain_username": config["sasl.username"],
        "sasl_plain_password": config["sasl.password"],
    }


def _provider(config: Mapping[str, str]) -> AbstractTokenProvider:
    valid_token = oauth.source(config)

    class Provider(AbstractTokenProvider):  # type: ignore[misc]  # kafka-python has no types
        """Returns the tokens for kafka-python."""

        def token(self) -> str:
            return valid_token()

    return Provider()


def remove_members(config: Mapping[str, str], group: str, members: Sequence[str]) -> None:
    """Remove members from a group (LeaveGroup, KIP-345), for which librdkafka has no call. Raises TransportError."""
    what = f"members of group {group} could not be removed"
    try:
        with stopped_on_failure() as connections:
            admin = KafkaAdminClient(**python_settings(config), kafka_client=connections)
        try:
            responses = admin.remove_group_members(group, [MemberToRemove(member) for member in members])
        finally:
            admin.close()
    except KafkaError as error:
        raise TransportError(f"{what}: {error}") from error
    for member, error_class in responses.items():
        # A member may have left in the meantime.
        if error_class not in (NoError, UnknownMemberIdError):
            raise TransportError(f"{what}: {member.member_id}: {error_class.__name__}")


def connected_admin(
    config: Mapping[str, str], timeout: float, what: str = "brokers could not be reached"
) -> KafkaAdminClient:
    """Return a kafka-python client for requests that librdkafka does not support, or not correctly.

    what: the beginning of the message of a failure. Raises TransportError.
    """
    limits = {"request_timeout_ms": int(timeout * 1000), "bootstrap_timeout_ms": int(timeout * 1000)}
    with translated(what, config["bootstrap.servers"]), stopped_on_failure() as connections:
        return KafkaAdminClient(**python_settings(config), **limits, kafka_client=connections)


@contextmanager
def stopped_on_failure() -> Iterator[Callable[..., KafkaNetClient]]:
    """Return the function for `kafka_client` of a client of kafka-python.

    If the client can't be made, its thread and its sockets end, which kafka-python leaves.
    """
    connections: list[KafkaNetClient] = []

    def make(**options: object) -> KafkaNetClient:
        connections.append(KafkaNetClient(**options))
        return connections[-1]

    try:
        yield make
    except BaseException:
        for connection in connections:
            # An error of the close must not hide the first one.
            with suppress(Exception):
                connection.close()
                connection._net.stop()
        raise


def classic_group(admin: KafkaAdminClient, group: str, address: str) -> GroupDescription | None:
    """Return the members of a group, None if no group of the classic protocol has its name. Raises TransportError."""

    async def ask() -> DescribeGroupsResponse.DescribedGroup:
        coordinators = await admin._find_coordinator_ids([group])
        response = await admin._manager.send(admin._describe_groups_request([group]), node_id=coordinators[group])
        return response.groups[0]

    with translated(f"group {group} could not be described", address):
        answer = admin._manager.run(ask)
        error = for_code(answer.error_code)
        if error is GroupIdNotFoundError or answer.group_state == "Dead":
            return None
        if error is not NoError:
            raise error()
    members = []
    for member in answer.members:
        # A member that joins has none yet.
        assigned = ConsumerProtocolAssignment.decode(member.member_assignment) if member.member_assignment else None
        places = frozenset(TopicPartition(*place) for place in assigned.partitions()) if assigned else frozenset()
        members.append(GroupMember(member.member_id, member.client_id, places))
    return GroupDescription(tuple(members), answer.group_state in _REBALANCING)


def streams_group(admin: KafkaAdminClient, group: str, address: str) -> GroupDescription | None:
    """Return the members of a group, None if no streams group (KIP-1071) has its name. Raises TransportError."""
    from streamkit.transport.kafka.messages import StreamsGroupDescribeRequest

    async def ask() -> StreamsGroupDescribeResponse:
        coordinators = await admin._find_coordinator_ids([group])
        request = StreamsGroupDescribeRequest(group_ids=[group], include_authorized_operations=False)
        answer: StreamsGroupDescribeResponse = await admin._manager.send(request, node_id=coordinators[group])
        return answer

    with translated(f"group {group} could not be described", address):
        try:
            answer = admin._manager.run(ask).groups[0]
        except UnsupportedVersionError:
            return None
        error = for_code(answer.error_code)
        # Brokers of a cluster that came from an older version may know the request, but have no streams groups.
        if error in (GroupIdNotFoundError, UnsupportedVersionError) or answer.group_state == "Dead":
            return None
        if error is not NoError:
            raise error(answer.error_message or "")
    topics = {
        sub.subtopology_id: [*sub.source_topics, *(topic.name for topic in sub.repartition_source_topics)]
        for sub in (answer.topology.subtopologies if answer.topology else None) or ()
    }
    members = tuple(
        GroupMember(
            member.member_id,
            member.client_id,
            frozenset(
                TopicPartition(topic, number)
                for tasks in member.assignment.active_tasks
                for topic in topics.get(tasks.subtopology_id, ())
                for number in tasks.partitions
            ),
        )
        for member in answer.members
    )
    return GroupDescription(members, answer.group_state in _REBALANCING)


def remove_from_streams_group(admin: KafkaAdminClient, group: str, members: Sequence[str], address: str) -> None:
    """Remove members from a streams group, by heartbeats of members that leave. Raises TransportError."""
    from streamkit.transport.kafka.messages import StreamsGroupHeartbeatRequest

    async def leave(member: str) -> int:
        coordinators = await admin._find_coordinator_ids([group])
        request = StreamsGroupHeartbeatRequest(
            group_id=group, member_id=member, member_epoch=-1, endpoint_information_epoch=-1
        )
        answer = await admin._manager.send(request, node_id=coordinators[group])
        return int(answer.error_code)

    with translated(f"members of group {group} could not be removed", address):
        for member in members:
            error = for_code(admin._manager.run(leave, member))
            # A member may have left in the meantime.
            if error not in (NoError, UnknownMemberIdError, GroupIdNotFoundError):
                raise error(member)


def is_consumer_group(admin: KafkaAdminClient, group: str, address: str) -> bool:
    """Return whether brokers list a group of the KIP-848 protocol under this name. Raises TransportError."""
    with translated(f"group {group} could not be found", address):
        coordinators = admin._manager.run(admin._find_coordinator_ids, [group])
        listed = admin.list_groups([coordinators[group]])
    # Brokers that do not name the type have groups of the classic protocol only.
    return any(listing["group_id"] == group and listing.get("group_type") == "consumer" for listing in listed)


# Translation of kafka-python's errors to those of streamkit.


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
_NOT_PERMITTED = (kafka_errors.AuthorizationError, kafka_errors.UnsupportedVersionError)
_FENCED = (
    kafka_errors.UnknownMemberIdError,
    kafka_errors.IllegalGenerationError,
    kafka_errors.CommitFailedError,
    kafka_errors.FencedMemberEpochError,
    kafka_errors.StaleMemberEpochError,
)
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
    if isinstance(inner, _NOT_PERMITTED):
        return NotPermittedError(text)
    # The id of an unknown leader, as just after a restart.
    is_retriable = inner.retriable or isinstance(inner, kafka_errors.UnknownBrokerIdError)
    return RetriableTransportError(text) if is_retriable else TransportError(text)
