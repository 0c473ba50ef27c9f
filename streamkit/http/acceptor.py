"""Connections of the HTTP server: accepted up to the limits, and aborted if they take too long."""

from __future__ import annotations

import asyncio
import json
import logging
import socket
import sys
from collections import Counter
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from http import HTTPStatus
from typing import TYPE_CHECKING

import h11
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol

if TYPE_CHECKING:
    from starlette.types import ASGIApp, Receive, Scope, Send
    from uvicorn.server import ServerState

    from streamkit.config import Config

log = logging.getLogger(__name__)

_AT_ONCE = 20
"""Connections that are accepted in one turn of the event loop."""
_REFUSAL_PAUSE_SECONDS = 0.02
"""The pause between turns while connections are refused: at most 1,000 a second take little time from stream threads."""
_PAUSE_SECONDS = 1.0
"""The pause after the system refuses to accept a connection."""
_REPORT_SECONDS = 60.0
_GRACE_SECONDS = 2


class Server(uvicorn.Server):
    """Uvicorn's server with a custom acceptor: one event loop, until `should_exit` is set."""

    def __init__(self, app: ASGIApp, listener: socket.socket, limits: Limits, traffic: Traffic, name: str):
        """name: the address in log messages."""
        config = uvicorn.Config(
            app,
            loop="asyncio",
            http=Connection,
            ws="none",
            log_config=None,
            log_level=logging.ERROR,
            access_log=False,
            lifespan="off",
            server_header=False,
            h11_max_incomplete_event_size=HEAD_BYTES,
            # One more than the number of connections: requests whose clients have disconnected still count until they end.
            limit_concurrency=limits.connections + 1,
            timeout_keep_alive=int(limits.idle_seconds) + 1,
            timeout_graceful_shutdown=_GRACE_SECONDS,
        )
        super().__init__(config)
        self._acceptor = Acceptor(self, listener, limits, traffic, name)

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        """Begin to accept; uvicorn itself gets no socket, since it would accept without a limit."""
        await super().startup(sockets=[])
        self._acceptor.open()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept no more connections, and complete the running requests."""
        self._acceptor.close()
        await super().shutdown(sockets=[])


class Acceptor:
    """The connections of a server. Everything happens in its event loop."""

    def __init__(self, server: Server, listener: socket.socket, limits: Limits, traffic: Traffic, name: str):
        self._server = server
        self._listener = listener
        self._limits = limits
        self._traffic = traffic
        self._name = name
        self._open: set[Connection] = set()
        self._beginning: set[asyncio.Task[None]] = set()
        self._timers: dict[str, asyncio.TimerHandle] = {}
        self._reported: Counter[str] = Counter(traffic.refused)
        self._report_at = 0.0
        self._pressed = False
        self._full = refusal(503, f"{limits.connections} connections are open, which is all that this server takes")
        self._short = refusal(503, "the process is short of file descriptors")

    def open(self) -> None:
        """Begin to accept."""
        self._loop = asyncio.get_running_loop()
        self._traffic.open = 0
        self._listener.setblocking(False)
        self._loop.add_reader(self._listener.fileno(), self._accept)
        self._sweep()

    def close(self) -> None:
        """Accept no more connections; open ones continue."""
        self._loop.remove_reader(self._listener.fileno())
        for timer in self._timers.values():
            timer.cancel()
        self._report()

    # -- Accepting ----------------------------------------------------------------------------------------------------

    def _accept(self) -> None:
        taken = 0
        while taken < _AT_ONCE:
            try:
                connection, _ = self._listener.accept()
            except (BlockingIOError, InterruptedError, ConnectionAbortedError):
                break
            except OSError:
                # Without descriptors or memory the socket stays readable: an immediate retry would spin.
                self._count("descriptors")
                self._pause(_PAUSE_SECONDS)
                return
            self._accept_or_refuse(connection)
            taken += 1
        if self._pressed:
            self._pressed = False
            self._pause(_REFUSAL_PAUSE_SECONDS)

    def _accept_or_refuse(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        reserved = self._limits.reserved
        if reserved is not None and connection.fileno() >= reserved and len(self._open) >= ALWAYS:
            # A descriptor is the lowest free number, so that this one shows how many are in use.
            self._refuse(connection, "descriptors", self._short)
        elif len(self._open) >= self._limits.connections and not self._make_room():
            self._refuse(connection, "connections", self._full)
        else:
            self._serve(connection)

    def _pause(self, seconds: float) -> None:
        self._loop.remove_reader(self._listener.fileno())
        self._later("accept", seconds, self._resume)

    def _resume(self) -> None:
        self._loop.add_reader(self._listener.fileno(), self._accept)

    def _refuse(self, connection: socket.socket, reason: str, answer: bytes) -> None:
        self._count(reason)
        with connection, suppress(OSError):
            connection.send(answer)
            connection.shutdown(socket.SHUT_WR)
            # With an unread request the close would be a reset, which can lose the answer.
            connection.recv(HEAD_BYTES)

    def _make_room(self) -> bool:
        """Abort the connection that is idle for the longest time; return whether there was one."""
        idle = [
            (since, id(connection), connection)
            for connection in self._open
            if (since := connection.idle_since) is not None
        ]
        if not idle:
            return False
        chosen = min(idle)[2]
        self._open.discard(chosen)
        chosen.transport.abort()
        return True

    def _serve(self, connection: socket.socket) -> None:
        server = self._server
        protocol = Connection(server.config, server.server_state, server.lifespan.state, self._limits, self._ended)
        self._open.add(protocol)
        self._traffic.open = len(self._open)
        task = self._loop.create_task(self._begin(protocol, connection))
        self._beginning.add(task)
        task.add_done_callback(self._beginning.discard)

    async def _begin(self, protocol: Connection, connection: socket.socket) -> None:
        try:
            await self._loop.connect_accepted_socket(lambda: protocol, connection)
        except OSError:
            # The client has closed it in the meantime.
            connection.close()
            self._ended(protocol, None)

    def _ended(self, connection: Connection, reason: str | None) -> None:
        if reason is not None:
            self._count(reason)
            return
        self._open.discard(connection)
        self._traffic.open = len(self._open)

    # -- Timers ------------------------------------------------------------------------------------------------------

    def _sweep(self) -> None:
        now = self._loop.time()
        for connection in list(self._open):
            connection.check(now)
        if now >= self._report_at and self._report():
            self._report_at = now + _REPORT_SECONDS
        self._later("sweep", min(1.0, self._limits.idle_seconds / 4), self._sweep)

    def _later(self, name: str, seconds: float, call: Callable[[], None]) -> None:
        self._timers[name] = self._loop.call_later(seconds, call)

    def _count(self, reason: str) -> None:
        self._traffic.refused[reason] += 1
        self._pressed = True

    def _report(self) -> bool:
        """Log one line on the refusals since the last line; return whether there were any."""
        new = self._traffic.refused - self._reported
        if not new:
            return False
        self._reported = Counter(self._traffic.refused)
        parts = [f"{new[reason]:,} {text}" for reason, text in REASONS.items() if new[reason]]
        level = logging.WARNING if any(new[reason] for reason in WARNED) else logging.INFO
        log.log(level, "http://%s refused or cut connections: %s", self._name, ", ".join(parts))
        return True


# One connection of the HTTP server, with limits of time and bytes.

_PIECE = 16_384
"""Bytes that the parser takes at once: it checks the length of a head only between two calls."""
_LINGER_SECONDS = 1.0
"""How long the rest of a refused request is read, so that a reset of the connection does not lose the answer."""
_LINGER_BYTES = 4_194_304
_PROGRESS = 65_536
"""The least number of bytes of an answer that a client must take within the idle time-out."""


def refusal(status: int, text: str) -> bytes:
    """Return the bytes of an error answer, in the form that all errors have, that ends the connection."""
    body = json.dumps({"error": text}).encode() + b"\n"
    head = (
        f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\nContent-Type: application/json\r\n"
        f"Content-Length: {len(body)}\r\nConnection: close\r\n\r\n"
    )
    return head.encode() + body


class Connection(H11Protocol):
    """Uvicorn's HTTP/1.1 protocol with limits; the acceptor calls `check` at intervals.

    A request's head and its body must each be complete within the idle time-out, however steadily bytes arrive; so must
    the pause before the next request. An answer has to be taken at _PROGRESS bytes within that time.
    """

    def __init__(
        self,
        config: uvicorn.Config,
        state: ServerState,
        app_state: dict[str, object],
        limits: Limits,
        ended: Callable[[Connection, str | None], None],
    ):
        """`ended` is called with this connection and a key of REASONS each time that it is refused or cut, and with None once it is closed."""
        super().__init__(config=config, server_state=state, app_state=app_state, _loop=asyncio.get_running_loop())
        self._limits = limits
        self._ended = ended
        self._answer = self.app
        self.app = self._bounded
        self._since = self.loop.time()
        self._begun = False
        self._body = 0
        self._unsent = 0
        self._lingering = 0

    @property
    def idle_since(self) -> float | None:
        """The time of its last answer, if it waits for the first byte of another request; else None."""
        if not self._answered or self._begun or self._lingering or self.transport.is_closing():
            return None
        return None if self.transport.get_write_buffer_size() else self._since

    @property
    def _answering(self) -> bool:
        return self.cycle is not None and not self.cycle.response_complete and not self.transport.is_closing()

    @property
    def _answered(self) -> bool:
        return self.cycle is not None and self.cycle.response_complete

    # -- What asyncio calls -------------------------------------------------------------------------------------------

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection."""
        super().connection_lost(exc)
        self._ended(self, None)

    def data_received(self, data: bytes) -> None:
        """Pass bytes to the parser, unless they are too many."""
        if self._lingering:
            self._lingering += len(data)
            if self._lingering > _LINGER_BYTES:
                self.transport.abort()
            return
        if not self._begun and (self.cycle is None or self._answered):
            self._begun, self._since = True, self.loop.time()
        for at in range(0, len(data), _PIECE):
            self._take(data[at : at + _PIECE])
            if self._lingering or self.transport.is_closing():
                return

    # Uvicorn declares that it returns None; asyncio takes a bool, too.
    def eof_received(self) -> bool | None:  # type: ignore[override]
        """Let a client that has closed its side have its answer, and close then; else asyncio closes at once.

        An answer that has begun and continues is a stream: its client is taken to be gone, since a quiet stream would
        find that out only by its next event.
        """
        if not self._answering or self._lingering or self.cycle.response_started:
            return None
        self.cycle.keep_alive = False
        return True

    def _take(self, piece: bytes) -> None:
        cycle = self.cycle
        # Bytes after a complete request belong to the next one; they are few, since reading pauses then.
        self._body += len(piece)
        super().data_received(piece)
        if self.cycle is not cycle or self.conn.their_state is not h11.SEND_BODY:
            self._body = 0
        elif self._body > BODY_BYTES:
            self._refuse(413, "too_large", f"a request has at most {BODY_BYTES:,} bytes of body")

    # -- What uvicorn calls -------------------------------------------------------------------------------------------

    async def _bounded(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer a request, unless it announces too long a body, or its end in two ways.

        A proxy that takes the other one of the two ends would find another request in the rest (RFC 9112, 6.1 and 6.3).
        """
        self._begun, self._since = False, self.loop.time()
        headers = dict(scope["headers"])
        length = headers.get(b"content-length", b"0")
        if b"transfer-encoding" in headers and (b"content-length" in headers or scope["http_version"] == "1.0"):
            reason = "Content-Length" if b"content-length" in headers else "HTTP/1.0"
            self._refuse(400, "malformed", f"a request with {reason} has no Transfer-Encoding")
        elif int(length) > BODY_BYTES:
            self._refuse(413, "too_large", f"a request has at most {BODY_BYTES:,} bytes of body")
        else:
            await self._answer(scope, receive, send)

    def on_response_complete(self) -> None:
        """Wait for the next request."""
        self._begun, self._since = False, self.loop.time()
        super().on_response_complete()

    def send_400_response(self, msg: str) -> None:
        """Refuse a request that the parser rejects; called while its error is handled."""
        if getattr(sys.exception(), "error_status_hint", 400) == 431:
            self._refuse(431, "too_large", f"a request has at most {HEAD_BYTES:,} bytes of headers")
        else:
            self._refuse(400, "malformed", "this is no request of HTTP/1.1")

    # -- Ending -------------------------------------------------------------------------------------------------------

    def check(self, now: float) -> None:
        """Abort the connection if the client takes too long. `now`: by the loop's clock."""
        if self.transport is None:
            return
        limit = _LINGER_SECONDS
        if not self._lingering:
            limit = self._limits.idle_seconds
            unsent = self.transport.get_write_buffer_size()
            if unsent <= self._unsent - _PROGRESS or (unsent == 0) != (self._unsent == 0):
                self._unsent, self._since = unsent, now
            self._unsent = max(self._unsent, unsent)
            if not unsent and self._answering and self.conn.their_state is not h11.SEND_BODY:
                return
        if now - self._since > limit:
            if not self._lingering and self.idle_since is None:
                self._ended(self, "idle" if self.cycle is None and not self._begun else "timeout")
            self.transport.abort()

    def _refuse(self, status: int, reason: str, text: str) -> None:
        """Answer with an error unless an answer has begun, and close when the client has, or after a moment."""
        self._ended(self, reason)
        if self.cycle is not None:
            # The client gets no answer to the request that is running.
            self.cycle.disconnected = True
        self._lingering, self._since = 1, self.loop.time()
        self._unset_keepalive_if_required()
        if self.conn.our_state not in (h11.IDLE, h11.SEND_RESPONSE):
            # An answer to the same request has begun, or is complete.
            self.transport.abort()
            return
        self.transport.write(refusal(status, text))
        self.transport.write_eof()
        self.flow.resume_reading()


# The limits of the HTTP server: connections, file descriptors, time and bytes of a request.


HEAD_BYTES = 65_536
"""The limit of a request's first line and headers; beyond it the answer is 431."""
BODY_BYTES = 65_536
"""The limit of a request's body; beyond it the answer is 413. No endpoint reads one."""
SHARE = 4
"""The server uses at most this fraction (1/SHARE) of the descriptors, and none of the last 1/SHARE."""
ALWAYS = 4
"""Connections that are accepted even when the process is short of descriptors, so that a probe is answered."""


@dataclass(frozen=True)
class Limits:
    """The limits of one server.

    connections: the maximum that are open at once, both for clients and again for other instances; idle_seconds: the
    maximum wait for a request, the rest of one, or the next one; reserved: descriptors from this number on are for the
    rest of the process (None: it has no limit).
    """

    connections: int
    idle_seconds: float
    reserved: int | None

    @classmethod
    def of(cls, config: Config) -> Limits:
        """Return the limits that the settings and the process's limit of open files (RLIMIT_NOFILE) give."""
        configured, idle_seconds = config.http_max_connections, config.http_idle_timeout_ms / 1000
        files = open_files()
        if files is None:
            return cls(configured, idle_seconds, None)
        return cls(max(1, min(configured, files // SHARE)), idle_seconds, files - files // SHARE)


def open_files() -> int | None:
    """Return how many files the process may open; None without a limit."""
    try:
        import resource
    except ImportError:
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


@dataclass
class Traffic:
    """The counts of a server for metrics and the log. Only the server's thread writes them."""

    limit: int = 0
    open: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    """By reason, a key of REASONS."""
    restarts: int = 0


REASONS = {
    "connections": "beyond the limit",
    "descriptors": "because file descriptors ran out",
    "malformed": "with bytes that are not HTTP",
    "too_large": "with too large a request",
    "timeout": "that took too long to send a request or to read an answer",
    "idle": "without a request",
}
"""The reasons for which connections are refused or cut, with their texts in the log."""
WARNED = ("connections", "descriptors")
"""Reasons that are logged as warnings, since correct clients are refused too. The others concern one client."""
