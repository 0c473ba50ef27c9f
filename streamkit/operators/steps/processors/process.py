"""`process` and `process_values`: Python processors."""

from __future__ import annotations

from collections.abc import Iterable
from typing import ClassVar

from streamkit.code import Code, attribute, call, literal, mapping_of, method
from streamkit.errors import Problem
from streamkit.expressions import load_callable
from streamkit.graph.physical_topology import ProcessorGraphNode
from streamkit.operators.codegen.code_writer import CodeWriter, Node, Processor, Slot
from streamkit.operators.codegen.table_code import (
    RT,
    BatchProcessor,
    connected_stores,
    emit_computed,
    emit_transformer,
)
from streamkit.operators.core.fields import (
    AS,
    BATCH,
    KEY_SERDE,
    NAME,
    STORE,
    VALUE_SERDE,
    WITH,
    Callable_,
    Field,
    StoreNames,
)
from streamkit.operators.core.frozen import frozen
from streamkit.operators.core.operator import (
    BuildError,
    Context,
    DerivedWork,
    Operator,
    Stream,
    StreamChanges,
    Table,
    TypeInference,
    Types,
    misplaced,
    serde_or_none,
)
from streamkit.operators.core.parsed_values import BatchCall, CallRef, Step
from streamkit.operators.core.step_stores import derived_table, materialize_if_named
from streamkit.operators.core.value_getters import Getter, TransformGetter


@frozen
class Process(Processor):
    """Calls a Python class or function with each record; the callable forwards records itself (process, processValues)."""

    call: CallRef
    stores: tuple[str, ...]
    fixed_key: bool
    """Whether forwarding another key is an error."""

    needs_context: ClassVar[bool] = True
    context: ClassVar[tuple[str, str]] = ("processor_calls", "ProcessorContext")
    writes_read_only: ClassVar[bool] = False
    """Whether the processor may write to a store that is read-only for other processors."""

    def emit(self, node: Node, gen: CodeWriter) -> None:
        target = gen.name_of(load_callable(self.call), "user")
        stores = connected_stores(gen, self.stores, self.writes_read_only)
        # Before the function that forwards to all children, because functions are written in the order in which they are requested.
        children = mapping_of({name: gen.child_function(name) for name in node.children})
        forward = gen.forward_function(node, False)
        index = gen.index(node)
        context = call(gen.kernel(*self.context), RT, index, stores, forward, children)
        created = call(gen.kernel("processor_calls", "CustomProcessor"), target, context, literal(self.fixed_key))
        processor = gen.instance(("process", node.name), "p", created)
        gen.on_lifecycle("init", node, call("initialise", index, attribute(processor, "init")))
        gen.on_lifecycle("close", node, method(processor, "close"))
        with gen.guard(node):
            record = gen.record
            gen.do(
                method(
                    processor,
                    "process",
                    gen.object_of(record.key),
                    gen.object_of(record.value),
                    record.time,
                    record.context,
                )
            )

    def why_nothing(self) -> str:
        return "the processor forwards nothing for it"


class ProcessOperator(Operator[Stream | Table]):
    """`process` (KStream.process)."""

    name: ClassVar[str] = "process"
    main = "call"
    fields: ClassVar[tuple[Field, ...]] = (
        Field("call", Callable_(("record",), True), "The class or function: `module:Name`.", required=True),
        WITH,
        Field("stores", StoreNames(), "The names of the stores that the callable uses."),
        KEY_SERDE,
        VALUE_SERDE,
        NAME,
    )
    summary = (
        "Passes each record to a Python class, which is instantiated once per task, or to a function. The callable can use stores, "
        "punctuators and headers, and forward any number of records with any keys; the keys count as changed."
    )
    prefix: ClassVar[str] = "KSTREAM-PROCESSOR-"
    fixed_key: ClassVar[bool] = False

    def types(self, inference: TypeInference) -> Types:
        return Types(inference.upstream_types.key) if self.fixed_key else Types()

    def build(self, step: Step, upstream: Stream | Table, builder: Context) -> Stream | Table:
        if isinstance(upstream, Table):
            return transform_values(step, upstream, builder)
        if step.get("store") is not None:
            raise misplaced(step, "store", "tables", upstream.label)
        names = tuple(step.get("stores") or ())
        stores = tuple(builder.custom_store(name, step) for name in names)
        # A given name takes no index here (KStreamImpl.process).
        name = step.get("name") or builder.graph.names.processor(self.prefix)
        node = ProcessorGraphNode(name, self._processor(step, names), stores=stores)
        builder.graph.add(upstream.node, node)
        changes: StreamChanges = {"value_serde": step.get("value_serde", builder.default_value)}
        if not self.fixed_key:
            changes["key_serde"] = step.get("key_serde", builder.default_key)
            changes["repartition_required"] = True
        result = upstream.below(name, node, **changes)
        node.serdes = (serde_or_none(result.key_serde), serde_or_none(result.value_serde))
        return result

    def _processor(self, step: Step, stores: tuple[str, ...]) -> Processor:
        return Process(step.options["call"], stores, self.fixed_key)


class ProcessValuesOperator(ProcessOperator):
    """`process_values` (KStream.processValues, KTable.transformValues)."""

    name = "process_values"
    fields = (
        Field("call", Callable_(), "The class or function: `module:Name`.", required=True),
        WITH,
        BATCH,
        AS,
        Field("stores", StoreNames(), "The names of the stores that the callable uses."),
        VALUE_SERDE,
        NAME,
        STORE,
    )
    accepts = ("stream", "table")
    summary = (
        "Like `process`, but keys do not change: forwarding another key is an error, and later steps do not "
        "repartition.\n\nOn a table it corresponds to `transformValues`: a class with `transform(self, key, value)` and optionally "
        "`init(self, context)` and `close(self)`, or a function `(key, value)` or `(key, value, context)`, returns the row's "
        "new value. It is also called for deleted rows, with the value None; returning None deletes the row. Its context has "
        "everything except `forward`. `store` materializes the result. Without it, values are computed again whenever they are "
        "needed: as old values for later steps and, by a separate instance, when a join looks up a row, even a missing one."
    )
    prefix = "KSTREAM-PROCESSVALUES-"
    fixed_key = True

    def check(self, step: Step) -> Iterable[Problem]:
        if step.get("as") is not None and step.get("batch") is None:
            yield Problem(
                step.at("as"), "process_values: `as` needs `batch`, because a column has the values of several records"
            )

    def build(self, step: Step, upstream: Stream | Table, builder: Context) -> Stream | Table:
        if isinstance(upstream, Table) and step.get("batch") is not None:
            raise misplaced(step, "batch", "streams", upstream.label)
        return super().build(step, upstream, builder)

    def _processor(self, step: Step, stores: tuple[str, ...]) -> Processor:
        size, form = step.get("batch"), step.get("as", "list")
        if size is None:
            return super()._processor(step, stores)
        passed = ("records",) if form == "list" else ("records", "columns")
        return BatchProcessor(BatchCall(step.options["call"], size, form, passed), "BatchTransform", stores)


# `process_values` on tables: a Python callable computes the value of each row (KTable.transformValues).


@frozen
class TransformValues(Processor):
    """Calls a Python class or function for a table's values, also for deleted rows (KTableTransformValues)."""

    call: CallRef
    connected: tuple[str, ...]
    """The stores that the callable may use."""
    store: str | None
    send_old: bool

    needs_context: ClassVar[bool] = True

    def emit(self, node: Node, gen: CodeWriter) -> None:
        transformer = emit_transformer(gen, node, self.call, self.connected, ("transform", node.name))
        record = gen.record

        def transformed(value: Slot) -> Code:
            return method(
                transformer, "transform", gen.object_of(record.key), gen.object_of(value), record.time, record.context
            )

        emit_computed(gen, node, self.store, self.send_old, transformed)


def transform_values(step: Step, table: Table, ctx: Context) -> Table:
    """Build `transformValues` of a table (KTableImpl.doTransformValues). A store without a name uses up no index."""
    value_serde = step.get("value_serde", ctx.default_value)
    store = materialize_if_named(step, ctx, (table.key_serde, value_serde), None)
    name = ctx.graph.names.named(step.get("name"), "KTABLE-TRANSFORMVALUES-")
    connected = tuple(step.get("stores") or ())
    definitions = [ctx.custom_store(store_name, step) for store_name in connected]
    target = step.options["call"]

    def computed(parent: Getter) -> Getter:
        if connected:
            # Java fails at the start, because the processor that looks up rows is not connected to these stores.
            raise BuildError(
                step.at("stores"),
                "process_values: a later step looks up rows, but can't use these stores to compute them; "
                "give the result a `store`",
            )
        return TransformGetter(parent, target, name)

    work = DerivedWork(table, store, computed)
    return derived_table(
        step,
        ctx,
        name,
        work,
        value_serde,
        lambda _, own: TransformValues(target, connected, own, work.send_old),
        definitions,
    )
