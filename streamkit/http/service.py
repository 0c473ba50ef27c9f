"""What the endpoints work on."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamkit.http.peers import Peers

if TYPE_CHECKING:
    from streamkit.runtime.local.client import Application


@dataclass(frozen=True)
class Service:
    """An application, and the other instances of it."""

    application: Application
    peers: Peers

    @classmethod
    def of(cls, application: Application, token: str | None = None) -> Service:
        """Return the service of an application; `token`: what the other instances ask for."""
        return cls(application, Peers(application, token))
