"""No window that has closed is lost before it is emitted: after a gap, and while a task catches up."""

from __future__ import annotations

import json
import random
from collections.abc import Iterator
from itertools import accumulate
from pathlib import Path
from typing import Any
from unittest.mock import patch

import pytest

from streamkit.operators.core.task_services import EmitIntervals
from streamkit.plan import load
from streamkit.runtime.driver import Driver, run_lines
from streamkit.state.definitions import Volatile

GAPS = (0, 1, 2, 5, 9, 40, 70_000, 400_000)
"""Milliseconds between records; a segment has a minute."""
LAST = 10_000_000
"""A record so much later closes all windows before it."""
MANY_MS = 3_600_000
WINDOWS = {
    "tumbling": "tumbling: 7ms",
    "hopping": "hopping: 10ms, advance: 4ms",
    "sliding": "sliding: 6ms",
    "session": "session: 8ms",
}


def topology(window: str, grace: int, emit: str, store: str) -> str:
    key = "session_windowed: string" if "session" in window else "windowed: string, size: 10ms"
    return f"""\
streamkit: 1
application: closed
config: {{statestore.cache.max.bytes: 0}}
topics:
  events: {{key: string, value: string}}
  counts: {{key: {{{key}}}, value: long}}
pipelines:
  counts:
    stream: events
    steps:
      - group_by_key
      - window: {{{window}, grace: {grace}ms, emit: {emit}}}
      - count: {{store: {{name: counts{store}}}}}
      - to_stream
    to: counts
"""


def counted(path: Path, text: str, lines: list[str], interval: int) -> Iterator[dict[str, Any]]:
    path.write_text(text)
    intervals = EmitIntervals(interval, interval)
    with patch.object(EmitIntervals, "of", lambda config, default: intervals), Driver(load(path)) as driver:
        yield from run_lines(driver, iter(lines))


@pytest.mark.parametrize("store", ["", ", type: in_memory", ", retention: 10m"])
@pytest.mark.parametrize("kind", list(WINDOWS))
def test_all_closed_windows_are_emitted(kind: str, store: str, tmp_path: Path) -> None:
    """However long a task has not emitted: its clock stands still, so that it emits only what would be lost."""
    draw = random.Random(f"{kind} {store}")
    times = [*accumulate((draw.choice(GAPS) for _ in range(200)), initial=1000)]
    records = [(draw.choice("ab"), time) for time in times] + [("z", times[-1] + LAST)]
    lines = [json.dumps({"topic": "events", "key": key, "value": "x", "timestamp": time}) for key, time in records]
    for grace, interval in ((1, 0), (1, MANY_MS), (30, MANY_MS)):
        args = WINDOWS[kind], grace
        last = {
            str(row["key"]): row for row in counted(tmp_path / "u.yaml", topology(*args, "on_update", ""), lines, 0)
        }
        final = {key: row for key, row in last.items() if row["value"] is not None and row["key"]["key"] != "z"}
        found = list(counted(tmp_path / "c.yaml", topology(*args, "on_close", store), lines, interval))
        assert {str(row["key"]): row for row in found} == final
        assert len(found) == len(final)


@pytest.mark.parametrize("kind", list(WINDOWS))
def test_batch_jobs_can_keep_the_stream_time_of_windows(kind: str, tmp_path: Path) -> None:
    """Without it, a run would accept records that are late since the run before (kept_tasks.memory_of)."""
    path = tmp_path / "topology.yaml"
    path.write_text(topology(WINDOWS[kind], 5, "on_update", ""))
    with Driver(load(path)) as driver:
        list(run_lines(driver, iter([json.dumps({"topic": "events", "key": "a", "value": "x", "timestamp": 1234})])))
        assert driver._task is not None
        kept = [each for each in driver._task._bound.instances.values() if isinstance(each, Volatile)]
        assert [each.volatile_values() for each in kept] == [[1234]]
