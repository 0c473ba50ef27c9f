"""Writes code for the parts of the current record: decoding, encoding, context, and expressions, with their charges if needed."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass
from importlib import import_module

from streamkit.code import (
    ATOM,
    CONDITION,
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
    names_of,
    sliced,
    starred,
    symbol,
    tuple_of,
    unless_none,
)
from streamkit.expressions import Expression
from streamkit.expressions.budget import Budget
from streamkit.expressions.expression import MOST_BYTES, MOST_TIMES, MOST_WORK, Growth
from streamkit.expressions.translate import BUDGET
from streamkit.operators.codegen.code_writer import ProcessorNode, RecordVariables, Slot, record_of_parameters
from streamkit.operators.core.value_getters import Getter
from streamkit.operators.kernels.replays import Replays
from streamkit.operators.steps.stateless.flat_map import FlatMap
from streamkit.operators.steps.stateless.flat_map_values import FlatMapValues
from streamkit.operators.steps.tables.suppress import Suppress
from streamkit.plan.model import Plan, PlanNode, SinkNode, SourceNode, SubTopology
from streamkit.serdes.serde import Serde

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
        self._rest(f"if {test.at(CONDITION)}:")

    def _rest(self, opening: str) -> None:
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

    def at_moment(self, moment: str, call: Code, order: int) -> None:
        """Write a call for "init" or "close", each call once; calls are made by their `order`."""
        self._lifecycle[moment].setdefault(call.source, order)

    def lifecycle(self, moment: str) -> str:
        """Return the source of a function that makes the calls of a moment."""
        calls = self._lifecycle[moment]
        return f"lambda: [{', '.join(sorted(calls, key=calls.__getitem__))}] and None"


def _assigned(targets: tuple[Code, ...], values: tuple[Code, ...]) -> str:
    return f"{names_of(targets)} = {', '.join(value.at(CONDITION) for value in values)}"


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
        self.caching = plan.config.statestore_cache_max_bytes > 0
        self.counts = counts(sub_topology, plan.config.expression_max_bytes, plan.config.expression_max_steps)
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
        config = self.plan.config
        most = literal(config.expression_max_bytes), literal(config.expression_max_steps)
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

    def replays(self) -> Code:
        """Return the variable of the program's Replays."""
        self.namespace["Replays"] = Replays
        return self.named_prologue(REPLAYS, call("Replays", symbol("origin"), symbol("switch")))

    @property
    def holds_records(self) -> bool:
        """Whether any step of the program holds records back."""
        return "Replays" in self.namespace

    def mixes_order(self, node: PlanNode) -> bool:
        """Return whether holding records back at a node would change their order relative to records of other nodes."""
        return mixes_order(self.sub_topology, node.name)

    def reads_one_topic(self) -> bool:
        """Return whether all records of the sub-topology come from one topic."""
        patterns = (node.pattern for node in self.nodes if isinstance(node, SourceNode))
        return len(self.sub_topology.source_topics) == 1 and not any(patterns)

    @property
    def stepwise(self) -> bool:
        """Whether the loops of sources process one record at each step: if several topics may be merged."""
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


def _names_in(part: object) -> Iterator[frozenset[str]]:
    names = getattr(part, "names", None)
    if isinstance(names, frozenset):
        yield names
    elif isinstance(part, tuple):
        for item in part:
            yield from _names_in(item)
    elif dataclasses.is_dataclass(part) and not isinstance(part, type):
        for field in dataclasses.fields(part):
            if field.name != "origin":
                yield from _names_in(getattr(part, field.name))


# Finds whether a node may hold records back: what follows from them must not mix with what follows from other nodes.


def mixes_order(sub_topology: SubTopology, name: str) -> bool:
    """Return whether nodes below one share a child, a store or a topic with nodes that are not below it, or a store with it.

    If they do, the order of records there would depend on how long the node holds records back.
    """
    nodes = sub_topology.nodes
    below = _below(sub_topology, name)
    others = [node for other, node in nodes.items() if other not in below]
    mine = [node for other, node in nodes.items() if other in below]
    if any(parent not in below for node in mine if node.name != name for parent in _parents(node)):
        return True
    held, rest = _stores([nodes[name]]), _stores([node for node in mine if node.name != name])
    if (held | rest) & _stores(others) or held & rest:
        return True
    written, elsewhere = _topics(mine), _topics(others)
    # A topic that an expression gives may be any.
    if None in written | elsewhere:
        return bool(written and elsewhere)
    return bool(written & elsewhere)


def _below(sub_topology: SubTopology, name: str) -> set[str]:
    """Return a node and all nodes that its records reach."""
    reached, pending = {name}, [name]
    while pending:
        node = sub_topology.nodes[pending.pop()]
        children = () if isinstance(node, SinkNode) else node.children
        pending += [child for child in children if child not in reached]
        reached.update(children)
    return reached


def _parents(node: PlanNode) -> tuple[str, ...]:
    return () if isinstance(node, SourceNode) else node.parents


def _stores(nodes: list[PlanNode]) -> set[str]:
    return {store for node in nodes for store in getattr(node, "stores", ())}


def _topics(nodes: list[PlanNode]) -> set[str | None]:
    return {node.topic for node in nodes if isinstance(node, SinkNode)}


# Decides whether a program counts the size of its results: whether expressions can make one record much larger.
#
# The bound is computed along the nodes: at each node, by which factor a record can have grown since it was read.
# Most topologies stay far below the limits; their programs count nothing.


_RECORD = 1 << 20
"""Bytes of a record that is large for Kafka: its default for `message.max.bytes`."""
_STORED = frozenset(("aggregate",))
"""Names of values that come from a store, which may grow with each record."""


@dataclass
class Reach:
    """The output of one record that reaches a node: a factor of its size, further bytes, and work for each unit of its size."""

    times: float = 0.0
    more: float = 0.0
    work: float = 0.0
    many: bool = False
    """Whether a node above makes several records of one."""

    def add(self, other: Reach) -> None:
        """Add the output that arrives on another path."""
        self.times += other.times
        self.more += other.more
        self.work = max(self.work, other.work)
        self.many = self.many or other.many


def counts(sub_topology: SubTopology, max_bytes: int, max_steps: int) -> bool:
    """Return whether a sub-topology's program has to count the results of its expressions.

    max_bytes, max_steps: the settings `expression.max.bytes` and `expression.max.steps`; low ones lower the limits.
    """
    most_times = min(MOST_TIMES, max(1.0, max_bytes / _RECORD))
    most_work = min(MOST_WORK, max(1.0, max_steps / _RECORD))
    nodes = sub_topology.nodes
    reached: dict[str, Reach] = {}
    for name in _in_order(nodes):
        node, reach = nodes[name], Reach()
        if isinstance(node, SourceNode):
            reach.times = 1.0
        for parent in getattr(node, "parents", ()):
            if parent in reached:
                reach.add(reached[parent])
        reached[name] = passed = _after(node, reach)
        if passed.times > most_times or passed.more > min(MOST_BYTES, max_bytes) or passed.work > most_work:
            return True
    return False


def _after(node: PlanNode, reach: Reach) -> Reach:
    """Return the output of a node."""
    inside = [] if isinstance(node, SourceNode) else list(_growths(node))
    if isinstance(node, SourceNode):
        inside = [extractor.growth for extractor in node.timestamps.values() if isinstance(extractor, Expression)]
    times, more, work = 1.0, 0.0, 0.0
    for growth in inside:
        times = max(times, _times(growth, reach.many))
        more += growth.constant if not growth.is_none else 0.0
        work += growth.work if not growth.is_none else 0.0
        if any(growth.size.get(name, 0.0) > 1 for name in _STORED):
            # A stored value may have any size already.
            times = float("inf")
    processor = getattr(node, "processor", None)
    times *= _windows(processor) if inside else 1.0
    return Reach(
        reach.times * times,
        reach.more * times + more,
        reach.work + reach.times * work,
        reach.many or isinstance(processor, (FlatMap, FlatMapValues)),
    )


def holds_back(processor: object) -> bool:
    """Return whether a node forwards earlier records that it held back, and not the current one."""
    own = getattr(processor, "on_close", False) or getattr(processor, "holds_records", False)
    return isinstance(processor, Suppress) or bool(own)


def _times(growth: Growth, many: bool) -> float:
    if not many:
        return growth.factor
    # The constants of the expression are part of each of many records, which may have a single character.
    others = any(size for name, size in growth.size.items() if name != "value")
    return float("inf") if others and not growth.is_none else growth.factor + growth.constant / 2


def _windows(processor: object) -> float:
    """Return the number of windows that one record may belong to."""
    windows = getattr(processor, "windows", None)
    size, advance = getattr(windows, "size", 0), getattr(windows, "advance", 0)
    return size / advance if size and advance and size > advance else 1.0


def _growths(node: PlanNode) -> Iterator[Growth]:
    """Yield the bounds of a node's expressions; the expressions of a lookup count as one."""
    yield from _within(getattr(node, "processor", node))


def _within(part: object) -> Iterator[Growth]:
    if isinstance(part, Expression):
        yield part.growth
    elif isinstance(part, Getter):
        yield _looked_up(part)
    elif isinstance(part, tuple):
        for item in part:
            yield from _within(item)
    elif isinstance(part, Mapping):
        for item in part.values():
            yield from _within(item)
    elif dataclasses.is_dataclass(part) and not isinstance(part, type):
        for field in dataclasses.fields(part):
            if field.name not in ("origin", "on_error"):
                yield from _within(getattr(part, field.name))


def _looked_up(getter: Getter) -> Growth:
    """Return the bounds of the result of a lookup, whose expressions are applied one to the result of the other."""
    times, more, work = 1.0, 0.0, 0.0
    for field in dataclasses.fields(getter):
        part = getattr(getter, field.name)
        for growth in _within(part) if isinstance(part, (Getter, Expression)) else ():
            times *= max(growth.factor, 1.0)
            more += growth.constant
            work += growth.work
    return Growth({"value": times}, more, work * times)


def _in_order(nodes: Mapping[str, PlanNode]) -> list[str]:
    """Return the names of nodes, parents before their children."""
    waiting = {
        name: sum(1 for parent in getattr(node, "parents", ()) if parent in nodes) for name, node in nodes.items()
    }
    ready = [name for name, count in waiting.items() if not count]
    ordered: list[str] = []
    while ready:
        name = ready.pop()
        ordered.append(name)
        node = nodes[name]
        for child in () if isinstance(node, SinkNode) else node.children:
            waiting[child] -= 1
            if not waiting[child]:
                ready.append(child)
    return ordered
