"""The stages of an incremental job in this process: what Spark does between them is a concatenation and a sort."""

from __future__ import annotations

import json
import pickle
import random
import uuid
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from streamkit.plan.model import Plan
from streamkit.runtime.records import RecordJson
from streamkit.runtime.spark.job import Job, _record_batches
from streamkit.runtime.spark.job_options import JSON_LINES, REST, JobOptions, Place
from streamkit.runtime.spark.rows.topic_inputs import FileReading, read_lines
from streamkit.runtime.spark.stage_plan import Stage
from streamkit.runtime.spark.submission.submit_job import declared_counts
from streamkit.runtime.spark.workers import arrow_rows
from streamkit.runtime.spark.workers.arrow_rows import unpack
from streamkit.runtime.spark.workers.cycle import run_cycle
from streamkit.runtime.spark.workers.kept_tasks import BASE, MEMORY, Kept, state_of
from streamkit.runtime.spark.workers.worker import GlobalTables, Inline, StageWork, order_rows, run_tasks

_STATE = state_of("")
LOST = 0.2
"""The part of runs and of stages that end early and begin again."""


@dataclass
class State:
    """What a checkpoint would have: rows of stores by (store, partition), as they were written, and the tasks' memory."""

    stores: dict[tuple[str, int], list[pa.Table]] = field(default_factory=dict)
    tasks: dict[str, Any] = field(default_factory=dict)

    def kept(self, draw: random.Random) -> Kept:
        """What the next run continues from; a random half of the stores gets a new base."""
        deltas = frozenset(place for place in sorted(self.stores) if draw.random() < 0.5)
        return Kept(self.tasks, deltas, {place: sum(map(_count, pieces)) for place, pieces in self.stores.items()})

    def add(self, rows: pa.Table) -> None:
        """Add what the tasks of a stage wrote at the end of a run."""
        for row in rows.filter(pc.equal(rows["topic"], MEMORY)).to_pylist():
            memory = json.loads(row["value"])
            partition = row["partition"]
            for store, (kind, count, _) in memory.pop("state").items():
                mine = pc.and_(pc.equal(rows["topic"], state_of(store)), pc.equal(rows["partition"], partition))
                found = rows.filter(mine)
                assert _count(found) == count
                before = [] if kind == BASE else self.stores[store, partition]
                self.stores[store, partition] = [*before, found]
            self.tasks[row["key"].decode()] = memory

    def frame(self, stores: Iterable[str]) -> pa.Table:
        """The rows of stores as they come before the records of their partition."""
        parts = [arrow_rows.schema().empty_table()]
        for (store, _), pieces in self.stores.items():
            for number, piece in enumerate(pieces if store in stores else ()):
                columns = {name: piece[name] for name in piece.schema.names}
                columns |= {"key": [b"file"] * len(piece), "offset": [number] * len(piece)}
                parts.append(pa.table(columns, arrow_rows.schema()))
        return pa.concat_tables(parts)

    def rows(self) -> dict[tuple[str, int], dict[bytes, bytes]]:
        """The rows of each store at the end."""
        found: dict[tuple[str, int], dict[bytes, bytes]] = {}
        for place, pieces in self.stores.items():
            rows: dict[bytes, bytes | None] = {}
            for table in (unpack(data) for piece in pieces for data in piece["value"].to_pylist()):
                rows.update(zip(table["key"].to_pylist(), table["value"].to_pylist(), strict=True))
            found[place] = {key: value for key, value in rows.items() if value is not None}
        return {place: rows for place, rows in found.items() if rows}


def rows_of(job: Job, topic: str, records: list[dict]) -> pa.Table:
    """The records of a topic as a stage reads them from lines of JSON."""
    lines = [json.dumps(record) for record in records if record["topic"] == topic]
    declared = job.plan.external_topics.get(topic)
    names = (topic,) if declared is None else (topic, declared.entry)
    reading = FileReading(job.pickled, topic, names, job.partitions[topic], {"file": 0}, False)
    batch = pa.RecordBatch.from_pydict(
        {
            "value": lines,
            "_streamkit_file": ["file"] * len(lines),
            "_streamkit_block": [0] * len(lines),
            "_streamkit_row": list(range(len(lines))),
        }
    )
    rows = pa.Table.from_batches(list(read_lines(reading, [batch])), arrow_rows.schema())
    return _sorted(rows, "partition", "source", "offset")


def written_by(job: Job, records: list[dict]) -> list[dict]:
    """What a job of one stage, which reads one topic, writes: rows in their order."""
    (stage,) = job.stages
    (topic,) = stage.inputs
    rows = rows_of(job, topic, records)
    return [row for batch in run_tasks(job._work(stage, None), rows.to_batches()) for row in batch.to_pylist()]


def _count(piece: pa.Table) -> int:
    """The number of rows of a store in a piece."""
    return sum(map(len, map(unpack, piece["value"].to_pylist())))


class InProcess:
    """A plan with records to run it over, all at once or in parts."""

    def __init__(self, plan: Plan, records: list[dict]):
        self._plan = plan
        self._ends = False
        topics = sorted({record["topic"] for record in records})
        self._options = JobOptions(
            {topic: (Place("-", JSON_LINES),) for topic in topics}, {REST: Place("-", JSON_LINES)}, "updates"
        )
        read = {
            topic for sub in plan.sub_topologies for topic in sub.source_topics if topic not in plan.internal_topics
        }
        self._counts = declared_counts(plan, {*topics, *read})
        self._job = Job(plan, self._counts, self._options, None, Kept())
        self._rows = {topic: self._read(topic, records) for topic in topics}
        self._globals = {topic for sub in plan.sub_topologies if sub.is_global for topic in sub.source_topics}

    def _read(self, topic: str, records: list[dict]) -> pa.Table:
        rows = rows_of(self._job, topic, records)
        reader = next((stage for stage in self._job.stages if topic in stage.inputs), None)
        # Tasks start with their global tables, which give no record its place.
        empty = GlobalTables(uuid.uuid4().hex, Inline(pickle.dumps([])), self._job.partitions)
        return rows if reader is None else self._ordered(self._job._work(reader, empty), rows)

    def _ordered(self, work: StageWork, rows: pa.Table) -> pa.Table:
        return pa.Table.from_batches(list(order_rows(work, rows.to_batches())), arrow_rows.schema())

    def parts(self, draw: random.Random, count: int) -> list[dict[str, pa.Table]]:
        """Cut the records into parts so that the order of one task over all is that of the parts; global tables come first."""
        times = sorted({time for rows in self._rows.values() for time in rows["order"].to_pylist() if time is not None})
        bounds = sorted(draw.choice(times) for _ in range(count - 1)) if times else []
        found = []
        for low, high in zip([-2, *bounds], [*bounds, 1 << 62], strict=True):
            part = {}
            for topic, rows in self._rows.items():
                if topic in self._globals:
                    part[topic] = rows
                else:
                    chosen = pc.and_(pc.greater(rows["order"], low), pc.less_equal(rows["order"], high))
                    part[topic] = rows.filter(chosen)
            found.append(part)
        return found

    def run(
        self, parts: list[dict[str, pa.Table]], draw: random.Random, ends: bool = False
    ) -> tuple[list[dict], State]:
        """Run parts one after the other; return all output, and the state at the end. ends: some runs and workers end early."""
        self._ends = ends
        state, output = State(), []
        for part in parts:
            while self._ends and draw.random() < LOST:
                # A driver that is killed before the commit: the next run begins with the same state.
                list(self._run(part, State(dict(state.stores), dict(state.tasks)), draw))
            output += self._run(part, state, draw)
        form = RecordJson(self._plan)
        decoded = []
        for row in output:
            headers = arrow_rows.headers_of(pa.array([row["headers"]], arrow_rows.schema().field("headers").type))[0]
            decoded.append(
                form.decode((row["topic"], row["key"], row["value"], row["timestamp"], headers, row["partition"]))
            )
        return decoded, state

    def _run(self, part: Mapping[str, pa.Table], state: State, draw: random.Random) -> Iterator[dict]:
        job = Job(self._plan, self._counts, self._options, None, state.kept(draw))
        tables = None
        if self._globals:
            found = [batch for topic in sorted(self._globals & part.keys()) for batch in _record_batches(part[topic])]
            tables = GlobalTables(uuid.uuid4().hex, Inline(pickle.dumps(found)), job.partitions)
        rows: dict[str, list[pa.Table]] = {topic: [table] for topic, table in part.items()}
        internal = {self._plan.internal_name(topic) for topic in self._plan.internal_topics}
        written = []
        for stage in job.stages:
            # Stores in memory, or on disk after the first batch.
            work = replace(job._work(stage, tables), spill_bytes=draw.choice((1, 1 << 27)))
            made = self._stage(job, stage, work, rows, state, draw)
            state.add(made)
            for topic in stage.outputs:
                rows.setdefault(topic, []).append(made.filter(pc.equal(made["topic"], topic)))
            written += made.to_pylist()
        return iter(
            row
            for row in written
            if row["topic"] not in internal and row["topic"] != MEMORY and not row["topic"].startswith(_STATE)
        )

    def _stage(
        self, job: Job, stage: Stage, work: StageWork, rows: Mapping[str, list], state: State, draw: random.Random
    ) -> pa.Table:
        stores = [name for sub in self._plan.sub_topologies if sub.id in stage.subs for name in sub.stores]
        inputs = [table for topic in stage.inputs for table in rows.get(topic, ())]
        frame = pa.concat_tables([state.frame(stores), *inputs])
        if len(stage.inputs) > 1 or stage.cyclic:
            external = pc.is_in(
                frame["topic"], pa.array([topic for topic in stage.inputs if topic in self._rows], pa.string())
            )
            order = pc.if_else(external, pa.nulls(len(frame), pa.int64()), frame["order"])
            frame = frame.set_column(arrow_rows.ORDER, arrow_rows.schema().field("order"), order)
            frame = _sorted(frame, "partition", "topic", "source", "offset")
            frame = self._ordered(work, frame)
            first = ("order", "topic", "partition") if stage.cyclic else ("partition", "order", "topic")
            frame = _sorted(frame, *first, "source", "offset")
        elif stage.inputs[0] in self._rows:
            frame = _sorted(frame, "partition", "source", "offset")
        else:
            frame = _sorted(frame, "partition", "order", "source", "offset")
        run = run_cycle if stage.cyclic else run_tasks
        # Batches of the size that Spark sends; they cut runs of records at other places than the parts do.
        batches = frame.combine_chunks().to_batches(max_chunksize=97)
        if self._ends and draw.random() < LOST:
            # A worker that is killed anywhere: Spark runs its tasks again.
            for _ in islice(run(work, batches), draw.randrange(5)):
                pass
        found = list(run(work, batches))
        return pa.Table.from_batches(found, arrow_rows.schema())


def _sorted(rows: pa.Table, *names: str) -> pa.Table:
    return rows.sort_by([(name, "ascending") for name in names])
