"""Serves an application in a separate thread."""

from __future__ import annotations

import errno
import logging
import os
import socket
import threading
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from streamkit.config import Config
from streamkit.distribution import install_command
from streamkit.errors import ConfigError, UsageError
from streamkit.http.acceptor import Limits, Traffic
from streamkit.http.access import Access, is_local
from streamkit.runtime.execution.dead_letters import one_line

if TYPE_CHECKING:
    from starlette.applications import Starlette

    from streamkit.http.acceptor import Server
    from streamkit.http.endpoint_app import Served
    from streamkit.runtime.local.client import Application

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

        Raises ConfigError if the address is not available or the extra `http` is not installed, UsageError if other machines
        reach the address and there is neither a token nor a list of hosts.
        """
        try:
            import starlette  # noqa: F401
            import uvicorn  # noqa: F401
        except ImportError as error:
            raise ConfigError(f"--http needs the extra http: {install_command('http')}") from error
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
        from streamkit.http.endpoint_app import http_application
        from streamkit.http.service import Service

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
        from streamkit.http.endpoint_app import overview_application

        limits = Limits.of(config)
        self.traffic.limit = limits.connections
        self._begin(partial(overview_application, served, self._access.with_host(self.address)), limits)

    def _begin(self, make: Callable[[], Starlette], limits: Limits) -> None:
        log.info("the HTTP server listens at http://%s/", self.address)
        self._thread = threading.Thread(target=self._serve, args=(make, limits), name="http", daemon=True)
        self._thread.start()

    def _serve(self, make: Callable[[], Starlette], limits: Limits) -> None:
        """Serve until the close. A server that fails is started again, after a pause that doubles each time."""
        from streamkit.http.acceptor import Server

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
