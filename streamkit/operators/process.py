"""`process` and `process_values`: Python processors."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from streamkit.code import attribute, call, literal, mapping_of, method
from streamkit.expressions import load_callable
from streamkit.graph.node import ProcessorNode
from streamkit.operators.base import BuildError, Example, Operator, Processor
from streamkit.operators.context import Context
from streamkit.operators.emitting import RT, connected_stores
from streamkit.operators.fields import KEY_SERDE, NAME, STORE, VALUE_SERDE, Callable_, CallRef, Field, Step, StoreNames
from streamkit.operators.frozen import frozen
from streamkit.operators.serdes import plain_or_none
from streamkit.operators.transform_values import transform_values
from streamkit.operators.typing import Types, Typing
from streamkit.operators.upstream import Stream, Table

if TYPE_CHECKING:
    from streamkit.operators.writer import CodeWriter, Node


@frozen
class Process(Processor):
    """Hands records to a Python class or function, which forwards what it likes (process, processValues)."""

    call: CallRef
    stores: tuple[str, ...]
    fixed_key: bool
    """Whether forwarding another key is an error."""

    needs_context: ClassVar[bool] = True
    context: ClassVar[tuple[str, str]] = ("process", "ProcessorContext")
    keeps: ClassVar[bool] = False
    """Whether it may write to a store that others only read."""

    def emit(self, node: Node, gen: CodeWriter) -> None:
        target = gen.name_of(load_callable(self.call), "user")
        stores = connected_stores(gen, self.stores, self.keeps)
        # Before the function for all children: functions are written in the order of asking.
        children = mapping_of({name: gen.child_function(name) for name in node.children})
        forward = gen.forward_function(node, False)
        index = gen.index(node)
        context = call(gen.kernel(*self.context), RT, index, stores, forward, children)
        made = call(gen.kernel("process", "CustomProcessor"), target, context, literal(self.fixed_key))
        processor = gen.instance(("process", node.name), "p", made)
        gen.on("init", node, call("initialise", index, attribute(processor, "init")))
        gen.on("close", node, method(processor, "close"))
        with gen.guard(node):
            hand = gen.hand
            gen.do(method(processor, "process", gen.obj(hand.key), gen.obj(hand.value), hand.time, hand.context))


class ProcessOperator(Operator):
    """`process` (KStream.process)."""

    name: ClassVar[str] = "process"
    main = "call"
    fields: ClassVar[tuple[Field, ...]] = (
        Field("call", Callable_(), "The class or function: `module:Name`.", required=True),
        Field("stores", StoreNames(), "The names of the stores that it uses."),
        KEY_SERDE,
        VALUE_SERDE,
        NAME,
    )
    summary = (
        "Hands each record to a Python class, made once a task, or to a function. It may use stores, punctuators and "
        "headers, and forwards any number of records with any keys; the keys count as changed."
    )
    example = Example(
        topology="""streamkit: 1
application: words
topics:
  lines: {value: string}
  words: {value: string}
pipelines:
  words:
    stream: lines
    steps:
      - process: {call: "streamkit.operators.samples:split", value_serde: string}
    to: words
""",
        input="""{"topic": "lines", "key": "k", "value": "to be", "timestamp": 0}
""",
        output="""{"topic": "words", "key": "k", "value": "to", "timestamp": 0}
{"topic": "words", "key": "k", "value": "be", "timestamp": 0}
""",
    )
    prefix: ClassVar[str] = "KSTREAM-PROCESSOR-"
    fixed_key: ClassVar[bool] = False

    def types(self, hand: Typing) -> Types:
        return Types(hand.own.key) if self.fixed_key else Types()

    def build(self, step: Step, upstream: Any, builder: Context) -> Any:
        if isinstance(upstream, Table):
            return transform_values(step, upstream, builder)
        if step.get("store") is not None:
            raise BuildError(step.at("store"), f"{self.name}: `store` is for tables; this stands on a stream")
        names = tuple(step.get("stores") or ())
        stores = tuple(builder.custom_store(name, step) for name in names)
        # A given name uses up no index here (KStreamImpl.process).
        name = step.get("name") or builder.graph.names.processor(self.prefix)
        node = ProcessorNode(name, Process(step.options["call"], names, self.fixed_key), stores=stores)
        builder.graph.add(upstream.node, node)
        changes: dict[str, Any] = {"value_serde": step.get("value_serde", builder.default_value)}
        if not self.fixed_key:
            changes.update(key_serde=step.get("key_serde", builder.default_key), repartition_required=True)
        result: Stream = upstream.below(name, node, **changes)
        node.serdes = (plain_or_none(result.key_serde), plain_or_none(result.value_serde))
        return result


class ProcessValuesOperator(ProcessOperator):
    """`process_values` (KStream.processValues, KTable.transformValues)."""

    name = "process_values"
    fields = (
        Field("call", Callable_(), "The class or function: `module:Name`.", required=True),
        Field("stores", StoreNames(), "The names of the stores that it uses."),
        VALUE_SERDE,
        NAME,
        STORE,
    )
    accepts = ("stream", "table")
    summary = (
        "Like `process`, but keys stay as they are: forwarding another key is an error, and what follows does not "
        "repartition.\n\nOn a table it is `transformValues`: a class with `transform(self, key, value)` and, if it likes, "
        "`init(self, context)` and `close(self)`, or a function `(key, value)` or `(key, value, context)`, returns the row's "
        "new value. It is asked for deleted rows too, with the value None, and None deletes; its context has all but "
        "`forward`. `store` materializes the result. Without one, values are computed again wherever they are needed: old "
        "values for what follows, and by an instance of its own what a join looks up, also for rows that are not there."
    )
    prefix = "KSTREAM-PROCESSVALUES-"
    fixed_key = True
    example = Example(
        topology=ProcessOperator.example.topology.replace("process:", "process_values:"),
        input=ProcessOperator.example.input,
        output=ProcessOperator.example.output,
    )
