"""One connection of the HTTP server, with limits of time and bytes."""

from __future__ import annotations

import asyncio
import json
import sys
from collections.abc import Callable
from http import HTTPStatus
from typing import TYPE_CHECKING

import h11
from uvicorn.protocols.http.h11_impl import H11Protocol

from streamkit.http.server.server_limits import BODY_BYTES, HEAD_BYTES, Limits

if TYPE_CHECKING:
    import uvicorn
    from starlette.types import Receive, Scope, Send
    from uvicorn.server import ServerState

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

        An answer that has begun and goes on is a stream: its client is taken to be gone, since a quiet stream would
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
        """Abort the connection where the client takes too long. `now`: by the loop's clock."""
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
