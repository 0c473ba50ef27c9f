"""Which stages of a job run as queries of Spark SQL: those that give, row by row, what the steps give in Python."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace

from streamkit.compile.program_needs import counts
from streamkit.config import Config
from streamkit.errors import UntranslatableError
from streamkit.operators.codegen.code_writer import Processor, ProcessorNode
from streamkit.operators.core.operator import PassThrough
from streamkit.operators.steps.joins.foreign_key_join import (
    ForeignKeyJoin,
    ForeignTableJoin,
    ResponseJoin,
    SubscriptionSend,
)
from streamkit.operators.steps.joins.stream_stream_join import StreamStreamJoin
from streamkit.operators.steps.joins.table_join import TableJoinMerge, TableTableJoin
from streamkit.operators.steps.stateless.branch import Branch
from streamkit.operators.steps.stateless.map_values import TableMapValues
from streamkit.operators.steps.topics.source import TableSource
from streamkit.plan.model import Plan, PlanNode, SinkNode, SourceNode, SubTopology
from streamkit.runtime.records import RecordJson
from streamkit.runtime.spark.fields_read import fields_read
from streamkit.runtime.spark.job_options import PYTHON
from streamkit.runtime.spark.rows.output_columns import OutputLayout
from streamkit.runtime.spark.rows.topic_inputs import Sender
from streamkit.runtime.spark.sql.expressions import (
    translate,
    translate_condition,
)
from streamkit.runtime.spark.sql.grouped_queries import Groups, Query, query_of
from streamkit.runtime.spark.sql.join_queries import ForeignPair, Pairs, TablePair
from streamkit.runtime.spark.sql.record_queries import Earlier, Records
from streamkit.runtime.spark.sql.sent_records import Sent, sent_of
from streamkit.runtime.spark.sql.sources import InputColumns, SqlSource, TaskSource
from streamkit.runtime.spark.sql.step_queries import (
    MORE_THAN_LAST_ROWS,
    Rows,
    StepQueries,
    joined_store,
    keeps_more,
    of_foreign_key,
    store_of,
    without_time,
)
from streamkit.runtime.spark.sql.terms import (
    INTEGER,
    TEXT,
    Guard,
    fits_serde,
    only_if,
    refuse_if,
)
from streamkit.runtime.spark.stage_plan import Stage, global_topics, where

SQL = "sql"
UNKNOWN = f"{SQL} or {PYTHON}"
"""The engine of a stage that depends on the types of its input, which only Spark knows."""


@dataclass(frozen=True)
class Choice:
    """The engine of a stage. reason: why it is not SQL."""

    engine: str
    reason: str = ""
    queries: Mapping[str, Query] = field(default_factory=dict)
    """The queries of the outputs that a stage of SQL writes, by topic."""
    sent: Mapping[str, Sent] = field(default_factory=dict)
    """The records that a stage of SQL writes to topics between stages, by topic: those that stages in Python read."""
    unsent: Mapping[str, str] = field(default_factory=dict)
    """Why a stage in Python can't read them, by topic."""


@dataclass(frozen=True)
class Outputs:
    """What a job writes. layouts: of outputs with columns, in files.

    refusals: by topic, why another output is written by Python.
    """

    layouts: Mapping[str, OutputLayout]
    refusals: Mapping[str, str]
    tables: Collection[str]
    """The topics that get the last record of each key; the others get all records."""


def choose_engines(
    plan: Plan,
    stages: Sequence[Stage],
    inputs: Mapping[str, Sequence[InputColumns] | None],
    outputs: Outputs,
    partitions: Mapping[str, int],
) -> dict[int, Choice]:
    """Return the engine of each stage by its number.

    inputs: the columns of topics that are read from places with columns, by their names on the log; None for what is not known yet.
    partitions: the number of partitions of each topic.
    """
    compiler = _Compiler(plan, inputs, outputs, partitions)
    choices = {stage.number: compiler.choice(stage) for stage in stages}
    changed = True
    while changed:
        changed = False
        for stage in stages:
            choice = choices[stage.number]
            read = _read_in_python(stage, stages, choices)
            unsent = next((topic for topic in read if topic in choice.unsent), None)
            if unsent is not None:
                reason = f"stage {read[unsent]}, which reads {unsent}, runs in Python, and {choice.unsent[unsent]}"
                choices[stage.number], changed = Choice(PYTHON, reason), True
    for stage in stages:
        choice, read = choices[stage.number], _read_in_python(stage, stages, choices)
        sent = {topic: choice.sent[topic] for topic in choice.sent if topic in read}
        choices[stage.number] = replace(choice, sent=sent, unsent={})
    return choices


def _read_in_python(stage: Stage, stages: Sequence[Stage], choices: Mapping[int, Choice]) -> dict[str, int]:
    """Return the topics of a stage that other stages read in Python, with one of these each."""
    return {
        topic: other.number
        for other in reversed(stages)
        if other is not stage and choices[other.number].engine == PYTHON
        for topic in stage.outputs
        if topic in other.inputs
    }


class _Compiler:
    """Compiles the stages of a job in their order."""

    def __init__(
        self,
        plan: Plan,
        inputs: Mapping[str, Sequence[InputColumns] | None],
        outputs: Outputs,
        partitions: Mapping[str, int],
    ):
        self._plan = plan
        self._inputs = inputs
        self._outputs = outputs
        self._partitions = partitions
        self._form = RecordJson(plan)
        self._between: dict[str, tuple[Records, ...]] = {}
        """The records of topics between stages."""
        self._most_tasks: dict[str, int] = {}
        """The most tasks of a stage through which these records come, by topic."""
        self._writers: dict[str, int] = {}
        """The stages in Python that write topics, by topic."""
        self._unknown = {topic for topic in inputs if self._is_unknown(topic)}

    def _is_unknown(self, topic: str) -> bool:
        """Return whether only Spark can tell the types of the columns of a topic, or of the fields of its JSON text."""
        columns, (_, serde) = self._inputs[topic], self._form.reading(topic)
        return columns is None or any(part.first_values is None and part.has_text_for(serde) for part in columns)

    def choice(self, stage: Stage) -> Choice:
        """Return the engine of a stage."""
        refused = [self._outputs.refusals[topic] for topic in self._sinks(stage) if topic in self._outputs.refusals]
        if refused:
            self._writers |= dict.fromkeys(stage.outputs, stage.number)
            return Choice(PYTHON, refused[0])
        tables = [topic for sub in self._subs(stage) for topic in global_topics(self._plan, sub)]
        unknown = [topic for topic in (*stage.inputs, *tables) if topic in self._unknown]
        if unknown:
            self._unknown.update(stage.outputs)
            return Choice(UNKNOWN, f"it depends on the types of the columns of {unknown[0]}, which only Spark knows")
        try:
            return self._compiled(stage)
        except UntranslatableError as reason:
            self._writers |= dict.fromkeys(stage.outputs, stage.number)
            return Choice(PYTHON, str(reason))

    def _sinks(self, stage: Stage) -> list[str]:
        return [topic for sub in self._subs(stage) for topic in sub.sink_topics]

    def _subs(self, stage: Stage) -> list[SubTopology]:
        return [sub for sub in self._plan.sub_topologies if sub.id in stage.subs]

    def _compiled(self, stage: Stage) -> Choice:
        first, *others = self._subs(stage)
        nodes = {name: node for sub in (first, *others) for name, node in sub.nodes.items()}
        sub = replace(first, nodes=nodes)
        sources = [node for node in sub.nodes.values() if isinstance(node, SourceNode) and not of_foreign_key(node)]
        topics = [topic for node in sources for topic in self._topics(node)]
        if not set(topics).isdisjoint(stage.outputs):
            raise UntranslatableError("it reads what it writes itself")
        # All tasks of a cycle share one task of Spark.
        tasks = max([1, *(self._partitions[topic] for topic in topics)]) if stage.cyclic else stage.tasks
        steps = StepQueries(self._plan, sub, self._source, tasks, self._spread(sources, tasks))
        walk = _Walk(self._plan, sub, tasks, steps)
        for node in sources:
            walk.from_source(node, tuple(records for topic in self._topics(node) for records in self._records(topic)))
        missing = walk.left()
        if missing is not None:
            raise UntranslatableError(missing)
        streams = [name for name, rows in walk.written.items() if not isinstance(rows, Groups)]
        if streams and not (self._between | self._writers).keys().isdisjoint(stage.inputs):
            raise UntranslatableError(
                f"{streams[0]} is a stream from several tasks, and its records are ordered by their times"
            )
        self._between |= walk.between
        before = [self._most_tasks[topic] for topic in stage.inputs if topic in self._most_tasks]
        self._most_tasks |= dict.fromkeys(walk.between, max(tasks, *before, 1))
        queries = {name: self._query(name, rows) for name, rows in walk.written.items()}
        sent, unsent = dict[str, Sent](), dict[str, str]()
        for topic, records in walk.between.items():
            try:
                sent[topic] = self._sent(stage, topic, records)
            except UntranslatableError as reason:
                unsent[topic] = str(reason)
        return Choice(SQL, queries=queries, sent=sent, unsent=unsent)

    def _sent(self, stage: Stage, topic: str, rows: tuple[Records, ...]) -> Sent:
        """Return the records of a topic between stages for stages in Python. Raises UntranslatableError."""
        (records, *others), (sub, *_) = rows, stage.subs
        sources = [source.topic for source in records.sources]
        tasks = max(self._partitions[source] for source in sources)
        is_first = self._between.keys().isdisjoint(stage.inputs)
        reasons = {
            f"one task of Spark runs all tasks that write {topic}": stage.cyclic,
            f"{topic} has records that come from another stage in Python": any(each.is_of_tasks for each in rows),
            f"{topic} has the records of several steps, or of several topics": bool(others),
            f"{topic} has the pairs of several tasks": len(sources) > 1 and tasks > 1,
            f"{topic} has the records of a join without a partner": records.source.emits_alone,
            f"tasks that write {topic} take the records of several others by their times": not is_first
            and self._most_tasks[topic] > 1,
        }
        refuse_if(reasons)
        sender = Sender(sub, tasks, sources[0], topic, self._partitions[topic])
        return sent_of(records, sender, self._form.reading(topic), fields_read(self._plan, topic))

    def _topics(self, node: SourceNode) -> list[str]:
        """Return the topics of a source by their names on the log."""
        return list(map(self._plan.internal_name, node.topics)) if node.internal else list(node.topics)

    def _spread(self, sources: Sequence[SourceNode], tasks: int) -> str | None:
        """Return why records of one key, in several topics, may be in different tasks; None if they are in the same one."""
        topics = {
            self._plan.internal_name(topic): node.topic_serdes.get(topic, (node.key_serde, node.value_serde))[0].spec
            for node in sources
            for topic in node.topics
        }
        reasons: dict[str, Collection[object]] = {
            "have different numbers of partitions": {self._partitions[topic] for topic in topics},
            "have keys of different serdes": set(map(repr, topics.values())),
        }
        found = [reason for reason, values in reasons.items() if tasks > 1 and len(values) > 1]
        return f"{' and '.join(topics)} {found[0]}, so that records of a key are in different tasks" if found else None

    def _records(self, topic: str) -> tuple[Records, ...]:
        """Return the records that a stage reads."""
        if topic in self._between:
            return self._between[topic]
        if topic in self._writers and self._are_together(topic):
            return (replace(Records.of(TaskSource(topic, self._form.reading(topic))), is_mixed=True),)
        return (Records.of(self._source(topic)),)

    def _are_together(self, topic: str) -> bool:
        """Return whether the key of a record determines its partition of a repartition topic."""
        sinks = [
            node
            for sub in self._plan.sub_topologies
            for node in sub.nodes.values()
            if isinstance(node, SinkNode) and node.internal and self._plan.internal_name(node.topic or "") == topic
        ]
        return bool(sinks) and all(sink.partition is None and sink.value_kind == "plain" for sink in sinks)

    def _source(self, topic: str, mark: str = "") -> SqlSource:
        """Return a topic from outside, as columns whose names begin with a mark."""
        columns = self._inputs.get(topic)
        if topic in self._writers:
            raise UntranslatableError(f"stage {self._writers[topic]}, which writes {topic}, runs in Python")
        if columns is None:
            raise UntranslatableError(f"{topic} is read record by record, not from columns")
        if len(columns) != 1:
            raise UntranslatableError(f"{topic} is read from {len(columns)} inputs")
        declared = self._plan.external_topics.get(topic)
        source = SqlSource(topic, columns[0], self._form.reading(topic), mark)
        if declared is not None and declared.timestamp is not None and not isinstance(declared.timestamp, str):
            names = {"key": source.key, "value": source.value, "timestamp": source.time}
            source.timed_by(translate(declared.timestamp, names))
        return source

    def _query(self, topic: str, rows: Rows) -> Query:
        layout = self._outputs.layouts.get(topic)
        if layout is None:
            raise UntranslatableError(f"{topic} is not written")
        is_final = topic in self._outputs.tables
        if isinstance(rows, Groups) and not is_final:
            raise UntranslatableError(f"{topic} gets all changes of a table")
        if isinstance(rows, Groups):
            return query_of(rows, layout, is_final)
        first, *others = [query_of(records, layout, is_final) for records in rows]
        if others:
            _check_order(topic, rows, is_final)
        return replace(first, others=tuple(others))


def _check_order(topic: str, rows: tuple[Records, ...], is_final: bool) -> None:
    """Raise UntranslatableError if the records of several topics are not just merged by their times."""
    sources = [source for records in rows for source in records.sources]
    reasons = {
        "whose last records of each key depend on their order": is_final,
        "or what several steps make of the same records": len({source.topic for source in sources}) < len(rows),
        "and joins of streams": len(sources) > len(rows),
        **{f"and {source.topic} is not ordered by its timestamps": not source.may_be_in_order for source in sources},
    }
    merges = f"{topic} is a stream that merges the records of several topics"
    refuse_if({f"{merges}, {reason}": holds for reason, holds in reasons.items()})


def _guards(rows: Records) -> set[Guard]:
    return {test for test in rows.tests if isinstance(test, Guard)}


class _Walk:
    """Follows the records of a sub-topology from its sources to its sinks."""

    def __init__(self, plan: Plan, sub: SubTopology, tasks: int, steps: StepQueries):
        self._plan = plan
        self._tasks = tasks
        self._sub = sub
        self._steps = steps
        self._seen: set[str] = set()
        self._arrived: dict[str, list[tuple[Records, ...]]] = {}
        """The records from each parent of a node that has several."""
        self._sides: dict[tuple[str, bool], Records] = {}
        """The records of the sides of joins that have arrived, by a name of the join, and whether a side is the left one."""
        self.between: dict[str, tuple[Records, ...]] = {}
        self.written: dict[str, Rows] = {}
        self._dropped: list[tuple[ProcessorNode, Records]] = []
        """Records that no output gets, by their last node."""

    def left(self) -> str | None:
        """Return why a query would leave out a node, or a test that must fail the job; None if it leaves out neither."""
        others = [node for name, node in self._sub.nodes.items() if name not in self._seen]
        if others:
            return f"{where(self._plan, others[0])}: it has no records from the input"
        checked = set[Guard]()
        for rows in (*self.written.values(), *self.between.values()):
            for records in (part.records for part in rows.parts) if isinstance(rows, Groups) else rows:
                checked |= _guards(records)
        unchecked = [node for node, rows in self._dropped if not checked.issuperset(_guards(rows))]
        return f"{where(self._plan, unchecked[0])}: no output gets its records" if unchecked else None

    def from_source(self, node: SourceNode, records: tuple[Records, ...]) -> None:
        """Follow the records of a source. Raises UntranslatableError."""
        if node.pattern is not None or any(
            (node.value_kind == "changed") != bool(source_records.row) for source_records in records
        ):
            raise self._steps.refusal(node, "it reads more than the records of its topics")
        self._seen.add(node.name)
        self._to_children(node.children, records)

    def _to_children(self, names: Sequence[str], rows: Rows) -> None:
        for name in names:
            self._follow(name, rows)

    def _follow(self, name: str, rows: Rows) -> None:
        node = self._sub.nodes[name]
        if len(node.parents) > 1:
            if isinstance(rows, Groups):
                raise self._steps.refusal(node, "it merges the changes of several steps")
            self._arrived.setdefault(name, []).append(rows)
            if len(self._arrived[name]) < len(node.parents):
                return
            rows = tuple(records for part in self._arrived[name] for records in part)
        self._seen.add(name)
        if isinstance(node, SinkNode):
            self._write(node, rows)
        elif isinstance(node, ProcessorNode):
            self._follow_processor(node, node.processor, rows)

    def _follow_processor(self, node: ProcessorNode, processor: Processor, rows: Rows) -> None:
        if isinstance(processor, Branch) and not isinstance(rows, Groups):
            self._branch(processor, rows)
        elif isinstance(processor, TableSource) and not node.children:
            self._check_table(node)
        elif isinstance(processor, StreamStreamJoin):
            self._join_streams(node, processor, rows)
        elif isinstance(processor, TableTableJoin):
            self._join_tables(node, processor, rows)
        elif isinstance(processor, SubscriptionSend | ForeignTableJoin):
            self._join_foreign(node, processor, rows)
        else:
            output = self._steps.processed(node, rows)
            if not node.children:
                self._drop(node, output)
            self._to_children(node.children, output)

    def _join_streams(self, node: ProcessorNode, join: StreamStreamJoin, rows: Rows) -> None:
        """Follow the pairs of two streams once the records of both have arrived."""
        shown = where(self._plan, node)
        is_spread = self._tasks > 1 or self._steps.is_internal
        if join.kind != "inner" and is_spread:
            raise UntranslatableError(
                f"{shown}: when a record without a partner is emitted depends on the order in which several tasks have records"
            )
        if counts(self._sub, Config.expression_max_bytes.default, Config.expression_max_steps.default):
            raise UntranslatableError(f"{shown}: a record's pairs may make it too large for Python")
        if isinstance(rows, Groups) or len(rows) != 1:
            raise UntranslatableError(f"{shown}: one of its streams has the records of several topics, or of a table")
        both = self._both(node.name if join.is_left else join.peer, join.is_left, rows[0])
        if both is None:
            return
        times = (join.before, join.after) if join.is_left else (join.after, join.before)
        pairs = Pairs.of(*both, (*times, join.grace), shown, join.kind)
        value = translate(join.value, pairs.names, self._steps.footprint)
        # Steps that depend on the order of records see only the order of each key.
        records = Records(
            pairs, pairs.names["key"], value.without_guards(), pairs.time, value.guards, is_mixed=pairs.emits_alone
        )
        # The step after both sides has each of them as a parent.
        for name in node.children:
            self._follow(name, ())
            self._follow(name, (records,))

    def _both(self, join: str, is_left: bool, records: Records) -> tuple[Records, Records] | None:
        """Take the records of one side of a join; return those of the left and of the right one, once both have arrived."""
        self._sides[join, is_left] = records
        if (join, not is_left) not in self._sides:
            return None
        return self._sides[join, True], self._sides[join, False]

    def _join_tables(self, node: ProcessorNode, join: TableTableJoin, rows: Rows) -> None:
        """Follow the rows of a join of two tables once the changes of both have arrived."""
        shown = where(self._plan, node)
        (name,) = node.children
        merge = self._sub.nodes[name]
        assert isinstance(merge.processor, TableJoinMerge)
        store = None if merge.processor.store is None else self._plan.stores[merge.processor.store]
        if isinstance(rows, Groups):
            raise UntranslatableError(f"{shown}: one of its tables is an aggregate, or a join")
        reasons = {
            "it joins more than the changes of two topics": len(rows) != 1
            or any(isinstance(test, Earlier) for test in rows[0].tests),
            "other steps read its rows": merge.processor.send_old,
            MORE_THAN_LAST_ROWS: join.versioned_parent or (store is not None and keeps_more(store)),
        }
        refuse_if(reasons, shown)
        both = self._both(name, join.is_left, rows[0])
        if both is None:
            return
        left, right = both
        if left.key.kind != right.key.kind or left.key.kind not in (TEXT, INTEGER):
            raise UntranslatableError(f"{shown}: a key is {left.key.kind}, the other {right.key.kind}")
        if left.source.topic == right.source.topic:
            raise UntranslatableError(f"{shown}: both tables come from the same topic")
        pair = TablePair("left" if join.rule == "right" else join.rule, left, right)
        groups = Groups.of_pair(pair, self._steps.unfailing(join.value, pair.names))
        if store is not None:
            groups = self._steps.checked(merge, "value", store.value_serde, groups)
        self._seen.add(name)
        self._to_children(merge.children, groups)

    def _join_foreign(self, node: ProcessorNode, side: SubscriptionSend | ForeignTableJoin, rows: Rows) -> None:
        """Follow the rows of a foreign-key join once the changes of both tables have arrived."""
        shown, join, is_left = where(self._plan, node), side.join, isinstance(side, SubscriptionSend)
        nodes = [
            other for other in self._sub.nodes.values() if _join_of(other) in (join, join.topic, join.response_topic)
        ]
        if isinstance(rows, Groups):
            raise UntranslatableError(f"{shown}: one of its tables is an aggregate, or a join")
        reasons = {
            "it joins more than the changes of two topics": len(rows) != 1,
            "its table keeps versions": side.versioned_parent,
            "a step before it sets the timestamps": any(records.time != records.source.time for records in rows),
            "`partition` chooses the partitions of its topics": any(
                isinstance(other, SinkNode) and other.partition is not None for other in nodes
            ),
        }
        refuse_if(reasons, shown)
        serde = join.value_serde if is_left else join.foreign_value_serde
        both = self._both(join.topic, is_left, self._steps.checked(node, "value", serde, rows[0]))
        if both is None:
            return
        self._seen.update(other.name for other in nodes)
        for other in nodes:
            if isinstance(other.processor, ResponseJoin):
                groups = self._responses(other, other.processor, nodes, *both)
                # The table of the result.
                (name,) = other.children
                result = self._sub.nodes[name]
                for store in (self._plan.stores[name] for name in result.stores):
                    refuse_if({MORE_THAN_LAST_ROWS: keeps_more(store)}, shown)
                    groups = self._steps.checked(result, "value", store.value_serde, groups)
                self._seen.add(name)
                self._to_children(result.children, groups)

    def _responses(
        self, node: PlanNode, response: ResponseJoin, nodes: Sequence[PlanNode], left: Records, right: Records
    ) -> Groups:
        """Return the rows of a foreign-key join of two tables. nodes: those of the join."""
        shown, join = where(self._plan, node), response.join
        (send,) = (other.processor for other in nodes if isinstance(other.processor, SubscriptionSend))
        present, names = left.presence()
        on = translate(send.on, without_time(names), self._steps.footprint)
        fits = fits_serde(join.foreign_key_serde.spec, on, f"{shown}: a key has over 32 bits")
        left = left.guarded(on, present).tested(*(guard.under(present) for guard in fits))
        if on.kind != right.key.kind or on.kind not in (TEXT, INTEGER):
            raise UntranslatableError(f"{shown}: {on.kind} is no key of {right.source.topic}")
        is_empty_absent = right.value.kind == TEXT and join.foreign_value_serde.spec == "string"
        kind = "left" if join.left else "inner"
        pair = ForeignPair(kind, left, right, only_if(on.without_guards(), present), is_empty_absent)
        return Groups.of_pair(pair, self._steps.unfailing(response.value, pair.names))

    def _check_table(self, node: PlanNode) -> None:
        """Raise UntranslatableError for a table without steps that no join reads: those look at its topic by themselves."""
        others = [other for other in self._sub.nodes.values() if other is not node]
        if not any(joined_store(other) == store_of(node) for other in others):
            raise self._steps.refusal(node, "no output gets its records")

    def _drop(self, node: ProcessorNode, rows: Rows) -> None:
        """Note records that no output gets. Raises UntranslatableError if a step makes them, which may have to fail."""
        is_lookup = isinstance(node.processor, TableMapValues) and node.processor.store is None
        if is_lookup and not isinstance(rows, Groups) and not any(map(_guards, rows)):
            origin: PlanNode = node
            while isinstance(origin.processor, TableMapValues):
                origin = self._sub.nodes[origin.parents[0]]
            self._check_table(origin)
            return
        if isinstance(rows, Groups) or not isinstance(node.processor, PassThrough):
            raise self._steps.refusal(node, "no output gets its records")
        self._dropped += [(node, records) for records in rows]

    def _branch(self, branch: Branch, rows: tuple[Records, ...]) -> None:
        """Follow the records of each branch. A predicate is evaluated only for records that match no earlier one."""
        chosen: dict[str, list[Records]] = {}
        for records in rows:
            before = list[str]()
            conditions = list[tuple[str, str]]()
            for predicate, target in zip(branch.predicates, branch.targets, strict=True):
                test = translate_condition(predicate, records.names, self._steps.footprint)
                records = records.guarded(test, " AND ".join(before))
                conditions.append((target, " AND ".join((*before, test.sql))))
                before.append(f"(NOT {test.sql})")
            if branch.default is not None:
                conditions.append((branch.default, " AND ".join(before) or "true"))
            for target, condition in conditions:
                chosen.setdefault(target, []).append(records.kept_where(f"({condition})"))
        for target, matches in chosen.items():
            self._follow(target, tuple(matches))

    def _write(self, node: SinkNode, rows: Rows) -> None:
        if node.topic is None or node.partition is not None:
            raise self._steps.refusal(node, "records choose their topics or their partitions")
        for part, serde in (("key", node.key_serde), ("value", node.value_serde)):
            if isinstance(rows, Groups):
                rows = self._steps.checked(node, part, serde, rows)
            else:
                rows = tuple(self._steps.checked(node, part, serde, records) for records in rows)
        for output in (rows,) if isinstance(rows, Groups) else rows:
            self._steps.footprint.size += output.key.size + output.value.size
        length = rows.windows.length if isinstance(rows, Groups) and rows.windows is not None else None
        if length is not None and getattr(node.key_serde, "size", None) != length:
            raise self._steps.refusal(node, "its serde has windows of another size")
        if not self._steps.footprint.fits:
            raise self._steps.refusal(node, "a record's texts may make it too large for Python")
        if not isinstance(rows, Groups) and node.internal:
            self.between[self._plan.internal_name(node.topic)] = tuple(map(self._sent, rows))
        elif node.internal or node.topic in self.written:
            raise self._steps.refusal(node, "further steps read the changes of a table as records")
        else:
            self.written[node.topic] = rows

    def _sent(self, records: Records) -> Records:
        """Return records for other tasks. They are mixed if a key may have records from several tasks."""
        source = records.source
        is_whole = self._tasks == 1 or (not source.is_joined and records.key.sql == source.key.sql)
        return replace(records, is_mixed=records.is_mixed or not is_whole)


def _join_of(node: PlanNode) -> object:
    """Return the foreign-key join of a processor, or the topic of its messages that a source or a sink has."""
    if of_foreign_key(node) and not isinstance(node, ProcessorNode):
        return node.topics[0] if isinstance(node, SourceNode) else node.topic
    join = getattr(node.processor, "join", None)
    return join if isinstance(join, ForeignKeyJoin) else None


__all__ = ["SQL", "UNKNOWN", "Choice", "Outputs", "choose_engines"]
