"""Builds the pipelines of a file through the operators, in Java's order of DSL calls, and infers types meanwhile."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from streamkit import serdes
from streamkit.errors import Position, Problem
from streamkit.expressions.expression import Expression
from streamkit.expressions.infer import infer
from streamkit.expressions.types import ANY, INTEGER, NOTHING, OneOf, Type, WindowedKey
from streamkit.graph.builder import GraphBuilder
from streamkit.graph.physical_topology import NOWHERE, OnError, SinkDescription, SourceDescription, StepRef
from streamkit.operators import STEPS
from streamkit.operators.core.operator import (
    AnyOperator,
    AnySerde,
    Branches,
    BuildError,
    Operator,
    StoreDefaults,
    Stream,
    TopicStore,
    TypeInference,
    Types,
    Upstream,
    common_serde,
    common_types,
    required_serde,
)
from streamkit.operators.core.parsed_values import BranchSpec, ForEachSpec, Ref, SinkSpec, Step
from streamkit.operators.steps.topics.source import (
    add_for_each,
    add_sink,
    global_table_source,
    stream_source,
    table_source,
)
from streamkit.operators.steps.topics.topic_store import global_store, read_only_store
from streamkit.serdes.formats.windowed import SessionWindowedSerde, TimeWindowedSerde
from streamkit.serdes.serde import Serde
from streamkit.spec.store_entries import TOPIC_STORES
from streamkit.spec.topology_model import PipelineSpec, StoreSpec, TopicSpec, TopologyModel
from streamkit.state.definitions import StoreDef


@dataclass(frozen=True)
class BuiltStep:
    """A source or a step with the types of its keys and values; `before` is None for a source."""

    pipeline: str
    step: str
    position: Position
    before: Types | None
    after: Types


class Assembler:
    """The plan while it is built; operators use it as their `Context`.

    A method that returns `Upstream | None` returns None if a problem prevented the result; steps that need it report nothing more.
    """

    def __init__(
        self, model: TopologyModel, store_defaults: StoreDefaults, observe: Callable[[BuiltStep], None] | None
    ):
        self.model = model
        self._observe = observe
        self.store_defaults = store_defaults
        self.graph = GraphBuilder(model.application)
        self.default_key: Serde = model.defaults.key
        self.default_value: Serde = model.defaults.value
        self.problems: list[Problem] = []
        self.read: set[str] = set()
        self.written: set[str] = set()
        self.written_types: dict[str, list[tuple[Type, Type]]] = {}
        """The types of keys and values that sinks write, by the topic's name on the log."""
        self._results: dict[str, Upstream | None] = {}
        self._stack: list[str] = []
        self._stores: dict[str, StoreDef] = {}
        self._topic_stores = {
            source.store.name
            for source in (pipeline.source for pipeline in model.pipelines.values())
            if source.kind in TOPIC_STORES and source.store is not None
        }
        """Stores that a topic's records are written to; their pipeline adds them."""
        self._types = TypeBook()

    def build(self) -> None:
        """Build every pipeline in file order, and collect `problems`."""
        for name in self.model.pipelines:
            self._pipeline(name)

    # -- Used by operators --

    def serde(self, spec: object) -> Serde:
        """Return a serde of the language."""
        return serdes.parse(spec, str(Path(self.model.file).parent))

    def resolve(self, ref: Ref, step: Step) -> Upstream:
        """Return the result of a reference; build it first if necessary. Raises BuildError if it failed."""
        if ref.kind != "pipeline":
            return self._types.referred(self._source(ref, step.pipeline, step.position))
        result = self._referred(ref)
        if result is None:
            raise BuildError()
        return self._types.referred(result)

    def custom_store(self, name: str, step: Step) -> StoreDef | str:
        """Return the definition of one of the file's stores, or the name of one that another node adds."""
        spec = self.model.stores.get(name)
        if spec is None or name in self._topic_stores:
            return name
        if name not in self._stores:
            self._stores[name] = custom_store(spec)
        return self._stores[name]

    def build_branch(self, upstream: Stream, branch: BranchSpec) -> Upstream | None:
        """Build the steps and ends below a branch."""
        result: Upstream | None = self._types.branch(upstream)
        for step in branch.steps:
            result = self._step(step, result)
        self._end(result, branch.to, branch.for_each, branch.position, self._stack[-1])
        return result

    # -- Pipelines --

    def _pipeline(self, name: str) -> Upstream | None:
        if name in self._results:
            return self._results[name]
        spec = self.model.pipelines[name]
        self._stack.append(name)
        saved = self.graph.origin, self.graph.on_error
        result = self._begin(spec)
        for step in spec.steps:
            result = self._step(step, result)
        self._end(result, spec.to, spec.for_each, spec.position, name)
        self.graph.origin, self.graph.on_error = saved
        self._stack.pop()
        self._results[name] = result
        return result

    def _begin(self, spec: PipelineSpec) -> Upstream | None:
        position = spec.source.position or spec.position
        try:
            if spec.source.kind != "pipeline":
                return self._source(spec.source, spec.name, position)
            result = self._referred(spec.source)
            if result is not None:
                self._report(StepRef(spec.name, "from", position or NOWHERE), None, result)
            return result
        except BuildError as error:
            self.problems.extend(error.problems)
            return None

    def _referred(self, ref: Ref) -> Upstream | None:
        """Return the result of a pipeline or a branch, which exist and form no cycle (checked by streamkit.spec.topology_file)."""
        assert ref.pipeline is not None
        result = self._pipeline(ref.pipeline)
        if ref.branch is None or result is None:
            return result
        assert isinstance(result, Branches)
        branch: Upstream | None = result.branches[ref.branch]
        return branch

    def _step(self, step: Step, upstream: Upstream | None) -> Upstream | None:
        if upstream is None:
            return None
        operator = STEPS[step.operator]
        assert isinstance(operator, Operator), "composed steps are written out when a file is read"
        saved = self.graph.origin, self.graph.on_error
        self.graph.origin = StepRef(step.pipeline, step.operator, step.position)
        self.graph.on_error = self._on_error(step)
        self._types.begin(upstream)
        try:
            if upstream.kind not in operator.accepts:
                raise BuildError(step.position, _wrong_kind(step, operator, upstream))
            result: Upstream = operator.build(step, upstream, self)
            assert result is not None, f"{type(operator).__name__}.build returns nothing"
            self.problems.extend(self._types.end(operator, step, upstream, result))
            self._report(self.graph.origin, self._types.of(upstream), result)
            return result
        except BuildError as error:
            self.problems.extend(error.problems)
            self._types.discard()
            return None
        finally:
            self.graph.origin, self.graph.on_error = saved

    def _report(self, origin: StepRef, before: Types | None, result: Upstream) -> None:
        if self._observe is not None:
            after = self._types.of(result)
            self._observe(BuiltStep(origin.pipeline, origin.step, origin.position, before, after))

    def _on_error(self, step: Step) -> OnError | None:
        if step.on_error is None or step.on_error.topic is None:
            return step.on_error
        topic = self.model.topics[step.on_error.topic]
        self.written.add(topic.name)
        return OnError(step.on_error.action, topic.topic)

    # -- Sources --

    def _source(self, ref: Ref, pipeline: str, position: Position | None) -> Upstream:
        saved = self.graph.origin, self.graph.on_error
        self.graph.origin = StepRef(pipeline, ref.kind, ref.position or position or NOWHERE)
        self.graph.on_error = None
        try:
            description, serdes = self._description(ref)
            if ref.kind == "stream":
                result: Upstream = stream_source(self, description, serdes, ref.name)
            elif ref.kind in TOPIC_STORES:
                result = self._topic_store(ref, description, pipeline)
            else:
                make = table_source if ref.kind == "table" else global_table_source
                result = make(self, description, ref.name, ref.store)
            self.problems.extend(self._types.source(result, [self.model.topics[name] for name in ref.topics]))
            self._report(self.graph.origin, None, result)
            return result
        finally:
            self.graph.origin, self.graph.on_error = saved

    def _topic_store(self, ref: Ref, description: SourceDescription, pipeline: str) -> TopicStore:
        assert ref.store is not None
        assert ref.store.name is not None
        definition = custom_store(self.model.stores[ref.store.name])
        if ref.kind == "global_store":
            return global_store(self, description, ref, definition)
        return read_only_store(self, description, ref, definition, pipeline)

    def _description(self, ref: Ref) -> tuple[SourceDescription, tuple[AnySerde, AnySerde]]:
        """Return the description of a source node, and the serdes of its stream or table."""
        if ref.pattern is not None:
            try:
                re.compile(ref.pattern)
            except re.error as error:
                raise BuildError(
                    ref.position or self.graph.origin.position, f"not a regular expression: {error}"
                ) from error
            defaults = (self.default_key, self.default_value)
            return SourceDescription((), ref.pattern, defaults), defaults
        entries: list[TopicSpec] = [self.model.topics[name] for name in ref.topics]
        self.read.update(ref.topics)
        serdes = (common_serde(*(entry.key for entry in entries)), common_serde(*(entry.value for entry in entries)))
        description = SourceDescription(
            topics=tuple(dict.fromkeys(entry.topic for entry in entries)),
            pattern=None,
            serdes=(entries[0].key, entries[0].value),
            topic_serdes={entry.topic: (entry.key, entry.value) for entry in entries} if len(entries) > 1 else {},
            timestamps={entry.topic: entry.timestamp for entry in entries},
            reset={entry.topic: entry.reset for entry in entries},
        )
        return description, serdes

    # -- Ends --

    def _end(
        self,
        result: Upstream | None,
        to: SinkSpec | None,
        for_each: ForEachSpec | None,
        position: Position | None,
        pipeline: str,
    ) -> None:
        if result is None:
            return
        position = position or NOWHERE
        saved = self.graph.origin, self.graph.on_error
        try:
            if to is not None:
                self.graph.origin, self.graph.on_error = StepRef(pipeline, "to", to.position or position), None
                self._to(_ending(result, "to", self.graph.origin.position), to)
            if for_each is not None:
                self.graph.origin = StepRef(pipeline, "for_each", for_each.position or position)
                add_for_each(self, _ending(result, "for_each", self.graph.origin.position), for_each)
            if to is None and for_each is None:
                _check_complete(result, position)
        except BuildError as error:
            self.problems.extend(error.problems)
        finally:
            self.graph.origin, self.graph.on_error = saved

    def _to(self, stream: Stream, to: SinkSpec) -> None:
        entry = None if to.topic is None else self.model.topics[to.topic]
        self.problems.extend(self._types.sink(stream, to, entry))
        if entry is not None:
            self.written.add(entry.name)
            types = self._types.of(stream)
            self.written_types.setdefault(entry.topic, []).append((types.key, types.value))
            sink = SinkDescription(entry.topic, (entry.key, entry.value), partition=to.partition)
        else:
            step = Step("to", self.graph.origin.position)
            serdes = (
                required_serde(stream.key_serde, "key", step, "the routed records"),
                required_serde(stream.value_serde, "value", step, "the routed records"),
            )
            sink = SinkDescription(None, serdes, to.route, to.partition)
        add_sink(self, stream, sink, to.name)


def _ending(result: Upstream, what: str, position: Position) -> Stream:
    if isinstance(result, Stream):
        return result
    hints = {
        "table": "a table is not written directly; add the step `to_stream` before it",
        "branches": "a pipeline that ends in branches has no end of its own; give `to` to the branches",
        "global_table": "a global table can't be written; use a `table`",
    }
    hint = hints.get(result.kind, "an aggregation (count, reduce, aggregate) and `to_stream` are missing before it")
    raise BuildError(position, f"{what}: expected a stream, found {result.label}: {hint}")


def _check_complete(result: Upstream, position: Position) -> None:
    """Raise BuildError for a window without an aggregation; a group without one may be the input of another pipeline."""
    if result.kind in ("windowed_stream", "windowed_cogroup"):
        raise BuildError(position, "a `window` needs an aggregation after it: count, reduce or aggregate")


def _wrong_kind(step: Step, operator: AnyOperator, upstream: Upstream) -> str:
    """Return the message about a step on an upstream of the wrong kind, with the step that is likely missing."""
    expected = " or ".join(_KIND_WORDS[kind] for kind in operator.accepts)
    message = f"{step.operator}: expected {expected}, found {upstream.label}"
    if upstream.kind == "branches":
        return f"{step.operator}: a branch step ends its pipeline; go on in another one, with `from: {step.pipeline}.BRANCH`"
    hint = _HINTS.get((step.operator, upstream.kind)) or _hint(operator.accepts, upstream.kind)
    return f"{message}; {hint}" if hint else message


_KIND_WORDS = {
    "stream": "a stream",
    "table": "a table",
    "global_table": "a global table",
    "grouped_stream": "a grouped stream",
    "grouped_table": "a grouped table",
    "windowed_stream": "a windowed stream",
    "cogrouped": "a cogrouped stream",
    "windowed_cogroup": "a windowed cogrouped stream",
}

_HINTS = {
    ("suppress", "stream"): "suppress holds back a table's updates, so it comes before `to_stream`",
    ("to_stream", "stream"): "this is a stream already",
    ("to_table", "table"): "this is a table already",
    ("group_by_key", "table"): "group a table with `group_by`",
    ("count", "cogrouped"): "after `cogroup` comes `aggregate`",
    ("reduce", "cogrouped"): "after `cogroup` comes `aggregate`",
    ("count", "windowed_cogroup"): "after `cogroup` comes `aggregate`",
    ("reduce", "windowed_cogroup"): "after `cogroup` comes `aggregate`",
    ("window", "windowed_stream"): "one `window` is enough",
    ("window", "grouped_table"): "tables have no windows",
    ("cogroup", "grouped_table"): "only grouped streams can be cogrouped",
}


def _hint(accepts: tuple[str, ...], kind: str) -> str:
    if kind == "global_table":
        return "a global table is only for joins: `with:` of a stream's join"
    if kind in ("grouped_stream", "grouped_table", "windowed_stream", "cogrouped", "windowed_cogroup"):
        return "an aggregation (count, reduce or aggregate) is missing before it"
    if "grouped_stream" in accepts:
        return "a `group_by` or `group_by_key` is missing before it"
    if kind == "table" and "stream" in accepts:
        return "a `to_stream` is missing before it"
    if kind == "stream" and "table" in accepts:
        return "a `to_table` or an aggregation is missing before it"
    return ""


# The definitions of the file's own stores (org.apache.kafka.streams.state.Stores).


def custom_store(spec: StoreSpec) -> StoreDef:
    """Return the definition of a store that processors use."""
    logging = spec.logging is not False
    window_size = spec.window_size
    return StoreDef(
        name=spec.name,
        type=spec.type,
        key_serde=spec.key,
        value_serde=spec.value,
        persistent=spec.persistent is not False,
        # Unlike Materialized, Stores.…StoreBuilder has caching off by default.
        caching=spec.caching is True,
        logging=logging,
        topic_config=dict(spec.config),
        retention=spec.retention,
        window_size=window_size,
        segment_interval=spec.segment_interval,
        history=spec.history,
        ttl=spec.ttl,
        changelog_topic=f"{spec.name}-changelog" if logging else None,
        options={"plain": True} if spec.type == "window" else {},
    )


# Records the types of keys and values of every stream and table while a Plan is built.

Referred = TypeVar("Referred", bound=Upstream)


class TypeBook:
    """Types by upstream object; steps nest, since a reference may build another pipeline while its step is built."""

    def __init__(self) -> None:
        self._types: dict[int, tuple[Upstream, Types]] = {}
        self._upstreams: list[Types] = []
        """For each step that is being built, the types of its upstream."""
        self._references: list[list[Types]] = []
        """For each step that is being built, the types of the upstreams that it refers to."""

    def of(self, upstream: Upstream) -> Types:
        """Return the types of an upstream object."""
        return self._types[id(upstream)][1] if id(upstream) in self._types else Types()

    def _record(self, upstream: Upstream, types: Types) -> None:
        # The entry holds the object too, so that no other object gets its id.
        self._types[id(upstream)] = (upstream, types)

    def source(self, result: Upstream, entries: list[TopicSpec]) -> list[Problem]:
        """Record the types of a source, and return the problems in the timestamps of its topics."""
        problems: list[Problem] = []
        types = []
        for entry in entries:
            types.append(Types(entry.key.type, entry.value.type))
            if isinstance(entry.timestamp, Expression):
                names = {"key": entry.key.type, "value": entry.value.type, "timestamp": INTEGER}
                infer(entry.timestamp, names, problems)
        self._record(result, common_types(types) if types else Types())
        return problems

    def begin(self, upstream: Upstream) -> None:
        """Begin a step."""
        self._upstreams.append(self.of(upstream))
        self._references.append([])

    def referred(self, other: Referred) -> Referred:
        """Record the types of an upstream that the innermost step refers to, and return the upstream."""
        if self._references:
            self._references[-1].append(self.of(other))
        return other

    def branch(self, upstream: Stream) -> Stream:
        """Record that a branch of the innermost step has the types of the step's upstream, and return it."""
        self._record(upstream, self._upstreams[-1])
        return upstream

    def end(self, operator: AnyOperator, step: Step, upstream: Upstream, result: Upstream) -> list[Problem]:
        """End a step: record the types of its result, and return the fields in its expressions that can't exist."""
        inference = TypeInference(step, (upstream, result), self._upstreams.pop(), self._references.pop())
        self._record(result, inference.result_types(operator.types(inference)))
        return list(dict.fromkeys(inference.problems))

    def discard(self) -> None:
        """End a step that failed."""
        self._upstreams.pop()
        self._references.pop()

    def sink(self, stream: Stream, to: SinkSpec, entry: TopicSpec | None) -> list[Problem]:
        """Return the fields in the expressions of `to` that can't exist, and the types that the topic's serdes can't write."""
        types, problems = self.of(stream), list[Problem]()
        if entry is not None:
            sides = (("key", types.key, entry.key), ("value", types.value, entry.value))
            mistakes = [misfit(*side) for side in sides]
            problems += [
                Problem(to.position, f"topic {entry.name} {mistake}") for mistake in mistakes if mistake is not None
            ]
        for expression in (to.route, to.partition):
            if isinstance(expression, Expression):
                infer(expression, {"key": types.key, "value": types.value, "partitions": INTEGER}, problems)
        return problems


# Finds topics whose serde can't write the type of the records that reach them (in Java a ClassCastException at run time).


def misfit(side: str, type_: Type, serde: Serde) -> str | None:
    """Return why a serde fails for every value of a type; None if it takes some.

    side: "key" or "value".

    >>> from streamkit.expressions.types import INTEGER
    >>> from streamkit.serdes.formats.primitives import StringSerde
    >>> misfit("value", INTEGER, StringSerde())
    'takes text as its value (serde string), but gets a whole number; make it text: str(value)'
    """
    choices = type_.choices if isinstance(type_, OneOf) else (type_,)
    if type_ is NOTHING or any(_may_take(serde, choice) for choice in choices):
        return None
    kind = serde.spec if isinstance(serde.spec, str) else next(iter(serde.spec))
    takes = serde.takes[0].word if serde.takes else "a windowed key"
    cure = ""
    if all(isinstance(choice, WindowedKey) for choice in choices):
        cure = "; give the topic a windowed key serde, or take the key out: to_stream: {key: key.key}"
    elif kind == "string":
        cure = f"; make it text: str({side})"
    return f"takes {takes} as its {side} (serde {kind}), but gets {type_.word}{cure}"


def _may_take(serde: Serde, type_: Type) -> bool:
    if type_ is ANY:
        return True
    if isinstance(serde, (TimeWindowedSerde, SessionWindowedSerde)):
        return isinstance(type_, WindowedKey) and _may_take(serde.inner, type_.fields["key"])
    return serde.takes is None or type_ in serde.takes
