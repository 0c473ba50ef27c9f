"""Records in parts, and whether runs over them have written and kept what one job over all of them does."""

from __future__ import annotations

import random
from collections.abc import Mapping
from itertools import pairwise
from typing import Any

from pyarrow.parquet import ParquetFile

from streamkit.plan.model import Plan
from streamkit.state.layouts import MAX_LONG
from tests.spark.in_process import InProcess
from tests.spark.incremental_runs import Runs
from tests.spark.support import by_key, live_order

OF_BATCHES = {"spent"}
"""Stores that a processor with `batch` writes: their rows have the time of the last record of a batch, which ends with a run."""
TIME = 8

Rows = dict[tuple[str, int], dict[bytes, bytes]]
"""The rows of stores, by store and partition."""


def cut(plan: Plan, records: list[dict], draw: random.Random, count: int) -> list[list[dict]]:
    """Cut records, in the order of one task, into parts; the first one has those of global tables, and further ones."""
    ordered = live_order(plan, records)
    first = {topic for sub in plan.sub_topologies if sub.is_global for topic in sub.source_topics}
    least = sum(record["topic"] in first for record in ordered) + 1
    places = range(least, len(ordered))
    bounds = sorted(draw.sample(places, min(count - 1, len(places))))
    return [ordered[low:high] for low, high in pairwise([0, *bounds, len(ordered)])]


def check_as_one(runs: Runs, plan: Plan, records: list[dict]) -> None:
    """Check the output and the stores of runs that have read all records."""
    job = InProcess(plan, records)
    draw = random.Random(0)
    (whole,) = job.parts(draw, 1)
    want, state = job.run([whole], draw)
    assert by_key(runs.written()) == by_key(want)
    assert readable(plan, rows_of(runs), runs.manifest()["tasks"]) == readable(plan, state.rows(), state.tasks)


def rows_of(runs: Runs) -> Rows:
    """The rows of each store, from the files of the checkpoint."""
    found: Rows = {}
    for store, partitions in runs.manifest()["state"].items():
        for partition, pieces in partitions.items():
            rows: dict[bytes, bytes | None] = {}
            for folder, kind, *_ in pieces:
                place = f"state/folder={folder}/store={store}/kind={kind}/partition={partition}"
                for file in (runs.checkpoint / place).rglob("*.parquet"):
                    table = ParquetFile(file).read(["key", "value"])
                    rows.update(zip(*(column.to_pylist() for column in table.columns), strict=True))
            found[store, int(partition)] = {key: value for key, value in rows.items() if value is not None}
    return {place: rows for place, rows in found.items() if rows}


def readable(plan: Plan, rows: Rows, tasks: Mapping[str, Any]) -> Rows:
    """The rows of stores; of versions only those that a read can return, since others are deleted with later writes."""
    found = {}
    for (store, partition), entries in rows.items():
        definition = plan.stores[store]
        found[store, partition] = entries
        if definition.type == "versioned":
            (sub,) = (each.id for each in plan.sub_topologies if store in each.stores)
            (observed,) = tasks[f"{sub}_{partition}"]["volatile"][f"store {store}"]
            found[store, partition] = within_history(entries, observed - definition.history)
        elif store in OF_BATCHES:
            found[store, partition] = {key: row[TIME:] for key, row in entries.items()}
    return {place: entries for place, entries in found.items() if entries}


def within_history(entries: dict[bytes, bytes], bound: int) -> dict[bytes, bytes]:
    """Versions from `bound` on, and the one before of each key, unless it is a deletion."""
    found, done = {}, set()
    for row in sorted(entries):
        key, time = row[:-8], MAX_LONG - int.from_bytes(row[-8:], "big")
        if time > bound or (key not in done and entries[row][0] & 1):
            found[row] = entries[row]
        if time <= bound:
            done.add(key)
    return found
