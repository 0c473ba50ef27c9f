"""The objects that endpoints use."""

from __future__ import annotations

import threading
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

from streamkit.http.access import Access
from streamkit.http.event_stream import SharedAnswer, Streams
from streamkit.http.history import History
from streamkit.http.peers import Peers
from streamkit.http.server.server_limits import Limits, Traffic
from streamkit.plan.describe.drawing.picture import Picture, pictures_of
from streamkit.plan.describe.node_steps import node_steps
from streamkit.serdes.plain import Json

if TYPE_CHECKING:
    from streamkit.runtime.local.client import Application

READERS = 4
"""Requests that read topics at the same time."""


@dataclass(frozen=True)
class Service:
    """An application, the other instances of it, and what the server keeps between requests."""

    application: Application
    access: Access
    peers: Peers
    history: History
    streams: Streams
    traffic: Traffic = field(default_factory=Traffic)
    steps: Json = None
    """The step of each node, as the file was at the start."""
    status: SharedAnswer = field(default_factory=SharedAnswer)
    """The status of all instances, for streams."""
    readers: threading.BoundedSemaphore = field(default_factory=lambda: threading.BoundedSemaphore(READERS))
    """Taken by requests that read topics, each of which opens clients of its own."""
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
