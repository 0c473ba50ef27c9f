"""Writes a sub-topology as one Python module: sources are loops over columns, children are inlined depth first."""

from __future__ import annotations

import dataclasses
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from importlib import import_module
from typing import Any

from streamkit.compile.sinks import emit_sink
from streamkit.compile.writer import Writer
from streamkit.operators.hand import Hand, Slot
from streamkit.plan.model import Plan, ProcessorNode, SinkNode, SourceNode, SubTopology
from streamkit.record import WindowedKey
from streamkit.serdes.base import Serde

# Beyond this the code moves to a function of its own: Python refuses about 100 levels of indentation.
MAX_DEPTH = 30


class Generator(Writer):
    """Writes the code of one sub-topology; processors call it from their `emit`."""

    def __init__(self, plan: Plan, sub_topology: SubTopology, reached: Counter[str] | None = None):
        super().__init__()
        self.reached = reached
        self.plan = plan
        self.sub_topology = sub_topology
        self.nodes = tuple(sub_topology.nodes.values())
        self._index = {node.name: i for i, node in enumerate(self.nodes)}
        self.full_context = _needs_context(self.nodes)
        self.caching = plan.config["statestore.cache.max.bytes"] > 0
        self.hand: Hand = None  # type: ignore[assignment]
        self._functions: dict[tuple, str] = {}
        self._pending: list[tuple[str, Callable[[str], None]]] = []
        self._node: Any = None

    # -- What processors use -------------------------------------------------------------------------------------

    def index(self, node: Any) -> int:
        """Return the index of a node in Program.nodes."""
        return self._index[node.name]

    def expr(self, expression: Any, **others: str) -> str:
        """Return an expression's source over the record in hand; `others` binds further names, such as aggregate."""
        bindings = dict(others)
        for name in expression.names:
            if name not in bindings:
                bindings[name] = self._binding(name)
        self.namespace.update(expression.globals())
        return expression.source(bindings)

    def _binding(self, name: str) -> str:
        hand = self.hand
        if name == "key":
            return self.obj(hand.key)
        if name == "value":
            return self.obj(hand.value)
        if name == "timestamp":
            return hand.time
        if name == "now":
            return "rt.now"
        if name == "headers":
            return f"{hand.context}[0]" if self.full_context else hand.context
        if name in ("topic", "partition", "offset"):
            return f"{hand.context}[{('headers', 'topic', 'partition', 'offset').index(name)}]"
        raise AssertionError(f"no binding for {name}")

    def headers(self) -> str:
        """Return the source of the headers of the record in hand (a list or None)."""
        return f"{self.hand.context}[0]" if self.full_context else self.hand.context

    def with_headers(self, source: str) -> str:
        """Return the source of a context like the one in hand, with other headers."""
        return f"({source}, *{self.hand.context}[1:])" if self.full_context else source

    def obj(self, slot: Slot) -> str:
        """Return a variable with the decoded value of a slot, decoding it here if that was not done."""
        slot.requested[0] = True
        if slot.var is None:
            assert slot.raw is not None
            assert slot.serde is not None
            name = self.var("d")
            self.line(f"{name} = {self.decoded(slot.serde, slot.raw, slot.never_none)}")
            slot.var = name
        return slot.var

    def raw(self, slot: Slot, serde: Serde) -> str:
        """Return a variable with the bytes of a slot under a serde, encoding it here if need be."""
        slot.raw_used[0] = True
        if slot.raw is None or slot.serde != serde:
            name = self.var("b")
            self.line(f"{name} = {self._unchanged(slot, serde)}{self.encoded(serde, self.obj(slot), slot.never_none)}")
            slot.raw, slot.serde = name, serde
        return slot.raw

    def _unchanged(self, slot: Slot, serde: Serde) -> str:
        """Return what saves an encoding where the bytes that a slot was decoded from are known to come out again."""
        raw, written = slot.wire or ("", None)
        test = serde.canonical_source(raw) if written == serde else None
        if test is None:
            return ""
        self.namespace.update(serde.inline_globals)
        return f"{raw} if {raw} is not None and {test} else "

    def decoded(self, serde: Serde, variable: str, never_none: bool = False) -> str:
        """Return the source that decodes a variable, None staying None."""
        source = serde.decode_source(variable)
        if source is None:
            source = f"{self.name_of(serde.decode, 'decode')}({variable})"
        else:
            self.namespace.update(serde.inline_globals)
        return source if never_none else f"None if {variable} is None else {source}"

    def encoded(self, serde: Serde, variable: str, never_none: bool = False) -> str:
        """Return the source that encodes a variable, None staying None."""
        source = serde.encode_source(variable)
        if source is None:
            source = f"{self.name_of(serde.encode, 'encode')}({variable})"
        else:
            self.namespace.update(serde.inline_globals)
        return source if never_none else f"None if {variable} is None else {source}"

    def store(self, name: str) -> str:
        """Return the variable of a store."""
        return self.prologue(("store", name), "s", f"rt.store({name!r})")

    def kernel(self, module: str, name: str) -> str:
        """Return the name of an object of operators.kernels; imported now, so that commands that run nothing need not."""
        return self.name_of(getattr(import_module(f"streamkit.operators.kernels.{module}"), name), name)

    def is_cached(self, store: str) -> bool:
        """Return whether a store has a cache in this application."""
        return self.caching and self.plan.stores[store].caching

    @contextmanager
    def guard(self, node: Any = None) -> Iterator[None]:
        """Write lines whose failure is this node's; what is written afterwards runs only where they succeeded."""
        node = node or self._node
        self.line("try:")
        start, born = len(self.lines), self._count
        self.depth += 1
        yield
        self.depth -= 1
        if len(self.lines) == start:
            # Nothing to guard: the bytes in hand are used as they are.
            del self.lines[-1]
            return
        hand = self.hand
        key, value = self._known(hand.key, born), self._known(hand.value, born)
        self.line("except Exception as e:")
        with self.indented():
            self.line(f"fail({self.index(node)}, e, {key}, {value}, {hand.time}, {hand.context})")
        self.line("else:")
        self.depth += 1

    def _known(self, slot: Slot, born: int) -> str:
        # Variables born inside the failing try, whose numbers are higher, may be unbound in its handler.
        for variable in (slot.var, slot.raw):
            if variable is not None and not (variable.startswith(("d_", "b_")) and int(variable[2:]) > born):
                return variable
        return "None"

    def drop(self) -> None:
        """Write the counting of a dropped record."""
        self.line("dropped(1)")

    def forward(self, node: Any, **changes: Any) -> None:
        """Write the children of a node for the record in hand, with other slots where `changes` names them."""
        hand = dataclasses.replace(self.hand, **changes)
        for name in node.children:
            self._child(self.sub_topology.nodes[name], hand.copy())

    def forward_to(self, node: Any, child: str, **changes: Any) -> None:
        """Write one child of a node for the record in hand."""
        hand = dataclasses.replace(self.hand, **changes)
        self._child(self.sub_topology.nodes[child], hand.copy())

    def child_function(self, child: str, table: bool = False) -> str:
        """Return the name of the function that does the work of a node by its name."""
        return self.node_function(self.sub_topology.nodes[child], table)

    def _child(self, child: Any, hand: Hand) -> None:
        if len(child.parents) == 1 and self.depth < MAX_DEPTH:
            self.emit_node(child, hand)
        else:
            saved, self.hand = self.hand, hand
            self.call(self.node_function(child, hand.is_table), hand)
            self.hand = saved

    def call(self, function: str, hand: Hand) -> None:
        """Write a call of a node's or forward function with a record."""
        key, value = self.obj(hand.key), self.obj(hand.value)
        if hand.is_table:
            assert hand.old is not None
            self.line(f"{function}({key}, {value}, {self.obj(hand.old)}, {hand.time}, {hand.context}, {hand.latest})")
        else:
            self.line(f"{function}({key}, {value}, {hand.time}, {hand.context})")

    def node_function(self, node: Any, table: bool) -> str:
        """Return the name of a function that does a node's work: (k, v, t, c), for tables (k, v, old, t, c, latest)."""
        return self.later(
            ("node", node.name, table),
            f"n{self.index(node)}",
            lambda name: self._plain_function(name, node, table, False),
        )

    def forward_function(self, node: Any, table: bool) -> str:
        """Return the name of a function that hands a record to all children of a node; signatures as node_function."""
        return self.later(
            ("forward", node.name, table),
            f"f{self.index(node)}",
            lambda name: self._plain_function(name, node, table, True),
        )

    def flush_listener(self, node: Any, key_serde: Serde, window: str | None = None) -> str:
        """Return the name of a listener that forwards what leaves a store's cache (state.base.FlushListener).

        `window`: "time" or "session" for the form with start and end; a session's time is its end.
        """
        return self.later(
            ("listener", node.name), f"l{self.index(node)}", lambda name: self._listener(name, node, key_serde, window)
        )

    def callable_of(self, expression: Any, parameters: dict[str, str], more: str = "") -> str:
        """Return the name of a function of an expression; `parameters` maps the expression's names to the function's.

        The function takes the mapped parameters in order, then those of `more` ("t, c": names read from a context are
        then known).
        """
        signature = ", ".join([*parameters.values(), *([more] if more else [])])

        def write(name: str) -> None:
            saved, self.hand = self.hand, Hand(Slot("k"), Slot("v"), "t", "c")
            self.line(f"def {name}({signature}):")
            with self.indented():
                self.line(f"return {self.expr(expression, **parameters)}")
            self.hand = saved

        return self.later(("callable", id(expression), signature), "x", write)

    def later(self, key: tuple, prefix: str, write: Callable[[str], None]) -> str:
        """Return the name of a function that `write` writes once, when the present one is complete."""
        if key not in self._functions:
            name = self.var(prefix)
            self._functions[key] = name
            self._pending.append((name, write))
        return self._functions[key]

    def emit_node(self, node: Any, hand: Hand) -> None:
        """Write the work of a node for a record, at the present depth."""
        saved = self.hand, self.depth, self._node
        self.hand, self._node = hand, node
        self.comment(node)
        self.count(node)
        if isinstance(node, SinkNode):
            emit_sink(node, self)
        else:
            node.processor.emit(node, self)
        self.fill_empty()
        self.hand, self.depth, self._node = saved

    def comment(self, node: Any) -> None:
        """Write which node, and which step of the file, the next lines are."""
        origin = (
            f"  ({node.origin.pipeline}: {node.origin.step}, line {node.origin.position.line})" if node.origin else ""
        )
        self.line(f"# {node.name}{origin}")

    def count(self, node: Any) -> None:
        """Write the counting of a record that reaches a node, where somebody asked for it: never in an application."""
        if self.reached is not None:
            self.namespace["reached"] = self.reached
            self.line(f"reached[{node.name!r}] += 1")

    # -- Functions that were asked for ---------------------------------------------------------------------------

    def emit_pending(self) -> None:
        """Write every function that a call was written for, until no new ones appear."""
        while self._pending:
            name, write = self._pending.pop(0)
            saved, self.depth = self.depth, 1
            write(name)
            self.fill_empty()
            self.depth = saved

    def _plain_function(self, name: str, node: Any, table: bool, children: bool) -> None:
        self.line(f"def {name}(k, v, old, t, c, latest):" if table else f"def {name}(k, v, t, c):")
        with self.indented():
            hand = Hand(Slot("k"), Slot("v"), "t", "c", Slot("old") if table else None, "latest")
            if not children:
                self.emit_node(node, hand)
            else:
                self.hand, self._node = hand, node
                self.forward(node)
            self.fill_empty()

    def _listener(self, name: str, node: Any, key_serde: Serde, window: str | None) -> None:
        if window is None:
            self.line(f"def {name}(kb, v, old, t, c):")
            key = Slot(raw="kb", serde=key_serde, never_none=True)
        else:
            self.line(f"def {name}(kb, start, end, v, old, t, c):")
            key = Slot("k", never_none=True)
        with self.indented():
            if window is not None:
                windowed = self.name_of(WindowedKey, "WindowedKey")
                self.line(f"k = {windowed}({self.decoded(key_serde, 'kb', True)}, start, end)")
            time = "end" if window == "session" else "t"
            self.hand, self._node = Hand(key, Slot("v"), time, "c", Slot("old")), node
            self.forward(node)
            self.fill_empty()


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
