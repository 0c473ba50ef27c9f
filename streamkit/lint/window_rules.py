"""Rules about the windows of keys in topics."""

from __future__ import annotations

from collections.abc import Iterable

from streamkit.lint.rule import Place, Rule, Subject
from streamkit.plan.model import PlanNode, SinkNode
from streamkit.serdes.formats.windowed import SessionWindowedSerde, TimeWindowedSerde
from streamkit.serdes.serde import Serde

_HEAD = "streamkit: 1\napplication: example\nconfig: {statestore.cache.max.bytes: 0}\n"
_PIPELINE = """\
pipelines:
  counts:
    stream: in
    steps: [group_by_key, {window: {tumbling: 5m, grace: 0}}, count: counts, to_stream]
    to: out
"""


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
    """Return how the keys that a node forwards differ from those that the sink's topic declares; None where they do not."""
    given: Serde | None = getattr(parent, "key_serde", None)
    declared = sink.key_serde
    if isinstance(given, TimeWindowedSerde) and isinstance(declared, TimeWindowedSerde):
        if given.size == declared.size:
            return None
        return (
            f"windows of {given.size} ms are written to {sink.target}, whose entry has size: {declared.size}ms; records hold only "
            "the start of their window, so that readers of the entry take another end"
        )
    kinds = {SessionWindowedSerde: "sessions", TimeWindowedSerde: "windows of one size"}
    names = [next((name for kind, name in kinds.items() if isinstance(each, kind)), None) for each in (given, declared)]
    if None in names or names[0] == names[1]:
        return None
    return f"{names[0]} are written to {sink.target}, whose entry declares {names[1]}"


RULES = (
    Rule(
        "window-size",
        "A topic of windowed keys whose declared `size`, or kind of window, is not that of the windows written to it.",
        "A record holds the start of its window only. A reader of the topic by the entry gets windows with another end; Kafka "
        "Streams does not check it either.",
        _HEAD + "topics: {in: {value: string}, out: {key: {windowed: string, size: 1m}, value: long}}\n" + _PIPELINE,
        _HEAD + "topics: {in: {value: string}, out: {key: {windowed: string, size: 5m}, value: long}}\n" + _PIPELINE,
        _sizes,
        is_mistake=True,
    ),
)
