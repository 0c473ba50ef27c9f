"""A batch job as data frames of Spark: the rows of the inputs, of each stage, and of the outputs."""

from __future__ import annotations

import pickle
import uuid
from collections.abc import Collection, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field, replace
from functools import partial
from types import MappingProxyType
from typing import TYPE_CHECKING, Protocol

from streamkit.config import Config
from streamkit.errors import UsageError
from streamkit.operators.codegen.code_writer import ProcessorNode
from streamkit.operators.core.operator import PassThrough, TablePassThrough
from streamkit.operators.steps.aggregations.aggregate_node import StreamAggregate
from streamkit.operators.steps.stateless.filter import Filter
from streamkit.operators.steps.stateless.flat_map_values import FlatMapValues
from streamkit.operators.steps.stateless.map_values import MapValues, TableMapValues
from streamkit.operators.steps.tables.to_stream import ToStream
from streamkit.plan.model import Plan, PlanNode, SinkNode, SourceNode, SubTopology
from streamkit.plan.partitions import Layout, lay_out
from streamkit.record import TopicPartition
from streamkit.runtime.spark.job_options import AUTO, JSON_LINES, PYTHON, REST, UPDATES, JobOptions
from streamkit.runtime.spark.rows.files import OpenedInput
from streamkit.runtime.spark.rows.output_columns import layout_of
from streamkit.runtime.spark.spark_session import classic_context, share, translated
from streamkit.runtime.spark.sql.sources import InputColumns, TaskSource
from streamkit.runtime.spark.sql.stages import SQL, Choice, Outputs, choose_engines
from streamkit.runtime.spark.stage_plan import (
    Stage,
    dead_letter_topics,
    expressions_of,
    final_stores,
    has_routes,
    make_stages,
    refuse_clocks,
    refuse_headed_buffers,
    table_topics,
)
from streamkit.runtime.spark.work_names import WorkName, input_name, named, output_name, planned
from streamkit.runtime.spark.workers import arrow_rows
from streamkit.runtime.spark.workers.cycle import run_cycle
from streamkit.runtime.spark.workers.kept_tasks import MEMORY, Kept, state_of
from streamkit.runtime.spark.workers.output_collector import OutputSpec
from streamkit.runtime.spark.workers.task_stores import SpillingStores
from streamkit.runtime.spark.workers.worker import (
    OFFSETS,
    Drops,
    GlobalTables,
    Inline,
    StageWork,
    by_partition,
    by_topic,
    load,
    new_task,
    order_rows,
    records,
    run_tasks,
)

if TYPE_CHECKING:
    import pyarrow as pa
    from pyspark.sql import DataFrame, SparkSession

    from streamkit.record import Columns

CHANGELOGS = "changelogs"
"""The name, among outputs, of the rows of changelogs. No output topic has it: changelogs have the application as prefix."""

_FIRST_MAP = "spark.sql.codegen.aggregate.map.twolevel.enabled"
"""Spark looks for each group in a map of 65,536 first, for which it copies texts. Windows often make more groups."""
_ALL_KEYS = "spark.sql.requireAllClusterKeysForCoPartition"
"""Spark moves both sides of a join again, by all that must be equal, though each key is in one task. That separates pairs of a key."""
_ONE_BY_ONE = "spark.sql.unionOutputPartitioning"
"""A union of inputs with one task each gets a single task from Spark. Those of merged streams stay apart, and follow each other."""

STATE = "rows of stores"
"""The name, among outputs, of the rows of stores for the next run. No topic can have this name."""


class Inputs(Protocol):
    """Gives the records of topics."""

    def frame(self, topic: str) -> DataFrame:
        """Return the records of a topic as rows, which may lack constant columns (arrow_rows.with_all_columns)."""

    def opened(self, topic: str) -> OpenedInput:
        """Return the one input of a topic, for a stage that runs as a query."""

    def direct(self, topic: str, work: StageWork) -> DataFrame | None:
        """Return the output of a stage that reads only this topic, if its tasks can read their partitions; else None."""

    def state(self, stores: Collection[str]) -> DataFrame | None:
        """Return the rows of stores that the job continues from, in the form of records; None if there are none."""


def batch_plan(plan: Plan, logging: bool, final: Collection[str]) -> Plan:
    """Return a plan for a batch: changelogs only with `logging`, caches only for the `final` stores."""
    stores = {
        name: replace(
            store,
            caching=name in final,
            logging=store.logging and logging,
            changelog_topic=store.changelog_topic if logging else None,
        )
        for name, store in plan.stores.items()
    }
    return replace(plan, stores=stores)


@dataclass
class _Rows:
    """The rows of a job while it is built, by topic: those that stages write are read and written apart."""

    written: dict[str, list[DataFrame]]
    """What the job writes to each of its outputs; lines if the stages make lines."""
    read: dict[str, list[DataFrame]] = field(default_factory=dict)
    """What later stages read: rows from outside and those of earlier stages."""
    opened: set[str] = field(default_factory=set)
    """The topics from outside that are among them."""
    state: list[DataFrame] = field(default_factory=list)
    """The output of stages, which has the rows of their state."""


class Job:
    """The stages of a plan as Spark's data frames. Raises InvalidTopologyError for what a batch can't run."""

    def __init__(
        self,
        plan: Plan,
        counts: Mapping[str, int],
        options: JobOptions,
        ends: Mapping[TopicPartition, int] | None = None,
        kept: Kept | None = None,
        columns: Mapping[str, Sequence[InputColumns] | None] = MappingProxyType({}),
    ):
        refuse_clocks(plan)
        if options.write_state or kept is not None:
            refuse_headed_buffers(plan)
        self._source_plan = plan
        self._columns = columns
        self._kept_state = kept
        self._ends = ends if options.write_state else None
        self._drops: Drops | None = None
        self.counts = dict(counts)
        self.options = options
        self.layout: Layout = lay_out(plan, counts)
        self.stages = make_stages(plan, self.layout)
        self._table_topics = table_topics(plan) if options.emit != UPDATES else frozenset()
        final = () if options.write_state or kept is not None else final_stores(plan, self.final_topics())
        self.plan = batch_plan(plan, options.write_state, final)
        self.partitions = {**counts, **self.layout.partitions}
        self._changelogs = tuple(topic.name for topic in self.layout.changelogs) if options.write_state else ()
        # A changelog has a record for each row of its store, but for one of versions: all versions of a key have its key.
        versions = {plan.changelog_name(store.name) for store in plan.stores.values() if store.type == "versioned"}
        self._final_changelogs = frozenset(self._changelogs) - versions
        self._pickled = pickle.dumps(self.plan)
        self._routing = [stage for stage in self.stages if any(map(has_routes, self._subs(stage)))]
        """The stages in which records choose their topics."""
        self._written = dict.fromkeys(topic for stage in self.stages for topic in stage.outputs)
        self.engines = self._engines()
        """The engine of each stage, by its number."""
        self._sent = {topic: sent for choice in self.engines.values() for topic, sent in choice.sent.items()}
        """The records that queries send to stages in Python, by topic."""

    @property
    def pickled(self) -> bytes:
        """The plan as it is sent to workers."""
        return self._pickled

    @property
    def external_outputs(self) -> tuple[str, ...]:
        """The external topics that the job writes, those of routes left out."""
        return tuple(topic for topic in self._written if topic not in self.plan.internal_names)

    def dropped(self) -> list[str]:
        """Return a line for each sub-topology and reason for which its tasks dropped records; complete once the outputs are written."""
        return [] if self._drops is None else self._drops.describe()

    def in_python(self) -> Job:
        """Return the same job with all stages in Python."""
        options = replace(self.options, engine=PYTHON)
        return Job(self._source_plan, self.counts, options, self._ends, self._kept_state)

    @property
    def settings(self) -> dict[str, str]:
        """The settings of Spark with which its queries take less time."""
        queries = [query for choice in self.engines.values() for query in choice.queries.values()]
        uses = {
            _FIRST_MAP: any(query.has_windows for query in queries),
            _ALL_KEYS: any(query.has_pairs for query in queries),
            _ONE_BY_ONE: any(query.others for query in queries),
        }
        return {name: "false" for name, is_used in uses.items() if is_used}

    def _engines(self) -> dict[int, Choice]:
        reason = self._only_python()
        if reason is not None:
            return {stage.number: Choice(PYTHON, reason) for stage in self.stages}
        refusals = {
            topic: refusal for topic in self.external_outputs if (refusal := self._only_rows(topic)) is not None
        }
        places = {topic: place for topic, place in self.options.outputs.items() if place and topic not in refusals}
        layouts = {topic: layout_of(self.plan, topic, place) for topic, place in places.items()}
        columns = {topic: known for topic, known in self._columns.items() if topic not in self._written}
        outputs = Outputs(layouts, refusals, self.final_topics())
        return choose_engines(self.plan, self.stages, columns, outputs, self.partitions)

    def _only_python(self) -> str | None:
        """Return why no stage of the job is a query; None if one may be."""
        options, config = self.options, self.plan.config
        if options.engine != AUTO:
            return f"--engine {options.engine}"
        reasons = {
            "the job keeps the state of stores": options.write_state
            or self._kept_state is not None
            or options.state_only,
            "the job compares its records with those of the log": bool(options.compare),
            "the job writes every update": options.emit == UPDATES,
            "records choose their topics": bool(self._routing) or REST in options.outputs,
            "max.request.size limits the records between steps": config.max_request_size is not None,
            "expression.max.bytes is below its default": config.expression_max_bytes
            < Config.expression_max_bytes.default,
            "expression.max.steps is below its default": config.expression_max_steps
            < Config.expression_max_steps.default,
        }
        return next((reason for reason, holds in reasons.items() if holds), None)

    def _only_rows(self, topic: str) -> str | None:
        """Return why the records of an output are made by Python; None if a query may write it."""
        place = self.options.outputs.get(topic)
        if place is None:
            return f"{topic} goes to the log" if topic in self._output_names() else f"{topic} is not written"
        if place.format == JSON_LINES or place.layout.as_log or place.is_table:
            form = (
                "lines of JSON" if place.format == JSON_LINES else "a table" if place.is_table else "bytes of the log"
            )
            return f"the output {topic} is {form}; format=parquet has columns"
        if topic in self._topics_read():
            return f"the job reads {topic}, which it writes"
        if len(self._writers(topic)) > 1:
            return f"several steps write {topic}"
        return None

    def _writers(self, topic: str) -> list[str]:
        """Return the steps that write a topic, by the names of their nodes, and its sub-topologies' dead letters."""
        subs = self.plan.sub_topologies
        nodes = (node for sub in subs for node in sub.nodes.values())
        sinks = [node.name for node in nodes if isinstance(node, SinkNode) and node.topic == topic]
        return [*sinks, *(f"dead letters of {sub.id}" for sub in subs if topic in dead_letter_topics(self.plan, sub))]

    def pieces(self, stage: Stage) -> int:
        """Return how many Spark tasks a partition of a stage is cut into, by key; 1 if it can't be cut."""
        pieces = -(-self.options.parallelism // max(1, stage.tasks))
        return 1 if pieces < 2 or not self._can_split(stage) or self._reads_tasks(stage) else pieces

    def _can_split(self, stage: Stage) -> bool:
        subs = self._subs(stage)
        # A part of a partition has no offsets to commit.
        if self.options.write_state or self._kept_state is not None or self._routing:
            return False
        # A time to live depends on the stream time of all keys of a partition.
        if any(self.plan.stores[name].ttl is not None for sub in subs for name in sub.stores) or self._merges(stage):
            return False
        return can_split(stage, subs, self._topics_read())

    def _by_key(self, stage: Stage) -> bool:
        """Return whether a stage runs key by key: it writes final records only, whose order has no meaning."""
        kept = self._kept(stage, self._output_names())
        topics = stage.outputs if kept is None else kept.intersection(stage.outputs)
        return bool(topics) and self.final_topics().issuperset(topics) and self._can_split(stage)

    def is_final(self, topic: str) -> bool:
        """Return whether the job writes only the final record of each key of a topic."""
        return topic in self._table_topics

    def sources(self) -> tuple[str, ...]:
        """Return the topics that the job reads from files or the log: those that it writes itself only if they are inputs."""
        read = dict.fromkeys(topic for stage in self.stages for topic in stage.inputs)
        read.update(dict.fromkeys(self.plan.global_topics))
        return tuple(topic for topic in read if self._from_outside(topic))

    def build(self, spark: SparkSession, inputs: Inputs) -> dict[str, DataFrame]:
        """Return the rows of every output, by topic on the log; REST for the others.

        CHANGELOGS and OFFSETS have the state for a live run, STATE and MEMORY that for the next run of the job.
        """
        names = self._output_names()
        context = classic_context(spark)
        # Spark Connect has no accumulators.
        self._drops = None if context is None else Drops.of(context)
        rows = _Rows({topic: [] for topic in names})
        in_python = {number for number, choice in self.engines.items() if choice.engine != SQL}
        global_tables = self._global_tables(spark, inputs) if in_python else None
        for stage in self.stages:
            choice = self.engines[stage.number]
            if choice.engine == SQL:
                opened = partial(self._opened, spark, inputs, rows)
                for topic, query in choice.queries.items():
                    rows.written[topic].append(query.frame(opened))
                for topic, sent in choice.sent.items():
                    readers = [other for other in self.stages if topic in other.inputs and other.number in in_python]
                    frame = sent.frame(inputs.opened, self._pickled)
                    rows.read.setdefault(topic, []).append(frame.persist() if len(readers) > 1 else frame)
                continue
            work = self._work(stage, global_tables)
            before = None if self._kept_state is None else inputs.state(self._stores(stage))
            is_direct = self.pieces(stage) == 1 and before is None
            outputs = self._directly(stage, work, inputs, rows) if is_direct else None
            if outputs is None:
                self._open(stage, inputs, rows)
                if before is None and not any(rows.read.get(topic) for topic in stage.inputs):
                    continue  # It reads only what it writes itself: nothing.
                outputs = self._stage(spark, stage, work, rows.read, before)
            if work.as_json:
                (topic,) = set(stage.outputs).intersection(names)
                rows.written[topic].append(outputs)
                continue
            if self._readers(stage, names) > 1:
                outputs = outputs.persist()
            self._add(rows, stage, outputs, names)
        frames = {topic: _union(rows.written[topic], spark) for topic in names}
        if self.options.write_state:
            all_rows = _union(rows.state, spark)
            frames[CHANGELOGS] = all_rows.filter(all_rows.topic.isin(list(self._changelogs)))
            frames[OFFSETS] = all_rows.filter(all_rows.topic == OFFSETS)
        if self._kept_state is not None:
            all_rows = _union(rows.state, spark)
            stores = [state_of(name) for stage in self.stages for name in self._stores(stage)]
            frames[STATE] = all_rows.filter(all_rows.topic.isin(stores))
            frames[MEMORY] = all_rows.filter(all_rows.topic == MEMORY)
        return frames

    def _opened(self, spark: SparkSession, inputs: Inputs, rows: _Rows, topic: str) -> OpenedInput:
        """Return the input of a topic for a query: from outside, or what stages in Python have written to it."""
        if self._from_outside(topic):
            return inputs.opened(topic)
        return TaskSource.opened(topic, _union(rows.read.get(topic, []), spark))

    def _open(self, stage: Stage, inputs: Inputs, rows: _Rows) -> None:
        """Open the topics from outside that a stage reads, unless an earlier stage has opened them."""
        for topic in stage.inputs:
            if topic in rows.opened or not self._from_outside(topic):
                continue
            rows.opened.add(topic)
            frame = inputs.frame(topic)
            # Rows that the job writes to the same topic have all columns.
            whole = arrow_rows.with_all_columns(frame, topic) if topic in self._written else frame
            rows.read.setdefault(topic, []).append(whole)

    def _add(self, rows: _Rows, stage: Stage, outputs: DataFrame, names: tuple[str, ...]) -> None:
        """Add the output of a stage to what later stages read, and to what the job writes."""
        carrier = self._carrier(stage, names)
        for topic in stage.outputs:
            chosen = [topic, MEMORY] if topic == carrier else [topic]
            rows.read.setdefault(topic, []).append(outputs.filter(outputs.topic.isin(chosen)))
        if carrier is None:
            rows.state.append(outputs)
        for topic in self._own_names(stage, names):
            rows.written[topic].append(outputs.filter(outputs.topic == topic))
        if REST in names:
            stores = map(state_of, self._stores(stage))
            others = [*names, *self.plan.internal_names, *self._changelogs, OFFSETS, MEMORY, *stores]
            rows.written[REST].append(outputs.filter(~outputs.topic.isin(others)))

    def _own_names(self, stage: Stage, names: tuple[str, ...]) -> list[str]:
        """Return the named outputs that a stage may write; a route may choose any of them."""
        routed = stage in self._routing
        return [topic for topic in names if topic != REST and (routed or topic in stage.outputs)]

    def _from_outside(self, topic: str) -> bool:
        """Return whether a topic is read from files or the log; one that the job writes too only if it is an input."""
        return topic not in self.plan.internal_names and (topic not in self._written or topic in self.options.inputs)

    def _subs(self, stage: Stage) -> list[SubTopology]:
        return [sub for sub in self.plan.sub_topologies if sub.id in stage.subs]

    def _stores(self, stage: Stage) -> list[str]:
        return [name for sub in self._subs(stage) for name in sub.stores]

    def _output_names(self) -> tuple[str, ...]:
        if self.options.writes_everything:
            return (*self.external_outputs, *((REST,) if self._routing else ()))
        return tuple(dict.fromkeys((*self.options.outputs, *self.options.compare)))

    def _carrier(self, stage: Stage, names: tuple[str, ...]) -> str | None:
        """Return the topic with whose rows the memory of a stage's tasks goes to the next stage, which passes it on.

        So a stage without stores and with one reader is not read a second time. None if there is no such topic.
        """
        later = [other for other in self.stages if other is not stage and set(stage.outputs) & set(other.inputs)]
        if self._kept_state is None or self._stores(stage) or self._routing or len(later) != 1:
            return None
        if later[0].cyclic or REST in names or not set(names).isdisjoint(stage.outputs):
            return None
        return next(topic for topic in stage.outputs if topic in later[0].inputs)

    def _readers(self, stage: Stage, names: tuple[str, ...]) -> int:
        """Return how many times the output of a stage is read."""
        outputs = set(stage.outputs)
        later = sum(
            1
            for other in self.stages
            if other is not stage and outputs & set(other.inputs) and self.engines[other.number].engine != SQL
        )
        queries = (query for choice in self.engines.values() for query in choice.queries.values())
        later += sum(1 for query in queries for source in query.sources if source.topic in outputs)
        is_kept = self._kept_state is not None and self._carrier(stage, names) is None
        state = 2 * self.options.write_state + 2 * is_kept
        return later + len(self._own_names(stage, names)) + (REST in names) + state

    def output_spec(self, stage: Stage) -> OutputSpec:
        """Return which records of a stage's output are kept."""
        kept = self._kept(stage, self._output_names())
        # What a route chooses in another stage is no change of the table.
        final = self.final_topics().intersection(stage.outputs) | self._final_changelogs
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
            drops=self._drops,
            from_tasks=self._from_tasks(),
        )

    def _writes_json(self, stage: Stage) -> bool:
        """Return whether lines of JSON in one place are the only output of a stage: then its tasks make the lines."""
        names = self._output_names()
        own = self._own_names(stage, names)
        place = self.options.outputs.get(own[0]) if len(own) == 1 else None
        if place is None or place.format != JSON_LINES or self._routing or REST in names:
            return False
        # A frame has either lines or rows: all that write the topic make lines, or none does.
        writers = [other for other in self.stages if own[0] in other.outputs]
        return all(self._readers(other, names) == 1 and not other.cyclic for other in writers)

    def _directly(self, stage: Stage, work: StageWork, inputs: Inputs, rows: _Rows) -> DataFrame | None:
        """Return the output of a stage whose only topic the job does not write, if its tasks can read their partitions."""
        (topic, *others) = stage.inputs
        if others or stage.cyclic or topic in rows.opened or not self._from_outside(topic) or topic in self._written:
            return None
        return inputs.direct(topic, work)

    def _stage(
        self,
        spark: SparkSession,
        stage: Stage,
        work: StageWork,
        rows: Mapping[str, list[DataFrame]],
        before: DataFrame | None,
    ) -> DataFrame:
        """Return the output of a stage over the rows of its topics, after the rows of its stores from `before`."""
        # What queries send has no order of the times in its task either.
        outside = any(self._from_outside(topic) or topic in self._sent for topic in stage.inputs)
        merges = self._merges(stage) or self._reads_tasks(stage)
        frames = [
            arrow_rows.with_all_columns(frame, topic) if merges or before is not None else frame
            for topic in stage.inputs
            for frame in rows.get(topic, ())
        ]
        frame = _union(frames if before is None else [before, *frames], spark)
        if work.by_key and not merges:
            frame = with_place(frame)
        frame = repartition(frame, 1 if stage.cyclic else max(1, stage.tasks), self.pieces(stage))
        with named(spark, self._input_name(stage, rows, before is not None)):
            frame = planned(frame)
        if merges:
            if outside:
                # Rows without an order come first, in their own order: those that the job wrote have one.
                frame = frame.sortWithinPartitions("partition", "topic", "order", "source", "offset")
                frame = frame.mapInArrow(partial(order_rows, work), arrow_rows.DDL)
            first: tuple[str, ...] = (
                ("order", "topic", "partition") if stage.cyclic else ("partition", "order", "topic")
            )
            if work.by_key:
                frame, first = with_place(frame), (arrow_rows.PLACE, "order")
            frame = frame.sortWithinPartitions(*first, "source", "offset")
        else:
            order = [
                arrow_rows.PLACE if work.by_key else "partition",
                *(() if outside else ("order",)),
                "source",
                "offset",
            ]
            frame = frame.sortWithinPartitions(*(name for name in order if name in frame.columns))
        run = run_cycle if stage.cyclic else run_tasks
        return frame.mapInArrow(partial(run, work), work.ddl)

    def name_of(self, output: str) -> WorkName:
        """Return the name for Spark of the work that makes an output: a topic on the log, or another name among the outputs."""
        states = {STATE: "rows of stores", MEMORY: "positions and times", CHANGELOGS: "changelogs", OFFSETS: "offsets"}
        if output in states:
            return output_name(self.plan, self.stages, (), states[output])
        if output == REST:
            return output_name(self.plan, self._routing or self.stages, (), "other topics")
        writers = [stage for stage in self.stages if output in stage.outputs] or self._routing
        return output_name(self.plan, writers, (output,), output)

    def _input_name(self, stage: Stage, rows: Mapping[str, list[DataFrame]], has_state: bool) -> WorkName:
        """Return the name for Spark of the work before a stage."""
        topics = [topic for topic in stage.inputs if rows.get(topic)]
        writers = [
            writer for writer in self.stages if writer is not stage and not set(topics).isdisjoint(writer.outputs)
        ]
        outside = [topic for topic in topics if self._from_outside(topic)]
        return input_name(self.plan, stage, writers, outside, "rows of stores" if has_state else "")

    def _merges(self, stage: Stage) -> bool:
        """Return whether a stage merges rows by their times: of several topics, or of a topic that is written and an input."""
        mixed = any(self._from_outside(topic) and topic in self._written for topic in stage.inputs)
        return stage.cyclic or len(stage.inputs) != 1 or mixed

    def _reads_tasks(self, stage: Stage) -> bool:
        """Return whether a stage reads what queries make as several tasks would: the times in each of them order it."""
        return not self._from_tasks().isdisjoint(stage.inputs)

    def _from_tasks(self) -> frozenset[str]:
        """Return the topics whose records queries make as several tasks would."""
        return frozenset(topic for topic, sent in self._sent.items() if sent.sender.tasks > 1)

    def _kept(self, stage: Stage, names: tuple[str, ...]) -> frozenset[str] | None:
        if REST in names:
            return None
        read = self._topics_read()
        state = {*self._changelogs, OFFSETS} if self.options.write_state else set()
        return frozenset(read & set(stage.outputs)) | frozenset(names) | state

    def _topics_read(self) -> set[str]:
        """Return the topics that stages and global tables read."""
        return {topic for stage in self.stages for topic in stage.inputs} | set(self.plan.global_topics)

    def final_topics(self) -> frozenset[str]:
        """Return the topics that get only the final record of each key: topics of tables that no stage reads."""
        read = {topic for other in self.stages for topic in other.inputs}
        return frozenset(topic for topic in self._table_topics if topic not in read)

    def _forbidden(self, stage: Stage) -> frozenset[str]:
        if not self._routing:
            return frozenset()
        read = {topic for topics in self.layout.sources.values() for topic in topics} | set(self.plan.global_topics)
        return frozenset(read - set(stage.outputs))

    def _global_tables(self, spark: SparkSession, inputs: Inputs) -> GlobalTables | None:
        """Read the topics of global tables and send them to all workers."""
        topics = self.plan.global_topics
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
            with translated(), named(spark, WorkName.of(self.plan.application, topic, "global table")):
                batches += _record_batches(frame.toArrow())
        return GlobalTables(uuid.uuid4().hex, share(spark, pickle.dumps(batches)), self.partitions)


def _record_batches(table: pa.Table) -> list[tuple[str, int, Columns]]:
    batches: list[tuple[str, int, Columns]] = []
    offsets: dict[tuple[str, int], int] = {}
    for batch in table.to_batches():
        for partition, part in by_partition(batch):
            for rows in by_topic(part):
                taken = records(rows, partition, offsets)
                batches.append((taken.topic, partition, taken.columns))
    return batches


def _union(frames: list[DataFrame], spark: SparkSession) -> DataFrame:
    """Return the rows of all frames; there may be no frames."""
    if not frames:
        return spark.createDataFrame([], arrow_rows.DDL)
    first, *others = frames
    for frame in others:
        first = first.unionByName(frame)
    return first


# None reads stream time, which all keys of a partition share, and none changes the key of a record.
_BY_KEY = (Filter, FlatMapValues, MapValues, PassThrough, StreamAggregate, TableMapValues, TablePassThrough, ToStream)


def can_split(stage: Stage, subs: Collection[SubTopology], read: Collection[str]) -> bool:
    """Return whether a stage can be cut by key; `read`: topics that later stages read, whose records must stay in order."""
    if stage.cyclic or len(stage.inputs) != 1 or not set(read).isdisjoint(stage.outputs):
        return False
    return all(_is_by_key(node) for sub in subs for node in sub.nodes.values())


def _is_by_key(node: PlanNode) -> bool:
    if any("offset" in expression.names for expression in expressions_of(node)):
        return False  # rows without an offset get one in the order of their arrival
    if isinstance(node, SourceNode):
        return "use_partition_time" not in node.timestamps.values()
    if isinstance(node, SinkNode):
        return node.topic is not None
    return not isinstance(node, ProcessorNode) or isinstance(node.processor, _BY_KEY)


def with_place(frame: DataFrame) -> DataFrame:
    """Add a place to rows, for an order by buckets of keys that keeps the order within a key (arrow_rows.PLACE).

    The place includes the offset if rows are ordered by that alone: Spark sorts by one number without comparing rows.
    """
    from pyspark.sql import functions as sf

    hashed = sf.xxhash64("key")
    if "source" in frame.columns:
        return frame.withColumn(arrow_rows.PLACE, hashed.bitwiseAND(sf.lit((1 << 63) - 1)))
    bucket = sf.shiftrightunsigned(hashed, arrow_rows.PLACE_BITS + 1)
    place = sf.shiftleft(bucket, arrow_rows.PLACE_BITS).bitwiseOR(sf.col("offset"))
    return frame.withColumn(arrow_rows.PLACE, place).drop("offset")


def repartition(frame: DataFrame, tasks: int, pieces: int) -> DataFrame:
    """Move the rows of each partition to one Spark task, or to `pieces` of them, all rows of a key to the same one."""
    from pyspark.sql import functions as sf

    if tasks * pieces == 1:
        return frame.repartition(1)
    if pieces == 1:
        return frame.repartitionById(tasks, "partition")
    piece = sf.col("partition") * pieces + sf.pmod(sf.hash("key"), sf.lit(pieces))
    return frame.repartitionById(tasks * pieces, piece)


def try_tasks(job: Job) -> None:
    """Make a task of each sub-topology that Python runs, with its processors, and close it. Raises ProcessingError, naming the step."""
    nothing = Inline(pickle.dumps([]))
    for stage in job.stages:
        if job.engines[stage.number].engine == SQL:
            continue
        tables = GlobalTables(uuid.uuid4().hex, nothing, job.partitions)
        work = StageWork(job.pickled, stage, job.layout, job.output_spec(stage), tables)
        loaded = load(work.plan)
        with closing(SpillingStores(loaded.plan, work.spill_bytes)) as stores:
            for index in stage.subs:
                with closing(new_task(loaded, work, index, 0, stores)) as task:
                    task.start({})
