"""Rules about defaults that a file should replace, and about leftovers in a file."""

from __future__ import annotations

import ast
from collections.abc import Iterable, Iterator

from streamkit.config.values import is_secret
from streamkit.expressions import Expression
from streamkit.expressions.analysis.types import ANY
from streamkit.lint.rule import Place, Rule, Subject
from streamkit.plan.model import SourceNode

_HEAD = "streamkit: 1\napplication: example\n"
_TOPICS = "topics: {in: {value: string}, out: {key: {windowed: string, size: 1m}, value: long}}\n"
_JOINS = ("join", "left_join", "outer_join")


def _no_grace(subject: Subject) -> Iterable[Place]:
    for step in subject.steps:
        joined = step.operator in _JOINS and any(step.get(name) is not None for name in ("within", "before", "after"))
        if (step.operator == "window" or joined) and "grace" not in step.options:
            yield (
                step.position,
                f"{step.operator} has no 'grace': a record that comes after its window's end is dropped; write how long to"
                " wait for it, or 'grace: 0'",
            )


def _plain_secrets(subject: Subject) -> Iterable[Place]:
    for name, entry in subject.model.config.items():
        if is_secret(name) and entry.position is not None and entry.value not in ("", None):
            lines = subject.lines_of(entry.position.file)[entry.position.line - 1 : entry.position.line + 1]
            if not any("${" in line for line in lines):
                yield (
                    entry.position,
                    f"{name} stands in the file; write ${{NAME}} and give it by the environment or --env-file",
                )


def _debug_prints(subject: Subject) -> Iterable[Place]:
    for step in subject.steps:
        if step.operator == "print":
            yield step.position, "print writes every record to the standard output of the application; is it left over?"


def _timestamps_without_default(subject: Subject) -> Iterable[Place]:
    nodes = [node for sub in subject.plan.sub_topologies for node in sub.nodes.values()]
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
                    f"'timestamp' reads {field}, and a record without it goes to deserialization.exception.handler, which"
                    " ends the application by default; write a default, such as get(value, 'FIELD', timestamp)",
                )


def _required_fields(text: str, names: set[str]) -> Iterator[str]:
    """Yield the fields of these names that an expression reads without a default."""
    try:
        tree = ast.parse(text.strip(), mode="eval")
    except SyntaxError:
        return
    if any(isinstance(each, ast.IfExp) for each in ast.walk(tree)):
        return
    methods = {each.func for each in ast.walk(tree) if isinstance(each, ast.Call)}
    for each in ast.walk(tree):
        if isinstance(each, ast.Attribute | ast.Subscript) and each not in methods:
            root: ast.expr = each
            while isinstance(root, ast.Attribute | ast.Subscript):
                root = root.value
            if isinstance(root, ast.Name) and root.id in names:
                yield ast.unparse(each)


RULES = (
    Rule(
        "timestamp-default",
        "A `timestamp` of a topic that reads a field of JSON without a default.",
        "A record without the field has no time, and goes to `deserialization.exception.handler`: by default the application ends there. "
        "A default is the record's own `timestamp`, for example, or `-1`, which drops and counts the record.",
        _HEAD
        + "topics: {in: {value: json, timestamp: value.at}, out: {value: json}}\npipelines:\n  copy: {stream: in, to: out}\n",
        _HEAD + "topics:\n  in: {value: json, timestamp: \"get(value, 'at', timestamp)\"}\n  out: {value: json}\n"
        "pipelines:\n  copy: {stream: in, to: out}\n",
        _timestamps_without_default,
    ),
    Rule(
        "no-grace",
        "A window, or a join of streams, without `grace`.",
        "The default is none: what arrives after the end of its window is dropped, also when only another partition was "
        "quicker. `grace: 0` says that it is meant so.",
        _HEAD + _TOPICS + "config: {statestore.cache.max.bytes: 0}\npipelines:\n  counts:\n    stream: in\n"
        "    steps: [group_by_key, window: {tumbling: 1m}, count: counts, to_stream]\n    to: out\n",
        _HEAD + _TOPICS + "config: {statestore.cache.max.bytes: 0}\npipelines:\n  counts:\n    stream: in\n"
        "    steps: [group_by_key, window: {tumbling: 1m, grace: 10s}, count: counts, to_stream]\n    to: out\n",
        _no_grace,
    ),
    Rule(
        "plain-secret",
        "A password or key that stands in the file.",
        "Topology files are kept in repositories and shown to people; what they hold is no secret.",
        _HEAD
        + "config: {sasl.password: hunter2}\ntopics: {in: {}, out: {}}\npipelines:\n  copy: {stream: in, to: out}\n",
        _HEAD
        + "config:\n  sasl.password: ${PASSWORD:-}\ntopics: {in: {}, out: {}}\npipelines:\n  copy: {stream: in, to: out}\n",
        _plain_secrets,
    ),
    Rule(
        "debug-print",
        "A `print` step.",
        "It is a help while a topology is written; in production it costs more than the rest of the pipeline.",
        _HEAD
        + "topics: {in: {}, out: {}}\npipelines:\n  copy:\n    stream: in\n    steps: [print: here]\n    to: out\n",
        _HEAD + "topics: {in: {}, out: {}}\npipelines:\n  copy: {stream: in, to: out}\n",
        _debug_prints,
    ),
)
