"""Responses of server-sent events, which last until the client disconnects."""

from __future__ import annotations

import json
import threading
import time
from collections.abc import AsyncIterator
from functools import cached_property
from typing import NamedTuple, Protocol

import anyio
import anyio.to_thread
from starlette.responses import StreamingResponse
from starlette.types import Receive, Scope, Send

from streamkit.errors import StoreUnavailableError, StreamkitError
from streamkit.serdes.plain import Json

MOST_STREAMS = 20
"""The maximum number of open streams; each one uses a thread."""
_BEAT_SECONDS = 15.0
"""The time without an event after which a comment is sent, so that proxies keep the connection."""
_RETRY_MS = 2000
"""The pause after which a client reconnects."""


class Event(NamedTuple):
    """One event: its name, and data that is sent as one line of JSON."""

    name: str
    data: Json


class EventSource(Protocol):
    """The origin of a stream's events, used by one thread at a time."""

    def read(self) -> list[Event]:
        """Wait up to a second for new events, and return them. Raises StreamkitError."""

    def close(self) -> None:
        """Release the resources of the source."""


class Streams:
    """The open streams of a server, at most MOST_STREAMS; they end when the server closes."""

    def __init__(self, closing: threading.Event):
        self.closing = closing
        self._lock = threading.Lock()
        self._open = 0

    @cached_property
    def limiter(self) -> anyio.CapacityLimiter:
        """The threads of streams, which are separate from the threads of other requests."""
        return anyio.CapacityLimiter(MOST_STREAMS)

    def enter(self) -> None:
        """Count a stream as open. Raises StoreUnavailableError if too many streams are open."""
        with self._lock:
            if self._open >= MOST_STREAMS:
                raise StoreUnavailableError(f"{MOST_STREAMS} streams of events are open, which is the limit")
            self._open += 1

    def leave(self) -> None:
        """Count the end of a stream."""
        with self._lock:
            self._open -= 1


class EventStream(StreamingResponse):
    """Sends the events of a source until the client disconnects, the server closes, or the source fails.

    It reads events only after the client has taken the previous ones, so a stream holds the events of one read at most. It
    aborts the connection if a client reads nothing for `http.idle.timeout.ms`.
    """

    def __init__(self, source: EventSource, streams: Streams):
        """Close the source and raise StoreUnavailableError if too many streams are open."""
        try:
            streams.enter()
        except StreamkitError:
            source.close()
            raise
        self._source = source
        self._streams = streams
        super().__init__(self._lines(), media_type="text/event-stream", headers={"X-Accel-Buffering": "no"})

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the response, and close the source in any case."""
        try:
            if scope["method"] == "HEAD":
                await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                await send({"type": "http.response.body", "body": b""})
            else:
                await super().__call__(scope, receive, send)
        finally:
            self._streams.leave()
            with anyio.CancelScope(shield=True):
                await anyio.to_thread.run_sync(self._source.close, limiter=self._streams.limiter)

    async def _lines(self) -> AsyncIterator[bytes]:
        # The first bytes tell the client immediately that the stream is open.
        yield b"retry: %d\n\n" % _RETRY_MS
        sent = time.monotonic()
        while not self._streams.closing.is_set():
            try:
                events = await anyio.to_thread.run_sync(self._source.read, limiter=self._streams.limiter)
            except StreamkitError as error:
                yield _text([Event("problem", {"error": str(error)})])
                return
            now = time.monotonic()
            if events or now - sent >= _BEAT_SECONDS:
                yield _text(events)
                sent = now


def _text(events: list[Event]) -> bytes:
    if not events:
        return b":\n\n"
    lines = (
        f"event: {event.name}\ndata: {json.dumps(event.data, ensure_ascii=False, separators=(',', ':'))}\n\n"
        for event in events
    )
    return "".join(lines).encode()
