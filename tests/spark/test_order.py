"""Sorting by the highest time so far is the merge of queues by the oldest head, late records or not."""

from __future__ import annotations

from itertools import accumulate

from hypothesis import given, settings
from hypothesis import strategies as st

from streamkit.record import Columns, RecordBatch, TopicPartition
from streamkit.runtime.execution.queues import Idling, PartitionGroup, QueueServices, RecordQueue

queues = st.lists(st.lists(st.integers(0, 9), max_size=12), min_size=1, max_size=4)


def merged(times: list[list[int]], cuts: list[int]) -> list[tuple[int, int]]:
    """(queue, offset) in the order in which a task takes them, given in parts of the sorted order."""
    services = QueueServices(lambda: 0, lambda *drop: None, lambda error: False, lambda *failure: None)
    places = [TopicPartition(f"t{number}", 0) for number in range(len(times))]
    group = PartitionGroup([RecordQueue(place, "fail_on_invalid", None, services) for place in places], Idling(-1))
    taken = []
    for start, stop in zip([0, *cuts], [*cuts, None], strict=True):
        part = by_highest(times)[start:stop]
        for number, place in enumerate(places):
            offsets = [offset for queue, offset in part if queue == number]
            stamps = [times[number][offset] for offset in offsets]
            nothing = [None] * len(offsets)
            group.add(RecordBatch(place.topic, 0, Columns(nothing, nothing, stamps, nothing, offsets)))
        while (run := group.next_run(1000)) is not None:
            place, columns, _ = run
            taken += [(places.index(place), offset) for offset in columns.offsets]
    return taken


def by_highest(times: list[list[int]]) -> list[tuple[int, int]]:
    rows = [
        (highest, number, offset)
        for number, stamps in enumerate(times)
        for offset, highest in enumerate(accumulate(stamps, max))
    ]
    return [(number, offset) for _, number, offset in sorted(rows)]


@settings(deadline=None)
@given(queues, st.lists(st.integers(0, 40), max_size=3).map(sorted))
def test_same_as_the_queues(times: list[list[int]], cuts: list[int]) -> None:
    assert merged(times, cuts) == by_highest(times)
