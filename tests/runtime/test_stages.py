"""How long the stages of a thread's records take: what counts in each, and what a status shows."""

from __future__ import annotations

import pytest

from streamkit.runtime.local.setup import Settings
from streamkit.runtime.local.states import StageFigures, stage_figures
from tests.runtime.fake_log import FakeProducer
from tests.runtime.fakes import FakeProgram
from tests.runtime.harness import Harness


def counts(harness: Harness) -> dict[str, int]:
    figures = stage_figures(harness.thread._stages.view(), harness.clock())
    assert all(0 <= each.p50 <= each.p99 <= each.max for each in figures)
    return {each.stage: each.count for each in figures}


def test_each_record_counts_in_each_stage(tmp_path):
    harness = Harness(tmp_path, FakeProgram(), Settings(commit_interval_ms=100))
    harness.send(3)
    harness.round()
    assert counts(harness) == {"fetch": 3, "queue": 3, "process": 3, "send": 3}
    harness.clock.now = 101
    harness.round()
    assert counts(harness) == {"fetch": 3, "queue": 3, "process": 3, "send": 3, "commit": 1}


def test_rows_count_as_sent_once_brokers_have_acknowledged_them(tmp_path, monkeypatch):
    queued = [1]
    monkeypatch.setattr(FakeProducer, "queued", lambda producer: queued[0])
    harness = Harness(tmp_path, FakeProgram())
    harness.send(3)
    harness.round()
    assert "send" not in counts(harness)
    harness.send(2)
    queued[0] = 2
    harness.round()
    assert counts(harness)["send"] == 3
    queued[0] = 0
    harness.round()
    assert counts(harness)["send"] == 5


def test_rows_of_a_producer_that_is_given_up_are_not_measured(tmp_path, monkeypatch):
    monkeypatch.setattr(FakeProducer, "queued", lambda producer: 1)
    harness = Harness(tmp_path, FakeProgram(), Settings(exactly_once=True))
    harness.send(3)
    harness.round()
    harness.thread._committer.restart()
    monkeypatch.setattr(FakeProducer, "queued", lambda producer: 0)
    harness.round()
    assert "send" not in counts(harness)


def test_a_status_shows_milliseconds_in_the_order_of_the_stages(tmp_path):
    harness = Harness(tmp_path, FakeProgram())
    stages = harness.thread._stages
    for stage in ("commit", "process"):
        stages.add(stage, 0.002)
    found = stage_figures(stages.view(), harness.clock())
    assert found == (StageFigures("process", 1, 2.0, 2.0, 2.0), StageFigures("commit", 1, 2.0, 2.0, 2.0))


def test_records_of_last_year_are_as_old_as_they_are_beside_those_of_an_hour_ago(tmp_path):
    harness = Harness(tmp_path, FakeProgram())
    stages = harness.thread._stages
    hour, year = 3600.0, 365 * 86_400.0
    stages.add("fetch", hour, 90)
    stages.add("fetch", year, 10)
    (found,) = stage_figures(stages.view(), harness.clock())
    # A bucket is a fifth wide; the last one, of more than twelve days, ends at the highest.
    assert found.p50 == pytest.approx(hour * 1000, rel=0.25)
    assert year * 1000 * 0.75 < found.p99 <= found.max == year * 1000
