"""Writes a sub-topology as one Python module: sources are loops over columns, children are inlined depth first."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from typing import TypeAlias, Unpack

from streamkit.code import (
    NONE,
    Code,
    attribute,
    binary,
    call,
    compare,
    item,
    literal,
    method,
    negated,
    sliced,
    symbol,
    tuple_of,
    unless_none,
)
from streamkit.compile.program_needs import counts, holds_back, mixes_order, needs_context
from streamkit.errors import StreamkitError
from streamkit.expressions import Expression
from streamkit.metrics import DropReason
from streamkit.operators.codegen.code_writer import (
    Changes,
    CodeWriter,
    ProcessorNode,
    RecordVariables,
    Slot,
    record_of_parameters,
)
from streamkit.operators.kernels.replays import Replays
from streamkit.plan.model import Plan, PlanNode, SinkNode, SourceNode, SubTopology
from streamkit.record import Value, WindowedKey
from streamkit.serdes.formats.windowed import SessionWindowedSerde, TimeWindowedSerde
from streamkit.serdes.partitioner import partition
from streamkit.serdes.serde import Serde
from streamkit.serdes.sides import join_changed
from streamkit.state.layouts import TWO_LONGS, pack_long

# Deeper code moves to a separate function: Python refuses more than about 100 levels of indentation.
MAX_DEPTH = 30
# Python refuses 20 nested loops and `try` statements.
MAX_NESTED_ATTEMPTS = 8

REPLAYS = "replays"
_Child: TypeAlias = ProcessorNode | SinkNode
_Parent: TypeAlias = SourceNode | ProcessorNode


class Generator(CodeWriter):
    """The CodeWriter that the `emit` of processors uses."""

    def __init__(self, plan: Plan, sub_topology: SubTopology, reached: Counter[str] | None = None):
        config, nodes = plan.config, tuple(sub_topology.nodes.values())
        super().__init__(
            plan.stores,
            [name for sub in plan.sub_topologies if sub.is_global for name in sub.stores],
            config,
            counts(sub_topology, config.expression_max_bytes, config.expression_max_steps),
            needs_context(nodes),
        )
        self.plan = plan
        self.sub_topology = sub_topology
        self.nodes = nodes
        self.reached = reached
        self._index = {node.name: i for i, node in enumerate(self.nodes)}
        self._functions: dict[tuple[object, ...], Code] = {}
        self._pending: list[tuple[Code, Callable[[Code], None]]] = []
        self._node: PlanNode | None = None
        self._nested_attempts = 0
        self.sinks_by_topic: Mapping[str, str] | None = None
        """Sinks whose records are the output rows of a topic, by that topic; None if latencies are not measured."""

    # -- Used by processors -------------------------------------------------------------------------------------

    def node(self, name: str) -> ProcessorNode:
        node = self.sub_topology.nodes[name]
        assert isinstance(node, ProcessorNode)
        return node

    def charge_record(self, node: PlanNode, value: Code) -> None:
        if self.counts:
            with self.guard(node):
                self.do(method(self.budget(), "row", value))

    def index(self, node: PlanNode) -> Code:
        return literal(self._index[node.name])

    def on_lifecycle(self, moment: str, node: PlanNode, call: Code) -> None:
        self._lifecycle[moment].setdefault(call.source, self._index[node.name])

    @contextmanager
    def guard(self, node: PlanNode | None = None, handler: str = "") -> Iterator[None]:
        """Write lines whose failure is this node's; the rest of the block runs only if they succeed.

        handler: the function that handles a failure; by default `refuse` for a sink, else `fail`.
        """
        node = node or self._node
        assert node is not None
        born = self._count
        with self.attempt() as guarded:
            yield
        if guarded.empty:
            # The bytes are used as they are, which can't fail.
            return
        record = self.record
        key, value = self.failed_value(record.key, born), self.failed_value(record.value, born)
        with self.rescue():
            handler = handler or ("refuse" if isinstance(node, SinkNode) else "fail")
            self.do(call(handler, self.index(node), symbol("e"), key, value, record.time, record.context))
        self.rest("else:")

    def forward(self, node: _Parent, **changes: Unpack[Changes]) -> None:
        record = dataclasses.replace(self.record, **changes)
        for name in node.children:
            self.write_child(name, record.copy())

    def forward_to(self, node: _Parent, child: str) -> None:
        self.write_child(child, self.record.copy())

    def child_function(self, child: str) -> Code:
        return self.node_function(self.child(child), False)

    def child(self, name: str) -> _Child:
        """Return a node that other nodes forward to, by its name."""
        child = self.sub_topology.nodes[name]
        assert not isinstance(child, SourceNode)
        return child

    def write_child(self, name: str, record: RecordVariables) -> None:
        """Write the work of a child of a node: in place, or as the call of a function."""
        child = self.child(name)
        if len(child.parents) == 1 and self._depth < MAX_DEPTH and self._nested_attempts < MAX_NESTED_ATTEMPTS:
            self.emit_node(child, record)
        else:
            with self.with_record(record):
                self.call(self.node_function(child, record.is_table), record)

    def call(self, function: Code, record: RecordVariables) -> None:
        """Write a call of a node's or forward function with a record."""
        key, value = self.object_of(record.key), self.object_of(record.value)
        if record.old is not None:
            self.do(call(function, key, value, self.object_of(record.old), record.time, record.context, record.latest))
        else:
            self.do(call(function, key, value, record.time, record.context))

    def node_function(self, node: _Child, table: bool) -> Code:
        """Return the name of a function that does a node's work: (k, v, t, c), for tables (k, v, old, t, c, latest)."""
        return self.deferred_function(
            ("node", node.name, table),
            f"n{self._index[node.name]}",
            lambda name: self._write_node_function(name, node, table),
        )

    def forward_function(self, node: ProcessorNode, table: bool) -> Code:
        return self.deferred_function(
            ("forward", node.name, table),
            f"f{self._index[node.name]}",
            lambda name: self._write_forward_function(name, node, table),
        )

    def flush_listener(self, node: ProcessorNode, key_serde: Serde, window: str | None = None) -> Code:
        return self.deferred_function(
            ("listener", node.name),
            f"l{self._index[node.name]}",
            lambda name: emit_listener(self, name, node, key_serde, window),
        )

    def callable_of(self, expression: Expression, parameters: Mapping[str, str], *more: str) -> Code:
        signature = (*parameters.values(), *more)

        def write(name: Code) -> None:
            with self.with_record(record_of_parameters()), self.function(name, *signature):
                result = self.expr(expression, **{parameter: symbol(name) for parameter, name in parameters.items()})
                # A kernel may call the function several times for one record.
                self.returns(method(self.budget(), "item", result) if self.counts else result)

        return self.deferred_function(("callable", id(expression), signature), "x", write)

    def deferred_function(self, key: tuple[object, ...], prefix: str, write: Callable[[Code], None]) -> Code:
        if key not in self._functions:
            name = self.var(prefix)
            self._functions[key] = name
            self._pending.append((name, write))
        return self._functions[key]

    def replays(self) -> Code:
        self.namespace["Replays"] = Replays
        return self.named_prologue(REPLAYS, call("Replays", symbol("origin"), symbol("switch")))

    @property
    def holds_records(self) -> bool:
        """Whether any step of the program holds records back."""
        return "Replays" in self.namespace

    def mixes_order(self, node: PlanNode) -> bool:
        return mixes_order(self.sub_topology, node.name)

    def reads_one_topic(self) -> bool:
        patterns = (node.pattern for node in self.nodes if isinstance(node, SourceNode))
        return len(self.sub_topology.source_topics) == 1 and not any(patterns)

    @property
    def stepwise(self) -> bool:
        """Whether the loops of sources process one record at each step: if several topics may be merged."""
        return not (self.reads_one_topic() or self.sub_topology.is_global)

    def set_node(self, node: ProcessorNode) -> None:
        """Set the node to which failures of the next lines belong."""
        self._node = node

    def emit_node(self, node: _Child, record: RecordVariables) -> None:
        """Write the work of a node for a record, at the current depth."""
        saved = self.record, self._depth, self._node
        self.record, self._node = record, node
        self.comment(node)
        self.count(node)
        if self.sinks_by_topic is not None and (isinstance(node, SinkNode) or not node.children):
            self.note_latency(node, self.sinks_by_topic)
        if isinstance(node, SinkNode):
            emit_sink(node, self)
        else:
            with self._attempt_above_sinks(node):
                node.processor.emit(node, self)
        self.fill_empty()
        self.record, self._depth, self._node = saved

    @contextmanager
    def _attempt_above_sinks(self, node: ProcessorNode) -> Iterator[None]:
        """Write the work of a node, which ends if a sink directly below it refuses a record."""
        if not any(isinstance(self.sub_topology.nodes[child], SinkNode) for child in node.children):
            yield
            return
        record, born = self.record, self._count
        self._nested_attempts += 1
        with self.attempt():
            yield
            self.fill_empty()
        self._nested_attempts -= 1
        key, value = self.failed_value(record.key, born), self.failed_value(record.value, born)
        with self.block("except RefusedError as e:"):
            self.do(call("fail", self.index(node), symbol("e"), key, value, record.time, record.context))

    def comment(self, node: PlanNode) -> None:
        """Write a comment with the node and the step that the next lines belong to."""
        origin = (
            f"  ({node.origin.pipeline}: {node.origin.step}, line {node.origin.position.line})" if node.origin else ""
        )
        self.line(f"# {node.name}{origin}")

    def count(self, node: PlanNode) -> None:
        """Write the counting of a record that reaches a node, for `--coverage` only, never in an application."""
        if self.reached is not None:
            self.namespace["reached"] = self.reached
            self.add_to(item(symbol("reached"), node.name), literal(1))

    def note_latency(self, node: _Child, sinks: Mapping[str, str]) -> None:
        """Write the noting of a record's timestamp at a terminal node, for its end-to-end latency (KIP-613).

        Nothing is noted at the sinks of `sinks`: the rows that they write have the timestamps.
        """
        if node.name in sinks.values():
            return
        times = method(symbol("rt"), "times_at", literal(node.name))
        self.do(call(self.prologue(("latency", node.name), "ended", attribute(times, "append")), self.record.time))

    # -- Deferred functions -------------------------------------------------------------------------------------

    def emit_pending(self) -> None:
        """Write every deferred function, until none defers another."""
        while self._pending:
            name, write = self._pending.pop(0)
            saved, self._depth, self._nested_attempts = self._depth, 1, 0
            write(name)
            self.fill_empty()
            self._depth = saved

    def _write_node_function(self, name: Code, node: _Child, table: bool) -> None:
        record = record_of_parameters(table)
        with self.function(name, *_parameters(table)):
            self.write_body(node, record)

    def write_body(self, node: _Child, record: RecordVariables) -> None:
        """Write the body of a node's function."""
        if len(node.parents) > 1:
            with self.with_record(record):
                self.charge_record(node, self.object_of(record.value))
        self.emit_node(node, record)

    def _write_forward_function(self, name: Code, node: ProcessorNode, table: bool) -> None:
        with self.function(name, *_parameters(table)):
            self.record, self._node = record_of_parameters(table), node
            with self.separate_budget() if holds_back(node.processor) else nullcontext():
                self.forward(node)


def _parameters(table: bool) -> tuple[str, ...]:
    return ("k", "v", "old", "t", "c", "latest") if table else ("k", "v", "t", "c")


# Writes the functions that forward the entries that leave the cache of a store.

KEY, START, END, TIME, CONTEXT = map(symbol, ("kb", "start", "end", "t", "c"))
WINDOWED, TOPIC_KEY = symbol("k"), symbol("wb")
"""A windowed key, and its bytes in a topic."""


def emit_listener(gen: Generator, name: Code, node: ProcessorNode, key_serde: Serde, window: str | None) -> None:
    """Write a listener (state.store_interface.FlushListener) that forwards the entries that leave the cache to the children of a node.

    `window`: "time" or "session" for the form with start and end (WindowedFlushListener); a session's time is its end.
    """
    bounds = () if window is None else ("start", "end")
    with gen.function(name, "kb", *bounds, "v", "old", "t", "c"):
        key = Slot(raw=KEY, serde=key_serde, never_none=True)
        if window is not None:
            key = _windowed_key(gen, node, key_serde, window)
        _forward(gen, node, key, END if window == "session" else TIME)


def _forward(gen: Generator, node: ProcessorNode, key: Slot, time: Code) -> None:
    gen.record = RecordVariables(key, Slot(symbol("v")), time, CONTEXT, Slot(symbol("old")))
    gen.set_node(node)
    with gen.separate_budget():
        gen.forward(node)


def _windowed_key(gen: Generator, node: ProcessorNode, key_serde: Serde, window: str) -> Slot:
    """Write the forms of a windowed key that nodes below read: the key, its bytes in a topic, or both; return them as a slot."""
    serde, tail = _topic_form(gen, node, key_serde, window)
    seen = Slot(raw=TOPIC_KEY, serde=serde, never_none=True)
    # A first pass, whose lines are discarded, finds the forms that are read.
    with gen.rehearsed():
        _forward(gen, node, seen, TIME)
    windowed = call(gen.name_of(WindowedKey, "WindowedKey"), gen.decoded(key_serde, KEY, True), START, END)
    key = Slot(serde=serde, never_none=True, shown=windowed)
    if seen.var_used[0]:
        key.var = WINDOWED
        gen.assign(WINDOWED, windowed)
    if seen.raw_used[0] or not seen.var_used[0]:
        key.raw = TOPIC_KEY
        gen.assign(TOPIC_KEY, binary(KEY, "+", tail))
    return key


def _topic_form(gen: Generator, node: ProcessorNode, key_serde: Serde, window: str) -> tuple[Serde, Code]:
    """Return the serde of windowed keys in topics, and the piece of the bytes that follow the key there."""
    if window == "session":
        return SessionWindowedSerde(key_serde), call(gen.name_of(TWO_LONGS.pack, "pack"), END, START)
    sizes = (gen.stores[store].window_size for store in node.stores)
    serde = TimeWindowedSerde(key_serde, next(filter(None, sizes), 0))
    return serde, call(gen.name_of(pack_long, "pack"), START)


# Writes the code of sinks, which append records to the output of the task.


def emit_sink(node: SinkNode, gen: Generator) -> None:
    """Write the encoding of the current record and the output of its row."""
    with gen.guard(node):
        topic = _topic(node, gen)
        declared = None if node.partition is None else _given_partition(node, gen, topic)
    with gen.guard(node, "unencodable"):
        if node.route is None:
            key, value = gen.bytes_of(gen.record.key, node.key_serde), _value(node, gen)
        else:
            key, value = _routed_record(node, gen, topic)
        where = declared or _partition(node, gen, key, topic)
    row = (topic, key, value, gen.record.time, gen.headers())
    if node.partition is None or node.value_kind in ("subscription", "response"):
        gen.do(call("out", tuple_of(*row, where)))
        return
    with gen.when(compare(call("type", where), "is", symbol("tuple"))):
        one = gen.var("partition")
        with gen.when(negated(where)):
            gen.drop(DropReason.NO_PARTITION)
        with gen.each((one,), where):
            gen.do(call("out", tuple_of(*row, one)))
    with gen.otherwise():
        gen.do(call("out", tuple_of(*row, where)))


def sinks_by_topic(plan: Plan, sub_topology: SubTopology) -> dict[str, str]:
    """Return the names of the sinks whose records are exactly the output rows of one topic, by that topic.

    Others share their topic, or write a record to several topics or partitions.
    """
    sinks = [node for node in sub_topology.nodes.values() if isinstance(node, SinkNode)]
    if any(node.topic is None for node in sinks):
        return {}
    names = [plan.internal_name(node.topic) for node in sinks if node.topic is not None]
    return {
        topic: node.name
        for topic, node in zip(names, sinks, strict=True)
        if names.count(topic) == 1 and (node.partition is None or node.value_kind in ("subscription", "response"))
    }


def _value(node: SinkNode, gen: Generator) -> Code:
    """Return the piece of the value's bytes."""
    if node.value_kind == "plain":
        return gen.bytes_of(gen.record.value, node.value_serde)
    if node.value_kind == "changed":
        assert gen.record.old is not None
        new, old = gen.bytes_of(gen.record.value, node.value_serde), gen.bytes_of(gen.record.old, node.value_serde)
        value = gen.var("b")
        gen.assign(value, call(gen.name_of(join_changed, "join_changed"), new, old))
        return value
    # Foreign-key joins forward bytes; a response carries the partition of its subscription.
    value = gen.object_of(gen.record.value)
    return item(value, 0) if node.value_kind == "response" else value


def _routed_record(node: SinkNode, gen: Generator, topic: Code) -> tuple[Code, Code]:
    """Return the variables of key and value; a registry's serdes write by the subject of each record's topic."""
    variables: list[Code] = []
    by_topic: list[tuple[int, Code, Serde]] = []
    for slot, serde in ((gen.record.key, node.key_serde), (gen.record.value, node.value_serde)):
        if serde.by_topic:
            by_topic.append((len(variables), gen.object_of(slot), serde))
            variables.append(gen.var("b"))
        else:
            variables.append(gen.bytes_of(slot, serde))
    for index, variable, serde in by_topic:
        encode = gen.name_of(RoutedEncoder(serde, index == 0), "encode")
        gen.assign(variables[index], unless_none(variable, call(encode, topic, variable)))
    return variables[0], variables[1]


class RoutedEncoder:
    """Encodes with the serde bound to each topic; it binds the serde when a topic first occurs."""

    def __init__(self, serde: Serde, is_key: bool):
        self._serde = serde
        self._is_key = is_key
        self._known: dict[str, Serde] = {}

    def __call__(self, topic: str, value: Value) -> bytes:
        """Return the bytes of a value for a topic. Raises SerdeError, RegistryError."""
        serde = self._known.get(topic)
        if serde is None:
            serde = self._known[topic] = self._serde.on_topic(topic, self._is_key)
        return serde.encode(value)


def _topic(node: SinkNode, gen: Generator) -> Code:
    if node.topic is not None:
        return literal(gen.plan.internal_name(node.topic))
    assert node.route is not None
    topic = gen.var("topic")
    gen.assign(topic, call(gen.name_of(routed, "routed"), gen.expr(node.route)))
    return topic


def _given_partition(node: SinkNode, gen: Generator, topic: Code) -> Code:
    """Return the variable of the partition from the sink's own expression."""
    count, partition = gen.var("count"), gen.var("partition")
    gen.assign(count, call("rt.partitions", topic))
    assert node.partition is not None
    computed = gen.expr(node.partition, partitions=count)
    check = joining_partition if node.value_kind in ("subscription", "response") else checked_partition
    gen.assign(partition, call(gen.name_of(check, "checked"), computed, count))
    return partition


def _partition(node: SinkNode, gen: Generator, key: Code, topic: Code) -> Code:
    partitions = call("rt.partitions", topic)
    if node.value_kind == "response":
        return item(gen.object_of(gen.record.value), 1)
    tail = windowed_tail(node.key_serde)
    if tail == 0 or (node.internal and node.value_kind != "subscription"):
        # Repartition topics are partitioned by all bytes of a windowed key (BaseRepartitionNode).
        return NONE
    chosen = gen.var("partition")
    inner = sliced(key, stop=-tail)
    gen.assign(chosen, unless_none(key, call(gen.name_of(partition, "partition"), inner, partitions)))
    return chosen


def windowed_tail(serde: Serde) -> int:
    """Return how many bytes of an encoded key are its window; they don't decide the partition (WindowedStreamPartitioner)."""
    spec = serde.spec
    if isinstance(spec, dict) and "windowed" in spec:
        return 8
    if isinstance(spec, dict) and "session_windowed" in spec:
        return 16
    return 0


def routed(topic: object) -> str:
    """Return the topic name that `route` gave. Raises StreamkitError for anything else."""
    if not isinstance(topic, str) or not topic:
        raise StreamkitError(f"route gave {topic!r}; expected the name of a topic")
    return topic


def checked_partition(partition: object, count: int) -> int | tuple[int | None, ...] | None:
    """Return a partition that an expression gave, None for the key's, or a tuple of several in ascending order.

    Raises StreamkitError for anything but a number from 0 to count - 1 or a list of them (StreamPartitioner.partitions).
    """
    if type(partition) is int and 0 <= partition < count:
        return partition
    if partition is None:
        return None
    if isinstance(partition, (list, tuple, set, frozenset)) and all(
        type(number) is int and 0 <= number < count for number in partition
    ):
        return tuple(sorted(set(partition)))
    raise StreamkitError(
        f"partition gave {partition!r}; expected a number from 0 to {count - 1}, a list of them, or None"
    )


def joining_partition(computed: object, count: int) -> int | None:
    """Return the one partition that an expression of a foreign-key join gave, or None. Raises StreamkitError for several."""
    partition = checked_partition(computed, count)
    if not isinstance(partition, tuple):
        return partition
    if len(partition) != 1:
        raise StreamkitError(f"a foreign-key join sends each record to one partition; its expression gave {computed!r}")
    return partition[0]
