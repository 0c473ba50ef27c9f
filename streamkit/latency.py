"""End-to-end latency of records at the nodes of a task: the time between a record's timestamp and its processing (KIP-613)."""

from __future__ import annotations

from bisect import bisect_left, bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import accumulate, chain

from streamkit.record import OutputTuple

BOUNDS = tuple(sorted({round(2 ** (step / 4)) for step in range(161)}))
"""The upper bounds (ms) of the histogram, four to each doubling, up to 34 years; one more bucket is above.

Stages of threads are measured in microseconds; the bounds then reach up to twelve days.
"""
COARSE = tuple(4**step for step in range(12))
"""The upper bounds (ms) of the histograms that are shown, up to 70 minutes; all of them are in BOUNDS."""
SAMPLE_MS = 30_000
"""The time of one sample. As in Java, min, max and average cover the last two (`metrics.num.samples`)."""
SAMPLES = 2
LARGE, STEP = 256, 32
"""If a node has at least so many records in a round, every n-th one is a sample of all; in smaller rounds every record counts."""
_MOST_WAITING, _MOST_WAITING_MS = 1024, 1000


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

    def add(self, latencies: list[int], count: int) -> None:
        """Add the latencies of `count` records, or of a part of them, in ascending order."""
        size, slower = len(latencies), count
        low, high = latencies[0], latencies[-1]
        if not self.count or low < self.lowest:
            self.lowest = low
        if not self.count or high > self.highest:
            self.highest = high
        self.count += count
        self.total += sum(latencies) * count // size
        last = bisect_left(BOUNDS, high)
        if BOUNDS[last - 1] >= low:
            for bucket in range(bisect_left(BOUNDS, low), last):
                above = (size - bisect_right(latencies, BOUNDS[bucket])) * count // size
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


class Samples:
    """The samples of each node of a task, or of each stage of a thread."""

    def __init__(self) -> None:
        self._known: dict[str, NodeLatency] = {}

    def at(self, node: str, now: int) -> Sample:
        """Return the sample to which a node's latencies of this time (ms) are added."""
        latency = self._known.get(node)
        if latency is None:
            latency = self._known[node] = NodeLatency(node, (Sample(now),), Sample(now))
        elif now - latency.samples[-1].start >= SAMPLE_MS:
            samples = (*latency.samples, Sample(now))
            for sample in samples[:-SAMPLES]:
                latency.earlier.merge(sample)
            latency = self._known[node] = NodeLatency(node, samples[-SAMPLES:], latency.earlier)
        return latency.samples[-1]

    def view(self) -> tuple[NodeLatency, ...]:
        """Return copies of all latencies, which do not change any more."""
        return tuple(
            NodeLatency(latency.node, tuple(sample.copy() for sample in latency.samples), latency.earlier.copy())
            for latency in self._known.values()
        )


class TaskLatency:
    """The latencies at the nodes of one task; used by the thread that owns it.

    Sources give the columns of timestamps that they process, sinks the rows that they write: nothing is done for a single
    record. Only other terminal nodes, and sinks that share a topic, append the timestamp of each record to a list.
    """

    def __init__(self, sinks: Mapping[str, str] | None = None) -> None:
        """sinks: those whose records are exactly the rows of one topic, by that topic."""
        self._sinks = sinks or {}
        self._columns: dict[str, list[list[int]]] = {}
        self._waiting: dict[str, list[int]] = {}
        self._unsorted: dict[str, _Unsorted] = {}
        self._known = Samples()

    def times(self, node: str) -> list[int]:
        """Return the list to which the timestamps of records that reach a node are appended."""
        return self._waiting.setdefault(node, [])

    def columns(self, node: str) -> list[list[int]]:
        """Return the list to which the columns of timestamps that a source has processed are appended."""
        return self._columns.setdefault(node, [])

    def record(self, clock: Callable[[], int]) -> None:
        """Measure the timestamps collected since the last call; their records count as processed now (ms)."""
        for node, columns in self._columns.items():
            if columns:
                times = columns[0] if len(columns) == 1 else [*chain.from_iterable(columns)]
                self._add(node, times, clock(), len(times))
                columns.clear()
        for node, times in self._waiting.items():
            if times:
                self._add(node, times, clock(), len(times))
                times.clear()

    def record_rows(
        self, counts: Mapping[str, int], topics: Sequence[str], rows: Sequence[OutputTuple], clock: Callable[[], int]
    ) -> None:
        """Take rows that were written now (ms): their number by topic, the topic of each one, and the rows."""
        for topic, count in counts.items():
            node = self._sinks.get(topic)
            if node is not None:
                times = [time for at in _places(topics, topic, count) if (time := rows[at][3]) is not None]
                self._add(node, times, clock(), count)

    def view(self) -> tuple[NodeLatency, ...]:
        """Return the latencies of each node that a record has reached."""
        for node, waiting in self._unsorted.items():
            if waiting.latencies:
                self._sort(node, waiting)
        return self._known.view()

    def _add(self, node: str, times: list[int], now: int, count: int) -> None:
        """Keep the latencies of one round until they are read; in large rounds, only the latencies of a sample."""
        if len(times) >= LARGE:
            times = times[::STEP]
        unsorted = self._unsorted.get(node)
        if unsorted is None:
            unsorted = self._unsorted[node] = _Unsorted(now)
        is_part = len(times) < count
        is_full = len(unsorted.latencies) > _MOST_WAITING or now - unsorted.now > _MOST_WAITING_MS
        if unsorted.latencies and (is_full or is_part != unsorted.is_part):
            self._sort(node, unsorted)
        unsorted.latencies += [now - time for time in times]
        unsorted.count += count
        unsorted.is_part, unsorted.now = is_part, now

    def _sort(self, node: str, waiting: _Unsorted) -> None:
        """Add the latencies that wait to the last sample."""
        sample = self._known.at(node, waiting.now)
        waiting.latencies.sort()
        sample.add(waiting.latencies, waiting.count)
        waiting.latencies.clear()
        waiting.count = 0


@dataclass
class _Unsorted:
    """Latencies (ms) of a node that are in no sample yet."""

    now: int
    """The time of the last round (ms)."""
    latencies: list[int] = field(default_factory=list)
    count: int = 0
    """The number of records that the samples represent."""
    is_part: bool = False


def _places(topics: Sequence[str], topic: str, count: int) -> Iterator[int]:
    """Yield the indices of the `count` rows of a topic; if there are many, only those of a sample.

    >>> list(_places(["a", "b", "a"], "a", 2))
    [0, 2]
    """
    if count < LARGE:
        at = -1
        for _ in range(count):
            yield (at := topics.index(topic, at + 1))
    elif count == len(topics):
        yield from range(0, count, STEP)
    else:
        # Rows of several topics often alternate, so a fixed step could hit only rows of one topic.
        size, at, parts = len(topics), -1, count // STEP
        for part in range(parts):
            try:
                at = topics.index(topic, max(at + 1, part * size // parts))
            except ValueError:
                return
            yield at


def figures_of(latencies: Iterable[NodeLatency], now: int) -> tuple[LatencyFigures, ...]:
    """Return the figures of nodes that a record has reached within the last two samples before `now` (ms)."""
    figures = []
    for latency in latencies:
        samples = [sample for sample in latency.samples if now - sample.start < SAMPLES * SAMPLE_MS and sample.count]
        if not samples:
            continue
        lowest, highest = min(sample.lowest for sample in samples), max(sample.highest for sample in samples)
        count = sum(sample.count for sample in samples)
        buckets = [sum(column) for column in zip(*(sample.buckets for sample in samples), strict=True)]
        p50, p99 = (min(max(quantile(buckets, share, highest), lowest), highest) for share in (0.5, 0.99))
        average = sum(sample.total for sample in samples) / count
        figures.append(LatencyFigures(latency.node, count, lowest, highest, average, p50, p99))
    return tuple(figures)


def histograms_of(latencies: Iterable[NodeLatency]) -> tuple[LatencyHistogram, ...]:
    """Return the histograms of all latencies."""
    histograms = []
    for latency in latencies:
        samples = (latency.earlier, *latency.samples)
        reached = list(accumulate(sum(column) for column in zip(*(sample.buckets for sample in samples), strict=True)))
        cumulative = tuple(reached[BOUNDS.index(bound)] for bound in COARSE)
        totals = sum(sample.count for sample in samples), sum(sample.total for sample in samples)
        histograms.append(LatencyHistogram(latency.node, *totals, cumulative))
    return tuple(histograms)


def quantile(buckets: list[int], share: float, highest: int) -> float:
    """Return an estimate (ms) of the latency below which a share of the records is, linear within its bucket.

    highest: the highest latency, at which the last bucket ends.

    >>> quantile([0, 0, 4] + [0] * (len(BOUNDS) - 2), 0.5, 3)
    2.5
    """
    wanted = share * sum(buckets)
    for bucket, reached in enumerate(accumulate(buckets)):
        if reached >= wanted and buckets[bucket]:
            low = BOUNDS[bucket - 1] if bucket else 0
            high = BOUNDS[bucket] if bucket < len(BOUNDS) else highest
            return low + (high - low) * (wanted - reached + buckets[bucket]) / buckets[bucket]
    return 0.0
