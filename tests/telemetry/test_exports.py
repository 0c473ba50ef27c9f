"""Traces and metrics of applications, as a collector of OpenTelemetry receives them over HTTP."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from streamkit.errors import ConfigError
from streamkit.plan import load
from streamkit.record import Headers, TopicPartition
from streamkit.runtime.local.client import Application
from streamkit.runtime.telemetry import open_telemetry
from streamkit.runtime.telemetry.task_tracing import TraceContext, decode, traceparent_of
from streamkit.transport.embedded import EmbeddedTransport
from streamkit.transport.log_interface import EARLIEST, NewTopic
from tests.cli.support import LIMIT_S
from tests.telemetry.collector import Collector, Received, collecting

HEAD = """\
streamkit: 1
application: traced
config: {bootstrap.servers: embedded, poll.ms: 10, statestore.cache.max.bytes: CACHE}
"""
UPPER = """\
topics:
  words: {key: string, value: string}
  upper: {key: string, value: string}
pipelines:
  upper:
    stream: words
    steps: [{map_values: {value: value.upper(), value_serde: string}}]
    to: upper
"""
COUNT = """\
topics:
  words: {key: string, value: string}
  counts: {key: string, value: long}
pipelines:
  counts:
    stream: words
    steps: [{group_by: value}, {count: counts}, to_stream]
    to: counts
"""
JOIN = """\
topics:
  orders: {key: string, value: string}
  users: {key: string, value: string}
  both: {key: string, value: string}
pipelines:
  users: {table: users}
  both:
    stream: orders
    steps:
      - join: {with: users, value: left + right}
    to: both
"""
STREAMS = """\
topics:
  orders: {key: string, value: string}
  users: {key: string, value: string}
  both: {key: string, value: string}
pipelines:
  both:
    stream: orders
    steps:
      - join: {with: {stream: users}, within: 1h, value: left + right}
    to: both
"""


def traced(number: int, *, sampled: bool = True) -> TraceContext:
    return TraceContext(number * 1000, number, sampled)


def header(context: TraceContext) -> Headers:
    return [("before", b"1"), ("traceparent", context.encode()), ("after", None)]


def ids(context: TraceContext) -> tuple[str, str]:
    return f"{context.trace_id:032x}", f"{context.span_id:016x}"


class Run:
    """One run of a topology until it is idle, over records that are on the log before."""

    def __init__(self, folder: Path, text: str, cache: int = 0):
        self._plan_file = folder / "topology.yaml"
        self._plan_file.write_text(HEAD.replace("CACHE", str(cache)) + text)
        self._folder = folder
        self.log = EmbeddedTransport(folder / "log")

    def write(self, topic: str, rows: list[tuple[str, str, Headers | None]], others: list[str], time: int = 1) -> None:
        admin = self.log.admin()
        admin.create_topics([NewTopic(name, 1) for name in (topic, *others)])
        producer = self.log.producer()
        producer.send([(topic, k.encode(), v.encode(), time + n, h, 0) for n, (k, v, h) in enumerate(rows)])
        producer.flush()
        producer.close()
        admin.close()

    def run(self, **config: object) -> None:
        settings = {"state.dir": str(self._folder / "state"), **config}
        Application(load(self._plan_file, overrides=settings), self.log).run(until_idle=True)

    def read(self, topic: str) -> list[Headers | None]:
        """Return the headers of a topic's records."""
        consumer = self.log.consumer(None)
        place = TopicPartition(topic, 0)
        consumer.assign({place: EARLIEST})
        found: list[Headers | None] = []
        while consumer.position(place) < consumer.end_offsets([place])[place]:
            for batch in consumer.poll(1000, 10):
                found += batch.headers
        consumer.close()
        return found


@pytest.fixture
def collector(monkeypatch: pytest.MonkeyPatch) -> Iterator[Collector]:
    with collecting() as found:
        monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", found.endpoint)
        # An application ends after 2 s; here it waits until all has arrived.
        monkeypatch.setattr(open_telemetry, "_END_SECONDS", LIMIT_S)
        yield found


def by_id(collector: Collector) -> dict[str, Received]:
    return {span.id: span for span in collector.spans}


def sent(headers: Headers | None) -> TraceContext:
    context = decode(traceparent_of(headers))
    assert context is not None
    return context


def test_a_record_is_the_parent_of_the_span_whose_id_its_output_has(tmp_path: Path, collector: Collector) -> None:
    first, second = traced(7), traced(8)
    run = Run(tmp_path, UPPER)
    run.write("words", [("a", "x", header(first)), ("a", "y", header(second)), ("b", "z", header(first))], ["upper"])
    run.run(**{"otel.enabled": True})
    spans = by_id(collector)
    written = run.read("upper")
    assert [[name for name, _ in each or ()] for each in written] == [["before", "traceparent", "after"]] * 3
    for cause, headers in zip((first, second, first), written, strict=True):
        span = spans[ids(sent(headers))[1]]
        assert (span.trace, span.parent) == ids(cause)
        assert span.name == "traced sub-topology 0"
        assert span.attributes["streamkit.task"] == "0_0"
    counts = sorted(span.attributes["messaging.batch.message_count"] for span in collector.spans)
    # The batch's span has all records; both records of the first trace share one.
    assert counts == [1, 2, 3]
    assert collector.resources[0]["service.name"] == "traced"


def test_the_first_record_of_a_batch_begins_a_trace_where_it_has_none(tmp_path: Path, collector: Collector) -> None:
    unsampled = traced(9, sampled=False)
    run = Run(tmp_path, UPPER)
    rows: list[tuple[str, str, Headers | None]] = [
        ("a", "x", None),
        ("a", "y", [("other", b"1")]),
        ("a", "z", [("traceparent", b"nonsense")]),
    ]
    run.write("words", [*rows, ("a", "u", header(unsampled))], ["upper"])
    run.run(**{"otel.enabled": True})
    (batch,) = collector.spans
    assert batch.parent == ""
    first, *others = run.read("upper")
    assert ids(sent(first)) == (batch.trace, batch.id)
    assert others == [*(headers for _, _, headers in rows[1:]), header(unsampled)]


@pytest.mark.parametrize("cache", [0, 10_000_000])
def test_a_trace_goes_through_repartition_topics_stores_and_caches(
    tmp_path: Path, collector: Collector, cache: int
) -> None:
    first, second = traced(1), traced(2)
    run = Run(tmp_path, COUNT, cache)
    run.write("words", [("a", "tea", header(first)), ("b", "tea", header(second))], ["counts"])
    run.run(**{"otel.enabled": True})
    spans = by_id(collector)
    last = spans[ids(sent(run.read("counts")[-1]))[1]]
    # The second record has caused the last count.
    assert (last.name, last.trace) == ("traced sub-topology 1", ids(second)[0])
    before = spans[last.parent]
    assert (before.name, before.trace, before.parent) == ("traced sub-topology 0", *ids(second))


@pytest.mark.parametrize("text", [JOIN, STREAMS], ids=["stream and table", "two streams"])
def test_the_other_record_of_a_join_is_a_link(tmp_path: Path, collector: Collector, text: str) -> None:
    user, order = traced(1), traced(2)
    run = Run(tmp_path, text)
    run.write("users", [("a", "u", header(user)), ("b", "u", None)], ["orders", "both"])
    run.write("orders", [("a", "o", header(order))], [], time=100)
    run.run(**{"otel.enabled": True})
    spans = by_id(collector)
    (written,) = run.read("both")
    span = spans[ids(sent(written))[1]]
    cause, other = (order, user) if (span.trace, span.parent) == ids(order) else (user, order)
    assert (span.trace, span.parent) == ids(cause)
    (link,) = span.links
    linked = spans[link[1]]
    assert (linked.trace, linked.parent) == ids(other)


def test_without_the_setting_headers_and_changelogs_are_those_of_kafka_streams(tmp_path: Path) -> None:
    context = traced(5)
    run = Run(tmp_path, COUNT)
    run.write("words", [("a", "tea", header(context)), ("b", "tea", None)], ["counts"])
    run.run()
    assert run.read("traced-counts-repartition") == [header(context), None]
    assert run.read("counts") == [header(context), None]
    assert run.read("traced-counts-changelog") == [None, None]


def test_a_failure_ends_the_spans_of_its_batch(tmp_path: Path, collector: Collector) -> None:
    run = Run(tmp_path, UPPER.replace("value.upper()", "str(1 // 0)"))
    run.write("words", [("a", "x", header(traced(3)))], ["upper"])
    with pytest.raises(Exception, match="division by zero"):
        run.run(**{"otel.enabled": True})
    assert [span.failed for span in collector.spans] == [True, True]


def test_metrics_are_exported_at_the_end(tmp_path: Path, collector: Collector) -> None:
    run = Run(tmp_path, UPPER)
    run.write("words", [("a", "x", None)] * 5, ["upper"])
    run.run(**{"otel.enabled": True})
    ((_, processed),) = collector.metrics["org.apache.kafka.stream.thread.process.total"]
    assert processed == 5
    lags = {(point["topic"], point["partition"]): lag for point, lag in collector.metrics["streamkit.records.lag"]}
    assert lags == {("words", "0"): 0}
    assert collector.metrics["streamkit.paused"][0][1] == 0


def test_a_collector_that_does_not_answer_delays_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "http://127.0.0.1:9")
    run = Run(tmp_path, UPPER)
    run.write("words", [("a", "x", None)], ["upper"])
    run.run(**{"otel.enabled": True})
    assert len(run.read("upper")) == 1


def test_without_the_extra_the_start_names_the_command_that_installs_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "opentelemetry.exporter.otlp.proto.http.trace_exporter", None)
    run = Run(tmp_path, UPPER)
    run.write("words", [], ["upper"])
    with pytest.raises(ConfigError, match=r"otel.enabled needs the extra otel: .*pip install .*\[otel\]"):
        run.run(**{"otel.enabled": True})
