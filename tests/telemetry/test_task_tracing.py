"""The spans of one task, without an exporter: which records share one, which are linked, and the limits."""

from __future__ import annotations

from dataclasses import dataclass, field

import pytest

from streamkit.record import Headers
from streamkit.runtime.telemetry import task_tracing
from streamkit.runtime.telemetry.task_tracing import (
    MOST_SPANS,
    Span,
    TaskTracing,
    TraceContext,
    decode,
    traceparent_of,
    with_traceparent,
)


@dataclass
class Kept(Span):
    """A span that keeps what is done to it."""

    ids: TraceContext
    parent: TraceContext | None
    links: list[TraceContext] = field(default_factory=list)
    records: int | None = None
    error: BaseException | None = None

    @property
    def context(self) -> TraceContext:
        return self.ids

    def link(self, context: TraceContext) -> None:
        self.links.append(context)

    def end(self, records: int, time_ns: int, error: BaseException | None = None) -> None:
        assert self.records is None, "ended twice"
        self.records, self.error = records, error


class Spans:
    """Starts spans whose ids are numbers in order."""

    def __init__(self, *, sampled: bool = True):
        self.all: list[Kept] = []
        self._sampled = sampled

    def __call__(self, parent: TraceContext | None) -> Kept:
        number = len(self.all) + 1
        trace, sampled = (10_000 + number, self._sampled) if parent is None else (parent.trace_id, True)
        self.all.append(Kept(TraceContext(trace, number, sampled), parent))
        return self.all[-1]


def traced(number: int, *, sampled: bool = True) -> Headers:
    return [("traceparent", TraceContext(number, number, sampled).encode())]


@pytest.mark.parametrize(
    "value",
    [
        None,
        b"",
        b"00-1-2-01",
        b"ff-00000000000000000000000000000001-0000000000000002-01",
        b"00-00000000000000000000000000000000-0000000000000002-01",
        b"00-00000000000000000000000000000001-0000000000000000-01",
        b"00-00000000000000000000000000000001-0000000000000002-01-more",
        b"00-0000000000000000000000000000000G-0000000000000002-01",
    ],
)
def test_a_value_that_is_not_valid_is_no_context(value: bytes | None) -> None:
    assert decode(value) is None


def test_a_later_version_may_say_more() -> None:
    value = b"01-00000000000000000000000000000001-0000000000000002-03-more"
    assert decode(value) == TraceContext(1, 2, True)


def test_the_context_takes_the_place_of_the_one_before() -> None:
    old = [("a", b"1"), ("traceparent", b"x"), ("b", None), ("traceparent", b"y")]
    assert traceparent_of(old) == b"y"
    assert with_traceparent(old, b"z") == [("a", b"1"), ("traceparent", b"z"), ("b", None)]
    assert with_traceparent(None, b"z") == [("traceparent", b"z")]


def test_a_sampler_that_refuses_leaves_records_as_they_are() -> None:
    spans = Spans(sampled=False)
    tracing = TaskTracing(spans, ["a"], joins=False)
    headers: list[Headers | None] = [None, [("x", b"1")]]
    assert tracing.columns("a", [None, None], headers) == headers
    tracing.end()
    assert [span.records for span in spans.all] == [2]


def test_only_so_many_traced_records_of_a_round_have_spans() -> None:
    spans = Spans()
    tracing = TaskTracing(spans, ["a"], joins=False)
    count = MOST_SPANS + 5
    result = tracing.columns("a", [b"k"] * count, [traced(1000 + each) for each in range(count)])
    assert len(spans.all) == 1 + MOST_SPANS
    assert result[MOST_SPANS:] == [traced(1000 + each) for each in range(MOST_SPANS, count)]
    tracing.end()
    assert spans.all[0].records == count


def test_spans_do_not_count_the_records_that_a_run_puts_back() -> None:
    spans = Spans()
    tracing = TaskTracing(spans, ["a"], joins=False)
    tracing.columns("a", [b"k"] * 3, [traced(7), None, traced(7)])
    tracing.processed(2)
    tracing.end()
    assert [span.records for span in spans.all] == [2, 1]


def test_the_spans_of_records_end_with_their_round_and_the_batch_later(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr(task_tracing, "monotonic", lambda: now[0])
    spans = Spans()
    tracing = TaskTracing(spans, ["a"], joins=False)
    for _ in range(2):
        tracing.columns("a", [b"k"], [traced(7)])
        tracing.processed(1)
        tracing.end_round(1)
    batch, *others = spans.all
    assert ([span.records for span in others], batch.records) == ([1, 1], None)
    now[0] = 1.0
    tracing.end_round(0)
    assert batch.records == 2
    tracing.columns("a", [b"k"], [None])
    assert spans.all[-1].parent is None


def test_a_link_names_the_last_traced_record_of_the_key_of_each_other_input() -> None:
    spans = Spans()
    tracing = TaskTracing(spans, ["left", "right"], joins=True)
    result = tracing.columns("right", [b"a", b"a", b"b"], [traced(1), traced(2), traced(3)])
    last = decode(traceparent_of(result[1]))
    tracing.columns("left", [b"a", b"a", b"c"], [traced(4), traced(4), traced(5)])
    links = {span.parent.trace_id: span.links for span in spans.all if span.parent is not None}
    assert links == {1: [], 2: [], 3: [], 4: [last], 5: []}


def test_keys_are_forgotten_in_the_order_of_their_last_records(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(task_tracing, "MOST_KEYS", 2)
    spans = Spans()
    tracing = TaskTracing(spans, ["left", "right"], joins=True)
    tracing.columns("right", [b"a", b"b", b"a", b"c"], [traced(number) for number in range(1, 5)])
    tracing.columns("left", [b"a", b"b", b"c"], [traced(6), traced(7), traced(8)])
    links = {span.parent.trace_id: len(span.links) for span in spans.all if span.parent is not None}
    assert (links[6], links[7], links[8]) == (1, 0, 1)
