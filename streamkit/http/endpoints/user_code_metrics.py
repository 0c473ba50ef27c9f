"""Prometheus metrics of the user's Python code, `streamkit_user_…`, and of steps that call functions, `streamkit_enrich_…`."""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

from prometheus_client.metrics_core import CounterMetricFamily, GaugeMetricFamily, Metric, SummaryMetricFamily

from streamkit.user_metrics import USER, MetricValue

if TYPE_CHECKING:
    from streamkit.runtime.local.instance.client import Application

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
    """The metrics of all tasks as of the threads' last views; those of a task end with it."""

    def __init__(self, application: Application):
        self._application = application

    def collect(self) -> Iterator[Metric]:
        """Yield a family for each name."""
        families: dict[tuple[str, str, str], Metric] = {}
        for thread in list(self._application.threads):
            for task in thread.counters.view.tasks:
                for each in task.metrics:
                    key = (each.group, each.name, each.kind)
                    if key not in families:
                        families[key] = _family(each)
                    node = [] if each.group == USER else [each.node]
                    _add(families[key], [thread.name, task.id, *node], each)
        yield from families.values()


def _family(each: MetricValue) -> Metric:
    meaning = _MEANINGS.get((each.group, each.name), f"The user's {each.kind} {each.name}")
    labels = LABELS if each.group == USER else [*LABELS, "processor_node_id"]
    name = f"streamkit_{each.group}_{each.name}"
    if each.kind == "timer":
        return SummaryMetricFamily(f"{name}_seconds", meaning, labels=labels)
    if each.kind == "counter":
        return CounterMetricFamily(name, meaning, labels=labels)
    return GaugeMetricFamily(name, meaning, labels=labels)


def _add(family: Metric, labels: list[str], each: MetricValue) -> None:
    if isinstance(family, SummaryMetricFamily):
        family.add_metric(labels, count_value=each.count, sum_value=each.number)
    elif isinstance(family, CounterMetricFamily | GaugeMetricFamily):
        family.add_metric(labels, each.number)
