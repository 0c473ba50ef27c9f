"""The form of what `Topology.describe()` prints in Java, or `streamkit describe` here."""

from __future__ import annotations

import re
from dataclasses import dataclass, field

from streamkit.changes.form import Form, Graph, Place, StoreForm, SubForm, TopicForm, roots_of
from streamkit.errors import Position, Problem, TopologyError

_HEAD = re.compile(r" *Sub-topology: (\d+)( for global store \(will not generate tasks\))?")
_SOURCE = re.compile(r" *Source: +(\S+) \(topics: (.*)\)")
_PROCESSOR = re.compile(r" *Processor: +(\S+) \(stores: \[(.*)\]\)")
_SINK = re.compile(r" *Sink: +(\S+) \((topic|extractor class): (.*)\)")
_ARROW = re.compile(r" *(-->|<--) (.+)")
_INTERNAL = re.compile(
    r".*-repartition|.*-subscription-(registration|response)-topic"
    r"|.*KTABLE-FK-JOIN-SUBSCRIPTION-(REGISTRATION|RESPONSE)-\d{10}-topic"
)


@dataclass
class _Sub:
    id: int
    is_global: bool
    line: int
    sources: list[str] = field(default_factory=list)
    stores: dict[str, None] = field(default_factory=dict)
    nodes: dict[str, int] = field(default_factory=dict)


def is_description(text: str) -> bool:
    """Tell whether a text is meant as a description, and not as a topology file."""
    return re.match(r"\s*Topolog(y|ies)\b", text) is not None


def parse_describe(text: str, label: str) -> Form:
    """Return the form of a description. Raises TopologyError with the line that does not fit."""
    return _Parser(label).parse(text)


class _Parser:
    def __init__(self, label: str):
        self._label = label
        self._subs: list[_Sub] = []
        self._graph = Graph()
        self._line_numbers: dict[str, int] = {}
        """The line in which each store and topic occurs first."""
        self._open: tuple[str, str, str] | None = None
        """The node whose arrows follow: its kind, its name, and its topic or stores."""
        self._line = 0

    def parse(self, text: str) -> Form:
        lines = text.splitlines()
        for self._line, line in enumerate(lines, 1):
            if line.strip():
                self._read(line.rstrip())
        self._close()
        self._line = max(self._line, 1)
        if not lines or not is_description(text):
            raise self._wrong("expected the text of Topology.describe(), which begins with Topologies:")
        return self._form()

    def _wrong(self, message: str) -> TopologyError:
        return TopologyError([Problem(Position(self._label, self._line, 1), message)])

    def _read(self, line: str) -> None:
        if not self._subs and re.fullmatch(r"\s*Topolog(y|ies):?.*", line):
            return
        if head := _HEAD.fullmatch(line):
            self._close()
            number = int(head[1])
            if any(sub.id == number for sub in self._subs):
                raise self._wrong(f"sub-topology {number} stands here for the second time")
            self._subs.append(_Sub(number, head[2] is not None, self._line))
            return
        if not self._subs:
            raise self._wrong(f"expected Topologies: or Sub-topology: N, found {line.strip()!r}")
        if arrow := _ARROW.fullmatch(line):
            self._arrow(arrow[1], arrow[2])
        elif match := _SOURCE.fullmatch(line):
            self._node("source", match[1])
            self._source(match[1], match[2])
        elif match := _PROCESSOR.fullmatch(line):
            self._node("processor", match[1])
            stores = _list(match[2])
            self._graph.processor(match[1], (), stores)
            self._subs[-1].stores.update(dict.fromkeys(stores))
            self._note(stores)
        elif match := _SINK.fullmatch(line):
            self._node("sink", match[1], match[3] if match[2] == "topic" else "")
        else:
            raise self._wrong(f"expected Source:, Processor:, Sink:, --> or <--, found {line.strip()!r}")

    def _source(self, name: str, topics: str) -> None:
        # A pattern is not in brackets, but may contain brackets.
        listed = re.fullmatch(r"\[([^\[\]]*)\]", topics)
        names = _list(listed[1]) if listed else [topics]
        self._graph.source(name, names)
        self._subs[-1].sources += names
        self._note(names)

    def _note(self, names: list[str]) -> None:
        for name in names:
            self._line_numbers.setdefault(name, self._line)

    def _node(self, kind: str, name: str, target: str = "") -> None:
        self._close()
        if any(name in sub.nodes for sub in self._subs):
            raise self._wrong(f"node {name} stands here for the second time")
        self._subs[-1].nodes[name] = self._line
        self._open = (kind, name, target)

    def _arrow(self, arrow: str, names: str) -> None:
        if self._open is None:
            raise self._wrong(f"{arrow} stands here without a node above it")
        if arrow == "<--" and names != "none":
            kind, name, target = self._open
            parents = _list(names)
            if kind == "sink":
                self._graph.sink(parents, target or None)
            else:
                self._graph.parents[name] = tuple(parents)

    def _close(self) -> None:
        self._open = None

    # -- Afterwards -----------------------------------------------------------------------------------------------------

    def _form(self) -> Form:
        self._check_parents()
        read = {topic for sub in self._subs for topic in sub.sources}
        internal = [topic for topic in self._graph.writers if topic in read and _INTERNAL.fullmatch(topic)]
        return Form(
            label=self._label,
            application=None,
            sub_topologies=tuple(self._sub(sub) for sub in self._subs),
            stores={name: self._store(sub, name) for sub in self._subs for name in sub.stores},
            topics={
                name: TopicForm(name, roots_of(self._graph, self._graph.writers[name]), self._place(name))
                for name in internal
            },
        )

    def _check_parents(self) -> None:
        nodes = {name for sub in self._subs for name in sub.nodes}
        for sub in self._subs:
            for name, self._line in sub.nodes.items():
                for parent in self._graph.parents.get(name, ()):
                    if parent not in nodes:
                        raise self._wrong(f"{name} stands on {parent}, which the description does not have")

    def _place(self, name: str) -> Place:
        return Place("", "", Position(self._label, self._line_numbers.get(name, 1), 1))

    def _sub(self, sub: _Sub) -> SubForm:
        place = Place("", "", Position(self._label, sub.line, 1))
        return SubForm(sub.id, sub.is_global, frozenset(sub.sources), tuple(sub.stores), frozenset(sub.nodes), place)

    def _store(self, sub: _Sub, name: str) -> StoreForm:
        roots = roots_of(self._graph, self._graph.users.get(name, ()))
        return StoreForm(name, sub.id, sub.is_global, roots, self._place(name))


def _list(text: str) -> list[str]:
    return [name for name in text.split(", ") if name]
