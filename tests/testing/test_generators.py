"""Generators: equal records for equal seeds, their times, what tests and the command make of them, and mistakes."""

from __future__ import annotations

import json
from itertools import islice
from pathlib import Path
from statistics import mean, pstdev

import pytest

from streamkit.errors import StreamkitError, TopologyError
from streamkit.plan import load
from streamkit.testing.generated_records import START, SeededRandom, generated
from tests.cli.support import LIMIT_S, assert_one_clear_line, command, streamkit

TOPOLOGY = """streamkit: 1
application: app
topics: {orders: {value: json, partitions: 2}, users: {value: json, partitions: 1}, out: {value: json, partitions: 1}}
functions: {twice: {params: [x], expr: x * 2}}
pipelines:
  p: {stream: orders, to: out}
  u: {stream: users, to: out}
"""
USERS = "  users: {key: \"f'user-{sequence}'\", value: random.uuid(), every: 0, count: 3}\n"
ORDERS = """  orders:
    key: f'user-{random.zipf(3)}'
    value: '{"n": sequence, "who": key, "at": time, "x": twice(random.integer(1, 6))}'
    every: 500ms
    late: {part: 0.3, by: 5s}
"""


def made(folder: Path, generators: str, seed: int = 0, count: int = 200, start: int = START) -> list[dict]:
    path = folder / "topology.yaml"
    path.write_text(TOPOLOGY + "generators:\n" + generators, encoding="utf-8")
    return list(islice(generated(list(load(path).generators.values()), seed, start), count))


def test_a_seed_gives_the_same_records(tmp_path: Path) -> None:
    first = made(tmp_path, USERS + ORDERS)
    assert made(tmp_path, USERS + ORDERS) == first
    assert made(tmp_path, USERS + ORDERS, seed=1) != first
    alone = made(tmp_path, ORDERS)
    orders = [record for record in first if record["topic"] == "orders"]
    assert alone[: len(orders)] == orders
    # Fixed, so that a later version makes the same data.
    assert [orders[0]["key"], orders[0]["value"], orders[1]["value"]["x"]] == [
        "user-0",
        {"n": 0, "who": "user-0", "at": 1735689597123, "x": 8},
        4,
    ]
    later = made(tmp_path, ORDERS, start=START + 1000)
    assert [record["timestamp"] - 1000 for record in later] == [record["timestamp"] for record in alone]


def test_records_come_in_the_order_of_their_times_before_lateness(tmp_path: Path) -> None:
    records = made(tmp_path, USERS + ORDERS)
    assert [record["topic"] for record in records[:4]] == ["users"] * 3 + ["orders"]
    orders = records[3:]
    assert [record["value"]["n"] for record in orders] == list(range(197))
    behind = [START + 500 * n - record["timestamp"] for n, record in enumerate(orders)]
    assert all(0 <= each <= 5000 for each in behind)
    assert 30 <= sum(each > 0 for each in behind) <= 90
    assert all(record["value"]["at"] == record["timestamp"] for record in orders)


def test_draws_have_their_distributions() -> None:
    random = SeededRandom("x")
    numbers = [random.normal(10, 2) for _ in range(4000)]
    assert abs(mean(numbers) - 10) < 0.2
    assert abs(pstdev(numbers) - 2) < 0.1
    assert abs(mean(random.exponential(3) for _ in range(4000)) - 3) < 0.3
    ranks = [random.zipf(100) for _ in range(4000)]
    assert set(ranks) <= set(range(100))
    assert 1.6 < ranks.count(0) / ranks.count(1) < 2.5
    assert {random.integer(1, 3) for _ in range(100)} == {1, 2, 3}
    assert all(2 <= random.number(2, 4) < 4 for _ in range(100))
    chosen = [random.choice(["a", "b"], [9, 1]) for _ in range(1000)]
    assert 50 < chosen.count("b") < 160
    assert 20 < sum(random.boolean(0.1) for _ in range(400)) < 65
    assert len({random.uuid() for _ in range(100)}) == 100


MISTAKES = {
    "  order: {value: '1'}": "9:3: There is no topic 'order' to generate; did you mean 'orders'?",
    "  orders: {key: '1'}": "9:11: The generator of 'orders' needs 'value'",
    "  orders: {value: random.gauss(1)}": "unknown method 'gauss' of a random",
    "  orders: {value: value.x}": "unknown name 'value'",
    "  orders: {value: '1', every: 0}": "never moves in time and never ends; give 'every' or 'count'",
    "  orders: {value: '1', late: {part: 2, by: 1s}}": "'part' of 'late' must be a number from 0 to 1, not the number 2",
    "  orders: {value: '1', late: {part: 0.1}}": "'late' needs 'by'",
    "  orders: {value: '1', count: -1}": "'count' of the generator of 'orders' must be a whole number of at least 0",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_a_mistake_has_its_place(tmp_path: Path, text: str) -> None:
    with pytest.raises(TopologyError) as caught:
        made(tmp_path, text + "\n")
    (problem,) = caught.value.problems
    assert MISTAKES[text] in str(problem)


def test_no_step_has_draws(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(
        TOPOLOGY.replace("to: out}\n  u", "steps: [map_values: 'value.choice([1])'], to: out}\n  u")
    )
    with pytest.raises(TopologyError, match="unknown method 'choice'"):
        load(tmp_path / "t.yaml")


def test_a_failure_names_the_record_and_the_place(tmp_path: Path) -> None:
    with pytest.raises(StreamkitError, match=r"topology.yaml:9:3: the value of record 2 of the generator of 'users'"):
        made(tmp_path, "  users: {value: 1 // (2 - sequence)}\n")


def test_a_file_beside_the_topology_has_generators(tmp_path: Path) -> None:
    (tmp_path / "t.yaml").write_text(TOPOLOGY)
    beside = tmp_path / "t.generators.yaml"
    beside.write_text("generators:\n" + ORDERS)
    assert list(load(tmp_path / "t.yaml").generators) == ["orders"]
    beside.write_text("# of t.yaml\ngenerators:\n  orders: {value: nothing}\n")
    done = streamkit("validate", tmp_path / "t.yaml")
    assert done.code == 1
    assert f"{beside}:3:19: unknown name 'nothing'" in done.out + done.err
    (tmp_path / "t.yaml").write_text(TOPOLOGY + "generators:\n" + ORDERS)
    beside.write_text("generators:\n" + ORDERS)
    with pytest.raises(TopologyError, match=r"t.generators.yaml:2:3: The generator of 'orders' is also in .*t.yaml"):
        load(tmp_path / "t.yaml")


CASES = """topology: topology.yaml
tests:
  some:
    given:
      - generate: {count: 4, seed: 3, topics: [orders], start: 1970-01-01T00:01:00Z}
    expect:
      out: {partial: true, records: [%s]}
"""


def test_a_test_may_use_generators(tmp_path: Path) -> None:
    records = made(tmp_path, USERS + ORDERS, seed=3, count=7, start=60_000)[3:]
    expected = ", ".join(json.dumps({"value": {"x": record["value"]["x"]}}) for record in records)
    (tmp_path / "topology.test.yaml").write_text(CASES % expected)
    assert streamkit("test", tmp_path).code == 0
    (tmp_path / "topology.test.yaml").write_text((CASES % expected).replace("[orders]", "[order]"))
    done = streamkit("test", tmp_path)
    assert done.code != 0
    assert "there is no generator of 'order'; did you mean 'orders'?" in done.out + done.err


def test_the_command_prints_what_produce_reads(tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    records = made(tmp_path, USERS + ORDERS, seed=5, count=10)
    done = streamkit("generate", path, "--stdout", "--count", "10", "--seed", "5")
    assert [json.loads(line) for line in done.out.splitlines()] == records
    state = f"state.dir={tmp_path / 'state'}"
    assert streamkit("produce", path, "--set", state, stdin=done.out).code == 0
    assert streamkit("generate", path, "orders", "--count", "5", "--rate", "1000/s", "--set", state).code == 0
    found = streamkit("consume", path, "orders", "--until-idle", "--set", state)
    assert len(found.out.splitlines()) == 12


def test_records_without_end_need_a_rate_or_a_count(tmp_path: Path) -> None:
    made(tmp_path, USERS + ORDERS, count=1)
    path = tmp_path / "topology.yaml"
    done = streamkit("generate", path)
    assert_one_clear_line(done, 2, "the records of orders never end; give --count N or --rate N/s")
    assert len(streamkit("generate", path, "users", "--stdout").out.splitlines()) == 3
    assert "expected a number of records such as 100/s" in streamkit("generate", path, "--rate", "fast").err
    assert "there is no generator of 'out'" in streamkit("generate", path, "out", "--count", "1").err


def test_the_command_ends_by_a_signal(tmp_path: Path) -> None:
    import signal
    import subprocess

    made(tmp_path, ORDERS, count=1)
    line = command("generate", tmp_path / "topology.yaml", "--rate", "50/s", "--stdout")
    with subprocess.Popen(line, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.readline()
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=LIMIT_S)
        assert process.returncode == 0
