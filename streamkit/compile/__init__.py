"""From a plan's sub-topology to a program: one generated Python module that runs over batches."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Iterator
from operator import length_hint

from streamkit.code import NONE, Code, call, literal, mapping_of
from streamkit.compile.bound_program import BoundProgram
from streamkit.compile.deletions import emit_deletions
from streamkit.compile.generator import Generator
from streamkit.compile.program import Program
from streamkit.compile.record_writer import REPLAYS
from streamkit.compile.sinks import sinks_by_topic
from streamkit.compile.sources import emit_extractor, emit_source
from streamkit.compile.traced import Trace, TracedGenerator
from streamkit.errors import (
    DeserializationError,
    ProcessingError,
    ProcessorStartError,
    RefusedError,
    StateError,
    StoppedError,
    StreamkitError,
)
from streamkit.operators.core.task_services import FailedRecord
from streamkit.operators.kernels.calls.replays import Batch
from streamkit.plan.model import Plan, PlanNode, SourceNode, SubTopology
from streamkit.record import Headers

# Failures that a handler of a node has already raised, or that no handler may handle. Errors of a log are not among them: a
# program calls none, so they are those of the user's code, and a thread would take them for a pause of its own log.
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
    sources: dict[str, Code] = {}
    patterns: dict[str, Code] = {}
    extractors: dict[str, Code] = {}
    policies: dict[str, Code] = {}
    for node in sub_topology.nodes.values():
        if not isinstance(node, SourceNode):
            continue
        if node.pattern is not None:
            patterns[node.pattern] = emit_source(node, gen, None)
        for topic in node.topics:
            name = plan.internal_name(topic)
            sources[name] = call(emit_source(node, gen, topic), literal(name))
            extractor = emit_extractor(node, gen, topic)
            if extractor is not None:
                extractors[name] = extractor
            elif isinstance(policy := node.timestamps.get(topic), str):
                policies[name] = literal(policy)
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
    tail = _TAIL.format(
        sources=mapping_of(sources).source,
        patterns=mapping_of(patterns).source,
        extractors=mapping_of(extractors).source,
        policies=mapping_of(policies).source,
        stepwise=gen.stepwise,
        init=gen.lifecycle("init"),
        close=gen.lifecycle("close"),
        replays=REPLAYS if gen.holds_records else NONE.source,
        instances=mapping_of(gen.instances).source,
    )
    prologue = "".join(f"    {line}\n" for line in gen.prologue_lines)
    epilogue = "".join(f"    {line}\n" for line in gen.epilogue_lines)
    source = (
        _HEAD
        + (_REPLAY if gen.holds_records else "")
        + prologue
        + "\n"
        + "\n".join(gen.body_lines)
        + "\n"
        + epilogue
        + tail
    )
    name = f"{plan.application} sub-topology {sub_topology.id}"
    return Program(name, source, gen.nodes, gen.namespace, gen.sinks_by_topic or {})


def _offset_at(batch: Batch, left: Iterator[int]) -> int:
    """Return the offset of the current record, by the iterator over the timestamps that are left after it."""
    offsets, _, times = batch
    return offsets[len(times) - length_hint(left) - 1]


def _source_headers(batch: Batch, offset: int) -> Headers | None:
    """Return the headers of a source record; only a failed record needs them, so they are looked up here."""
    offsets, headers, _ = batch
    at = bisect_left(offsets, offset)
    return headers[at] if at < len(offsets) and offsets[at] == offset else None


def _not_initialised(node: PlanNode, error: Exception) -> str:
    origin = node.origin
    where = f"node {node.name}"
    if origin:
        where = f"{origin.position.file}:{origin.position.line}: pipeline {origin.pipeline}, step {origin.step}"
    reason = str(error) if isinstance(error, StreamkitError) else f"{type(error).__name__}: {error}"
    return " ".join(f"{where}: the processor can't start: {reason}".split())


__all__ = ["Program", "compile_sub_topology"]
