"""All endpoints as one Starlette application, with the checks before them."""

from __future__ import annotations

import hmac
import ipaddress
import logging
import re
from functools import cached_property
from importlib.metadata import version
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from streamkit.errors import (
    InstanceError,
    QueryError,
    StateError,
    StoreUnavailableError,
    StreamkitError,
    UnknownNameError,
)
from streamkit.http.endpoints import (
    application_page,
    dead_letter_endpoints,
    instance_state,
    live_state,
    openapi,
    prometheus,
    store_endpoints,
    topic_endpoints,
)
from streamkit.http.endpoints.endpoint import JSON, Arguments, Endpoint, error_response, json_response
from streamkit.http.service import Service

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger(__name__)

_HOST = re.compile(r"(\[[0-9A-Fa-f:.]+(%[A-Za-z0-9._-]+)?\]|[A-Za-z0-9._-]+)(:[0-9]{0,5})?")
_LOCAL_NAMES = ("localhost", "localhost.localdomain")
_THREADS = 40
_READING = ("GET", "HEAD")


def http_application(service: Service, token: str | None, *, loopback: bool) -> Starlette:
    """Return the endpoints of a service.

    token: that of the header `Authorization: Bearer …`; loopback: a request must name this machine as its host, so that no
    page of another site reaches the server through a host name of that site.
    """
    endpoints = [
        *application_page.ENDPOINTS,
        *instance_state.ENDPOINTS,
        *live_state.ENDPOINTS,
        *store_endpoints.ENDPOINTS,
        *topic_endpoints.ENDPOINTS,
        *dead_letter_endpoints.ENDPOINTS,
        *prometheus.ENDPOINTS,
    ]
    described = [*endpoints, *_documentation(endpoints, token is not None)]
    threads = _Threads()
    routes = [Route(each.path, _route(each, service, threads), methods=[each.method]) for each in described]
    guard = Middleware(Guard, token=token, open_paths={each.path for each in described if each.open}, loopback=loopback)
    return Starlette(
        routes=routes,
        middleware=[guard],
        exception_handlers={404: _not_found, 405: _not_found},
    )


def _documentation(endpoints: list[Endpoint], secured: bool) -> list[Endpoint]:
    def page_of(service: Service, request: Request) -> Response:
        return HTMLResponse(openapi.page([*endpoints, *own]))

    def document_of(service: Service, request: Request) -> Response:
        return json_response(openapi.document([*endpoints, *own], version("streamkit"), secured))

    own = [
        Endpoint("/api", "This documentation.", page_of, content="text/html", open=True),
        Endpoint("/openapi.json", "The OpenAPI document.", document_of, open=True),
    ]
    return own


class _Threads:
    """The threads of requests: one pool for those that may send requests to other instances, and one for all others.

    So a request that waits for another instance never delays a probe, or a request of that instance: with one pool, two
    instances could wait for each other's threads.
    """

    @cached_property
    def _remote(self) -> anyio.CapacityLimiter:
        return anyio.CapacityLimiter(_THREADS)

    @cached_property
    def _local(self) -> anyio.CapacityLimiter:
        return anyio.CapacityLimiter(_THREADS)

    def of(self, endpoint: Endpoint, request: Request) -> anyio.CapacityLimiter:
        """Return the limiter of the pool for a request."""
        names = {each.name for each in endpoint.parameters}
        is_remote = "scope" in names and request.query_params.get("scope") != "local"
        return self._remote if is_remote or "instance" in names & request.query_params.keys() else self._local


def _route(endpoint: Endpoint, service: Service, threads: _Threads) -> Callable[[Request], Awaitable[Response]]:
    async def handle(request: Request) -> Response:
        limiter = threads.of(endpoint, request)
        return await anyio.to_thread.run_sync(_answer, endpoint, service, request, limiter=limiter)

    return handle


def _answer(endpoint: Endpoint, service: Service, request: Request) -> Response:
    try:
        if not endpoint.open and endpoint.content == JSON:
            # Refuses parameters that the endpoint does not have.
            Arguments(request, endpoint.parameters)
        return endpoint.handler(service, request)
    except UnknownNameError as error:
        return error_response(str(error), 404)
    except QueryError as error:
        return error_response(str(error), 400)
    except (StoreUnavailableError, StateError) as error:
        return error_response(str(error), 503)
    except InstanceError as error:
        # What is no JSON may come with any status: it is never one of this instance.
        return error_response(str(error), error.status if error.status and error.status >= 400 else 502)
    except StreamkitError as error:
        return error_response(str(error), 500)
    except Exception:
        log.exception("%s %s failed", endpoint.method, endpoint.path)
        return error_response("internal error; the log of the application says more", 500)


async def _not_found(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    what = "there is nothing at" if status == 404 else f"{request.method} is not offered at"
    return error_response(f"{what} {request.url.path}; /api lists what there is", status)


_HEADERS = [(b"x-content-type-options", b"nosniff"), (b"cache-control", b"no-store")]


class Guard:
    """Refuses requests without the token, and those that pages of other sites might send."""

    def __init__(self, app: ASGIApp, token: str | None, open_paths: set[str], loopback: bool):
        self._app = app
        self._expected = None if token is None else f"Bearer {token}".encode()
        self._open = open_paths
        self._loopback = loopback

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_HEADERS]
            await send(message)

        refusal = self._refusal(Request(scope))
        if refusal is not None:
            await refusal(scope, receive, send)
        else:
            await self._app(scope, receive, with_headers)

    def _refusal(self, request: Request) -> Response | None:
        host = request.headers.get("host")
        if host is not None and not _HOST.fullmatch(host):
            return error_response(f"the header Host is {host!r}; expected HOST or HOST:PORT", 400)
        if self._loopback and not is_local(request.url.hostname or ""):
            return error_response(f"{request.url.hostname} is no name of this machine", 403)
        if request.method not in _READING:
            origin = request.headers.get("origin")
            if origin is not None and origin.partition("://")[2] != request.headers.get("host"):
                return error_response(f"requests from {origin} are not answered", 403)
        if self._expected is None or request.url.path in self._open:
            return None
        given = request.headers.get("authorization", "").encode()
        if hmac.compare_digest(given, self._expected):
            return None
        refusal = error_response("a token is needed: Authorization: Bearer …", 401)
        refusal.headers["WWW-Authenticate"] = "Bearer"
        return refusal


def is_local(name: str) -> bool:
    """Return whether a host name or address is this machine's own loopback."""
    if name in _LOCAL_NAMES:
        return True
    try:
        return ipaddress.ip_address(name.strip("[]")).is_loopback
    except ValueError:
        return False
