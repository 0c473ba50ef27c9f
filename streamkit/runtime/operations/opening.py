"""Opens the log that a topology's settings name."""

from __future__ import annotations

import socket
import struct

from streamkit.plan.model import Plan
from streamkit.transport import Transport, open_transport

ROLES = ("common", "consumer", "main", "restore", "global", "producer", "admin")


def address(plan: Plan) -> str:
    """Return `bootstrap.servers` as text."""
    servers = plan.config.bootstrap_servers
    return servers if isinstance(servers, str) else ",".join(servers)


def silence_of(plan: Plan) -> str | None:
    """Return the failed attempts to reach the log, if no broker answers; None if one does, or may, or none is needed."""
    if address(plan).startswith("embedded"):
        return None

    return silence(address(plan), tls="SSL" in plan.config.client("common").get("security.protocol", "").upper())


def open_log(plan: Plan, *, creates: bool = True) -> Transport:
    """Return the log that `bootstrap.servers` names; the caller closes it. Raises ConfigError, TransportError.

    creates False: an embedded log that does not exist is read as an empty one, and not created.
    """
    config = plan.config
    settings = {role: config.client(role) for role in ROLES}
    return open_transport(address(plan), settings, config.state_dir, creates=creates)


# Finds out why brokers can't be reached by connecting to each of their addresses.


ANSWERS = "answers"
_ACCEPTS = "accepts connections"
_SECONDS = 3.0
_API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 0, -1)
"""A request that every broker answers before authentication: ApiVersions, version 0, without the client's name."""


def connection_attempts(addresses: str, *, ask: bool = False) -> dict[str, str]:
    """Return the result of a connection to each HOST:PORT of a comma-separated list, as text.

    ask: send a request of Kafka's protocol; if a broker without TLS answers, the result is ANSWERS.
    """
    return {address: _attempt(address, ask) for part in addresses.split(",") if (address := part.strip())}


def silence(addresses: str, *, tls: bool) -> str | None:
    """Return the failed attempts, if no broker answers; None if one does or may: over TLS a broker is only known to listen."""
    attempts = connection_attempts(addresses, ask=not tls)
    if any(result == ANSWERS or (tls and result.startswith(_ACCEPTS)) for result in attempts.values()):
        return None
    return "; ".join(f"{address}: {result}" for address, result in attempts.items())


def _attempt(address: str, ask: bool) -> str:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), _SECONDS) as connection:
            if ask and _answers(connection):
                return ANSWERS
    except socket.gaierror as error:
        return f"the name {host!r} can't be resolved ({error.strerror})"
    except TimeoutError:
        return f"no answer within {_SECONDS:g} s: a firewall, or the wrong address"
    except OSError as error:
        return f"{error.strerror or error}: nothing listens there, or it can't be reached from here"
    except ValueError:
        return "is not HOST:PORT"
    return f"{_ACCEPTS}: it may be no Kafka broker, or expect another security.protocol"


def _answers(connection: socket.socket) -> bool:
    try:
        connection.sendall(_API_VERSIONS)
        return bool(connection.recv(4))
    except OSError:
        return False
