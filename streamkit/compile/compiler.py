"""From a plan's sub-topology to a program: one generated Python module that runs over batches."""

from __future__ import annotations

import dataclasses
from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from operator import length_hint
from typing import Protocol, Unpack

from streamkit.code import (
    NONE,
    TRUE,
    Code,
    all_of,
    attribute,
    call,
    is_not_none,
    list_of,
    literal,
    mapping_of,
    method,
    negated,
    symbol,
    tuple_of,
    unless_none,
)
from streamkit.compile.generator import REPLAYS, Generator, sinks_by_topic
from streamkit.compile.program import BoundProgram, Program
from streamkit.errors import (
    DeserializationError,
    ProcessingError,
    ProcessorStartError,
    RefusedError,
    SerdeError,
    StateError,
    StoppedError,
    StreamkitError,
)
from streamkit.operators.codegen.code_writer import Changes, ProcessorNode, RecordVariables, Slot
from streamkit.operators.codegen.table_code import ABSENT, emit_put
from streamkit.operators.core.task_services import FailedRecord
from streamkit.operators.kernels.replays import Batch
from streamkit.plan.model import Plan, PlanNode, SinkNode, SourceNode, SubTopology
from streamkit.record import Headers, Key, Value
from streamkit.serdes.serde import Serde
from streamkit.serdes.sides import split_changed

# Failures that a node's handler has already raised, or that no handler may handle. Errors of a log are not among them: a
# program makes no calls to a log, except for the number of partitions of a topic, whose failures are others. Such an error comes
# from the user's code, and the thread would mistake it for a failure of its own log.
FATAL = (ProcessingError, DeserializationError, StateError, StoppedError)

_HEAD = """
def bind(rt):
    out = rt.output.append
    dropped = rt.dropped
    kb = vb = None
    o = -1
    spot = None
    here = (None, -1)
    batch = ((), (), ())

    def offset():
        return o if spot is None else offset_at(batch, spot)

    def failed(k, v, t):
        at = offset()
        return FailedRecord(here[0], here[1], at, t, kb, vb, source_headers(batch, at), k, v)

    def fail(node, error, k, v, t, c):
        if isinstance(error, FATAL):
            raise error
        rt.on_error(node, error, failed(k, v, t))

    def refuse(node, error, k, v, t, c):
        if isinstance(error, FATAL):
            raise error
        rt.on_refusal(node, error, failed(k, v, t), False)

    def unencodable(node, error, k, v, t, c):
        if isinstance(error, FATAL):
            raise error
        rt.on_refusal(node, error, failed(k, v, t), True)

    def leave():
        nonlocal kb, vb, o, here, batch, spot
        kb = vb = spot = None
        o = -1
        here = (None, -1)
        batch = ((), (), ())

    def initialise(node, call):
        try:
            call()
        except Exception as error:
            raise ProcessorStartError(not_initialised(NODES[node], error)) from error

    def undecodable(node, error, t, h):
        rt.on_deserialization_error(node, error, FailedRecord(here[0], here[1], offset(), t, kb, vb, h))
"""

_REPLAY = """
    def origin():
        return kb, vb, offset(), here, batch

    def switch(found):
        nonlocal kb, vb, o, here, batch, spot
        kb, vb, o, here, batch = found
        spot = None
        rt.current_topic.size = len(here[0] or "")

"""

_TAIL = """
    return BoundProgram(
        sources={sources},
        patterns={patterns},
        extractors={extractors},
        stepwise={stepwise},
        timestamp_policies={policies},
        init={init},
        close={close},
        position=lambda: (*here, offset()),
        leave=leave,
        replays={replays},
        instances={instances},
    )
"""


def compile_sub_topology(
    plan: Plan,
    sub_topology: SubTopology,
    reached: Counter[str] | None = None,
    trace: Trace | None = None,
    *,
    measures_latency: bool = False,
) -> Program:
    """Return the program of a sub-topology; it is deterministic, so that every process has the same code.

    reached: receives the number of records that reach each node, by its name; for the coverage of tests only.
    trace: receives each visit of a node; for `try --trace` and `explain` only.
    measures_latency: whether the code notes the timestamps of records at terminal nodes (KIP-613).
    """
    gen = Generator(plan, sub_topology, reached) if trace is None else TracedGenerator(plan, sub_topology, trace)
    if measures_latency and not sub_topology.is_global:
        gen.sinks_by_topic = sinks_by_topic(plan, sub_topology)
    topics = _emit_sources(plan, sub_topology, gen)
    emit_deletions(gen)
    gen.emit_pending()
    gen.namespace.update(
        BoundProgram=BoundProgram,
        FailedRecord=FailedRecord,
        FATAL=FATAL,
        NODES=gen.nodes,
        ProcessorStartError=ProcessorStartError,
        RefusedError=RefusedError,
        not_initialised=_not_initialised,
        offset_at=_offset_at,
        source_headers=_source_headers,
    )
    name = f"{plan.application} sub-topology {sub_topology.id}"
    return Program(name, _module_text(gen, topics), gen.nodes, gen.namespace, gen.sinks_by_topic or {})


def _emit_sources(plan: Plan, sub_topology: SubTopology, gen: Generator) -> dict[str, dict[str, Code]]:
    """Write the functions of sources. Return the tables of the module: functions by topic and pattern, and what gives timestamps."""
    topics: dict[str, dict[str, Code]] = {name: {} for name in ("sources", "patterns", "extractors", "policies")}
    for node in sub_topology.nodes.values():
        if not isinstance(node, SourceNode):
            continue
        if node.pattern is not None:
            topics["patterns"][node.pattern] = emit_source(node, gen, None)
        for topic in node.topics:
            name = plan.internal_name(topic)
            topics["sources"][name] = call(emit_source(node, gen, topic), literal(name))
            extractor = emit_extractor(node, gen, topic)
            if extractor is not None:
                topics["extractors"][name] = extractor
            elif isinstance(policy := node.timestamps.get(topic), str):
                topics["policies"][name] = literal(policy)
    return topics


def _module_text(gen: Generator, topics: Mapping[str, Mapping[str, Code]]) -> str:
    """Return the text of a module whose functions have been written. topics: of `_emit_sources`."""
    tail = _TAIL.format(
        **{name: mapping_of(table).source for name, table in topics.items()},
        stepwise=gen.stepwise,
        init=gen.lifecycle("init"),
        close=gen.lifecycle("close"),
        replays=REPLAYS if gen.holds_records else NONE.source,
        instances=mapping_of(gen.instances).source,
    )
    prologue = "".join(f"    {line}\n" for line in gen.prologue_lines)
    epilogue = "".join(f"    {line}\n" for line in gen.epilogue_lines)
    head = _HEAD + (_REPLAY if gen.holds_records else "")
    return head + prologue + "\n" + "\n".join(gen.body_lines) + "\n" + epilogue + tail


def _offset_at(batch: Batch, left: Iterator[int]) -> int:
    """Return the offset of the current record. `left`: the iterator over the timestamps after it."""
    offsets, _, times = batch
    return offsets[len(times) - length_hint(left) - 1]


def _source_headers(batch: Batch, offset: int) -> Headers | None:
    """Return the headers of a source record; only a failed record needs them, so they are looked up here."""
    offsets, headers, _ = batch
    at = bisect_left(offsets, offset)
    return headers[at] if at < len(offsets) and offsets[at] == offset else None


def _not_initialised(node: PlanNode, error: Exception) -> str:
    origin = node.origin
    where = origin.place if origin else f"node {node.name}"
    reason = str(error) if isinstance(error, StreamkitError) else f"{type(error).__name__}: {error}"
    return " ".join(f"{where}: the processor can't start: {reason}".split())


__all__ = ["Program", "compile_sub_topology"]


# Writes the functions that delete the expired rows of a table: its own deletion, and the nodes below it.


def emit_deletions(gen: Generator) -> None:
    """Write for each store with a time to live the function that deletes a row as the store's table does.

    The inputs of a cogroup share a store and the nodes below it, so only the first one is written. Stores of processors have
    no table; they delete their rows themselves.
    """
    seen: set[str] = set()
    for node in gen.nodes:
        if not isinstance(node, ProcessorNode):
            continue
        store = getattr(node.processor, "store", None)
        if isinstance(store, str) and store not in seen and gen.stores[store].ttl is not None:
            seen.add(store)
            _emit(gen, node, store, bool(getattr(node.processor, "send_old", False)))


def _emit(gen: Generator, node: ProcessorNode, store: str, send_old: bool) -> None:
    def write(name: Code) -> None:
        key = Slot(raw=symbol("kb"), serde=gen.stores[store].key_serde, never_none=True)
        new = symbol("new")
        with gen.function(name, "kb", "old", "t"):
            gen.assign(new, NONE)
            record = RecordVariables(key, Slot(new), symbol("t"), gen.empty_context(), ABSENT)
            with gen.with_record(record), gen.separate_budget():
                gen.set_node(node)
                gen.comment(node)
                emit_put(gen, node, store, new, symbol("old") if send_old else None, symbol("t"))

    function = gen.deferred_function(("expire", store), "expire", write)
    needs_old = send_old and not gen.is_cached(store)
    gen.epilogue(method(gen.store(store), "on_expiry", function, literal(needs_old)))


# Writes the code of sources: for each topic a loop over the columns of a batch that decodes only the parts that nodes read.

# The decoding of these serdes can't fail, so bytes that no node reads need no check.
TOTAL = ("string", "bytes")

COLUMNS = ("keys", "values", "timestamps", "headers", "offsets", "partition")
"""The parameters of a source's function (compile.bound_program.Run)."""
KEY, VALUE = symbol("kb"), symbol("vb")
"""The bytes of the record that a source reads."""
AGAIN = {"k": symbol("kw"), "v": symbol("vw")}
"""By the variable of a decoded value, the variable of the bytes that Java would write for it."""


def emit_source(node: SourceNode, gen: Generator, topic: str | None) -> Code:
    """Write the factory of a source's loop for one topic (None: any topic of its pattern); return the factory's name."""
    keys, values = node.topic_serdes.get(topic or "", (node.key_serde, node.value_serde))
    factory = gen.var("source")
    with gen.function(factory, "topic"):
        run = symbol("run")
        with gen.function(run, *COLUMNS):
            gen.line("nonlocal kb, vb, o, here, batch, spot")
            lazy = _read_below(node, gen, keys, values)
            if _decodes_by_batch(node, values, lazy):
                gen.assign(symbol("decode"), call(gen.name_of(values.batch_decoder, "decoder"), symbol("values")))
            gen.assign(symbol("place"), tuple_of(symbol("topic"), symbol("partition")))
            gen.assign(symbol("rows"), tuple_of(symbol("offsets"), symbol("headers"), symbol("timestamps")))
            targets, columns = _columns(gen)
            if not gen.stepwise:
                _set_place(gen)
            with gen.each(targets, call("zip", *columns)):
                if gen.stepwise:
                    # Between two steps the loops of other topics process their records.
                    _set_place(gen)
                with gen.scope():
                    _body(node, gen, (keys, values), lazy)
                if gen.stepwise:
                    gen.line("yield")
        gen.returns(run)
    return factory


def _columns(gen: Generator) -> tuple[tuple[Code, ...], tuple[Code, ...]]:
    """Return the variables of a record that a loop sets, and the columns that it iterates over.

    If no node reads offsets, the number of remaining timestamps gives the position of the current record.
    """
    columns = {"t": "timestamps", "kb": "keys", "vb": "values", "c": "headers"}
    if gen.full_context:
        gen.assign(symbol("times"), NONE)
        columns["o"] = "offsets"
    else:
        gen.assign(symbol("times"), call("iter", symbol("timestamps")))
        columns["t"] = "times"
    return tuple(map(symbol, columns)), tuple(map(symbol, columns.values()))


def _set_place(gen: Generator) -> None:
    gen.assign_each(
        (symbol("here"), symbol("batch"), symbol("spot")), (symbol("place"), symbol("rows"), symbol("times"))
    )
    if gen.stepwise and any(gen.is_cached(store) for store in gen.sub_topology.stores):
        current = gen.prologue(("topic",), "current", attribute(symbol("rt"), "current_topic"))
        gen.assign(attribute(current, "size"), call("len", symbol("topic")))


def _read_below(node: SourceNode, gen: Generator, keys: Serde, values: Serde) -> RecordVariables:
    """Return the record of a first pass, whose code is discarded: its slots record which parts the nodes below read."""
    lazy = _encoded_record(node, keys, values)
    with gen.rehearsed():
        _children(node, gen, lazy)
    return lazy


def _decodes_by_batch(node: SourceNode, values: Serde, lazy: RecordVariables) -> bool:
    return values.batch_decoder is not None and node.value_kind == "plain" and lazy.value.var_used[0]


def _body(node: SourceNode, gen: Generator, serdes: tuple[Serde, Serde], lazy: RecordVariables) -> None:
    if gen.counts:
        gen.do(method(gen.budget(), "start"))
    keys, values = serdes
    by_batch = _decodes_by_batch(node, values, lazy)
    record = RecordVariables(
        _slot("k", KEY, keys, lazy.key), _slot("v", VALUE, values, lazy.value), symbol("t"), symbol("c")
    )
    with gen.attempt() as decoding:
        _decode(gen, "k", KEY, keys, lazy.key)
        if by_batch:
            gen.assign(symbol("v"), unless_none(VALUE, call("decode", VALUE)))
        elif node.value_kind == "plain":
            _decode(gen, "v", VALUE, values, lazy.value)
        elif node.value_kind == "changed":
            new, old = symbol("nb"), symbol("ob")
            gen.unpack((new, old), call(gen.name_of(split_changed, "split_changed"), VALUE))
            record.value = Slot(raw=new, serde=values)
            record.old = Slot(raw=old, serde=values)
        else:
            record.value = Slot(VALUE)
    if not decoding.empty:
        with gen.rescue():
            error = symbol("e")
            if by_batch:
                gen.assign(error, call(gen.name_of(values.explained, "explained"), error, VALUE))
            gen.do(call("undecodable", gen.index(node), error, symbol("t"), symbol("c")))
            if gen.stepwise:
                gen.line("yield")
            gen.line("continue")
    gen.count(node)
    if gen.full_context:
        gen.assign(symbol("c"), tuple_of(*map(symbol, ("c", "topic", "partition", "o"))))
    _children(node, gen, record)
    gen.fill_empty()


def _encoded_record(node: SourceNode, keys: Serde, values: Serde) -> RecordVariables:
    record = RecordVariables(Slot(raw=KEY, serde=keys), Slot(raw=VALUE, serde=values), symbol("t"), symbol("c"))
    if node.value_kind == "changed":
        record.old = Slot(raw=symbol("ob"), serde=values)
    elif node.value_kind != "plain":
        record.value = Slot(VALUE)
    return record


def _slot(variable: str, raw: Code, serde: Serde, seen: Slot) -> Slot:
    if not seen.var_used[0]:
        return Slot(raw=raw, serde=serde, unchecked=_is_total(serde, raw))
    if seen.raw_used[0] and serde.well_formed_source(raw) is not None:
        return Slot(symbol(variable), AGAIN[variable], serde)
    return Slot(var=symbol(variable), source_bytes=(raw, serde))


def _is_always_canonical(serde: Serde, raw: Code) -> bool:
    canonical = serde.canonical_source(raw)
    return canonical is not None and canonical.source == TRUE.source


def _is_total(serde: Serde, raw: Code) -> bool:
    """Return whether bytes need no check here, because they are checked when they are written."""
    return serde.spec in TOTAL and not _is_always_canonical(serde, raw)


def _decode(gen: Generator, variable: str, raw: Code, serde: Serde, seen: Slot) -> None:
    """Write the decoding that Java does here; if no node reads the value, only the part that determines the bytes that Java writes."""
    value = symbol(variable)
    if seen.var_used[0]:
        gen.assign_decoded(value, serde, raw, AGAIN[variable] if seen.raw_used[0] else None)
        return
    if _is_always_canonical(serde, raw) or serde.spec in TOTAL:
        return
    canonical = serde.canonical_source(raw)
    # Names are created in the order in which the code reads them.
    again = gen.encoded(serde, value)
    gen.namespace.update(serde.inline_globals)
    present = is_not_none(raw)
    with gen.when(present if canonical is None else all_of(present, negated(canonical))):
        gen.assign(value, gen.decoded(serde, raw, never_none=True))
        if seen.raw_used[0]:
            gen.assign(raw, again)


def _children(node: SourceNode, gen: Generator, record: RecordVariables) -> None:
    gen.record = record
    gen.forward(node)


def emit_extractor(node: SourceNode, gen: Generator, topic: str) -> Code | None:
    """Write the function that extracts timestamps from a topic's records; None if the topic's entry has no expression."""
    expression = node.timestamps.get(topic)
    if expression is None or isinstance(expression, str):
        return None
    keys, values = node.topic_serdes.get(topic, (node.key_serde, node.value_serde))
    extract, times, error = gen.var("extract"), symbol("found"), symbol("e")
    columns = {"timestamp": "t", "headers": "h", "topic": "topic", "partition": "partition", "offset": "o"}
    bindings = {name: symbol(variable) for name, variable in columns.items()}
    with gen.function(extract, *COLUMNS):
        gen.assign(symbol("topic"), literal(topic))
        gen.assign(times, list_of())
        with gen.each(tuple(map(symbol, ("kb", "vb", "t", "h", "o"))), call("zip", *map(symbol, COLUMNS[:5]))):
            if gen.counts:
                gen.do(method(gen.budget(), "start"))
            with gen.attempt():
                for name, variable, raw, serde in (("key", "k", KEY, keys), ("value", "v", VALUE, values)):
                    if name in expression.names:
                        bindings[name] = symbol(variable)
                        gen.assign(bindings[name], gen.decoded(serde, raw))
                gen.do(method(times, "append", gen.expr(expression, **bindings)))
            with gen.rescue():
                why = call(gen.name_of(Decoding(keys, values), "decoding"), error, KEY, VALUE)
                gen.do(method(times, "append", why))
        gen.returns(times)
    return extract


class Decoding:
    """Distinguishes a record that can't be decoded from a failing timestamp expression: Java decodes key and value first."""

    def __init__(self, keys: Serde, values: Serde):
        self._sides = keys, values

    def __call__(self, error: Exception, key: bytes | None, value: bytes | None) -> Exception:
        """Return the error of decoding the key or the value, if there is one, else the error of the expression."""
        for serde, data in zip(self._sides, (key, value), strict=True):
            try:
                if data is not None:
                    serde.decode(data)
            except SerdeError as reason:
                return reason
            except Exception:
                break  # for example a registry that does not answer, which may be the cause of `error`
        return error


# Writes the traced variant of a program: each node is a separate function, which reports what reaches and what leaves it.
#
# `try --trace` and `explain` run it; applications run what `Generator` writes.


class Trace(Protocol):
    """Receives what reaches and what leaves the nodes of a program; `node` is an index into Program.nodes."""

    def enter(self, node: int, key: Key, value: Value, old: Value, time: int) -> None:
        """Begin the visit of a node by a record; `old`: the old value of a table's row."""

    def leave(self) -> None:
        """End the visit that began last."""

    def forward(self, node: int, key: Key, value: Value, old: Value, time: int) -> None:
        """Begin the forwarding of a record by a node; caches and timers forward outside of a visit."""

    def forwarded(self) -> None:
        """End the forwarding that began last."""


class TracedGenerator(Generator):
    """A Generator whose code reports each visit of a node to a `Trace`."""

    def __init__(self, plan: Plan, sub_topology: SubTopology, trace: Trace):
        super().__init__(plan, sub_topology)
        self.namespace["trace"] = trace

    def write_child(self, name: str, record: RecordVariables) -> None:
        """Write a call of the child's function."""
        with self.with_record(record):
            self.call(self.node_function(self.child(name), record.is_table), record)

    def write_body(self, node: ProcessorNode | SinkNode, record: RecordVariables) -> None:
        """Write the body of a node's function between the reports of its visit."""
        with self._reported(("trace.enter", "trace.leave"), node, record):
            super().write_body(node, record)

    def forward(self, node: SourceNode | ProcessorNode, **changes: Unpack[Changes]) -> None:
        """Write the children of a node between the reports of what it forwards; a source is visited here."""
        record = dataclasses.replace(self.record, **changes)
        reports = (
            ("trace.enter", "trace.leave") if isinstance(node, SourceNode) else ("trace.forward", "trace.forwarded")
        )
        with self._reported(reports, node, record):
            super().forward(node, **changes)

    def forward_to(self, node: SourceNode | ProcessorNode, child: str) -> None:
        """Write one child of a node between the reports of what the node forwards."""
        with self._reported(("trace.forward", "trace.forwarded"), node, self.record):
            super().forward_to(node, child)

    @contextmanager
    def _reported(
        self, reports: tuple[str, str], node: SourceNode | ProcessorNode | SinkNode, record: RecordVariables
    ) -> Iterator[None]:
        begin, end = reports
        key, value = self.object_of(record.key), self.object_of(record.value)
        old: Code = NONE if record.old is None else self.object_of(record.old)
        self.do(call(begin, self.index(node), key, value, old, record.time))
        with self.block("try:"):
            yield
        with self.block("finally:"):
            self.do(call(end))


# The generated code of a plan, for people to read.


def describe_code(plan: Plan) -> str:
    """Return the Python that applications run for every sub-topology, each below a comment with its source topics."""
    parts = [
        f"# Sub-topology {sub.id}: reads {', '.join(sub.source_topics) or 'a pattern'}\n"
        + compile_sub_topology(plan, sub, measures_latency=True).source.strip()
        for sub in plan.sub_topologies
    ]
    return "\n\n\n".join(parts)
