"""`suppress`: buffers a table's updates, so that only the last of several is forwarded."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from streamkit.code import call, literal, method
from streamkit.errors import Problem, StreamkitError
from streamkit.graph.physical_topology import GraphNode, ProcessorGraphNode
from streamkit.operators.codegen.code_writer import CodeWriter, Node, Processor
from streamkit.operators.core.fields import NAME, Choice, DurationOr, Field, Flag, Integer, TopicConfig
from streamkit.operators.core.frozen import frozen
from streamkit.operators.core.operator import BuildError, Context, Operator, Table, TableWork, required_serde
from streamkit.operators.core.parsed_values import Step
from streamkit.operators.core.value_getters import Getter, SuppressGetter
from streamkit.record import FullContext, Operand, Value
from streamkit.state.definitions import StoreDef, Volatile
from streamkit.state.layouts import ProcessorRecordContext

if TYPE_CHECKING:
    from streamkit.operators.core.task_services import DecodeKey, ForwardChange
    from streamkit.state.stores.suppress_buffer import Eviction, SuppressBuffer


@frozen
class Suppress(Processor):
    """Buffers updates (KTableSuppressProcessorSupplier).

    duration: milliseconds after the buffer time. final: the buffer time is the window's end and tombstones are dropped;
    otherwise it is the time of the key's first update. A limit of None means unbounded. shut_down: a full buffer is an error;
    otherwise the oldest updates are emitted early.
    """

    store: str
    duration: int
    final: bool
    max_records: int | None
    max_bytes: int | None
    shut_down: bool

    needs_context: ClassVar[bool] = True

    def emit(self, node: Node, gen: CodeWriter) -> None:
        definition = gen.stores[self.store]
        limits = (self.duration, self.final, self.final, self.max_records, self.max_bytes, not self.shut_down)
        work = call(
            gen.name_of(SuppressWork, "SuppressWork"),
            literal(node.name),
            *map(literal, limits),
            gen.forward_function(node, True),
            gen.name_of(definition.key_serde.decode, "decode"),
        )
        created = call(gen.name_of(SuppressKernel, "Suppress"), gen.store(self.store), work)
        instance = gen.instance(("suppress", node.name), "p", created)
        record = gen.record
        assert record.old is not None
        with gen.guard(node):
            key = gen.bytes_of(record.key, definition.key_serde)
            parts = (
                key,
                gen.object_of(record.key),
                gen.object_of(record.value),
                gen.object_of(record.old),
                record.time,
                record.context,
            )
            gen.do(method(instance, "process", *parts))

    def why_nothing(self) -> str:
        return "it is held back until its time, or until the buffer is full"


class _SuppressWork(TableWork):
    def __init__(self, parent: Table, store: str):
        super().__init__()
        self.parent, self.store = parent, store
        # Looking up the last emitted value of a key requires old values in the buffer.
        parent.enable_old_values(True)

    def enable_old_values(self, force: bool) -> bool:
        return self.parent.enable_old_values(force)

    def view(self) -> Getter:
        return SuppressGetter(self.parent.getter(), self.store)

    def history(self) -> int | None:
        return None


def window_grace(node: GraphNode) -> int:
    """Return the time from the end of the upstream windows to their close, in ms (GraphGraceSearchUtil).

    Raises ValueError with the chain of nodes if there is no window.
    """
    stack: list[tuple[GraphNode, str]] = [(node, "")]
    graces: list[int] = []
    seen: set[GraphNode] = set()
    while stack:
        current, chain = stack.pop()
        if current in seen:
            continue
        seen.add(current)
        grace = getattr(current, "window_grace", None)
        if grace is not None:
            graces.append(grace)
            continue
        chain = f"{current.name}->{chain}" if chain else current.name
        if not current.parents:
            raise ValueError(chain)
        stack.extend((parent, chain) for parent in reversed(current.parents))
    return max(graces)


class SuppressOperator(Operator[Table]):
    """`suppress` (KTable.suppress)."""

    name: ClassVar[str] = "suppress"
    main = "until"
    fields = (
        Field(
            "until",
            DurationOr(("window_closes",)),
            "`window_closes`, or how long a key's updates are held back after the first one.",
            required=True,
        ),
        Field("max_records", Integer(), "The maximum number of keys in the buffer; unbounded by default."),
        Field("max_bytes", Integer(), "The maximum number of bytes in the buffer; unbounded by default."),
        Field("when_full", Choice(("emit_early", "shut_down")), "What happens when the buffer is full."),
        Field("logging", Flag(), "Whether the buffer has a changelog, from which it is restored.", default=True),
        Field(
            "config",
            TopicConfig(),
            "Settings of the changelog topic, which take precedence over `topic.` in the file's `config`.",
        ),
        NAME,
    )
    accepts = ("table",)
    summary = (
        "Holds back the updates of a table and forwards only the last of several: until the key's window closes, "
        "which gives one final result per window, or for a given time. The buffer is unbounded, or bounded by "
        "`max_records` and `max_bytes`; when it is full, the oldest updates are emitted early, or the application "
        "stops."
    )

    def check(self, step: Step) -> Iterable[Problem]:
        limited = step.get("max_records") is not None or step.get("max_bytes") is not None
        if step.get("when_full") is not None and not limited:
            yield Problem(step.at("when_full"), "suppress: `when_full` needs `max_records` or `max_bytes`")
        if step.get("until") == "window_closes" and step.get("when_full") == "emit_early":
            yield Problem(
                step.at("when_full"),
                "suppress: with `until: window_closes` results are never emitted early; use `when_full: shut_down`",
            )
        if step.get("logging") is False and step.get("config") is not None:
            yield Problem(
                step.at("config"), "suppress: `config` is for the changelog, which `logging: false` turns off"
            )

    def build(self, step: Step, upstream: Table, builder: Context) -> Table:
        if upstream.node.output_versioned:
            raise BuildError(step.position, "suppress() is only supported for non-versioned KTables")
        names = builder.graph.names
        given_name = step.get("name")
        # A given name takes no index here (KTableImpl.suppress).
        name = given_name if given_name is not None else names.processor("KTABLE-SUPPRESS-")
        final = step.options["until"] == "window_closes"
        duration = self._grace(step, upstream) if final else step.options["until"]
        store_name = f"{given_name}-store" if given_name is not None else names.store("KTABLE-SUPPRESS-")
        logging = step.get("logging") is not False
        store = StoreDef(
            name=store_name,
            type="suppress",
            key_serde=required_serde(upstream.key_serde, "key", step, "the buffer"),
            value_serde=required_serde(upstream.value_serde, "value", step, "the buffer"),
            persistent=False,
            caching=False,
            logging=logging,
            topic_config=dict(step.get("config") or ()),
            changelog_topic=f"{store_name}-changelog" if logging else None,
            options={"headers": True} if builder.store_defaults.headers else {},
        )
        work = _SuppressWork(upstream, store_name)
        shut_down = step.get("when_full", "shut_down" if final else "emit_early") == "shut_down"
        processor = Suppress(store_name, duration, final, step.get("max_records"), step.get("max_bytes"), shut_down)
        node = ProcessorGraphNode(name, processor, stores=(store,))
        node.serdes = (store.key_serde, store.value_serde)
        node.output_versioned = False
        builder.graph.add(upstream.node, node)
        builder.graph.suppressions.append(node)
        return Table(name, node, (upstream.name,), upstream.key_serde, upstream.value_serde, work)

    def _grace(self, step: Step, table: Table) -> int:
        try:
            return window_grace(table.node)
        except ValueError as error:
            raise BuildError(
                step.at("until"),
                "suppress: window_closes needs a table of windows; write a `window` before the aggregation, or "
                f"`suppress: {{until: 10s}}`. Window close time is only defined for windowed computations. Got "
                f"[{error}].",
            ) from error


# The run-time part (KTableSuppressProcessorSupplier).


@frozen
class SuppressWork:
    """The settings of a suppress node; times in milliseconds, sizes in bytes, None: no bound."""

    node_name: str
    duration: int
    """How long an entry waits after its buffer time; with closing windows, the grace."""
    by_window_end: bool
    """Whether buffer time is the window's end rather than the record's time."""
    drop_tombstones: bool
    max_records: int | None
    max_bytes: int | None
    emit_early: bool
    forward: ForwardChange
    decode_key: DecodeKey


class SuppressKernel(Volatile):
    """The work of one node."""

    volatile: ClassVar[tuple[str, ...]] = ("_observed",)

    def __init__(self, buffer: SuppressBuffer, work: SuppressWork):
        self._buffer = buffer
        self._work = work
        self._observed = -1

    def process(self, kb: bytes, k: Operand, new: Value, old: Value, t: int, c: FullContext) -> None:
        """Buffer a change, forward the updates that are due, and keep the buffer within its bounds.

        Raises StreamkitError if the buffer is full and must not emit early.
        """
        work, buffer = self._work, self._buffer
        if t > self._observed:
            self._observed = t
        headers, topic, partition, offset = c
        context = ProcessorRecordContext(t, offset, topic, partition, headers)
        buffer.put(k.end if work.by_window_end else t, kb, new, old, context)
        for entry in buffer.evict_until(self._observed - work.duration):
            self._emit(entry)
        while self._is_full():
            if not work.emit_early:
                raise StreamkitError(
                    f"{work.node_name} buffer exceeded its max capacity. Currently "
                    f"[{buffer.count}/{_shown(work.max_records)}] "
                    f"records and [{buffer.size}/{_shown(work.max_bytes)}] bytes."
                )
            oldest = buffer.first()
            assert oldest is not None
            self._emit(oldest)
            buffer.remove_first()

    def _is_full(self) -> bool:
        work, buffer = self._work, self._buffer
        too_many = work.max_records is not None and buffer.count > work.max_records
        return too_many or (work.max_bytes is not None and buffer.size > work.max_bytes)

    def _emit(self, entry: Eviction) -> None:
        work = self._work
        if entry.new is not None or not work.drop_tombstones:
            at = entry.context
            context = (at.headers, at.topic, at.partition, at.offset)
            current = self._buffer.topic
            saved_size, current.size = current.size, len(at.topic or "")
            work.forward(work.decode_key(entry.key), entry.new, entry.old, at.timestamp, context, True)
            current.size = saved_size


def _shown(bound: int | None) -> int:
    # Java prints Long.MAX_VALUE for an unbounded buffer.
    return (1 << 63) - 1 if bound is None else bound
