"""Topologies in Python: records the calls of a user's code, and turns them into the nodes that a YAML file would have.

Topologies in Python and in YAML share everything after that: checks, messages with positions, the plan and its names.
"""

from __future__ import annotations

import keyword
import os
import re
import sys
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import timedelta
from functools import partial
from types import MappingProxyType

from streamkit.errors import Problem
from streamkit.expressions.calls import ANY_POSITIONAL, KEYWORD, POSITIONAL, PythonObject, signature_of
from streamkit.expressions.translate import FUNCTIONS
from streamkit.operators import STEPS
from streamkit.operators.core import fields
from streamkit.operators.core.operator import StepDeclaration
from streamkit.operators.core.parsed_values import CallRef
from streamkit.spec.call_places import CallPlace, Place, calling_place, folder_of, inner, plain_name, python_name
from streamkit.spec.steps import ADDING
from streamkit.spec.yaml_nodes import Node
from streamkit.suggestions import listed

END_KEYS = ("to", "for_each")
"""The calls that end a pipeline."""


@dataclass(frozen=True)
class PythonCall:
    """A callable as a file names it: `{call: module:object, with: {…}, batch: N, as: FORM}`."""

    call: str | Callable[..., object]
    arguments: Mapping[str, object] = field(default_factory=dict)
    batch: int | None = None
    form: str | None = None


def call(
    name: str | Callable[..., object],
    *,
    with_: Mapping[str, object] | None = None,
    batch: int | None = None,
    as_: str | None = None,
) -> PythonCall:
    """Return a callable that can replace an expression. `name`: `module:object`, or the object; `with_`: further arguments by name.

    The step passes it the same arguments as a file's `call`, such as key and value. `batch`: the maximum number of records in a call,
    which passes lists; `as_`: arrow, pandas or numpy, for columns in place of lists.
    """
    return PythonCall(name, with_ or {}, batch, as_)


@dataclass(frozen=True)
class Branch:
    """A branch; `then` is called with the branch's stream and adds steps and ends to it.

    `chained`: whether these steps are created with the branch itself, as with `Branched.withConsumer`.
    """

    predicate: object
    then: Callable[..., object] | None = None
    chained: bool = False


@dataclass(eq=False)
class Call:
    """A recorded call. `name`: the step, or the kind of source or end; `parent`: the stream whose method was called, None for a source.

    `options`: the named arguments, without the underscore of names such as `from_`; `positional`: the arguments without names.
    `branches`: the calls of chained branches, by name.
    """

    name: str
    parent: RecordedStream | None
    positional: tuple[object, ...]
    options: Mapping[str, object]
    place: CallPlace
    branches: dict[str, list[Call]] = field(default_factory=dict)

    @property
    def is_end(self) -> bool:
        """Whether it ends a pipeline, as `to` does."""
        return self.parent is not None and self.name in END_KEYS


class Recorder:
    """Records calls in their order, which decides generated names as in Java."""

    def __init__(self) -> None:
        self.calls: list[Call] = []

    def record(
        self, name: str, parent: RecordedStream | None, positional: tuple[object, ...], options: Mapping[str, object]
    ) -> Call:
        """Record a call of the user's code."""
        arguments = {plain_name(option): value for option, value in options.items() if value is not None}
        call = Call(name, parent, positional, MappingProxyType(arguments), calling_place())
        self.calls.append(call)
        return call


class RecordedStream:
    """The result of a recorded call: a stream, a table, a group or a branch."""

    def __init__(self, recorder: Recorder, call: Call | None, branch: str | None = None):
        self._recorder = recorder
        self._call = call
        self._branch = branch

    def _record(self, name: str, positional: tuple[object, ...], options: Mapping[str, object]) -> Call:
        return self._recorder.record(name, self, positional, options)

    def __repr__(self) -> str:
        origin = "" if self._call is None else f" of {self._call.name}"
        return f"<{type(self).__name__}{origin}>"


def record_branches(
    stream: RecordedStream, call: Call, stream_class: type[RecordedStream]
) -> dict[str, RecordedStream]:
    """Record the calls of the `then` of each branch; return the streams that result, by branch."""
    when = call.options.get("when", call.positional[0] if call.positional else {})
    named = list(when.items()) if isinstance(when, Mapping) else []
    if isinstance(when, Sequence) and not isinstance(when, str):
        named = [(str(number), branch) for number, branch in enumerate(when, 1)]
    default = call.options.get("default")
    names = [str(name) for name, _ in named] + ["0" if default is True else str(default)] * (default is not None)
    streams: dict[str, RecordedStream] = {name: stream_class(stream._recorder, call, name) for name in names}
    for name, branch in named:
        if not isinstance(branch, Branch) or branch.then is None:
            continue
        if branch.chained:
            inside = Recorder()
            branch.then(stream_class(inside, None))
            call.branches[str(name)] = inside.calls
        else:
            result = branch.then(streams[str(name)])
            if isinstance(result, RecordedStream):
                streams[str(name)] = result
    return streams


# -- From values to nodes ------------------------------------------------------------------------------------------


class NodeWriter:
    """Turns the values of calls into nodes.

    `name_of` returns the name of a stream's pipeline, or None if the stream belongs to another topology. `parameters`: in a text,
    `${NAME}` of these names is an argument; any other `${` is literal.
    """

    def __init__(
        self,
        name_of: Callable[[RecordedStream], str | None],
        problems: list[Problem],
        parameters: Collection[str] = (),
    ):
        self._name_of = name_of
        self.problems = problems
        names = "|".join(parameters)
        self._escaped = partial(re.compile(rf"\$\{{(?!({names})\}})" if names else r"\$\{").sub, "$${")

    def report(self, place: Place, message: str) -> Node:
        """Add a problem, and return a node that replaces the value and causes no further problems."""
        self.problems.append(Problem(place.source.at(place.start), message))
        return self.scalar("None", place.beginning)

    def scalar(self, text: str, place: Place, plain: bool = False) -> Node:
        """Return a scalar: a text, or with `plain` the value of the text in YAML."""
        mark = place.quote
        end = place.end if mark is not None else place.start
        node = Node("scalar", text, place.start, end, place.source)
        node.plain, node.style = plain, mark
        return node

    def mapping(self, entries: Mapping[str, Node], place: Place) -> Node:
        """Return a mapping; its keys are at the places of their values."""
        pairs = []
        for name, value in entries.items():
            key = Node("scalar", name, value.start, value.start, value.source)
            pairs.append((key, value))
        return Node("mapping", pairs, place.start, place.start, place.source)

    def value(self, value: object, place: Place, kind: fields.Kind | None = None) -> Node:
        """Return the node of an argument for a field of some kind."""
        if isinstance(value, RecordedStream):
            name = self._name_of(value)
            if name is None:
                return self.report(
                    place, "This stream belongs to another topology, or to a branch that is not complete yet"
                )
            return self.scalar(name, place.beginning)
        if isinstance(value, PythonCall):
            return self._call(value, place)
        if isinstance(value, Branch):
            return self._branch(value, place)
        if value is None or isinstance(value, bool | int | float):
            return self.scalar(_yaml(value), place.beginning, plain=True)
        if isinstance(value, str):
            return self.scalar(self._escaped(value), place)
        if isinstance(value, timedelta):
            return self.scalar(f"{value // timedelta(milliseconds=1)}ms", place.beginning)
        if isinstance(value, os.PathLike):
            return self.scalar(os.fspath(value), place.beginning)
        if isinstance(value, Mapping):
            entries = {str(name): self.value(entry, inner(place, name), kind) for name, entry in value.items()}
            return self.mapping(entries, place)
        if isinstance(value, list | tuple):
            return self._list(value, place, kind)
        if callable(value):
            return self._callable(value, place, kind)
        return self.report(place, f"An option can't be {value!r}, of type {type(value).__name__}")

    def _list(self, values: Sequence[object], place: Place, kind: fields.Kind | None) -> Node:
        nodes = []
        for number, element in enumerate(values):
            at = inner(place, number)
            if isinstance(kind, fields.CogroupInputs) and isinstance(element, tuple) and len(element) == 2:
                add = fields.Expr(fields.AGGREGATE_NAMES, ADDING)
                entries = {
                    "from": self.value(element[0], inner(at, 0)),
                    "add": self.value(element[1], inner(at, 1), add),
                }
                nodes.append(self.mapping(entries, at))
            else:
                nodes.append(self.value(element, at, kind))
        return Node("list", nodes, place.start, place.start, place.source)

    def _branch(self, branch: Branch, place: Place) -> Node:
        entries = {"if": self.value(branch.predicate, _argument(place, 0, "predicate"), fields.Expr())}
        if branch.chained:
            entries["chained"] = self.scalar("true", place.beginning, plain=True)
        return self.mapping(entries, place)

    def _call(self, call: PythonCall, place: Place) -> Node:
        at = _argument(place, 0, "call")
        entries = {"call": self.scalar(call.call, at) if isinstance(call.call, str) else self.reference(call.call, at)}
        if call.arguments:
            entries["with"] = self.value(call.arguments, place.beginning)
        if call.batch is not None:
            entries["batch"] = self.value(call.batch, place.beginning)
        if call.form is not None:
            entries["as"] = self.value(call.form, place.beginning)
        return self.mapping(entries, place)

    # -- Functions -------------------------------------------------------------------------------------------------

    def _callable(self, function: Callable[..., object], place: Place, kind: fields.Kind | None) -> Node:
        if isinstance(kind, fields.Callable_):
            return self.reference(function, place)
        if isinstance(kind, fields.SerdeField):
            node = self.reference(function, place)
            if node.ref is not None and node.ref.target is not None:
                return self.report(place, f"The serde {_label(function)} must be importable: define it in a module")
            node.ref = None
            return self.mapping({"call": node}, place)
        expression = kind if isinstance(kind, fields.Expr) else fields.Expr()
        names, arguments = expression.names, expression.arguments
        passed = passed_names(function, names, arguments)
        if isinstance(passed, str):
            return self.report(place, passed)
        name = re.sub(r"\W", "_", getattr(function, "__name__", type(function).__name__)).strip("_") or "function"
        if not name[0].isalpha() or name in (*FUNCTIONS, *names) or keyword.iskeyword(name):
            name = f"{name}_" if name[0].isalpha() else "lambda_"
        node = self.scalar(f"{name}({', '.join(passed)})", place.beginning)
        node.ref = reference_of(function)
        return node

    def reference(self, function: Callable[..., object], place: Place) -> Node:
        """Return the node `module:object` of an object that is called."""
        ref = reference_of(function)
        node = self.scalar(str(ref), place.beginning)
        node.ref = ref
        return node


def _argument(place: Place, number: int, name: str) -> Place:
    """Return the place of an argument of the call at a place."""
    argument = inner(place, number)
    return argument if argument.tree is not None else inner(place, name)


def passed_names(
    function: Callable[..., object], names: Sequence[str], arguments: Sequence[str]
) -> tuple[str, ...] | str:
    """Return the names that an expression passes to a function, or the mistake in the function's parameters.

    If all parameters are named like parts of the record, the function gets those parts. Otherwise a function with one parameter gets
    the value, and a function with as many parameters as `arguments` gets these in order.

    >>> passed_names(lambda value, timestamp: 0, ("key", "value", "timestamp"), ("key", "value"))
    ('value', 'timestamp')
    >>> passed_names(lambda v: 0, ("key", "value", "timestamp"), ("key", "value"))
    ('value',)
    """
    signature = signature_of(function)
    if signature is None:
        return ("value",) if "value" in names else tuple(arguments)
    positional = signature.of_kind(POSITIONAL)
    required = [parameter for parameter in positional if parameter.required]
    needed = [parameter.name for parameter in signature.of_kind(KEYWORD) if parameter.required]
    if needed:
        return f"{_label(function)} needs the argument {needed[0]!r} by name, which the step does not pass"
    if required and all(parameter.name in names for parameter in required):
        return tuple(parameter.name for parameter in required)
    if len(required) == len(arguments):
        return tuple(arguments)
    if len(required) == 1 and "value" in names:
        return ("value",)
    if not required and (positional or signature.of_kind(ANY_POSITIONAL)):
        return ("value",) if "value" in names and positional else tuple(arguments)
    takes = listed([parameter.name for parameter in required]) or "nothing"
    forms = [f"{len(arguments)} ({', '.join(arguments)})"] if arguments else ["none"]
    forms = ["one (the value)", *forms] if "value" in names and len(arguments) != 1 else forms
    known = f", or some of {listed(names)} by these names" if names else ""
    return f"{_label(function)} takes {takes}; the step passes {' or '.join(forms)} arguments{known}"


def reference_of(function: Callable[..., object]) -> CallRef:
    """Return the reference to an object: by module and name if it can be imported, else with the object itself."""
    module: str = getattr(function, "__module__", None) or "__main__"
    name: str = getattr(function, "__qualname__", None) or type(function).__name__
    loaded = sys.modules.get(module)
    loaded_object: object = loaded
    for part in name.split("."):
        loaded_object = getattr(loaded_object, part, None) if not part.startswith("_") else None
    if loaded_object is function and module != "__main__":
        file = getattr(loaded, "__file__", None) or ""
        levels = module.count(".") + (os.path.basename(file) == "__init__.py")
        folder = folder_of(os.path.abspath(file)) if file else ""
        for _ in range(levels):
            folder = os.path.dirname(folder)
        return CallRef(module, name, folder)
    return CallRef(module, _label(function), "", target=PythonObject(function))


def _label(function: object) -> str:
    name = getattr(function, "__name__", type(function).__name__)
    return "lambda" if name == "<lambda>" else str(name)


def _yaml(value: float | None) -> str:
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "true" if value else "false"
    text = repr(value)
    return {"inf": ".inf", "-inf": "-.inf", "nan": ".nan"}.get(text, text)


def _stores_of(call: Call, kinds: Mapping[str, fields.Kind]) -> dict[str, object]:
    """Return the stores of a decorated processor, which its step need not name."""
    target = call.positional[0] if call.positional else call.options.get("call")
    stores = getattr(target, "stores", None) if isinstance(target, type) and "stores" in kinds else None
    return {"stores": list(stores)} if isinstance(stores, tuple) and stores else {}


# -- From calls to steps and pipelines -----------------------------------------------------------------------------


def positional_field(operator: StepDeclaration) -> fields.Field | None:
    """Return the field of a step that a call may pass without a name: the main field, or the first required one."""
    main = next((field for field in operator.fields if field.name == operator.main), None)
    return main or next((field for field in operator.fields if field.required), None)


class StepWriter(NodeWriter):
    """Turns recorded calls into steps."""

    def step(self, call: Call) -> Node:
        """Return the entry of `steps` for a call."""
        operator = STEPS.get(call.name)
        entries = self._options(call, operator)
        if operator is not None and operator.main in entries and self._is_direct_call(call, operator):
            entries = {"call" if name == operator.main else name: node for name, node in entries.items()}
        for name, calls in call.branches.items():
            self._put_chained(entries["when"], name, calls)
        whole = call.place.start
        body = self.mapping(entries, whole) if entries else self.scalar("null", whole, plain=True)
        if operator is None and call.positional and not entries:
            # A macro's unnamed argument belongs to its only parameter.
            body = self.value(call.positional[0], call.place.argument("0"), fields.Expr())
        key = self.scalar(call.name, whole)
        return Node("mapping", [(key, body)], whole.start, whole.start, whole.source)

    def _options(self, call: Call, operator: StepDeclaration | None) -> dict[str, Node]:
        kinds = {field.name: field.kind for field in operator.fields} if operator is not None else {}
        first = positional_field(operator) if operator is not None else None
        entries: dict[str, Node] = {}
        if call.positional and first is not None:
            entries[first.name] = self.value(call.positional[0], call.place.argument("0"), kinds[first.name])
        allowed = int(first is not None or not call.options) if operator is None else int(first is not None)
        if len(call.positional) > allowed:
            form = f"only {python_name(first.name)!r} without its name" if first is not None else "options by name only"
            self.report(call.place.argument(str(allowed)), f"The step {call.name!r} takes {form}")
        for name, value in {**_stores_of(call, kinds), **call.options}.items():
            place = call.place.argument(python_name(name))
            if name in entries:
                self.report(place, f"The step {call.name!r} gets {name!r} twice")
                continue
            default = fields.Expr() if operator is None else None
            entries[name] = self.value(value, place, kinds.get(name, default))
        return entries

    @staticmethod
    def _is_direct_call(call: Call, operator: StepDeclaration) -> bool:
        """Return whether the step calls a function directly, as with `call`, and not in an expression."""
        first = positional_field(operator)
        function = call.positional[0] if call.positional else call.options.get(operator.main or "")
        is_batched = any(option in call.options for option in ("batch", "with", "as"))
        return first is not None and isinstance(first.kind, fields.Expr) and callable(function) and is_batched

    def _put_chained(self, when: Node, name: str, calls: list[Call]) -> None:
        for before, call in zip([None, *calls], calls, strict=False):
            if (call.parent is None or call.parent._call is not before) or (before is not None and before.is_end):
                self.report(
                    call.place.start, "A chained branch is one chain of steps with one end; build others after it"
                )
                return
        for number, (key, body) in enumerate(self._named(when)):
            if (key if when.kind == "mapping" else str(number + 1)) == name:
                body.value += [
                    (self.scalar(end, Place(body.source, body.start, body.start)), node)
                    for end, node in self.ends(calls).items()
                ]

    @staticmethod
    def _named(when: Node) -> Iterator[tuple[str, Node]]:
        if when.kind == "mapping":
            yield from ((key.value, body) for key, body in when.value)
        else:
            yield from (("", body) for body in when.value)

    def ends(self, calls: Sequence[Call]) -> dict[str, Node]:
        """Return `steps`, `to` and `for_each` for consecutive calls."""
        steps = [self.step(call) for call in calls if not call.is_end]
        ends: dict[str, Node] = {}
        if steps:
            ends["steps"] = Node("list", steps, steps[0].start, steps[0].start, steps[0].source)
        for call in calls:
            if call.is_end:
                ends[call.name] = self.end(call)
        return ends

    def end(self, call: Call) -> Node:
        """Return the value of `to` or `for_each`."""
        options = {name: value for name, value in call.options.items() if name not in TOPIC_OPTIONS}
        main = "topic" if call.name == "to" else "call"
        if call.positional:
            options = {main: call.positional[0], **options}
        entries = {}
        for name, value in options.items():
            number = "0" if call.positional and name == main else python_name(name)
            entries[name] = self.value(value, call.place.argument(number), _END_KINDS.get(name))
        return self.mapping(entries, call.place.start)


TOPIC_OPTIONS = ("key", "value", "timestamp", "reset", "partitions", "replication_factor", "config")
"""The options of sources and of `to` that belong to the entry of the topic."""
_END_KINDS: dict[str, fields.Kind] = {
    "route": fields.Expr(),
    "partition": fields.Expr(fields.PARTITION_NAMES, ("key", "value", "partitions")),
    "call": fields.Callable_(("key", "value")),
}
