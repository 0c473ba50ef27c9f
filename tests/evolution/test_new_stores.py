"""The rows of one store from the part of a plan that it depends on, and their changelog, restored."""

from __future__ import annotations

import random
from pathlib import Path
from typing import Any

import pytest

from streamkit import serdes
from streamkit.plan import load
from streamkit.plan.model import Plan
from streamkit.plan.partitions import lay_out
from streamkit.runtime.spark.evolution.evolution import records_of
from streamkit.runtime.spark.evolution.new_stores import reduced
from streamkit.runtime.spark.submission.submit_job import declared_counts
from streamkit.runtime.spark.workers.task_stores import SpillingMap
from streamkit.state.definitions import StoreDef
from streamkit.state.engines.ages import row_key
from streamkit.state.open_store import create
from tests.conformance_cases import CASES, parse
from tests.runtime.expiring_counts import COUNT
from tests.spark.as_one import within_history
from tests.spark.in_process import InProcess


def state_of(plan: Plan, records: list[dict], seed: str) -> dict[tuple[str, int], dict[bytes, bytes]]:
    """The rows of all stores of a plan after all records that it reads."""
    read = {topic for sub in plan.sub_topologies for topic in sub.source_topics} - set(plan.internal_topics)
    names = {plan.external_topics[topic].entry for topic in read} | read
    job = InProcess(plan, [record for record in records if record["topic"] in names])
    draw = random.Random(seed)
    (whole,) = job.parts(draw, 1)
    return job.run([whole], draw)[1].rows()


class Context:
    """The services of a task, for stores that are filled by restores and have no changelog."""

    topic = None

    def log(self, *arguments: object) -> None:
        pass

    def dropped(self, reason: str) -> None:
        pass


def restored(definition: StoreDef, rows: dict[bytes, bytes]) -> Any:
    """A store after the restore of the changelog that rows give, in the order in which it is written."""
    found = sorted(enumerate(records_of(definition, sorted(rows.items()))), key=lambda each: (each[1].order, each[0]))
    entries = SpillingMap(1 << 30, Path)
    options = {} if definition.kind.in_memory_only else {"rows": entries}
    store = create(definition, None, Context(), **options)  # type: ignore[arg-type]
    for _, record in found:
        store.restore(record.key, record.value, record.timestamp or 0, record.headers)
    return store, dict(entries.range(None, None))


@pytest.mark.parametrize("case", CASES, ids=lambda case: case.name)
def test_every_store_alone(case: Path) -> None:
    plan = load(case / "topology.yaml")
    records = [record for record in parse((case / "input.jsonl").read_text(encoding="utf-8")) if "topic" in record]
    check(plan, records)


def test_rows_with_a_time_to_live(tmp_path: Path) -> None:
    path = tmp_path / "topology.yaml"
    path.write_text(COUNT, encoding="utf-8")
    check(load(path), [{"topic": "in", "key": f"k{at % 7}", "value": "v", "timestamp": 40 * at} for at in range(100)])


def test_versions_of_the_past() -> None:
    definition = StoreDef("versions", "versioned", serdes.parse("string"), serdes.parse("string"), history=100)
    for seed in range(100):
        draw = random.Random(seed)
        rows = SpillingMap(1 << 30, Path)
        store = create(definition, None, Context(), rows=rows)  # type: ignore[arg-type]
        for number in range(60):
            value = draw.choice((None, "v"))
            store.put(draw.choice((b"a", b"bb")), value, max(0, 4 * number - draw.choice((0, 0, 0, 10, 90, 300))))
        check_restored(definition, dict(rows.range(None, None)))


def check(plan: Plan, records: list[dict]) -> None:
    """Compare each store of a plan, computed alone, with what all of the plan gives, and with what its changelog gives."""
    logged = [
        name
        for sub in plan.sub_topologies
        for name in sub.stores
        if not sub.is_global and plan.stores[name].changelog_topic is not None
    ]
    if not logged or not records:
        return
    whole = state_of(plan, records, plan.application)
    written = {topic for sub in plan.sub_topologies for topic in sub.sink_topics} - set(plan.internal_topics)
    topics = [topic for sub in plan.sub_topologies for topic in sub.source_topics if topic not in plan.internal_topics]
    layout = lay_out(plan, declared_counts(plan, [*topics, *plan.global_topics]))
    for name in logged:
        part = reduced(plan, [name], layout)
        if written.intersection(topic for sub in part.sub_topologies for topic in sub.source_topics):
            continue  # what the application itself writes comes from the log, where a test has nothing
        alone = state_of(part, records, plan.application)
        want = {place: rows for place, rows in whole.items() if place[0] == name}
        assert {place: rows for place, rows in alone.items() if place[0] == name} == want
        for rows in want.values():
            check_restored(plan.stores[name], rows)


def check_restored(definition: StoreDef, rows: dict[bytes, bytes]) -> None:
    store, found = restored(definition, rows)
    if definition.kind.in_memory_only:
        assert len(list(store.rows())) == len(rows)
    elif definition.kind.windowed and not definition.persistent:
        assert found.items() <= rows.items()  # no read returns the others
    elif definition.type == "versioned":
        bound = store.observed_time - (definition.history or 0)
        assert within_history(found, bound) == within_history(rows, bound)
    elif definition.ttl is not None:
        assert {row_key(key): value for key, value in found.items() if row_key(key) is not None} == rows
    else:
        assert found == rows
