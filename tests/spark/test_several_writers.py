"""Topics that several pipelines, routes and dead letters write: a job loses no record of theirs, doubles none, and keeps their order.

In this process a job is built of frames that do what Spark does between stages. Some of the cases run on Spark itself.
"""

from __future__ import annotations

import json
import os
import random
from collections.abc import Collection, Iterable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest

from streamkit.plan import load
from streamkit.plan.model import Plan
from streamkit.record import TopicPartition
from streamkit.runtime.records import RecordJson
from streamkit.runtime.spark.job import STATE, Job
from streamkit.runtime.spark.job_options import JSON_LINES, REST, JobOptions, Layout, Place
from streamkit.runtime.spark.rows.file_outputs import write_lines
from streamkit.runtime.spark.rows.log_rows import Address
from streamkit.runtime.spark.rows.topic_inputs import FileReading, read_lines
from streamkit.runtime.spark.submission.incremental import submit_next
from streamkit.runtime.spark.submission.submit_job import declared_counts, submit
from streamkit.runtime.spark.workers import arrow_rows
from streamkit.runtime.spark.workers.kept_tasks import MEMORY
from streamkit.runtime.spark.workers.output_collector import LINE, LINES_DDL
from streamkit.runtime.spark.workers.worker import StageWork, run_tasks
from tests.spark.frames import Frame, Session, with_place
from tests.spark.in_process import State
from tests.spark.several_writers import LOG, MIDDLE, OUTPUTS, Case, drawn
from tests.spark.support import tried
from tests.spark.support import write_lines as write_file

CASES = int(os.environ.get("STREAMKIT_WRITERS_CASES", "30"))
ON_SPARK = int(os.environ.get("STREAMKIT_WRITERS_ON_SPARK", "3"))
FIRST = int(os.environ.get("STREAMKIT_WRITERS_FIRST", "0"))


@pytest.mark.parametrize("seed", range(FIRST, FIRST + CASES))
def test_the_records_of_all_writers(seed: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("streamkit.runtime.spark.job.with_place", with_place)
    case = drawn(seed)
    path = tmp_path / "topology.yaml"
    path.write_text(case.text, encoding="utf-8")
    check(case, tried(path, case.records), list(_InProcess(load(path), case, random.Random(seed)).run()))


@pytest.mark.parametrize("seed", range(10_000 + FIRST, 10_000 + FIRST + ON_SPARK))
def test_the_records_of_all_writers_on_spark(seed: int, spark: Any, tmp_path: Path) -> None:
    case = drawn(seed)
    path = tmp_path / "topology.yaml"
    path.write_text(case.text, encoding="utf-8")
    check(case, tried(path, case.records), list(_run_on_spark(spark, path, case, tmp_path)))


# -- Comparing -------------------------------------------------------------------------------------------------------


def check(case: Case, want: Iterable[dict], have: Iterable[dict]) -> None:
    """Check the records of the outputs: those of `try`, those of a key and a writer in its order."""
    names = set(case.outputs)
    written = {*names - {REST}, *(OUTPUTS if REST in names or not names else ())}

    def is_written(topic: str) -> bool:
        return (
            topic in written
            or (topic == MIDDLE and (REST in names or not names))
            or (topic == "free" and REST in names)
        )

    expected = _by_writer(case, (record for record in want if is_written(record["topic"]) or not names))
    found = _by_writer(case, have)
    assert {place: list(rows) for place, rows in found.items()} == {
        place: list(rows) for place, rows in expected.items()
    }, case


def _by_writer(case: Case, records: Iterable[dict]) -> dict[tuple[str, str, str], list]:
    """The values and times of records by topic, key and writer; their order only where one writer has written them."""
    found: dict[tuple[str, str, str], list] = {}
    for record in records:
        topic, value = record["topic"], record["value"]
        found.setdefault((topic, json.dumps(record["key"]), value[:3]), []).append((record["timestamp"], value))
    for place, rows in found.items():
        if (place[0], place[2]) in case.final:
            del rows[:-1]
        elif not case.ordered or place[0] in case.unsigned:
            rows.sort()
        else:
            # Of what follows from one record on several ways, any may come first.
            assert [time for time, _ in rows] == sorted(time for time, _ in rows), place
            rows.sort()
    return found


# -- In this process ---------------------------------------------------------------------------------------------------


class _InProcess:
    """Runs the job of a case in parts, each from the state of the one before."""

    def __init__(self, plan: Plan, case: Case, draw: random.Random):
        self._plan, self._case, self._draw = plan, case, draw
        places = {name: None if form == LOG else Place("-", form) for name, form in case.outputs.items()}
        inputs = {} if case.from_log else {topic: (Place("-", JSON_LINES),) for topic in case.inputs}
        self._options = JobOptions(inputs, places, case.emit)
        read = [topic for sub in plan.sub_topologies for topic in sub.source_topics]
        self._counts = declared_counts(
            plan, {*(topic for topic in read if topic not in plan.internal_topics), *case.inputs}
        )

    def run(self) -> Iterator[dict]:
        """Yield all that the runs write, output after output."""
        case, state = self._case, State()
        parts = max(1, case.runs)
        size = -(-len(case.records) // parts)
        offsets: dict[tuple[str, int], int] = {}
        for number in range(parts):
            kept = state.kept(self._draw) if case.runs else None
            job = Job(self._plan, self._counts, self._options, None, kept)
            inputs = _Inputs(job, case, case.records[number * size : (number + 1) * size], offsets, self._draw, state)
            outputs = job.build(Session(), inputs)  # type: ignore[arg-type]
            if case.runs:
                state.add(pa.concat_tables([*outputs[STATE].tables, *outputs[MEMORY].tables]))  # type: ignore[attr-defined]
            for name, frame in outputs.items():
                if name not in (STATE, MEMORY):
                    yield from self._records(name, frame, job.pickled)

    def _records(self, name: str, frame: Any, plan: bytes) -> Iterator[dict]:
        place = self._options.outputs.get(name)
        if place is not None and place.format == JSON_LINES:
            lines = frame if frame.columns == [LINE] else frame.mapInArrow(partial(write_lines, plan), LINES_DDL)
            yield from (json.loads(row[LINE]) for row in lines.rows())
            return
        form = RecordJson(self._plan)
        for row in frame.rows():
            yield form.decode((row["topic"], row["key"], row["value"], row["timestamp"], None, row["partition"]))


class _Inputs:
    """The records of a case as rows of files or of the log (job.Inputs)."""

    def __init__(
        self,
        job: Job,
        case: Case,
        records: list[dict],
        offsets: dict[tuple[str, int], int],
        draw: random.Random,
        state: State,
    ):
        self._job, self._case, self._draw, self._state = job, case, draw, state
        self._tables = {topic: self._table(topic, records, offsets) for topic in case.inputs}

    def _table(self, topic: str, records: list[dict], offsets: dict[tuple[str, int], int]) -> pa.Table:
        lines = [json.dumps(record) for record in records if record["topic"] == topic]
        reading = FileReading(self._job.pickled, topic, (topic,), self._job.partitions[topic], {"file": 0}, False)
        columns = {
            "value": pa.array(lines, pa.string()),
            "_streamkit_file": pa.array(["file"] * len(lines), pa.string()),
            "_streamkit_block": pa.array([0] * len(lines), pa.int64()),
            "_streamkit_row": pa.array(range(len(lines)), pa.int64()),
        }
        batches = list(read_lines(reading, [pa.RecordBatch.from_pydict(columns)]))
        rows = pa.Table.from_batches(batches, arrow_rows.schema())
        if not self._case.from_log:
            return rows
        found = rows.to_pylist()
        for row in found:
            place = topic, row["partition"]
            offsets[place] = offsets.get(place, -1) + 1
            row.update(source=0, offset=offsets[place])
        return pa.Table.from_pylist(found, arrow_rows.schema())

    def frame(self, topic: str) -> Any:
        return Frame([self._tables[topic]], self._draw)

    def direct(self, topic: str, work: StageWork) -> Any:
        if not self._case.from_log:
            return None
        rows = self._tables[topic]
        parts = [rows.filter(pc.equal(rows["partition"], number)) for number in range(self._job.partitions[topic])]
        return Frame(parts, self._draw).mapInArrow(partial(run_tasks, work), work.ddl)

    def state(self, stores: Collection[str]) -> Any:
        found = self._state.frame(stores)
        return Frame([found], self._draw) if len(found) else None


# -- On Spark ------------------------------------------------------------------------------------------------------------


def _run_on_spark(spark: Any, path: Path, case: Case, folder: Path) -> Iterator[dict]:
    """Run the job of a case, and yield what it has written to files and to the log on disk."""
    plan = load(path, overrides={"state.dir": str(folder / "log")})
    address = Address.of(plan)
    places = {
        name: None
        if form == LOG
        else Place(str(folder / "out" / name.replace("*", "rest")), form, layout=Layout(form != JSON_LINES))
        for name, form in case.outputs.items()
    }
    inputs = {}
    for topic in case.inputs:
        (folder / topic).mkdir()
        inputs[topic] = (Place(str(folder / topic), JSON_LINES),)
    parts = max(1, case.runs)
    size = -(-len(case.records) // parts)
    for number in range(parts):
        records = case.records[number * size : (number + 1) * size]
        for topic in case.inputs:
            write_file(folder / topic / f"{number:03}.jsonl", [each for each in records if each["topic"] == topic])
        if case.runs:
            options = JobOptions(inputs, places, case.emit, checkpoint=str(folder / "checkpoint"))
            submit_next(plan, options, spark)
        else:
            submit(plan, JobOptions(inputs, places, case.emit), spark)
    form = RecordJson(plan)
    for place in places.values():
        if place is None:
            continue
        for run in sorted(Path(place.path).glob("run=*")) if case.runs else [Path(place.path)]:
            if place.format == JSON_LINES:
                for part in sorted(run.glob("part-*")):
                    yield from map(json.loads, part.read_text(encoding="utf-8").splitlines())
                continue
            for row in _in_file_order(run):
                yield form.decode((row["topic"], row["key"], row["value"], row["timestamp"], None, row["partition"]))
    if not places or None in places.values():
        yield from _on_the_log(address, form)


def _in_file_order(folder: Path) -> Iterator[Mapping[str, Any]]:
    from pyarrow.parquet import ParquetFile

    for part in sorted(folder.glob("part-*.parquet")):
        yield from ParquetFile(part).read().to_pylist()


def _on_the_log(address: Address, form: RecordJson) -> Iterator[dict]:
    with address.admin() as admin:
        places = [TopicPartition(topic, at) for topic, count in admin.partition_counts().items() for at in range(count)]
    with address.consumer() as consumer:
        ends = consumer.end_offsets(places)
        consumer.assign(dict.fromkeys(places, 0))
        while any(consumer.position(place) < ends[place] for place in places):
            for batch in consumer.poll(1000, 1000):
                for key, value, time, _, _ in zip(*batch.columns, strict=True):
                    yield form.decode((batch.topic, key, value, time, None, batch.partition))
