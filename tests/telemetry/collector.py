"""A collector of OpenTelemetry: an HTTP server that decodes what exporters send by OTLP."""

from __future__ import annotations

import gzip
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from opentelemetry.proto.collector.metrics.v1.metrics_service_pb2 import ExportMetricsServiceRequest
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest


@dataclass(frozen=True)
class Received:
    """A span as it arrived; ids as hexadecimal digits."""

    name: str
    trace: str
    id: str
    parent: str
    links: frozenset[tuple[str, str]]
    attributes: dict[str, Any]
    failed: bool


@dataclass
class Collector:
    """What has arrived so far."""

    endpoint: str = ""
    spans: list[Received] = field(default_factory=list)
    metrics: dict[str, list[tuple[dict[str, str], float]]] = field(default_factory=dict)
    """The last points of each metric."""
    resources: list[dict[str, Any]] = field(default_factory=list)

    def take(self, path: str, body: bytes) -> None:
        if path == "/v1/traces":
            for resource in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.resources.append(_attributes(resource.resource.attributes))
                self.spans += [_span(span) for scope in resource.scope_spans for span in scope.spans]
        else:
            assert path == "/v1/metrics"
            for resource in ExportMetricsServiceRequest.FromString(body).resource_metrics:
                for metric in (metric for scope in resource.scope_metrics for metric in scope.metrics):
                    points = metric.sum.data_points or metric.gauge.data_points
                    self.metrics[metric.name] = [(_attributes(each.attributes), _number(each)) for each in points]


def _span(span: Any) -> Received:
    return Received(
        span.name,
        span.trace_id.hex(),
        span.span_id.hex(),
        span.parent_span_id.hex(),
        frozenset((link.trace_id.hex(), link.span_id.hex()) for link in span.links),
        _attributes(span.attributes),
        span.status.code == 2,
    )


def _attributes(pairs: Any) -> dict[str, Any]:
    return {pair.key: getattr(pair.value, pair.value.WhichOneof("value")) for pair in pairs}


def _number(point: Any) -> float:
    return float(getattr(point, point.WhichOneof("value")))


@contextmanager
def collecting() -> Iterator[Collector]:
    """Run a collector on a port of its own."""
    collector = Collector()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            collector.take(self.path, gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body)
            self.send_response(200)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    collector.endpoint = f"http://127.0.0.1:{server.server_port}"
    thread = threading.Thread(target=server.serve_forever)
    thread.start()
    try:
        yield collector
    finally:
        server.shutdown()
        thread.join()
        server.server_close()
