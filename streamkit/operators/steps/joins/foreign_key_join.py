"""Joins of two tables by a foreign key of the left row: subscriptions are sent, responses come back (KIP-213)."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING

from streamkit.code import call, literal, method, symbol, tuple_of
from streamkit.graph.physical_topology import (
    GraphNode,
    ProcessorGraphNode,
    SinkDescription,
    SourceDescription,
    StreamSinkNode,
    StreamSourceNode,
)
from streamkit.operators.codegen.table_code import (
    drop_null_keys,
    drop_superseded,
    emit_process_call,
    forward_by_bytes,
    lookup_function,
    serdes_of,
)
from streamkit.operators.core.frozen import frozen
from streamkit.operators.core.operator import Context, Processor, SourceWork, Table, required_serde
from streamkit.operators.core.parsed_values import Step
from streamkit.operators.core.step_stores import is_named, materialize, refuse_nameless_ttl
from streamkit.operators.core.value_getters import Getter
from streamkit.operators.steps.topics.source import source_work
from streamkit.serdes.serde import Serde
from streamkit.state.definitions import StoreDef

if TYPE_CHECKING:
    from streamkit.expressions import Expression
    from streamkit.operators.codegen.code_writer import CodeWriter, Node

PREFIX = "KTABLE-FK-JOIN-"
RT = symbol("rt")


@frozen
class ForeignKeyJoin:
    """The common settings of a foreign-key join's nodes. topic: that of the subscriptions, without prefix."""

    left: bool
    topic: str
    response_topic: str
    key_serde: Serde
    value_serde: Serde
    """Of the left table."""
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
        sender = gen.kernel("foreign_key", "SubscriptionSender")
        made = call(sender, RT, literal(self.join.left), extract, serdes, gen.forward_function(node, False))
        instance = gen.instance(("send", node.name), "p", made)
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
        receiver = gen.kernel("foreign_key", "SubscriptionReceiver")
        made = call(receiver, RT, gen.store(self.store), gen.forward_function(node, False))
        instance = gen.instance(("receive", node.name), "p", made)
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
        join = gen.kernel("foreign_key", "SubscriptionJoin")
        made = call(join, lookup_function(gen, self.foreign), encode, forward)
        instance = gen.instance(("subscription", node.name), "p", made)
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
        join = gen.kernel("foreign_key", "ForeignTableJoin")
        made = call(join, RT, gen.store(self.store), encode, forward)
        instance = gen.instance(("foreign", node.name), "p", made)
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
        join = gen.kernel("foreign_key", "ResponseJoin")
        primary = lookup_function(gen, self.primary)
        work = tuple_of(joined, gen.forward_function(node, False))
        made = call(join, RT, literal(self.join.left), primary, serdes, work)
        instance = gen.instance(("response", node.name), "p", made)
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
