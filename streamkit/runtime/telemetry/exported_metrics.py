"""The metrics that are exported by OTLP: Kafka Streams' own under the names of KIP-714 and KIP-1076, others under `streamkit.`."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import TypeAlias

from streamkit.runtime.local.instance.status_model import ApplicationStatus
from streamkit.runtime.local.threads.states import ClientState

Point: TypeAlias = tuple[float, Mapping[str, str]]
"""A value and its attributes."""
_KAFKA = "org.apache.kafka.stream."


@dataclass(frozen=True)
class ExportedMetric:
    """A metric, and its points in a status."""

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
                for each in task.latency:
                    ids = {"thread-id": thread.name, "task-id": task.id, "processor-node-id": each.node}
                    yield getattr(each, field), ids

    return points


def _lag(status: ApplicationStatus) -> Iterator[Point]:
    for each in status.inputs:
        if each.lag is not None:
            yield each.lag, {"topic": each.topic, "partition": str(each.partition)}


def _owned(status: ApplicationStatus) -> Iterator[Point]:
    for each in status.inputs:
        if each.state != "UNKNOWN":
            yield int(each.state != "UNOWNED"), {"topic": each.topic, "partition": str(each.partition)}


def _drops(field: str) -> Callable[[ApplicationStatus], Iterator[Point]]:
    def points(status: ApplicationStatus) -> Iterator[Point]:
        for each in status.drops:
            ids = {"thread-id": each.thread, "task-id": each.task or "", "reason": each.reason}
            yield getattr(each, field), ids

    return points


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
