"""End-to-end latencies at sources and terminal nodes (KIP-613): figures, samples, histograms, and where tasks note them."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from streamkit.latency import COARSE, SAMPLE_MS, TaskLatency, figures_of, histograms_of
from streamkit.transport.embedded import EmbeddedTransport
from streamkit.transport.log_interface import NewTopic
from tests.broker.support import until
from tests.http.support import request, served

NOW = 1_700_000_000_000
ENDS = """\
streamkit: 1
application: ends
config:
  bootstrap.servers: embedded
  poll.ms: 10
topics:
  numbers: {key: string, value: long}
  even: {key: string, value: long}
pipelines:
  even:
    stream: numbers
    steps: [{filter: value % 2 == 0}]
    to: even
  counts:
    stream: numbers
    steps: [group_by_key, {count: counts}]
"""


def noted(*latencies: int, node: str = "n", task: TaskLatency | None = None, now: int = NOW) -> TaskLatency:
    found = task or TaskLatency()
    found.times(node).extend(now - each for each in latencies)
    found.record(lambda: now)
    return found


def test_a_small_batch_counts_in_full() -> None:
    (found,) = figures_of(noted(5, 100, 30).view(), NOW)
    assert (found.node, found.count, found.min, found.max, found.avg) == ("n", 3, 5, 100, 45.0)


def test_a_timestamp_in_the_future_is_a_latency_below_zero() -> None:
    (found,) = figures_of(noted(-10, 20).view(), NOW)
    assert (found.min, found.max, found.avg) == (-10, 20, 5.0)
    (histogram,) = histograms_of(noted(-10, 20).view())
    assert histogram.cumulative[0] == 1


@pytest.mark.parametrize("size", [1, 7, 100, 5000])
def test_quantiles_are_near_those_of_all_records(size: int) -> None:
    rng = random.Random(size)
    task, drawn = TaskLatency(), [int(rng.lognormvariate(5, 1.5)) for _ in range(20_000)]
    for start in range(0, len(drawn), size):
        noted(*drawn[start : start + size], task=task)
    (found,) = figures_of(task.view(), NOW)
    drawn.sort()
    assert found.count == len(drawn)
    # A bucket is a fifth wide; large batches are represented by every n-th record.
    assert found.p50 == pytest.approx(drawn[10_000], rel=0.25)
    assert found.p99 == pytest.approx(drawn[19_800], rel=0.25)
    assert found.avg == pytest.approx(sum(drawn) / len(drawn), rel=0.25)


def test_figures_are_of_the_last_two_samples_and_histograms_of_all() -> None:
    task = noted(1000)
    noted(10, task=task, now=NOW + SAMPLE_MS)
    (both,) = figures_of(task.view(), NOW + SAMPLE_MS)
    assert (both.count, both.max) == (2, 1000)
    noted(20, task=task, now=NOW + 2 * SAMPLE_MS)
    (last,) = figures_of(task.view(), NOW + 2 * SAMPLE_MS)
    assert (last.count, last.max) == (2, 20)
    assert figures_of(task.view(), NOW + 4 * SAMPLE_MS) == ()
    (histogram,) = histograms_of(task.view())
    assert (histogram.count, histogram.total) == (3, 1030)
    assert dict(zip(COARSE, histogram.cumulative, strict=True))[1024] == 3
    assert dict(zip(COARSE, histogram.cumulative, strict=True))[16] == 1


def test_a_view_stays_as_it_is() -> None:
    task = noted(5)
    before = task.view()
    noted(50, task=task)
    assert [each.count for each in figures_of(before, NOW)] == [1]


def test_sources_and_terminal_nodes_of_an_application_have_latencies(tmp_path: Path) -> None:
    log = EmbeddedTransport(tmp_path / "log")
    admin = log.admin()
    admin.create_topics([NewTopic("numbers", 1), NewTopic("even", 1)])
    admin.close()
    with served(tmp_path / "app", log, text=ENDS) as (address, _):
        producer = log.producer()
        producer.send([("numbers", b"a", n.to_bytes(8, "big"), 1000 + n, None, 0) for n in range(10)])
        producer.flush()
        producer.close()

        def noted_counts() -> Any:
            instance = request(address, "/status").json["instances"][0]
            tasks = [task for thread in instance["threads"] for task in thread["tasks"]]
            found = {each["node"]: each["count"] for task in tasks for each in task["latency"]}
            return found if sum(found.values()) == 25 else None

        counts = until(noted_counts, "all records are noted")
        metrics = request(address, "/metrics").text
    log.close()
    assert sorted(counts.values()) == [5, 10, 10]
    (source,) = [node for node in counts if "SOURCE" in node]
    (sink,) = [node for node in counts if "SINK" in node]
    assert (counts[source], counts[sink]) == (10, 5)
    labels = f'processor_node_id="{sink}",task_id="0_0",thread_id="ends-'
    for name in ("min", "max", "avg"):
        start = f"kafka_streams_stream_processor_node_metrics_record_e2e_latency_{name}{{{labels}"
        (line,) = [each for each in metrics.splitlines() if each.startswith(start)]
        # The records' timestamps are of the year 1970.
        assert float(line.split()[-1]) > 1e12
    (total,) = [
        line
        for line in metrics.splitlines()
        if line.startswith("streamkit_record_e2e_latency_seconds_count") and sink in line
    ]
    assert float(total.split()[-1]) == 5
