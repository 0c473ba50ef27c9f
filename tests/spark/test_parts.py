"""Records in parts: the tasks of an incremental job write and keep what they write and keep for all records at once."""

from __future__ import annotations

import os
import random
from pathlib import Path

import pytest

from streamkit.plan import load
from streamkit.plan.model import Plan
from streamkit.runtime.spark.workers import task_stores as kept_stores
from streamkit.runtime.spark.workers.task_stores import RecordingMap
from tests.conformance_cases import CASES, parse
from tests.runtime.expiring_counts import COUNT
from tests.spark.as_one import readable
from tests.spark.in_process import InProcess
from tests.spark.support import by_key

# Each round draws other records and cuts; 40 rounds take half an hour.
ROUNDS = int(os.environ.get("STREAMKIT_PARTS_ROUNDS", "1"))


def drawn(records: list[dict], draw: random.Random) -> list[dict]:
    """Records like those of a case: theirs in another order and number, most at rising times, some late."""
    times = [record["timestamp"] for record in records]
    span = max(times) - min(times) + 1
    step = max(1, span // len(records))
    found, now = [], min(times)
    for _ in range(draw.randint(len(records) // 2, min(2 * len(records), 300))):
        now += draw.choice((0, 1, step, step, 2 * step, 5 * step))
        late = draw.choice((0, 0, 0, 0, step, 10 * step, span))
        found.append({**draw.choice(records), "timestamp": max(0, now - late)})
    return found


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_parts_are_as_one(case: Path) -> None:
    plan = load(case / "topology.yaml")
    records = [record for record in parse((case / "input.jsonl").read_text(encoding="utf-8")) if "topic" in record]
    compare(plan, records, ROUNDS)


def test_rows_with_a_time_to_live(tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(COUNT, encoding="utf-8")
    records = [{"topic": "in", "key": f"k{at % 7}", "value": "v", "timestamp": 40 * at} for at in range(100)]
    compare(load(path), records, 4 * ROUNDS)


def test_timers(tmp_path: Path) -> None:
    (tmp_path / "ticking.py").write_text(
        "from streamkit import Record\n"
        "class Ticking:\n"
        "    def init(self, context):\n"
        "        self.context, self.last = context, None\n"
        "        self.timers = [context.schedule(f'{each}ms', 'stream_time', self.tick) for each in (70, 110, 70)]\n"
        "    def process(self, record):\n"
        "        if record.value == 'cancel':\n"
        "            self.timers[2].cancel()\n"
        "        return record\n"
        "    def tick(self, time):\n"
        "        self.context.forward(Record('tick', str(time), time))\n",
        encoding="utf-8",
    )
    path = tmp_path / "topology.yaml"
    path.write_text(
        "streamkit: 1\napplication: ticking\ntopics: {lines: {value: string}, out: {value: string}}\n"
        "pipelines:\n  out:\n    stream: lines\n    steps:\n      - process: {call: ticking:Ticking}\n    to: out\n",
        encoding="utf-8",
    )
    values = ["v"] * 30 + ["cancel"] + ["v"] * 30
    records = [{"topic": "lines", "key": "k", "value": v, "timestamp": 17 * at} for at, v in enumerate(values)]
    compare(load(path), records, 4 * ROUNDS)


def test_changed_keys_are_on_disk_where_their_rows_are(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kept_stores, "_MAX_CHANGED", 3)
    rows = RecordingMap(1, lambda: tmp_path / "rows")
    rows.fill([(b"%02d" % at, b"before") for at in range(10)])
    for at in range(5, 15):
        rows.put(b"%02d" % at, b"now")
        rows.commit()
    rows.delete_range(b"06", b"08")
    assert (tmp_path / "rows-changed").exists()
    assert list(rows.changes()) == [(b"%02d" % at, None if at in (6, 7) else b"now") for at in range(5, 15)]
    assert rows.get(b"04") == b"before"
    rows.close()


def compare(plan: Plan, records: list[dict], rounds: int) -> None:
    """Check that records in parts, with runs and workers that end early, give the output and state of all of them at once."""
    for seed in range(rounds):
        draw = random.Random(f"{plan.application} {seed}")
        job = InProcess(plan, records if seed == 0 else drawn(records, draw))
        (whole,) = job.parts(draw, 1)
        want, state = job.run([whole], draw)
        parts = job.parts(draw, draw.randint(2, 6))
        have, after = job.run(parts, draw, ends=True)
        assert want or seed
        assert by_key(have) == by_key(want), f"seed {seed}"
        assert readable(plan, after.rows(), after.tasks) == readable(plan, state.rows(), state.tasks), f"seed {seed}"
        assert after.tasks == state.tasks, f"seed {seed}"
