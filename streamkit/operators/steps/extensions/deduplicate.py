"""`deduplicate`: forwards the first record of each id."""

from __future__ import annotations

import dataclasses
from collections.abc import Iterable
from typing import TYPE_CHECKING, ClassVar

from streamkit.code import call, literal, method, symbol
from streamkit.errors import Problem, StreamkitError
from streamkit.expressions import Expression
from streamkit.graph.physical_topology import GraphNode, ProcessorGraphNode
from streamkit.metrics import DropReason
from streamkit.operators.codegen.code_writer import CodeWriter, Node, Processor
from streamkit.operators.core.fields import NAME, STORE, Duration, Expr, Field, SerdeField
from streamkit.operators.core.frozen import frozen
from streamkit.operators.core.operator import (
    BuildError,
    Context,
    Operator,
    Stream,
    repartition_node,
    required_serde,
    serde_or_none,
)
from streamkit.operators.core.parsed_values import Step, StoreOptions
from streamkit.operators.core.step_stores import define_store, with_type
from streamkit.record import Value
from streamkit.serdes.plain import shown
from streamkit.state.definitions import StoreDef

if TYPE_CHECKING:
    from streamkit.operators.core.task_services import TaskServices
    from streamkit.state.stores.key_value import KeyValueStore


PREFIX = "STREAMKIT-DEDUPLICATE-"


@frozen
class Deduplicate(Processor):
    """Drops records that have the same id as a record less than `within` (ms) earlier. `ids`: the store of ids."""

    by: Expression
    within: int
    ids: str

    def emit(self, node: Node, gen: CodeWriter) -> None:
        arguments = (symbol("rt"), gen.store(self.ids), literal(self.within))
        known = gen.prologue(("ids", self.ids), "ids", call(gen.name_of(KnownIds, "KnownIds"), *arguments))
        id_, passes = gen.var("id"), gen.var("p")
        with gen.guard(node):
            gen.assign(id_, gen.expr(self.by))
            gen.assign(passes, method(known, "is_first", id_, gen.record.time))
        with gen.when(passes):
            gen.forward(node)

    def why_nothing(self) -> str:
        return "a record with the same id came before it"


class DeduplicateOperator(Operator[Stream]):
    """`deduplicate` (KStream.process with a processor and a store)."""

    name: ClassVar[str] = "deduplicate"
    is_extension = True
    fields = (
        Field("by", Expr(), "The id of a record.", required=True),
        Field(
            "within",
            Duration(1),
            "How long after a record other records with its id count as duplicates.",
            required=True,
        ),
        Field("id_serde", SerdeField(), "The serde of ids in the store; equal ids have equal bytes.", default="json"),
        Field("store", STORE.kind, "The [store](stores.md) of the ids: `name`, `type`, `logging`, `config`."),
        NAME,
    )
    summary = (
        "Forwards the first record of each id and drops records with the same id whose timestamps are less than "
        "`within` later; a record that is `within` or more after the forwarded one counts as the first again. The "
        "first record is the one that the task reads first. No two forwarded records of one id have timestamps less "
        "than `within` apart.\n\nA record whose id is null is forwarded. A record that is `within` or more behind "
        "stream time is late: it is dropped and counted (`dropped-records`) regardless of its id, because ids of that "
        "time may have been deleted; a record that is less late is a duplicate if its id has been forwarded. Keys and "
        "values, including null, are not examined and do not change.\n\nRecords are compared within their partition. "
        "If the stream's keys have changed, it repartitions first, so that records of a key meet; if `by` is not the "
        "key, records with the same id must have the same key, or follow `select_key`. The store has a row for each "
        "id with the timestamp of the forwarded record, for at most 2 × `within` of stream time; it has a changelog "
        "and no cache."
    )

    def check(self, step: Step) -> Iterable[Problem]:
        store: StoreOptions | None = step.get("store")
        if store is not None:
            for option in ("caching", "retention", "segment_interval", "versioned", "ttl"):
                if getattr(store, option) is not None:
                    yield Problem(
                        store.position or step.at("store"),
                        f"deduplicate: its store has no option `{option}`; `within` decides how long ids are kept",
                    )

    def build(self, step: Step, upstream: Stream, builder: Context) -> Stream:
        name = builder.graph.names.named(step.get("name"), PREFIX)
        store = self._store(step, builder)
        parent: GraphNode = upstream.node
        below = upstream
        if upstream.repartition_required:
            serdes = (
                required_serde(upstream.key_serde, "key", step, "the repartition topic"),
                required_serde(upstream.value_serde, "value", step, "the repartition topic"),
            )
            repartition = repartition_node(builder, name, serdes)
            builder.graph.add(upstream.node, repartition)
            parent = repartition
            below = upstream.below(name, repartition, sources=(repartition.source_name,), repartition_required=False)
        node = ProcessorGraphNode(
            name, Deduplicate(step.options["by"], step.options["within"], store.name), stores=(store,)
        )
        node.serdes = (serde_or_none(upstream.key_serde), serde_or_none(upstream.value_serde))
        builder.graph.add(parent, node)
        return below.below(name, node)

    def _store(self, step: Step, builder: Context) -> StoreDef:
        options: StoreOptions | None = step.get("store")
        within: int = step.options["within"]
        if 2 * within > 2**63 - 1:
            raise BuildError(step.at("within"), "deduplicate: `within` is too long: ids are kept for twice as long")
        name = options.name if options is not None and options.name is not None else builder.graph.names.store(PREFIX)
        serdes = (step.get("id_serde") or builder.serde("json"), builder.serde("long"))
        store = define_store(name, serdes, with_type(options, builder.store_defaults.in_memory))
        return dataclasses.replace(store, type="key_value", caching=False, ttl=2 * within)


# The work at run time: the ids that were forwarded.


class KnownIds:
    """The ids of one node, each with the timestamp of the last record that passed; times in milliseconds.

    One row per id suffices. A record that is not late is compared with the last one that passed: any earlier one is at
    least `within` before that, and a record between the two is less than `within` before the last.
    """

    __slots__ = ("_encode", "_rt", "_store", "_within")

    def __init__(self, rt: TaskServices, store: KeyValueStore, within: int):
        self._rt = rt
        self._store = store
        self._within = within
        self._encode = store.key_serde.encode

    def is_first(self, id_: Value, time: int) -> bool:
        """Return whether a record passes. Raises SerdeError for an id that its serde can't encode."""
        if id_ is None:
            return True
        if time <= self._rt.stream_time() - self._within:
            self._rt.dropped(DropReason.LATE)
            return False
        key = self._encode(id_)
        if key is None:
            raise StreamkitError(f"deduplicate: the id {shown(id_, 80)} has no bytes")
        row = self._store.get(key)
        if row is not None and time - row[1] < self._within:
            return False
        self._store.put(key, time, time)
        return True
