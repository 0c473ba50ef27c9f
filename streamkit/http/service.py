"""What the endpoints work on."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streamkit.http.limits import Traffic
from streamkit.http.peers import Peers

if TYPE_CHECKING:
    from streamkit.runtime.local.client import Application


@dataclass(frozen=True)
class Service:
    """An application, and the other instances of it."""

    application: Application
    peers: Peers
    traffic: Traffic = field(default_factory=Traffic)

    @classmethod
    def of(cls, application: Application, token: str | None, asked_at_once: int, traffic: Traffic) -> Service:
        """Return the service of an application.

        token: what the other instances ask for; asked_at_once: connections to them at a time.
        """
        return cls(application, Peers(application, token, asked_at_once), traffic)
