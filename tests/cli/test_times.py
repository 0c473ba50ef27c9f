"""Times of options: one grammar for consume, replay and submit."""

from __future__ import annotations

import time

import pytest

from streamkit.durations import OPTION_TIME_FORMS, option_time
from streamkit.errors import UsageError
from streamkit.runtime.operations.topic_reading import to_datetime
from streamkit.runtime.spark.rows import log_rows


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("1500", 1500),
        ("90s", 90_000),
        ("PT1M", 60_000),
        ("1970-01-02", 86_400_000),
        (str(2**63 - 1), 2**63 - 1),
        ("1970-01-01T00:00:01.005", 1005),
        ("1970-01-01T01:00:00+01:00", 0),
    ],
)
def test_a_time_is_milliseconds_since_the_epoch(text: str, expected: int) -> None:
    assert option_time("--from", text) == expected
    assert log_rows._time(text, "--until") == expected


def test_a_minus_counts_from_now(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(time, "time_ns", lambda: 900_000_000_000)
    assert option_time("--since", "-5m") == 600_000


@pytest.mark.parametrize("text", ["noon", "", "-5", "12:00", "-1970-01-01", "٣", str(2**63), "9" * 5000])
def test_other_texts_are_refused_with_all_forms(text: str) -> None:
    with pytest.raises(UsageError) as caught:
        option_time("--since", text)
    assert str(caught.value) == f"--since {text}: expected {OPTION_TIME_FORMS}"
    with pytest.raises(UsageError) as caught:
        log_rows._time(text, "--from")
    assert str(caught.value) == f"--from {text}: expected earliest, committed, a file of offsets, {OPTION_TIME_FORMS}"


def test_a_reset_takes_the_same_times() -> None:
    assert to_datetime("1970-01-01T00:00:00.250").number == 250
    assert to_datetime("90s").number == 90_000
    with pytest.raises(UsageError) as caught:
        to_datetime("noon")
    assert str(caught.value) == f"--to-datetime noon: expected {OPTION_TIME_FORMS}"
