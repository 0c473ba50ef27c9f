"""What the code writer offers to processors, which write the code of their nodes with it (`Processor.emit`).

A processor joins pieces (`streamkit.code`) and hands them over as statements; it never writes text, so that an expression
of the file means the same wherever it stands. Blocks are context managers:

    found = gen.var("found")
    with gen.guard(node):
        gen.assign(found, gen.expr(self.value))
    with gen.when(is_not_none(found)):
        gen.forward(node, value=Slot(found))

`guard`, `drop_where` and `only_where` decide about what follows in the same block: it runs only where nothing failed, where
the record is not dropped, where the condition holds.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import AbstractContextManager
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, TypedDict, Unpack

from streamkit.code import Code
from streamkit.operators.hand import Hand, Slot
from streamkit.serdes.base import Serde

if TYPE_CHECKING:
    from streamkit.expressions import Expression
    from streamkit.plan.model import Plan, ProcessorNode

Node: TypeAlias = "ProcessorNode"
"""A node of the Plan; the graph's nodes, which operators build, are other ones."""


class Changes(TypedDict, total=False):
    """The parts of a record that a node replaces before it forwards it."""

    key: Slot
    value: Slot
    old: Slot | None
    time: Code
    context: Code
    latest: Code


class Statements(Protocol):
    """Statements of Python made of pieces."""

    def var(self, prefix: str) -> Code:
        """Return a variable that stands nowhere else."""

    def assign(self, target: Code, value: Code) -> None:
        """Write `target = value`."""

    def assign_each(self, targets: tuple[Code, ...], values: tuple[Code, ...]) -> None:
        """Write `a, b = x, y`."""

    def assign_all(self, targets: tuple[Code, ...], value: Code) -> None:
        """Write `a = b = value`."""

    def unpack(self, targets: tuple[Code, ...], value: Code) -> None:
        """Write `a, b = value`."""

    def add_to(self, target: Code, value: Code) -> None:
        """Write `target += value`."""

    def do(self, piece: Code) -> None:
        """Write a piece that is evaluated for its effect."""

    def returns(self, piece: Code) -> None:
        """Write `return piece`."""

    def when(self, test: Code) -> AbstractContextManager[None]:
        """Write `if test:` around the block."""

    def otherwise(self, test: Code | None = None) -> AbstractContextManager[None]:
        """Write `else:` around the block, or `elif test:`; it follows a block of `when`."""

    def each(self, targets: tuple[Code, ...], items: Code) -> AbstractContextManager[None]:
        """Write `for targets in items:` around the block."""

    def only_where(self, test: Code) -> None:
        """Write `if test:` around what follows in this block."""

    def function(self, name: Code, *parameters: str) -> AbstractContextManager[None]:
        """Write `def name(parameters):` around the block; in `later` only."""


class CodeWriter(Statements, Protocol):
    """Writes the code of one sub-topology; `hand` is the current record (compile.generator.Generator)."""

    hand: Hand
    plan: Plan

    # -- The current record --

    def expr(self, expression: Expression, **others: Code) -> Code:
        """Return the piece of an expression over the current record; `others` binds further names, such as aggregate."""

    def obj(self, slot: Slot) -> Code:
        """Return the variable of a part's decoded value; writes its decoding here if that was not done."""

    def raw(self, slot: Slot, serde: Serde) -> Code:
        """Return the variable of a part's bytes under a serde; writes its encoding here if need be."""

    def encoded(self, serde: Serde, variable: Code, never_none: bool = False) -> Code:
        """Return the piece that encodes a variable, None staying None."""

    def headers(self) -> Code:
        """Return the piece of the headers of the current record (a list or None)."""

    def with_headers(self, headers: Code) -> Code:
        """Return the piece of a context like the current one, with other headers."""

    def nowhere(self) -> Code:
        """Return the context of what has no record of its own: no headers, no topic, partition and offset -1."""

    def holding(self, hand: Hand) -> AbstractContextManager[None]:
        """Make another record the current one while the block is written."""

    # -- Failing, dropping and forwarding --

    def guard(self, node: Node) -> AbstractContextManager[None]:
        """Write lines whose failure is this node's; what follows in this block runs only where they succeeded."""

    def drop(self) -> None:
        """Write the counting of a dropped record."""

    def drop_where(self, test: Code) -> None:
        """Write the dropping of records for which a condition holds; what follows in this block is the other case."""

    def forward(self, node: Node, **changes: Unpack[Changes]) -> None:
        """Write the children of a node for the current record, with what `changes` replaces."""

    def forward_to(self, node: Node, child: str) -> None:
        """Write one child of a node for the current record."""

    def each_row(self, node: Node, value: Code) -> None:
        """Write the charge for one of several records that a record becomes; nothing where the program counts nothing."""

    # -- What the lines refer to --

    def node(self, name: str) -> Node:
        """Return a node of the sub-topology by its name."""

    def index(self, node: Node) -> Code:
        """Return the index of a node in Program.nodes."""

    def name_of(self, thing: Any, prefix: str) -> Code:
        """Return a name under which the lines can refer to an object."""

    def kernel(self, module: str, name: str) -> Code:
        """Return the name of an object of operators.kernels."""

    def store(self, name: str) -> Code:
        """Return the variable of a store."""

    def reads_one_topic(self) -> bool:
        """Return whether all records of the sub-topology come from one topic."""

    def is_cached(self, store: str) -> bool:
        """Return whether a store has a cache in this application."""

    def prologue(self, key: tuple[Any, ...], prefix: str, value: Code) -> Code:
        """Return a variable that is set once a task, before the functions; `key` tells it from others."""

    def instance(self, key: tuple[Any, ...], prefix: str, value: Code) -> Code:
        """Return a variable that is set once a task, after all functions are defined; `key` tells it from others."""

    def epilogue(self, piece: Code) -> None:
        """Write a piece that is evaluated once a task, after all functions are defined (each one once)."""

    def on(self, moment: str, node: Node, call: Code) -> None:
        """Write a node's call for "init" (stores restored) or "close" (each call once).

        They are made in the order in which the nodes were written (StreamTask.initializeTopology), which decides the
        order of timers that are due together.
        """

    # -- Functions --

    def later(self, key: tuple[Any, ...], prefix: str, write: Callable[[Code], None]) -> Code:
        """Return the name of a function that `write` writes once, when the present one is complete."""

    def callable_of(self, expression: Expression, parameters: Mapping[str, str], *more: str) -> Code:
        """Return the name of a function of an expression; `parameters` maps the expression's names to the function's.

        The function takes the mapped parameters in order, then those of `more` (t, c: names read from a context are
        then known).
        """

    def child_function(self, child: str, table: bool = False) -> Code:
        """Return the name of the function that does the work of a node by its name."""

    def forward_function(self, node: Node, table: bool) -> Code:
        """Return the name of a function that hands a record to all children of a node.

        (k, v, t, c), for tables (k, v, old, t, c, latest).
        """

    def flush_listener(self, node: Node, key_serde: Serde, window: str | None = None) -> Code:
        """Return the name of a listener that forwards what leaves a store's cache (state.base.FlushListener).

        `window`: "time" or "session" for the form with start and end; a session's time is its end.
        """
