"""Nodes that only hand records on: merges, branches' children, the joint end of joins and cogroups."""

from __future__ import annotations

from typing import Any

from streamkit.operators.base import Processor
from streamkit.operators.frozen import frozen


@frozen
class PassThrough(Processor):
    """Forwards every record as it is (PassThrough)."""

    def emit(self, node: Any, gen: Any) -> None:
        gen.forward(node)


@frozen
class TablePassThrough(Processor):
    """Forwards every change as it is (KTablePassThrough)."""

    def emit(self, node: Any, gen: Any) -> None:
        gen.forward(node)
