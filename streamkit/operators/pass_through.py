"""Nodes that only hand records on: merges, branches' children, the joint end of joins and cogroups."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamkit.operators.base import Processor
from streamkit.operators.frozen import frozen

if TYPE_CHECKING:
    from streamkit.operators.writer import CodeWriter, Node


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
