"""All endpoints as one Starlette application, with the checks before them, their documentation and pages; the thread that serves it."""

from __future__ import annotations

import errno
import logging
import os
import re
import socket
import threading
import time
from collections.abc import Callable, Iterable, Sequence
from functools import cached_property, partial
from html import escape
from importlib.resources import files
from string import Template
from typing import TYPE_CHECKING

import anyio
import anyio.to_thread
from starlette.applications import Starlette
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, Response
from starlette.routing import Route

from streamkit.config import Config
from streamkit.distribution import installed_version
from streamkit.errors import (
    ConfigError,
    InstanceError,
    QueryError,
    StateError,
    StoreUnavailableError,
    StreamkitError,
    UnknownNameError,
    UsageError,
)
from streamkit.http import application_state, prometheus, sql_endpoint, store_endpoints, topic_endpoints
from streamkit.http.acceptor import Limits, Server, Traffic
from streamkit.http.access import Access, Refusal, is_local
from streamkit.http.endpoint import JSON, Arguments, Endpoint, error_response, json_response
from streamkit.http.service import Service
from streamkit.plan.describe.drawing.page import Parts, page_of, page_style, policy
from streamkit.runtime.execution.dead_letters import one_line
from streamkit.serdes.plain import Json

if TYPE_CHECKING:
    from collections.abc import Awaitable

    from starlette.types import ASGIApp, Message, Receive, Scope, Send

    from streamkit.http.acceptor import Server
    from streamkit.runtime.local.client import Application

log = logging.getLogger(__name__)

_THREADS = 40


def http_application(service: Service, access: Access) -> Starlette:
    """Return the endpoints of a service, for the requests that have access."""
    endpoints = [
        _PAGE,
        *application_state.ENDPOINTS,
        *store_endpoints.ENDPOINTS,
        *sql_endpoint.ENDPOINTS,
        *topic_endpoints.ENDPOINTS,
        *prometheus.ENDPOINTS,
    ]
    described = [*endpoints, *_documentation(endpoints, access.token is not None)]
    threads = _Threads()
    routes = [
        Route(endpoint.path, _route(endpoint, service, threads), methods=[endpoint.method]) for endpoint in described
    ]
    guard = Middleware(Guard, access=access, open_paths={endpoint.path for endpoint in described if endpoint.open})
    return Starlette(
        routes=routes,
        middleware=[guard],
        exception_handlers={404: _not_found, 405: _not_found},
    )


def _documentation(endpoints: list[Endpoint], secured: bool) -> list[Endpoint]:
    def page_of(service: Service, request: Request) -> Response:
        return page_response(page([*endpoints, *own]), policy(STYLE))

    def document_of(service: Service, request: Request) -> Response:
        return json_response(document([*endpoints, *own], installed_version(), secured))

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
        names = {parameter.name for parameter in endpoint.parameters}
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
        # An answer that is not JSON never comes from this instance, whatever its status.
        return error_response(str(error), error.status if error.status and error.status >= 400 else 502)
    except StreamkitError as error:
        return error_response(str(error), 500)
    except Exception:
        log.exception("%s %s failed", endpoint.method, endpoint.path)
        return error_response("internal error; see the log of the application", 500)


async def _not_found(request: Request, error: Exception) -> Response:
    status = getattr(error, "status_code", 404)
    what = "there is nothing at" if status == 404 else f"{request.method} is not offered at"
    return error_response(f"{what} {request.url.path}; /api lists the endpoints", status)


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


# The endpoints as an OpenAPI document, and as a page without external resources.

STYLE = """
:root{color-scheme:light dark}body{font:15px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem}
h1{font-size:1.4rem}section{border-top:1px solid #8884;padding:.8rem 0}h2{font:600 1rem ui-monospace,monospace;margin:0}
h2 b{display:inline-block;min-width:4.2rem;color:#2563eb}table{border-collapse:collapse;margin:.3rem 0 .3rem 4.2rem}
td{padding:.1rem 1rem .1rem 0;vertical-align:top}p{margin:.2rem 0 .2rem 4.2rem}.first{margin-left:0}code{font:13px ui-monospace,monospace}
"""


def document(endpoints: Iterable[Endpoint], version: str, secured: bool) -> dict[str, Json]:
    """Return the OpenAPI 3.1 document."""
    paths: dict[str, dict[str, Json]] = {}
    for endpoint in endpoints:
        paths.setdefault(endpoint.path, {})[endpoint.method.lower()] = _operation(endpoint, secured)
    schemes = {"bearer": {"type": "http", "scheme": "bearer"}}
    return {
        "openapi": "3.1.0",
        "info": {"title": "streamkit", "version": version, "description": "A running streamkit application."},
        "paths": paths,
        "components": {
            "schemas": {
                "Error": {"type": "object", "properties": {"error": {"type": "string"}}, "required": ["error"]}
            },
            **({"securitySchemes": schemes} if secured else {}),
        },
    }


def _operation(endpoint: Endpoint, secured: bool) -> dict[str, Json]:
    error = {"application/json": {"schema": {"$ref": "#/components/schemas/Error"}}}
    ok: dict[str, Json] = {"type": "object"} if endpoint.content == "application/json" else {"type": "string"}
    answers = dict(endpoint.answers)
    if secured and not endpoint.open:
        answers[401] = "The token is missing or wrong."
    return {
        "summary": endpoint.summary,
        "operationId": f"{endpoint.method.lower()}{endpoint.path.replace('{', '').replace('}', '').replace('/', '_')}",
        "parameters": [
            {"name": name, "in": "path", "required": True, "schema": {"type": "string"}}
            for name in re.findall(r"{(\w+)}", endpoint.path)
        ]
        + [
            {
                "name": parameter.name,
                "in": "query",
                "description": parameter.meaning,
                "required": parameter.required,
                "schema": {
                    "type": parameter.kind,
                    **({} if parameter.default is None else {"default": parameter.default}),
                },
            }
            for parameter in endpoint.parameters
        ],
        "responses": {
            "200": {"description": "Done.", "content": {endpoint.content: {"schema": ok}}},
            **{str(code): {"description": text, "content": error} for code, text in sorted(answers.items())},
        },
        **({"security": [{"bearer": []}]} if secured and not endpoint.open else {}),
    }


def page(endpoints: Iterable[Endpoint]) -> str:
    """Return the endpoints as HTML."""
    sections = "".join(_section(endpoint) for endpoint in endpoints)
    return (
        f'<!doctype html><html lang="en"><meta charset="utf-8"><title>streamkit API</title><style>{STYLE}</style>'
        f'<h1>HTTP API</h1><p class="first">As <a href="openapi.json">OpenAPI document</a>; '
        f'<a href="./">the application</a>.</p>{sections}'
    )


def _section(endpoint: Endpoint) -> str:
    rows = "".join(
        f"<tr><td><code>{escape(parameter.name)}</code>{' *' if parameter.required else ''}</td><td>{escape(parameter.meaning)}</td></tr>"
        for parameter in endpoint.parameters
    )
    answers = "".join(f"<p><code>{code}</code> {escape(text)}</p>" for code, text in sorted(endpoint.answers.items()))
    return (
        f"<section><h2><b>{endpoint.method}</b>{escape(endpoint.path)}</h2><p>{escape(endpoint.summary)}</p>"
        f"{f'<table>{rows}</table>' if rows else ''}{answers}</section>"
    )


# The page at `/`: the topology with its live state, in one file.

_SCRIPTS = ("live.js", "rates.js", "status.js", "charts.js", "records.js", "topics.js", "queries.js")


def show_page(service: Service, request: Request) -> Response:
    """Return the page; its script requests the live state, with the token that the user enters."""
    style, body = text_of("application.css"), text_of("application.html")
    parts = Parts(body, style, "".join(map(text_of, _SCRIPTS)), {})
    page = page_of(service.application.plan, service.pictures, parts)
    return page_response(page.html, page.policy)


def page_response(html: str, policy: str) -> Response:
    """Return a page that may send requests to its own server, and that other sites can't show in a frame."""
    headers = {"Content-Security-Policy": f"{policy}; connect-src 'self'; frame-ancestors 'none'"}
    return HTMLResponse(html, headers=headers)


def text_of(name: str) -> str:
    """Return a file of the pages."""
    return files("streamkit.http.page").joinpath(name).read_text(encoding="utf-8")


_PAGE = Endpoint("/", "The page that shows the application.", show_page, content="text/html", open=True)


# The page of several applications in one process: each with its state and the address of its own page.

Served = tuple["Application", str]
"""An application, and the address HOST:PORT of its own server."""


def overview_application(served: Callable[[], Sequence[Served]], access: Access) -> Starlette:
    """Return the endpoints of the overview: `/`, and `/applications` as JSON.

    The page is open and has no data: its script requests `/applications`, with the token that the user enters.
    """

    def page(request: Request) -> Response:
        return _page()

    def applications(request: Request) -> Response:
        return json_response(listed(served()))

    async def no_such_path(request: Request, error: Exception) -> Response:
        known = ", ".join(f"{application.plan.application} at http://{address}" for application, address in served())
        text = f"the overview has nothing at {request.url.path}; each application has its own address: {known}"
        return error_response(text, 404)

    guard = Middleware(Guard, access=access, open_paths={"/"})
    return Starlette(
        routes=[Route("/", page), Route("/applications", applications)],
        middleware=[guard],
        exception_handlers={404: no_such_path},
    )


def listed(served: Sequence[Served]) -> list[dict[str, Json]]:
    """Return the state of each application."""
    states: list[dict[str, Json]] = []
    for application, address in served:
        status = application.status()
        states.append(
            {
                "application": application.plan.application,
                "file": application.plan.file,
                "state": status.state,
                "shown_state": status.shown_state,
                "tasks": len(status.tasks),
                "rate": status.rate,
                "lag": status.lag,
                "address": address,
            }
        )
    return states


def _page() -> Response:
    style, script = page_style() + text_of("application.css"), f'"use strict";\n{text_of("overview.js")}'
    html = Template(text_of("overview.html")).substitute(style=style, script=script)
    return page_response(html, policy(style, script))


# Serves an application in a separate thread.


log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
_STOP_SECONDS = 5.0
_AGAIN_SECONDS = 1.0
_AGAIN_AT_MOST_SECONDS = 60.0


def parse_address(text: str) -> tuple[str, int]:
    """Return host and port; a port alone means loopback. Raises UsageError.

    >>> parse_address("8080"), parse_address("[::1]:0")
    (('127.0.0.1', 8080), ('::1', 0))
    """
    host, _, port = text.rpartition(":")
    if not port.isdigit() or int(port) > 65535 or (":" in host and not host.startswith("[")):
        raise UsageError(f"--http {text}: expected HOST:PORT, such as 127.0.0.1:8080")
    return host.strip("[]") or LOOPBACK, int(port)


class HttpServer:
    """A bound socket, and the server on it from `start` on.

    It is bound first: a port in use is reported before anything starts, and the application gets the address.
    """

    def __init__(self, host: str, port: int, token: str | None = None, hosts: str | None = None):
        """Bind. hosts: the names, separated by commas, by which clients may address the server (--http-hosts).

        Raises ConfigError if the address is not available, UsageError if other machines reach the address and there is neither a
        token nor a list of hosts.
        """
        self._socket = _bind(host, port)
        self.host = host
        bound, self.port = self._socket.getsockname()[:2]
        try:
            self._access = Access.of((host, port), token, hosts, loopback=is_local(bound))
        except UsageError:
            self._socket.close()
            raise
        self.traffic = Traffic()
        self._closing = threading.Event()
        self._server: Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> str:
        """The address for other machines: it has the host name if the server listens on all addresses."""
        host = socket.gethostname() if self.host in ("0.0.0.0", "::") else self.host
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

    def start(self, application: Application) -> None:
        """Serve the application, which may start later."""
        limits = Limits.of(application.plan.config)
        configured = application.plan.config.http_max_connections
        if limits.connections < configured:
            text = "http://%s accepts %d connections instead of %d (http.max.connections): the process may open too few files"
            log.info(text, self.address, limits.connections, configured)
        self.traffic.limit = limits.connections
        access = self._access.with_host(self.address).with_host(application.plan.config.application_server)
        service = Service.of(application, access, limits, self.traffic, self._closing)
        service.history.start()
        self._begin(partial(http_application, service, access), limits)

    def start_overview(self, served: Callable[[], Sequence[Served]], config: Config) -> None:
        """Serve the page of several applications, within the limits of these settings."""
        limits = Limits.of(config)
        self.traffic.limit = limits.connections
        self._begin(partial(overview_application, served, self._access.with_host(self.address)), limits)

    def _begin(self, make: Callable[[], Starlette], limits: Limits) -> None:
        log.info("the HTTP server listens at http://%s/", self.address)
        self._thread = threading.Thread(target=self._serve, args=(make, limits), name="http", daemon=True)
        self._thread.start()

    def _serve(self, make: Callable[[], Starlette], limits: Limits) -> None:
        """Serve until the close. A server that fails is started again, after a pause that doubles each time."""
        pause = _AGAIN_SECONDS
        while not self._closing.is_set():
            began = time.monotonic()
            error: BaseException | None = None
            try:
                self._server = Server(make(), self._socket, limits, self.traffic, self.address)
                if not self._closing.is_set():
                    self._server.run()
            except BaseException as caught:
                # Uvicorn also raises SystemExit. A failure of the server must end only this thread.
                error = caught
            if self._closing.is_set():
                return
            if time.monotonic() - began > _AGAIN_AT_MOST_SECONDS:
                pause = _AGAIN_SECONDS
            self.traffic.restarts += 1
            why = "no error" if error is None else f"{type(error).__name__}: {error}"
            text = "the server at http://%s has ended (%s), and starts again in %g s"
            log.error(text, self.address, one_line(why), pause)
            self._closing.wait(pause)
            pause = min(2 * pause, _AGAIN_AT_MOST_SECONDS)

    def close(self) -> None:
        """Complete the running requests, and stop."""
        self._closing.set()
        if self._server is not None:
            self._server.should_exit = True
        if self._thread is not None:
            self._thread.join(_STOP_SECONDS)
        self._socket.close()


def _bind(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"--http: {host} is not an address of this machine: {error.strerror}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except OSError as error:
        listener.close()
        why = "is in use by another process" if error.errno == errno.EADDRINUSE else os.strerror(error.errno or 0)
        raise ConfigError(f"--http: port {port} on {host} {why}") from error
    return listener
