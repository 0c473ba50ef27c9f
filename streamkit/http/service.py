"""The objects that endpoints use, and the other instances of the application."""

from __future__ import annotations

import ipaddress
import logging
import socket
import threading
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from streamkit.errors import InstanceError, InstanceGoneError, StoreUnavailableError
from streamkit.http.acceptor import Limits, Traffic
from streamkit.http.access import HOST_NAME, Access
from streamkit.http.event_stream import Streams
from streamkit.http.history import History
from streamkit.http.json_client import JsonClient, Shape
from streamkit.plan.describe.drawing.page import node_steps
from streamkit.plan.describe.drawing.picture import Picture, pictures_of
from streamkit.runtime.local.status_model import Recent
from streamkit.serdes.plain import Document, Json

if TYPE_CHECKING:
    from streamkit.runtime.local.client import Application


_SHARED_SECONDS = 0.9
READERS = 4
"""Requests that read topics at the same time."""


@dataclass(frozen=True)
class Service:
    """An application, its other instances, and the state that the server keeps between requests."""

    application: Application
    access: Access
    peers: Peers
    history: History
    streams: Streams
    traffic: Traffic = field(default_factory=Traffic)
    steps: Document = None
    """The step of each node, as the file was at the start."""
    status: Recent[Json] = field(default_factory=lambda: Recent(_SHARED_SECONDS))
    """The status of all instances, for streams, each of which reads it once a second."""
    readers: threading.BoundedSemaphore = field(default_factory=lambda: threading.BoundedSemaphore(READERS))
    """Held by requests that read topics, each of which opens its own clients."""
    replaying: threading.Lock = field(default_factory=threading.Lock)
    """Held by the request that replays dead letters."""

    @cached_property
    def pictures(self) -> tuple[Picture, ...]:
        """The drawings of the topology, laid out when the page is first requested."""
        return pictures_of(self.application.plan)

    @classmethod
    def of(
        cls, application: Application, access: Access, limits: Limits, traffic: Traffic, closing: threading.Event
    ) -> Service:
        """Return the service of an application.

        access: its token is that of the other instances, too, to which there are as many requests at a time as connections
        here; closing: is set when the server closes.
        """
        peers = Peers(application, access.token, limits.connections)
        history, streams = History(application, closing), Streams(closing)
        return cls(application, access, peers, history, streams, traffic, node_steps(application.plan))


# The other instances of an application: the owners of keys, and requests to them over HTTP (application.server).

log = logging.getLogger(__name__)

TIMEOUT_SECONDS = 15.0
"""Longer than a query of the other instance waits for a busy stream thread."""


@dataclass(frozen=True)
class Owner:
    """The instances that have a key, by host:port; `active` is None while none has its active task."""

    partition: int | None
    active: str | None
    standbys: tuple[str, ...] = ()


class Peers:
    """Finds the instances of the group, and sends requests to them."""

    def __init__(self, application: Application, token: str | None, max_requests: int):
        """max_requests: requests to other instances at the same time; more wait."""
        self._application = application
        self._token = token
        self._free = threading.BoundedSemaphore(max_requests)
        self._reported: set[str] = set()

    @property
    def own(self) -> str:
        """The host:port of this instance, empty if application.server is not set."""
        return self._application.plan.config.application_server

    def others(self) -> list[str]:
        """Return the other instances that set application.server."""
        servers = (instance.server for instance in self._application.metadata_for_all())
        return sorted({server for server in servers if server} - {self.own})

    def owner(self, store: str, key: bytes) -> Owner:
        """Return the owner of a key of a store. Raises StoreUnavailableError before the start."""
        if not self.own:
            # Other instances can't send requests to this one, so it sends none to them.
            return Owner(None, self.own)
        owner = self._application.key_metadata(store, key)
        return Owner(owner.partition, owner.active, owner.standbys)

    def request(
        self,
        address: str,
        path: str,
        parameters: dict[str, str],
        *,
        method: str = "GET",
        shape: Shape = object,
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> Document:
        """Return the answer of another instance, checked against a shape (see `answers.misfit`).

        Raises InstanceGoneError if it does not answer, StoreUnavailableError if it answers 503 or refuses the token, or is at
        an address that the user has not allowed; InstanceError for other errors, with their status.
        """
        host_and_port = self._place_of(address)
        if not self._free.acquire(timeout=TIMEOUT_SECONDS):
            raise StoreUnavailableError(f"too many requests to other instances: {address} is not asked")
        try:
            client = JsonClient(f"http://{host_and_port}", self._token, timeout_seconds, peer=address)
            return client.request(path, parameters, method, shape)
        except InstanceError as error:
            if error.status is None:
                raise InstanceGoneError(f"the instance at {address} does not answer: {error}") from error
            if error.status in (401, 403):
                raise StoreUnavailableError(f"the instance at {address} refuses this one: {error}") from error
            if error.status == 503:
                raise StoreUnavailableError(str(error)) from error
            raise
        finally:
            self._free.release()

    def _place_of(self, address: str) -> str:
        """Return the HOST:PORT to connect to for the address that a member of the group announces, if the user has allowed it.

        A member can announce any address, and every request has the token. A host name that counts only by what it resolves
        to gives that address, so that it can't resolve to another one by the time of the connection.
        Raises StoreUnavailableError for other addresses, InstanceGoneError for a name that does not resolve.
        """
        host, _, port = address.rpartition(":")
        host = host.strip("[]")
        allowed = self._application.plan.config.http_peers
        if not HOST_NAME.fullmatch(host) or not port.isdecimal():
            raise StoreUnavailableError(f"the group names an instance at {address!r}, which is no HOST:PORT")
        if host.lower() == self.own.rpartition(":")[0].strip("[]").lower() or _is_named(host, allowed):
            return address
        try:
            addresses = [
                str(socket_address[0])
                for *_, socket_address in socket.getaddrinfo(host, int(port), type=socket.SOCK_STREAM)
            ]
        except (OSError, UnicodeError, OverflowError) as error:
            reason = getattr(error, "strerror", None) or error
            raise InstanceGoneError(f"the instance at {address} does not answer: {reason}") from error
        networks = [network for entry in allowed if (network := _network(entry)) is not None]
        for resolved in addresses:
            number = ipaddress.ip_address(resolved)
            if any(number in network for network in networks) or _is_of_this_host(number):
                return f"[{resolved}]:{port}" if ":" in resolved else f"{resolved}:{port}"
        text = f"the instance at {address} gets no requests: it is on another host, and http.peers lists neither {host} nor its network"
        if address not in self._reported:
            self._reported.add(address)
            log.warning("%s", text)
        raise StoreUnavailableError(text)


def _is_named(host: str, allowed: tuple[str, ...]) -> bool:
    """Return whether http.peers has a host by its name, or a domain above it."""
    name = host.lower().rstrip(".")
    names = [name.lower().rstrip(".") for name in allowed]
    return name in names or any(pattern.startswith("*.") and name.endswith(pattern[1:]) for pattern in names)


def _network(entry: str) -> ipaddress.IPv4Network | ipaddress.IPv6Network | None:
    try:
        return ipaddress.ip_network(entry)
    except ValueError:
        return None


def _is_of_this_host(address: ipaddress.IPv4Address | ipaddress.IPv6Address) -> bool:
    """Return whether an address is one of this machine: then the system sends to it from itself."""
    if address.is_loopback:
        return True
    family = socket.AF_INET if address.version == 4 else socket.AF_INET6
    try:
        with socket.socket(family, socket.SOCK_DGRAM) as probe:
            # Nothing is sent: connect only finds the route.
            probe.connect((str(address), 9))
            return ipaddress.ip_address(probe.getsockname()[0]) == address
    except (OSError, ValueError):
        return False
