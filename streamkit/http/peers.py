"""The other instances of an application: the owners of keys, and requests to them over HTTP (application.server)."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING

from streamkit.errors import InstanceError, InstanceGoneError, StoreUnavailableError
from streamkit.http.json_client import JsonClient
from streamkit.serdes.plain import Json

if TYPE_CHECKING:
    from streamkit.runtime.local.instance.client import Application

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

    @property
    def own(self) -> str:
        """The host:port of this instance, empty where application.server is not set."""
        return str(self._application.plan.config.get("application.server") or "")

    def others(self) -> list[str]:
        """Return the other instances that set application.server."""
        servers = (each.server for each in self._application.metadata_for_all())
        return sorted({server for server in servers if server} - {self.own})

    def owner(self, store: str, key: bytes) -> Owner:
        """Return the owner of a key of a store. Raises StoreUnavailableError before the start."""
        if not self.own:
            # Other instances can't send requests to this one, so it sends none to them.
            return Owner(None, self.own)
        found = self._application.key_metadata(store, key)
        return Owner(found.partition, found.active, found.standbys)

    def request(
        self,
        address: str,
        path: str,
        parameters: dict[str, str],
        *,
        method: str = "GET",
        timeout_seconds: float = TIMEOUT_SECONDS,
    ) -> Json:
        """Return the answer of another instance.

        Raises InstanceGoneError where it does not answer, StoreUnavailableError where it answers 503 or refuses the token;
        InstanceError for other errors, with their status.
        """
        if not self._free.acquire(timeout=TIMEOUT_SECONDS):
            raise StoreUnavailableError(f"too many requests to other instances: {address} is not asked")
        try:
            client = JsonClient(f"http://{address}", self._token, timeout_seconds, direct=True)
            return client.request(path, parameters, method)
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
