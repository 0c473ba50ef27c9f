"""Records in files, jobs over them, and what they wrote."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any
from unittest.mock import patch

from streamkit.operators.core.task_services import EmitIntervals
from streamkit.plan import load
from streamkit.plan.model import Plan
from streamkit.runtime.driver import Driver, run_lines
from streamkit.runtime.spark.job_options import JSON_LINES, REST, JobOptions, Place, Range
from streamkit.runtime.spark.submission.submit_job import submit

SETTINGS = {
    "spark.driver.memory": "1g",
    "spark.ui.enabled": "false",
    "spark.sql.shuffle.partitions": "2",
    "spark.driver.host": "127.0.0.1",
    "spark.driver.bindAddress": "127.0.0.1",
}


def write_lines(path: Path, records: Iterable[Mapping]) -> Place:
    """A file of records."""
    path.write_text("".join(json.dumps(record) + "\n" for record in records), encoding="utf-8")
    return Place(str(path), JSON_LINES)


def read_lines(folder: Path) -> list[dict]:
    """The records that a job wrote to a directory, file after file."""
    assert (folder / "_SUCCESS").exists()
    parts = sorted(folder.glob("part-*"))
    assert {path.suffix for path in parts} <= {".jsonl"}
    texts = [path.read_text(encoding="utf-8") for path in parts]
    return [json.loads(line) for text in texts for line in text.split("\n") if line]


def reprocess(spark: Any, plan: Plan, records: list[dict], folder: Path, **options: Any) -> list[dict]:
    """What a job makes of records, which lie in a file for each topic."""
    topics = sorted({record["topic"] for record in records})
    inputs = {
        topic: (write_lines(folder / topic, [record for record in records if record["topic"] == topic]),)
        for topic in topics
    }
    out = folder / "out"
    submit(plan, JobOptions(inputs, {REST: Place(str(out), JSON_LINES)}, **options), spark)
    return read_lines(out)


def live_order(plan: Plan, records: list[dict]) -> list[dict]:
    """Records in the order in which one task takes them that finds them all on the log; global tables come first."""
    first = {topic for sub in plan.sub_topologies if sub.is_global for topic in sub.source_topics}
    highest: dict[str, int] = {}
    places = []
    for position, record in enumerate(records):
        topic = record["topic"]
        highest[topic] = max(record["timestamp"], highest.get(topic, -1))
        places.append((topic not in first, highest[topic], topic, position))
    return [record for _, record in sorted(zip(places, records, strict=True), key=lambda pair: pair[0])]


EMIT_INTERVALS = (
    "__emit.interval.ms.kstreams.windowed.aggregation__",
    "__emit.interval.ms.kstreams.outer.join.spurious.results.fix__",
)


def tried(path: Path, records: Iterable[dict]) -> list[dict]:
    """What `try` makes of records without caches, and without the intervals of a clock that batch jobs do not have.

    Closed windows are emitted before their stores would expire them, as everywhere but in `try`.
    """
    plan = load(path, overrides={"statestore.cache.max.bytes": "0", **dict.fromkeys(EMIT_INTERVALS, "0")})
    with patch.object(EmitIntervals, "of", lambda config, default: EmitIntervals(0, 0)), Driver(plan) as driver:
        return list(run_lines(driver, map(json.dumps, records)))


def by_key(records: Iterable[dict]) -> dict[tuple[str, str], list[dict]]:
    """The fields that count of each key's records, in order."""
    found: dict[tuple[str, str], list[dict]] = {}
    for record in records:
        fields = {name: record.get(name) for name in ("key", "value", "timestamp")}
        place = record["topic"], json.dumps(record.get("key"), sort_keys=True)
        found.setdefault(place, []).append({**fields, "headers": record.get("headers") or []})
    return found


__all__ = ["Range", "by_key", "live_order", "read_lines", "reprocess", "tried", "write_lines"]
