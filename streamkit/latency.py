"""End-to-end latency of records at the nodes of a task: the time between a record's timestamp and its processing (KIP-613)."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from itertools import accumulate

BOUNDS = tuple(sorted({round(2 ** (step / 4)) for step in range(121)}))
"""The upper bounds (ms) of the histogram, four to each doubling, up to twelve days; one more bucket is above."""
COARSE = tuple(4**step for step in range(12))
"""The upper bounds (ms) of the histograms that are shown, up to 70 minutes; all of them are in BOUNDS."""
SAMPLE_MS = 30_000
"""The time of one sample. As in Java, min, max and average are those of the last two (`metrics.num.samples`)."""
SAMPLES = 2
ENOUGH = 128
"""The number of records of a batch from which its latencies are computed; smaller batches count in full."""


@dataclass
class Sample:
    """The latencies (ms) since `start`, a time in milliseconds."""

    start: int
    count: int = 0
    total: int = 0
    lowest: int = 0
    highest: int = 0
    buckets: list[int] = field(default_factory=lambda: [0] * (len(BOUNDS) + 1))
    """The number of records by upper bound."""

    def add(self, times: list[int], now: int, count: int) -> None:
        """Add the latencies at `now` of `count` records; times: their timestamps, or a part of them, in ascending order."""
        size, slower = len(times), count
        low, high = now - times[-1], now - times[0]
        if not self.count or low < self.lowest:
            self.lowest = low
        if not self.count or high > self.highest:
            self.highest = high
        self.count += count
        self.total += now * count - sum(times) * count // size
        last = bisect_left(BOUNDS, high)
        if BOUNDS[last - 1] >= low:
            for bucket in range(bisect_left(BOUNDS, low), last):
                above = bisect_left(times, now - BOUNDS[bucket]) * count // size
                self.buckets[bucket] += slower - above
                slower = above
        self.buckets[last] += slower

    def merge(self, other: Sample) -> None:
        """Add count, total and histogram of another sample."""
        self.count += other.count
        self.total += other.total
        self.buckets = [one + more for one, more in zip(self.buckets, other.buckets, strict=True)]

    def copy(self) -> Sample:
        """Return a copy."""
        return Sample(self.start, self.count, self.total, self.lowest, self.highest, [*self.buckets])


@dataclass(frozen=True)
class NodeLatency:
    """A node's latencies as of a moment."""

    node: str
    samples: tuple[Sample, ...]
    """The last ones; latencies are added to the last of them."""
    earlier: Sample
    """All those before."""


@dataclass(frozen=True)
class LatencyFigures:
    """Latencies (ms) of the records that reached a node within the last two samples."""

    node: str
    count: int
    min: int
    max: int
    avg: float
    p50: float
    p99: float


@dataclass(frozen=True)
class LatencyHistogram:
    """The latencies at a node since its task was created."""

    node: str
    count: int
    total: int
    """The sum of the latencies (ms)."""
    cumulative: tuple[int, ...]
    """The number of records up to each bound of COARSE (ms)."""


class TaskLatency:
    """The latencies at the nodes of one task; used by the thread that owns it."""

    def __init__(self) -> None:
        self._waiting: dict[str, list[int]] = {}
        self._known: dict[str, NodeLatency] = {}

    def times(self, node: str) -> list[int]:
        """Return the list to which the timestamps of records that reach a node are appended."""
        return self._waiting.setdefault(node, [])

    def record(self, clock: Callable[[], int]) -> None:
        """Take the timestamps since the last call as those of records that were processed now (ms)."""
        for node, times in self._waiting.items():
            if times:
                self._record(node, times, clock())
                times.clear()

    def discard(self) -> None:
        """Drop the timestamps since the last call."""
        for times in self._waiting.values():
            times.clear()

    def view(self) -> tuple[NodeLatency, ...]:
        """Return the latencies of each node that a record has reached."""
        return tuple(
            NodeLatency(each.node, tuple(sample.copy() for sample in each.samples), each.earlier.copy())
            for each in self._known.values()
        )

    def _record(self, node: str, times: list[int], now: int) -> None:
        count = len(times)
        if count >= 2 * ENOUGH:
            # The cost of a large batch would show: every n-th record stands for it.
            times = times[:: count // ENOUGH]
        times.sort()
        found = self._known.get(node)
        if found is None:
            found = self._known[node] = NodeLatency(node, (Sample(now),), Sample(now))
        elif now - found.samples[-1].start >= SAMPLE_MS:
            samples = (*found.samples, Sample(now))
            for sample in samples[:-SAMPLES]:
                found.earlier.merge(sample)
            found = self._known[node] = NodeLatency(node, samples[-SAMPLES:], found.earlier)
        found.samples[-1].add(times, now, count)


def figures_of(latencies: Iterable[NodeLatency], now: int) -> tuple[LatencyFigures, ...]:
    """Return the figures of nodes that a record has reached within the last two samples before `now` (ms)."""
    found = []
    for each in latencies:
        samples = [sample for sample in each.samples if now - sample.start < SAMPLES * SAMPLE_MS and sample.count]
        if not samples:
            continue
        lowest, highest = min(sample.lowest for sample in samples), max(sample.highest for sample in samples)
        count = sum(sample.count for sample in samples)
        buckets = [sum(column) for column in zip(*(sample.buckets for sample in samples), strict=True)]
        p50, p99 = (min(max(quantile(buckets, share), lowest), highest) for share in (0.5, 0.99))
        average = sum(sample.total for sample in samples) / count
        found.append(LatencyFigures(each.node, count, lowest, highest, average, p50, p99))
    return tuple(found)


def histograms_of(latencies: Iterable[NodeLatency]) -> tuple[LatencyHistogram, ...]:
    """Return the histograms of all latencies."""
    found = []
    for each in latencies:
        samples = (each.earlier, *each.samples)
        reached = list(accumulate(sum(column) for column in zip(*(sample.buckets for sample in samples), strict=True)))
        cumulative = tuple(reached[BOUNDS.index(bound)] for bound in COARSE)
        totals = sum(sample.count for sample in samples), sum(sample.total for sample in samples)
        found.append(LatencyHistogram(each.node, *totals, cumulative))
    return tuple(found)


def quantile(buckets: list[int], share: float) -> float:
    """Return an estimate (ms) of the latency below which a share of the records is, linear within its bucket.

    >>> quantile([0, 0, 4] + [0] * (len(BOUNDS) - 2), 0.5)
    2.5
    """
    wanted = share * sum(buckets)
    for bucket, reached in enumerate(accumulate(buckets)):
        if reached >= wanted and buckets[bucket]:
            low = BOUNDS[bucket - 1] if bucket else 0
            high = BOUNDS[min(bucket, len(BOUNDS) - 1)]
            return low + (high - low) * (wanted - reached + buckets[bucket]) / buckets[bucket]
    return 0.0
