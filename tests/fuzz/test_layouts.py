"""streamkit and Kafka Streams make the same internal topics and tasks, whatever the sizes of input topics and settings."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest

from tests.fuzz.layouts import differences, draw_layout

N = 120


@pytest.mark.usefixtures("java")
def test_internal_topics_are_those_of_kafka_streams(tmp_path: Path):
    counted: Counter = Counter()
    found = differences(range(1340, 1340 + N), tmp_path, counted)
    assert not found, "\n".join(found)
    assert counted["laid out"] > N / 2
    assert counted["sizes refused"] > N / 10
    assert counted["topics"] > 3 * N
    assert counted["streams groups"] > N / 2
    assert counted["other order of joined topics"] < N / 20


def test_a_seed_gives_the_same_layout():
    assert draw_layout(11) == draw_layout(11)
