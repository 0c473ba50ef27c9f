"""Accepts connections up to the limits, refuses the others, and aborts those that take too long."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from contextlib import suppress
from typing import TYPE_CHECKING

import uvicorn

from streamkit.http.server.connection import Connection, refusal
from streamkit.http.server.server_limits import ALWAYS, HEAD_BYTES, REASONS, WARNED, Limits, Traffic

if TYPE_CHECKING:
    from collections.abc import Callable

    from starlette.types import ASGIApp

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
    """Uvicorn's server with an acceptor of its own: one event loop, until `should_exit` is set."""

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
            # One more than there are connections: requests whose clients have gone still count until they end.
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
        idle = [(since, id(each), each) for each in self._open if (since := each.idle_since) is not None]
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
