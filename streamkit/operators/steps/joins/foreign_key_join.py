"""Joins of two tables by a foreign key of the left row: subscriptions are sent, responses come back (KIP-213)."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from struct import Struct
from typing import TYPE_CHECKING, NamedTuple

from streamkit.code import call, literal, method, symbol, tuple_of
from streamkit.errors import SerdeError
from streamkit.expressions import Expression
from streamkit.graph.physical_topology import (
    GraphNode,
    ProcessorGraphNode,
    SinkDescription,
    SourceDescription,
    StreamSinkNode,
    StreamSourceNode,
)
from streamkit.metrics import DropReason
from streamkit.operators.codegen.code_writer import CodeWriter, Node, Processor
from streamkit.operators.codegen.table_code import (
    drop_null_keys,
    drop_superseded,
    emit_process_call,
    forward_by_bytes,
    lookup_function,
    serdes_of,
)
from streamkit.operators.core.frozen import frozen
from streamkit.operators.core.operator import Context, SourceWork, Table, required_serde
from streamkit.operators.core.parsed_values import Step
from streamkit.operators.core.step_stores import is_named, materialize, refuse_nameless_ttl
from streamkit.operators.core.value_getters import Getter
from streamkit.operators.steps.topics.source import source_work
from streamkit.record import Headers, Key, RecordContext, Value
from streamkit.rounds import MANY, ROW, count_bytes
from streamkit.serdes.partitioner import murmur3_128
from streamkit.serdes.serde import Serde
from streamkit.state.definitions import StoreDef

if TYPE_CHECKING:
    from streamkit.operators.core.task_services import Forward, Lookup, TaskServices
    from streamkit.state.stores.key_value import SubscriptionStore


PREFIX = "KTABLE-FK-JOIN-"
RT = symbol("rt")


@frozen
class ForeignKeyJoin:
    """The common settings of a foreign-key join's nodes. topic: the subscriptions' topic, without prefix."""

    left: bool
    topic: str
    response_topic: str
    key_serde: Serde
    value_serde: Serde
    """The serde of the left table's values."""
    foreign_key_serde: Serde
    foreign_value_serde: Serde


@frozen
class SubscriptionSend(Processor):
    """Sends each change of a left row to the foreign key's partition (SubscriptionSendProcessorSupplier)."""

    join: ForeignKeyJoin
    on: Expression
    versioned_parent: bool

    def emit(self, node: Node, gen: CodeWriter) -> None:
        record = gen.record
        assert record.old is not None
        extract = gen.callable_of(self.on, {"key": "k", "value": "v"}, "t", "c")
        serdes = serdes_of(gen, (self.join.key_serde, self.join.value_serde, self.join.foreign_key_serde))
        sender = gen.name_of(SubscriptionSender, "SubscriptionSender")
        created = call(sender, RT, literal(self.join.left), extract, serdes, gen.forward_function(node, False))
        instance = gen.instance(("send", node.name), "p", created)
        drop_null_keys(gen)
        drop_superseded(gen, self.versioned_parent)
        with gen.guard(node):
            arguments = (
                gen.object_of(record.key),
                gen.object_of(record.value),
                gen.object_of(record.old),
                record.time,
                record.context,
            )
            gen.do(method(instance, "process", *arguments))


@frozen
class SubscriptionReceive(Processor):
    """Puts subscriptions into a store, by foreign key and key (SubscriptionReceiveProcessorSupplier)."""

    join: ForeignKeyJoin
    store: str

    def emit(self, node: Node, gen: CodeWriter) -> None:
        receiver = gen.name_of(SubscriptionReceiver, "SubscriptionReceiver")
        created = call(receiver, RT, gen.store(self.store), gen.forward_function(node, False))
        instance = gen.instance(("receive", node.name), "p", created)
        with gen.guard(node):
            record = gen.record
            key = gen.bytes_of(record.key, self.join.foreign_key_serde)
            value, headers = gen.object_of(record.value), gen.headers()
            gen.do(method(instance, "process", key, value, record.time, record.context, headers))


@frozen
class SubscriptionJoin(Processor):
    """Responds to a subscription with the foreign row (SubscriptionJoinProcessorSupplier)."""

    join: ForeignKeyJoin
    foreign: Getter

    def emit(self, node: Node, gen: CodeWriter) -> None:
        encode = gen.name_of(self.join.foreign_value_serde.encode, "encode")
        forward = forward_by_bytes(gen, node, self.join.key_serde)
        join = gen.name_of(SubscriptionJoinKernel, "SubscriptionJoin")
        created = call(join, lookup_function(gen, self.foreign), encode, forward)
        instance = gen.instance(("subscription", node.name), "p", created)
        with gen.guard(node):
            # Key and value are the foreign key's bytes and the subscription, as SubscriptionReceive forwards them.
            record = gen.record
            gen.do(
                method(
                    instance,
                    "process",
                    gen.object_of(record.key),
                    gen.object_of(record.value),
                    record.time,
                    record.context,
                )
            )


@frozen
class ForeignTableJoin(Processor):
    """Responds to all subscriptions to a foreign row that changes (ForeignTableJoinProcessorSupplier)."""

    join: ForeignKeyJoin
    store: str
    versioned_parent: bool

    def emit(self, node: Node, gen: CodeWriter) -> None:
        encode = gen.name_of(self.join.foreign_value_serde.encode, "encode")
        forward = forward_by_bytes(gen, node, self.join.key_serde)
        join = gen.name_of(ForeignTableJoinKernel, "ForeignTableJoin")
        created = call(join, RT, gen.store(self.store), encode, forward)
        instance = gen.instance(("foreign", node.name), "p", created)
        drop_superseded(gen, self.versioned_parent)
        with gen.guard(node):
            record = gen.record
            key = gen.bytes_of(record.key, self.join.foreign_key_serde)
            gen.do(method(instance, "process", key, gen.object_of(record.value), record.time, record.context))


@frozen
class ResponseJoin(Processor):
    """Joins a response with the left row, unless that has changed since (ResponseJoinProcessorSupplier)."""

    join: ForeignKeyJoin
    value: Expression
    primary: Getter

    def emit(self, node: Node, gen: CodeWriter) -> None:
        joined = gen.callable_of(self.value, {"key": "k", "left": "left", "right": "right"}, "t", "c")
        serdes = serdes_of(gen, (self.join.value_serde, self.join.foreign_value_serde))
        join = gen.name_of(ResponseJoinKernel, "ResponseJoin")
        primary = lookup_function(gen, self.primary)
        work = tuple_of(joined, gen.forward_function(node, False))
        created = call(join, RT, literal(self.join.left), primary, serdes, work)
        instance = gen.instance(("response", node.name), "p", created)
        drop_null_keys(gen)
        emit_process_call(node, gen, instance, self.join.key_serde)


def join_foreign_key(step: Step, ctx: Context, left: Table, right: Table, is_left_join: bool) -> Table:
    """Build a foreign-key join (KTableImpl.doJoinOnForeignKey)."""
    right.enable_old_values(True)
    left.enable_old_values(True)
    return _JoinBuilder(step, ctx, left, right, is_left_join).build()


class _JoinBuilder:
    """Builds the nodes of a foreign-key join."""

    def __init__(self, step: Step, ctx: Context, left: Table, right: Table, is_left_join: bool):
        self.step, self.ctx, self.left, self.right, self.is_left_join = step, ctx, left, right, is_left_join

    def name(self, suffix: str, prefix: str) -> str:
        """Return a name with the suffix, or a generated one (NamedInternal.suffixWithOrElseGet)."""
        return self.ctx.graph.names.named(self.step.get("name"), prefix, suffix)

    def build(self) -> Table:
        """Add all nodes, in Java's order of calls."""
        graph, step, left, right = self.ctx.graph, self.step, self.left, self.right
        topic = self.name("-subscription-registration", PREFIX + "SUBSCRIPTION-REGISTRATION-") + "-topic"
        # The response topic's name comes much later in Java's order, so the common part is filled in at the end.
        common: list[ForeignKeyJoin] = []
        send_name = self.name("-subscription-registration-processor", PREFIX + "SUBSCRIPTION-REGISTRATION-")
        on = step.options["on"]
        send: ProcessorGraphNode = ProcessorGraphNode(
            send_name, lambda: SubscriptionSend(common[0], on, bool(send.versioned_parents))
        )
        graph.add(left.node, send)
        serdes = self._serdes()
        foreign_serdes = (serdes[2], serdes[1])
        source = self._internal_topic(send, "registration", topic, "subscription", foreign_serdes)
        graph.copartition((*right.sources, source.name))
        store = self._subscription_store(serdes)
        receive_name = self.name("-subscription-receive", PREFIX + "SUBSCRIPTION-PROCESSOR-")
        receive = ProcessorGraphNode(receive_name, lambda: SubscriptionReceive(common[0], store.name), stores=(store,))
        graph.add(source, receive)
        foreign = right.getter()
        answer_name = self.name("-subscription-join-foreign", PREFIX + "SUBSCRIPTION-PROCESSOR-")
        answer = ProcessorGraphNode(answer_name, lambda: SubscriptionJoin(common[0], foreign), stores=foreign.stores)
        graph.add(receive, answer)
        changed_name = self.name("-foreign-join-subscription", PREFIX + "SUBSCRIPTION-PROCESSOR-")
        changed: ProcessorGraphNode = ProcessorGraphNode(
            changed_name,
            lambda: ForeignTableJoin(common[0], store.name, bool(changed.versioned_parents)),
            stores=(store,),
        )
        graph.add(right.node, changed)
        response_topic = self.name("-subscription-response", PREFIX + "SUBSCRIPTION-RESPONSE-") + "-topic"
        common.append(ForeignKeyJoin(self.is_left_join, topic, response_topic, *serdes))
        response = self._internal_topic(
            (answer, changed), "response", response_topic, "response", (serdes[0], serdes[3])
        )
        sources = (*left.sources, response.name)
        graph.copartition(sources)
        return self._result(common[0], response, sources)

    def _serdes(self) -> tuple[Serde, Serde, Serde, Serde]:
        step, purpose = self.step, "the foreign-key join's topics"
        return (
            required_serde(self.left.key_serde, "key", step, purpose),
            required_serde(self.left.value_serde, "value", step, purpose),
            required_serde(self.right.key_serde, "key", step, purpose),
            required_serde(self.right.value_serde, "value", step, purpose),
        )

    def _internal_topic(
        self, parents: GraphNode | Iterable[GraphNode], part: str, topic: str, kind: str, serdes: tuple[Serde, Serde]
    ) -> StreamSourceNode:
        """Add a sink to an internal topic and the source that reads it."""
        graph = self.ctx.graph
        option = "partition" if kind == "response" else "other_partition"
        description = SinkDescription(topic, serdes, partition=self.step.get(option), internal=True, value_kind=kind)
        sink = StreamSinkNode(self.name(f"-subscription-{part}-sink", "KTABLE-SINK-"), description)
        graph.add(parents, sink)
        source_name = self.name(f"-subscription-{part}-source", "KTABLE-SOURCE-")
        source = StreamSourceNode(
            source_name, SourceDescription((topic,), None, serdes, internal=True, value_kind=kind)
        )
        graph.add(sink, source)
        return source

    def _subscription_store(self, serdes: tuple[Serde, Serde, Serde, Serde]) -> StoreDef:
        name = self.name("-subscription-store", PREFIX + "SUBSCRIPTION-STATE-STORE-")
        return StoreDef(
            name=name,
            type="subscription",
            key_serde=serdes[2],
            value_serde=serdes[0],
            persistent=not self.ctx.store_defaults.supplied_in_memory,
            caching=False,
            changelog_topic=f"{name}-changelog",
        )

    def _result(self, common: ForeignKeyJoin, response: StreamSourceNode, sources: tuple[str, ...]) -> Table:
        graph, step, ctx = self.ctx.graph, self.step, self.ctx
        primary = self.left.getter()
        value = step.options["value"]
        resolver_name = self.name(
            "-subscription-response-resolver", PREFIX + "SUBSCRIPTION-RESPONSE-RESOLVER-PROCESSOR-"
        )
        resolver = ProcessorGraphNode(resolver_name, ResponseJoin(common, value, primary), stores=primary.stores)
        graph.add(response, resolver)
        result_name = self.name("-result", PREFIX + "OUTPUT-")
        value_serde = step.get("value_serde", ctx.default_value)
        refuse_nameless_ttl(step.get("store"))
        store = materialize(step, ctx, common.key_serde, value_serde, PREFIX + "OUTPUT-")
        work = SourceWork(store, materialized=is_named(step.get("store")))
        node: ProcessorGraphNode = ProcessorGraphNode(result_name, lambda: source_work(work), stores=work.definitions)
        resolver.serdes = node.serdes = (common.key_serde, value_serde)
        node.output_versioned = store.type == "versioned"
        graph.add(resolver, node)
        return Table(result_name, node, sources, common.key_serde, value_serde, work)


# The work at run time: subscriptions, responses, and the bytes that carry them.
#
# Follows SubscriptionSendProcessorSupplier, SubscriptionReceiveProcessorSupplier, SubscriptionJoinProcessorSupplier,
# ForeignTableJoinProcessorSupplier and ResponseJoinProcessorSupplier.

DELETE_SILENTLY, DELETE_AND_RESPOND, RESPOND_ALWAYS, RESPOND_ON_MATCH = range(4)
VERSION = 1
NO_HASH = 0x80
HASH_SEED = 104729

_INT = Struct(">i")


class Subscription(NamedTuple):
    """The message of a row of the left table to the right table's task (SubscriptionWrapper)."""

    instruction: int
    hash: bytes | None
    primary_key: bytes
    partition: int


def hash_of(data: bytes | None) -> bytes | None:
    """Return the hash of a row's value, 16 bytes: a response with another hash is stale."""
    return None if data is None else murmur3_128(data, HASH_SEED)


def pack_subscription(subscription: Subscription) -> bytes:
    """Return the bytes of a subscription: version, instruction, hash if any, primary key, its partition."""
    instruction, digest, key, partition = subscription
    version = VERSION | NO_HASH if digest is None else VERSION
    return bytes((version, instruction)) + (digest or b"") + key + _INT.pack(partition)


def unpack_subscription(data: bytes) -> Subscription:
    """Return the subscription of some bytes. Raises SerdeError for another version."""
    if data[0] & 0x7F > VERSION:
        raise SerdeError(f"subscription of version {data[0] & 0x7F}; this release reads up to {VERSION}")
    start = 2 if data[0] & NO_HASH else 18
    return Subscription(data[1], None if start == 2 else data[2:18], data[start:-4], _INT.unpack(data[-4:])[0])


def pack_response(digest: bytes | None, value: bytes | None) -> bytes:
    """Return the bytes of a response: version 0, the hash that came with the subscription, the foreign value."""
    return (bytes((NO_HASH,)) if digest is None else b"\0" + digest) + (value or b"")


def unpack_response(data: bytes) -> tuple[bytes | None, bytes | None]:
    """Return hash and foreign value; an empty value reads as absent, as in Java. Raises SerdeError for another version."""
    if data[0] & 0x7F:
        raise SerdeError(f"response of version {data[0] & 0x7F}; this release reads version 0")
    start = 1 if data[0] & NO_HASH else 17
    return (None if start == 1 else data[1:17]), data[start:] or None


class SubscriptionSender:
    """The left table's side: sends the right table which rows refer to which key."""

    def __init__(
        self,
        rt: TaskServices,
        left_join: bool,
        extract: Callable[[Key, Value, int, RecordContext], Key],
        serdes: tuple[Serde, Serde, Serde],
        forward: Forward,
    ):
        self._rt = rt
        self._left = left_join
        self._extract = extract
        self._key_serde, self._value_serde, self._foreign_serde = serdes
        self._forward = forward

    def process(self, k: Key, new: Value, old: Value, t: int, c: RecordContext) -> None:
        """Send the subscriptions that a change of a row makes or ends, for its old and its new foreign key."""
        if new is None and old is None:
            return
        before = None if old is None else self._extract(k, old, t, c)
        after = None if new is None else self._extract(k, new, t, c)
        if self._left:
            if before is not None and self._bytes(before) != self._bytes(after):
                self._send(k, new, before, DELETE_SILENTLY, t, c)
            self._send(k, new, after, RESPOND_ALWAYS, t, c)
        elif after is None:
            if new is not None:
                self._rt.dropped(DropReason.NULL)
            if before is not None:
                self._send(k, new, before, DELETE_AND_RESPOND, t, c)
        elif before is None or self._bytes(before) == self._bytes(after):
            self._send(k, new, after, RESPOND_ON_MATCH, t, c)
        else:
            self._send(k, new, before, DELETE_SILENTLY, t, c)
            # The response comes even without a match: the result of the old key must be deleted.
            self._send(k, new, after, RESPOND_ALWAYS, t, c)

    def _bytes(self, foreign_key: Key) -> bytes | None:
        return None if foreign_key is None else self._foreign_serde.encode(foreign_key)

    def _send(self, k: Key, new: Value, foreign_key: Key, instruction: int, t: int, c: RecordContext) -> None:
        digest = None if new is None else hash_of(self._value_serde.encode(new))
        subscription = Subscription(instruction, digest, self._key_serde.encode(k), self._rt.partition)
        self._forward(foreign_key, pack_subscription(subscription), t, c)


class SubscriptionReceiver:
    """The right table's side: keeps subscriptions, so that a change of a row finds the rows that refer to it."""

    def __init__(self, rt: TaskServices, store: SubscriptionStore, forward: Forward):
        self._rt = rt
        self._store = store
        self._forward = forward

    def process(
        self, foreign_key: bytes | None, data: bytes, t: int, c: RecordContext, headers: Headers | None
    ) -> None:
        """Store or delete a subscription, then forward (foreign key bytes, subscription)."""
        subscription = unpack_subscription(data)
        if foreign_key is None:
            if subscription.instruction != RESPOND_ALWAYS:
                self._rt.dropped(DropReason.NULL)
                return
        else:
            deletes = subscription.instruction in (DELETE_SILENTLY, DELETE_AND_RESPOND)
            self._store.put(foreign_key, subscription.primary_key, None if deletes else data, t, headers)
        self._forward(foreign_key, subscription, t, c)


class SubscriptionJoinKernel:
    """Responds to a subscription with the right table's present row."""

    def __init__(self, lookup: Lookup, encode: Callable[[Value], bytes], forward: Forward):
        self._lookup = lookup
        self._encode = encode
        self._forward = forward

    def process(self, foreign_key: bytes | None, subscription: Subscription, t: int, c: RecordContext) -> None:
        """Forward (primary key bytes, (response, partition)) with the later of both timestamps."""
        instruction, digest, primary_key, partition = subscription
        if instruction == DELETE_SILENTLY:
            return
        row = None if foreign_key is None else self._lookup(foreign_key)
        if row is not None:
            t = max(t, row[1])
        elif instruction == RESPOND_ON_MATCH:
            return
        value = None
        if row is not None and instruction != DELETE_AND_RESPOND:
            value = None if row[0] is None else self._encode(row[0])
        self._forward(primary_key, (pack_response(digest, value), partition), t, c)


class ForeignTableJoinKernel:
    """Responds to all subscriptions to a row of the right table when it changes."""

    def __init__(self, rt: TaskServices, store: SubscriptionStore, encode: Callable[[Value], bytes], forward: Forward):
        self._rt = rt
        self._store = store
        self._encode = encode
        self._forward = forward

    def process(self, foreign_key: bytes | None, new: Value, t: int, c: RecordContext) -> None:
        """Forward (primary key bytes, (response, partition)) for each subscription, with the row's own timestamp."""
        if foreign_key is None:
            self._rt.dropped(DropReason.NULL)
            return
        value = None if new is None else self._encode(new)
        for number, (primary_key, data, _) in enumerate(self._store.prefix(foreign_key), 1):
            if number % MANY == 0:
                count_bytes(MANY * (ROW + len(value or b"")))
            subscription = unpack_subscription(data)
            response = pack_response(subscription.hash, value)
            self._forward(primary_key, (response, subscription.partition), t, c)


class ResponseJoinKernel:
    """Joins a response with the present row of the left table, if that has not changed since its subscription."""

    def __init__(
        self,
        rt: TaskServices,
        left_join: bool,
        lookup: Lookup,
        serdes: tuple[Serde, Serde],
        work: tuple[Callable[[Key, Value, Value, int, RecordContext], Value], Forward],
    ):
        self._rt = rt
        self._left = left_join
        self._lookup = lookup
        self._value_serde, self._foreign_serde = serdes
        self._joiner, self._forward = work

    def process(self, kb: bytes, k: Key, data: bytes, t: int, c: RecordContext) -> None:
        """Forward the joined value or a tombstone; a stale response is dropped."""
        digest, foreign = unpack_response(data)
        row = self._lookup(kb)
        current = None if row is None else row[0]
        present = None if current is None else hash_of(self._value_serde.encode(current))
        if present != digest:
            self._rt.dropped(DropReason.STALE)
            return
        value = None if foreign is None else self._foreign_serde.decode(foreign)
        if value is None and (not self._left or current is None):
            result = None
        else:
            result = self._joiner(k, current, value, t, c)
        self._forward(k, result, t, c)
