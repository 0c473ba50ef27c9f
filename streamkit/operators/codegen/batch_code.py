"""Generates the code of steps whose Python functions take lists of records (`batch`)."""

from __future__ import annotations

from typing import ClassVar

from streamkit.code import Code, attribute, call, literal, mapping_of, method, symbol, tuple_of
from streamkit.expressions import Expression, load_callable
from streamkit.operators.codegen.code_writer import CodeWriter, Node, Processor
from streamkit.operators.codegen.table_code import RT, connected_stores
from streamkit.operators.core.frozen import frozen
from streamkit.operators.core.operator import BuildError
from streamkit.operators.core.parsed_values import BatchCall, Step

MODULE = "batch_calls"


@frozen
class BatchProcessor(Processor):
    """Holds records back until a batch is complete or the run ends, and calls a function with all of them.

    kernel: the step's class at run time.
    """

    call: BatchCall
    kernel: str
    stores: tuple[str, ...] = ()

    needs_context: ClassVar[bool] = True
    holds_records: ClassVar[bool] = True

    def emit(self, node: Node, gen: CodeWriter) -> None:
        target = gen.name_of(load_callable(self.call.call), "user")
        context = emit_context(gen, node, self.stores)
        # Not if other nodes write to the same topics or stores: the order of records must not depend on batches.
        size = 0 if gen.mixes_order(node) else self.call.size
        batches = call(gen.kernel(MODULE, "Batches"), literal(size), literal(self.call.form))
        made = call(gen.kernel(MODULE, self.kernel), target, context, batches, gen.replays(), emit_steps(gen, node))
        emit_holding_step(gen, node, made)


def refuse_batch(step: Step, option: str) -> None:
    """Raise BuildError if a step on a table has a function over batches, because a table's change also has an old value."""
    if isinstance(step.options[option], BatchCall):
        raise BuildError(step.at(option), f"{step.operator}: `batch` is for streams; this step's upstream is a table")


def emit_context(gen: CodeWriter, node: Node, stores: tuple[str, ...]) -> Code:
    """Return the piece that creates the context of the user's code."""
    # Before the function that forwards to all children, because functions are written in the order in which they are requested.
    children = mapping_of({name: gen.child_function(name) for name in node.children})
    forward = gen.forward_function(node, False)
    connected = connected_stores(gen, stores)
    return call(gen.kernel(MODULE, "BatchContext"), RT, gen.index(node), connected, forward, children)


def emit_steps(gen: CodeWriter, node: Node) -> Code:
    """Return the piece with the node's properties that a holding step needs: its index, and its functions to forward and to fail."""
    return tuple_of(gen.index(node), gen.forward_function(node, False), symbol("fail"))


def emit_holding_step(gen: CodeWriter, node: Node, made: Code, by: Expression | None = None) -> None:
    """Write the call that passes the current record to a step that holds it back. made: the piece that creates the step.

    by: the expression for the function's argument, by default key and value.
    """
    step = gen.instance(("holding", node.name), "p", made)
    gen.on_lifecycle("init", node, call("initialise", gen.index(node), attribute(step, "init")))
    gen.on_lifecycle("close", node, method(step, "close"))
    with gen.guard(node):
        record = gen.record
        key, value = gen.object_of(record.key), gen.object_of(record.value)
        argument = value if by is None else gen.expr(by)
        gen.do(method(step, "add", key, value, record.time, record.context, argument))
