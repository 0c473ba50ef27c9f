"""The queries of steps: what each makes of records, or of the rows of a table, if SQL gives what it gives in Python."""

from __future__ import annotations

import ast
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import TypeAlias, TypeVar

from streamkit.errors import UntranslatableError
from streamkit.expressions import Expression
from streamkit.expressions.syntax import Source
from streamkit.operators.codegen.code_writer import ProcessorNode
from streamkit.operators.core.operator import PassThrough, RepartitionFilter, TablePassThrough
from streamkit.operators.core.parsed_values import SessionWindows, Windows
from streamkit.operators.core.value_getters import DerivedGetter, Getter, MapValuesGetter, StoreGetter
from streamkit.operators.steps.aggregations.aggregate_node import (
    SessionAggregate,
    SlidingAggregate,
    StreamAggregate,
    TableAggregate,
    WindowAggregate,
    WindowedAggregate,
)
from streamkit.operators.steps.aggregations.group_by import TableGroupBy
from streamkit.operators.steps.extensions.assertion import Assert
from streamkit.operators.steps.extensions.set_timestamp import SetTimestamp
from streamkit.operators.steps.joins.foreign_key_join import (
    SubscriptionJoin,
)
from streamkit.operators.steps.joins.stream_stream_join import JoinWindow
from streamkit.operators.steps.joins.stream_table_join import StreamGlobalJoin, StreamTableJoin
from streamkit.operators.steps.stateless.filter import Filter, TableFilter
from streamkit.operators.steps.stateless.flat_map_values import FlatMapValues
from streamkit.operators.steps.stateless.map import Map
from streamkit.operators.steps.stateless.map_values import MapValues, TableMapValues
from streamkit.operators.steps.stateless.peek import Peek
from streamkit.operators.steps.stateless.select_key import SelectKey
from streamkit.operators.steps.tables.suppress import Suppress
from streamkit.operators.steps.tables.to_stream import ToStream
from streamkit.operators.steps.topics.source import GlobalTableSource, TableSource
from streamkit.plan.model import Plan, PlanNode, SinkNode, SourceNode, SubTopology
from streamkit.runtime.spark.rows.output_columns import ticked
from streamkit.runtime.spark.sql.aggregations import aggregate
from streamkit.runtime.spark.sql.expressions import (
    MOST_ITEMS,
    Footprint,
    Translator,
    parse,
    translate,
    translate_call,
    translate_condition,
)
from streamkit.runtime.spark.sql.grouped_queries import Closing, Groups, merged
from streamkit.runtime.spark.sql.record_queries import Called, Earlier, Exploded, Records, TableJoin
from streamkit.runtime.spark.sql.sources import LATEST, LONGEST, SqlSource
from streamkit.runtime.spark.sql.terms import (
    COLUMN_TYPES,
    INTEGER,
    NOTHING,
    SERDE_KINDS,
    TEXT,
    WINDOWED,
    Guard,
    Keep,
    Term,
    fits_serde,
    only_if,
    refuse_if,
)
from streamkit.runtime.spark.sql.window_times import IN_ORDER, MOST_WINDOWS
from streamkit.runtime.spark.stage_plan import where
from streamkit.serdes.formats.windowed import SessionWindowedSerde, TimeWindowedSerde
from streamkit.serdes.serde import Serde
from streamkit.state.definitions import StoreDef

_SEVERAL_TASKS = "its windows close by the times of each of several partitions"
MORE_THAN_LAST_ROWS = "its table keeps versions, or rows for some time"
_LONGEST_KEY = 256
"""The maximum size of the key of a record that a step turns into several records, in bytes."""
Rows: TypeAlias = tuple[Records, ...] | Groups
"""The records of several sources, each by themselves, or the rows of a table."""
_Checked = TypeVar("_Checked", Records, Groups)


class StepQueries:
    """Makes of records, and of the rows of tables, what the steps of a sub-topology make of them. Methods raise UntranslatableError."""

    def __init__(
        self, plan: Plan, sub: SubTopology, source: Callable[[str, str], SqlSource], tasks: int, spread: str | None
    ):
        self._plan = plan
        self._sub = sub
        self._source = source
        self._tasks = tasks
        self._spread = spread
        """Why records of one key, in several topics, may be in different tasks; None if they are in the same one."""
        processors = [node.processor for node in sub.nodes.values()]
        flattens = any(isinstance(processor, FlatMapValues) for processor in processors)
        self.footprint = Footprint(times=MOST_ITEMS if flattens else 1)
        self.is_internal = any(
            isinstance(node, SourceNode) and node.internal and not of_foreign_key(node) for node in sub.nodes.values()
        )
        """Whether the stage reads a repartition topic."""
        self._needs_values = any(
            isinstance(processor, SubscriptionJoin) and _maps(processor.foreign) for processor in processors
        )
        """Whether a foreign-key join distinguishes a row whose mapped value is null from none."""

    def processed(self, node: ProcessorNode, rows: Rows) -> Rows:
        """Return what a node makes of records or of the rows of a table."""
        processor = node.processor
        if isinstance(processor, PassThrough | TablePassThrough | ToStream):
            return rows
        if isinstance(rows, Groups):
            if isinstance(processor, Suppress):
                return self._suppressed(node, processor, rows)
            return self._mapped(node, rows)
        if isinstance(processor, TableSource | TableFilter | TableMapValues):
            return self._changes(node, rows)
        if isinstance(processor, TableGroupBy):
            return tuple(self._regrouped(processor, records) for records in rows)
        if isinstance(processor, StreamAggregate | TableAggregate | WindowedAggregate):
            if len(rows) > 1 and self._spread is not None:
                raise self.refusal(node, f"{self._spread}")
            mixed = [replace(records, is_mixed=True) for records in rows] if len(rows) > 1 else rows
            return merged([self._aggregated(node, processor, records) for records in mixed])
        return tuple(self._stepped(node, records) for records in rows)

    def _changes(self, node: ProcessorNode, rows: tuple[Records, ...]) -> tuple[Records, ...]:
        """Return what a step of a table makes of changes: records with a key, without a value if they delete the row."""
        processor = node.processor
        reasons = {
            MORE_THAN_LAST_ROWS: any(keeps_more(self._plan.stores[name]) for name in node.stores),
            "its records come from several tasks, or topics": len(rows) > 1 or self.is_internal,
        }
        refuse_if(reasons, where(self._plan, node))
        (records,) = rows
        if isinstance(processor, TableFilter):
            return (self._filtered(processor, records),)
        if isinstance(processor, TableMapValues):
            return (self._with_values(node, processor, records),)
        is_keyed = records.key.is_null == "false"
        return (records if is_keyed else records.kept_where(f"(NOT {records.key.is_null})").keyed(),)

    def _filtered(self, processor: TableFilter, records: Records) -> Records:
        """Return changes whose values are null where the predicate does not hold; rows without a value are not tested."""
        present, names = records.presence()
        test = translate_condition(processor.predicate, _of_changes(processor, names), self.footprint)
        records = records.guarded(test, present)
        condition = f"(NOT {test.sql})" if processor.negate else test.sql
        value = only_if(records.value, f"({present} AND {condition})")
        if processor.skip_empty:
            earlier = Earlier(f"{len(records.tests)}: before", records.key.sql, f"(NOT {value.is_null})")
            records = records.tested(earlier).kept_where(f"(NOT {value.is_null} OR {ticked(earlier.name)})")
        return replace(records, value=value)

    def _regrouped(self, processor: TableGroupBy, records: Records) -> Records:
        """Return changes with their groups, and what those aggregate; a row without one of both is in no group."""
        present, names = records.presence()
        names = without_time(names)
        key = translate(processor.key, names, self.footprint)
        value = records.value if processor.value is None else translate(processor.value, names, self.footprint)
        records = records.guarded(key, present)
        records = records if processor.value is None else records.guarded(value, present)
        key, value = (only_if(term.without_guards(), present) for term in (key, value))
        return replace(records, row=records.key.sql, key=key, value=value)

    def _with_values(self, node: ProcessorNode, processor: TableMapValues, records: Records) -> Records:
        """Return changes with other values; a deletion stays one."""
        present, names = records.presence()
        value = translate(processor.value, _of_changes(processor, names), self.footprint)
        records = records.guarded(value, present)
        if self._needs_values and value.nullable:
            missing = f"{where(self._plan, node)}: a row that a join looks up has no value"
            records = records.tested(Guard(f"(NOT {value.is_null})", missing).under(present))
        value = value.without_guards()
        return replace(records, value=only_if(value, present) if records.value.nullable else value)

    def _aggregated(
        self,
        node: ProcessorNode,
        processor: StreamAggregate | TableAggregate | WindowedAggregate,
        records: Records,
    ) -> Groups:
        store = self._plan.stores[processor.store]
        known = ("timestamped_key_value", "window", "session")
        if store.type not in known or store.ttl is not None:
            raise self.refusal(node, "its table keeps more than its last rows")
        records = self.checked(node, "key", store.key_serde, records)
        windows: Windows | None = None
        if isinstance(processor, WindowedAggregate):
            windows, records = processor.windows, self._windowed(node, processor, records)
        groups = aggregate(processor.aggregation, windows, records, self.footprint, where(self._plan, node))
        if isinstance(processor, WindowedAggregate) and processor.on_close:
            groups = replace(groups, closing=Closing(processor.windows.close_delay))
        return self.checked(node, "value", store.value_serde, groups)

    def _windowed(self, node: ProcessorNode, processor: WindowedAggregate, records: Records) -> Records:
        """Return the records of windows, whose ends a column of times holds. Raises UntranslatableError."""
        source = records.source
        windows = processor.windows if isinstance(processor, WindowAggregate) else IN_ORDER
        reasons = {
            _SEVERAL_TASKS: processor.on_close and self._tasks > 1,
            "sliding windows that close have no form in SQL": processor.on_close
            and isinstance(processor, SlidingAggregate),
            # Such a record may find that its store has dropped the window before.
            "sliding windows without grace have no form in SQL": isinstance(processor, SlidingAggregate)
            and not processor.windows.grace,
            f"a record is in more than {MOST_WINDOWS:,} windows": windows.size > MOST_WINDOWS * windows.advance,
            "only counts and reductions of sessions have a form in SQL": isinstance(processor, SessionAggregate)
            and processor.aggregation.kind not in ("count", "reduce"),
            f"{source.topic} is not ordered by its timestamps": not source.may_be_in_order,
            "a step before it sets the timestamps": records.time != source.time,
        }
        refuse_if(reasons, where(self._plan, node))
        longest = 1 + (processor.windows.length or 0)
        fits = f"({records.time.sql} <= {LATEST}L - {longest}L)"
        return records.tested(Guard(fits, f"{where(self._plan, node)}: a window ends too late"))

    def _mapped(self, node: ProcessorNode, groups: Groups) -> Groups:
        """Return rows of a table with other values."""
        processor = node.processor
        is_plain = isinstance(processor, TableMapValues) and processor.store is None
        if not (is_plain or isinstance(processor, MapValues)):
            raise self.refusal(node, "the step has no form in SQL for the rows of a table")
        assert isinstance(processor, TableMapValues | MapValues)
        # A table does not map the value of a row that is deleted.
        maps_all = not (is_plain and groups.value.nullable)
        names = groups.names if maps_all else groups.names | {"value": replace(groups.value, nullable=False)}
        value = self.unfailing(processor.value, names)
        if value.kind == NOTHING or value.nullable:
            raise self.refusal(node, "the value may be null, which deletes the row")
        return replace(groups, value=value if maps_all else only_if(value, f"(NOT {groups.value.is_null})"))

    def _suppressed(self, node: ProcessorNode, suppress: Suppress, groups: Groups) -> Groups:
        """Return the closed windows of a table. Raises UntranslatableError."""
        windows = groups.windows
        reasons = {
            "it holds back updates for a time": not suppress.final or windows is None,
            "its buffer has a limit": suppress.max_records is not None or suppress.max_bytes is not None,
            "its windows close twice": groups.closing is not None,
            _SEVERAL_TASKS: self._tasks > 1,
            # A record of the time at which a session closes still changes it.
            "sessions without grace may be emitted twice": isinstance(windows, SessionWindows) and not windows.grace,
        }
        refuse_if(reasons, where(self._plan, node))
        return replace(groups, closing=Closing(suppress.duration))

    def _stepped(self, node: ProcessorNode, rows: Records) -> Records:
        """Return what a node makes of the records of one source."""
        processor = node.processor
        if isinstance(processor, JoinWindow):
            store = self._plan.stores[processor.store]
            return self.checked(node, "value", store.value_serde, self.checked(node, "key", store.key_serde, rows))
        if isinstance(processor, RepartitionFilter):
            return rows.kept_where(f"(NOT {rows.key.is_null})") if processor.drop_null_keys else rows
        if isinstance(processor, Filter):
            test = translate_condition(processor.predicate, rows.names, self.footprint)
            return rows.guarded(test).kept_where(f"(NOT {test.sql})" if processor.negate else test.sql)
        if isinstance(processor, Assert):
            test = translate_condition(processor.condition, rows.names, self.footprint)
            return rows.guarded(test).tested(Guard(test.sql, f"{where(self._plan, node)}: {processor.message}"))
        if isinstance(processor, Peek):
            return rows.guarded(translate(processor.do, rows.names, self.footprint))
        if isinstance(processor, MapValues) and processor.value.links:
            return self._called(node, processor.value, rows)
        if isinstance(processor, MapValues | SelectKey | Map):
            return self._changed(rows, getattr(processor, "key", None), getattr(processor, "value", None))
        if isinstance(processor, FlatMapValues):
            return self._flattened(where(self._plan, node), processor, rows)
        if isinstance(processor, SetTimestamp):
            return self._timed(node, processor, rows)
        if isinstance(processor, StreamGlobalJoin):
            on = translate(processor.on, rows.names, self.footprint)
            topic = self._global_topic(node, processor.store)
            return self._joined(node, processor, rows, on, topic, True)
        if isinstance(processor, StreamTableJoin):
            return self._joined(node, processor, rows, rows.key, self._table_topic(node, processor, rows), False)
        raise self.refusal(node, "the step has no exact form in SQL")

    def _joined(
        self,
        node: ProcessorNode,
        join: StreamGlobalJoin | StreamTableJoin,
        rows: Records,
        on: Term,
        topic: str,
        is_global: bool,
    ) -> Records:
        """Return records with the rows that a table has for `on`."""
        reasons = {
            "a step before it makes several records of one": any(isinstance(test, Exploded) for test in rows.tests),
            "another stage has written its records in Python": rows.is_of_tasks,
        }
        refuse_if(reasons, where(self._plan, node))
        table = self._source(topic, f"{len(rows.joins) + 1}:")
        if on.kind != table.key.kind or on.kind not in (TEXT, INTEGER):
            raise self.refusal(node, f"{on.kind} is no key of the table {topic}")
        kept = [rows.value, *(() if join.left else (on,))]
        present = [Keep(f"(NOT {term.is_null})") for term in kept if term.nullable]
        table_join = TableJoin(table, on.sql, is_global)
        rows = rows.guarded(on).tested(*present, table_join)
        row = self._looked_up(join.getter, on, table_join.row) if isinstance(join, StreamTableJoin) else table_join.row
        if not join.left:
            rows = rows.kept_where(f"(NOT {row.is_null})")
        right = row if join.left else replace(row, nullable=False)
        names = {"key": rows.key, "left": rows.value, "right": right} | ({"mapped_key": on} if is_global else {})
        return rows.with_value(translate(join.value, names, self.footprint))

    def _looked_up(self, getter: Getter, key: Term, row: Term) -> Term:
        """Return what steps of a table make of its row with a key. Raises UntranslatableError."""
        if not isinstance(getter, MapValuesGetter):
            return row
        parent = self._looked_up(getter.parent, key, row)
        names = {"key": replace(key, nullable=False), "value": replace(parent, nullable=False)}
        return only_if(self.unfailing(getter.value, names), f"(NOT {parent.is_null})")

    def _global_topic(self, node: ProcessorNode, store: str) -> str:
        """Return the topic of a global table. Raises UntranslatableError for a table that a processor fills."""
        for sub in self._plan.sub_topologies:
            if any(other.processor == GlobalTableSource(store) for other in sub.nodes.values()):
                return sub.source_topics[0]
        raise self.refusal(node, "another step writes its table")

    def _table_topic(self, node: ProcessorNode, join: StreamTableJoin, rows: Records) -> str:
        """Return the topic of a table. Raises UntranslatableError for a table that other steps make, or of versions."""
        reasons = {
            "it waits for records of its table": join.grace is not None,
            "a step before it sets the timestamps": rows.time != rows.source.time,
        }
        refuse_if(reasons, where(self._plan, node))
        for other in self._sub.nodes.values():
            if store_of(other) is not None and store_of(other) == joined_store(node):
                (parent,) = other.parents
                source = self._sub.nodes[parent]
                is_topic = isinstance(source, SourceNode) and not source.internal and source.pattern is None
                if isinstance(source, SourceNode) and is_topic and len(source.topics) == 1:
                    return source.topics[0]
        raise self.refusal(node, "its table is none of a topic as it is")

    def _flattened(self, shown: str, processor: FlatMapValues, records: Records) -> Records:
        """Return a record for each item of a list, or for what a comprehension makes of those that it keeps."""
        tree, source = parse(processor.values)
        loop = tree if isinstance(tree, ast.ListComp | ast.GeneratorExp) else None
        items = Translator(source, records.names, self.footprint).items(
            tree if loop is None else loop.generators[0].iter
        )
        if any(isinstance(test, Exploded) for test in records.tests):
            raise UntranslatableError(f"{shown}: a step before it makes several records of one, too")
        key = records.key
        if key.kind == TEXT:
            fits = f"({key.sql} IS NULL OR octet_length({key.sql}) <= {_LONGEST_KEY})"
            records = records.tested(Guard(fits, f"{shown}: a key has over {_LONGEST_KEY} bytes"))
            records = replace(records, key=replace(key, size=_LONGEST_KEY * MOST_ITEMS))
        name = f"{len(records.tests)}: item"
        item = replace(items.item, sql=ticked(name))
        records = replace(records.tested(*items.guards, Exploded(name, items.sql)), value=item)
        return records if loop is None else self._looped(loop, source, records, item)

    def _looped(self, loop: ast.ListComp | ast.GeneratorExp, source: Source, records: Records, item: Term) -> Records:
        """Return a record for each item that a comprehension keeps."""
        over, *others = loop.generators
        if others or not isinstance(over.target, ast.Name):
            raise UntranslatableError(f"{source.text}: only a loop with one name has an exact form in SQL")
        names = {"key": records.key, "timestamp": records.time, over.target.id: item}
        translator = Translator(source, names, self.footprint)
        for condition in over.ifs:
            test = translator.condition(condition)
            records = records.guarded(test).kept_where(test.sql)
        return records.with_value(translator.of(loop.elt))

    def _changed(self, records: Records, key: Expression | None, value: Expression | None) -> Records:
        """Return records with other keys and values; both expressions see the records before."""
        names = records.names
        if key is not None:
            term = translate(key, names, self.footprint)
            records = replace(records.guarded(term), key=term.without_guards())
        if value is not None:
            records = records.with_value(translate(value, names, self.footprint))
        return records

    def _called(self, node: ProcessorNode, value: Expression, records: Records) -> Records:
        """Return records whose values a function of the user returns. The outputs take them unchanged, and determine their kind."""
        call, kind = translate_call(value, records.names, self.footprint), self._written_kind(node)
        if call is None or kind is None:
            return self._changed(records, None, value)
        for argument in call.arguments:
            records = records.guarded(argument)
        name = f"{len(records.tests)}: result"
        arguments = tuple(argument.sql for argument in call.arguments)
        called = Called(name, call.ref, COLUMN_TYPES[kind], arguments, call.shown)
        size = LONGEST * self.footprint.times if kind == TEXT else 0
        result = Term(kind, ticked(name), True, size=size)
        return replace(records.tested(called), value=result)

    def _written_kind(self, node: PlanNode) -> str | None:
        """Return the only kind of values that the outputs take; None if a further step or another stage reads the values."""
        kinds = set[str | None]()
        for name in node.children:
            child = self._sub.nodes[name]
            known: Sequence[str] = ()
            if isinstance(child, SinkNode) and not child.internal and isinstance(child.value_serde.spec, str):
                known = SERDE_KINDS.get(child.value_serde.spec, ())
            elif _passes_values(child):
                known = [kind for kind in [self._written_kind(child)] if kind is not None]
            kinds.add(known[0] if len(known) == 1 else None)
        return kinds.pop() if len(kinds) == 1 else None

    def _timed(self, node: ProcessorNode, processor: SetTimestamp, records: Records) -> Records:
        time = translate(processor.timestamp, records.names, self.footprint)
        if time.kind != INTEGER:
            raise self.refusal(node, f"{time.kind} is no timestamp")
        fits = Guard(f"({time.sql} BETWEEN 0 AND {LATEST})", f"{where(self._plan, node)}: it is no timestamp")
        return replace(records.guarded(time).tested(fits), time=replace(time, guards=(), nullable=False))

    def checked(self, node: PlanNode, part: str, serde: Serde, rows: _Checked) -> _Checked:
        """Return rows whose keys or values a serde writes and reads as they are. Raises UntranslatableError for others."""
        term = rows.key if part == "key" else rows.value
        is_session = isinstance(rows, Groups) and isinstance(rows.windows, SessionWindows)
        if term.kind == WINDOWED and isinstance(serde, SessionWindowedSerde if is_session else TimeWindowedSerde):
            serde, term = serde.inner, term.fields["key"]
        known = SERDE_KINDS.get(serde.spec, ()) if isinstance(serde.spec, str) else ()
        guards = fits_serde(serde.spec, term, f"{where(self._plan, node)}: its {part} has over 32 bits")
        # Earlier values of a key must fit too, not only the last one.
        if term.kind not in known or (guards and part == "value" and isinstance(rows, Groups)):
            raise self.refusal(node, f"its {part} is {term.kind} for the serde {serde.spec}")
        return rows.tested(*guards)

    def unfailing(self, expression: Expression, names: Mapping[str, Term]) -> Term:
        """Return an expression that can't fail: Python also evaluates it for earlier rows of a key, which the query does not have."""
        value = translate(expression, names, self.footprint)
        if value.guards:
            raise UntranslatableError(value.guards[0].reason)
        return value

    def refusal(self, node: PlanNode, reason: str) -> UntranslatableError:
        return UntranslatableError(f"{where(self._plan, node)}: {reason}")


def keeps_more(store: StoreDef) -> bool:
    """Return whether a store keeps more than the last row of each key."""
    return store.type == "versioned" or store.ttl is not None


def _passes_values(node: PlanNode) -> bool:
    """Return whether a node passes the value of each record on, without a look at it."""
    processor = node.processor
    is_key = isinstance(processor, SelectKey) and "value" not in processor.key.names
    return is_key or isinstance(processor, PassThrough)


def _of_changes(processor: TableFilter | TableMapValues, names: Mapping[str, Term]) -> Mapping[str, Term]:
    """Return the names that have the same values when a step computes a row, and later its old value at the next change."""
    return without_time(names) if processor.send_old and processor.store is None else names


def without_time(names: Mapping[str, Term]) -> dict[str, Term]:
    return {name: term for name, term in names.items() if name != "timestamp"}


def _maps(getter: Getter) -> bool:
    """Return whether a lookup computes the values of rows."""
    if not isinstance(getter, DerivedGetter):
        return False
    return isinstance(getter, MapValuesGetter) or _maps(getter.parent)


def store_of(node: PlanNode) -> str | None:
    """Return the store that a node keeps the rows of a topic's table in, only the latest of each key."""
    processor = node.processor
    return processor.store if isinstance(processor, TableSource) and not processor.versioned else None


def joined_store(node: PlanNode) -> str | None:
    """Return the store in which a join looks up rows as they are."""
    getter = node.processor.getter if isinstance(node.processor, StreamTableJoin) else None
    while isinstance(getter, MapValuesGetter):
        getter = getter.parent
    return getter.store if isinstance(getter, StoreGetter) and not getter.is_versioned else None


def of_foreign_key(node: PlanNode) -> bool:
    """Return whether a node reads or writes the messages of a foreign-key join."""
    return getattr(node, "value_kind", "") in ("subscription", "response")
