"""All endpoints as one Starlette application, with the checks before them."""

from __future__ import annotations

import logging
from functools import cached_property
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import Response
from starlette.routing import Route

from streamkit import __version__
from streamkit.errors import (
    InstanceError,
    QueryError,
    StateError,
    StoreUnavailableError,
    StreamkitError,
    UnknownNameError,
)
from streamkit.http.access import Access, Refusal
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
from streamkit.plan.describe.drawing.page import policy

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

log = logging.getLogger(__name__)

_THREADS = 40


def http_application(service: Service, access: Access) -> Starlette:
    """Return the endpoints of a service, for the requests that have access."""
    endpoints = [
        *application_page.ENDPOINTS,
        *instance_state.ENDPOINTS,
        *live_state.ENDPOINTS,
        *store_endpoints.ENDPOINTS,
        *topic_endpoints.ENDPOINTS,
        *dead_letter_endpoints.ENDPOINTS,
        *prometheus.ENDPOINTS,
    ]
    described = [*endpoints, *_documentation(endpoints, access.token is not None)]
    threads = _Threads()
    routes = [Route(each.path, _route(each, service, threads), methods=[each.method]) for each in described]
    guard = Middleware(Guard, access=access, open_paths={each.path for each in described if each.open})
    return Starlette(
        routes=routes,
        middleware=[guard],
        exception_handlers={404: _not_found, 405: _not_found},
    )


def _documentation(endpoints: list[Endpoint], secured: bool) -> list[Endpoint]:
    def page_of(service: Service, request: Request) -> Response:
        return application_page.page_response(openapi.page([*endpoints, *own]), policy(openapi.STYLE))

    def document_of(service: Service, request: Request) -> Response:
        return json_response(openapi.document([*endpoints, *own], __version__, secured))

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
    """Refuses the requests that have no access."""

    def __init__(self, app: ASGIApp, access: Access, open_paths: set[str]):
        self._app = app
        self._access = access
        self._open = open_paths

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        async def with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                message["headers"] = [*message["headers"], *_HEADERS]
            await send(message)

        request = Request(scope)
        refusal = self._access.refusal(request, is_open=request.url.path in self._open)
        if refusal is not None:
            await _refused(refusal)(scope, receive, send)
        else:
            await self._app(scope, receive, with_headers)


def _refused(refusal: Refusal) -> Response:
    response = error_response(refusal.text, refusal.status)
    if refusal.status == 401:
        response.headers["WWW-Authenticate"] = "Bearer"
    return response
