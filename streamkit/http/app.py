"""All endpoints as one Starlette application, with what guards them."""

from __future__ import annotations

import hmac
import ipaddress
import logging
from functools import cached_property
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.middleware.base import BaseHTTPMiddleware
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from streamkit.errors import QueryError, StateError, StoreUnavailableError, StreamkitError, UnknownStoreError
from streamkit.http import application_page, metrics, openapi, state, stores
from streamkit.http.endpoint import Endpoint, error_response, json_response
from streamkit.http.peers import RefusedError
from streamkit.http.service import Service

if TYPE_CHECKING:
    from starlette.requests import Request

log = logging.getLogger(__name__)

_LOCAL_NAMES = ("localhost", "localhost.localdomain")
_THREADS = 40
_READING = ("GET", "HEAD")


def http_application(service: Service, token: str | None, *, loopback: bool) -> Starlette:
    """Return the endpoints of a service.

    token: what the header `Authorization: Bearer …` must say; loopback: only names of this machine are answered to, so
    that no page of another site reaches it through a name of its own.
    """
    listed = [*application_page.ENDPOINTS, *state.ENDPOINTS, *stores.ENDPOINTS, *metrics.ENDPOINTS]
    described = [*listed, *_documentation(listed, token is not None)]
    threads = _Threads()
    routes = [Route(each.path, _route(each, service, threads), methods=[each.method]) for each in described]
    guard = _Guard(token, {each.path for each in described if each.open}, loopback)
    return Starlette(
        routes=routes,
        middleware=[Middleware(BaseHTTPMiddleware, dispatch=guard)],
        exception_handlers={404: _missing, 405: _missing},
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
    """The threads that requests run in: some for those that may ask other instances, and some for all others.

    A request that waits for another instance never keeps a probe waiting, or a request of such an instance: two
    instances that ask each other would else wait for each other's threads.
    """

    @cached_property
    def _asking(self) -> anyio.CapacityLimiter:
        return anyio.CapacityLimiter(_THREADS)

    @cached_property
    def _own(self) -> anyio.CapacityLimiter:
        return anyio.CapacityLimiter(_THREADS)

    def of(self, endpoint: Endpoint, request: Request) -> anyio.CapacityLimiter:
        """Return those for a request."""
        asks = any(each.name == "scope" for each in endpoint.parameters)
        return self._asking if asks and request.query_params.get("scope") != "local" else self._own


def _route(endpoint: Endpoint, service: Service, threads: _Threads) -> Any:
    async def handle(request: Request) -> Response:
        limiter = threads.of(endpoint, request)
        return await anyio.to_thread.run_sync(_answer, endpoint, service, request, limiter=limiter)

    return handle


def _answer(endpoint: Endpoint, service: Service, request: Request) -> Response:
    try:
        return endpoint.handler(service, request)
    except UnknownStoreError as error:
        return error_response(str(error), 404)
    except QueryError as error:
        return error_response(str(error), 400)
    except (StoreUnavailableError, StateError) as error:
        return error_response(str(error), 503)
    except RefusedError as error:
        return error_response(str(error), error.status)
    except StreamkitError as error:
        return error_response(str(error), 500)
    except Exception:
        log.exception("%s %s failed", endpoint.method, endpoint.path)
        return error_response("internal error; the log of the application says more", 500)


async def _missing(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    what = "there is nothing at" if status == 404 else f"{request.method} is not offered at"
    return error_response(f"{what} {request.url.path}; /api lists what there is", status)


class _Guard:
    """Refuses requests without the token, and those that pages of other sites might send."""

    def __init__(self, token: str | None, open_paths: set[str], loopback: bool):
        self._expected = None if token is None else f"Bearer {token}".encode()
        self._open = open_paths
        self._loopback = loopback

    async def __call__(self, request: Request, call_next: Any) -> Response:
        refusal = self._refusal(request)
        if refusal is not None:
            return refusal
        response: Response = await call_next(request)
        response.headers["X-Content-Type-Options"] = "nosniff"
        response.headers["Cache-Control"] = "no-store"
        return response

    def _refusal(self, request: Request) -> Response | None:
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
