"""The steps of streamkit's own, each against a model of a few lines."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from streamkit.errors import StreamkitError
from streamkit.operators.steps.extensions.log import LONGEST, LimitedLog
from streamkit.operators.steps.extensions.sample import Sampler
from streamkit.plan.model import Plan
from streamkit.record import WindowedKey
from streamkit.runtime.driver import Driver
from tests.plan.support import plan_of

HEAD = """streamkit: 1
application: app
topics:
  a: {value: json}
  out: {value: json}
  windowed: {key: {windowed: string, size: 10ms}, value: json}
  sessions: {key: {session_windowed: string}, value: json}
  dead: {key: bytes, value: bytes}
pipelines:
"""

Row = tuple[str, Any, int]


def piped(plan: Plan, rows: list[Row]) -> tuple[list[Row], int]:
    """Return the rows that come out, and how many records were dropped."""
    found = []
    with Driver(plan) as driver:
        for key, value, time in rows:
            record = {"topic": "a", "key": key, "value": value, "timestamp": time}
            found += [(row["key"], row["value"], row["timestamp"]) for row in driver.pipe(record)]
        return json.loads(json.dumps(found, default=str)), driver.dropped


def as_rows(rows: list[Row]) -> list[list[Any]]:
    return [list(row) for row in rows]


KEYS = st.sampled_from(["k", "l"])
TIMES = st.integers(0, 60)
ROWS = st.lists(st.tuples(KEYS, st.none() | st.integers(0, 3), TIMES), max_size=40)


# -- deduplicate -----------------------------------------------------------------------------------------------------


def first_ones(rows: list[Row], within: int) -> tuple[list[Row], int]:
    passed: list[Row] = []
    late, highest = 0, -1
    for key, value, time in rows:
        highest = max(highest, time)
        if value is not None and time <= highest - within:
            late += 1
        elif value is None or all(time - then >= within for _, one, then in passed if one == value):
            passed.append((key, value, time))
    return passed, late


@pytest.fixture(scope="module")
def deduplicating(tmp_path_factory: pytest.TempPathFactory) -> Plan:
    step = "p: {stream: a, steps: [deduplicate: {by: value, within: 10ms}], to: out}"
    return plan_of(tmp_path_factory.mktemp("deduplicate"), step, HEAD)


@settings(max_examples=200, deadline=None)
@given(rows=ROWS)
def test_the_first_record_of_an_id_passes(deduplicating: Plan, rows: list[Row]) -> None:
    passed, late = first_ones(rows, 10)
    assert piped(deduplicating, rows) == (as_rows(passed), late)
    for at, (_, value, time) in enumerate(passed):
        assert all(abs(time - then) >= 10 for _, one, then in passed[:at] if one == value is not None)


def test_ids_are_kept_for_twice_the_time(deduplicating: Plan) -> None:
    with Driver(deduplicating) as driver:
        for time in range(0, 5000, 5):
            driver.pipe({"topic": "a", "key": "k", "value": time, "timestamp": time})
        (rows,) = driver.stores().values()
        assert 4 <= len(rows) <= 5


def test_records_of_a_new_key_meet_behind_a_repartition_topic(tmp_path: Path) -> None:
    plan = plan_of(
        tmp_path,
        "p: {stream: a, steps: [select_key: str(value), deduplicate: {by: key, within: 1s, name: once, store: ids}], to: out}",
        HEAD,
    )
    assert len(plan.sub_topologies) == 2
    assert plan.changelog_name("ids") == "app-ids-changelog"
    found, _ = piped(plan, [("k", 1, 0), ("l", 1, 1), ("l", 2, 2)])
    assert found == [["1", 1, 0], ["2", 2, 2]]


def test_an_id_that_does_not_encode_is_an_error_of_the_step(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "p: {stream: a, steps: [deduplicate: {by: 'set([value])', within: 1s}], to: out}", HEAD)
    with pytest.raises(StreamkitError, match=r":10: pipeline p, step deduplicate: .*serde json can.t hold a set"):
        piped(plan, [("k", 1, 0)])


# -- top -------------------------------------------------------------------------------------------------------------


def best(rows: list[Row], n: int, group: Callable[[Row], Any], is_late: Callable[[Row, int], bool]) -> list[list[Any]]:
    """Return an update for each change of a list; a stable sort keeps equal ranks in the order of arrival."""
    lists: dict[Any, list[Any]] = {}
    times: dict[Any, int] = {}
    found, highest = [], -1
    for row in rows:
        _, value, time = row
        if value is None or value["rank"] is None:
            continue
        highest = max(highest, time)
        if is_late(row, highest):
            continue
        place = group(row)
        before = lists.get(place, [])
        after = sorted([*before, value], key=lambda each: -each["rank"])[:n]
        if len(after) != len(before) or any(one is not other for one, other in zip(before, after, strict=True)):
            lists[place] = after
            times[place] = max(times.get(place, 0), time)
            found.append([place, after, times[place]])
    return found


RANKED = st.lists(
    st.tuples(KEYS, st.none() | st.fixed_dictionaries({"rank": st.none() | st.integers(0, 4), "id": TIMES}), TIMES),
    max_size=30,
)
UNCACHED = HEAD.replace("topics:", "config: {statestore.cache.max.bytes: 0}\ntopics:")


@settings(max_examples=100, deadline=None)
@given(rows=RANKED, n=st.integers(1, 4))
def test_a_list_has_the_highest_ranks(tmp_path_factory: pytest.TempPathFactory, rows: list[Row], n: int) -> None:
    rows = [(key, None if value is None else dict(value), time) for key, value, time in rows]
    step = f"p: {{stream: a, steps: [group_by_key, top: {{n: {n}, by: value.rank}}, to_stream], to: out}}"
    plan = plan_of(tmp_path_factory.mktemp("top"), step, UNCACHED)
    expected = best(rows, n, lambda row: row[0], lambda row, highest: False)
    dropped = sum(value is None or value["rank"] is None for _, value, _ in rows)
    assert piped(plan, rows) == (expected, dropped)


@settings(max_examples=100, deadline=None)
@given(rows=RANKED)
def test_a_window_has_a_list_of_its_own(tmp_path_factory: pytest.TempPathFactory, rows: list[Row]) -> None:
    rows = [(key, None if value is None else dict(value), time) for key, value, time in rows]
    step = (
        "p: {stream: a, steps: [group_by_key, window: {tumbling: 10ms, grace: 5ms}, top: {n: 2, by: value.rank}, "
        "to_stream], to: windowed}"
    )
    plan = plan_of(tmp_path_factory.mktemp("top"), step, UNCACHED)

    def window(row: Row) -> dict[str, Any]:
        start = row[2] // 10 * 10
        return {"key": row[0], "start": start, "end": start + 10}

    expected = best(
        rows,
        2,
        lambda row: json.dumps(window(row)),
        lambda row, highest: window(row)["end"] <= highest - 5,
    )
    found, _ = piped(plan, rows)
    assert [[json.dumps(key), value, time] for key, value, time in found] == expected


def test_two_sessions_become_one_list(tmp_path: Path) -> None:
    step = "p: {stream: a, steps: [group_by_key, window: {session: 5ms, grace: 1s}, top: {n: 3, by: value}, to_stream], to: sessions}"
    plan = plan_of(tmp_path, step, UNCACHED)
    found, _ = piped(plan, [("k", 1, 0), ("k", 3, 8), ("k", 2, 4)])
    assert found[-1] == [{"key": "k", "start": 0, "end": 8}, [3, 2, 1], 8]


def test_sliding_windows_have_lists(tmp_path: Path) -> None:
    step = "p: {stream: a, steps: [group_by_key, window: {sliding: 10ms, grace: 1s}, top: {n: 2, by: value}, to_stream], to: windowed}"
    plan = plan_of(tmp_path, step, UNCACHED)
    found, _ = piped(plan, [("k", 1, 20), ("k", 3, 25), ("k", 2, 26)])
    lists = {(key["start"], key["end"]): value for key, value, _ in found}
    assert lists == {(10, 20): [1], (15, 25): [3, 1], (21, 31): [3, 2], (16, 26): [3, 2], (26, 36): [2]}


def test_ranks_that_do_not_compare_are_an_error_of_the_step(tmp_path: Path) -> None:
    rank = "float(value) if value == 'nan' else value"
    step = (
        f'p: {{stream: a, steps: [group_by_key, top: {{n: 2, by: "{rank}", on_error: continue}}, to_stream], to: out}}'
    )
    records = [("k", 1, 0), ("k", "x", 1), ("k", "nan", 2), ("k", 2, 3)]
    found, dropped = piped(plan_of(tmp_path, step, UNCACHED), records)
    assert ([row[1] for row in found], dropped) == ([[1], [2, 1]], 2)


# -- sample, set_timestamp, assert, log --------------------------------------------------------------------------------


@settings(max_examples=50, deadline=None)
@given(rate=st.floats(0, 1), lower=st.floats(0, 1), seed=st.integers(0, 1000))
def test_a_lower_rate_keeps_a_part_of_a_higher_one(rate: float, lower: float, seed: int) -> None:
    lower *= rate
    keys = [f"key-{at}" for at in range(400)]
    many = {key for key in keys if Sampler(rate, seed)(key, "t", 0, 0)}
    assert {key for key in keys if Sampler(lower, seed)(key, "t", 0, 0)} <= many
    # Five standard deviations of a binomial distribution.
    assert abs(len(many) - 400 * rate) <= 5 * (400 * rate * (1 - rate)) ** 0.5 + 1


def test_equal_values_share_their_fate() -> None:
    for seed in range(50):
        sampler = Sampler(0.5, seed)
        pairs = [(1, 1.0), ({"a": 1, "b": 2}, {"b": 2, "a": 1}), ((1, "x"), [1, "x"])]
        pairs.append((WindowedKey("k", 1, 2), WindowedKey("k", 1, 2)))
        assert [sampler(one, "t", 0, 1) for one, _ in pairs] == [sampler(other, "u", 9, 2) for _, other in pairs]
    assert {Sampler(0.5, 0)(None, "t", 0, offset) for offset in range(50)} == {True, False}
    # Fixed, so that a replay by a later version keeps the same records.
    assert [key for key in "abcdefgh" if Sampler(0.5, 7)(key, "t", 0, 0)] == ["a", "e", "g", "h"]


def test_a_value_without_a_hash_is_an_error_of_the_step(tmp_path: Path) -> None:
    plan = plan_of(tmp_path, "p: {stream: a, steps: [sample: {rate: 0.5, by: 'set([1])'}], to: out}", HEAD)
    with pytest.raises(StreamkitError, match="no JSON form"):
        piped(plan, [("k", 1, 0)])


@pytest.mark.parametrize("time", ["None", "-1", "1.5", "'1'", "True", "2 ** 63"])
def test_what_is_no_timestamp_is_an_error_of_the_step(tmp_path: Path, time: str) -> None:
    plan = plan_of(tmp_path, f'p: {{stream: a, steps: [set_timestamp: "{time}"], to: out}}', HEAD)
    with pytest.raises(StreamkitError, match="a timestamp is a whole number of milliseconds of at least 0, not"):
        piped(plan, [("k", 1, 0)])


def test_windows_take_the_new_timestamp(tmp_path: Path) -> None:
    step = "p: {stream: a, steps: [set_timestamp: value, group_by_key, window: {tumbling: 10ms}, count, to_stream], to: windowed}"
    found, _ = piped(plan_of(tmp_path, step, UNCACHED), [("k", 25, 3)])
    assert found == [[{"key": "k", "start": 20, "end": 30}, 1, 25]]


def test_an_assertion_goes_the_way_of_errors(tmp_path: Path) -> None:
    step = "p: {stream: a, steps: [assert: {if: value > 0, message: too low%s}], to: out}"
    with pytest.raises(StreamkitError, match="assert: too low"):
        piped(plan_of(tmp_path, step % "", HEAD), [("k", 0, 0)])
    found, _ = piped(plan_of(tmp_path, step % ", on_error: {dead_letter: dead}", HEAD), [("k", 0, 0), ("k", 1, 1)])
    assert found[1] == ["k", 1, 1]
    assert len(found) == 2


def test_a_task_logs_so_many_lines_a_second(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    lines: list[tuple[int, str]] = []
    seconds = iter([0.0, 0.9, 0.99, 1.0])
    log = LimitedLog(lambda level, text: lines.append((level, text)), "n", 20, 1, lambda: next(seconds) + 100)
    for text in "abcd":
        if log.has_room():
            log.write(text)
    assert lines == [(20, "n: a"), (20, "(2 lines left out) n: d")]
    log.write("x\ny" * LONGEST)
    assert len(lines[-1][1]) < 2 * LONGEST
    assert "\n" not in lines[-1][1]
    plan = plan_of(tmp_path, "p: {stream: a, steps: [log: {message: value, level: error, name: l}], to: out}", HEAD)
    assert piped(plan, [("k", {"x": 1}, 0)])[0] == [["k", {"x": 1}, 0]]
    assert capsys.readouterr().err == "ERROR l: {'x': 1}\n"
