"""What judges a long run, and what feeds it; the run itself is `make memory`."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import pytest

from tests.memory import inside, sampling
from tests.memory.__main__ import TOLERANCES, Sample, verdict
from tests.memory.feeding import SHARES, Feeder


def sample(minute: int, rss_kb: int) -> Sample:
    return Sample(
        minute, rss_kb, 150_000, 50, 9_000 + minute % 3, 1000.0, 1500.0, 10, 20.0, blocks=500_000, objects=9_000
    )


def test_what_grows_after_the_warm_up_is_found() -> None:
    noise = (0, 700, -400, 300, -600)
    level = [200_000 + noise[minute % 5] for minute in range(60)]
    rising = [200_000 + 40_000 * min(minute, 5) for minute in range(60)]
    leaking = [at + 300 * minute for minute, at in enumerate(level)]
    flat, text = verdict([sample(*each) for each in enumerate(level)], 5)
    assert flat
    assert text.count("flat") == len(TOLERANCES)
    assert verdict([sample(*each) for each in enumerate(rising)], 5)[0]
    flat, text = verdict([sample(*each) for each in enumerate(leaking)], 5)
    assert not flat
    assert "rss_kb          +298.7 ± 4.1" in text
    assert text.count("GROWS") == 1


def test_a_slope_and_its_error() -> None:
    growth, error = sampling.slope([1.0, 2.0, 4.0, 5.0])
    assert (growth, round(error, 3)) == (1.4, 0.141)
    with pytest.raises(ValueError, match="three values"):
        sampling.slope([1, 2])


def test_the_systems_figures_of_this_process(tmp_path: Path) -> None:
    me = os.getpid()
    before = sampling.open_files(me)
    with (tmp_path / "file").open("wb") as file:
        file.write(bytes(100_000))
        file.flush()
        os.fsync(file.fileno())
        assert sampling.open_files(me) == before + 1
        assert 90 <= sampling.size_kb(tmp_path) <= 200
    assert 0 < sampling.anonymous_kb(me) <= sampling.resident_kb(me) * 2
    assert sampling.cpu_seconds(me) > 0


def test_a_process_reports_what_it_holds() -> None:
    ours: list[dict[str, list]] = [{"me": []} for _ in range(5_000)]
    found = inside.snapshot(collect=False)
    assert found["blocks"] > found["objects"] > 2 * len(ours)
    assert found["types"]["dict"] >= len(ours)
    assert found["threads"] >= 1


def test_input_is_steady_and_its_keys_expire(tmp_path: Path) -> None:
    feeder = Feeder(f"embedded:{tmp_path / 'log'}", "memory", 1_000)
    rows = [row for second in range(60) for row in feeder._rows(1.0, float(second))]
    topics = Counter(row[0].removeprefix("memory.") for row in rows)
    assert topics.keys() == {*SHARES, "payments"}
    assert len(rows) == pytest.approx(60_000, rel=0.05)
    assert len({row[1] for row in rows if row[0] in ("memory.clicks", "memory.users")}) <= 2_000
    # Each session and each order ends; a payment comes at most seconds after its order.
    orders = {row[1]: place for place, row in enumerate(rows) if row[0] == "memory.orders"}
    payments = [(place, row[1]) for place, row in enumerate(rows) if row[0] == "memory.payments"]
    assert [(place, key) for place, key in payments if not (0 <= place - orders[key] < 10_000)] == []
    visits = [(place, row[1]) for place, row in enumerate(rows) if row[0] == "memory.visits"]
    first = dict(reversed([(key, place) for place, key in visits]))
    assert [(place, key) for place, key in visits if place - first[key] >= 6_000] == []
    feeder._producer.close()
