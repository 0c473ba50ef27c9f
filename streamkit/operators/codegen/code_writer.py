"""The code writer, with which processors write the code of their nodes (`Processor.emit`).

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

from abc import ABC, abstractmethod
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from importlib import import_module
from typing import TypeAlias, TypedDict, Unpack

from streamkit.code import (
    ATOM,
    CONDITION,
    NONE,
    TRUE,
    Code,
    all_of,
    any_of,
    attribute,
    call,
    either,
    is_none,
    is_not_none,
    item,
    literal,
    method,
    names_of,
    sliced,
    starred,
    symbol,
    tuple_of,
    unless_none,
)
from streamkit.config import Config
from streamkit.errors import StreamkitError
from streamkit.expressions import Expression
from streamkit.expressions.budget import Budget
from streamkit.expressions.translate import BUDGET
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


# Statements of Python with indentation, unique names, and the objects that they refer to.

INDENT = "    "


class Attempt:
    """A `try` block; `empty` is set when it is written."""

    empty = False


class StatementWriter:
    """Collects lines; `namespace` holds the objects that they refer to by name. Statements consist of pieces (streamkit.code)."""

    def __init__(self) -> None:
        self.body_lines: list[str] = []
        self.namespace: dict[str, object] = {}
        self.prologue_lines: list[str] = []
        self.epilogue_lines: list[str] = []
        self._depth = 1
        self._lifecycle: dict[str, dict[str, int]] = {"init": {}, "close": {}}
        self._prologue: dict[tuple[object, ...], Code] = {}
        self.instances: dict[str, Code] = {}
        """The variables of `instance`, by their keys as text."""
        self._names: dict[int, Code] = {}
        self._kept: list[object] = []
        self._count = 0

    # -- Statements --

    def line(self, text: str) -> None:
        """Write a line that needs no piece, at the current depth."""
        self.body_lines.append(INDENT * self._depth + text)

    def assign(self, target: Code, value: Code) -> None:
        """Write `target = value`."""
        self.line(_assigned((target,), (value,)))

    def assign_each(self, targets: tuple[Code, ...], values: tuple[Code, ...]) -> None:
        """Write `a, b = x, y`."""
        self.line(_assigned(targets, values))

    def assign_all(self, targets: tuple[Code, ...], value: Code) -> None:
        """Write `a = b = value`."""
        self.line(" = ".join([*(names_of((target,)) for target in targets), value.at(CONDITION)]))

    def unpack(self, targets: tuple[Code, ...], value: Code) -> None:
        """Write `a, b = value`."""
        self.line(_assigned(targets, (value,)))

    def add_to(self, target: Code, value: Code) -> None:
        """Write `target += value`."""
        self.line(f"{names_of((target,))} += {value.at(CONDITION)}")

    def do(self, piece: Code) -> None:
        """Write a piece that is evaluated for its effect."""
        self.line(piece.at(CONDITION))

    def returns(self, piece: Code) -> None:
        """Write `return piece`."""
        self.line(f"return {piece.at(CONDITION)}")

    # -- Blocks --

    @contextmanager
    def block(self, opening: str) -> Iterator[None]:
        """Write a line that opens a block, and the block; an empty one gets `pass`."""
        self.line(opening)
        depth = self._depth
        self._depth += 1
        yield
        self.fill_empty()
        self._depth = depth

    @contextmanager
    def scope(self) -> Iterator[None]:
        """End the blocks that the lines open for the rest of their block (`only_where` and others) with these lines."""
        depth = self._depth
        yield
        self.fill_empty()
        self._depth = depth

    @contextmanager
    def attempt(self) -> Iterator[Attempt]:
        """Write `try:` around the block, which `rescue` follows, but nothing if the block stays empty."""
        self.line("try:")
        start, depth, attempt = len(self.body_lines), self._depth, Attempt()
        self._depth += 1
        yield attempt
        self._depth = depth
        if len(self.body_lines) == start:
            attempt.empty = True
            del self.body_lines[-1]

    def rescue(self) -> AbstractContextManager[None]:
        """Write `except Exception as e:` around the block."""
        return self.block("except Exception as e:")

    def when(self, test: Code) -> AbstractContextManager[None]:
        """Write `if test:` around the block."""
        return self.block(f"if {test.at(CONDITION)}:")

    def otherwise(self, test: Code | None = None) -> AbstractContextManager[None]:
        """Write `else:` around the block, or `elif test:`."""
        return self.block("else:" if test is None else f"elif {test.at(CONDITION)}:")

    def each(self, targets: tuple[Code, ...], items: Code) -> AbstractContextManager[None]:
        """Write `for targets in items:` around the block."""
        return self.block(f"for {names_of(targets)} in {items.at(CONDITION)}:")

    def function(self, name: Code, *parameters: str) -> AbstractContextManager[None]:
        """Write `def name(parameters):` around the block."""
        return self.block(f"def {name.at(ATOM)}({', '.join(parameters)}):")

    def only_where(self, test: Code) -> None:
        """Write `if test:` around the rest of this block."""
        self.rest(f"if {test.at(CONDITION)}:")

    def rest(self, opening: str) -> None:
        """Write a line that opens a block for the rest of the current block."""
        self.line(opening)
        self._depth += 1

    def fill_empty(self) -> None:
        """Write `pass` if the last line opens a block without statements."""
        last = next((line for line in reversed(self.body_lines) if not line.lstrip().startswith("#")), "")
        if last.endswith(":"):
            opened = (len(last) - len(last.lstrip())) // len(INDENT)
            self.body_lines.append(INDENT * (opened + 1) + "pass")

    @contextmanager
    def rehearsed(self) -> Iterator[None]:
        """Write lines that are discarded; changes of slots and names stay."""
        start, depth = len(self.body_lines), self._depth
        yield
        del self.body_lines[start:]
        self._depth = depth

    # -- Names --

    def var(self, prefix: str) -> Code:
        """Return a variable that no other line has."""
        self._count += 1
        return symbol(f"{prefix}_{self._count}")

    def name_of(self, target: object, prefix: str) -> Code:
        """Return a name under which the lines can refer to an object."""
        marker = getattr(target, "__self__", None)
        identity = hash((id(marker), getattr(target, "__name__", ""))) if marker is not None else id(target)
        if identity not in self._names:
            self._kept.append(target)
            self._names[identity] = name = symbol(f"_{prefix}_{len(self._names)}")
            self.namespace[name.source] = target
        return self._names[identity]

    def prologue(self, key: tuple[object, ...], prefix: str, value: Code) -> Code:
        """Return a variable that is set once per task, before the functions, to the result of `value`."""
        if key not in self._prologue:
            self._prologue[key] = self.var(prefix)
            self.prologue_lines.append(_assigned((self._prologue[key],), (value,)))
        return self._prologue[key]

    def named_prologue(self, name: str, value: Code) -> Code:
        """Return a variable of a given name that is set once per task, before the functions, to the result of `value`."""
        key = ("named", name)
        if key not in self._prologue:
            self._prologue[key] = symbol(name)
            self.prologue_lines.append(_assigned((self._prologue[key],), (value,)))
        return self._prologue[key]

    def instance(self, key: tuple[object, ...], prefix: str, value: Code) -> Code:
        """Return a variable that is set once per task, after all functions are defined, to the result of `value`."""
        if key not in self._prologue:
            self._prologue[key] = self.var(prefix)
            # A number in the key may be the identity of an object, which differs between processes.
            if not any(isinstance(part, int) for part in key):
                self.instances[" ".join(map(str, key))] = self._prologue[key]
            self._epilogue(_assigned((self._prologue[key],), (value,)))
        return self._prologue[key]

    def epilogue(self, piece: Code) -> None:
        """Write a piece that is evaluated once per task, after all functions are defined (each one once)."""
        self._epilogue(piece.at(CONDITION))

    def _epilogue(self, line: str) -> None:
        if line not in self.epilogue_lines:
            self.epilogue_lines.append(line)

    def lifecycle(self, moment: str) -> str:
        """Return the source of a function that makes the calls of a moment ("init" or "close"), in the order of their nodes."""
        calls = self._lifecycle[moment]
        return f"lambda: [{', '.join(sorted(calls, key=calls.__getitem__))}] and None"


def _assigned(targets: tuple[Code, ...], values: tuple[Code, ...]) -> str:
    return f"{names_of(targets)} = {', '.join(value.at(CONDITION) for value in values)}"


RT = symbol("rt")
_CONTEXT = ("headers", "topic", "partition", "offset")


class CodeWriter(StatementWriter, ABC):
    """Writes the code of one sub-topology (compile.generator.Generator). `record`: the current record."""

    def __init__(
        self,
        stores: Mapping[str, StoreDef],
        global_stores: Sequence[str],
        config: Config,
        counts: bool,
        full_context: bool,
    ):
        super().__init__()
        self.stores = stores
        """The definitions of all stores of the plan."""
        self.global_stores = global_stores
        """The names of the plan's global stores, which every processor may read."""
        self.counts = counts
        """Whether the program counts the results of its expressions."""
        self.full_context = full_context
        """Whether the context of a record has its topic, partition and offset."""
        self._config = config
        self.record = record_of_parameters()

    # -- Expressions and their budget --

    def expr(self, expression: Expression, **others: Code) -> Code:
        """Return the piece of an expression over the current record; `others` binds further names, such as aggregate."""
        if self.counts:
            expression = expression.counted or expression
            self.budget()
        bindings = dict(others)
        for name in expression.names:
            if name not in bindings:
                bindings[name] = self._binding(name)
        self.namespace.update(expression.globals())
        return expression.code(bindings)

    def budget(self) -> Code:
        """Return the variable of the budget that the current record has left (expressions.budget)."""
        self.namespace["Budget"] = Budget
        most = literal(self._config.expression_max_bytes), literal(self._config.expression_max_steps)
        return self.named_prologue(BUDGET, call("Budget", *most))

    @contextmanager
    def separate_budget(self) -> Iterator[None]:
        """Write the work for an earlier record, with a separate budget; afterwards the current record's budget continues."""
        if not self.counts:
            yield
            return
        saved = self.var("left")
        self.assign(saved, method(self.budget(), "pause"))
        yield
        self.do(method(self.budget(), "resume", saved))

    # -- Context --

    def _binding(self, name: str) -> Code:
        record = self.record
        if name == "key":
            return self.object_of(record.key)
        if name == "value":
            return self.object_of(record.value)
        if name == "timestamp":
            return record.time
        if name == "now":
            return attribute(RT, "now")
        if name == "headers":
            return self.headers()
        if name in _CONTEXT:
            return item(record.context, _CONTEXT.index(name))
        raise AssertionError(f"no binding for {name}")

    def headers(self) -> Code:
        """Return the piece of the headers of the current record (a list or None)."""
        return item(self.record.context, 0) if self.full_context else self.record.context

    def with_headers(self, headers: Code) -> Code:
        """Return the piece of a context like the current one, with other headers."""
        return tuple_of(headers, starred(sliced(self.record.context, 1))) if self.full_context else headers

    def empty_context(self) -> Code:
        """Return the context of output without an input record: no headers, no topic, partition and offset -1."""
        return literal((None, None, -1, -1)) if self.full_context else NONE

    @contextmanager
    def with_record(self, record: RecordVariables) -> Iterator[None]:
        """Make another record the current one while the block is written."""
        saved, self.record = self.record, record
        yield
        self.record = saved

    # -- Decoding and encoding --

    def object_of(self, slot: Slot) -> Code:
        """Return the variable of a slot's decoded value; writes its decoding here unless it was written before."""
        slot.var_used[0] = True
        if slot.var is None:
            assert slot.raw is not None
            assert slot.serde is not None
            variable = self.var("d")
            self.assign_decoded(variable, slot.serde, slot.raw, never_none=slot.never_none)
            slot.var = variable
        return slot.var

    def bytes_of(self, slot: Slot, serde: Serde) -> Code:
        """Return the variable of a slot's bytes under a serde; writes its encoding here if necessary."""
        slot.raw_used[0] = True
        if slot.raw is None or slot.serde != serde:
            variable = self.var("b")
            self._assign_encoded(variable, slot, serde)
            slot.raw, slot.serde, slot.unchecked = variable, serde, False
        elif slot.unchecked:
            slot.shown, slot.raw, slot.unchecked = slot.raw, self._checked(slot.raw, serde), False
        return slot.raw

    def assign_decoded(
        self, variable: Code, serde: Serde, raw: Code, again: Code | None = None, *, never_none: bool = False
    ) -> None:
        """Write the decoding of bytes, None staying None; `again`: a variable for the bytes that Java writes again."""
        quick = serde.well_formed_source(raw)
        if quick is None:
            self.assign(variable, self.decoded(serde, raw, never_none))
            return
        with self.attempt():
            self.assign(variable, quick[0] if never_none else unless_none(raw, quick[0]))
            if again is not None:
                self.assign(again, raw)
        with self.block("except UnicodeDecodeError:"):
            self.assign(variable, self.decoded(serde, raw, never_none=True))
            if again is not None:
                self.assign(again, self.encoded(serde, variable, never_none=True))

    def _assign_encoded(self, variable: Code, slot: Slot, serde: Serde) -> None:
        value = self.object_of(slot)
        encoded = self.encoded(serde, value, slot.never_none)
        quick = serde.well_formed_source(value)
        if quick is None:
            self.assign(variable, self._unchanged(slot, serde, encoded))
            return
        with self.attempt():
            self.assign(variable, quick[1] if slot.never_none else unless_none(value, quick[1]))
        with self.block("except UnicodeEncodeError:"):
            self.assign(variable, encoded)

    def _checked(self, raw: Code, serde: Serde) -> Code:
        """Return a variable for bytes of a source as Java writes them again, of a serde that decodes all bytes."""
        test, value = serde.canonical_source(raw), serde.decode_source(raw)
        assert test is not None
        assert value is not None
        variable = self.var("b")
        self.assign(variable, either(any_of(is_none(raw), test), raw, self.encoded(serde, value, never_none=True)))
        return variable

    def _unchanged(self, slot: Slot, serde: Serde, encoded: Code) -> Code:
        """Return a piece without the encoding if it gives the bytes that the slot was decoded from."""
        if slot.source_bytes is None or slot.source_bytes[1] != serde:
            return encoded
        raw = slot.source_bytes[0]
        test = serde.canonical_source(raw)
        if test is None:
            return encoded
        self.namespace.update(serde.inline_globals)
        return either(all_of(is_not_none(raw), test), raw, encoded)

    def decoded(self, serde: Serde, variable: Code, never_none: bool = False) -> Code:
        """Return the piece that decodes a variable, None staying None."""
        return self._converted(serde, variable, serde.decode_source(variable), "decode", never_none)

    def encoded(self, serde: Serde, variable: Code, never_none: bool = False) -> Code:
        """Return the piece that encodes a variable, None staying None."""
        return self._converted(serde, variable, serde.encode_source(variable), "encode", never_none)

    def _converted(self, serde: Serde, variable: Code, inline: Code | None, method: str, never_none: bool) -> Code:
        """Return the inline piece of a serde, or the call of its method if it has none."""
        if inline is None:
            piece = call(self.name_of(getattr(serde, method), method), variable)
        else:
            piece = inline
            self.namespace.update(serde.inline_globals)
        return piece if never_none else unless_none(variable, piece)

    # -- The task and its stores --

    def store(self, name: str) -> Code:
        """Return the variable of a store."""
        return self.prologue(("store", name), "s", call("rt.store", literal(name)))

    def kernel(self, module: str, name: str) -> Code:
        """Return the name of an object of operators.kernels; imported now, since commands that run nothing do not need it."""
        return self.name_of(getattr(import_module(f"streamkit.operators.kernels.{module}"), name), name)

    def is_cached(self, store: str) -> bool:
        """Return whether a store has a cache in this application."""
        return self._config.statestore_cache_max_bytes > 0 and self.stores[store].caching

    def failed_value(self, slot: Slot, born: int) -> Code:
        """Return the piece for a part of a failed record; `born`: the number of variables before the `try`."""
        if slot.var is None and slot.shown is not None:
            return slot.shown
        # Variables of the failing `try`, whose numbers are higher, may be unbound in its handler.
        for variable in (slot.var, slot.raw):
            if variable is not None:
                name = variable.source
                if not (name.startswith(("d_", "b_")) and int(name[2:]) > born):
                    return variable
        return NONE

    # -- Failing, dropping and forwarding --

    def drop(self, reason: DropReason) -> None:
        """Write the counting of a dropped record."""
        self.do(call("dropped", literal(reason.value)))

    def drop_where(self, test: Code, reason: DropReason = DropReason.NULL) -> None:
        """Write the dropping of records for which a condition holds; the rest of the block is the other case."""
        with self.when(test):
            self.drop(reason)
        self.rest("else:")

    # -- The nodes, and functions --

    @abstractmethod
    def guard(self, node: Node) -> AbstractContextManager[None]:
        """Write code whose failure is attributed to this node. The rest of this block runs only if the code succeeds."""

    @abstractmethod
    def forward(self, node: Node, **changes: Unpack[Changes]) -> None:
        """Write the code of a node's children for the current record, with `changes` to its parts."""

    @abstractmethod
    def forward_to(self, node: Node, child: str) -> None:
        """Write the code of one child of a node for the current record."""

    @abstractmethod
    def charge_record(self, node: Node, value: Code) -> None:
        """Write code that charges the budget for one of the records that a record becomes; without budgets, write nothing."""

    @abstractmethod
    def node(self, name: str) -> Node:
        """Return a node of the sub-topology by its name."""

    @abstractmethod
    def index(self, node: Node) -> Code:
        """Return the index of a node in Program.nodes."""

    @abstractmethod
    def reads_one_topic(self) -> bool:
        """Return whether all records of the sub-topology come from one topic."""

    @abstractmethod
    def replays(self) -> Code:
        """Return the variable of the program's Replays, with which steps hold records back (operators.kernels.replays)."""

    @abstractmethod
    def mixes_order(self, node: Node) -> bool:
        """Return whether holding records back at a node would change their order relative to other nodes' records."""

    @abstractmethod
    def on_lifecycle(self, moment: str, node: Node, call: Code) -> None:
        """Write a node's call for "init" (after stores are restored) or "close"; equal calls are written once.

        The calls run in the order of the nodes (StreamTask.initializeTopology). This determines the order of timers that
        are due at the same time.
        """

    @abstractmethod
    def deferred_function(self, key: tuple[Hashable, ...], prefix: str, write: Callable[[Code], None]) -> Code:
        """Return the name of a function, which `write` writes once after the current function is complete."""

    @abstractmethod
    def callable_of(self, expression: Expression, parameters: Mapping[str, str], *more: str) -> Code:
        """Return the name of an expression's function. `parameters` maps the expression's names to the function's parameters.

        The function takes the mapped parameters in order, then the parameters in `more`; with t and c, the names of the
        context are available.
        """

    @abstractmethod
    def child_function(self, child: str) -> Code:
        """Return the name of the function of a node that takes the records of a stream, given the name of the node."""

    @abstractmethod
    def forward_function(self, node: Node, table: bool) -> Code:
        """Return the name of a function that forwards a record to all children of a node.

        Its parameters are (k, v, t, c), or for tables (k, v, old, t, c, latest).
        """

    @abstractmethod
    def flush_listener(self, node: Node, key_serde: Serde, window: str | None = None) -> Code:
        """Return the name of a FlushListener that forwards the records that leave a store's cache (state.store_interface).

        `window`: "time" or "session" for a listener that takes start and end; a session's time is its end.
        """


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
