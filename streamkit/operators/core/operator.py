"""The base class of operators (steps of the language), and the objects of the DSL that they build on."""

from __future__ import annotations

import re
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar, Generic, Protocol, TypeAlias, TypedDict, TypeVar, Unpack

from streamkit.config import Config
from streamkit.errors import Position, Problem, StreamkitError
from streamkit.expressions.expression import Expression
from streamkit.expressions.infer import infer
from streamkit.expressions.types import ANY, BOOLEAN, INTEGER, NUMBER, OneOf, Type, WindowedKey, item, one_of
from streamkit.graph.builder import GraphBuilder
from streamkit.graph.physical_topology import GraphNode, ProcessorGraphNode, RepartitionNode
from streamkit.operators.codegen.code_writer import CodeWriter, Node, Processor
from streamkit.operators.core.fields import Field
from streamkit.operators.core.frozen import frozen
from streamkit.operators.core.parsed_values import BranchSpec, Ref, Step, Windows
from streamkit.operators.core.value_getters import Getter, StoreGetter
from streamkit.serdes.serde import Serde
from streamkit.state.definitions import StoreDef

UpstreamT = TypeVar("UpstreamT", bound="Upstream")


class BuildError(StreamkitError):
    """A user's mistake in a step (TopologyException). It has no problems if the cause is a mistake elsewhere."""

    def __init__(self, position: Position | None = None, message: str = ""):
        self.problems = [Problem(position, message)] if position is not None else []
        super().__init__("\n".join(map(str, self.problems)))


def misplaced(step: Step, option: str, where: str, upstream: str) -> BuildError:
    """Return the error of an option that is not for a step's upstream."""
    return BuildError(
        step.at(option), f"{step.operator}: `{option}` is for {where}; this step's upstream is {upstream}"
    )


@frozen
class Example:
    """A runnable example: a complete topology file, its input and its output as JSON Lines (checked by a test)."""

    topology: str
    input: str
    output: str
    files: Mapping[str, str] = field(default_factory=dict)
    """The Python modules beside the file: their text by name, such as `words.py`."""
    title: str = ""
    """The sentence above the example; optional for the first example of a step."""


class StepDeclaration:
    """What users see of a step: its name, its options and its docs."""

    name: ClassVar[str]
    main: ClassVar[str | None] = None
    """The field that takes a plain value after the step's name, if any."""
    fields: ClassVar[tuple[Field, ...]] = ()
    """All options except `on_error`, which every Operator takes. `name` is included if the DSL call takes one."""
    is_extension: ClassVar[bool] = False
    """Whether the step is streamkit's own, without an equivalent in the DSL of Kafka Streams."""
    accepts: ClassVar[tuple[str, ...]] = ("stream",)
    """The kinds of upstream that the step accepts: the `kind` of each class in `Upstream`."""
    summary: ClassVar[str] = ""
    """A paragraph of Markdown for the language reference."""
    example: ClassVar[Example]
    """The step's example, unless it is in NAME.yaml beside the module (`spec.language_reference.examples_of`)."""


class Operator(StepDeclaration, ABC, Generic[UpstreamT]):
    """One step of the language: a stateless object in `operators.OPERATORS`.

    `UpstreamT`: the classes of upstreams that the step accepts.
    """

    def check(self, step: Step) -> Iterable[Problem]:
        """Return the problems of the step's combination of options, regardless of its upstream."""
        return ()

    @abstractmethod
    def build(self, step: Step, upstream: UpstreamT, builder: Context) -> Upstream:
        """Make the DSL call on `upstream`, and return its result, which is the upstream of the next step.

        `upstream` has one of the kinds in `accepts`. Raises BuildError for a user's mistake.
        """

    def types(self, inference: TypeInference) -> Types:
        """Check the fields in the step's expressions, and return the types of the step's keys and values.

        The default implementation returns the upstream's types.
        """
        return inference.unchanged_types()


AnyOperator: TypeAlias = Operator[Any]
"""An operator with any kinds of upstream; `accepts` lists them at run time."""


# The services of the plan that a step's `build` uses.


@frozen
class StoreDefaults:
    """What stores of the DSL are like if their steps do not specify it.

    in_memory: for stores that Java creates with the builder's settings; supplied_in_memory: for stores that depend only on
    dsl.store.suppliers.class, because Java creates their Materialized without the builder (KTableImpl.filter and mapValues,
    SubscriptionStoreFactory). headers: whether their rows have headers (dsl.store.format).
    """

    in_memory: bool = False
    supplied_in_memory: bool = False
    headers: bool = False

    @classmethod
    def of(cls, config: Config) -> StoreDefaults:
        """Read the settings of a Config."""
        return cls(config.dsl_in_memory, config.supplied_in_memory, config.dsl_store_format == "HEADERS")


class Context(Protocol):
    """The plan that is being built, as seen by operators."""

    graph: GraphBuilder
    default_key: Serde
    default_value: Serde
    store_defaults: StoreDefaults

    def resolve(self, ref: Ref, step: Step) -> Upstream:
        """Return the upstream that a reference names, and build its pipeline first if necessary."""

    def serde(self, spec: object) -> Serde:
        """Return a serde from its name or mapping in the language."""

    def custom_store(self, name: str, step: Step) -> StoreDef | str:
        """Return the definition of one of the file's `stores`, or the name itself if a step creates the store."""

    def build_branch(self, upstream: Stream, branch: BranchSpec) -> Upstream | None:
        """Build the steps and ends below a branch; return the upstream that `P.BRANCH` names, None after a mistake."""


# The serdes of a stream or table. Merged streams may have different serdes.


@frozen
class Disagreement:
    """The different serdes of merged streams; an error only if a single serde is needed."""

    serdes: tuple[Serde, ...]

    def __str__(self) -> str:
        return " and ".join(str(serde.spec) for serde in self.serdes)


AnySerde = Serde | Disagreement


def common_serde(*serdes: AnySerde) -> AnySerde:
    """Return the common serde, or the disagreement."""
    flat: dict[Serde, None] = {}
    for serde in serdes:
        flat.update(dict.fromkeys(serde.serdes if isinstance(serde, Disagreement) else (serde,)))
    return next(iter(flat)) if len(flat) == 1 else Disagreement(tuple(flat))


def required_serde(serde: AnySerde, what: str, step: Step, purpose: str) -> Serde:
    """Return the serde. Raises BuildError if merged streams have different serdes.

    what: "key" or "value"; purpose: the part that needs it, as in "the repartition topic".
    """
    if isinstance(serde, Disagreement):
        raise BuildError(
            step.position,
            f"{step.operator}: the merged streams have different {what} serdes ({serde}), so {purpose} can't be "
            f"written; choose one with `{what}_serde` (here, or in an earlier `map_values` or `repartition`)",
        )
    return serde


def serde_or_none(serde: AnySerde) -> Serde | None:
    """Return a serde for the Plan; None if merged streams have different serdes and no step needs one."""
    return None if isinstance(serde, Disagreement) else serde


def check_key_serdes(step: Step, one: AnySerde, other: AnySerde, position: Position | None = None) -> None:
    """Raise BuildError if the names of two serdes show that they encode the same key differently."""
    if isinstance(one, Disagreement) or isinstance(other, Disagreement):
        return
    if isinstance(one.spec, str) and isinstance(other.spec, str) and one.spec != other.spec:
        raise BuildError(
            position or step.at("with"),
            f"{step.operator}: the keys never match: their serde is {one.spec} here and {other.spec} there",
        )


# The inferred types of keys and values between steps, and the inference that checks a step's expressions.


@frozen
class Types:
    """The inferred types of the keys and values of a stream or a table."""

    key: Type = ANY
    value: Type = ANY


def common_types(types: list[Types]) -> Types:
    """Return the union of several key types, and of their value types."""
    return Types(one_of(pair.key for pair in types), one_of(pair.value for pair in types))


_NUMBERS = {"int": INTEGER, "float": NUMBER, "bool": BOOLEAN}


class TypeInference:
    """Infers the types of a step's expressions.

    `upstream_types`: the types of its upstream; `referred_types`: the types of the upstreams that its options refer to, in the
    order of the references. ends: the upstream of the step, and its result. `problems`: non-existent fields in its expressions.
    """

    def __init__(self, step: Step, ends: tuple[Upstream, Upstream], upstream_types: Types, referred_types: list[Types]):
        self.step = step
        self.upstream, self.result = ends
        self.upstream_types = upstream_types
        self.referred_types = referred_types
        self.problems: list[Problem] = []

    @property
    def aggregated_key(self) -> Type:
        """The key type of an aggregation's result, which includes the window if the upstream is windowed."""
        on_window = self.upstream.kind in ("windowed_stream", "windowed_cogroup")
        return WindowedKey(self.upstream_types.key) if on_window else self.upstream_types.key

    def option_type(self, option: str, **names: Type) -> Type:
        """Return the type of an option's expression; ANY if the option is absent. `names`: the types of names other than key and value."""
        return self.type_of(self.step.get(option), **names)

    def item_type(self, option: str) -> Type:
        """Return the type of the items of an option's expression, and add a problem if it has none, as a number has none."""
        inferred, expression = self.option_type(option), self.step.get(option)
        kind = expression.result_kind if isinstance(expression, Expression) else None
        type_ = _NUMBERS.get(kind or "", inferred)
        choices = type_.choices if isinstance(type_, OneOf) else (type_,)
        if all(choice in _NUMBERS.values() for choice in choices):
            text = f"{self.step.operator}: {option!r} is {type_.word}; expected a list, or another value with items"
            self.problems.append(Problem(self.step.at(option), text))
        return item(type_)

    def type_of(self, expression: object, **names: Type) -> Type:
        """Return the type of an expression, ANY for other objects, and add non-existent fields in it to `problems`."""
        if not isinstance(expression, Expression):
            return ANY
        return infer(
            expression, {"key": self.upstream_types.key, "value": self.upstream_types.value, **names}, self.problems
        )

    def unchecked_type(self, option: str, **names: Type) -> Type:
        """Return the type of an option's expression like `option_type`, but without recording its problems."""
        known = len(self.problems)
        result_type = self.option_type(option, **names)
        del self.problems[known:]
        return result_type

    def stored_type(self, type_: Type) -> Type:
        """Return the type of a value as the step computes it, or as the serde of the result decodes it."""
        return _either(type_, self.result, "value_serde")

    def encoded_type(self, type_: Type) -> Type:
        """Return the type of a value that the result's serde has encoded; values that can't be encoded are ruled out."""
        takes = getattr(getattr(self.result, "value_serde", None), "takes", None)
        return one_of(takes) if type_ is ANY and takes else self.stored_type(type_)

    def result_types(self, types: Types) -> Types:
        """Return the types of the step's result, which may have been read back from a topic or a store."""
        return Types(_either(types.key, self.result, "key_serde"), self.stored_type(types.value))

    def unchanged_types(self) -> Types:
        """Check all expressions of a step that changes neither keys nor values, and return the types of its upstream."""
        runs_python = False
        for value in self.step.options.values():
            expressions = [part for _, part in value] if isinstance(value, tuple) and _is_headers(value) else [value]
            for expression in expressions:
                self.type_of(expression)
                runs_python = runs_python or getattr(expression, "runs_python", False)
        # The user's Python code may change the value in place.
        return Types(self.upstream_types.key) if runs_python else self.upstream_types


def _either(type_: Type, result: Upstream, side: str) -> Type:
    upstream_type = getattr(getattr(result, side, None), "type", ANY)
    return type_ if upstream_type is ANY else one_of([type_, upstream_type])


def _is_headers(value: tuple[object, ...]) -> bool:
    return all(isinstance(part, tuple) and len(part) == 2 for part in value)


# The objects of the DSL that steps build on: streams, tables, groups and windows.


class StreamChanges(TypedDict, total=False):
    """The parts of a stream that a step's node replaces."""

    sources: tuple[str, ...]
    key_serde: AnySerde
    value_serde: AnySerde
    repartition_required: bool


@dataclass(eq=False)
class Stream:
    """A KStream. `sources`: the names of its source nodes, for co-partitioning."""

    kind: ClassVar[str] = "stream"
    label: ClassVar[str] = "a stream"
    name: str
    node: GraphNode
    sources: tuple[str, ...]
    key_serde: AnySerde
    value_serde: AnySerde
    repartition_required: bool = False
    repartition: RepartitionNode | None = None
    """The node that unnamed joins on this stream share."""

    def below(self, name: str, node: GraphNode, **changes: Unpack[StreamChanges]) -> Stream:
        """Return the stream below a node; `changes` are the properties that the node changes."""
        return replace(self, name=name, node=node, repartition=None, **changes)


class TableWork(ABC):
    """The properties of a table's processor that later steps may still change (KTableProcessorSupplier)."""

    def __init__(self) -> None:
        self.send_old = False

    @abstractmethod
    def enable_old_values(self, force: bool) -> bool:
        """Make the node send old values; with `force`, materialize tables if necessary. Return whether it sends them."""

    @abstractmethod
    def view(self) -> Getter:
        """Return the lookup of the table's values, materializing the sources that it reads."""

    @abstractmethod
    def history(self) -> int | None:
        """Return how many ms into the past lookups as of a timestamp reach; None if the table's rows have no versions."""


class SourceWork(TableWork):
    """A table that comes directly from a topic or a stream (KTableSource). It gets a store once a step needs one."""

    def __init__(self, store: StoreDef, materialized: bool):
        super().__init__()
        self.store = store
        self.materialized = materialized

    def enable_old_values(self, force: bool) -> bool:
        if not force and not self.materialized:
            return False
        self.send_old = self.materialized = True
        return True

    def view(self) -> Getter:
        self.materialized = True
        return StoreGetter.of(self.store)

    def history(self) -> int | None:
        return self.store.history

    def definition(self) -> StoreDef | None:
        """Return the store's definition; None if no step needs the store."""
        return self.store if self.materialized else None

    def definitions(self) -> list[StoreDef]:
        """Return the store's definition, if any, for `ProcessorGraphNode.stores`."""
        return [self.store] if self.materialized else []


class AggregateWork(TableWork):
    """The result of an aggregation, which always has a store (KStreamAggProcessorSupplier, KTableAggregate)."""

    def __init__(self, store: StoreDef):
        super().__init__()
        self.store = store

    def enable_old_values(self, force: bool) -> bool:
        self.send_old = True
        return True

    def view(self) -> Getter:
        return StoreGetter.of(self.store)

    def history(self) -> int | None:
        return self.store.history


class DerivedWork(TableWork):
    """A table that is computed row by row from another table. It has a store only if the step names one.

    For KTableFilter, KTableMapValues and KTableTransformValues. `computed` makes the lookup that computes a value from the
    parent's lookup.
    """

    def __init__(self, parent: Table, store: StoreDef | None, computed: Callable[[Getter], Getter]):
        super().__init__()
        self.parent, self.store = parent, store
        self._computed = computed

    def enable_old_values(self, force: bool) -> bool:
        if self.store is not None or self.parent.enable_old_values(force):
            self.send_old = True
        return self.send_old

    def view(self) -> Getter:
        return self._computed(self.parent.getter()) if self.store is None else StoreGetter.of(self.store)

    def history(self) -> int | None:
        return self.parent.work.history() if self.store is None else self.store.history


@dataclass(eq=False)
class Table:
    """A KTable."""

    kind: ClassVar[str] = "table"
    label: ClassVar[str] = "a table"
    name: str
    node: GraphNode
    sources: tuple[str, ...]
    key_serde: AnySerde
    value_serde: AnySerde
    work: TableWork
    send_old: bool = False

    def enable_old_values(self, force: bool) -> bool:
        """Make the table send old values; return whether it does (KTableImpl.enableSendingOldValues)."""
        if not self.send_old:
            self.send_old = self.work.enable_old_values(force)
        return self.send_old

    def getter(self) -> Getter:
        """Return the lookup of values for joins (KTableImpl.valueGetterSupplier)."""
        return self.work.view()


@dataclass(eq=False)
class GlobalTable:
    """A GlobalKTable."""

    kind: ClassVar[str] = "global_table"
    label: ClassVar[str] = "a global table"
    store: str
    key_serde: AnySerde
    value_serde: AnySerde


@dataclass(eq=False)
class TopicStore:
    """A store of the file that is filled from a topic; no step builds on it."""

    kind: ClassVar[str] = "topic_store"
    label: ClassVar[str] = "a store that is filled from a topic"
    store: str


@dataclass(eq=False)
class GroupedStream:
    """A KGroupedStream. `given_name`: its Grouped name."""

    kind: ClassVar[str] = "grouped_stream"
    label: ClassVar[str] = "a grouped stream"
    name: str
    node: GraphNode
    sources: tuple[str, ...]
    key_serde: AnySerde
    value_serde: AnySerde
    repartition_required: bool
    given_name: str | None = None
    repartition: RepartitionNode | None = None
    """The node that aggregations of a named group share."""


@dataclass(eq=False)
class GroupedTable:
    """A KGroupedTable."""

    kind: ClassVar[str] = "grouped_table"
    label: ClassVar[str] = "a grouped table"
    name: str
    node: GraphNode
    key_serde: AnySerde
    value_serde: AnySerde
    given_name: str | None = None
    repartition: RepartitionNode | None = None


@dataclass(eq=False)
class CogroupedStream:
    """A CogroupedKStream: groups, each with its own `add` to the common aggregate."""

    kind: ClassVar[str] = "cogrouped"
    label: ClassVar[str] = "a cogrouped stream"
    inputs: dict[GroupedStream, Expression]
    parents: dict[GroupedStream, GraphNode] = field(default_factory=dict)
    """The parents of the groups' aggregations, which the aggregations of a cogroup share."""


@dataclass(eq=False)
class WindowedStream:
    """A grouped or cogrouped stream with windows (TimeWindowedKStream, SessionWindowedKStream, …)."""

    kind: ClassVar[str] = "windowed_stream"
    label: ClassVar[str] = "a windowed stream"
    group: GroupedStream
    windows: Windows
    emit_on_close: bool = False


@dataclass(eq=False)
class WindowedCogroup:
    """A cogrouped stream with windows (TimeWindowedCogroupedKStream, …)."""

    kind: ClassVar[str] = "windowed_cogroup"
    label: ClassVar[str] = "a windowed cogrouped stream"
    group: CogroupedStream
    windows: Windows


@dataclass(eq=False)
class Branches:
    """The result of a branch step: the streams of its branches; it is not a stream itself."""

    kind: ClassVar[str] = "branches"
    label: ClassVar[str] = "a set of branches"
    branches: dict[str, Upstream | None]
    """None for a branch with a mistake in it."""


Upstream: TypeAlias = (
    Stream
    | Table
    | GlobalTable
    | TopicStore
    | GroupedStream
    | GroupedTable
    | CogroupedStream
    | WindowedStream
    | WindowedCogroup
    | Branches
)
"""The upstream of a step, or its result."""


# Nodes that several steps add: pass-through nodes, repartition nodes, and the nodes of steps on streams.


@frozen
class PassThrough(Processor):
    """Forwards every record unchanged (PassThrough)."""

    def emit(self, node: Node, gen: CodeWriter) -> None:
        gen.forward(node)


@frozen
class TablePassThrough(Processor):
    """Forwards every change unchanged (KTablePassThrough)."""

    def emit(self, node: Node, gen: CodeWriter) -> None:
        gen.forward(node)


# Repartition nodes: their names, and the filter before the topic (KStreamImpl.createRepartitionedSource).

SUFFIX = "-repartition"
_GENERATED = re.compile(r"KSTREAM.*-[0-9]{10}")


@frozen
class RepartitionFilter(Processor):
    """The filter before a repartition topic. Without `drop_null_keys` it forwards all records."""

    drop_null_keys: bool

    def emit(self, node: Node, gen: CodeWriter) -> None:
        if self.drop_null_keys:
            gen.only_where(gen.record.key.is_not_none())
            gen.record.key.never_none = True
        gen.forward(node)

    def why_nothing(self) -> str:
        return "its key is null, so it has no partition"


def repartition_node(
    ctx: Context,
    base: str,
    serdes: tuple[Serde, Serde],
    optimizable: bool = True,
    partitions: int | None = None,
    partition: Expression | None = None,
) -> RepartitionNode:
    """Return a repartition node whose name is derived from `base`. Its generated names use up three indices."""
    generated = tuple(
        ctx.graph.names.processor(prefix) for prefix in ("KSTREAM-SINK-", "KSTREAM-FILTER-", "KSTREAM-SOURCE-")
    )
    topic = base if base.endswith(SUFFIX) else base + SUFFIX
    if _GENERATED.fullmatch(base) is None:
        generated = (f"{topic}-sink", f"{topic}-filter", f"{topic}-source")
    return RepartitionNode(
        (generated[0], generated[1], generated[2]),
        topic,
        serdes,
        optimizable=optimizable,
        partitions=partitions,
        partition=partition,
        make_filter=RepartitionFilter,
    )


# Adds the node of a step to a stream.


def add_stream_node(
    upstream: Stream, builder: Context, name: str, processor: Processor, **changes: Unpack[StreamChanges]
) -> Stream:
    """Add a node below a stream, and return the stream below the node; `changes` are the properties that the node changes."""
    key_changing = changes.get("repartition_required", False)
    node = ProcessorGraphNode(
        name, processor, key_changing=key_changing, value_changing="value_serde" in changes and not key_changing
    )
    builder.graph.add(upstream.node, node)
    result = upstream.below(name, node, **changes)
    node.serdes = (serde_or_none(result.key_serde), serde_or_none(result.value_serde))
    return result
