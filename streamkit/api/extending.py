"""The classes for plugins: for steps, the pieces of their code, and rules; and steps that stand for other steps.

A package registers what it adds by entry points: `streamkit.serdes`, `streamkit.steps` (a ComposedStep or
an Operator), `streamkit.functions` (a callable) and `streamkit.lint` (a Rule).
"""

from __future__ import annotations

import traceback
from abc import abstractmethod
from collections.abc import Collection, Mapping
from typing import Generic, TypeVar, cast

from streamkit import code
from streamkit.errors import Position, Problem
from streamkit.graph.physical_topology import ProcessorGraphNode
from streamkit.lint import Rule, Subject
from streamkit.operators.codegen.code_writer import CodeWriter, Node, Processor, Slot
from streamkit.operators.core.fields import (
    KEY_SERDE,
    NAME,
    VALUE_SERDE,
    Choice,
    Duration,
    Expr,
    Field,
    FieldValue,
    Flag,
    Fraction,
    Integer,
    PipelineRef,
    SerdeField,
    StoreField,
    Text,
)
from streamkit.operators.core.frozen import frozen
from streamkit.operators.core.operator import BuildError, Context, Example, Operator, Stream
from streamkit.operators.core.parsed_values import Step
from streamkit.spec.call_places import is_own
from streamkit.spec.recorded_calls import Call, RecordedStream, Recorder, StepWriter
from streamkit.spec.step_methods import CLASSES
from streamkit.spec.steps import SubstitutedStep
from streamkit.spec.streams import CLASSES_BY_NAME
from streamkit.spec.yaml_nodes import Node as YamlNode
from streamkit.spec.yaml_nodes import Source

__all__ = [
    "KEY_SERDE",
    "NAME",
    "VALUE_SERDE",
    "BuildError",
    "Choice",
    "CodeWriter",
    "ComposedStep",
    "Context",
    "Duration",
    "Example",
    "Expr",
    "Field",
    "FieldValue",
    "Flag",
    "Fraction",
    "Integer",
    "Node",
    "Operator",
    "PipelineRef",
    "Processor",
    "ProcessorGraphNode",
    "Rule",
    "SerdeField",
    "Slot",
    "Step",
    "StoreField",
    "Stream",
    "Subject",
    "Text",
    "code",
    "frozen",
]

StreamT = TypeVar("StreamT", bound=RecordedStream)


class ComposedStep(SubstitutedStep, Generic[StreamT]):
    """A step that is read as if the steps that `build` calls were written in its place. StreamT: what it takes, such as Stream.

    >>> import streamkit
    >>> from streamkit.api.extending import Expr, Field
    >>> class CountBy(ComposedStep[streamkit.Stream]):
    ...     name = "count_by"
    ...     main = "by"
    ...     fields = (Field("by", Expr(), "What is counted.", required=True),)
    ...     def build(self, stream, options):
    ...         return stream.group_by(options["by"], key_serde="string").count().to_stream()
    """

    @abstractmethod
    def build(self, stream: StreamT, options: Mapping[str, object]) -> object:
        """Call the steps, each on the result of the one before it, and return the last result.

        stream: of the first kind in `accepts`. options: every field by name; numbers, texts, durations (in ms), words and flags as
        values, anything else as a text to pass on to a step, or into the text of an expression, where it is one operand. None
        without a value. The annotation of the result tells the builder in Python which methods follow.
        """

    def steps(
        self, options: Mapping[str, object], parameters: Collection[str], problems: list[Problem]
    ) -> YamlNode | None:
        """Return the steps that `build` calls."""
        recorder = Recorder()
        stream = CLASSES_BY_NAME[CLASSES[self.accepts[0]]](recorder, None)
        try:
            result = self.build(cast(StreamT, stream), options)
        except Exception as error:  # code of a plugin, which may raise any error
            problems.append(Problem(_raised_at(error), f"{type(error).__name__}: {error}"))
            return None
        calls = recorder.calls
        place = calls[-1].place.start if calls else None
        source, start = (place.source, place.start) if place is not None else (Source("", type(self).__module__), 0)
        if not _is_line(calls, result):
            form = "each on the result of the one before it, and returns the last result"
            problems.append(Problem(source.at(start), f"'build' of {self.name!r} calls at least one step, {form}"))
            return None
        writer = StepWriter(lambda _: None, problems, parameters)
        return YamlNode("list", [writer.step(call) for call in calls], start, start, source)


def _is_line(calls: list[Call], result: object) -> bool:
    """Return whether calls make one line of steps, without ends, whose last one has the result."""
    before: Call | None = None
    for call in calls:
        if call.parent is None or call.is_end or call.parent._call is not before or call.parent._branch is not None:
            return False
        before = call
    return before is not None and isinstance(result, RecordedStream) and result._call is before


def _raised_at(error: BaseException) -> Position:
    """Return the innermost place in a plugin's code."""
    frames = [
        frame for frame, _ in traceback.walk_tb(error.__traceback__) if not is_own(frame.f_globals.get("__name__", ""))
    ]
    summary = traceback.extract_tb(error.__traceback__)
    files = {frame.f_code.co_filename for frame in frames}
    innermost = next((line for line in reversed(summary) if line.filename in files), summary[-1])
    return Position(innermost.filename, innermost.lineno or 1, (innermost.colno or 0) + 1)
