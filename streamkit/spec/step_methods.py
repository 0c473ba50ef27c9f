"""The methods of streams in Python: one for each step, with the signature and the docs that the operator declares.

`python -m streamkit.spec.step_methods` writes them as `streams.pyi` for editors and type checkers; `--check` exits 1 when the file is out of
date. At run time `streams.py` makes the same methods.
"""

from __future__ import annotations

import re
import sys
import textwrap
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import get_args

from streamkit.operators import OPERATORS
from streamkit.operators.core import fields
from streamkit.operators.core.operator import StepDeclaration, Upstream
from streamkit.spec.call_places import python_name
from streamkit.spec.recorded_calls import positional_field

CLASSES: dict[str, str] = {
    upstream.kind: upstream.__name__ for upstream in get_args(Upstream) if upstream.kind != "topic_store"
}
"""The names of the classes in Python, by the kinds of upstreams."""

_TYPES: dict[type, str] = {
    fields.Expr: "Expression",
    fields.SerdeField: "SerdeSpec",
    fields.Text: "str",
    fields.Duration: "Duration",
    fields.SignedDuration: "Duration",
    fields.Integer: "int",
    fields.Fraction: "float",
    fields.Flag: "bool",
    fields.TopicConfig: "Mapping[str, str | int | float | bool]",
    fields.DurationOr: "Duration",
    fields.StoreField: "StoreSpec",
    fields.StoreNames: "str | Sequence[str]",
    fields.BaseName: "str",
    fields.PipelineRef: "Joinable",
    fields.CogroupInputs: "Sequence[tuple[GroupedStream, Expression]]",
    fields.Branches: "Mapping[str, Expression | Branch] | Sequence[Expression | Branch]",
    fields.DefaultBranch: "str | Literal[True]",
    fields.HeaderMap: "Mapping[str, Expression | None]",
    fields.Callable_: "str | Callable[..., object]",
    fields.Arguments: "Mapping[str, object]",
    fields.CacheField: "Mapping[str, str | int]",
}
_WIDTH = 112


@dataclass(frozen=True)
class Parameter:
    """A parameter of a method; annotation: the source of its type."""

    name: str
    annotation: str
    doc: str
    is_required: bool
    is_positional: bool


@dataclass(frozen=True)
class Method:
    """A method of a class of streams. result: the name of the class that it returns."""

    name: str
    step: str
    parameters: tuple[Parameter, ...]
    result: str
    summary: str

    @property
    def doc(self) -> str:
        """The docstring: the summary, and each option."""
        parts = [_wrapped(self.summary)]
        parts += [_wrapped(f"{parameter.name}: {parameter.doc}", "    ") for parameter in self.parameters]
        return "\n\n".join([parts[0], "\n".join(parts[1:])])


def methods(kind: str) -> Iterator[Method]:
    """Yield the methods of streams of a kind, in the order of the language reference."""
    for operator in OPERATORS.values():
        if kind in operator.accepts:
            yield method(operator, kind)


def method(operator: StepDeclaration, kind: str) -> Method:
    """Return the method of a step on upstreams of a kind."""
    first = positional_field(operator)
    parameters = [_parameter(field, field is first) for field in operator.fields if not _is_replaced(operator, field)]
    parameters.sort(key=lambda parameter: (not parameter.is_positional, not parameter.is_required))
    parameters.append(
        Parameter(
            "on_error",
            "OnError",
            "`fail`, `continue` or `{'dead_letter': TOPIC}`.",
            is_required=False,
            is_positional=False,
        )
    )
    return Method(
        python_name(operator.name),
        operator.name,
        tuple(parameters),
        result_of(operator, kind),
        _plain(operator.summary),
    )


def _is_replaced(operator: StepDeclaration, field: fields.Field) -> bool:
    """Return whether a function in place of the main expression does what a field is for."""
    main = next((field for field in operator.fields if field.name == operator.main), None)
    return field.name == "call" and main is not None and isinstance(main.kind, fields.Expr)


def _parameter(field: fields.Field, is_first: bool) -> Parameter:
    kind = field.kind
    annotation = f"Literal[{', '.join(map(_quoted, kind.words))}]" if isinstance(kind, fields.Choice) else ""
    annotation = annotation or _TYPES[type(kind)]
    if isinstance(kind, fields.PipelineRef) and kind.many:
        annotation = "Stream | Sequence[Stream]"
    doc = _plain(field.doc) + ("" if field.default is None else f" Default: {field.default}.")
    return Parameter(python_name(field.name), annotation, doc, field.required, is_first)


def _quoted(word: str) -> str:
    return f'"{word}"'


def result_of(operator: StepDeclaration, kind: str) -> str:
    """Return the class of the result of a step: that of the upstream if the step may return it, else the only, the similar, or the first one."""
    names = [word for word in annotation_words(operator) if word in CLASSES.values()]
    own = CLASSES[kind]
    if own in names or len(names) == 1:
        return own if own in names else names[0]
    stem = kind.rpartition("_")[2].removesuffix("ed")
    similar = [name for name in CLASSES if CLASSES[name] in names and name.rpartition("_")[2] == stem]
    # The plan checks the step after it; steps without a method are called by their names.
    return CLASSES[similar[0]] if similar else names[0]


def annotation_words(operator: StepDeclaration) -> list[str]:
    """Return the words of the annotation of a step's result; none without one."""
    annotations: dict[str, object] = getattr(operator, "build").__annotations__  # noqa: B009 -- of two classes of steps
    return re.findall(r"\w+", str(annotations.get("return", "")))


def _plain(text: str) -> str:
    """Return Markdown without links."""
    return re.sub(r"\[([^\]]*)\]\([^)]*\)", r"\1", text)


def _wrapped(text: str, indent: str = "") -> str:
    return textwrap.fill(text, _WIDTH, subsequent_indent=indent, break_long_words=False, break_on_hyphens=False)


# -- The file of types ---------------------------------------------------------------------------------------------

FILE = Path(__file__).with_name("streams.pyi")

_HEAD = '''"""Streams, tables and groups of a topology in Python. `make generate` writes this file from the steps in streamkit/operators."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import timedelta
from typing import Literal, TypeAlias

from streamkit.api.protocols import Serde
from streamkit.spec.recorded_calls import Branch as Branch
from streamkit.spec.recorded_calls import PythonCall, RecordedStream

Expression: TypeAlias = str | int | float | bool | Callable[..., object] | PythonCall
"""An expression of the language as text, a constant, or a function."""
SerdeSpec: TypeAlias = str | Mapping[str, object] | type[Serde]
"""A serde by name or with its arguments, or the class of one."""
StoreSpec: TypeAlias = str | Mapping[str, object]
"""The name of a store, or its options."""
Duration: TypeAlias = str | int | timedelta
"""Text such as `5m`, or milliseconds."""
OnError: TypeAlias = str | Mapping[str, str] | None
"""What happens to a record on which a step fails."""
'''

_BASE = '''
class AnyStream(RecordedStream):
    """What all streams, tables and groups have."""

    def step(self, name: str, *arguments: object, **options: object) -> Stream:
        """Add a step by its name: a macro, or a step of a plugin."""
'''

_ENDS = '''
    def to(
        self,
        topic: str | None = None,
        *,
        route: Expression | None = None,
        key: SerdeSpec | None = None,
        value: SerdeSpec | None = None,
        partition: Expression | None = None,
        partitions: int | None = None,
        name: str | None = None,
    ) -> None:
        """Write the records to a topic, or to the topic whose name `route` gives for each record.

        key, value: the serdes of the topic, if nothing else declares it; partition: the partition of a record, out of
            `partitions`; partitions: how many partitions the topic has if streamkit creates it.
        """

    def for_each(
        self, call: str | Callable[..., object], *, with_: Mapping[str, object] | None = None, name: str | None = None
    ) -> None:
        """Call a function with the key and the value of each record; ends the stream."""
'''

_BRANCHES = '''
class Branches(AnyStream):
    """The branches of a stream by name."""

    def __getitem__(self, name: str) -> Stream: ...
    def __iter__(self) -> Iterator[str]: ...
'''

_JOINABLE = '''
CLASSES_BY_NAME: Mapping[str, type[AnyStream]]
"""The classes above."""
Joinable: TypeAlias = Stream | Table | GlobalTable
"""The other side of a join."""
'''


def stub() -> str:
    """Return the text of the file of types."""
    parts = [_HEAD, _BASE]
    for kind, name in CLASSES.items():
        if kind == "branches":
            continue
        parts.append(f'\nclass {name}(AnyStream):\n    """{_title(kind)}"""\n')
        if kind == "stream":
            parts.append(_ENDS)
        parts += [f"\n{_indented(_source(method))}" for method in methods(kind)]
    return "".join([*parts, _BRANCHES, _JOINABLE])


def _title(kind: str) -> str:
    label = next(upstream.label for upstream in get_args(Upstream) if upstream.kind == kind)
    return f"{label[0].upper()}{label[1:]}."


def _source(method: Method) -> str:
    first = [_declared(parameter) for parameter in method.parameters if parameter.is_positional]
    rest = [_declared(parameter) for parameter in method.parameters if not parameter.is_positional]
    rows = "".join(f"    {row},\n" for row in ("self", *first, "*", *rest))
    doc = _indented(_QUOTES + method.doc.replace("\\", "\\\\") + "\n" + _QUOTES)
    return f"def {method.name}(\n{rows}) -> {method.result}:\n{doc}\n"


_QUOTES = '"' * 3


def _declared(parameter: Parameter) -> str:
    if parameter.is_required:
        return f"{parameter.name}: {parameter.annotation}"
    optional = parameter.annotation if parameter.annotation == "OnError" else f"{parameter.annotation} | None"
    return f"{parameter.name}: {optional} = None"


def _indented(text: str) -> str:
    return textwrap.indent(text, "    ")


def main(arguments: list[str]) -> int:
    """Write the file of types, or with `--check` compare it; return the exit code."""
    if arguments not in ([], ["--check"]):
        print("usage: python -m streamkit.spec.step_methods [--check]", file=sys.stderr)
        return 2
    text = stub()
    if not arguments:
        FILE.write_text(text, encoding="utf-8")
    elif not FILE.is_file() or FILE.read_text(encoding="utf-8") != text:
        print(f"{FILE} is out of date: make generate", file=sys.stderr)
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
