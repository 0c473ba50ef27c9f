"""Converts the recorded calls of a topology in Python into the sections and pipelines of a file, and into its text."""

from __future__ import annotations

import linecache
import re
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field, replace

import yaml

from streamkit.errors import Problem, TopologyError
from streamkit.operators import STEPS
from streamkit.operators.core import fields
from streamkit.operators.core.operator import StepDeclaration
from streamkit.operators.core.parsed_values import CallRef
from streamkit.spec import topology_file
from streamkit.spec.call_places import CallPlace, Place, folder_of, python_name
from streamkit.spec.recorded_calls import (
    TOPIC_OPTIONS,
    Call,
    NodeWriter,
    RecordedStream,
    Recorder,
    StepWriter,
)
from streamkit.spec.topology_file import ordered
from streamkit.spec.topology_model import TopologyModel
from streamkit.spec.yaml_nodes import Node, Source, compose
from streamkit.spec.yaml_reader import core

_SOURCE_KINDS: dict[str, fields.Kind] = {"process": fields.Callable_(("record",), True)}
_TOPIC_KINDS: dict[str, fields.Kind] = {
    "timestamp": fields.Expr(),
    "key": fields.SerdeField(),
    "value": fields.SerdeField(),
}


@dataclass(frozen=True)
class Entry:
    """An entry that a call adds to a section of the topology."""

    section: str
    name: str
    options: Mapping[str, object]
    place: CallPlace


@dataclass
class RecordedTopology:
    """The calls of a user's code on one topology.

    head: the options of the whole topology; text: the contents and the name of the file that the calls extend.
    """

    place: CallPlace
    head: Mapping[str, object] = field(default_factory=dict)
    text: tuple[str, str] | None = None
    recorder: Recorder = field(default_factory=Recorder)
    entries: list[Entry] = field(default_factory=list)

    @property
    def size(self) -> int:
        """The number of calls; a model of fewer calls is out of date."""
        return len(self.recorder.calls) + len(self.entries)

    def load(
        self,
        operators: Mapping[str, StepDeclaration] | None = None,
        environment: Mapping[str, str] | None = None,
    ) -> TopologyModel:
        """Return the model. Raises TopologyError with every problem."""
        if self.text is not None and not self.size:
            text, file = self.text
            return topology_file.load_text(text, file, operators, environment)
        problems: list[Problem] = []
        root = self.root(problems)
        folder = folder_of(root.source.file) if self.text is None else None
        model = topology_file.load_nodes(root.source, root, problems, operators, environment, folder)
        files = {call.place.file for call in self.recorder.calls} - {model.file}
        texts = {file: "".join(linecache.getlines(file)) for file in sorted(files) if not file.startswith("<")}
        return replace(model, included={**model.included, **texts})

    def root(self, problems: list[Problem]) -> Node:
        """Return the root node of the equivalent file; add the mistakes in calls to `problems`."""
        pipelines = _Pipelines(self.recorder.calls, self._names_taken(problems))
        writer = StepWriter(pipelines.name_of, problems)
        base = self._base(problems)
        whole = self.place.start
        sections: dict[str, Node] = {}
        if base is None:
            sections["streamkit"] = writer.scalar("1", whole, plain=True)
        for name, value in self.head.items():
            number = "0" if name == "application" else name
            sections[name] = writer.value(value, self.place.argument(number), _head_kind(name))
        for entry in self.entries:
            _add(sections, entry.section, entry.name, self._entry(writer, entry), entry.place, writer)
        for topic, call in _topics(self.recorder.calls):
            _add(sections, "topics", topic, self._topic(writer, call), call.place, writer)
        for name, node, call in pipelines.nodes(writer):
            _add(sections, "pipelines", name, node, call.place, writer)
        own = writer.mapping(sections, whole)
        return own if base is None else _merge(base, own)

    def _base(self, problems: list[Problem]) -> Node | None:
        return compose(Source(*self.text), problems) if self.text is not None else None

    def _names_taken(self, problems: list[Problem]) -> set[str]:
        base = self._base([])
        pairs = base.value if base is not None and base.kind == "mapping" else []
        section = next((value for key, value in pairs if key.value == "pipelines"), None)
        return {key.value for key, _ in section.value} if section is not None and section.kind == "mapping" else set()

    def _entry(self, writer: StepWriter, entry: Entry) -> Node:
        kinds = _TOPIC_KINDS if entry.section == "topics" else _ENTRY_KINDS
        nodes = {
            name: writer.value(value, entry.place.argument(python_name(name)), kinds.get(name))
            for name, value in entry.options.items()
            if value is not None
        }
        return writer.mapping(nodes, entry.place.start)

    def _topic(self, writer: StepWriter, call: Call) -> Node:
        nodes = {
            name: writer.value(value, call.place.argument(name), _TOPIC_KINDS.get(name))
            for name, value in call.options.items()
            if name in TOPIC_OPTIONS
        }
        return writer.mapping(nodes, call.place.start)


_ENTRY_KINDS: dict[str, fields.Kind] = {
    "key": fields.SerdeField(),
    "value": fields.SerdeField(),
    "call": fields.Callable_(),
}


def _head_kind(name: str) -> fields.Kind | None:
    return fields.SerdeField() if name == "defaults" else None


def _topics(calls: Iterable[Call]) -> Iterator[tuple[str, Call]]:
    """Yield each topic that a call names, with the call."""
    for call in calls:
        for inside in call.branches.values():
            yield from _topics(inside)
        if call.parent is None or call.name == "to":
            topics = call.positional[0] if call.positional else call.options.get("topic")
            for topic in topics if isinstance(topics, list | tuple) else [topics]:
                if isinstance(topic, str):
                    yield topic, call


def _add(sections: dict[str, Node], section: str, name: str, node: Node, place: CallPlace, writer: NodeWriter) -> None:
    """Add an entry to a section, or add its options to the existing entry of this name."""
    whole = place.start
    target = sections.setdefault(section, Node("mapping", [], whole.start, whole.start, whole.source))
    if target.kind != "mapping":
        return
    key, known = next(((key, known) for key, known in target.value if key.value == name), (None, None))
    if key is None or known is None:
        target.value.append((writer.scalar(name, whole), node))
        return
    values = {option.value: value for option, value in known.value} if known.kind == "mapping" else {}
    for option, value in node.value:
        if option.value in values and _data(values[option.value]) != _data(value):
            text = f"{option.value!r} of {name!r} in {section!r} already has another value: {key.position}"
            writer.report(Place(option.source, option.start, option.end), text)
        elif option.value not in values:
            known.value.append((option, value))


def _data(node: Node) -> object:
    if node.kind == "mapping":
        return sorted((key.value, repr(_data(value))) for key, value in node.value)
    return [_data(item) for item in node.value] if node.kind == "list" else (node.plain, node.value)


def _merge(base: Node, own: Node) -> Node:
    """Return the root of a file, with the entries of the calls added to its sections."""
    if base.kind != "mapping":
        return base
    merged = Node("mapping", list(base.value), base.start, base.end, base.source)
    for key, section in own.value:
        at = next(
            (number for number, (known_name, _) in enumerate(merged.value) if known_name.value == key.value), None
        )
        if at is None:
            merged.value.append((key, section))
            continue
        known_key, known = merged.value[at]
        if known.kind == section.kind == "mapping":
            names = {entry.value for entry, _ in known.value}
            # A call that names a topic of the file, without options, refers to that topic and adds nothing.
            added = [(entry, body) for entry, body in section.value if entry.value not in names or body.value]
            both = Node("mapping", [*known.value, *added], known.start, known.end, known.source)
            merged.value[at] = known_key, both
    return merged


class _Pipelines:
    """Cuts the recorded calls into pipelines, in the order of the calls.

    A pipeline continues as long as each call uses the result of the one before it and no other call refers to that result.
    """

    def __init__(self, calls: list[Call], taken: set[str]):
        self._taken = set(taken)
        self._parts: list[tuple[str, list[Call]]] = []
        self._names: dict[Call, str] = {}
        uses = _uses(calls)
        before: Call | None = None
        for call in calls:
            parent = call.parent
            source = parent._call if parent is not None else None
            follows = source is not None and source is before and uses.get(source, 0) == 1 and not source.is_end
            if not (follows and parent is not None and parent._branch is None):
                self._parts.append((self._new_name(call, source), []))
            name, part = self._parts[-1]
            part.append(call)
            self._names[call] = name
            before = call

    def _new_name(self, call: Call, source: Call | None) -> str:
        base = self._names.get(source, "stream") if source is not None else _first_topic(call)
        base = re.sub(r"-\d+$", "", base) if source is not None else base
        name, number = base, 2
        while name in self._taken:
            name, number = f"{base}-{number}", number + 1
        self._taken.add(name)
        return name

    def name_of(self, stream: RecordedStream) -> str | None:
        """Return the name by which other pipelines refer to a stream; None for a stream of another topology."""
        name = self._names.get(stream._call) if stream._call is not None else None
        return name if name is None or stream._branch is None else f"{name}.{stream._branch}"

    def nodes(self, writer: StepWriter) -> Iterator[tuple[str, Node, Call]]:
        """Yield the name, the node and the first call of each pipeline."""
        for name, calls in self._parts:
            first = calls[0]
            whole = first.place.start
            if first.parent is None:
                entries = _source(writer, first)
                calls = calls[1:]
            else:
                origin = self.name_of(first.parent)
                if origin is None:
                    writer.report(whole, "This stream belongs to another topology")
                    continue
                entries = {"from": writer.scalar(origin, whole)}
            yield name, writer.mapping({**entries, **writer.ends(calls)}, whole), first


def _source(writer: StepWriter, call: Call) -> dict[str, Node]:
    """Return the keys of a pipeline that define its source."""
    options = {name: value for name, value in call.options.items() if name not in TOPIC_OPTIONS}
    pattern = options.pop("pattern", None)
    if pattern is not None:
        at = call.place.argument("pattern")
        first = writer.mapping({"pattern": writer.value(pattern, at)}, at)
    else:
        first = writer.value(call.positional[0] if call.positional else None, call.place.argument("0"))
    nodes = {
        name: writer.value(value, call.place.argument(python_name(name)), _SOURCE_KINDS.get(name))
        for name, value in options.items()
    }
    return {call.name: first, **nodes}


def _first_topic(call: Call) -> str:
    name = next((topic for topic, _ in _topics([call])), "pattern")
    return re.sub(r"[^A-Za-z0-9_-]", "-", name)


def _uses(calls: Iterable[Call]) -> dict[Call, int]:
    """Return how many calls use the result of each call."""
    counts: dict[Call, int] = {}
    for call in calls:
        values = [call.parent, *call.positional, *call.options.values()]
        for inside in call.branches.values():
            for used in _uses(inside):
                counts[used] = counts.get(used, 0) + 2
        while values:
            value = values.pop()
            if isinstance(value, RecordedStream) and value._call is not None:
                # The step refers to a stream in an argument by name, so the stream's pipeline must end there.
                counts[value._call] = counts.get(value._call, 0) + (1 if value is call.parent else 2)
            elif isinstance(value, Mapping):
                values += value.values()
            elif isinstance(value, list | tuple):
                values += value
    return counts


# Writes a topology of recorded calls as the text of a file.


class _Text(str):
    """A string that YAML needs in quotes, because its core schema would read another type or value."""

    __slots__ = ()


class _Dumper(yaml.SafeDumper):
    pass


_Dumper.add_representer(_Text, lambda dumper, text: dumper.represent_scalar("tag:yaml.org,2002:str", text, style="'"))


def to_yaml(recorded: RecordedTopology) -> str:
    """Return the text of a file with the same topology. Raises TopologyError with the place of each object that has no name in a module."""
    problems: list[Problem] = []
    root = recorded.root(problems)
    writer = _Writer(problems)
    data = writer.data(root)
    if problems:
        raise TopologyError(ordered(problems))
    assert isinstance(data, dict)
    if writer.functions:
        calls = {name: {"call": str(ref)} for name, ref in writer.functions.items()}
        data["functions"] = {**data.get("functions", {}), **calls}
        data["pipelines"] = data.pop("pipelines", {})
    return yaml.dump(data, Dumper=_Dumper, sort_keys=False, allow_unicode=True, width=110)


class _Writer:
    """Turns nodes into plain data. functions: the callables that expressions use, by name."""

    def __init__(self, problems: list[Problem]):
        self.problems = problems
        self.functions: dict[str, CallRef] = {}

    def data(self, node: Node) -> object:
        """Return a node as the data that YAML writes."""
        if node.kind == "list":
            return [self.data(item) for item in node.value]
        if node.kind == "mapping":
            return {key.value: self._value(key.value, value) for key, value in node.value}
        if node.ref is not None:
            return self._reference(node, node.ref)
        value = core(node.value) if node.plain else node.value
        return value if not isinstance(value, str) or isinstance(core(value or "x"), str) else _Text(value)

    def _value(self, key: str, node: Node) -> object:
        data = self.data(node)
        if key == "steps" and isinstance(data, list):
            return [_short(step) for step in data]
        return {} if data is None and key not in ("if", "value") and node.kind == "mapping" else data

    def _reference(self, node: Node, ref: CallRef) -> str:
        if ref.target is not None:
            message = (
                f"{ref.attribute} can't be written in YAML: use an expression, or define the function at the top level of a "
                "module that can be imported"
            )
            self.problems.append(Problem(node.position, message))
        name, bracket, rest = node.value.partition("(")
        if not bracket:
            return str(ref)
        base, number = name, 2
        while name in self.functions and str(self.functions[name]) != str(ref):
            name, number = f"{base}_{number}", number + 1
        self.functions[name] = ref
        return f"{name}({rest}"


def _short(step: object) -> object:
    """Return a step in its shortest form: its name, or its name with the main argument."""
    if not isinstance(step, dict) or len(step) != 1:
        return step
    ((name, options),) = step.items()
    operator = STEPS.get(name)
    if options is None:
        return name
    if isinstance(options, dict) and operator is not None and list(options) == [operator.main]:
        (value,) = options.values()
        return {name: value} if not isinstance(value, dict) else step
    return step
