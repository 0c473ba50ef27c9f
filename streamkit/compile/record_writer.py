"""Writes code for the parts of the current record: decoding, encoding, context, and expressions over them."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from importlib import import_module

from streamkit.code import (
    NONE,
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
    sliced,
    starred,
    symbol,
    tuple_of,
    unless_none,
)
from streamkit.compile.output_growth import counts
from streamkit.compile.record_order import mixes_order
from streamkit.compile.statement_writer import StatementWriter
from streamkit.expressions import Expression
from streamkit.expressions.evaluation.budget import Budget
from streamkit.expressions.translation.core import BUDGET
from streamkit.operators.codegen.record_variables import RecordVariables, Slot, record_of_parameters
from streamkit.operators.core.processor_node import ProcessorNode
from streamkit.operators.kernels.calls.replays import Replays
from streamkit.plan.model import Plan, PlanNode, SourceNode, SubTopology
from streamkit.serdes.serde import Serde

RT = symbol("rt")
REPLAYS = "replays"
_CONTEXT = ("headers", "topic", "partition", "offset")


class RecordWriter(StatementWriter):
    """Writes statements over the current record of a sub-topology."""

    def __init__(self, plan: Plan, sub_topology: SubTopology):
        super().__init__()
        self.plan = plan
        self.stores = plan.stores
        self.global_stores: Sequence[str] = [
            name for sub in plan.sub_topologies if sub.is_global for name in sub.stores
        ]
        self.sub_topology = sub_topology
        self.nodes = tuple(sub_topology.nodes.values())
        self.full_context = _needs_context(self.nodes)
        self.caching = plan.config["statestore.cache.max.bytes"] > 0
        self.counts = counts(sub_topology, plan.config["expression.max.bytes"], plan.config["expression.max.steps"])
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
        """Return the variable of the budget that the current record has left (expressions.evaluation.budget)."""
        self.namespace["Budget"] = Budget
        config = self.plan.config
        most = literal(config["expression.max.bytes"]), literal(config["expression.max.steps"])
        return self.named_prologue(BUDGET, call("Budget", *most))

    @contextmanager
    def separate_budget(self) -> Iterator[None]:
        """Write the work for an earlier record, with a budget of its own; afterwards the current record's budget continues."""
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
        """Return a piece without the encoding where it gives the bytes that the slot was decoded from."""
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
        """Return the inline piece of a serde, or the call of its method where it has none."""
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

    def replays(self) -> Code:
        """Return the variable of the program's Replays."""
        self.namespace["Replays"] = Replays
        return self.named_prologue(REPLAYS, call("Replays", symbol("origin"), symbol("switch")))

    @property
    def holds_records(self) -> bool:
        """Whether any step of the program holds records back."""
        return "Replays" in self.namespace

    def mixes_order(self, node: PlanNode) -> bool:
        """Return whether records that a node holds back would change their order against those of other nodes."""
        return mixes_order(self.sub_topology, node.name)

    def reads_one_topic(self) -> bool:
        """Return whether all records of the sub-topology come from one topic."""
        patterns = (node.pattern for node in self.nodes if isinstance(node, SourceNode))
        return len(self.sub_topology.source_topics) == 1 and not any(patterns)

    @property
    def stepwise(self) -> bool:
        """Whether the loops of sources process one record at each step: where several topics may be merged."""
        return not (self.reads_one_topic() or self.sub_topology.is_global)

    def is_cached(self, store: str) -> bool:
        """Return whether a store has a cache in this application."""
        return self.caching and self.stores[store].caching

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


def _needs_context(nodes: Iterable[PlanNode]) -> bool:
    """Return whether any node reads topic, partition or offset, so that the context must have them."""
    for node in nodes:
        if isinstance(node, SourceNode):
            continue
        inside = node.processor if isinstance(node, ProcessorNode) else node
        if getattr(inside, "needs_context", False):
            return True
        if any(names & {"topic", "partition", "offset"} for names in _names_in(inside)):
            return True
    return False


def _names_in(thing: object) -> Iterator[frozenset[str]]:
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
