"""`enrich`: results join records in their order; cache, threads, and the event loop of a stream thread."""

from __future__ import annotations

import json
import threading
from pathlib import Path

import pytest

from streamkit.errors import TopologyError
from streamkit.operators.kernels.lookups import LookupCache, cache_key
from streamkit.plan import load
from streamkit.record import Value
from streamkit.runtime.driver import Driver
from tests.calls.lookups_under_test import HEAD, MODULE, RECORDS, calls, metrics, one_step, values
from tests.calls.support import batch, outcome, task_of, write


@pytest.mark.parametrize("name", ["later", "in_thread"])
@pytest.mark.parametrize("length", [1, 7, 40])
def test_results_join_their_records_in_order(name: str, length: int, tmp_path: Path) -> None:
    file = one_step(tmp_path, f'call: "user_code:{name}", concurrency: 40')
    rows = outcome(file, RECORDS, length)["out"]
    assert [(row[1], json.loads(row[2]), row[3], row[4]) for row in rows] == [
        (key, n * 10, n, [("at", str(n).encode())]) for n, (key, _, _) in enumerate(RECORDS)
    ]


def test_argument_and_result_are_expressions(tmp_path: Path) -> None:
    options = 'call: "user_code:later", by: value % 3, value: "[key, value, result, offset, timestamp]"'
    assert values(one_step(tmp_path, options))[4] == ["k1", 4, 10, 4, 4]


def test_lists_of_arguments_and_a_failure_among_them(tmp_path: Path) -> None:
    file = one_step(tmp_path, 'call: "user_code:lists", batch: 16, on_error: continue')
    assert values(file) == [n * 10 for n in range(40) if n != 7]
    assert calls(file) == [16, 16, 8]


def test_equal_arguments_are_looked_up_once(tmp_path: Path) -> None:
    task = task_of(one_step(tmp_path, 'call: "user_code:later", by: value % 5, cache: {size: 5}, timeout: 1m'))
    for start in (0, 20):
        task.add(batch(RECORDS[start : start + 20], start))
        task.process(100)
    assert len(task.output) == 40
    found = metrics(task)
    assert (found["calls"], found["call"], found["cache_misses"], found["cache_hits"]) == (5, 5, 5, 35)
    task.close()


def test_a_cache_evicts_what_was_not_used_and_what_is_old(monkeypatch: pytest.MonkeyPatch) -> None:
    now = [0.0]
    monkeypatch.setattr("streamkit.operators.kernels.lookups.time.monotonic", lambda: now[0])
    cache = LookupCache(2, 1000)
    cache.put("a", None)
    cache.put("b", 2)
    assert cache.get("a") == (None,)
    cache.put("c", 3)
    assert (cache.get("a"), cache.get("b"), cache.get("c")) == ((None,), None, (3,))
    now[0] = 1.0
    assert cache.get("a") is None


NESTED: list[Value] = []
for _ in range(3000):
    NESTED = [NESTED]
ITSELF: list[Value] = []
ITSELF.append(ITSELF)


def test_keys_of_a_cache_are_equal_for_equal_arguments_alone() -> None:
    arguments = [
        1,
        True,
        1.0,
        "1",
        b"1",
        None,
        0.0,
        -0.0,
        [],
        (),
        {},
        [[1], 2],
        [[1, 2]],
        [1, [2]],
        {"a": [1]},
        {"a": 1},
    ]
    keys = [cache_key(argument) for argument in [*arguments, NESTED, [NESTED]]]
    assert None not in keys
    assert len(set(keys)) == len(arguments) + 2
    assert cache_key({"a": [1, float("nan")]}) == cache_key({"a": [1, float("nan")]})
    assert [cache_key(argument) for argument in (object(), [object()], ITSELF, [0] * 20_000)] == [None] * 4


def test_arguments_of_other_types_are_looked_up_without_the_cache(tmp_path: Path) -> None:
    steps = (
        'map_values: {call: "user_code:array", value_serde: json}}, {enrich: {call: "user_code:total", cache: {size: 9}'
    )
    rest = f"  p: {{stream: in, steps: [{{{steps}}}}}], to: out}}\n"
    file = write(tmp_path, HEAD.replace("CONFIG", "client.id: a") + rest, MODULE)
    assert values(file) == list(range(40))


def test_objects_of_a_class_live_on_the_loop(tmp_path: Path) -> None:
    file = one_step(tmp_path, 'call: "user_code:Session", with: {mark: m}')
    assert values(file)[:2] == ["m0", "m1"]
    assert calls(file) == ["closed"]


def loops() -> int:
    return sum(thread.name.endswith("-loop") for thread in threading.enumerate())


def test_tasks_of_a_thread_share_a_loop_that_ends_with_the_last(tmp_path: Path) -> None:
    before = loops()
    first, second = (task_of(one_step(tmp_path, 'call: "user_code:later"')) for _ in range(2))
    assert loops() == before + 1
    first.close()
    second.add(batch(RECORDS[:3]))
    second.process(10)
    assert len(second.output) == 3
    second.close()
    assert loops() == before


def test_where_the_order_would_mix_records_go_one_by_one(tmp_path: Path) -> None:
    rest = """\
  p: {stream: in, to: out}
  q: {from: p, steps: [{enrich: "user_code:later"}], to: out}
"""
    file = write(tmp_path, HEAD.replace("CONFIG", "client.id: a") + rest, MODULE)
    assert outcome(file, RECORDS, 40) == outcome(file, RECORDS, 1)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ('call: "user_code:later", cache: {ttl: 5m}', "'cache' of 'enrich' needs 'size'"),
        (
            'call: "user_code:later", cache: {size: 0}',
            "'size' of 'cache' of 'enrich' must be a whole number of at least 1",
        ),
        ('call: "user_code:later", timeout: 0', "'timeout' of 'enrich' must be at least 1 ms"),
        ('call: "user_code:later", retries: -1', "'retries' of 'enrich' must be a whole number of at least 0"),
        ('call: "user_code:later", value: resul', "unknown name 'resul'; did you mean 'result'?"),
        ('call: "user_code:Session"', "Session needs 'mark'"),
        ("timeout: 5s", "The step 'enrich' needs 'call'"),
    ],
)
def test_mistakes(options: str, message: str, tmp_path: Path) -> None:
    with pytest.raises(TopologyError) as caught:
        load(one_step(tmp_path, options))
    assert message in str(caught.value)


def test_try_gives_the_same(tmp_path: Path) -> None:
    file = one_step(tmp_path, 'call: "user_code:later"')
    with Driver(load(file)) as driver:
        found = [driver.pipe({"topic": "in", "key": "k", "value": n})[0]["value"] for n in range(3)]
    assert found == [0, 10, 20]
