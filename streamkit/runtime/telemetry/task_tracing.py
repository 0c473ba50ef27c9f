"""The spans of a task: one a batch, and one below the context of each traced record; records below carry their ids.

A batch is what a task processes within 100 ms, in one or more rounds; the spans of traced records end with their round. Its
first record begins a trace if it has none, so that each batch has one at least; a header on every record would double
the time of a count. Only the column of headers is replaced, before the program runs: generated code, stores and caches
pass headers on as they do without traces.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Sequence
from time import monotonic, time_ns
from typing import NamedTuple, Protocol

from streamkit.record import Headers

MOST_SPANS = 128
"""Spans for traced records in one round; further records keep their context."""
MOST_KEYS = 50_000
"""Keys of one input whose last context is kept for links."""
_BATCH_SECONDS = 0.1


class Span(Protocol):
    """A span that has begun."""

    @property
    def context(self) -> TraceContext:
        """Its ids, and whether it is recorded."""

    def link(self, context: TraceContext) -> None:
        """Add a link to the span of a record that took part."""

    def end(self, records: int, time_ns: int, error: BaseException | None = None) -> None:
        """End it at a time (ns since 1970); `error` is the one that ended the batch."""


StartSpan = Callable[["TraceContext | None"], Span]
"""Starts a span of a task below a parent, or as the root of a trace."""


class TaskTracing:
    """The traces of one task; used by the thread that owns it."""

    def __init__(self, start: StartSpan, inputs: Sequence[str], joins: bool):
        """inputs: the topics that the task reads; joins: whether records of one input can be joined with those of another one."""
        self._start = start
        self._others = {topic: [other for other in inputs if other != topic] for topic in inputs} if joins else {}
        self._last: dict[str, dict[bytes, bytes]] = {topic: {} for topic in self._others}
        self._batch: Span | None = None
        self._spans: dict[bytes, tuple[Span, bytes]] = {}
        """By the `traceparent` of records: the span below it, and the value that replaces it."""
        self._counts: dict[int, int] = {}
        self._linked: set[tuple[int, bytes]] = set()
        self._began = 0.0
        self._worked_ns = 0
        self._records = 0
        self._run: list[tuple[int, int]] = []
        """The records of the current run that have spans: place, id of the span."""
        self._run_size = 0

    def columns(self, topic: str, keys: list[bytes | None], headers: list[Headers | None]) -> list[Headers | None]:
        """Return the headers of consecutive records of a topic, with the ids of their spans in this batch."""
        is_first = self._batch is None
        batch = self._batch or self._begin()
        self._run, self._run_size = [], len(headers)
        has_any = headers.count(None) < len(headers)
        traced = [at for at, header in enumerate(headers) if header] if has_any else []
        begins = is_first and batch.context.sampled
        if not traced and not begins:
            return headers
        result = list(headers)
        for at in traced:
            result[at] = self._replaced(at, headers[at])
        if begins and decode(traceparent_of(result[0])) is None:
            result[0] = with_traceparent(headers[0], batch.context.encode())
            traced = [0, *traced]
        if topic in self._others:
            self._link(topic, [(keys[at], traceparent_of(result[at])) for at in dict.fromkeys(traced)])
        return result

    def processed(self, done: int) -> None:
        """Count the first `done` records of the last `columns`; the task puts further ones back to their queue."""
        self._records += done
        for at, span_id in self._run:
            if at < done:
                self._counts[span_id] = self._counts.get(span_id, 0) + 1
        self._run, self._run_size = [], 0

    def end_round(self, done: int) -> None:
        """End the spans of the records of a round, and the batch if its time has passed."""
        if self._batch is None:
            return
        if done:
            self._worked_ns = time_ns()
            self._end_records(None)
        if monotonic() - self._began > _BATCH_SECONDS:
            self.end()

    def end(self, error: BaseException | None = None) -> None:
        """End the spans of the batch; `error` is the one that ended it."""
        if self._batch is None:
            return
        if error is not None:
            self._worked_ns = time_ns()
        self.processed(self._run_size)
        self._end_records(error)
        self._batch.end(self._records, self._worked_ns, error)
        self._batch, self._records = None, 0
        self._linked.clear()

    def _end_records(self, error: BaseException | None) -> None:
        for span, _ in self._spans.values():
            span.end(self._counts.get(span.context.span_id, 0), self._worked_ns, error)
        self._spans.clear()
        self._counts.clear()

    def _begin(self) -> Span:
        self._batch = self._start(None)
        self._began, self._worked_ns = monotonic(), time_ns()
        return self._batch

    def _replaced(self, at: int, headers: Headers | None) -> Headers | None:
        """Return the headers of one record, with the id of the span below its context; without a context as they are."""
        value = traceparent_of(headers)
        context = decode(value)
        if value is None or context is None:
            return headers
        replaced = self._spans.get(value)
        if replaced is None:
            if not context.sampled or len(self._spans) >= MOST_SPANS:
                return headers
            span = self._start(context)
            replaced = self._spans[value] = span, span.context.encode()
        span_id = replaced[0].context.span_id
        self._run.append((at, span_id))
        return with_traceparent(headers, replaced[1])

    def _link(self, topic: str, records: Iterable[tuple[bytes | None, bytes | None]]) -> None:
        """Link the spans of records (key, context) to the last traced records of their keys of the other inputs."""
        spans = {value: span for span, value in self._spans.values()}
        assert self._batch is not None
        spans[self._batch.context.encode()] = self._batch
        own, others = self._last[topic], [self._last[other] for other in self._others[topic]]
        for key, value in records:
            if key is None or value is None:
                continue
            own.pop(key, None)
            own[key] = value
            span = spans.get(value)
            for linked in others:
                other = linked.get(key)
                if span is not None and other is not None:
                    self._link_once(span, other)
        while len(own) > MOST_KEYS:
            del own[next(iter(own))]

    def _link_once(self, span: Span, other: bytes) -> None:
        context, place = decode(other), (span.context.span_id, other)
        if context is not None and context.span_id != span.context.span_id and place not in self._linked:
            self._linked.add(place)
            span.link(context)


# The trace context of a record in its headers (W3C Trace Context: `traceparent`).

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
    """Return the value of the last `traceparent` of a record; None if it has none."""
    text = None
    for name, value in headers or ():
        if name == TRACEPARENT:
            text = value
    return text


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
