"""Prometheus metrics, named as Kafka's JMX exporter names the metrics of Kafka Streams.

MBean `kafka.streams:type=stream-thread-metrics,thread-id=…`, attribute `process-rate` becomes
`kafka_streams_stream_thread_metrics_process_rate{thread_id="…"}`: domain, type and attribute are joined by `_`.
Each character other than a letter or digit becomes `_`, and the remaining properties become labels (the exporter's default format).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial
from operator import attrgetter
from typing import TYPE_CHECKING, Generic, TypeVar

from prometheus_client.exposition import CONTENT_TYPE_LATEST, generate_latest
from prometheus_client.metrics_core import (
    CounterMetricFamily,
    GaugeMetricFamily,
    HistogramMetricFamily,
    Metric,
    SummaryMetricFamily,
)
from starlette.responses import Response

from streamkit.http.acceptor import REASONS, Traffic
from streamkit.http.endpoint import Endpoint
from streamkit.http.service import Service
from streamkit.latency import COARSE
from streamkit.plan.model import Plan, SinkNode, SourceNode
from streamkit.record import TaskId
from streamkit.runtime.local.states import ClientState, ThreadState
from streamkit.runtime.local.status_model import ApplicationStatus, TaskStatus, ThreadStatus
from streamkit.user_metrics import USER, MetricValue

if TYPE_CHECKING:
    from prometheus_client.registry import Collector
    from starlette.requests import Request

    from streamkit.runtime.local.client import Application


_CLIENT = "kafka_streams_stream_metrics_"
_THREAD = "kafka_streams_stream_thread_metrics_"
_TASK = "kafka_streams_stream_task_metrics_"
_NODE = "kafka_streams_stream_processor_node_metrics_"
_TOPIC = "kafka_streams_stream_topic_metrics_"
_STORE = "kafka_streams_stream_state_metrics_"
_OWN = "streamkit_"
_HTTP = "streamkit_http_"
_CONSUMER = "kafka_consumer_consumer_fetch_manager_metrics_"

_THREAD_TOTALS = {
    "process": "Records processed",
    "commit": "Commits",
    "poll": "Calls to poll",
    "punctuate": "Rounds in which a punctuator fired",
    "task-created": "Tasks created",
    "task-closed": "Tasks closed",
}


def metrics(service: Service, request: Request) -> Response:
    """Return all metrics as text."""
    status = service.application.status()
    collector: Collector = _Status(status, service.application.plan)
    own: Collector = _Server(service.traffic)
    user_code: Collector = UserCodeMetrics(service.application)
    text = generate_latest(collector) + generate_latest(own) + generate_latest(user_code)
    return Response(text, media_type=CONTENT_TYPE_LATEST)


class _Status:
    """A snapshot as metrics."""

    def __init__(self, status: ApplicationStatus, plan: Plan):
        self._status = status
        self._plan = plan

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics of the client, its threads, tasks, topics and inputs."""
        yield from self._client()
        yield from self._threads()
        yield from self._tasks()
        yield from self._restoring()
        yield from self._topics()
        yield self._stores()
        yield from self._lag()
        yield from self._latency()
        yield from self._application()
        yield from self._dropped()

    def _client(self) -> Iterator[Metric]:
        client = self._status.application
        threads = self._status.threads
        dead = sum(thread.error is not None for thread in threads)
        alive = sum(thread.state != ThreadState.DEAD.value for thread in threads)
        state = list(ClientState.__members__).index(self._status.state)
        for name, meaning, value in (
            ("alive-stream-threads", "Stream threads that run or take part in rebalancing", alive),
            ("failed-stream-threads", "Stream threads that an error ended", dead),
        ):
            yield _gauge(_CLIENT, name, meaning, ["client_id"], [([client], value)])
        meaning = f"The state, counted from 0: {', '.join(ClientState.__members__)}"
        labels = ["client_id", "application_id", "process_id"]
        yield _gauge(_CLIENT, "client-state", meaning, labels, [([client, client, self._status.process], state)])

    def _threads(self) -> Iterator[Metric]:
        rows = [([thread.name], thread) for thread in self._status.threads]
        threads = _Table(_THREAD, ["thread_id"], rows)
        for name, meaning in _THREAD_TOTALS.items():
            total = f"{name}-total"
            yield threads.counter(name, meaning, partial(_total, total))
            rate = f"{meaning}, per second"
            yield threads.gauge(f"{name}-rate", rate, partial(_rate, total))
        for name in ("process", "commit", "poll"):
            meaning = f"The share of the time that the thread spends in {name}"
            yield threads.gauge(f"{name}-ratio", meaning, partial(_ratio, name))
        for name in ("commit", "poll"):
            meaning = f"Milliseconds of one {name}, on average"
            yield threads.gauge(f"{name}-latency-avg", meaning, partial(_average_ms, name))
        states = list(ThreadState.__members__)
        meaning = f"The state, counted from 0: {', '.join(states)}"
        yield threads.gauge("thread-state", meaning, lambda thread: states.index(thread.state))

    def _tasks(self) -> Iterator[Metric]:
        rows = [
            ([thread.name, task.id], task)
            for thread in self._status.threads
            for task in thread.tasks
            if task.state == "RUNNING" and task.kind == "active"
        ]
        tasks = _Table(_TASK, ["thread_id", "task_id"], rows)
        dropped = "Records dropped: late, without a key, undecodable, or given up by a handler"
        yield tasks.counter("process", "Records processed", lambda task: task.processed)
        yield tasks.gauge("process-rate", "Records processed per second", lambda task: task.rate)
        yield tasks.counter("dropped-records", dropped, lambda task: task.dropped)
        yield tasks.gauge("dropped-records-rate", f"{dropped}, per second", lambda task: task.dropped_rate)
        yield tasks.counter("commit", "Commits", lambda task: task.commits)
        yield tasks.gauge("active-buffer-count", "Records fetched and waiting", lambda task: task.buffered)

    def _restoring(self) -> Iterator[Metric]:
        rows = [([thread.name, task.id], task) for thread in self._status.threads for task in thread.tasks]
        tables = {
            kind: _Table(_TASK, ["thread_id", "task_id"], [(ids, task) for ids, task in rows if task.kind == kind])
            for kind in ("active", "standby")
        }
        for kind, name in (("active", "restore"), ("standby", "update")):
            meaning = f"Changelog records applied to {kind} tasks"
            yield tables[kind].counter(name, meaning, lambda task: task.restored)
        meaning = "Changelog records left to restore"
        yield tables["active"].gauge("restore-remaining-records-total", meaning, lambda task: task.behind)

    def _topics(self) -> Iterator[Metric]:
        labels = ["thread_id", "task_id", "processor_node_id", "topic_name"]
        consumed, produced = [], []
        for thread in self._status.threads:
            for task in thread.tasks:
                sources, sinks = _nodes(self._plan, task)
                for partition in task.inputs:
                    node = sources.get(partition.topic, "")
                    consumed.append(([thread.name, task.id, node, partition.topic], partition.processed))
                for topic, count in task.produced.items():
                    if topic in sinks:
                        produced.append(([thread.name, task.id, sinks[topic], topic], count))
        yield _counter(_TOPIC, "records-consumed", "Records taken from a source topic", labels, consumed)
        yield _counter(_TOPIC, "records-produced", "Records written to a sink topic", labels, produced)

    def _stores(self) -> Metric:
        family = GaugeMetricFamily(f"{_STORE}num_keys", "Keys, windows or sessions of a store in memory")
        for attributes, keys in self._status.keys_in_memory():
            family.add_sample(family.name, {name.replace("-", "_"): value for name, value in attributes.items()}, keys)
        return family

    def _lag(self) -> Iterator[Metric]:
        rows = [
            ([f"{thread.name}-consumer", partition.topic, str(partition.partition)], partition.lag)
            for thread in self._status.threads
            for task in thread.tasks
            for partition in task.inputs
            if partition.lag is not None
        ]
        meaning = "Records of a partition that are not processed yet"
        yield _gauge(_CONSUMER, "records-lag", meaning, ["client_id", "topic", "partition"], rows)

    def _latency(self) -> Iterator[Metric]:
        """Yield the end-to-end latencies at sources and terminal nodes (KIP-613), and their histograms."""
        labels = ["thread_id", "task_id", "processor_node_id"]
        tasks = [([thread.name, task.id], task) for thread in self._status.threads for task in thread.tasks]
        rows = [([*ids, latency.node], latency) for ids, task in tasks for latency in task.latency]
        meaning = "Milliseconds from a record's timestamp until the node has processed it"
        for group, names in ((_NODE, ("min", "max", "avg")), (_OWN, ("p50", "p99"))):
            table = _Table(group, labels, rows)
            for name in names:
                yield table.gauge(f"record-e2e-latency-{name}", f"{meaning}: {name}", attrgetter(name))
        family = HistogramMetricFamily(f"{_OWN}record_e2e_latency_seconds", "The same as a histogram", labels=labels)
        for ids, task in tasks:
            for histogram in task.histograms:
                buckets = [
                    (str(bound / 1000), float(reached))
                    for bound, reached in zip(COARSE, histogram.cumulative, strict=True)
                ]
                family.add_metric(
                    [*ids, histogram.node], [*buckets, ("+Inf", float(histogram.count))], histogram.total / 1000
                )
        yield family

    def _application(self) -> Iterator[Metric]:
        """Yield the metrics of all inputs of the application, equal at each instance; Kafka Streams reports only those of each consumer."""
        labels = ["topic", "partition"]
        inputs = self._status.inputs
        rows = [
            ([partition.topic, str(partition.partition)], partition.lag)
            for partition in inputs
            if partition.lag is not None
        ]
        yield _gauge(_OWN, "records-lag", "Records that wait in an input partition of the application", labels, rows)
        owned = [
            ([partition.topic, str(partition.partition)], int(partition.state != "UNOWNED"))
            for partition in inputs
            if partition.state != "UNKNOWN"
        ]
        yield _gauge(_OWN, "partition-owned", "Whether a member of the group owns an input partition", labels, owned)
        paused = [([self._status.application], int(self._status.paused))]
        yield _gauge(_OWN, "paused", "Whether this instance is paused", ["client_id"], paused)

    def _dropped(self) -> Iterator[Metric]:
        rows = [([drop.thread, drop.task or "", drop.reason], drop) for drop in self._status.drops]
        drops = _Table(_OWN, ["thread_id", "task_id", "reason"], rows)
        yield drops.counter("dropped-records", "Records dropped, by reason", lambda drop: drop.dropped)
        yield drops.counter(
            "dead-letters", "Records written to a dead-letter topic, by reason", lambda drop: drop.dead_letters
        )


class _Server:
    """The traffic of the HTTP server as metrics. Kafka Streams has none, so the names are streamkit's own."""

    def __init__(self, traffic: Traffic):
        self._traffic = traffic

    def collect(self) -> Iterator[Metric]:
        """Yield the metrics."""
        traffic = self._traffic
        yield GaugeMetricFamily(f"{_HTTP}connections", "Connections that are open", traffic.open)
        yield GaugeMetricFamily(f"{_HTTP}connections_limit", "The maximum number of open connections", traffic.limit)
        refused = [([reason], traffic.refused[reason]) for reason in REASONS]
        yield _counter(_HTTP, "refused", "Connections and requests refused or cut", ["reason"], refused)
        yield CounterMetricFamily(f"{_HTTP}restarts", "Starts of the server after it failed", traffic.restarts)


_Rows = list[tuple[list[str], int]] | list[tuple[list[str], float]]
Row = TypeVar("Row")


class _Table(Generic[Row]):
    """Metrics of one group about the same things, each with the values of its labels."""

    def __init__(self, group: str, labels: list[str], rows: list[tuple[list[str], Row]]):
        self._group = group
        self._labels = labels
        self._rows = rows

    def gauge(self, name: str, meaning: str, value: Callable[[Row], float]) -> Metric:
        return _gauge(self._group, name, meaning, self._labels, [(ids, value(row)) for ids, row in self._rows])

    def counter(self, name: str, meaning: str, value: Callable[[Row], float]) -> Metric:
        return _counter(self._group, name, meaning, self._labels, [(ids, value(row)) for ids, row in self._rows])


def _gauge(group: str, name: str, meaning: str, labels: list[str], rows: _Rows) -> Metric:
    return _filled(GaugeMetricFamily(group + name.replace("-", "_"), meaning, labels=labels), rows)


def _counter(group: str, name: str, meaning: str, labels: list[str], rows: _Rows) -> Metric:
    """Return a counter; `_total` is added to its name."""
    return _filled(CounterMetricFamily(group + name.replace("-", "_"), meaning, labels=labels), rows)


def _filled(family: GaugeMetricFamily | CounterMetricFamily, rows: _Rows) -> Metric:
    for values, number in rows:
        family.add_metric(values, number)
    return family


def _total(name: str, thread: ThreadStatus) -> float:
    return thread.totals.get(name, 0)


def _rate(name: str, thread: ThreadStatus) -> float:
    return thread.rates.get(name, 0.0)


def _ratio(name: str, thread: ThreadStatus) -> float:
    share = _rate(f"{name}-seconds", thread)
    # Commits take place between the batches of one round of processing.
    return max(0.0, share - _rate("commit-seconds", thread)) if name == "process" else share


def _average_ms(name: str, thread: ThreadStatus) -> float:
    rate = _rate(f"{name}-total", thread)
    return _rate(f"{name}-seconds", thread) / rate * 1000 if rate else 0.0


def _nodes(plan: Plan, task: TaskStatus) -> tuple[dict[str, str], dict[str, str]]:
    """Return the source and the sink nodes of a task's sub-topology by the name of their topic on the log."""
    number = TaskId.parse(task.id).sub_topology
    sources, sinks = {}, {}
    for sub in plan.sub_topologies:
        if sub.id == number:
            for name, node in sub.nodes.items():
                if isinstance(node, SourceNode):
                    sources.update({plan.internal_name(topic): name for topic in node.topics})
                elif isinstance(node, SinkNode) and node.topic is not None:
                    sinks[plan.internal_name(node.topic)] = name
    return sources, sinks


ENDPOINTS = (Endpoint("/metrics", "Metrics for Prometheus.", metrics, content="text/plain"),)


# Prometheus metrics of the user's Python code, `streamkit_user_…`, and of steps that call functions, `streamkit_enrich_…`.

LABELS = ["thread_id", "task_id"]
_MEANINGS = {
    ("enrich", "calls"): "Calls of the function, retries included",
    ("enrich", "failures"): "Calls that failed after their retries",
    ("enrich", "retries"): "Calls that were repeated",
    ("enrich", "cache_hits"): "Records whose result was known",
    ("enrich", "cache_misses"): "Records whose result had to be looked up",
    ("enrich", "call"): "The durations of the calls",
}


class UserCodeMetrics:
    """The metrics of all tasks, from the threads' last views; the metrics of a task end with it."""

    def __init__(self, application: Application):
        self._application = application

    def collect(self) -> Iterator[Metric]:
        """Yield a family for each name."""
        families: dict[tuple[str, str, str], Metric] = {}
        for thread in list(self._application.threads):
            for task in thread.counters.view.tasks:
                for metric in task.metrics:
                    key = (metric.group, metric.name, metric.kind)
                    if key not in families:
                        families[key] = _family(metric)
                    node = [] if metric.group == USER else [metric.node]
                    _add(families[key], [thread.name, task.id, *node], metric)
        yield from families.values()


def _family(metric: MetricValue) -> Metric:
    meaning = _MEANINGS.get((metric.group, metric.name), f"The user's {metric.kind} {metric.name}")
    labels = LABELS if metric.group == USER else [*LABELS, "processor_node_id"]
    name = f"streamkit_{metric.group}_{metric.name}"
    if metric.kind == "timer":
        return SummaryMetricFamily(f"{name}_seconds", meaning, labels=labels)
    if metric.kind == "counter":
        return CounterMetricFamily(name, meaning, labels=labels)
    return GaugeMetricFamily(name, meaning, labels=labels)


def _add(family: Metric, labels: list[str], metric: MetricValue) -> None:
    if isinstance(family, SummaryMetricFamily):
        family.add_metric(labels, count_value=metric.count, sum_value=metric.number)
    elif isinstance(family, CounterMetricFamily | GaugeMetricFamily):
        family.add_metric(labels, metric.number)
