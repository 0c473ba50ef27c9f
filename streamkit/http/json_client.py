"""One request to an instance of an application, and its answer in JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener


class Answer(NamedTuple):
    """A status code and what came with it; content is None where that was no JSON."""

    status: int
    content: Any

    @property
    def error(self) -> str | None:
        """The text of the instance's error; None where the answer has none."""
        return str(self.content["error"]) if isinstance(self.content, dict) and "error" in self.content else None


class _NoRedirects(HTTPRedirectHandler):
    def redirect_request(self, *_: Any) -> None:
        return None


class JsonClient:
    """An instance at a URL; `ask` may be called from several threads."""

    def __init__(self, url: str, token: str | None, timeout_s: float, *, direct: bool = False):
        """direct: without proxies of the environment and without redirects, for instances of one group."""
        self.url = url.rstrip("/")
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        self._timeout_s = timeout_s
        self._opener = build_opener(ProxyHandler({}), _NoRedirects()) if direct else build_opener()

    def ask(self, path: str, parameters: Mapping[str, Any] | None = None, method: str = "GET") -> Answer:
        """Return the answer of any status; parameters that are None are left out.

        Raises OSError or http.client.HTTPException where no answer comes.
        """
        query = urlencode({name: value for name, value in (parameters or {}).items() if value is not None})
        target = f"{self.url}{path}?{query}" if query else f"{self.url}{path}"
        try:
            response = self._opener.open(Request(target, headers=self._headers, method=method), timeout=self._timeout_s)
        except HTTPError as error:
            response = error
        with response:
            try:
                return Answer(response.status, json.loads(response.read()))
            except ValueError:
                return Answer(response.status, None)


def reason_of(error: BaseException) -> BaseException:
    """Return the error below the one of urllib, which only wraps it."""
    reason = getattr(error, "reason", None)
    return reason if isinstance(reason, BaseException) else error
