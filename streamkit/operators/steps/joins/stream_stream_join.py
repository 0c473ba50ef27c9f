"""Joins of two streams within a window."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import TYPE_CHECKING, ClassVar

from streamkit.code import NONE, Code, call, compare, either, is_not_none, literal, method, symbol
from streamkit.expressions import Expression
from streamkit.graph.physical_topology import ProcessorGraphNode, StreamJoinNode
from streamkit.metrics import DropReason
from streamkit.operators.codegen.code_writer import CodeWriter, Node, Processor, Slot
from streamkit.operators.codegen.table_code import emit_process_call, joiner_function
from streamkit.operators.core.frozen import frozen
from streamkit.operators.core.operator import (
    BuildError,
    Context,
    PassThrough,
    Stream,
    check_key_serdes,
    repartition_node,
    required_serde,
)
from streamkit.operators.core.parsed_values import Step, StoreOptions
from streamkit.operators.core.step_stores import with_type
from streamkit.record import Key, RecordContext, Value
from streamkit.rounds import MANY, many
from streamkit.state.definitions import StoreDef, Volatile

if TYPE_CHECKING:
    from streamkit.operators.core.task_services import DecodeKey, Forward, Joiner, TaskServices
    from streamkit.state.stores.key_rows import JoinRow
    from streamkit.state.stores.stream_join_store import JoinWindowStore, OuterJoinStore, Waiting


RT = symbol("rt")


@frozen
class JoinWindow(Processor):
    """Forwards a record, then puts it into a window store for the other side (KStreamJoinWindow)."""

    store: str

    def emit(self, node: Node, gen: CodeWriter) -> None:
        record, store = gen.record, gen.stores[self.store]
        with gen.guard(node):
            key = gen.bytes_of(record.key, store.key_serde)
        # Join before putting the record, which must not join itself.
        gen.forward(node)
        with gen.when(is_not_none(key)), gen.guard(node):
            value = gen.bytes_of(record.value, store.value_serde)
            gen.do(method(gen.store(self.store), "put_bytes", key, value, record.time, gen.headers()))


@frozen
class StreamStreamJoin(Processor):
    """One side of a join (KStreamKStreamJoinLeftSide, KStreamKStreamJoinRightSide); times in milliseconds.

    before, after: how much earlier or later the other side's record may be. outer: whether unmatched records of this side
    are forwarded. peer: the other side's node, which shares stream time and the store of unmatched records.
    """

    kind: str
    is_left: bool
    outer: bool
    value: Expression
    store: str
    """The window store of the other side."""
    shared_store: str | None
    before: int
    after: int
    left_lookahead: int
    right_lookahead: int
    grace: int
    peer: str

    def emit(self, node: Node, gen: CodeWriter) -> None:
        key_serde = gen.stores[self.store].key_serde
        names = tuple(sorted((node.name, self.peer)))
        tracker = gen.instance(("tracker", names), "tracker", call(gen.name_of(TimeTracker, "TimeTracker")))
        times = (self.before, self.after, self.grace, self.left_lookahead, self.right_lookahead)
        work = call(
            gen.name_of(JoinWork, "JoinWork"),
            *map(literal, (*times, self.is_left, self.outer)),
            joiner_function(gen, self.value),
            gen.forward_function(node, False),
            gen.name_of(key_serde.decode, "decode"),
            gen.name_of(key_serde.same, "same"),
        )
        unmatched = NONE if self.shared_store is None else gen.store(self.shared_store)
        join = gen.name_of(StreamJoin, "StreamJoin")
        created = call(join, RT, gen.store(self.store), unmatched, tracker, work)
        self._emit_matches(node, gen, gen.instance(("join", node.name), "p", created), unmatched)

    def _emit_matches(self, node: Node, gen: CodeWriter, join: Code, unmatched: Code) -> None:
        """Write the loop that joins and forwards the other side's records."""
        record, store = gen.record, gen.stores[self.store]
        time, data, joined, later = gen.var("time"), gen.var("data"), gen.var("v"), gen.var("t")
        with gen.guard(node):
            raw_key = gen.bytes_of(record.key, store.key_serde)
            key, value = gen.object_of(record.key), gen.object_of(record.value)
            rows = method(join, "matches", raw_key, key, value, record.time, record.context)
            with gen.each((time, gen.var("n"), data), rows):
                other = gen.object_of(Slot(raw=data, serde=store.value_serde, never_none=True))
                if self.shared_store is not None:
                    gen.do(method(unmatched, "remove", raw_key, literal(not self.is_left), time, record.time))
                left, right = (value, other) if self.is_left else (other, value)
                gen.assign(joined, call(joiner_function(gen, self.value), key, left, right))
                gen.assign(later, either(compare(record.time, ">", time), record.time, time))
                gen.forward(node, value=Slot(joined), time=later)

    def why_nothing(self) -> str:
        return "no record of the other side is within its time"


@frozen
class SelfJoin(Processor):
    """A stream joined with itself over one store (KStreamKStreamSelfJoin)."""

    kind: str
    value: Expression
    store: str
    before: int
    after: int
    grace: int

    def emit(self, node: Node, gen: CodeWriter) -> None:
        definition = gen.stores[self.store]
        times = (self.before, self.after, self.grace, self.after, self.before)
        work = call(
            gen.name_of(JoinWork, "JoinWork"),
            *map(literal, (*times, True, False)),
            joiner_function(gen, self.value),
            gen.forward_function(node, False),
            gen.name_of(definition.key_serde.decode, "decode"),
            gen.name_of(definition.key_serde.same, "same"),
        )
        join = gen.name_of(SelfJoinKernel, "SelfJoin")
        created = call(join, RT, gen.store(self.store), literal(definition.retention), work)
        emit_process_call(node, gen, gen.instance(("join", node.name), "p", created), definition.key_serde)

    def why_nothing(self) -> str:
        return "no record of the other side is within its time"


@frozen
class _NodeNames:
    """The names of a join's nodes. generated, suffixes: the parts of the names of its window stores."""

    windowed: tuple[str, str]
    generated: tuple[str, str]
    suffixes: tuple[str, str]
    joined: tuple[str, str]
    merge: str

    @classmethod
    def of(cls, ctx: Context, given_name: str | None, kind: str) -> _NodeNames:
        """Return the names. Generated names take their indices in the order of KStreamImplJoin.join."""
        names = ctx.graph.names
        left_outer, right_outer = kind != "inner", kind == "outer"
        windowed = (
            names.named(given_name, "KSTREAM-WINDOWED-", "-this-windowed"),
            names.named(given_name, "KSTREAM-WINDOWED-", "-other-windowed"),
        )
        generated = (
            names.processor("KSTREAM-OUTERTHIS-" if right_outer else "KSTREAM-JOINTHIS-"),
            names.processor("KSTREAM-OUTEROTHER-" if left_outer else "KSTREAM-JOINOTHER-"),
        )
        suffixes = (
            "-outer-this-join" if right_outer else "-this-join",
            "-outer-other-join" if left_outer else "-other-join",
        )
        joined = generated if given_name is None else (given_name + suffixes[0], given_name + suffixes[1])
        return cls(windowed, generated, suffixes, joined, names.named(given_name, "KSTREAM-MERGE-", "-merge"))


def join_streams(step: Step, ctx: Context, left: Stream, right: Stream, kind: str) -> Stream:
    """Build an inner, left or outer join of two streams (KStreamImpl.doJoin, KStreamImplJoin)."""
    before, after = _window(step)
    check_key_serdes(step, left.key_serde, right.key_serde)
    left = _repartitioned(step, ctx, left, "-left")
    right = _repartitioned(step, ctx, right, "-right")
    sources = tuple(dict.fromkeys((*left.sources, *right.sources)))
    ctx.graph.copartition(sources)
    grace = step.get("grace") or 0
    left_outer, right_outer = kind != "inner", kind == "outer"
    names = _NodeNames.of(ctx, step.get("name"), kind)
    joined = names.joined
    join_stores = JoinStores.of(step, ctx.store_defaults.in_memory)
    stores = _window_stores(step, join_stores, names, (left, right), (before + after, grace))
    for name, store, side in zip(names.windowed, stores, (left, right), strict=True):
        window_node = ProcessorGraphNode(name, JoinWindow(store.name), stores=(store,))
        window_node.serdes = (store.key_serde, store.value_serde)
        ctx.graph.add(side.node, window_node)
    shared = (join_stores.shared(names.generated[0], kind, stores),) if left_outer else ()
    shared_name = shared[0].name if shared else None
    value = step.options["value"]
    left_side = StreamStreamJoin(
        kind, True, left_outer, value, stores[1].name, shared_name, before, after, after, before, grace, joined[1]
    )
    right_side = StreamStreamJoin(
        kind, False, right_outer, value, stores[0].name, shared_name, after, before, after, before, grace, joined[0]
    )
    node = StreamJoinNode(
        names.merge,
        names.windowed,
        ((joined[0], left_side, (stores[1].name, *shared)), (joined[1], right_side, (stores[0].name, *shared))),
        PassThrough(),
        (names.merge, SelfJoin(kind, value, stores[0].name, before, after, grace), (stores[0].name,)),
    )
    value_serde = step.get("value_serde", ctx.default_value)
    node.serdes = (stores[0].key_serde, value_serde)
    node.relaxed_null_key_join = left_outer
    ctx.graph.add((left.node, right.node), node)
    return Stream(names.merge, node, sources, stores[0].key_serde, value_serde)


def _window_stores(
    step: Step, stores: JoinStores, names: _NodeNames, sides: tuple[Stream, Stream], times: tuple[int, int]
) -> tuple[StoreDef, StoreDef]:
    """Return the window stores of both sides. times: the size of the window and the grace, in ms."""
    prefixes = names.generated if stores.base is None else tuple(stores.base + suffix for suffix in names.suffixes)
    left = stores.window(0, f"{prefixes[0]}-store", sides[0], times)
    right = stores.window(1, f"{prefixes[1]}-store", sides[1], times)
    if left.name == right.name:
        raise BuildError(step.at("other_store"), f"{step.operator}: both stores are called {left.name}")
    return left, right


def _window(step: Step) -> tuple[int, int]:
    within = step.get("within")
    if within is not None:
        return within, within
    if step.get("before") is None and step.get("after") is None:
        raise BuildError(
            step.position,
            f"{step.operator}: two streams join within a window; expected `within`, or `before` and `after`",
        )
    return step.get("before") or 0, step.get("after") or 0


def _repartitioned(step: Step, ctx: Context, stream: Stream, suffix: str) -> Stream:
    given_name = step.get("name")
    return repartition_for_join(step, ctx, stream, None if given_name is None else given_name + suffix)


def repartition_for_join(step: Step, ctx: Context, stream: Stream, base: str | None) -> Stream:
    """If a stream's keys have changed, return it after a repartition, which unnamed joins of the stream share."""
    if not stream.repartition_required:
        return stream
    serdes = (
        required_serde(stream.key_serde, "key", step, "the repartition topic"),
        required_serde(stream.value_serde, "value", step, "the repartition topic"),
    )
    repartition = repartition_node(ctx, base or stream.name, serdes)
    if stream.repartition is None or (base is not None and base != stream.name):
        stream.repartition = repartition
        ctx.graph.add(stream.node, repartition)
    return Stream(repartition.source_name, stream.repartition, (repartition.source_name,), serdes[0], serdes[1])


# The stores of a join of two streams (StreamJoined).

_SIDES = ("this_store", "other_store")


@frozen
class JoinStores:
    """The options of a join's stores. common: the options of all stores, with the prefix of their names; sides: the options of
    one side; in_memory: the default for stores without a `type`.

    The options of a side correspond to a WindowBytesStoreSupplier: such a store always has a changelog.
    """

    step: Step
    common: StoreOptions
    sides: tuple[StoreOptions | None, StoreOptions | None]
    in_memory: bool

    @classmethod
    def of(cls, step: Step, in_memory: bool) -> JoinStores:
        """Return the stores of a join. Raises BuildError for options that StreamJoined does not have."""
        _refuse(step, "store", "caching", "retention", "segment_interval", "versioned", "ttl")
        for side in _SIDES:
            _refuse(step, side, "caching", "logging", "config", "retention", "versioned", "ttl")
            _check_supplier(step, side)
        sides = (step.get(_SIDES[0]), step.get(_SIDES[1]))
        return cls(step, step.get("store") or StoreOptions(), sides, in_memory)

    @property
    def base(self) -> str | None:
        """The prefix of store names, instead of generated names (StreamJoined.withStoreName)."""
        return self.common.name

    def window(self, index: int, name: str, side: Stream, times: tuple[int, int]) -> StoreDef:
        """Return the store of one side. `name`: its default name; times: the size of the window and the grace, in ms."""
        own = self.sides[index]
        options = own or with_type(self.common, self.in_memory)
        name = own.name or name if own is not None else name
        logging = own is not None or self.common.logging is not False
        size, grace = times
        # Several rows share a key and start, and compaction would lose all but one. Java does not set this with a supplier.
        config = {} if own is not None else {**dict(self.common.config), "cleanup.policy": "delete"}
        return StoreDef(
            name=name,
            type="join_window",
            key_serde=required_serde(side.key_serde, "key", self.step, "the join's window"),
            value_serde=required_serde(side.value_serde, "value", self.step, "the join's window"),
            persistent=options.persistent is not False,
            caching=False,
            logging=logging,
            retention=size + grace,
            segment_interval=options.segment_interval,
            window_size=size,
            topic_config=config,
            changelog_topic=f"{name}-changelog" if logging else None,
        )

    def shared(self, this_name: str, kind: str, stores: tuple[StoreDef, ...]) -> StoreDef:
        """Return the store of both sides' unmatched records. Its generated name contains the index of the left side's node.

        It has the type of the join's stores, or by default the type of the left side's store (OuterStreamJoinStoreFactory).
        """
        this = self.sides[0]
        suffix = "-outer-shared-join" if kind == "outer" else "-left-shared-join"
        named = this.name if this is not None else self.base
        name = (named + suffix if named is not None else "KSTREAM-OUTERSHARED-" + this_name[-10:]) + "-store"
        logging = self.common.logging is not False
        typed_by = self.common if self.common.persistent is not None or this is None else this
        persistent = with_type(typed_by, self.in_memory and this is None).persistent
        return StoreDef(
            name=name,
            type="outer_join",
            key_serde=stores[0].key_serde,
            value_serde=stores[0].value_serde,
            persistent=persistent is not False,
            caching=False,
            logging=logging,
            topic_config=dict(self.common.config),
            changelog_topic=f"{name}-changelog" if logging else None,
            options={"right_serde": stores[1].value_serde},
        )


def _refuse(step: Step, option: str, *names: str) -> None:
    options: StoreOptions | None = step.get(option)
    if options is None:
        return
    for name in names:
        if getattr(options, name) not in (None, ()):
            position = options.position or step.at(option)
            raise BuildError(position, f"{step.operator}: `{option}` of a join of two streams takes no `{name}`")


def _check_supplier(step: Step, option: str) -> None:
    options: StoreOptions | None = step.get(option)
    if options is None:
        return
    position = options.position or step.at(option)
    if options.name is None:
        raise BuildError(position, f"{step.operator}: `{option}` needs a `name`")
    if options.segment_interval is not None and options.persistent is False:
        raise BuildError(position, f"{step.operator}: `segment_interval` is for persistent stores")


# The run-time part (KStreamKStreamJoin, KStreamJoinWindow, KStreamKStreamSelfJoin).

NO_TIMESTAMP = -1
NEVER = (1 << 63) - 1


class TimeTracker(Volatile):
    """The state that the two sides of a join share in a task: stream time and the time of the oldest unmatched record."""

    volatile: ClassVar[tuple[str, ...]] = ("stream_time", "min_time")

    __slots__ = ("min_time", "next_emit", "stream_time")

    def __init__(self) -> None:
        self.stream_time = NO_TIMESTAMP
        self.min_time = NEVER
        self.next_emit = 0


@frozen
class JoinWork:
    """The settings and functions of one side of a join; times in milliseconds."""

    before: int
    """How much earlier than this side's record the other side's record may be."""
    after: int
    grace: int
    left_lookahead: int
    """How long an unmatched record of the left side waits (the window's `after`)."""
    right_lookahead: int
    is_left: bool
    outer: bool
    """Whether unmatched records of this side are released."""
    joiner: Joiner
    forward: Forward
    decode_key: DecodeKey
    same_key: Callable[[Key, Key], bool]
    """Whether two decoded keys are equal."""


class StreamJoin:
    """One side of a join; `matches` is called for each of its records."""

    def __init__(
        self,
        rt: TaskServices,
        other: JoinWindowStore,
        unmatched: OuterJoinStore | None,
        tracker: TimeTracker,
        work: JoinWork,
    ):
        self._rt = rt
        self._between = other.between
        self._unmatched = unmatched
        self._tracker = tracker
        self._work = work
        self._before, self._after, self._outer = work.before, work.after, work.outer

    def matches(self, kb: bytes | None, k: Key, v: Value, t: int, c: RecordContext) -> Sequence[JoinRow]:
        """Return the other side's records within the window, in order; the caller joins them.

        First, expired unmatched records are released. A record without a match is forwarded, or waits.
        """
        tracker, unmatched = self._tracker, self._unmatched
        if t > tracker.stream_time:
            tracker.stream_time = t
        if k is None or kb is None or v is None:
            if k is None and v is not None and self._outer:
                self._work.forward(k, self._joined(k, v, None), t, c)
                return ()
            if kb is None or v is None:
                self._rt.dropped(DropReason.NULL)
                return ()
        if unmatched is not None and t == tracker.stream_time:
            self._release(unmatched, t, c)
        low, high = t - self._before, t + self._after
        if high < 0:
            high = 0
        rows = self._between(kb, low if low > 0 else 0, high)
        if not rows:
            if self._outer:
                self._no_match(kb, k, v, t, c, high)
        elif len(rows) > MANY:
            many(rows)
        return rows

    def _no_match(self, kb: bytes, k: Key, v: Value, t: int, c: RecordContext, high: int) -> None:
        work, tracker, unmatched = self._work, self._tracker, self._unmatched
        if unmatched is None or high < tracker.stream_time:
            work.forward(k, self._joined(k, v, None), t, c)
        else:
            tracker.min_time = min(tracker.min_time, t)
            unmatched.put(kb, work.is_left, v, t, t)

    def _joined(self, k: Key, this: Value, other: Value) -> Value:
        joiner = self._work.joiner
        return joiner(k, this, other) if self._work.is_left else joiner(k, other, this)

    def _release(self, unmatched: OuterJoinStore, t: int, c: RecordContext) -> None:
        """Forward, as unmatched, the records whose windows have closed (emitNonJoinedOuterRecords)."""
        work, tracker, rt = self._work, self._tracker, self._rt
        waits = tracker.min_time + work.after + work.grace
        # Java's sum overflows until a record has waited, so Java reads the store, which resets the throttle.
        if tracker.stream_time <= waits <= NEVER:
            return
        now = rt.now()
        if now < tracker.next_emit:
            return
        tracker.next_emit = now + rt.emit_intervals.joins
        tracker.min_time = NEVER
        open_sides: set[bool] = set()
        previous: Waiting | None = None
        previous_key: Key = None
        for entry, value in _one_by_one(unmatched.scan()):
            tracker.min_time = entry.timestamp
            if len(open_sides) == 2:
                break
            lookahead = work.left_lookahead if entry.left else work.right_lookahead
            if entry.timestamp + lookahead + work.grace >= tracker.stream_time:
                open_sides.add(entry.left)
                continue
            key = work.decode_key(entry.key)
            joined = work.joiner(key, value, None) if entry.left else work.joiner(key, None, value)
            work.forward(key, joined, entry.timestamp, c)
            # An entry is deleted when the next one is reached, after all its values are forwarded. If the next row's key
            # is equal but has other bytes, Java keeps this entry until the next release, and forwards it twice.
            if previous is not None and previous is not entry and not self._is_one(previous, previous_key, entry, key):
                unmatched.remove(previous.key, previous.left, previous.timestamp, t)
            previous, previous_key = entry, key
        if previous is not None:
            unmatched.remove(previous.key, previous.left, previous.timestamp, t)

    def _is_one(self, one: Waiting, one_key: Key, other: Waiting, other_key: Key) -> bool:
        """Return whether two entries are equal in Java (TimestampedKeyAndJoinSide.equals)."""
        alike = (one.timestamp, one.left) == (other.timestamp, other.left)
        return alike and self._work.same_key(one_key, other_key)


def _one_by_one(entries: Iterable[Waiting]) -> Iterator[tuple[Waiting, Value]]:
    """Yield each waiting value with its entry, because Java tracks times and open sides value by value."""
    for entry in entries:
        for value in entry.values:
            yield entry, value


class SelfJoinKernel(Volatile):
    """A stream joined with itself over one store (single.store.self.join)."""

    volatile: ClassVar[tuple[str, ...]] = ("_stream_time",)

    def __init__(self, rt: TaskServices, store: JoinWindowStore, retention: int, work: JoinWork):
        self._rt = rt
        self._store = store
        self._retention = retention
        self._work = work
        self._stream_time = NO_TIMESTAMP

    def process(self, kb: bytes | None, k: Key, v: Value, t: int, c: RecordContext) -> None:
        """Join a record with earlier records of both sides, and with itself, in the order of an inner join."""
        work = self._work
        if kb is None or v is None:
            self._rt.dropped(DropReason.NULL)
            return
        own = work.joiner(k, v, v)
        self._stream_time = max(self._stream_time, t)
        alone = t > self._stream_time - self._retention + 1
        for time, value in many(self._store.fetch(kb, max(0, t - work.before), max(0, t + work.after))):
            work.forward(k, work.joiner(k, v, value), max(t, time), c)
        for time, value in many(self._store.fetch(kb, max(0, t - work.after), max(0, t + work.before))):
            if t < time and alone:
                alone = False
                work.forward(k, own, t, c)
            work.forward(k, work.joiner(k, value, v), max(t, time), c)
        if alone:
            work.forward(k, own, t, c)
