"""Exports spans and metrics with the SDK of OpenTelemetry, by OTLP over HTTP. The SDK's settings (OTEL_*) apply."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from threading import Thread
from time import monotonic
from typing import TYPE_CHECKING, TypeAlias

from streamkit.distribution import install_command
from streamkit.errors import ConfigError
from streamkit.plan.model import SubTopology
from streamkit.runtime.local.states import ClientState
from streamkit.runtime.local.status_model import ApplicationStatus, Recent
from streamkit.runtime.telemetry.task_tracing import Span, TaskTracing, TraceContext

if TYPE_CHECKING:
    from opentelemetry import metrics as api_metrics
    from opentelemetry import trace as api_trace


SCOPE = "streamkit"
_MOST_LINKS = 128
_END_SECONDS = 2


class Telemetry:
    """The traces and metrics of one instance."""

    def __init__(self, application: str, instance: str, status: Callable[[], ApplicationStatus]):
        """Start the exporters. Raises ConfigError if the extra is not installed."""
        try:
            from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
            from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
            from opentelemetry.sdk.metrics import MeterProvider
            from opentelemetry.sdk.metrics.export import PeriodicExportingMetricReader
            from opentelemetry.sdk.resources import Resource
            from opentelemetry.sdk.trace import TracerProvider
            from opentelemetry.sdk.trace.export import BatchSpanProcessor
        except ImportError as error:
            raise ConfigError(f"otel.enabled needs the extra otel: {install_command('otel')}") from error
        names = {} if os.environ.get("OTEL_SERVICE_NAME") else {"service.name": application}
        resource = Resource.create({**names, "service.instance.id": instance})
        self._application = application
        # `close` stops the exporters; a second stop at the end of the process would wait for the collector again.
        self._traces = TracerProvider(resource=resource, shutdown_on_exit=False)
        self._traces.add_span_processor(BatchSpanProcessor(OTLPSpanExporter()))
        self._tracer = self._traces.get_tracer(SCOPE)
        self._metrics = MeterProvider(
            [PeriodicExportingMetricReader(OTLPMetricExporter())], resource, shutdown_on_exit=False
        )
        _observe(self._metrics.get_meter(SCOPE), status)

    def tracing(self, task: str, sub_topology: SubTopology, inputs: Iterable[str]) -> TaskTracing:
        """Return the traces of a task."""
        name = f"{self._application} sub-topology {sub_topology.id}"
        attributes: dict[str, str | int] = {
            "messaging.system": "kafka",
            "messaging.operation.type": "process",
            "messaging.consumer.group.name": self._application,
            "streamkit.task": task,
            "streamkit.sub_topology": sub_topology.id,
        }
        topics = list(dict.fromkeys(inputs))
        joins = len(topics) > 1 and bool(sub_topology.stores)
        return TaskTracing(lambda parent: _SdkSpan(self._tracer, name, parent, attributes), topics, joins)

    def close(self) -> None:
        """Export what is left, and stop the exporters; returns after 2 s even if the collector does not respond."""
        ends = [
            Thread(target=end, name="otel-end", daemon=True) for end in (self._traces.shutdown, self._metrics.shutdown)
        ]
        deadline = monotonic() + _END_SECONDS
        for end in ends:
            end.start()
        for end in ends:
            end.join(max(0.0, deadline - monotonic()))


class _SdkSpan(Span):
    """A span of the SDK."""

    def __init__(
        self,
        tracer: api_trace.Tracer,
        name: str,
        parent: TraceContext | None,
        attributes: dict[str, str | int],
    ):
        from opentelemetry import trace
        from opentelemetry.context import Context

        context = Context()
        if parent is not None:
            context = trace.set_span_in_context(trace.NonRecordingSpan(_sdk_context(parent)), context)
        self._span = tracer.start_span(name, context, trace.SpanKind.CONSUMER, attributes)
        ids = self._span.get_span_context()
        self._context = TraceContext(ids.trace_id, ids.span_id, ids.trace_flags.sampled)
        self._links = 0

    @property
    def context(self) -> TraceContext:
        return self._context

    def link(self, context: TraceContext) -> None:
        # The SDK would drop the first links in favour of later ones; keeping the first ones costs less.
        if self._links < _MOST_LINKS:
            self._links += 1
            self._span.add_link(_sdk_context(context))

    def end(self, records: int, time_ns: int, error: BaseException | None = None) -> None:
        from opentelemetry.trace import Status, StatusCode

        self._span.set_attribute("messaging.batch.message_count", records)
        if error is not None:
            self._span.record_exception(error)
            self._span.set_status(Status(StatusCode.ERROR, str(error)))
        self._span.end(time_ns)


def _sdk_context(context: TraceContext) -> api_trace.SpanContext:
    from opentelemetry.trace import SpanContext, TraceFlags

    flags = TraceFlags(TraceFlags.SAMPLED if context.sampled else TraceFlags.DEFAULT)
    return SpanContext(context.trace_id, context.span_id, True, flags)


def _observe(meter: api_metrics.Meter, status: Callable[[], ApplicationStatus]) -> None:
    """Register the metrics; all metrics of one export come from the same status."""
    from opentelemetry.metrics import CallbackOptions, Observation

    recent = Recent[ApplicationStatus]()

    def callback(points: Callable[[ApplicationStatus], Iterable[Point]]) -> Callable[..., list[Observation]]:
        def observe(options: CallbackOptions) -> list[Observation]:
            now = recent.get(status)
            assert now is not None
            return [Observation(value, attributes) for value, attributes in points(now)]

        return observe

    for metric in METRICS:
        create = meter.create_observable_counter if metric.is_counter else meter.create_observable_gauge
        create(metric.name, [callback(metric.points)], metric.unit, metric.meaning)


# The metrics that are exported by OTLP: Kafka Streams' own under the names of KIP-714 and KIP-1076, others under `streamkit.`.

Point: TypeAlias = tuple[float, Mapping[str, str]]
"""A value and its attributes."""
_KAFKA = "org.apache.kafka.stream."


@dataclass(frozen=True)
class ExportedMetric:
    """A metric, and the function that reads its points from a status."""

    name: str
    meaning: str
    unit: str
    is_counter: bool
    points: Callable[[ApplicationStatus], Iterable[Point]]


def _state(status: ApplicationStatus) -> Iterator[Point]:
    yield list(ClientState.__members__).index(status.state), {}


def _of_threads(total: str) -> Callable[[ApplicationStatus], Iterator[Point]]:
    def points(status: ApplicationStatus) -> Iterator[Point]:
        for thread in status.threads:
            yield thread.totals.get(total, 0), {"thread-id": thread.name}

    return points


def _of_tasks(field: str) -> Callable[[ApplicationStatus], Iterator[Point]]:
    def points(status: ApplicationStatus) -> Iterator[Point]:
        for thread in status.threads:
            for task in thread.tasks:
                if task.kind == "active":
                    yield getattr(task, field), {"thread-id": thread.name, "task-id": task.id}

    return points


def _latency(field: str) -> Callable[[ApplicationStatus], Iterator[Point]]:
    def points(status: ApplicationStatus) -> Iterator[Point]:
        for thread in status.threads:
            for task in thread.tasks:
                for latency in task.latency:
                    ids = {"thread-id": thread.name, "task-id": task.id, "processor-node-id": latency.node}
                    yield getattr(latency, field), ids

    return points


def _lag(status: ApplicationStatus) -> Iterator[Point]:
    for topic_input in status.inputs:
        if topic_input.lag is not None:
            yield topic_input.lag, {"topic": topic_input.topic, "partition": str(topic_input.partition)}


def _owned(status: ApplicationStatus) -> Iterator[Point]:
    for topic_input in status.inputs:
        if topic_input.state != "UNKNOWN":
            yield (
                int(topic_input.state != "UNOWNED"),
                {"topic": topic_input.topic, "partition": str(topic_input.partition)},
            )


def _drops(field: str) -> Callable[[ApplicationStatus], Iterator[Point]]:
    def points(status: ApplicationStatus) -> Iterator[Point]:
        for drop in status.drops:
            ids = {"thread-id": drop.thread, "task-id": drop.task or "", "reason": drop.reason}
            yield getattr(drop, field), ids

    return points


def _keys(status: ApplicationStatus) -> Iterator[Point]:
    for attributes, keys in status.keys_in_memory():
        yield keys, attributes


def _paused(status: ApplicationStatus) -> Iterator[Point]:
    yield int(status.paused), {}


METRICS = (
    ExportedMetric(f"{_KAFKA}client.state", f"From 0: {', '.join(ClientState.__members__)}", "1", False, _state),
    *(
        ExportedMetric(f"{_KAFKA}thread.{name}.total", meaning, "1", True, _of_threads(f"{name}-total"))
        for name, meaning in (("process", "Records processed"), ("commit", "Commits"), ("poll", "Calls to poll"))
    ),
    ExportedMetric(f"{_KAFKA}task.process.total", "Records processed", "1", True, _of_tasks("processed")),
    ExportedMetric(f"{_KAFKA}task.dropped.records.total", "Records dropped", "1", True, _of_tasks("dropped")),
    ExportedMetric(f"{_KAFKA}task.restore.remaining.records.total", "Left to restore", "1", False, _of_tasks("behind")),
    ExportedMetric(f"{_KAFKA}state.num.keys", "Keys of a store in memory", "1", False, _keys),
    *(
        ExportedMetric(
            f"{_KAFKA}processor.node.record.e2e.latency.{name}", "End-to-end latency", "ms", False, _latency(name)
        )
        for name in ("min", "max", "avg")
    ),
    *(
        ExportedMetric(f"streamkit.record.e2e.latency.{name}", "End-to-end latency", "ms", False, _latency(name))
        for name in ("p50", "p99")
    ),
    ExportedMetric("streamkit.records.lag", "Records that wait in an input partition", "1", False, _lag),
    ExportedMetric("streamkit.partition.owned", "Whether a member of the group owns an input", "1", False, _owned),
    ExportedMetric("streamkit.paused", "Whether this instance is paused", "1", False, _paused),
    ExportedMetric("streamkit.dropped.records", "Records dropped, by reason", "1", True, _drops("dropped")),
    ExportedMetric("streamkit.dead.letters", "Dead letters written, by reason", "1", True, _drops("dead_letters")),
)
