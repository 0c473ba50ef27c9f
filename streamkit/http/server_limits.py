"""The limits of the HTTP server: connections, file descriptors, time and bytes of a request."""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from streamkit.config import Config

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
