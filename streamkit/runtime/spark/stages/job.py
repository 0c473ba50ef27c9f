"""A batch job as data frames of Spark: the rows of the inputs, of each stage, and of the outputs."""

from __future__ import annotations

import dataclasses
import pickle
import uuid
from collections.abc import Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Protocol

from streamkit.errors import UsageError
from streamkit.plan.model import Plan
from streamkit.plan.partitions import Layout, lay_out
from streamkit.record import TopicPartition
from streamkit.runtime.spark.rows import arrow_rows
from streamkit.runtime.spark.stages.cycle import run_cycle
from streamkit.runtime.spark.stages.final_stores import final_stores, table_topics
from streamkit.runtime.spark.stages.order import order_rows
from streamkit.runtime.spark.stages.split import can_split, repartition, with_place
from streamkit.runtime.spark.stages.stage_plan import Stage, has_routes, make_stages, refuse_clocks
from streamkit.runtime.spark.submission.job_options import JSON_LINES, REST, UPDATES, JobOptions
from streamkit.runtime.spark.submission.spark_session import translated
from streamkit.runtime.spark.workers.globals import GlobalTables, share
from streamkit.runtime.spark.workers.kept_tasks import MEMORY, Kept, state_of
from streamkit.runtime.spark.workers.output_collector import OutputSpec
from streamkit.runtime.spark.workers.worker import OFFSETS, StageWork, run_tasks

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from streamkit.record import Columns

CHANGELOGS = "changelogs"
"""The name, among outputs, of the rows of changelogs. No output topic has it: changelogs have the application as prefix."""

STATE = "rows of stores"
"""The name, among outputs, of the rows of stores for the next run. No topic can have this name."""


class Inputs(Protocol):
    """Gives the records of topics."""

    def frame(self, topic: str) -> DataFrame:
        """Return the records of a topic as rows, which may lack constant columns (arrow_rows.with_all_columns)."""

    def direct(self, topic: str, work: StageWork) -> DataFrame | None:
        """Return the output of a stage that reads only this topic, where its tasks can read their partitions; else None."""

    def state(self, stores: Collection[str]) -> DataFrame | None:
        """Return the rows of stores that the job continues from, in the form of records; None where there are none."""


def batch_plan(plan: Plan, logging: bool = False, final: Collection[str] = ()) -> Plan:
    """Return a plan for a batch: changelogs only with `logging`, caches only for the `final` stores."""
    stores = {
        name: dataclasses.replace(
            store,
            caching=name in final,
            logging=store.logging and logging,
            changelog_topic=store.changelog_topic if logging else None,
        )
        for name, store in plan.stores.items()
    }
    return dataclasses.replace(plan, stores=stores)


class Job:
    """The stages of a plan as Spark's data frames. Raises InvalidTopologyError for what a batch can't run."""

    def __init__(
        self,
        plan: Plan,
        counts: Mapping[str, int],
        options: JobOptions,
        ends: Mapping[TopicPartition, int] | None = None,
        kept: Kept | None = None,
    ):
        refuse_clocks(plan)
        self._kept_state = kept
        self._ends = ends if options.write_state else None
        self.counts = dict(counts)
        self.options = options
        self.layout: Layout = lay_out(plan, counts)
        self.stages = make_stages(plan, self.layout)
        self._table_topics = table_topics(plan) if options.emit != UPDATES else frozenset()
        final = () if options.write_state or kept is not None else final_stores(plan, self._final_topics())
        self.plan = batch_plan(plan, options.write_state, final)
        self.partitions = {**counts, **self.layout.partitions}
        self._changelogs = tuple(topic.name for topic in self.layout.changelogs) if options.write_state else ()
        self._pickled = pickle.dumps(self.plan)
        self._routed = has_routes(plan)
        self._written = {topic: stage for stage in self.stages for topic in stage.outputs}

    @property
    def pickled(self) -> bytes:
        """The plan as it is sent to workers."""
        return self._pickled

    @property
    def external_outputs(self) -> tuple[str, ...]:
        """The external topics that the job writes, those of routes left out."""
        internal = {self.plan.internal_name(topic) for topic in self.plan.internal_topics}
        return tuple(topic for topic in self._written if topic not in internal)

    def pieces(self, stage: Stage) -> int:
        """Return how many Spark tasks a partition of a stage is cut into, by key; 1 where it can't be cut."""
        pieces = -(-self.options.parallelism // max(1, stage.tasks))
        return 1 if pieces < 2 or not self._can_split(stage) else pieces

    def _can_split(self, stage: Stage) -> bool:
        subs = [sub for sub in self.plan.sub_topologies if sub.id in stage.subs]
        # A part of a partition has no offsets to commit.
        if self.options.write_state or self._kept_state is not None or self._routed:
            return False
        # A time to live depends on the stream time of all keys of a partition.
        if any(self.plan.stores[name].ttl is not None for sub in subs for name in sub.stores):
            return False
        return can_split(stage, subs, self._topics_read())

    def _by_key(self, stage: Stage) -> bool:
        """Return whether a stage runs key by key: it writes final records only, whose order has no meaning."""
        kept = self._kept(stage, self._output_names())
        topics = stage.outputs if kept is None else kept.intersection(stage.outputs)
        return self._final_topics().issuperset(topics) and self._can_split(stage)

    def is_final(self, topic: str) -> bool:
        """Return whether the job writes only the final record of each key of a topic."""
        return topic in self._table_topics

    def sources(self) -> tuple[str, ...]:
        """Return the topics that the job reads from files or the log: those that it writes itself only where they are inputs."""
        read = dict.fromkeys(topic for stage in self.stages for topic in stage.inputs)
        read.update(dict.fromkeys(self._global_topics()))
        internal = {self.plan.internal_name(topic) for topic in self.plan.internal_topics}
        return tuple(
            topic
            for topic in read
            if topic not in internal and (topic not in self._written or topic in self.options.inputs)
        )

    def build(self, spark: SparkSession, inputs: Inputs) -> dict[str, DataFrame]:
        """Return the rows of every output, by topic on the log; REST for the others.

        CHANGELOGS and OFFSETS have the state for a live run, STATE and MEMORY that for the next run of the job.
        """
        sources = set(self.sources())
        rows: dict[str, list[DataFrame]] = {}
        names = self._output_names()
        rest: list[DataFrame] = []
        state: list[DataFrame] = []
        global_tables = self._global_tables(spark, inputs)
        for stage in self.stages:
            work = self._work(stage, global_tables)
            before = None if self._kept_state is None else inputs.state(self._stores(stage))
            is_direct = self.pieces(stage) == 1 and before is None
            outputs = self._directly(stage, work, inputs, rows) if is_direct else None
            if outputs is None:
                for topic in sources.intersection(stage.inputs):
                    frame = inputs.frame(topic)
                    # Rows that the job writes to the same topic have all columns.
                    rows.setdefault(topic, []).append(
                        arrow_rows.with_all_columns(frame, topic) if topic in self._written else frame
                    )
                    sources.remove(topic)
                outputs = self._stage(stage, work, rows, before)
            if work.as_json:
                (topic,) = set(stage.outputs).intersection(names)
                rows[topic] = [outputs]
                continue
            if self._readers(stage, names) > 1:
                outputs = outputs.persist()
            carrier = self._carrier(stage, names)
            for topic in stage.outputs:
                chosen = [topic, MEMORY] if topic == carrier else [topic]
                rows.setdefault(topic, []).append(outputs.filter(outputs.topic.isin(chosen)))
            if carrier is None:
                state.append(outputs)
            others = [
                *names,
                *self._internal(),
                *self._changelogs,
                OFFSETS,
                MEMORY,
                *map(state_of, self._stores(stage)),
            ]
            rest.append(outputs.filter(~outputs.topic.isin(others)))
            if self._routed:
                for topic in set(names) - {REST, *self._written}:
                    rows.setdefault(topic, []).append(outputs.filter(outputs.topic == topic))
        found = {topic: _union(rows[topic]) for topic in names if topic != REST}
        if REST in names:
            found[REST] = _union(rest)
        if self.options.write_state:
            all_rows = _union(state)
            found[CHANGELOGS] = all_rows.filter(all_rows.topic.isin(list(self._changelogs)))
            found[OFFSETS] = all_rows.filter(all_rows.topic == OFFSETS)
        if self._kept_state is not None:
            all_rows = _union(state)
            stores = [state_of(name) for stage in self.stages for name in self._stores(stage)]
            found[STATE] = all_rows.filter(all_rows.topic.isin(stores))
            found[MEMORY] = all_rows.filter(all_rows.topic == MEMORY)
        return found

    def _stores(self, stage: Stage) -> list[str]:
        return [name for sub in self.plan.sub_topologies if sub.id in stage.subs for name in sub.stores]

    def _output_names(self) -> tuple[str, ...]:
        if self.options.writes_everything:
            return (*self.external_outputs, *((REST,) if self._routed else ()))
        return tuple(dict.fromkeys((*self.options.outputs, *self.options.compare)))

    def _carrier(self, stage: Stage, names: tuple[str, ...]) -> str | None:
        """Return the topic with whose rows the memory of a stage's tasks goes to the next stage, which passes it on.

        So a stage without stores and with one reader is not read a second time. None where there is no such topic.
        """
        later = [other for other in self.stages if other is not stage and set(stage.outputs) & set(other.inputs)]
        if self._kept_state is None or self._stores(stage) or self._routed or len(later) != 1:
            return None
        if later[0].cyclic or REST in names or not set(names).isdisjoint(stage.outputs):
            return None
        return next(topic for topic in stage.outputs if topic in later[0].inputs)

    def _readers(self, stage: Stage, names: tuple[str, ...]) -> int:
        """Return how many times the output of a stage is read."""
        outputs = set(stage.outputs)
        later = sum(1 for other in self.stages if other is not stage and outputs & set(other.inputs))
        routed = len(set(names) - set(self._written)) if self._routed else 0
        is_kept = self._kept_state is not None and self._carrier(stage, names) is None
        state = 2 * self.options.write_state + 2 * is_kept
        return later + len(outputs & set(names)) + max(routed, REST in names) + state

    def output_spec(self, stage: Stage) -> OutputSpec:
        """Return which records of a stage's output are kept."""
        kept = self._kept(stage, self._output_names())
        final = self._final_topics() | frozenset(self._changelogs)
        return OutputSpec(self.partitions, kept, final, self._forbidden(stage))

    def _work(self, stage: Stage, tables: GlobalTables | None) -> StageWork:
        as_json, by_key = self._writes_json(stage), self._by_key(stage)
        output = self.output_spec(stage)
        return StageWork(
            self._pickled,
            stage,
            self.layout,
            output,
            tables,
            self._ends,
            as_json=as_json,
            by_key=by_key,
            kept=self._kept_state,
        )

    def _writes_json(self, stage: Stage) -> bool:
        """Return whether lines of JSON in one place are the only output of a stage: then its tasks make the lines."""
        names = self._output_names()
        places = [self.options.outputs.get(topic) for topic in stage.outputs if topic in names]
        alone = len(places) == 1 and self._readers(stage, names) == 1
        return (
            alone
            and places[0] is not None
            and places[0].format == JSON_LINES
            and not (stage.cyclic or self._routed or REST in names)
        )

    def _directly(
        self, stage: Stage, work: StageWork, inputs: Inputs, rows: Mapping[str, list[DataFrame]]
    ) -> DataFrame | None:
        """Return the output of a stage whose only topic the job does not write, where its tasks can read their partitions."""
        (topic, *others) = stage.inputs
        if others or stage.cyclic or topic in rows or topic in self._internal() or topic in self._written:
            return None
        return inputs.direct(topic, work)

    def _stage(
        self, stage: Stage, work: StageWork, rows: Mapping[str, list[DataFrame]], before: DataFrame | None
    ) -> DataFrame:
        """Return the output of a stage over the rows of its topics, after the rows of its stores from `before`."""
        external = [topic for topic in stage.inputs if topic not in self._internal()]
        alone = len(stage.inputs) == 1 and not stage.cyclic
        frames = [
            each if alone and before is None else arrow_rows.with_all_columns(each, topic)
            for topic in stage.inputs
            for each in rows.get(topic, ())
        ]
        frame = _union(frames if before is None else [before, *frames])
        if work.by_key:
            frame = with_place(frame)
        frame = repartition(frame, 1 if stage.cyclic else max(1, stage.tasks), self.pieces(stage))
        if not alone:
            if external:
                frame = frame.sortWithinPartitions("partition", "topic", "source", "offset")
                frame = frame.mapInArrow(partial(order_rows, work), arrow_rows.DDL)
            first = ("order", "topic", "partition") if stage.cyclic else ("partition", "order", "topic")
            frame = frame.sortWithinPartitions(*first, "source", "offset")
        else:
            order = [
                arrow_rows.PLACE if work.by_key else "partition",
                *(() if external else ("order",)),
                "source",
                "offset",
            ]
            frame = frame.sortWithinPartitions(*(name for name in order if name in frame.columns))
        run = run_cycle if stage.cyclic else run_tasks
        return frame.mapInArrow(partial(run, work), work.ddl)

    def _kept(self, stage: Stage, names: tuple[str, ...]) -> frozenset[str] | None:
        if REST in names:
            return None
        read = self._topics_read()
        state = {*self._changelogs, OFFSETS} if self.options.write_state else set()
        return frozenset(read & set(stage.outputs)) | frozenset(names) | state

    def _topics_read(self) -> set[str]:
        """Return the topics that stages and global tables read."""
        return {topic for stage in self.stages for topic in stage.inputs} | set(self._global_topics())

    def _final_topics(self) -> frozenset[str]:
        """Return the topics that get only the final record of each key: topics of tables that no stage reads."""
        read = {topic for other in self.stages for topic in other.inputs}
        return frozenset(topic for topic in self._table_topics if topic not in read)

    def _forbidden(self, stage: Stage) -> frozenset[str]:
        if not self._routed:
            return frozenset()
        read = {topic for topics in self.layout.sources.values() for topic in topics} | set(self._global_topics())
        return frozenset(read - set(stage.outputs))

    def _internal(self) -> set[str]:
        return {self.plan.internal_name(topic) for topic in self.plan.internal_topics}

    def _global_topics(self) -> tuple[str, ...]:
        return tuple(topic for sub in self.plan.sub_topologies if sub.is_global for topic in sub.source_topics)

    def _global_tables(self, spark: SparkSession, inputs: Inputs) -> GlobalTables | None:
        """Read the topics of global tables and send them to all workers."""
        topics = self._global_topics()
        if not topics:
            return None
        written = [topic for topic in topics if topic in self._written]
        if written:
            raise UsageError(
                f"the file writes topic {written[0]} and reads it as a global table: a batch job reads global tables "
                "before anything else; submit the part that writes it first"
            )
        batches = []
        for topic in topics:
            frame = (
                arrow_rows.with_all_columns(inputs.frame(topic), topic)
                .coalesce(1)
                .sortWithinPartitions("partition", "source", "offset")
            )
            with translated():
                batches += _record_batches(frame.toArrow())
        return GlobalTables(uuid.uuid4().hex, share(spark, pickle.dumps(batches)), self.partitions)


def _record_batches(table: pa.Table) -> list[tuple[str, int, Columns]]:
    from streamkit.runtime.spark.workers.worker import by_partition, records

    found: list[tuple[str, int, Columns]] = []
    offsets: dict[tuple[str, int], int] = {}
    for batch in table.to_batches():
        for partition, part in by_partition(batch):
            each = records(part, partition, offsets)
            found.append((each.topic, partition, each.columns))
    return found


def _union(frames: list[DataFrame]) -> DataFrame:
    first, *others = frames
    for frame in others:
        first = first.unionByName(frame)
    return first
