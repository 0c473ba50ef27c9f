"""`enrich`: joins each record with the result of a function, such as a look-up in a service; calls run in parallel."""

from __future__ import annotations

from typing import ClassVar

from streamkit.code import Code, call, literal, symbol, tuple_of
from streamkit.expressions import Expression, load_callable
from streamkit.operators.codegen.code_writer import CodeWriter, Node, Processor, Slot, record_of_parameters
from streamkit.operators.codegen.table_code import RT, emit_context, emit_holding_step
from streamkit.operators.core.fields import (
    NAME,
    STREAM_NAMES,
    VALUE_SERDE,
    WITH,
    CacheField,
    Callable_,
    Duration,
    Expr,
    Field,
    Integer,
)
from streamkit.operators.core.frozen import frozen
from streamkit.operators.core.operator import Context, Operator, Stream, TypeInference, Types, add_stream_node
from streamkit.operators.core.parsed_values import CacheOptions, CallRef, Step

MODULE = "lookups"
RESULT = symbol("r")


@frozen
class CallOptions:
    """How the function is called; times in milliseconds. batch 0: with a single argument, without a list."""

    concurrency: int
    timeout: int
    retries: int
    backoff: int
    batch: int
    cache: CacheOptions | None


@frozen
class Enrich(Processor):
    """Holds records back until a run ends, calls the function for all of them, and joins the results in order.

    by None: the function gets the value. value None: the result is the new value.
    """

    call: CallRef
    by: Expression | None
    value: Expression | None
    options: CallOptions

    needs_context: ClassVar[bool] = True
    holds_records: ClassVar[bool] = True

    def emit(self, node: Node, gen: CodeWriter) -> None:
        options = self.options
        cache = options.cache or CacheOptions(0, None)
        times = (options.concurrency, options.timeout, options.retries, options.backoff, options.batch)
        made_options = call(gen.kernel(MODULE, "LookupOptions"), *map(literal, (*times, cache.size, cache.ttl)))
        user = tuple_of(gen.name_of(load_callable(self.call), "user"), emit_context(gen, node, ()))
        # If other nodes write to the same topics or stores, records are forwarded one by one.
        steps = tuple_of(gen.index(node), self._joined(node, gen), symbol("fail"), literal(gen.mixes_order(node)))
        step = call(gen.kernel(MODULE, "LookupStep"), RT, user, made_options, gen.replays(), steps)
        emit_holding_step(gen, node, step, self.by)

    def _joined(self, node: Node, gen: CodeWriter) -> Code:
        """Return the name of a function that joins a result with its record, and forwards the record."""

        def write(name: Code) -> None:
            function = gen.function(name, "k", "v", "r", "t", "c")
            with function, gen.with_record(record_of_parameters()), gen.separate_budget():
                value = RESULT
                if self.value is not None:
                    value = gen.var("v")
                    gen.assign(value, gen.expr(self.value, result=RESULT))
                gen.forward(node, value=Slot(value))

        return gen.deferred_function(("joined", node.name), "j", write)


class EnrichOperator(Operator[Stream]):
    """`enrich` (KStream.processValues, where Kafka Streams makes the calls one by one)."""

    name: ClassVar[str] = "enrich"
    is_extension = True
    main = "call"
    fields = (
        Field(
            "call",
            Callable_(("argument",)),
            "The function or class that does the look-up: `module:Name`.",
            required=True,
        ),
        WITH,
        Field("by", Expr(), "The function's argument, and the key of the cache; by default the value."),
        Field(
            "value",
            Expr((*STREAM_NAMES, "result"), ("key", "value", "result")),
            "The new value; by default the result.",
        ),
        Field("concurrency", Integer(1), "How many calls may run at once in a stream thread.", default=64),
        Field("timeout", Duration(1), "How long one call may take.", default="30s"),
        Field("retries", Integer(0), "How often a call that raises `RetriableError` is repeated.", default=0),
        Field(
            "backoff",
            Duration(0),
            "The pause before the first retry; it doubles for each further retry.",
            default="100ms",
        ),
        Field(
            "batch", Integer(1), "The function takes a list of up to this many arguments, and returns as many results."
        ),
        Field("cache", CacheField(), "How many results to keep in memory (`size`), and how long (`ttl`)."),
        VALUE_SERDE,
        NAME,
    )
    summary = (
        "Calls a function with a part of each record and joins its result with the record: a look-up in a service, a "
        "database or a remote model. The function is `async`, or an ordinary function, which runs in a thread, or a "
        "class whose objects are called. The calls for the records of a run are made in parallel. Records continue in "
        "order, each once it and all before it have their results, and are committed after that. See "
        "[enrich](calls.md#functions-that-look-up).\n\nKafka Streams has no such step; the node is named "
        "`STREAMKIT-ENRICH-…`."
    )

    def types(self, inference: TypeInference) -> Types:
        inference.option_type("by")
        return Types(inference.upstream_types.key, inference.option_type("value"))

    def build(self, step: Step, upstream: Stream, builder: Context) -> Stream:
        serde = step.get("value_serde", builder.default_value)
        name = builder.graph.names.named(step.get("name"), "STREAMKIT-ENRICH-")
        options = CallOptions(
            step.get("concurrency", 64),
            step.get("timeout", 30_000),
            step.get("retries", 0),
            step.get("backoff", 100),
            step.get("batch", 0),
            step.get("cache"),
        )
        processor = Enrich(step.options["call"], step.get("by"), step.get("value"), options)
        return add_stream_node(upstream, builder, name, processor, value_serde=serde)
