"""Nodes that only forward records: merges, branches' children, the common end of joins and cogroups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamkit.operators.core.frozen import frozen
from streamkit.operators.core.operator import Processor

if TYPE_CHECKING:
    from streamkit.operators.codegen.code_writer import CodeWriter, Node


@frozen
class PassThrough(Processor):
    """Forwards every record as it is (PassThrough)."""

    def emit(self, node: Node, gen: CodeWriter) -> None:
        gen.forward(node)


@frozen
class TablePassThrough(Processor):
    """Forwards every change as it is (KTablePassThrough)."""

    def emit(self, node: Node, gen: CodeWriter) -> None:
        gen.forward(node)
