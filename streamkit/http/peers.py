"""The other instances of an application: which one has what, and asking them over HTTP (application.server)."""

from __future__ import annotations

import http.client
import json
import threading
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import urlencode

from streamkit.errors import StoreUnavailableError

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
    """Where a key is: instances by host:port, the active one None while nobody has it."""

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
            # Nobody can be told to ask here, so nobody else is asked.
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
            status, body = self._answer(address, f"{path}?{urlencode(parameters)}", method)
        except (OSError, http.client.HTTPException) as error:
            raise StoreUnavailableError(f"the instance at {address} does not answer: {error}") from error
        finally:
            self._free.release()
        try:
            answer = json.loads(body)
        except ValueError:
            answer = {"error": f"the instance at {address} answers {status} with something else than JSON"}
        if status == 200:
            return answer
        text = answer.get("error", str(answer)) if isinstance(answer, dict) else str(answer)
        if status in (401, 403):
            raise StoreUnavailableError(f"the instance at {address} refuses this one: {text}")
        if status == 503:
            raise StoreUnavailableError(text)
        raise RefusedError(status, text)

    def _answer(self, address: str, target: str, method: str) -> tuple[int, bytes]:
        connection = http.client.HTTPConnection(address, timeout=TIMEOUT_SECONDS)
        headers = {} if self._token is None else {"Authorization": f"Bearer {self._token}"}
        try:
            connection.request(method, target, headers=headers)
            response = connection.getresponse()
            return response.status, response.read()
        finally:
            connection.close()
