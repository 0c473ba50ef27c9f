"""Rules for valid topologies: `check` returns what `streamkit validate --strict` reports.

A comment `# lint: ignore=CODE` (several with commas) in the line of a finding suppresses it.
"""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import TypeGuard

from streamkit import plugins
from streamkit.config.values import is_secret
from streamkit.errors import Position
from streamkit.expressions import Expression
from streamkit.expressions.calls import methods_called
from streamkit.expressions.types import ANY
from streamkit.graph.physical_topology import OnError, StepRef
from streamkit.operators.codegen.code_writer import ProcessorNode
from streamkit.operators.core.operator import RepartitionFilter
from streamkit.operators.core.parsed_values import (
    Ref,
    SinkSpec,
    Step,
    longest_call,
)
from streamkit.operators.steps.aggregations.aggregate_node import WindowedAggregate
from streamkit.operators.steps.joins.stream_stream_join import SelfJoin, StreamStreamJoin
from streamkit.operators.steps.stateless.filter import Filter
from streamkit.operators.steps.stateless.flat_map_values import FlatMapValues
from streamkit.operators.steps.stateless.map_values import MapValues
from streamkit.plan.model import ExternalTopic, InternalTopic, Plan, PlanNode, SinkNode, SourceNode
from streamkit.serdes.formats.windowed import SessionWindowedSerde, TimeWindowedSerde
from streamkit.serdes.serde import Serde
from streamkit.spec.macros import unused_parameters
from streamkit.spec.topology_model import TopologyModel

# A rule of the linter, its findings, and the topology that it checks.

Place = tuple[Position, str]
"""The position where a topology breaks a rule, and the message about it."""


@dataclass(frozen=True)
class Rule:
    """A rule for valid topologies.

    code: its name; summary: what it finds; why: the consequence of breaking it; bad, good: a topology that breaks it,
    and one that does not; is_mistake: what it finds is certainly wrong, so that `validate` reports it without
    `--strict` too.
    """

    code: str
    summary: str
    why: str
    bad: str
    good: str
    find: Callable[[Subject], Iterable[Place]]
    is_mistake: bool = False


def _rule(
    code: str, summary: str, why: str, find: Callable[[Subject], Iterable[Place]], is_mistake: bool = False
) -> Rule:
    """Return a rule whose examples are in lint.yaml, which only its page and its test read."""
    return Rule(code, summary, why, "", "", find, is_mistake)


@dataclass(frozen=True)
class Finding:
    """A place that breaks a rule."""

    code: str
    position: Position
    message: str

    def __str__(self) -> str:
        return f"{self.position}: {self.message} [{self.code}]"


class Subject:
    """A topology as a file and as a plan, with the views of it that several rules share."""

    def __init__(self, model: TopologyModel, plan: Plan):
        self.model = model
        self.plan = plan
        self.source_lines = model.text.splitlines()

    @cached_property
    def parts(self) -> list[object]:
        """All parts of the pipelines: steps, references, sinks, expressions."""
        return list(_walk(tuple(self.model.pipelines.values())))

    @cached_property
    def steps(self) -> list[Step]:
        """All steps, including those of branches."""
        return [part for part in self.parts if isinstance(part, Step)]

    def is_own(self, position: Position | None) -> TypeGuard[Position]:
        """Return whether a place is in the file itself: what an included file or a plugin has may be for other topologies."""
        return position is not None and position.file == self.model.file

    def line(self, position: Position) -> str:
        """Return the text of a line."""
        lines = self.lines_of(position.file)
        return lines[position.line - 1] if position.line <= len(lines) else ""

    def lines_of(self, file: str) -> list[str]:
        """Return the lines of the topology's file, or of one that it includes; none of a plugin's step."""
        return self.source_lines if file == self.model.file else self.model.included.get(file, "").splitlines()


def _walk(value: object) -> Iterator[object]:
    """Yield a value and everything inside it that comes from the file."""
    yield value
    inner: Iterable[object] = ()
    if isinstance(value, Expression):
        inner = value.links  # the rest is what the expression has been translated to
    elif hasattr(value, "__dataclass_fields__"):
        inner = [getattr(value, name) for name in _parts_of(type(value))]
    elif isinstance(value, dict):
        inner = value.values()
    elif isinstance(value, tuple | list | frozenset):
        inner = value
    elif isinstance(value, Mapping):
        inner = value.values()
    for part in inner:
        if not isinstance(part, _PLAIN):
            yield from _walk(part)


_PLAIN = (str, bytes, int, float, type(None))


_FIELDS: dict[type, tuple[str, ...]] = {}
"""The fields of dataclasses, without positions."""


def _parts_of(kind: type) -> tuple[str, ...]:
    if kind not in _FIELDS:
        _FIELDS[kind] = tuple(name for name in kind.__dataclass_fields__ if "position" not in name)  # type: ignore[attr-defined]
    return _FIELDS[kind]


# Rules about definitions that no part of the file uses.

_EFFECTS = ("peek", "print", "process", "process_values")
_STATE = ("count", "reduce", "aggregate", "to_table")


def _pipelines(subject: Subject) -> Iterable[Place]:
    read = {part.pipeline for part in subject.parts if isinstance(part, Ref) and part.pipeline}
    for pipeline in subject.model.pipelines.values():
        kept = pipeline.source.kind != "stream" and pipeline.source.store is not None
        used = pipeline.name in read or pipeline.to or pipeline.for_each or kept
        ends = any(step.operator in (*_EFFECTS, *_STATE, "branch") or step.get("store") for step in pipeline.steps)
        if not used and not ends and pipeline.position is not None:
            yield pipeline.position, f"The pipeline {pipeline.name!r} has no 'to', and nothing reads it"


def _topics(subject: Subject) -> Iterable[Place]:
    used = {topic for part in subject.parts if isinstance(part, Ref) for topic in part.topics}
    used.update(part.topic for part in subject.parts if isinstance(part, SinkSpec | OnError) and part.topic)
    if any(isinstance(part, SinkSpec) and part.route is not None for part in subject.parts):
        return  # A `route` may choose each topic of the file.
    patterns = [re.compile(part.pattern) for part in subject.parts if isinstance(part, Ref) and part.pattern]
    letters = subject.plan.config.errors_dead_letter_queue_topic_name
    for name, topic in subject.model.topics.items():
        matched = topic.topic == letters or any(pattern.fullmatch(topic.topic) for pattern in patterns)
        if name not in used and not matched and subject.is_own(topic.position):
            yield topic.position, f"No pipeline reads or writes the topic {name!r}"


def _functions(subject: Subject) -> Iterable[Place]:
    texts = [part.text for part in subject.parts if isinstance(part, Expression)]
    texts += [
        topic.timestamp.text for topic in subject.model.topics.values() if isinstance(topic.timestamp, Expression)
    ]
    for name, function in subject.model.functions.items():
        others = [
            other.expr for other_name, other in subject.model.functions.items() if other_name != name and other.expr
        ]
        word = re.compile(rf"\b{re.escape(name)}\b")
        if not any(word.search(text) for text in [*texts, *others]) and subject.is_own(function.position):
            yield function.position, f"No expression calls the function {name!r}"


def _stores(subject: Subject) -> Iterable[Place]:
    used = {name for step in subject.steps for name in step.get("stores") or ()}
    # A store that is written from a topic serves queries, and a global one every processor.
    used.update(part.store.name for part in subject.parts if isinstance(part, Ref) and part.store and part.store.name)
    for name, store in subject.model.stores.items():
        if name not in used and subject.is_own(store.position):
            yield store.position, f"No processor uses the store {name!r}"


def _macros(subject: Subject) -> Iterable[Place]:
    for name, macro in subject.model.macros.items():
        is_used = name in subject.model.used_macros
        if not is_used and subject.is_own(macro.position):
            yield macro.position, f"No pipeline uses the macro {name!r}"
        for parameter in unused_parameters(macro) if is_used else ():
            yield macro.position, f"No step of the macro {name!r} has its parameter {parameter!r}"


_UNUSED_RULES = (
    _rule(
        "unused-pipeline",
        "A pipeline whose records go nowhere.",
        "Its work is wasted; usually its `to` was forgotten.",
        _pipelines,
    ),
    _rule(
        "unused-topic",
        "A topic that no pipeline reads or writes.",
        "It is left over, or its name is misspelt elsewhere.",
        _topics,
    ),
    _rule(
        "unused-function",
        "A function that no expression calls.",
        "It is left over, or an expression repeats its code.",
        _functions,
    ),
    _rule(
        "unused-store",
        "A store that no processor uses.",
        "The file declares state that is never created.",
        _stores,
    ),
    _rule(
        "unused-macro",
        "A macro that no pipeline uses, or a parameter that no step of its macro has.",
        "It is left over. The steps of an unused macro are not checked.",
        _macros,
    ),
)


# Rules about state: names that must last, caches, and repartition topics.

_NUMBERED = re.compile(r"-\d{10}\b")
_CACHE = "statestore.cache.max.bytes"
_NAMED_ALONE = ("repartition", "suppress", "group_by", "group_by_key")
"""Steps without `store`: their `name` gives all names."""
_NAMED_APART = ("join", "left_join", "outer_join", "to_table", "deduplicate")
"""Steps whose `name` gives names to topics, and whose `store` to stores; the `store` of other steps gives both."""
_MERGE = "merge.repartition.topics"


def _unnamed(subject: Subject) -> Iterable[Place]:
    """Like ensure.explicit.internal.resource.naming of Kafka Streams: numbers in names change with every step before them."""
    unnamed: dict[StepRef, list[str]] = {}
    seen: set[str] = set()  # The first node that uses a store adds it; later ones only read it.
    for sub in subject.plan.sub_topologies:
        for node in sub.nodes.values():
            if node.origin is None:
                continue
            if isinstance(node, SinkNode) and node.internal and node.topic and _NUMBERED.search(node.topic):
                unnamed.setdefault(node.origin, []).append(f"the repartition topic {node.topic}")
            for store in node.stores:
                logged = subject.plan.stores[store].changelog_topic is not None
                if _NUMBERED.search(store) and logged and store not in seen:
                    seen.add(store)
                    unnamed.setdefault(node.origin, []).append(f"the store {store}")
    for origin, names in unnamed.items():
        listed = " and ".join(dict.fromkeys(names))
        yield (
            origin.position,
            f"{origin.step} has a generated name for {listed}; give it {_named_by(origin.step, names)}",
        )


def _named_by(step: str, names: list[str]) -> str:
    """Return the options that give names to the topics and stores of a step."""
    if step not in _NAMED_APART:
        return "'name'" if step in _NAMED_ALONE else "'store'"
    # The stores of a foreign-key join get their names from its `name`; its `store` is that of the result.
    by_name = [name.startswith("the repartition topic") or "-FK-JOIN-" in name for name in names]
    return " and ".join(option for option, used in (("'store'", not all(by_name)), ("'name'", any(by_name))) if used)


def _implicit_cache(subject: Subject) -> Iterable[Place]:
    if any(subject.plan.config.origin(name) != "default" for name in (_CACHE, "cache.max.bytes.buffering")):
        return
    chosen = {
        options.name: options.caching
        for options in (step.get("store") for step in subject.steps)
        if hasattr(options, "caching")
    }
    chosen.update({name: store.caching for name, store in subject.model.stores.items()})
    for sub in subject.plan.sub_topologies:
        for node in sub.nodes.values():
            if node.origin is None:
                continue
            for name in node.stores:
                store = subject.plan.stores[name]
                # Results that are emitted on close, or suppressed, are final in any case.
                updates = store.in_cache and not store.options.get("on_close")
                if _makes(node) and updates and chosen.get(name) is None and _reaches_sink(sub.nodes, node):
                    yield (
                        node.origin.position,
                        f"{node.origin.step} writes only the last update of a key per commit, since its store is "
                        f"cached;"
                        f" write 'caching' of the store, or {_CACHE} in 'config'",
                    )


def _makes(node: PlanNode) -> bool:
    """Return whether a node is of a step that writes its results to a store; a processor may only read it."""
    return node.origin is not None and node.origin.step in ("count", "reduce", "aggregate", "to_table")


def _reaches_sink(nodes: Mapping[str, PlanNode], start: PlanNode) -> bool:
    waiting, seen = [start], set[str]()
    while waiting:
        node = waiting.pop()
        if isinstance(node, SinkNode):
            if not node.internal:
                return True
            continue
        for name in node.children:
            origin = nodes[name].origin
            suppressed = origin is not None and origin.step == "suppress"
            if name not in seen and not suppressed:
                seen.add(name)
                waiting.append(nodes[name])
    return False


def _shared(subject: Subject) -> Iterable[Place]:
    if _MERGE in subject.plan.config.optimizations:
        return
    for sub in subject.plan.sub_topologies:
        sources: dict[str, list[SinkNode]] = {}
        for node in sub.nodes.values():
            if isinstance(node, SinkNode) and node.internal and node.value_kind == "plain":
                for parent in node.parents:
                    above = sub.nodes[parent]
                    # A repartition topic has a filter of records without a key above it.
                    start = parent
                    if isinstance(above.processor, RepartitionFilter):
                        start = above.parents[0]
                    sources.setdefault(start, []).append(node)
        for sinks in sources.values():
            if len(sinks) < 2 or sinks[1].origin is None:
                continue
            first = sinks[0].origin
            where = f"line {first.position.line}" if first is not None else "another step"
            yield (
                sinks[1].origin.position,
                f"{sinks[1].origin.step} repartitions the same stream as {where}; a 'repartition' step before both,"
                f" or topology.optimization: {_MERGE}, would share one topic",
            )


_STATE_RULES = (
    _rule(
        "unnamed-state",
        "A store with a changelog, or a repartition topic, with a generated name.",
        "Generated names count the steps before them: adding a step gives the state another name, and the upgraded "
        "application starts with empty state (KIP-1111 makes it an error in Kafka Streams).",
        _unnamed,
    ),
    _rule(
        "implicit-cache",
        "A table whose updates are written to a topic without a setting for its cache.",
        "By default the record cache holds updates back until a commit, every 30 seconds, and then writes only the "
        "last update of each key. A consumer of the topic may expect every update, and `try` shows every update.",
        _implicit_cache,
    ),
    _rule(
        "shared-repartition",
        "Steps that repartition the same stream, each through a separate topic.",
        "Every record is written and read once for each of them.",
        _shared,
    ),
)


# Rules about windows: the windows of keys in topics, and their grace.


def _sizes(subject: Subject) -> Iterable[Place]:
    for sub in subject.plan.sub_topologies:
        for node in sub.nodes.values():
            if not isinstance(node, SinkNode) or node.origin is None:
                continue
            for parent in node.parents:
                message = _difference(sub.nodes[parent], node)
                if message is not None:
                    yield node.origin.position, message


def _difference(parent: PlanNode, sink: SinkNode) -> str | None:
    """Return how the keys that a node forwards differ from those that the sink's topic declares; None if they do not."""
    forwarded: Serde | None = getattr(parent, "key_serde", None)
    declared = sink.key_serde
    if isinstance(forwarded, TimeWindowedSerde) and isinstance(declared, TimeWindowedSerde):
        if forwarded.size == declared.size:
            return None
        return (
            f"windows of {forwarded.size} ms are written to {sink.target}, whose entry has size: {declared.size}ms; "
            f"records hold only "
            "the start of their window, so that readers of the entry take another end"
        )
    kinds = {SessionWindowedSerde: "sessions", TimeWindowedSerde: "windows of one size"}
    names = [
        next((name for kind, name in kinds.items() if isinstance(serde, kind)), None) for serde in (forwarded, declared)
    ]
    if None in names or names[0] == names[1]:
        return None
    return f"{names[0]} are written to {sink.target}, whose entry declares {names[1]}"


def _short_graces(subject: Subject) -> Iterable[Place]:
    for sub in subject.plan.sub_topologies:
        # Both sides of a join have its stream time, as all inputs of a cogroup have one result.
        messages: dict[StepRef, str] = {}
        for node in sub.nodes.values():
            if not isinstance(node, ProcessorNode) or node.origin is None or node.origin in messages:
                continue
            width, grace = _times(node)
            topic = _repartition_above(sub.nodes, node) if grace < width else None
            if topic is not None and not _has_one_task(subject.plan, topic):
                messages[node.origin] = (
                    f"{node.origin.step} has a grace of {grace:,} ms, less than its windows of {width:,} ms, and "
                    f"reads the "
                    f"repartition topic {topic}: while the partitions before it catch up at different speeds, those "
                    f"ahead make "
                    "the records of the others late, and late records are dropped; write a grace as long as one may "
                    "be ahead"
                )
        for origin, message in messages.items():
            yield origin.position, message


def _times(node: ProcessorNode) -> tuple[int, int]:
    """Return the width of a node's windows and their grace, in ms; twice 0 for a node without windows."""
    work = node.processor
    if isinstance(work, StreamStreamJoin | SelfJoin):
        return work.before + work.after, work.grace
    return (work.windows.size, work.windows.grace) if isinstance(work, WindowedAggregate) else (0, 0)


def _repartition_above(nodes: Mapping[str, PlanNode], start: ProcessorNode) -> str | None:
    """Return the repartition topic from which records reach a node, None if there is none."""
    waiting, seen = list(start.parents), set[str]()
    while waiting:
        name = waiting.pop()
        node = nodes[name]
        if name in seen:
            continue
        seen.add(name)
        if isinstance(node, SourceNode):
            if node.internal and node.value_kind == "plain":
                return node.topics[0]
        else:
            waiting.extend(node.parents)
    return None


def _has_one_task(plan: Plan, topic: str) -> bool:
    """Return whether the topics before a repartition topic are declared with one partition, so that one task writes it."""
    sources = [
        source
        for sub in plan.sub_topologies
        if any(isinstance(node, SinkNode) and node.topic == topic for node in sub.nodes.values())
        for source in sub.nodes.values()
        if isinstance(source, SourceNode)
    ]
    topics: dict[str, ExternalTopic | InternalTopic] = {**plan.external_topics, **plan.internal_topics}
    return all(
        source.pattern is None and all(name in topics and topics[name].partitions == 1 for name in source.topics)
        for source in sources
    )


_WINDOW_RULES = (
    _rule(
        "window-size",
        "A topic of windowed keys whose declared `size`, or kind of window, is not that of the windows written to it.",
        "A record contains only the start of its window. A reader that uses the entry gets windows with another end; "
        "Kafka Streams does not check this either.",
        _sizes,
        is_mistake=True,
    ),
    _rule(
        "short-grace",
        "A windowed aggregation, or a stream-stream join, after a repartition, whose `grace` is shorter than its "
        "windows.",
        "A repartition topic contains the records of all upstream partitions in order of arrival. After downtime, "
        "one of these may be read hours ahead of another. Stream time follows the first, and records of the other "
        "are late and dropped; Kafka Streams behaves the same. The grace limits how far ahead a partition may be; "
        "with a single partition none is needed. `status` shows the share of late records by task.",
        _short_graces,
    ),
)


# Rules about calls of Python: models that get one record at a time, and look-ups that wait too long.

_PREDICTIONS = ("predict", "predict_proba", "decision_function")
"""Methods of models that take many rows, in scikit-learn and in the libraries that follow its interface."""


def _single_predictions(subject: Subject) -> Iterable[Place]:
    nodes = subject.plan.nodes
    for node in nodes:
        processor = node.processor
        if node.origin is None or not isinstance(processor, MapValues | Filter | FlatMapValues):
            continue
        for expression in (getattr(processor, name, None) for name in ("value", "predicate", "values")):
            ref = getattr(expression, "called", None)
            if ref is None:
                continue
            methods = methods_called(ref.folder, ref.module, ref.attribute)
            method = next((method_name for method_name in _PREDICTIONS if method_name in methods), None)
            if method is not None:
                yield (
                    node.origin.position,
                    f"{ref.attribute} calls {method}() for one record at a time; with 'batch: 512' it gets lists of "
                    f"keys and values",
                )


def _long_lookups(subject: Subject) -> Iterable[Place]:
    limit = subject.plan.config.max_poll_interval_ms
    for step in subject.steps:
        if step.operator != "enrich":
            continue
        longest = longest_call(step.get("timeout", 30_000), step.get("retries", 0), step.get("backoff", 100))
        if longest > limit // 2:
            yield (
                step.position,
                f"a call of enrich may take {longest:,} ms with its retries, more than half of max.poll.interval.ms "
                f"({limit:,} ms)",
            )


_CALL_RULES = (
    _rule(
        "single-prediction",
        "A function on a stream that calls a model for one record at a time.",
        "A call of `predict` costs about as much for one row as for hundreds; with `batch` the function gets lists, "
        "and the order and the results do not change. The rule reads the source of modules beside the file.",
        _single_predictions,
    ),
    _rule(
        "long-lookup",
        "An `enrich` whose calls may take more than half of `max.poll.interval.ms`: `timeout` times the calls, and "
        "the pauses between them.",
        "While it waits, the thread does not poll. If the service does not answer, the instance leaves the group, "
        "and its tasks move to another instance, where the same happens.",
        _long_lookups,
    ),
)


# Rules about defaults that a file should replace, and about leftovers in a file.

_JOINS = ("join", "left_join", "outer_join")


def _no_grace(subject: Subject) -> Iterable[Place]:
    for step in subject.steps:
        joined = step.operator in _JOINS and any(step.get(name) is not None for name in ("within", "before", "after"))
        if (step.operator == "window" or joined) and "grace" not in step.options:
            yield (
                step.position,
                f"{step.operator} has no 'grace': a record that comes after its window's end is dropped; write how "
                f"long to"
                " wait for it, or 'grace: 0'",
            )


def _plain_secrets(subject: Subject) -> Iterable[Place]:
    for name, entry in subject.model.config.items():
        if is_secret(name) and entry.position is not None and entry.value not in ("", None):
            lines = subject.lines_of(entry.position.file)[entry.position.line - 1 : entry.position.line + 1]
            if not any("${" in line for line in lines):
                yield (
                    entry.position,
                    f"{name} is in the file; write ${{NAME}}, and set it in the environment or in --env-file",
                )


def _debug_prints(subject: Subject) -> Iterable[Place]:
    for step in subject.steps:
        if step.operator == "print":
            yield step.position, "print writes every record to the standard output of the application; is it left over?"


def _timestamps_without_default(subject: Subject) -> Iterable[Place]:
    nodes = subject.plan.nodes
    for source in (node for node in nodes if isinstance(node, SourceNode)):
        for topic, expression in source.timestamps.items():
            if not isinstance(expression, Expression) or not subject.is_own(expression.position):
                continue
            keys, values = source.topic_serdes.get(topic, (source.key_serde, source.value_serde))
            # A schema has its own fields, which `validate` compares with the expression.
            names = {name for name, serde in (("key", keys), ("value", values)) if serde is None or serde.type is ANY}
            field = next(_required_fields(expression.text, names), None)
            if field is not None:
                yield (
                    expression.position,
                    f"'timestamp' reads {field}, and a record without it goes to deserialization.exception.handler, "
                    f"which"
                    " ends the application by default; write a default, such as get(value, 'FIELD', timestamp)",
                )


def _required_fields(text: str, names: set[str]) -> Iterator[str]:
    """Yield the fields of these names that an expression reads without a default."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError:
        return
    if any(isinstance(node, ast.IfExp) for node in ast.walk(tree)):
        return
    methods = {node.func for node in ast.walk(tree) if isinstance(node, ast.Call)}
    for node in ast.walk(tree):
        if isinstance(node, ast.Attribute | ast.Subscript) and node not in methods:
            root: ast.expr = node
            while isinstance(root, ast.Attribute | ast.Subscript):
                root = root.value
            if isinstance(root, ast.Name) and root.id in names:
                yield ast.unparse(node)


_HABIT_RULES = (
    _rule(
        "timestamp-default",
        "A `timestamp` of a topic that reads a field of JSON without a default.",
        "A record without the field has no time and goes to `deserialization.exception.handler`, which by default "
        "ends the application. Possible defaults are the record's own `timestamp`, or `-1`, which drops and counts "
        "the record.",
        _timestamps_without_default,
    ),
    _rule(
        "no-grace",
        "A window, or a join of streams, without `grace`.",
        "The default is none: records that arrive after the end of their window are dropped, even if only another "
        "partition was read faster. `grace: 0` states that this is intended.",
        _no_grace,
    ),
    _rule(
        "plain-secret",
        "A password or key that is written in the file.",
        "Topology files are kept in repositories and shown to people, so their contents are not secret.",
        _plain_secrets,
    ),
    _rule(
        "debug-print",
        "A `print` step.",
        "It helps while you write a topology; in production it costs more than the rest of the pipeline.",
        _debug_prints,
    ),
)


RULES: dict[str, Rule] = {
    rule.code: rule for rule in (*_UNUSED_RULES, *_STATE_RULES, *_WINDOW_RULES, *_CALL_RULES, *_HABIT_RULES)
}


def _checked_rule(code: str, rule: object) -> Rule:
    if not isinstance(rule, Rule) or rule.code != code:
        raise TypeError(f"a Rule with the code {code} is expected")
    return rule


EVERY_RULE = plugins.WithPlugins(RULES, plugins.RULES, _checked_rule)
"""The rules, and those of installed plugins (entry points `streamkit.lint`)."""
MISTAKES = {code: rule for code, rule in RULES.items() if rule.is_mistake}
"""The rules that `validate` checks without `--strict` too."""
_IGNORED = re.compile(r"#\s*lint:\s*ignore=([a-z, -]+)")


def check(model: TopologyModel, plan: Plan, rules: Mapping[str, Rule] = EVERY_RULE) -> list[Finding]:
    """Return the findings in the order of the file, without those that a comment in their line ignores."""
    subject = Subject(model, plan)
    findings = {
        Finding(rule.code, position, message + position.note)
        for rule in rules.values()
        for position, message in rule.find(subject)
    }
    kept = [finding for finding in findings if finding.code not in _ignored(subject, finding.position)]
    return sorted(kept, key=lambda finding: (*_place(model, finding.position), finding.code, finding.position.order))


def _place(model: TopologyModel, position: Position) -> tuple[bool, str, int, int]:
    """Return what places are sorted by: the file itself first, then those that it includes."""
    return position.file in model.included, position.file, position.line, position.column


def _ignored(subject: Subject, position: Position) -> set[str]:
    """Return the rules that a comment ignores: in the line of a place, or of the use of the macro around it."""
    match = _IGNORED.search(subject.line(position))
    codes = {code.strip() for code in match[1].split(",")} if match else set()
    return codes | (_ignored(subject, position.within.place) if position.within is not None else set())
