"""The interface of the code writer, with which processors write the code of their nodes (`Processor.emit`).

A processor combines pieces (`streamkit.code`) and passes them to the writer as statements. It never writes text, so an
expression of the file means the same wherever it is used. Blocks are context managers:

    found = gen.var("found")
    with gen.guard(node):
        gen.assign(found, gen.expr(self.value))
    with gen.when(is_not_none(found)):
        gen.forward(node, value=Slot(found))

`guard`, `drop_where` and `only_where` guard the rest of the same block. It runs only if nothing has failed, the record is
not dropped, or the condition holds.
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
    """Python statements that are made of pieces."""

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
        """Write `else:`, or `elif test:`, around the block, which follows a block of `when`."""

    def each(self, targets: tuple[Code, ...], items: Code) -> AbstractContextManager[None]:
        """Write `for targets in items:` around the block."""

    def only_where(self, test: Code) -> None:
        """Write `if test:` around the rest of this block."""

    def function(self, name: Code, *parameters: str) -> AbstractContextManager[None]:
        """Write `def name(parameters):` around the block; only within `deferred_function`."""


class CodeWriter(Statements, Protocol):
    """Writes the code of one sub-topology (compile.generator.Generator). `record`: the current record."""

    record: RecordVariables
    stores: Mapping[str, StoreDef]
    """The definitions of all stores of the plan."""
    global_stores: Sequence[str]
    """The names of the plan's global stores, which every processor may read."""

    # -- The current record --

    def expr(self, expression: Expression, **others: Code) -> Code:
        """Return the piece of an expression over the current record; `others` binds other names, such as aggregate."""

    def object_of(self, slot: Slot) -> Code:
        """Return the variable of a part's decoded value. If the part is not decoded yet, write its decoding here."""

    def bytes_of(self, slot: Slot, serde: Serde) -> Code:
        """Return the variable of a part's bytes under a serde. If necessary, write its encoding here."""

    def encoded(self, serde: Serde, variable: Code, never_none: bool = False) -> Code:
        """Return the piece that encodes a variable; None stays None."""

    def headers(self) -> Code:
        """Return the piece of the headers of the current record (a list or None)."""

    def with_headers(self, headers: Code) -> Code:
        """Return the piece of a copy of the current context with other headers."""

    def empty_context(self) -> Code:
        """Return the context of code without a record: no headers, no topic, partition and offset -1."""

    def with_record(self, record: RecordVariables) -> AbstractContextManager[None]:
        """Make another record the current one while the block is written."""

    def separate_budget(self) -> AbstractContextManager[None]:
        """Write the code for an earlier record, with a separate budget."""

    # -- Failing, dropping and forwarding --

    def guard(self, node: Node) -> AbstractContextManager[None]:
        """Write code whose failure is attributed to this node. The rest of this block runs only if the code succeeds."""

    def drop(self, reason: DropReason) -> None:
        """Write code that counts a dropped record."""

    def drop_where(self, test: Code, reason: DropReason = DropReason.NULL) -> None:
        """Write code that drops records for which a condition holds. The rest of this block runs for all other records."""

    def forward(self, node: Node, **changes: Unpack[Changes]) -> None:
        """Write the code of a node's children for the current record, with `changes` to its parts."""

    def forward_to(self, node: Node, child: str) -> None:
        """Write the code of one child of a node for the current record."""

    def charge_record(self, node: Node, value: Code) -> None:
        """Write code that charges the budget for one of the records that a record becomes; without budgets, write nothing."""

    # -- Names in the code --

    def node(self, name: str) -> Node:
        """Return a node of the sub-topology by its name."""

    def index(self, node: Node) -> Code:
        """Return the index of a node in Program.nodes."""

    def name_of(self, target: object, prefix: str) -> Code:
        """Return the name of an object in the code."""

    def kernel(self, module: str, name: str) -> Code:
        """Return the name of an object of operators.kernels."""

    def store(self, name: str) -> Code:
        """Return the variable of a store."""

    def reads_one_topic(self) -> bool:
        """Return whether all records of the sub-topology come from one topic."""

    def replays(self) -> Code:
        """Return the variable of the program's Replays, with which steps hold records back (operators.kernels.replays)."""

    def mixes_order(self, node: Node) -> bool:
        """Return whether holding records back at a node would change their order relative to other nodes' records."""

    def is_cached(self, store: str) -> bool:
        """Return whether a store has a cache in this application."""

    def prologue(self, key: tuple[Hashable, ...], prefix: str, value: Code) -> Code:
        """Return a variable that is set once per task, before the functions are defined; `key` identifies it."""

    def instance(self, key: tuple[Hashable, ...], prefix: str, value: Code) -> Code:
        """Return a variable that is set once per task, after all functions are defined; `key` identifies it."""

    def epilogue(self, piece: Code) -> None:
        """Write a piece that is evaluated once per task, after all functions are defined; equal pieces are written once."""

    def on_lifecycle(self, event: str, node: Node, call: Code) -> None:
        """Write a node's call for "init" (after stores are restored) or "close"; equal calls are written once.

        The calls run in the order of the nodes (StreamTask.initializeTopology). This determines the order of timers that
        are due at the same time.
        """

    # -- Functions --

    def deferred_function(self, key: tuple[Hashable, ...], prefix: str, write: Callable[[Code], None]) -> Code:
        """Return the name of a function, which `write` writes once after the current function is complete."""

    def callable_of(self, expression: Expression, parameters: Mapping[str, str], *more: str) -> Code:
        """Return the name of an expression's function. `parameters` maps the expression's names to the function's parameters.

        The function takes the mapped parameters in order, then the parameters in `more`; with t and c, the names of the
        context are available.
        """

    def child_function(self, child: str, table: bool = False) -> Code:
        """Return the name of a node's function, given the name of the node."""

    def forward_function(self, node: Node, table: bool) -> Code:
        """Return the name of a function that forwards a record to all children of a node.

        Its parameters are (k, v, t, c), or for tables (k, v, old, t, c, latest).
        """

    def flush_listener(self, node: Node, key_serde: Serde, window: str | None = None) -> Code:
        """Return the name of a FlushListener that forwards the records that leave a store's cache (state.store_interface).

        `window`: "time" or "session" for a listener that takes start and end; a session's time is its end.
        """


# The current record during code generation: the variables of its parts, decoded or as bytes.


@dataclass
class Slot:
    """One part of a record (key, value or old value).

    `var`: the variable of the decoded value; `raw`: the variable of its bytes under `serde`; at least one of them is set.
    `source_bytes`: the variable of the bytes from which `var` was decoded, and their serde.
    `unchecked`: whether `raw` has the original bytes of a source, which Java may write differently.
    `never_none`: whether the part can't be None here. `var_used` and `raw_used`: whether, in the first pass, any node uses
    the decoded value, or the bytes. `shown`: the value that a failure reports if `var` is not set.
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
        """Return a copy with its own variables, which shares the results of the first pass."""
        return replace(self)

    def is_none(self) -> Code:
        """Return the test whether this part is absent, which needs no decoding."""
        return is_none(self._variable())

    def is_not_none(self) -> Code:
        """Return the test whether this part is present, which needs no decoding."""
        return is_not_none(self._variable())

    def _variable(self) -> Code:
        variable = self.raw or self.var
        assert variable is not None
        return variable


@dataclass
class RecordVariables:
    """The variables of a record: key, value, timestamp and context.

    A table's change also has the old value, and whether the value is the latest.
    """

    key: Slot
    value: Slot
    time: Code
    context: Code
    old: Slot | None = None
    latest: Code = TRUE

    def copy(self) -> RecordVariables:
        """Return a copy for one branch of the code, so that its variables are not visible in other branches."""
        old = self.old.copy() if self.old is not None else None
        return replace(self, key=self.key.copy(), value=self.value.copy(), old=old)

    @property
    def is_table(self) -> bool:
        """Whether the record is a table's change."""
        return self.old is not None


def record_of_parameters(table: bool = False) -> RecordVariables:
    """Return the record of a function's parameters: (k, v, t, c), or for tables (k, v, old, t, c, latest)."""
    record = RecordVariables(Slot(symbol("k")), Slot(symbol("v")), symbol("t"), symbol("c"))
    return replace(record, old=Slot(symbol("old")), latest=symbol("latest")) if table else record


# The nodes for which code is written.


@frozen
class Processor:
    """The work of one node, as immutable, picklable data. Subclasses add fields and write their code."""

    def emit(self, node: ProcessorNode, gen: CodeWriter) -> None:
        """Write the code of `node` for the current record."""
        raise StreamkitError(f"{node.name}: there is no code for {type(self).__name__}")

    def why_nothing(self) -> str:
        """Return the reason recorded in a trace when the node drops a record."""
        return "the step forwards nothing for it"


@dataclass(frozen=True)
class ProcessorNode:
    """A processor node of the frozen Plan. `processor` does its work, and takes the node when it writes its code."""

    name: str
    processor: Processor
    parents: tuple[str, ...]
    children: tuple[str, ...]
    """The children, in the order of forwarding."""
    stores: tuple[str, ...]
    origin: StepRef | None = None
    on_error: OnError | None = None
    """The step's OnError, with the physical name of its dead-letter topic; None: the application's handler."""
    key_serde: Serde | None = None
    """The serde of the keys that the node forwards; None if merged streams disagree and no node needs a serde."""
    value_serde: Serde | None = None


Node: TypeAlias = ProcessorNode
"""A node of the Plan, not of the graph that operators build."""
