"""The interface of the code writer: processors write the code of their nodes with it (`Processor.emit`).

A processor joins pieces (`streamkit.code`) and passes them to the writer as statements; it never writes text, so that
an expression of the file means the same in every place. Blocks are context managers:

    found = gen.var("found")
    with gen.guard(node):
        gen.assign(found, gen.expr(self.value))
    with gen.when(is_not_none(found)):
        gen.forward(node, value=Slot(found))

`guard`, `drop_where` and `only_where` guard the rest of the same block: it runs only if nothing failed, if the
record is not dropped, if the condition holds.
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from typing import Protocol, TypeAlias, TypedDict, Unpack

from streamkit.code import TRUE, Code, is_none, is_not_none, symbol
from streamkit.errors import StreamkitError
from streamkit.expressions import Expression
from streamkit.graph.physical_topology import OnError, StepRef
from streamkit.metrics import DropReason
from streamkit.operators.core.frozen import frozen
from streamkit.serdes.serde import Serde
from streamkit.state.definitions import StoreDef


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
        """Return a new variable."""

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
        """Write `if test:` around the rest of this block."""

    def function(self, name: Code, *parameters: str) -> AbstractContextManager[None]:
        """Write `def name(parameters):` around the block; in `deferred_function` only."""


class CodeWriter(Statements, Protocol):
    """Writes the code of one sub-topology; `record` is the current record (compile.generator.Generator)."""

    record: RecordVariables
    stores: Mapping[str, StoreDef]
    """The definitions of all stores of the plan."""
    global_stores: Sequence[str]
    """The names of its global stores, which every processor may read."""

    # -- The current record --

    def expr(self, expression: Expression, **others: Code) -> Code:
        """Return the piece of an expression over the current record; `others` binds further names, such as aggregate."""

    def object_of(self, slot: Slot) -> Code:
        """Return the variable of a part's decoded value; writes its decoding here if it is not decoded yet."""

    def bytes_of(self, slot: Slot, serde: Serde) -> Code:
        """Return the variable of a part's bytes under a serde; writes its encoding here if necessary."""

    def encoded(self, serde: Serde, variable: Code, never_none: bool = False) -> Code:
        """Return the piece that encodes a variable, None staying None."""

    def headers(self) -> Code:
        """Return the piece of the headers of the current record (a list or None)."""

    def with_headers(self, headers: Code) -> Code:
        """Return the piece of a context like the current one, with other headers."""

    def empty_context(self) -> Code:
        """Return the context of code that has no record: no headers, no topic, partition and offset -1."""

    def with_record(self, record: RecordVariables) -> AbstractContextManager[None]:
        """Make another record the current one while the block is written."""

    def separate_budget(self) -> AbstractContextManager[None]:
        """Write the work for an earlier record, with a separate budget."""

    # -- Failing, dropping and forwarding --

    def guard(self, node: Node) -> AbstractContextManager[None]:
        """Write code whose failure is this node's; the rest of this block runs only if it succeeds."""

    def drop(self, reason: DropReason) -> None:
        """Write code that counts a dropped record."""

    def drop_where(self, test: Code, reason: DropReason = DropReason.NULL) -> None:
        """Write code that drops records for which a condition holds; the rest of this block is for the others."""

    def forward(self, node: Node, **changes: Unpack[Changes]) -> None:
        """Write the children of a node for the current record, with `changes` to its parts."""

    def forward_to(self, node: Node, child: str) -> None:
        """Write one child of a node for the current record."""

    def charge_record(self, node: Node, value: Code) -> None:
        """Write the charge to the budget for one of several records that a record becomes; nothing without budgets."""

    # -- Names in the code --

    def node(self, name: str) -> Node:
        """Return a node of the sub-topology by its name."""

    def index(self, node: Node) -> Code:
        """Return the index of a node in Program.nodes."""

    def name_of(self, thing: object, prefix: str) -> Code:
        """Return a name of an object for the code."""

    def kernel(self, module: str, name: str) -> Code:
        """Return the name of an object of operators.kernels."""

    def store(self, name: str) -> Code:
        """Return the variable of a store."""

    def reads_one_topic(self) -> bool:
        """Return whether all records of the sub-topology come from one topic."""

    def replays(self) -> Code:
        """Return the variable of the program's Replays, by which steps hold records back (operators.kernels.replays)."""

    def mixes_order(self, node: Node) -> bool:
        """Return whether holding records back at a node would change their order relative to records of other nodes."""

    def is_cached(self, store: str) -> bool:
        """Return whether a store has a cache in this application."""

    def prologue(self, key: tuple[Hashable, ...], prefix: str, value: Code) -> Code:
        """Return a variable that is set once per task, before the functions; `key` identifies it."""

    def instance(self, key: tuple[Hashable, ...], prefix: str, value: Code) -> Code:
        """Return a variable that is set once per task, after all functions are defined; `key` identifies it."""

    def epilogue(self, piece: Code) -> None:
        """Write a piece that is evaluated once per task, after all functions are defined; equal pieces are written once."""

    def on_lifecycle(self, event: str, node: Node, call: Code) -> None:
        """Write a node's call for "init" (after stores are restored) or "close"; equal calls are written once.

        The calls run in the order of the nodes (StreamTask.initializeTopology), which decides the order of timers that
        are due at the same time.
        """

    # -- Functions --

    def deferred_function(self, key: tuple[Hashable, ...], prefix: str, write: Callable[[Code], None]) -> Code:
        """Return the name of a function that `write` writes once, when the current one is complete."""

    def callable_of(self, expression: Expression, parameters: Mapping[str, str], *more: str) -> Code:
        """Return the name of a function of an expression; `parameters` maps the expression's names to the function's.

        The function takes the mapped parameters in order, then those of `more` (with t and c, names of the
        context are available).
        """

    def child_function(self, child: str, table: bool = False) -> Code:
        """Return the name of the function of a node, given the name of the node."""

    def forward_function(self, node: Node, table: bool) -> Code:
        """Return the name of a function that forwards a record to all children of a node.

        (k, v, t, c), for tables (k, v, old, t, c, latest).
        """

    def flush_listener(self, node: Node, key_serde: Serde, window: str | None = None) -> Code:
        """Return the name of a FlushListener that forwards the records that leave a store's cache (state.store_interface).

        `window`: "time" or "session" for the form with start and end; a session's time is its end.
        """


# The current record while code is written: the variables of its parts, decoded or as bytes.


@dataclass
class Slot:
    """One part of a record (key, value or old value).

    `var` is the variable of the decoded value, `raw` that of its bytes under `serde`; at least one is set.
    `source_bytes`: the variable of the bytes that `var` was decoded from, and their serde.
    `unchecked`: whether `raw` has the bytes of a source as they came, which may not be those that Java writes again.
    `never_none`: whether the part is known not to be None here. `var_used` and `raw_used` note in the first pass
    whether any node uses the decoded value, or the bytes. `shown`: what a failure reports if `var` is not set.
    """

    var: Code | None = None
    raw: Code | None = None
    serde: Serde | None = None
    never_none: bool = False
    source_bytes: tuple[Code, Serde] | None = None
    unchecked: bool = False
    var_used: list[bool] = field(default_factory=lambda: [False])
    raw_used: list[bool] = field(default_factory=lambda: [False])
    shown: Code | None = None

    def copy(self) -> Slot:
        """Return a copy with its own variables; the notes of the first pass are shared."""
        return replace(self)

    def is_none(self) -> Code:
        """Return the test that this part is absent; it needs no decoding."""
        return is_none(self._variable())

    def is_not_none(self) -> Code:
        """Return the test that this part is present; it needs no decoding."""
        return is_not_none(self._variable())

    def _variable(self) -> Code:
        found = self.raw or self.var
        assert found is not None
        return found


@dataclass
class RecordVariables:
    """The variables of a record: key, value, timestamp and context.

    For tables also the old value, and whether the value is the latest.
    """

    key: Slot
    value: Slot
    time: Code
    context: Code
    old: Slot | None = None
    latest: Code = TRUE

    def copy(self) -> RecordVariables:
        """Return a copy for one branch of the code, whose variables the other branches do not have."""
        old = self.old.copy() if self.old is not None else None
        return replace(self, key=self.key.copy(), value=self.value.copy(), old=old)

    @property
    def is_table(self) -> bool:
        """Whether this is a table's change."""
        return self.old is not None


def record_of_parameters(table: bool = False) -> RecordVariables:
    """Return the record of a function's parameters: (k, v, t, c), for tables (k, v, old, t, c, latest)."""
    record = RecordVariables(Slot(symbol("k")), Slot(symbol("v")), symbol("t"), symbol("c"))
    return replace(record, old=Slot(symbol("old")), latest=symbol("latest")) if table else record


# The nodes for which code is written.


@frozen
class Processor:
    """The work of one node, as immutable data; picklable. Subclasses add fields and write their code."""

    def emit(self, node: ProcessorNode, gen: CodeWriter) -> None:
        """Write the code of `node` for the current record."""
        raise StreamkitError(f"{node.name}: there is no code for {type(self).__name__}")

    def why_nothing(self) -> str:
        """Return the reason recorded in a trace when the node drops a record."""
        return "the step forwards nothing for it"


@dataclass(frozen=True)
class ProcessorNode:
    """A processor node of the frozen Plan, which does the work of `processor` and is given to it when it writes its code."""

    name: str
    processor: Processor
    parents: tuple[str, ...]
    children: tuple[str, ...]
    """In the order of writing, which is the order of forwarding."""
    stores: tuple[str, ...]
    origin: StepRef | None = None
    on_error: OnError | None = None
    """OnError of the step (its dead-letter topic by physical name), or None: the application's handler."""
    key_serde: Serde | None = None
    """The serde of the keys that the node forwards; None if merged streams disagree and nothing needs one."""
    value_serde: Serde | None = None


Node: TypeAlias = ProcessorNode
"""A node of the Plan, not of the graph that operators build."""
