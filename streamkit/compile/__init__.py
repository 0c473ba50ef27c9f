"""From a plan's sub-topology to a program: one generated Python module that runs over batches."""

from __future__ import annotations

from typing import Any

from streamkit.compile.generator import Generator
from streamkit.compile.program import Program
from streamkit.compile.services import BoundProgram, FailedRecord
from streamkit.compile.sources import emit_extractor, emit_source
from streamkit.errors import (
    DeserializationError,
    ProcessingError,
    ProductionError,
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

    def failed(k, v, t, c):
        return FailedRecord(here[0], here[1], o, t, kb, vb, {headers}, k, v)

    def fail(node, error, k, v, t, c):
        if isinstance(error, FATAL):
            raise error
        rt.on_error(node, error, failed(k, v, t, c))

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
    )
"""


def compile_sub_topology(plan: Plan, sub_topology: SubTopology) -> Program:
    """Return the program of a sub-topology; deterministic, so that every process writes the same code."""
    gen = Generator(plan, sub_topology)
    sources, patterns, extractors, policies = {}, {}, {}, {}
    for node in sub_topology.nodes.values():
        if not isinstance(node, SourceNode):
            continue
        if node.pattern is not None:
            patterns[node.pattern] = emit_source(node, gen, None)
        for topic in node.topics:
            name = plan.internal_name(topic)
            sources[name] = f"{emit_source(node, gen, topic)}({name!r})"
            extractor = emit_extractor(node, gen, topic)
            if extractor is not None:
                extractors[name] = extractor
            elif isinstance(node.timestamps.get(topic), str):
                policies[name] = repr(node.timestamps[topic])
    gen.emit_pending()
    gen.namespace.update(
        BoundProgram=BoundProgram,
        FailedRecord=FailedRecord,
        FATAL=FATAL,
        NODES=gen.nodes,
        ProcessingError=ProcessingError,
        not_initialised=_not_initialised,
    )
    tail = _TAIL.format(
        sources=_mapping(sources),
        patterns=_mapping(patterns),
        extractors=_mapping(extractors),
        policies=_mapping(policies),
        init=gen.lifecycle("init"),
        close=gen.lifecycle("close"),
    )
    head = _HEAD.format(headers="c[0] if c else None" if gen.full_context else "c")
    prologue = "".join(f"    {line}\n" for line in gen.prologue_lines)
    epilogue = "".join(f"    {line}\n" for line in gen.epilogue_lines)
    source = head + prologue + "\n" + "\n".join(gen.lines) + "\n" + epilogue + tail
    return Program(source, gen.nodes, gen.namespace)


def _not_initialised(node: Any, error: Exception) -> str:
    origin = node.origin
    where = f"node {node.name}"
    if origin:
        where = f"{origin.position.file}:{origin.position.line}: pipeline {origin.pipeline}, step {origin.step}"
    reason = str(error) if isinstance(error, StreamkitError) else f"{type(error).__name__}: {error}"
    return " ".join(f"{where}: the processor can't start: {reason}".split())


def _mapping(entries: dict[str, str]) -> str:
    return "{" + ", ".join(f"{name!r}: {source}" for name, source in entries.items()) + "}"


__all__ = ["Program", "compile_sub_topology"]
