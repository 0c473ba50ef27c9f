"""The classes for plugins: for steps, the pieces of their code, and rules.

A package registers what it adds by entry points: `streamkit.serdes`, `streamkit.steps` (a ComposedStep or
an Operator), `streamkit.functions` (a callable) and `streamkit.lint` (a Rule).
"""

from __future__ import annotations

from streamkit import code
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
from streamkit.operators.core.parsed_values import (
    Step,
)
from streamkit.spec.composed_steps import ComposedStep

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
