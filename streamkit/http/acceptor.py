"""Takes connections as far as the limits go, refuses the others, and cuts those that take too long."""

from __future__ import annotations

import asyncio
import logging
import socket
from collections import Counter
from contextlib import suppress
from typing import Any

import uvicorn

from streamkit.http.connection import Connection, refusal
from streamkit.http.limits import ALWAYS, HEAD_BYTES, REASONS, WARNED, Limits, Traffic

log = logging.getLogger(__name__)

_AT_ONCE = 20
"""Connections that are accepted in one turn of the event loop."""
_PACE_SECONDS = 0.02
"""Between turns while connections are refused: at most 1,000 a second cost the stream threads little."""
_PAUSE_SECONDS = 1.0
"""How long nothing is accepted after the system has refused to."""
_REPORT_SECONDS = 60.0
_GRACE_SECONDS = 2


class Server(uvicorn.Server):
    """Uvicorn's server over connections that are accepted here: one event loop, until `should_exit` is set."""

    def __init__(self, app: Any, listener: socket.socket, limits: Limits, traffic: Traffic, name: str):
        """`name`: the address as the log has it."""
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
        """Begin to accept; uvicorn itself has no socket to accept from, since it would do so without a limit."""
        await super().startup(sockets=[])
        self._acceptor.open()

    async def shutdown(self, sockets: list[socket.socket] | None = None) -> None:
        """Accept nothing more, and answer what is being answered."""
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
        self._beginning: set[asyncio.Task[Any]] = set()
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
        """Accept nothing more; connections that are open go on."""
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
                # Without descriptors or memory the socket stays readable: looking again at once would spin.
                self._count("descriptors")
                self._pause(_PAUSE_SECONDS)
                return
            self._judge(connection)
            taken += 1
        if self._pressed:
            self._pressed = False
            self._pause(_PACE_SECONDS)

    def _judge(self, connection: socket.socket) -> None:
        connection.setblocking(False)
        reserved = self._limits.reserved
        if reserved is not None and connection.fileno() >= reserved and len(self._open) >= ALWAYS:
            # A descriptor is the lowest number that is free, so that this one tells how many are in use.
            self._refuse(connection, "descriptors", self._short)
        elif len(self._open) >= self._limits.connections and not self._make_room():
            self._refuse(connection, "connections", self._full)
        else:
            self._take(connection)

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
            # A request that is left unread would turn the close into a reset, and the answer might be lost.
            connection.recv(HEAD_BYTES)

    def _make_room(self) -> bool:
        """End the connection that has had its answer and been silent for longest; return whether there was one."""
        idle = [(since, id(each), each) for each in self._open if (since := each.idle_since) is not None]
        if not idle:
            return False
        chosen = min(idle)[2]
        self._open.discard(chosen)
        chosen.transport.abort()
        return True

    def _take(self, connection: socket.socket) -> None:
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
            # Gone in the meantime.
            connection.close()
            self._ended(protocol, None)

    def _ended(self, connection: Connection, reason: str | None) -> None:
        if reason is not None:
            self._count(reason)
            return
        self._open.discard(connection)
        self._traffic.open = len(self._open)

    # -- Now and then -------------------------------------------------------------------------------------------------

    def _sweep(self) -> None:
        now = self._loop.time()
        for connection in list(self._open):
            connection.check(now)
        if now >= self._report_at and self._report():
            self._report_at = now + _REPORT_SECONDS
        self._later("sweep", min(1.0, self._limits.idle_seconds / 4), self._sweep)

    def _later(self, name: str, seconds: float, call: Any) -> None:
        self._timers[name] = self._loop.call_later(seconds, call)

    def _count(self, reason: str) -> None:
        self._traffic.refused[reason] += 1
        self._pressed = True

    def _report(self) -> bool:
        """Write one line of what has been refused since the last one; return whether there was anything."""
        new = self._traffic.refused - self._reported
        if not new:
            return False
        self._reported = Counter(self._traffic.refused)
        parts = [f"{new[reason]:,} {text}" for reason, text in REASONS.items() if new[reason]]
        level = logging.WARNING if any(new[reason] for reason in WARNED) else logging.INFO
        log.log(level, "http://%s refused or cut connections: %s", self._name, ", ".join(parts))
        return True
