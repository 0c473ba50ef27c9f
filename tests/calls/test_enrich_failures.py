"""`enrich`: retries, time-outs, the event loop's end, and a stop."""

from __future__ import annotations

import json
import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from streamkit.errors import EventLoopError, ProcessingError, StoppedError
from streamkit.operators.kernels.lookups import LookupOptions, LookupStep, rounds_of_calls
from streamkit.operators.kernels.replays import HeldRecord
from streamkit.record import Value
from tests.calls.lookups_under_test import RECORDS, calls, metrics, one_step, values
from tests.calls.support import batch, task_of


def test_failures_that_may_pass_are_repeated(tmp_path: Path) -> None:
    file = one_step(tmp_path, 'call: "user_code:busy", retries: 2, backoff: 1ms')
    task = task_of(file)
    task.add(batch(RECORDS[:9]))
    task.process(100)
    assert [json.loads(row[2]) for row in task.output] == list(range(9))
    assert metrics(task)["retries"] == 9
    task.close()


def test_other_failures_are_not_repeated_and_may_be_dropped(tmp_path: Path) -> None:
    file = one_step(tmp_path, 'call: "user_code:fails", retries: 5, on_error: {dead_letter: lost}')
    task = task_of(file)
    task.add(batch(RECORDS[:3]))
    task.process(100)
    assert [(row[0], row[1], row[2]) for row in task.output] == [("lost", *record[:2]) for record in RECORDS[:3]]
    assert (calls(file), metrics(task)["failures"]) == ([0, 1, 2], 3)
    task.close()


@pytest.mark.parametrize(
    ("step", "options"),
    [
        ("enrich", 'call: "user_code:raises_kept", concurrency: 1'),
        ("enrich", 'call: "user_code:raises_of_kept", concurrency: 1'),
        ("enrich", 'call: "user_code:returns_kept", batch: 9'),
        ("enrich", "call: \"user_code:raises_kept\", by: '1', cache: {size: 9}"),
        ("map_values", 'call: "user_code:raises_of_kept", value_serde: json'),
        ("map_values", 'call: "user_code:returns_kept", batch: 3, value_serde: json'),
    ],
)
def test_an_exception_that_is_raised_again_has_the_traceback_of_one_failure(
    step: str, options: str, tmp_path: Path
) -> None:
    task = task_of(one_step(tmp_path, f"{options}, on_error: {{dead_letter: lost}}", step=step))
    traces = []
    for first in range(5):
        task.add(batch(RECORDS[:4], first=first * 4))
        task.process(100)
        traces += [dict(row[4])["__streams.errors.stacktrace"] for row in task.output]
        task.output.clear()
        (drop,) = task.drops.view()
        assert "kept" in drop.message or "another" in drop.message
    assert len(traces) == 20
    assert set(traces) == {traces[0]}
    assert b"user_code.py" in traces[0] or "returns_kept" in options
    task.close()


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ('call: "user_code:busy", retries: 1, backoff: 1ms', "offset 2: busy (key k2, value 2)"),
        ('call: "user_code:fails"', "offset 0: ValueError: no (user_code.py, line 32)"),
        ('call: "user_code:never", timeout: 50ms', "offset 0: never did not answer within 50 ms"),
        ('call: "user_code:exits"', "offset 0: exits raised SystemExit"),
        ('call: "user_code:cancels"', "offset 0: cancels was cancelled"),
        ('call: "user_code:yields"', "offset 0: yields gave a generator; expected the result: `return` in place of"),
        ('call: "user_code:yields_async", batch: 9', "offset 0: yields_async gave a generator; expected the result"),
        ('call: "user_code:few", batch: 9', "offset 0: few returned 8 results for 9 arguments; expected one for each"),
        ('call: "user_code:stops_loop"', "stops_loop: the event loop of the functions has ended: a function stopped"),
    ],
)
def test_failures_are_one_clear_line(options: str, message: str, tmp_path: Path) -> None:
    task = task_of(one_step(tmp_path, options))
    task.add(batch(RECORDS[:9]))
    with pytest.raises(ProcessingError) as caught:
        task.process(100)
    assert message in str(caught.value)
    assert "\n" not in str(caught.value)
    assert "topology.yaml:10: pipeline p, step enrich: " in str(caught.value)
    task.close()


@pytest.mark.parametrize(
    ("function", "message"),
    [
        ("stops_loop", "the event loop of the functions has ended"),
        ("cancels_all", "a function cancelled the calls of others"),
    ],
)
def test_calls_that_end_without_an_answer_lose_nothing_although_failures_are_dropped(
    function: str, message: str, tmp_path: Path
) -> None:
    task = task_of(one_step(tmp_path, f'call: "user_code:{function}", on_error: continue, concurrency: 1'))
    task.add(batch(RECORDS[:40]))
    with pytest.raises(EventLoopError, match=message):
        task.process(100)
    assert (task.dropped_total, task.commit_needed) == (0, False)
    task.close()


@pytest.mark.parametrize(
    ("options", "lost"),
    [
        ('call: "user_code:cancels_task"', [20]),
        ('call: "user_code:cancels_and_waits", concurrency: 1', [20]),
        ('call: "user_code:generated", concurrency: 1, batch: 4', [20, 21, 22, 23]),
    ],
)
def test_a_call_that_fails_in_another_way_costs_its_own_records_alone(
    options: str, lost: list[int], tmp_path: Path
) -> None:
    task = task_of(one_step(tmp_path, f"{options}, on_error: continue"))
    task.add(batch(RECORDS))
    while task.has_records():
        task.process(100)
    assert [json.loads(row[2]) for row in task.output] == [n for n in range(40) if n not in lost]
    assert (task.dropped_total, task.commit_needed) == (len(lost), True)
    task.close()


def test_a_failure_of_the_step_itself_is_one_of_each_record(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(step: LookupStep, records: Sequence[HeldRecord]) -> list[Value]:
        raise RecursionError("too deep")

    monkeypatch.setattr(LookupStep, "results", fails)
    task = task_of(one_step(tmp_path, 'call: "user_code:later", concurrency: 1, on_error: continue'))
    task.add(batch(RECORDS))
    while task.has_records():
        task.process(100)
    assert (task.output, task.dropped_total) == ([], 40)
    task.close()


def test_a_thread_that_is_stuck_blocks_no_other(tmp_path: Path) -> None:
    file = one_step(tmp_path, 'call: "user_code:stuck", timeout: 3s, concurrency: 1, on_error: continue')
    assert values(file) == [n for n in range(40) if n != 2]


def test_a_stop_ends_the_wait_and_commits_nothing(tmp_path: Path) -> None:
    stopped = threading.Event()
    stopped.set()
    task = task_of(one_step(tmp_path, 'call: "user_code:never", timeout: 5m'), stopping=stopped.is_set)
    file = one_step(tmp_path, 'call: "user_code:never", timeout: 5m')
    assert file.exists()
    task._bound.replays._steps[0]._lookup._grace = 0.0  # type: ignore[union-attr, attr-defined]
    task.add(batch(RECORDS[:3]))
    with pytest.raises(StoppedError, match="stopped while calls were unanswered; the next start repeats them"):
        task.process(100)
    assert (task.output, task.commit_needed) == ([], False)
    task.close()


def test_a_round_ends_where_the_calls_take_long(tmp_path: Path) -> None:
    """So that the thread polls: with an interval of 1 ms after each round of calls."""
    task = task_of(one_step(tmp_path, 'call: "user_code:slow", concurrency: 4', "max.poll.interval.ms: 1"))
    task.add(batch(RECORDS))
    rounds = []
    while task.has_records():
        rounds.append(task.process(100))
    assert rounds == [4] * 10
    assert [json.loads(row[2]) for row in task.output] == list(range(40))
    task.close()


@pytest.mark.parametrize(
    ("timeout", "retries", "backoff", "interval", "expected"),
    [
        (1_000, 0, 100, 300_000, 16),
        (30_000, 0, 100, 300_000, 5),
        (30_000, 3, 60_000, 300_000, 1),
        (30_000, 10**9, 0, 300_000, 1),
    ],
)
def test_what_is_held_back_is_answered_within_half_of_the_poll_interval(
    timeout: int, retries: int, backoff: int, interval: int, expected: int
) -> None:
    options = LookupOptions(64, timeout, retries, backoff, 0, 0, None)
    assert rounds_of_calls(options, interval) == expected
