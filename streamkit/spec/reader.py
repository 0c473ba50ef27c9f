"""The hand that reads nodes: every method gives a checked value, or complains at the node's place and gives BAD."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from streamkit import durations
from streamkit.errors import ConfigError, Position, Problem, TopologyError
from streamkit.spec import names
from streamkit.spec.nodes import Node, Source
from streamkit.spec.resolve import Resolver, shown
from streamkit.suggestions import did_you_mean


class _Bad:
    """What a mistake gives; a problem has been noted."""

    def __repr__(self) -> str:
        return "BAD"

    def __bool__(self) -> bool:
        return False


BAD: Any = _Bad()


@dataclass(frozen=True)
class Use:
    """A name of another place in the file. kind: "topic", "pipeline" or "store"; pipeline: the one that uses it."""

    kind: str
    name: str
    position: Position
    pipeline: str = ""


@dataclass(frozen=True)
class StoreDefinition:
    """A place that makes a store, to find names given twice."""

    name: str
    position: Position


class Reader:
    """Reads one file. `folder`: where its Python modules and schemas lie; `operators`: the steps by name."""

    def __init__(
        self,
        source: Source,
        folder: str,
        operators: Mapping[str, Any],
        environment: Mapping[str, str],
        problems: list[Problem],
    ):
        self.source = source
        self.folder = folder
        self.operators = operators
        self.problems = problems
        self.value = Resolver(environment, self._unreadable)
        self._broken: set[int] = set()
        """Scalars without a value, by identity: what is expected of them is no second mistake."""
        self.functions: Any = {}
        """The `expressions.Library` of the file's functions."""
        self.uses: list[Use] = []
        self.stores: list[StoreDefinition] = []
        self.incomplete: set[str] = set()
        """Pipelines of which a step or a branch was left out after a mistake."""
        self.pipeline = ""
        """The name of the pipeline in hand."""

    # -- Complaints ------------------------------------------------------------------------------------------------

    def complain(self, place: Node | Position, message: str) -> Any:
        """Note a problem and return BAD; one about a scalar that has no value is left out."""
        if isinstance(place, Node) and id(place) in self._broken:
            return BAD
        position = place.position if isinstance(place, Node) else place
        self.problems.append(Problem(position, message))
        return BAD

    def _unreadable(self, node: Node, message: str) -> None:
        self.problems.append(Problem(node.position, message))
        self._broken.add(id(node))

    def is_broken(self, node: Node) -> bool:
        """Tell whether a scalar has no value, since a variable in it is not set, say."""
        if node.kind == "scalar":
            self.value(node)
        return id(node) in self._broken

    def adopt(self, error: TopologyError) -> Any:
        """Note the problems of an error and return BAD."""
        self.problems.extend(error.problems)
        return BAD

    def wrong(self, node: Node, what: str, expected: str) -> Any:
        """Complain that `what` must be `expected`, and say what came."""
        return self.complain(node, f"{what} must be {expected}, not {self.kind(node)}")

    def kind(self, node: Node) -> str:
        """Return what a node is, for a message."""
        if node.kind == "list":
            return "a list"
        if node.kind == "mapping":
            return "a mapping"
        value = self.value(node)
        if value is None:
            return "nothing"
        kind = "the number " if isinstance(value, (int, float)) and not isinstance(value, bool) else ""
        return kind + shown(value)

    # -- Mappings and lists ----------------------------------------------------------------------------------------

    def is_null(self, node: Node) -> bool:
        """Tell whether a node stands for nothing."""
        return node.kind == "scalar" and self.value(node) is None

    def entries(self, node: Node, what: str) -> dict[str, tuple[Node, Node]]:
        """Return a mapping's key and value nodes by key; nothing counts as an empty mapping."""
        if self.is_null(node):
            return {}
        if node.kind != "mapping":
            self.wrong(node, what, "a mapping")
            return {}
        found: dict[str, tuple[Node, Node]] = {}
        for key, value in node.value:
            if key.kind == "scalar":  # other keys, and those that stand twice, were complained about already
                found.setdefault(key.value, (key, value))
        return found

    def options(self, node: Node, what: str, keys: Iterable[str], required: Iterable[str] = ()) -> dict[str, Node]:
        """Return the values of a mapping with these keys; a null value is an absent one."""
        found = self.entries(node, what)
        keys = tuple(keys)
        known = {}
        for name, (key, value) in found.items():
            if name not in keys:
                self.unknown(key, what, keys)
            elif not self.is_null(value):
                known[name] = value
        if node.kind == "mapping" or self.is_null(node):
            for name in required:
                if name not in known:
                    place = found[name][0] if name in found else node
                    self.complain(place, f"{what} needs {name!r}")
        return known

    def unknown(self, key: Node, what: str, keys: Iterable[str]) -> None:
        """Complain about a key that `what` does not have."""
        if key.value != "<<":
            self.complain(key, f"{what} has no key {key.value!r}{names.hint(key.value, keys)}")

    def items(self, node: Node, what: str) -> list[Node]:
        """Return the nodes of a list; nothing counts as an empty one."""
        if node.kind == "list":
            return list(node.value)
        if not self.is_null(node):
            self.wrong(node, what, "a list")
        return []

    def data(self, node: Node) -> Any:
        """Return a node as plain Python data."""
        if node.kind == "scalar":
            return self.value(node)
        if node.kind == "list":
            return [self.data(item) for item in node.value]
        return {key.value: self.data(value) for key, value in node.value if key.kind == "scalar"}

    # -- Scalars ---------------------------------------------------------------------------------------------------

    def text(self, node: Node, what: str, kafka_name: bool = False) -> Any:
        """Return a text; with `kafka_name`, one that Kafka allows as a name."""
        value = self.value(node) if node.kind == "scalar" else None
        if self.is_broken(node):
            return BAD
        if not isinstance(value, str):
            quoted = f' (write "{node.value}" for the text)' if node.kind == "scalar" and value is not None else ""
            return self.complain(node, f"{what} must be text, not {self.kind(node)}{quoted}")
        mistake = names.kafka_name_mistake(value) if kafka_name else None
        return self.complain(node, f"{what} {shown(value)} {mistake}") if mistake else value

    def boolean(self, node: Node, what: str) -> Any:
        """Return a boolean."""
        value = self.value(node) if node.kind == "scalar" else None
        return value if isinstance(value, bool) else self.wrong(node, what, "true or false")

    def integer(self, node: Node, what: str, minimum: int, maximum: int = 2**31 - 1) -> Any:
        """Return a whole number between two bounds."""
        value = self.value(node) if node.kind == "scalar" else None
        if not isinstance(value, int) or isinstance(value, bool) or not minimum <= value <= maximum:
            bounds = f"at least {minimum}" if not isinstance(value, int) or value < minimum else f"at most {maximum}"
            return self.wrong(node, what, f"a whole number of {bounds}")
        return value

    def choice(self, node: Node, what: str, words: tuple[str, ...]) -> Any:
        """Return one of some words."""
        value = self.value(node) if node.kind == "scalar" else None
        if value in words:
            return value
        hint = did_you_mean(value, words) if isinstance(value, str) else ""
        listed = " or ".join([", ".join(words[:-1]), words[-1]]) if len(words) > 1 else words[0]
        return self.complain(node, f"{what} must be {listed}, not {self.kind(node)}{hint}")

    def duration(self, node: Node, what: str, minimum: int = 0) -> Any:
        """Return a duration in milliseconds."""
        value = self.value(node) if node.kind == "scalar" else None
        try:
            return durations.parse(value, minimum)
        except ConfigError as error:
            return self.complain(node, f"{what} {error}, not {self.kind(node)}")

    # -- References ------------------------------------------------------------------------------------------------

    def topic(self, node: Node, what: str) -> Any:
        """Return the name of an entry of `topics`, which is looked up once the whole file is read."""
        name = self.text(node, what)
        if name is not BAD:
            self.uses.append(Use("topic", name, node.position, self.pipeline))
        return name


def put(target: dict[str, Any], name: str, value: Any) -> None:
    """Set an entry unless its value is BAD."""
    if value is not BAD:
        target[name] = value
