"""Writes a topology of recorded calls as the text of a file."""

from __future__ import annotations

import yaml

from streamkit.errors import Problem, TopologyError
from streamkit.operators import STEPS
from streamkit.operators.core.parsed_values import CallRef
from streamkit.spec.recorded_topology import RecordedTopology
from streamkit.spec.topology_file import ordered
from streamkit.spec.yaml_nodes import Node
from streamkit.spec.yaml_reader import core


class _Text(str):
    """A text that YAML shows between quotes, since its core schema would read something else."""

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
    """Turns nodes into plain data; `functions` has the references of functions in expressions by name."""

    def __init__(self, problems: list[Problem]):
        self.problems = problems
        self.functions: dict[str, CallRef] = {}

    def data(self, node: Node) -> object:
        """Return a node as the data that YAML writes."""
        if node.kind == "list":
            return [self.data(each) for each in node.value]
        if node.kind == "mapping":
            return {key.value: self._value(key.value, value) for key, value in node.value}
        if node.ref is not None:
            return self._reference(node, node.ref)
        value = core(node.value) if node.plain else node.value
        return value if not isinstance(value, str) or isinstance(core(value or "x"), str) else _Text(value)

    def _value(self, key: str, node: Node) -> object:
        found = self.data(node)
        if key == "steps" and isinstance(found, list):
            return [_short(each) for each in found]
        return {} if found is None and key not in ("if", "value") and node.kind == "mapping" else found

    def _reference(self, node: Node, ref: CallRef) -> str:
        if ref.target is not None:
            message = (
                f"{ref.attribute} has no text in YAML: write an expression, or a function at the top of a module that "
                "others import"
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
