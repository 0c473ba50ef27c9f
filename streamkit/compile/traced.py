"""Writes the traced variant of a program: each node is a function of its own, and reports what reaches and what leaves it.

`try --trace` and `explain` run it; applications run what `Generator` writes.
"""

from __future__ import annotations

import dataclasses
from collections.abc import Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING, Protocol, Unpack

from streamkit.code import NONE, Code, call
from streamkit.compile.generator import Generator
from streamkit.plan.model import SourceNode

if TYPE_CHECKING:
    from streamkit.operators.codegen.code_writer import Changes
    from streamkit.operators.codegen.record_variables import RecordVariables
    from streamkit.operators.core.processor_node import ProcessorNode
    from streamkit.plan.model import Plan, SinkNode, SubTopology
    from streamkit.record import Key, Value


class Trace(Protocol):
    """Receives what reaches and what leaves the nodes of a program; `node` is an index into Program.nodes."""

    def enter(self, node: int, key: Key, value: Value, old: Value, time: int) -> None:
        """Begin the visit of a node by a record; `old`: the old value of a table's row."""

    def leave(self) -> None:
        """End the visit that began last."""

    def forward(self, node: int, key: Key, value: Value, old: Value, time: int) -> None:
        """Begin the forwarding of a record by a node, which may be outside of a visit: from a cache or a timer."""

    def forwarded(self) -> None:
        """End the forwarding that began last."""


class TracedGenerator(Generator):
    """A Generator whose code reports each visit of a node to a `Trace`."""

    def __init__(self, plan: Plan, sub_topology: SubTopology, trace: Trace):
        super().__init__(plan, sub_topology)
        self.namespace["trace"] = trace

    def write_child(self, name: str, record: RecordVariables) -> None:
        """Write a call of the child's function."""
        with self.with_record(record):
            self.call(self.node_function(self.child(name), record.is_table), record)

    def write_body(self, node: ProcessorNode | SinkNode, record: RecordVariables) -> None:
        """Write the body of a node's function between the reports of its visit."""
        with self._reported(("trace.enter", "trace.leave"), node, record):
            super().write_body(node, record)

    def forward(self, node: SourceNode | ProcessorNode, **changes: Unpack[Changes]) -> None:
        """Write the children of a node between the reports of what it forwards; a source is visited here."""
        record = dataclasses.replace(self.record, **changes)
        reports = (
            ("trace.enter", "trace.leave") if isinstance(node, SourceNode) else ("trace.forward", "trace.forwarded")
        )
        with self._reported(reports, node, record):
            super().forward(node, **changes)

    def forward_to(self, node: SourceNode | ProcessorNode, child: str) -> None:
        """Write one child of a node between the reports of what the node forwards."""
        with self._reported(("trace.forward", "trace.forwarded"), node, self.record):
            super().forward_to(node, child)

    @contextmanager
    def _reported(
        self, reports: tuple[str, str], node: SourceNode | ProcessorNode | SinkNode, record: RecordVariables
    ) -> Iterator[None]:
        begin, end = reports
        key, value = self.object_of(record.key), self.object_of(record.value)
        old: Code = NONE if record.old is None else self.object_of(record.old)
        self.do(call(begin, self.index(node), key, value, old, record.time))
        with self.block("try:"):
            yield
        with self.block("finally:"):
            self.do(call(end))
