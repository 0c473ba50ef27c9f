"""Which topics and stores a test may name, and what its values mean under their serdes."""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from streamkit.errors import RegistryError
from streamkit.plan.model import Plan, SinkNode, SourceNode
from streamkit.runtime.records import RecordJson


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
        self.written = {by_name.get(name, name): name for name in _written(plan, nodes) | self.dead_letters}
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
        """Tell whether the topology writes a topic; any may be where a sink routes."""
        return name in self.written or self._routed

    def entry(self, topic: str) -> str:
        """Return the name that a test has for a physical topic."""
        return self._by_name.get(topic, topic)

    def check_record(self, record: Mapping[str, Any]) -> None:
        """Raise SerdeError for a record that the serdes of its topic can't encode.

        Where something outside does not answer, nothing is checked from then on: the tests that need it fail when they run.
        """
        if self._unreachable:
            return
        try:
            self._json.encode(record, 0, lambda topic: None)
        except RegistryError:
            self._unreachable = True

    def has_windowed_keys(self, topic: str | None, store: str | None) -> bool:
        """Tell whether keys of a topic's entry, or of a store, carry a window."""
        if store is not None:
            definition = self._plan.stores[store]
            return definition.type in ("window", "session", "join_window") or _is_windowed(definition.key_serde)
        found = self._plan.external_topics.get(self._entries.get(topic or "", ""))
        return found is not None and _is_windowed(found.key_serde)


def _is_windowed(serde: Any) -> bool:
    return isinstance(serde.spec, dict) and bool({"windowed", "session_windowed"} & serde.spec.keys())


def _written(plan: Plan, nodes: list[Any]) -> set[str]:
    return {node.topic for node in nodes if isinstance(node, SinkNode) and node.topic and not node.internal}


def _dead_letters(plan: Plan) -> Iterator[str]:
    """Yield the physical names of topics for records that fail."""
    configured = plan.config.get("errors.dead.letter.queue.topic.name")
    if configured:
        yield str(configured)
    for sub in plan.sub_topologies:
        for node in sub.nodes.values():
            own = getattr(node, "on_error", None)
            if own is not None and own.topic is not None:
                yield own.topic
