"""The trace context of a record in its headers (W3C Trace Context: `traceparent`)."""

from __future__ import annotations

import re
from typing import NamedTuple

from streamkit.record import Headers

TRACEPARENT = "traceparent"
_FORM = re.compile(rb"([0-9a-f]{2})-([0-9a-f]{32})-([0-9a-f]{16})-([0-9a-f]{2})(-.*)?")
_INVALID_VERSION = b"ff"
_SAMPLED = 1


class TraceContext(NamedTuple):
    """The ids of a trace and of a span in it, and whether the trace is recorded."""

    trace_id: int
    span_id: int
    sampled: bool

    def encode(self) -> bytes:
        """Return the value of the header.

        >>> TraceContext(1, 2, True).encode()
        b'00-00000000000000000000000000000001-0000000000000002-01'
        """
        return b"00-%032x-%016x-%02x" % (self.trace_id, self.span_id, self.sampled)


def decode(value: bytes | None) -> TraceContext | None:
    """Return the context of a header's value; None for one that is not valid.

    >>> decode(TraceContext(1, 2, True).encode())
    TraceContext(trace_id=1, span_id=2, sampled=True)
    """
    match = _FORM.fullmatch(value or b"")
    if match is None or match[1] == _INVALID_VERSION or (match[1] == b"00" and match[5]):
        return None
    trace_id, span_id = int(match[2], 16), int(match[3], 16)
    return TraceContext(trace_id, span_id, bool(int(match[4], 16) & _SAMPLED)) if trace_id and span_id else None


def traceparent_of(headers: Headers | None) -> bytes | None:
    """Return the value of the last `traceparent` of a record; None where it has none."""
    found = None
    for name, value in headers or ():
        if name == TRACEPARENT:
            found = value
    return found


def with_traceparent(headers: Headers | None, value: bytes) -> Headers:
    """Return headers with this `traceparent` in the place of the first one that they have, else at their end."""
    result: Headers = []
    placed = False
    for name, old in headers or ():
        if name != TRACEPARENT:
            result.append((name, old))
        elif not placed:
            result.append((TRACEPARENT, value))
            placed = True
    return result if placed else [*result, (TRACEPARENT, value)]
