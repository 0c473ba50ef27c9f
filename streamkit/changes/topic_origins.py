"""Finds the external topics that records come from."""

from __future__ import annotations

from collections.abc import Iterable, Sequence


class Graph:
    """The nodes of a topology by name, with their parents, and the nodes that write each topic."""

    def __init__(self) -> None:
        self.parents: dict[str, tuple[str, ...]] = {}
        self.reads: dict[str, tuple[str, ...]] = {}
        """The topics of sources."""
        self.writers: dict[str, list[str]] = {}
        """The nodes above the sinks of a topic."""
        self.users: dict[str, list[str]] = {}
        """The nodes that have a store."""

    def source(self, name: str, topics: Iterable[str]) -> None:
        """Add a node that reads topics."""
        self.reads[name] = tuple(topics)

    def processor(self, name: str, parents: Sequence[str], stores: Iterable[str]) -> None:
        """Add a node with stores."""
        self.parents[name] = tuple(parents)
        for store in stores:
            self.users.setdefault(store, []).append(name)

    def sink(self, parents: Sequence[str], topic: str | None) -> None:
        """Add a node that writes a topic; None: one that differs from record to record."""
        if topic is not None:
            self.writers.setdefault(topic, []).extend(parents)


def roots_of(graph: Graph, nodes: Iterable[str]) -> frozenset[str]:
    """Return the topics that no node writes and that the records of these nodes come from, through other topics too."""
    found: set[str] = set()
    seen: set[str] = set()
    waiting = list(nodes)
    while waiting:
        node = waiting.pop()
        if node in seen:
            continue
        seen.add(node)
        waiting.extend(graph.parents.get(node, ()))
        for topic in graph.reads.get(node, ()):
            writers = graph.writers.get(topic, ())
            waiting.extend(writers)
            if not writers:
                found.add(topic)
    return frozenset(found)
