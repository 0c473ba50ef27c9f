"""A batch job: inputs to rows, stage after stage over them, rows to outputs."""

from __future__ import annotations

import dataclasses
import pickle
import uuid
from collections.abc import Collection, Mapping
from functools import partial
from typing import TYPE_CHECKING, Any, Protocol

from streamkit.errors import UsageError
from streamkit.plan.model import Plan
from streamkit.plan.partitions import Layout, lay_out
from streamkit.record import TopicPartition
from streamkit.runtime.spark import arrow_rows
from streamkit.runtime.spark.cycle import run_cycle
from streamkit.runtime.spark.final import held_stores, table_topics
from streamkit.runtime.spark.globals import GlobalTables, shipped
from streamkit.runtime.spark.options import JSON_LINES, REST, UPDATES, JobOptions
from streamkit.runtime.spark.order import order_rows
from streamkit.runtime.spark.outbox import Wanted
from streamkit.runtime.spark.session import translated
from streamkit.runtime.spark.split import can_split, together, with_place
from streamkit.runtime.spark.stages import Stage, has_routes, make_stages, refuse_clocks
from streamkit.runtime.spark.worker import OFFSETS, StageWork, run_tasks

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

CHANGELOGS = "changelogs"
"""Among outputs, the final stores; no topic can be called so and be wanted, since internal ones carry a prefix."""


class Inputs(Protocol):
    """Where the records of topics come from."""

    def frame(self, topic: str) -> DataFrame:
        """Return the records of a topic as rows, perhaps without columns that are the same in all of them (arrow_rows.whole)."""

    def direct(self, topic: str, work: StageWork) -> DataFrame | None:
        """Return the output of a stage that reads only this topic, where each partition can go straight into its task."""


def batch_plan(plan: Plan, logging: bool = False, held: Collection[str] = ()) -> Plan:
    """Return a plan for a batch: changelogs only where they are written, caches only for stores of which the end counts."""
    stores = {
        name: dataclasses.replace(
            store,
            caching=name in held,
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
    ):
        refuse_clocks(plan)
        self._ends = ends if options.write_state else None
        self.counts = dict(counts)
        self.options = options
        self.layout: Layout = lay_out(plan, counts)
        self.stages = make_stages(plan, self.layout)
        self._final = table_topics(plan) if options.emit != UPDATES else frozenset()
        held = () if options.write_state else held_stores(plan, self._final_of())
        self.plan = batch_plan(plan, options.write_state, held)
        self.partitions = {**counts, **self.layout.partitions}
        self._changelogs = tuple(topic.name for topic in self.layout.changelogs) if options.write_state else ()
        self._pickled = pickle.dumps(self.plan)
        self._routed = has_routes(plan)
        self._written = {topic: stage for stage in self.stages for topic in stage.outputs}

    @property
    def pickled(self) -> bytes:
        """The plan as it is shipped to workers."""
        return self._pickled

    @property
    def external_outputs(self) -> tuple[str, ...]:
        """The topics that the job writes for others, as far as they are known before."""
        internal = {self.plan.internal_name(topic) for topic in self.plan.internal_topics}
        return tuple(topic for topic in self._written if topic not in internal)

    def pieces(self, stage: Stage) -> int:
        """Return how many Spark tasks a partition of a stage is cut into, by key; 1 where it has to stay whole."""
        pieces = -(-self.options.parallelism // max(1, stage.tasks))
        return 1 if pieces < 2 or not self._can_split(stage) else pieces

    def _can_split(self, stage: Stage) -> bool:
        subs = [sub for sub in self.plan.sub_topologies if sub.id in stage.subs]
        # A task says what it would commit, and one that is cut has no such offset.
        whole = self.options.write_state or self._routed
        # A time to live goes by the stream time of all keys of a partition.
        whole = whole or any(self.plan.stores[name].ttl is not None for sub in subs for name in sub.stores)
        return not whole and can_split(stage, subs, self._read_on())

    def _by_key(self, stage: Stage) -> bool:
        """Return whether a stage runs key by key: where only the last record of each key comes out, order tells nothing."""
        kept = self._kept(stage, self._wanted_outputs())
        topics = stage.outputs if kept is None else kept.intersection(stage.outputs)
        return self._final_of().issuperset(topics) and self._can_split(stage)

    def is_final(self, topic: str) -> bool:
        """Return whether of a topic only the last record of each key counts."""
        return topic in self._final

    def sources(self) -> tuple[str, ...]:
        """Return the topics that are read from outside: what the job itself writes is not, unless it is named as an input."""
        read = dict.fromkeys(topic for stage in self.stages for topic in stage.inputs)
        read.update(dict.fromkeys(self._global_topics()))
        internal = {self.plan.internal_name(topic) for topic in self.plan.internal_topics}
        return tuple(
            topic
            for topic in read
            if topic not in internal and (topic not in self._written or topic in self.options.inputs)
        )

    def build(self, spark: SparkSession, inputs: Inputs) -> dict[str, DataFrame]:
        """Return the rows of every output, by topic on the log; REST for the others, CHANGELOGS and OFFSETS for state."""
        sources = set(self.sources())
        rows: dict[str, list[DataFrame]] = {}
        wanted = self._wanted_outputs()
        rest: list[DataFrame] = []
        state: list[DataFrame] = []
        global_tables = self._global_tables(spark, inputs)
        for stage in self.stages:
            work = self._work(stage, global_tables)
            outputs = None if self.pieces(stage) > 1 else self._directly(stage, work, inputs, rows)
            if outputs is None:
                for topic in sources.intersection(stage.inputs):
                    frame = inputs.frame(topic)
                    # What the job writes as well is joined with rows that have all columns.
                    rows.setdefault(topic, []).append(
                        arrow_rows.whole(frame, topic) if topic in self._written else frame
                    )
                    sources.remove(topic)
                outputs = self._stage(stage, work, rows)
            if work.lines:
                (topic,) = set(stage.outputs).intersection(wanted)
                rows[topic] = [outputs]
                continue
            if self._readers(stage, wanted) > 1:
                outputs = outputs.persist()
            for topic in stage.outputs:
                rows.setdefault(topic, []).append(outputs.filter(outputs.topic == topic))
            state.append(outputs)
            rest.append(outputs.filter(~outputs.topic.isin([*wanted, *self._internal(), *self._changelogs, OFFSETS])))
            if self._routed:
                for topic in set(wanted) - {REST, *self._written}:
                    rows.setdefault(topic, []).append(outputs.filter(outputs.topic == topic))
        found = {topic: _union(rows[topic]) for topic in wanted if topic != REST}
        if REST in wanted:
            found[REST] = _union(rest)
        if self.options.write_state:
            whole = _union(state)
            found[CHANGELOGS] = whole.filter(whole.topic.isin(list(self._changelogs)))
            found[OFFSETS] = whole.filter(whole.topic == OFFSETS)
        return found

    def _wanted_outputs(self) -> tuple[str, ...]:
        if self.options.writes_everything:
            return (*self.external_outputs, *((REST,) if self._routed else ()))
        return tuple(dict.fromkeys((*self.options.outputs, *self.options.compare)))

    def _readers(self, stage: Stage, wanted: tuple[str, ...]) -> int:
        """Return how often the output of a stage is looked at."""
        outputs = set(stage.outputs)
        later = sum(1 for other in self.stages if other is not stage and outputs & set(other.inputs))
        routed = len(set(wanted) - set(self._written)) if self._routed else 0
        return later + len(outputs & set(wanted)) + max(routed, REST in wanted) + 2 * self.options.write_state

    def wanted(self, stage: Stage) -> Wanted:
        """Return which of a stage's output is kept."""
        kept = self._kept(stage, self._wanted_outputs())
        final = self._final_of() | frozenset(self._changelogs)
        return Wanted(self.partitions, kept, final, self._forbidden(stage))

    def _work(self, stage: Stage, tables: GlobalTables | None) -> StageWork:
        sources = {index: self.layout.sources[index] for index in stage.subs}
        lines, by_key = self._writes_lines(stage), self._by_key(stage)
        return StageWork(
            self._pickled, stage, sources, self.wanted(stage), tables, self._ends, lines=lines, by_key=by_key
        )

    def _writes_lines(self, stage: Stage) -> bool:
        """Return whether a stage's output goes into one place as lines of JSON and nowhere else: its tasks write them then."""
        wanted = self._wanted_outputs()
        places = [self.options.outputs.get(topic) for topic in stage.outputs if topic in wanted]
        alone = len(places) == 1 and self._readers(stage, wanted) == 1
        return (
            alone
            and places[0] is not None
            and places[0].format == JSON_LINES
            and not (stage.cyclic or self._routed or REST in wanted)
        )

    def _directly(
        self, stage: Stage, work: StageWork, inputs: Inputs, rows: Mapping[str, list[DataFrame]]
    ) -> DataFrame | None:
        """Return the output of a stage whose only topic has no writer in the job, if it can be read a task a partition."""
        (topic, *others) = stage.inputs
        if others or stage.cyclic or topic in rows or topic in self._internal() or topic in self._written:
            return None
        return inputs.direct(topic, work)

    def _stage(self, stage: Stage, work: StageWork, rows: Mapping[str, list[DataFrame]]) -> DataFrame:
        """Return the output of a stage over the rows of its topics."""
        external = [topic for topic in stage.inputs if topic not in self._internal()]
        alone = len(stage.inputs) == 1 and not stage.cyclic
        frame = _union(
            [each if alone else arrow_rows.whole(each, topic) for topic in stage.inputs for each in rows.get(topic, ())]
        )
        if work.by_key:
            frame = with_place(frame)
        frame = together(frame, 1 if stage.cyclic else max(1, stage.tasks), self.pieces(stage))
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

    def _kept(self, stage: Stage, wanted: tuple[str, ...]) -> frozenset[str] | None:
        if REST in wanted:
            return None
        read = self._read_on()
        state = {*self._changelogs, OFFSETS} if self.options.write_state else set()
        return frozenset(read & set(stage.outputs)) | frozenset(wanted) | state

    def _read_on(self) -> set[str]:
        """Return the topics that stages and global tables read."""
        return {topic for stage in self.stages for topic in stage.inputs} | set(self._global_topics())

    def _final_of(self) -> frozenset[str]:
        """Return the topics of which only the last record of a key counts; those that are read on need them all."""
        read = {topic for other in self.stages for topic in other.inputs}
        return frozenset(topic for topic in self._final if topic not in read)

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
                arrow_rows.whole(inputs.frame(topic), topic)
                .coalesce(1)
                .sortWithinPartitions("partition", "source", "offset")
            )
            with translated():
                batches += _record_batches(frame.toArrow())
        return GlobalTables(uuid.uuid4().hex, shipped(spark, pickle.dumps(batches)), self.partitions)


def _record_batches(table: Any) -> list[tuple]:
    from streamkit.runtime.spark.worker import by_partition, records

    found = []
    offsets: dict[str, int] = {}
    last = None
    for batch in table.to_batches():
        for partition, part in by_partition(batch):
            if partition != last:
                offsets, last = {}, partition
            each = records(part, partition, offsets)
            found.append((each.topic, partition, (each.keys, each.values, each.timestamps, each.headers, each.offsets)))
    return found


def _union(frames: list[DataFrame]) -> DataFrame:
    first, *others = frames
    for frame in others:
        first = first.unionByName(frame)
    return first
