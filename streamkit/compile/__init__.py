"""From a plan's sub-topology to a program: one generated Python module that runs over batches."""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from typing import Any

from streamkit.code import Code, call, literal, mapping_of
from streamkit.compile.deletions import emit_deletions
from streamkit.compile.generator import Generator
from streamkit.compile.program import Program
from streamkit.compile.services import BoundProgram, FailedRecord
from streamkit.compile.sources import emit_extractor, emit_source
from streamkit.errors import (
    DeserializationError,
    ProcessingError,
    ProductionError,
    RefusedError,
    StateError,
    StreamkitError,
    TransportError,
)
from streamkit.plan.model import Plan, SourceNode, SubTopology

# A failure that some node has already answered with `fail`, or that no handler may answer.
FATAL = (ProcessingError, DeserializationError, ProductionError, StateError, TransportError)

_HEAD = """
def bind(rt):
    out = rt.output.append
    dropped = rt.dropped
    kb = vb = None
    o = -1
    here = (None, -1)
    batch = ((), ())

    def failed(k, v, t):
        return FailedRecord(here[0], here[1], o, t, kb, vb, source_headers(batch, o), k, v)

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
        nonlocal kb, vb, o, here, batch
        kb = vb = None
        o = -1
        here = (None, -1)
        batch = ((), ())

    def initialise(node, call):
        try:
            call()
        except Exception as error:
            raise ProcessingError(not_initialised(NODES[node], error)) from error

    def undecodable(node, error, t, h):
        rt.on_deserialization_error(node, error, FailedRecord(here[0], here[1], o, t, kb, vb, h))
"""

_TAIL = """
    return BoundProgram(
        sources={sources},
        patterns={patterns},
        extractors={extractors},
        timestamp_policies={policies},
        init={init},
        close={close},
        position=lambda: (*here, o),
        leave=leave,
    )
"""


def compile_sub_topology(plan: Plan, sub_topology: SubTopology, reached: Counter[str] | None = None) -> Program:
    """Return the program of a sub-topology; deterministic, so that every process writes the same code.

    reached: counts the records that reach each node, by its name; for tests' coverage only.
    """
    gen = Generator(plan, sub_topology, reached)
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
            elif isinstance(node.timestamps.get(topic), str):
                policies[name] = literal(node.timestamps[topic])
    emit_deletions(gen)
    gen.emit_pending()
    gen.namespace.update(
        BoundProgram=BoundProgram,
        FailedRecord=FailedRecord,
        FATAL=FATAL,
        NODES=gen.nodes,
        ProcessingError=ProcessingError,
        RefusedError=RefusedError,
        not_initialised=_not_initialised,
        source_headers=_source_headers,
    )
    tail = _TAIL.format(
        sources=mapping_of(sources).source,
        patterns=mapping_of(patterns).source,
        extractors=mapping_of(extractors).source,
        policies=mapping_of(policies).source,
        init=gen.lifecycle("init"),
        close=gen.lifecycle("close"),
    )
    prologue = "".join(f"    {line}\n" for line in gen.prologue_lines)
    epilogue = "".join(f"    {line}\n" for line in gen.epilogue_lines)
    source = _HEAD + prologue + "\n" + "\n".join(gen.lines) + "\n" + epilogue + tail
    name = f"{plan.application} sub-topology {sub_topology.id}"
    return Program(name, source, gen.nodes, gen.namespace)


def _source_headers(batch: tuple, offset: int) -> Any:
    """Return the headers that a record was read with: looked up when it fails, since no other record needs them."""
    offsets, headers = batch
    at = bisect_left(offsets, offset)
    return headers[at] if at < len(offsets) and offsets[at] == offset else None


def _not_initialised(node: Any, error: Exception) -> str:
    origin = node.origin
    where = f"node {node.name}"
    if origin:
        where = f"{origin.position.file}:{origin.position.line}: pipeline {origin.pipeline}, step {origin.step}"
    reason = str(error) if isinstance(error, StreamkitError) else f"{type(error).__name__}: {error}"
    return " ".join(f"{where}: the processor can't start: {reason}".split())


__all__ = ["Program", "compile_sub_topology"]
