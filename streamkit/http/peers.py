"""The other instances of an application: which one has what, and asking them over HTTP (application.server)."""

from __future__ import annotations

import http.client
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from streamkit.errors import StoreUnavailableError
from streamkit.http.json_client import JsonClient, reason_of

if TYPE_CHECKING:
    from streamkit.runtime.local.client import Application

TIMEOUT_SECONDS = 15.0
"""More than a query waits for a busy thread at the other end."""


class RefusedError(Exception):
    """An answer that is an error of the caller's: a status code, and one line."""

    def __init__(self, status: int, text: str):
        super().__init__(text)
        self.status = status


@dataclass(frozen=True)
class Owner:
    """Where a key is: instances by host:port, the active one None while no instance has it."""

    partition: int | None
    active: str | None
    standbys: tuple[str, ...] = ()


class Peers:
    """Finds instances by what the group knows, and asks them."""

    def __init__(self, application: Application, token: str | None, at_once: int):
        """`at_once`: connections to other instances at a time; more wait."""
        self._application = application
        self._token = token
        self._free = threading.BoundedSemaphore(at_once)

    @property
    def own(self) -> str:
        """The host:port of this instance, empty where it tells none."""
        return str(self._application.plan.config.get("application.server") or "")

    def others(self) -> list[str]:
        """Return the other instances that say where they answer."""
        servers = (each.server for each in self._application.metadata_for_all())
        return sorted({server for server in servers if server} - {self.own})

    def owner(self, store: str, key: bytes) -> Owner:
        """Return where a key of a store is. Raises StoreUnavailableError before the start."""
        if not self.own:
            # Other instances can't ask this one, so it asks none.
            return Owner(None, self.own)
        found = self._application.key_metadata(store, key)
        return Owner(found.partition, found.active, found.standbys)

    def ask(self, address: str, path: str, parameters: dict[str, str], method: str = "GET") -> Any:
        """Return what another instance answers.

        Raises StoreUnavailableError where it does not answer or says 503, RefusedError for other errors.
        """
        if not self._free.acquire(timeout=TIMEOUT_SECONDS):
            raise StoreUnavailableError(f"too many requests to other instances: {address} is not asked")
        try:
            client = JsonClient(f"http://{address}", self._token, TIMEOUT_SECONDS, direct=True)
            answer = client.ask(path, parameters, method)
        except (OSError, http.client.HTTPException) as error:
            raise StoreUnavailableError(f"the instance at {address} does not answer: {reason_of(error)}") from error
        finally:
            self._free.release()
        if answer.content is None:
            text = f"the instance at {address} answers {answer.status} with something else than JSON"
        elif answer.status == 200:
            return answer.content
        else:
            text = answer.error or str(answer.content)
        if answer.status in (401, 403):
            raise StoreUnavailableError(f"the instance at {address} refuses this one: {text}")
        if answer.status == 503:
            raise StoreUnavailableError(text)
        raise RefusedError(answer.status, text)
