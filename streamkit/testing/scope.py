"""The topics and stores that a test may name, and its records under their serdes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping

from streamkit.errors import RegistryError
from streamkit.operators.core.operator import ProcessorNode
from streamkit.plan.model import Plan, PlanNode, SinkNode, SourceNode
from streamkit.runtime.records import RecordJson
from streamkit.serdes.plain import Json
from streamkit.serdes.serde import Serde


class Names:
    """The topics of a plan by the names of their entries."""

    def __init__(self, plan: Plan):
        self._plan = plan
        self._json = RecordJson(plan)
        topics = plan.external_topics.values()
        self.read = {topic.entry: topic.name for topic in topics if topic.read}
        nodes = [node for sub in plan.sub_topologies for node in sub.nodes.values()]
        self._patterns = [re.compile(node.pattern) for node in nodes if isinstance(node, SourceNode) and node.pattern]
        self.dead_letters = frozenset(_dead_letters(plan))
        self._routed = any(isinstance(node, SinkNode) and node.topic is None for node in nodes)
        by_name = {topic.name: topic.entry for topic in topics}
        self.written = {by_name.get(name, name): name for name in _written(nodes) | self.dead_letters}
        self._entries = {topic.entry: topic.name for topic in topics}
        self._by_name = by_name
        self._unreachable = False

    def input(self, name: str) -> str | None:
        """Return the physical name of a topic that the topology reads, or None."""
        if name in self.read:
            return self.read[name]
        physical = self._entries.get(name, name)
        return physical if any(pattern.fullmatch(physical) for pattern in self._patterns) else None

    def output(self, name: str) -> bool:
        """Return whether the topology writes a topic; any topic may be written where a sink routes."""
        return name in self.written or self._routed

    def entry(self, topic: str) -> str:
        """Return the name that a test has for a physical topic."""
        return self._by_name.get(topic, topic)

    def check_record(self, record: Mapping[str, Json]) -> None:
        """Raise SerdeError for a record that the serdes of its topic can't encode.

        Once a schema registry does not answer, no record is checked: the tests that need it fail when they run.
        """
        if self._unreachable:
            return
        try:
            self._json.encode(record, 0, lambda topic: None)
        except RegistryError:
            self._unreachable = True

    def has_windowed_keys(self, topic: str | None, store: str | None) -> bool:
        """Return whether keys of a topic's entry, or of a store, carry a window."""
        if store is not None:
            definition = self._plan.stores[store]
            return definition.kind.windowed or _is_windowed(definition.key_serde)
        found = self._plan.external_topics.get(self._entries.get(topic or "", ""))
        return found is not None and _is_windowed(found.key_serde)


def _is_windowed(serde: Serde) -> bool:
    return isinstance(serde.spec, dict) and bool({"windowed", "session_windowed"} & serde.spec.keys())


def _written(nodes: list[PlanNode]) -> set[str]:
    return {node.topic for node in nodes if isinstance(node, SinkNode) and node.topic and not node.internal}


def _dead_letters(plan: Plan) -> Iterator[str]:
    """Yield the physical names of topics for records that fail."""
    configured = plan.config.get("errors.dead.letter.queue.topic.name")
    if configured:
        yield str(configured)
    for sub in plan.sub_topologies:
        for node in sub.nodes.values():
            own = node.on_error if isinstance(node, ProcessorNode) else None
            if own is not None and own.topic is not None:
                yield own.topic
