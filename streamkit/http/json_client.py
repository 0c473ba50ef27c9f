"""Requests to an instance of an application, and the shapes of its JSON answers."""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping
from http.client import HTTPException, HTTPResponse
from typing import IO, TypeAlias, cast
from urllib.error import HTTPError
from urllib.parse import urlencode
from urllib.request import HTTPRedirectHandler, ProxyHandler, Request, build_opener

from streamkit.errors import InstanceError
from streamkit.serdes.plain import Document, Json


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


# The shapes of answers: the parts that commands and other instances read, which are checked first.
#
# Another service may answer at an address, and so may another version of streamkit. A shape is a type or a union of types, a list
# with the shape of its elements, a dict with the shapes of the keys that are read, or a function that returns the shape of an answer.


Shape: TypeAlias = "type | list[Shape] | dict[str, Shape] | Callable[[Json], Shape]"

_COUNT = cast("type", int | None)
_TEXT = cast("type", str | None)
_NUMBER = cast("type", int | float)
_INPUT: dict[str, Shape] = {
    "topic": str, "partition": int, "task": str, "member": _TEXT, "state": str, "committed": _COUNT, "end": _COUNT, "lag": _COUNT,
}  # fmt: skip
_DROP: dict[str, Shape] = {
    "task": _TEXT,
    "reason": str,
    "dropped": int,
    "dead_letters": int,
    "message": str,
    "at_ms": _NUMBER,
}
_TASK: Shape = {
    "id": str, "kind": str, "processed": int, "rate": _NUMBER, "inputs": [{"lag": _COUNT}], "stores": [str],
}  # fmt: skip
_PART: Shape = {
    "task": str, "rows": _COUNT, "bytes": _COUNT, "offset": _COUNT, "end": _COUNT, "committed_ms": cast("type", int | float | None),
}  # fmt: skip
_RESTORING: Shape = {
    "task": str, "store": str, "restored": int, "total": int, "rate": _NUMBER, "eta_seconds": cast("type", int | float | None),
}  # fmt: skip

INSTANCE: Shape = {
    "application": str,
    "address": str,
    "process": str,
    "state": str,
    "shown_state": str,
    "error": _TEXT,
    "own_lag": _COUNT,
    "rate": _NUMBER,
    "uptime_seconds": _NUMBER,
    "threads": [{"name": str, "state": str, "error": _TEXT, "tasks": [_TASK]}],
    "stores": [{"name": str, "parts": [_PART]}],
    "restoring": [_RESTORING],
    "inputs": [_INPUT],
    "drops": [_DROP],
}
"""`/status?scope=local`."""
_GONE: Shape = {"address": str, "state": str, "error": str}


def _instance(answer: Json) -> Shape:
    return INSTANCE if isinstance(answer, dict) and "threads" in answer else _GONE


STATUS: Shape = {
    "application": str,
    "condition": str,
    "level": str,
    "problems": [{"condition": str, "level": str, "text": str}],
    "lag": _COUNT,
    "rate": _NUMBER,
    "inputs": [{**_INPUT, "owner": _TEXT}],
    "drops": [{**_DROP, "instance": str}],
    "instances": [_instance],
}
"""`/status`."""
HISTORY: Shape = {"address": str, "points": [{"time": int}], "events": [{"time": int, "text": str}]}
"""`/history?scope=local`."""
STORES: Shape = {"stores": [{"name": str, "queries": [str]}]}
"""`/stores`."""
ROW: Shape = {"key": object, "value": object}
"""`/stores/NAME/get`."""
ROWS: Shape = {"rows": [dict], "next": _TEXT}
"""A page of rows, at the other paths of a store."""
PARTITIONS: Shape = {
    "rows": [{"cursor": str, "partition": int}], "next": _TEXT, "partitions": [int], "stale_partitions": [int],
}  # fmt: skip
"""A page of rows of one instance (`scope=local`)."""


def misfit(answer: Json, shape: Shape, path: str = "") -> str | None:
    """Return the path of the first part of an answer that is missing or has the wrong type; None if the answer fits its shape.

    >>> misfit({"rows": [{"key": 1}, {}]}, {"rows": [{"key": object}]})
    'rows.key'
    """
    if isinstance(shape, dict):
        if not isinstance(answer, dict):
            return path
        for key, inner in shape.items():
            below = f"{path}.{key}" if path else key
            missing = misfit(answer[key], inner, below) if key in answer else below
            if missing is not None:
                return missing
        return None
    if isinstance(shape, list):
        if not isinstance(answer, list):
            return path
        return next((missing for item in answer if (missing := misfit(item, shape[0], path)) is not None), None)
    if isinstance(shape, _instance.__class__):
        return misfit(answer, shape(answer), path)
    return None if isinstance(answer, cast("type", shape)) else path
