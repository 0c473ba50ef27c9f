"""Writes a sub-topology as one Python module: sources are loops over columns, children are inlined depth first."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from importlib import import_module
from typing import Any, Unpack

from streamkit.code import (
    NONE,
    Code,
    all_of,
    attribute,
    call,
    either,
    is_not_none,
    item,
    literal,
    method,
    sliced,
    starred,
    symbol,
    tuple_of,
    unless_none,
)
from streamkit.compile.growth import counts, holds_back
from streamkit.compile.listeners import emit_listener
from streamkit.compile.sinks import emit_sink
from streamkit.compile.writer import Writer
from streamkit.expressions import Expression
from streamkit.expressions.budget import Budget
from streamkit.expressions.core import BUDGET
from streamkit.operators.base import Processor
from streamkit.operators.hand import Hand, Slot, record_of_parameters
from streamkit.operators.writer import Changes
from streamkit.plan.model import Plan, ProcessorNode, SinkNode, SourceNode, SubTopology
from streamkit.serdes.base import Serde

# Beyond this the code moves to a function of its own: Python refuses about 100 levels of indentation.
MAX_DEPTH = 30
# Python refuses 20 loops and `try` within each other.
MAX_ANSWERS = 8


RT = symbol("rt")
_CONTEXT = ("headers", "topic", "partition", "offset")


class Generator(Writer):
    """Writes the code of one sub-topology; processors call it from their `emit`, as operators.writer.CodeWriter."""

    def __init__(self, plan: Plan, sub_topology: SubTopology, reached: Counter[str] | None = None):
        super().__init__()
        self.reached = reached
        self.plan = plan
        self.sub_topology = sub_topology
        self.nodes = tuple(sub_topology.nodes.values())
        self._index = {node.name: i for i, node in enumerate(self.nodes)}
        self.full_context = _needs_context(self.nodes)
        self.caching = plan.config["statestore.cache.max.bytes"] > 0
        self.counts = counts(sub_topology, plan.config["expression.max.bytes"], plan.config["expression.max.steps"])
        self.hand: Hand = None  # type: ignore[assignment]
        self._functions: dict[tuple, Code] = {}
        self._pending: list[tuple[Code, Callable[[Code], None]]] = []
        self._node: Any = None
        self._answers = 0

    # -- What processors use -------------------------------------------------------------------------------------

    def node(self, name: str) -> Any:
        """Return a node of the sub-topology by its name."""
        return self.sub_topology.nodes[name]

    def index(self, node: Any) -> Code:
        """Return the index of a node in Program.nodes."""
        return literal(self._index[node.name])

    def on(self, moment: str, node: Any, call: Code) -> None:
        """Write a node's call for "init" (stores restored) or "close" (each call once), made in the order of nodes."""
        self.at_moment(moment, call, self._index[node.name])

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
        """Return the variable of what is left to the present record (expressions.budget)."""
        self.namespace["Budget"] = Budget
        config = self.plan.config
        most = literal(config["expression.max.bytes"]), literal(config["expression.max.steps"])
        return self.named_prologue(BUDGET, call("Budget", *most))

    def each_row(self, node: Any, value: Code) -> None:
        """Write the charge for one of several records that a record becomes, where the program counts."""
        if self.counts:
            with self.guard(node):
                self.do(method(self.budget(), "row", value))

    @contextmanager
    def apart(self) -> Iterator[None]:
        """Write what a held-back record causes, with a budget of its own; the present one goes on afterwards."""
        if not self.counts:
            yield
            return
        saved = self.var("left")
        self.assign(saved, method(self.budget(), "pause"))
        yield
        self.do(method(self.budget(), "resume", saved))

    def _binding(self, name: str) -> Code:
        hand = self.hand
        if name == "key":
            return self.obj(hand.key)
        if name == "value":
            return self.obj(hand.value)
        if name == "timestamp":
            return hand.time
        if name == "now":
            return attribute(RT, "now")
        if name == "headers":
            return self.headers()
        if name in _CONTEXT:
            return item(hand.context, _CONTEXT.index(name))
        raise AssertionError(f"no binding for {name}")

    def headers(self) -> Code:
        """Return the piece of the headers of the current record (a list or None)."""
        return item(self.hand.context, 0) if self.full_context else self.hand.context

    def with_headers(self, headers: Code) -> Code:
        """Return the piece of a context like the current one, with other headers."""
        return tuple_of(headers, starred(sliced(self.hand.context, 1))) if self.full_context else headers

    def nowhere(self) -> Code:
        """Return the context of what has no record of its own: no headers, no topic, partition and offset -1."""
        return literal((None, None, -1, -1)) if self.full_context else NONE

    @contextmanager
    def holding(self, hand: Hand) -> Iterator[None]:
        """Make another record the current one while the block is written."""
        saved, self.hand = self.hand, hand
        yield
        self.hand = saved

    def obj(self, slot: Slot) -> Code:
        """Return the variable of a slot's decoded value; writes its decoding here if that was not done."""
        slot.requested[0] = True
        if slot.var is None:
            assert slot.raw is not None
            assert slot.serde is not None
            variable = self.var("d")
            self.assign(variable, self.decoded(slot.serde, slot.raw, slot.never_none))
            slot.var = variable
        return slot.var

    def raw(self, slot: Slot, serde: Serde) -> Code:
        """Return the variable of a slot's bytes under a serde; writes its encoding here if need be."""
        slot.raw_used[0] = True
        if slot.raw is None or slot.serde != serde:
            variable = self.var("b")
            self.assign(variable, self._unchanged(slot, serde, self.encoded(serde, self.obj(slot), slot.never_none)))
            slot.raw, slot.serde = variable, serde
        return slot.raw

    def _unchanged(self, slot: Slot, serde: Serde, encoded: Code) -> Code:
        """Return what saves an encoding where the bytes that a slot was decoded from are known to come out again."""
        if slot.wire is None or slot.wire[1] != serde:
            return encoded
        raw = slot.wire[0]
        test = serde.canonical_source(raw)
        if test is None:
            return encoded
        self.namespace.update(serde.inline_globals)
        return either(all_of(is_not_none(raw), test), raw, encoded)

    def decoded(self, serde: Serde, variable: Code, never_none: bool = False) -> Code:
        """Return the piece that decodes a variable, None staying None."""
        piece = serde.decode_source(variable)
        if piece is None:
            piece = call(self.name_of(serde.decode, "decode"), variable)
        else:
            self.namespace.update(serde.inline_globals)
        return piece if never_none else unless_none(variable, piece)

    def encoded(self, serde: Serde, variable: Code, never_none: bool = False) -> Code:
        """Return the piece that encodes a variable, None staying None."""
        piece = serde.encode_source(variable)
        if piece is None:
            piece = call(self.name_of(serde.encode, "encode"), variable)
        else:
            self.namespace.update(serde.inline_globals)
        return piece if never_none else unless_none(variable, piece)

    def store(self, name: str) -> Code:
        """Return the variable of a store."""
        return self.prologue(("store", name), "s", call("rt.store", literal(name)))

    def kernel(self, module: str, name: str) -> Code:
        """Return the name of an object of operators.kernels; imported now, so that commands that run nothing need not."""
        return self.name_of(getattr(import_module(f"streamkit.operators.kernels.{module}"), name), name)

    def reads_one_topic(self) -> bool:
        """Return whether all records of the sub-topology come from one topic."""
        patterns = (node.pattern for node in self.nodes if isinstance(node, SourceNode))
        return len(self.sub_topology.source_topics) == 1 and not any(patterns)

    def is_cached(self, store: str) -> bool:
        """Return whether a store has a cache in this application."""
        return self.caching and self.plan.stores[store].caching

    @contextmanager
    def guard(self, node: Any = None, answer: str = "") -> Iterator[None]:
        """Write lines whose failure is this node's; what follows in this block runs only where they succeeded.

        answer: the function that is told of a failure; by default `refuse` for a sink, else `fail`.
        """
        node = node or self._node
        born = self._count
        with self.attempt() as guarded:
            yield
        if guarded.empty:
            # The bytes at this point are used as they are.
            return
        hand = self.hand
        key, value = self._known(hand.key, born), self._known(hand.value, born)
        with self.rescue():
            answer = answer or ("refuse" if isinstance(node, SinkNode) else "fail")
            self.do(call(answer, self.index(node), symbol("e"), key, value, hand.time, hand.context))
        self._rest("else:")

    def _known(self, slot: Slot, born: int) -> Code:
        if slot.var is None and slot.shown is not None:
            return slot.shown
        # Variables born inside the failing try, whose numbers are higher, may be unbound in its handler.
        for variable in (slot.var, slot.raw):
            if variable is not None:
                name = variable.source
                if not (name.startswith(("d_", "b_")) and int(name[2:]) > born):
                    return variable
        return NONE

    def drop(self) -> None:
        """Write the counting of a dropped record."""
        self.do(call("dropped", literal(1)))

    def drop_where(self, test: Code) -> None:
        """Write the dropping of records for which a condition holds; what follows in this block is the other case."""
        with self.when(test):
            self.drop()
        self._rest("else:")

    def forward(self, node: Any, **changes: Unpack[Changes]) -> None:
        """Write the children of a node for the current record, with what `changes` replaces."""
        hand = dataclasses.replace(self.hand, **changes)
        for name in node.children:
            self._child(self.sub_topology.nodes[name], hand.copy())

    def forward_to(self, node: Any, child: str) -> None:
        """Write one child of a node for the current record."""
        self._child(self.sub_topology.nodes[child], self.hand.copy())

    def child_function(self, child: str, table: bool = False) -> Code:
        """Return the name of the function that does the work of a node by its name."""
        return self.node_function(self.sub_topology.nodes[child], table)

    def _child(self, child: Any, hand: Hand) -> None:
        if len(child.parents) == 1 and self._depth < MAX_DEPTH and self._answers < MAX_ANSWERS:
            self.emit_node(child, hand)
        else:
            with self.holding(hand):
                self.call(self.node_function(child, hand.is_table), hand)

    def call(self, function: Code, hand: Hand) -> None:
        """Write a call of a node's or forward function with a record."""
        key, value = self.obj(hand.key), self.obj(hand.value)
        if hand.old is not None:
            self.do(call(function, key, value, self.obj(hand.old), hand.time, hand.context, hand.latest))
        else:
            self.do(call(function, key, value, hand.time, hand.context))

    def node_function(self, node: Any, table: bool) -> Code:
        """Return the name of a function that does a node's work: (k, v, t, c), for tables (k, v, old, t, c, latest)."""
        return self.later(
            ("node", node.name, table),
            f"n{self._index[node.name]}",
            lambda name: self._plain_function(name, node, table, False),
        )

    def forward_function(self, node: Any, table: bool) -> Code:
        """Return the name of a function that hands a record to all children of a node; signatures as node_function."""
        return self.later(
            ("forward", node.name, table),
            f"f{self._index[node.name]}",
            lambda name: self._plain_function(name, node, table, True),
        )

    def flush_listener(self, node: Any, key_serde: Serde, window: str | None = None) -> Code:
        """Return the name of a listener that forwards what leaves a store's cache (state.base.FlushListener).

        `window`: "time" or "session" for the form with start and end; a session's time is its end.
        """
        return self.later(
            ("listener", node.name),
            f"l{self._index[node.name]}",
            lambda name: emit_listener(self, name, node, key_serde, window),
        )

    def callable_of(self, expression: Expression, parameters: Mapping[str, str], *more: str) -> Code:
        """Return the name of a function of an expression; `parameters` maps the expression's names to the function's.

        The function takes the mapped parameters in order, then those of `more` (t, c: names read from a context are
        then known).
        """
        signature = (*parameters.values(), *more)

        def write(name: Code) -> None:
            with self.holding(record_of_parameters()), self.function(name, *signature):
                result = self.expr(expression, **{each: symbol(name) for each, name in parameters.items()})
                # A kernel may call it often for one record.
                self.returns(method(self.budget(), "item", result) if self.counts else result)

        return self.later(("callable", id(expression), signature), "x", write)

    def later(self, key: tuple, prefix: str, write: Callable[[Code], None]) -> Code:
        """Return the name of a function that `write` writes once, when the present one is complete."""
        if key not in self._functions:
            name = self.var(prefix)
            self._functions[key] = name
            self._pending.append((name, write))
        return self._functions[key]

    def within(self, node: Any) -> None:
        """Note the node to which failures of the next lines belong."""
        self._node = node

    def emit_node(self, node: Any, hand: Hand) -> None:
        """Write the work of a node for a record, at the present depth."""
        saved = self.hand, self._depth, self._node
        self.hand, self._node = hand, node
        self.comment(node)
        self.count(node)
        if isinstance(node, SinkNode):
            emit_sink(node, self)
        else:
            processor: Processor = node.processor
            with self._answering(node):
                processor.emit(node, self)
        self.fill_empty()
        self.hand, self._depth, self._node = saved

    @contextmanager
    def _answering(self, node: Any) -> Iterator[None]:
        """Write the work of a node; where a sink directly below refuses a record, what the node has left to do is not done."""
        if not any(isinstance(self.sub_topology.nodes[child], SinkNode) for child in node.children):
            yield
            return
        hand, born = self.hand, self._count
        self._answers += 1
        with self.attempt():
            yield
            self.fill_empty()
        self._answers -= 1
        key, value = self._known(hand.key, born), self._known(hand.value, born)
        with self.block("except RefusedError as e:"):
            self.do(call("fail", self.index(node), symbol("e"), key, value, hand.time, hand.context))

    def comment(self, node: Any) -> None:
        """Write which node, and which step of the file, the next lines are."""
        origin = (
            f"  ({node.origin.pipeline}: {node.origin.step}, line {node.origin.position.line})" if node.origin else ""
        )
        self.line(f"# {node.name}{origin}")

    def count(self, node: Any) -> None:
        """Write the counting of a record that reaches a node, where `--coverage` asks for it: never in an application."""
        if self.reached is not None:
            self.namespace["reached"] = self.reached
            self.add_to(item(symbol("reached"), node.name), literal(1))

    # -- Functions that were asked for ---------------------------------------------------------------------------

    def emit_pending(self) -> None:
        """Write every function that a call was written for, until no new ones appear."""
        while self._pending:
            name, write = self._pending.pop(0)
            saved, self._depth, self._answers = self._depth, 1, 0
            write(name)
            self.fill_empty()
            self._depth = saved

    def _plain_function(self, name: Code, node: Any, table: bool, children: bool) -> None:
        hand = record_of_parameters(table)
        with self.function(name, *(("k", "v", "old", "t", "c", "latest") if table else ("k", "v", "t", "c"))):
            if not children:
                if len(node.parents) > 1:
                    self.each_row(node, self.obj(hand.value))
                self.emit_node(node, hand)
            else:
                self.hand, self._node = hand, node
                with self.apart() if holds_back(node.processor) else nullcontext():
                    self.forward(node)


def _needs_context(nodes: Iterable[Any]) -> bool:
    """Whether any node reads topic, partition or offset, so that the context must carry them."""
    for node in nodes:
        if isinstance(node, SourceNode):
            continue
        inside = node.processor if isinstance(node, ProcessorNode) else node
        if getattr(inside, "needs_context", False):
            return True
        if any(names & {"topic", "partition", "offset"} for names in _names_in(inside)):
            return True
    return False


def _names_in(thing: Any) -> Iterator[frozenset[str]]:
    names = getattr(thing, "names", None)
    if isinstance(names, frozenset):
        yield names
    elif isinstance(thing, tuple):
        for item in thing:
            yield from _names_in(item)
    elif dataclasses.is_dataclass(thing) and not isinstance(thing, type):
        for each in dataclasses.fields(thing):
            if each.name != "origin":
                yield from _names_in(getattr(thing, each.name))
