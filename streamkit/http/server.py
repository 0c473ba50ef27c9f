"""Serves an application in a thread of its own."""

from __future__ import annotations

import errno
import logging
import os
import socket
import threading
from typing import TYPE_CHECKING

from streamkit.errors import ConfigError, UsageError

if TYPE_CHECKING:
    from streamkit.runtime.local.client import Application

log = logging.getLogger(__name__)

LOOPBACK = "127.0.0.1"
_STOP_SECONDS = 5.0


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
    """A bound socket, and the server on it once there is an application to serve.

    Bound first, so that a port in use is told before anything starts, and the address is known to the application.
    """

    def __init__(self, host: str, port: int, token: str | None = None):
        """Bind. Raises ConfigError when the address can't be had or the extra `http` is not installed."""
        try:
            import starlette  # noqa: F401
            import uvicorn
        except ImportError as error:
            raise ConfigError("--http needs the extra: pip install 'streamkit[http]'") from error
        self._uvicorn = uvicorn
        self._token = token
        self._socket = _bind(host, port)
        self.host = host
        self.port: int = self._socket.getsockname()[1]
        self._server: uvicorn.Server | None = None
        self._thread: threading.Thread | None = None

    @property
    def address(self) -> str:
        """The address as others reach it: that of the machine where the server answers on all of them."""
        host = socket.gethostname() if self.host in ("0.0.0.0", "::") else self.host
        return f"[{host}]:{self.port}" if ":" in host else f"{host}:{self.port}"

    def start(self, application: Application) -> None:
        """Serve the application from now on; it may start later."""
        from streamkit.http.app import http_application, is_local
        from streamkit.http.service import Service

        loopback = is_local(self.host)
        if not loopback and self._token is None:
            log.warning("http://%s answers other machines, and asks for no token", self.address)
        app = http_application(Service.of(application, self._token), self._token, loopback=loopback)
        config = self._uvicorn.Config(
            app,
            log_config=None,
            log_level=logging.WARNING,
            access_log=False,
            lifespan="off",
            server_header=False,
            timeout_graceful_shutdown=2,
        )
        self._server = self._uvicorn.Server(config)
        self._thread = threading.Thread(target=self._server.run, args=([self._socket],), name="http", daemon=True)
        self._thread.start()

    def close(self) -> None:
        """Answer what is being answered, and end."""
        if self._server is not None and self._thread is not None:
            self._server.should_exit = True
            self._thread.join(_STOP_SECONDS)
        self._socket.close()


def _bind(host: str, port: int) -> socket.socket:
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        listener = socket.socket(family, kind, protocol)
    except OSError as error:
        raise ConfigError(f"--http: {host} is no address of this machine: {error.strerror}") from error
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(128)
    except OSError as error:
        listener.close()
        why = "is in use by another process" if error.errno == errno.EADDRINUSE else os.strerror(error.errno or 0)
        raise ConfigError(f"--http: port {port} on {host} {why}") from error
    return listener
