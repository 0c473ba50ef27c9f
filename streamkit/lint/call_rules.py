"""Rules about calls of Python: models that are asked for one record at a time, and look-ups that wait too long."""

from __future__ import annotations

from collections.abc import Iterable

from streamkit.expressions.call_signatures import methods_called
from streamkit.lint.rule import Place, Rule, Subject
from streamkit.operators.core.processor_node import ProcessorNode
from streamkit.operators.kernels.calls.call_times import POLL_INTERVAL, longest_call
from streamkit.operators.steps.stateless.filter import Filter
from streamkit.operators.steps.stateless.flat_map_values import FlatMapValues
from streamkit.operators.steps.stateless.map_values import MapValues

_HEAD = "streamkit: 1\napplication: example\ntopics: {in: {value: json}, out: {value: json}}\npipelines:\n  copy:\n    stream: in\n"
_PREDICTIONS = ("predict", "predict_proba", "decision_function")
"""Methods of models that take many rows, in scikit-learn and in the libraries that follow its interface."""


def _single_predictions(subject: Subject) -> Iterable[Place]:
    nodes = [node for sub in subject.plan.sub_topologies for node in sub.nodes.values()]
    for node in nodes:
        processor = node.processor if isinstance(node, ProcessorNode) else None
        if node.origin is None or not isinstance(processor, MapValues | Filter | FlatMapValues):
            continue
        for expression in (getattr(processor, name, None) for name in ("value", "predicate", "values")):
            ref = getattr(expression, "called", None)
            if ref is None:
                continue
            found = methods_called(ref.folder, ref.module, ref.attribute)
            method = next((each for each in _PREDICTIONS if each in found), None)
            if method is not None:
                yield (
                    node.origin.position,
                    f"{ref.attribute} calls {method}() for one record at a time; with 'batch: 512' it gets lists of keys and values",
                )


def _long_lookups(subject: Subject) -> Iterable[Place]:
    limit = int(subject.plan.config.get("max.poll.interval.ms") or POLL_INTERVAL)
    for step in subject.steps:
        if step.operator != "enrich":
            continue
        longest = longest_call(step.get("timeout", 30_000), step.get("retries", 0), step.get("backoff", 100))
        if longest > limit // 2:
            yield (
                step.position,
                f"a call of enrich may take {longest:,} ms with its retries, more than half of max.poll.interval.ms ({limit:,} ms)",
            )


RULES = (
    Rule(
        "single-prediction",
        "A function that asks a model for one record at a time, on a stream.",
        "A call of `predict` costs about as much for one row as for hundreds; with `batch` the function gets lists, and the order and "
        "the results stay. The rule reads the source of modules beside the file.",
        _HEAD + '    steps: [map_values: {call: "scoring:score"}]\n    to: out\n',
        _HEAD + '    steps: [map_values: {call: "scoring:scores", batch: 512}]\n    to: out\n',
        _single_predictions,
    ),
    Rule(
        "long-lookup",
        "An `enrich` whose calls may take more than half of `max.poll.interval.ms`: `timeout` times the calls, and the pauses between them.",
        "While it waits, the thread does not poll. When the service does not answer, the instance leaves the group, and its tasks "
        "go to another one, where the same happens.",
        _HEAD + '    steps: [enrich: {call: "scoring:look_up", timeout: 1m, retries: 5}]\n    to: out\n',
        _HEAD + '    steps: [enrich: {call: "scoring:look_up", timeout: 5s, retries: 5}]\n    to: out\n',
        _long_lookups,
    ),
)
