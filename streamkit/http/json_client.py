"""Requests to an instance of an application, whose answers are JSON."""

from __future__ import annotations

import json
from collections.abc import Mapping
from http.client import HTTPException, HTTPResponse
from typing import IO
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from streamkit.errors import InstanceError
from streamkit.http.answers import Shape, misfit
from streamkit.serdes.plain import Document


class _NoRedirects(HTTPRedirectHandler):
    """A redirect would take the token to an address that the user has not given."""

    def redirect_request(
        self, req: Request, fp: IO[bytes], code: int, msg: str, headers: object, newurl: str
    ) -> Request | None:
        return None


class JsonClient:
    """An instance at a URL; any thread may call `request`."""

    def __init__(self, url: str, token: str | None, timeout_s: float, *, peer: str | None = None):
        """peer: the name HOST:PORT of an instance of the same group, which gets requests without proxies of the environment."""
        self.url = url.rstrip("/")
        self._headers = {} if token is None else {"Authorization": f"Bearer {token}"}
        if peer is not None:
            self._headers["Host"] = peer
        self._timeout_s = timeout_s
        self._opener = build_opener(*([] if peer is None else [ProxyHandler({})]), _NoRedirects())

    def request(
        self,
        path: str,
        parameters: Mapping[str, object] | None = None,
        method: str = "GET",
        shape: Shape = object,
    ) -> Document:
        """Return the content of an answer, of a shape as `misfit` takes it; parameters that are None are left out.

        Raises InstanceError: for an error with its text, for an answer that is not JSON or has another shape, for a redirect, and
        if no answer comes.
        """
        query = urlencode({name: value for name, value in (parameters or {}).items() if value is not None})
        target = f"{self.url}{path}?{query}" if query else f"{self.url}{path}"
        try:
            status, location, body = self._send(Request(target, headers=self._headers, method=method))
        except (OSError, HTTPException) as error:
            raise InstanceError(_reason(error)) from error
        if location is not None and 300 <= status < 400:
            raise InstanceError(f"{self.url} redirects to {location}; if that is an instance, give its address", status)
        try:
            content: Document = json.loads(body)
        except ValueError:
            raise InstanceError(f"{self.url} answers {status} with something else than JSON", status) from None
        if status >= 300:
            is_error = isinstance(content, dict) and "error" in content
            raise InstanceError(str(content["error"]) if is_error else f"{self.url} answers {status}", status)
        missing = misfit(content, shape)
        if missing is not None:
            what = f"without {missing!r}" if missing else "of another form"
            raise InstanceError(
                f"{self.url} is no application of streamkit, or of another version: it answers {path} {what}", status
            )
        return content

    def _send(self, request: Request) -> tuple[int, str | None, bytes]:
        response: HTTPResponse | HTTPError
        try:
            response = self._opener.open(request, timeout=self._timeout_s)
        except HTTPError as error:
            response = error
        with response:
            return response.status or 0, response.headers.get("Location"), response.read()


def _reason(error: OSError | HTTPException) -> str:
    """Return the text of the error below the one of urllib, which only wraps it."""
    reason = getattr(error, "reason", None)
    inner = reason if isinstance(reason, BaseException) else error
    return str(getattr(inner, "strerror", None) or inner)
