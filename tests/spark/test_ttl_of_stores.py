"""Rows with a time to live end in a batch job at the records at which they end under `try`, however a stage could be cut."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from streamkit.plan import load
from tests.runtime.expiring_counts import COUNT
from tests.spark.support import by_key, reprocess, tried


def drawn(count: int) -> list[dict]:
    draw, time, records = random.Random(5), 0, []
    for _ in range(count):
        time += draw.choice((0, 1, 3, 150, 700))
        late = draw.choice((0, 0, 0, 5, 900, 1_800))
        key = f"k{draw.randrange(6)}"
        records.append({"topic": "in", "key": key, "value": "v", "timestamp": max(0, time - late), "partition": 0})
    return records


@pytest.mark.parametrize("emit", ["updates", "final"])
def test_rows_end_as_under_try(emit: str, spark: Any, tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(COUNT.replace("partitions: 2", "partitions: 1"), encoding="utf-8")
    records = drawn(150)
    want = by_key(
        tried(path, [{name: each for name, each in record.items() if name != "partition"} for record in records])
    )
    assert sum(each["value"] is None for found in want.values() for each in found) > 10
    have = by_key(reprocess(spark, load(path), records, tmp_path, emit=emit, parallelism=4))
    if emit == "final":
        want = {place: found[-1:] for place, found in want.items()}
    assert have == want
