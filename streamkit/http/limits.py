"""How much of the process the HTTP server may take: connections, descriptors, time and bytes of a request."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamkit.config import Config

HEAD_BYTES = 65_536
"""Of a request's first line and headers; more is answered by 431."""
BODY_BYTES = 65_536
"""Of a request's body; more is answered by 413. No endpoint reads one."""
SHARE = 4
"""The server takes at most one descriptor in so many, and leaves the last one in so many to the rest of the process."""
ALWAYS = 4
"""Connections that are taken even when the process is short of descriptors, so that a probe gets through."""


@dataclass(frozen=True)
class Limits:
    """What one server may take.

    connections: open at once, towards clients and again towards other instances; idle_seconds: how long a request, the
    rest of one, or the next one is waited for; reserved: descriptors with this number or above are left to the rest of
    the process (None: it has no limit).
    """

    connections: int
    idle_seconds: float
    reserved: int | None

    @classmethod
    def of(cls, config: Config) -> Limits:
        """Return the limits that the settings and the process's limit of open files (RLIMIT_NOFILE) give."""
        wanted, idle_seconds = config["http.max.connections"], config["http.idle.timeout.ms"] / 1000
        files = open_files()
        if files is None:
            return cls(wanted, idle_seconds, None)
        return cls(max(1, min(wanted, files // SHARE)), idle_seconds, files - files // SHARE)


def open_files() -> int | None:
    """Return how many files the process may open; None where there is no limit."""
    try:
        import resource
    except ImportError:
        return None
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return None if soft == resource.RLIM_INFINITY else soft


@dataclass
class Traffic:
    """What a server has had to do with so far, for metrics and the log. Written by the server's thread only."""

    limit: int = 0
    open: int = 0
    refused: Counter[str] = field(default_factory=Counter)
    """By reason, a key of REASONS."""
    restarts: int = 0


REASONS = {
    "connections": "beyond the limit",
    "descriptors": "for want of file descriptors",
    "malformed": "with bytes that are no HTTP",
    "too_large": "with too large a request",
    "timeout": "that took too long to send a request or to take an answer",
    "idle": "without a request",
}
"""Why a connection is refused or cut, with what the log calls it."""
WARNED = ("connections", "descriptors")
"""Reasons that the log warns of: well-behaved clients are refused too. The others concern one client."""
