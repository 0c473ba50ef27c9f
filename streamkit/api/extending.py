"""What a plugin is made of: the classes for steps, the pieces of their code, and rules.

A package names what it adds by entry points: `streamkit.serdes`, `streamkit.steps` (an Operator) and `streamkit.lint` (a Rule).
"""

from __future__ import annotations

from streamkit import code
from streamkit.graph.node import ProcessorNode
from streamkit.lint.base import Rule, Subject
from streamkit.operators.base import BuildError, Example, Operator, Processor
from streamkit.operators.context import Context
from streamkit.operators.fields import KEY_SERDE, NAME, VALUE_SERDE, Choice, Duration, Expr, Field, Integer, Step, Text
from streamkit.operators.frozen import frozen
from streamkit.operators.hand import Slot
from streamkit.operators.upstream import Stream
from streamkit.operators.writer import CodeWriter, Node

__all__ = [
    "KEY_SERDE",
    "NAME",
    "VALUE_SERDE",
    "BuildError",
    "Choice",
    "CodeWriter",
    "Context",
    "Duration",
    "Example",
    "Expr",
    "Field",
    "Integer",
    "Node",
    "Operator",
    "Processor",
    "ProcessorNode",
    "Rule",
    "Slot",
    "Step",
    "Stream",
    "Subject",
    "Text",
    "code",
    "frozen",
]
