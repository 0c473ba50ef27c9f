"""Rules about definitions that no part of the file uses."""

from __future__ import annotations

import re
from collections.abc import Iterable

from streamkit.expressions import Expression
from streamkit.graph.node import OnError
from streamkit.lint.rule import Place, Rule, Subject
from streamkit.operators.core.parsed_values import Ref, SinkSpec

_HEAD = "streamkit: 1\napplication: example\n"
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
    letters = subject.plan.config.get("errors.dead.letter.queue.topic.name")
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
        others = [each.expr for other, each in subject.model.functions.items() if other != name and each.expr]
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


RULES = (
    Rule(
        "unused-pipeline",
        "A pipeline whose records go nowhere.",
        "It reads and computes for nothing; mostly its `to` was forgotten.",
        _HEAD
        + "topics: {in: {value: string}}\npipelines:\n  loud:\n    stream: in\n    steps: [map_values: value.upper()]\n",
        _HEAD
        + "topics: {in: {value: string}, out: {value: string}}\npipelines:\n  loud:\n    stream: in\n"
        + "    steps: [map_values: {value: value.upper(), value_serde: string}]\n    to: out\n",
        _pipelines,
    ),
    Rule(
        "unused-topic",
        "A topic that no pipeline reads or writes.",
        "It is left over, or the one that was meant is misspelt elsewhere.",
        _HEAD
        + "topics: {in: {value: string}, out: {value: string}, old: {}}\npipelines:\n  copy: {stream: in, to: out}\n",
        _HEAD + "topics: {in: {value: string}, out: {value: string}}\npipelines:\n  copy: {stream: in, to: out}\n",
        _topics,
    ),
    Rule(
        "unused-function",
        "A function that no expression calls.",
        "It is left over, or an expression repeats what it does.",
        _HEAD
        + "functions: {double: {params: [n], expr: n * 2}}\ntopics: {in: {}, out: {}}\npipelines:\n  copy: {stream: in, to: out}\n",
        _HEAD
        + "functions: {double: {params: [n], expr: n * 2}}\ntopics: {in: {}, out: {}}\n"
        + "pipelines:\n  twice:\n    stream: in\n    steps: [map_values: double(value)]\n    to: out\n",
        _functions,
    ),
    Rule(
        "unused-store",
        "A store that no processor uses.",
        "The file promises state that is never made.",
        _HEAD
        + "stores: {seen: {type: key_value}}\ntopics: {in: {}, out: {}}\npipelines:\n  copy: {stream: in, to: out}\n",
        _HEAD
        + "stores: {seen: {type: key_value}}\ntopics: {in: {}, out: {}}\npipelines:\n  once:\n    stream: in\n"
        + "    steps: [process: {call: 'seen:Once', stores: [seen]}]\n    to: out\n",
        _stores,
    ),
)
