"""`set_timestamp`: replaces the timestamp of each record."""

from __future__ import annotations

from typing import ClassVar

from streamkit.code import call
from streamkit.errors import StreamkitError
from streamkit.expressions import Expression
from streamkit.operators.codegen.code_writer import CodeWriter, Node, Processor
from streamkit.operators.core.fields import NAME, Expr, Field
from streamkit.operators.core.frozen import frozen
from streamkit.operators.core.operator import Context, Operator, Stream, add_stream_node
from streamkit.operators.core.parsed_values import Step
from streamkit.record import Value
from streamkit.serdes.plain import shown
from streamkit.state.layouts import MAX_LONG


@frozen
class SetTimestamp(Processor):
    """Replaces the timestamp (ms) by that of an expression."""

    timestamp: Expression

    def emit(self, node: Node, gen: CodeWriter) -> None:
        time = gen.var("t")
        with gen.guard(node):
            gen.assign(time, call(gen.name_of(checked_timestamp, "timestamp"), gen.expr(self.timestamp)))
        gen.forward(node, time=time)


class SetTimestampOperator(Operator[Stream]):
    """`set_timestamp` (KStream.process with a processor that forwards `record.withTimestamp`)."""

    name: ClassVar[str] = "set_timestamp"
    is_extension = True
    main = "to"
    fields = (
        Field("to", Expr(), "The new timestamp in milliseconds, a whole number of at least 0.", required=True),
        NAME,
    )
    summary = (
        "Gives each record another timestamp, which downstream windows, joins and topics use. A result other than "
        "a whole number of at least 0, including null, is an error of the step. The task's stream time does not "
        "change, because it comes from the records that the task reads. To set it too, give the topic a `timestamp`, "
        "or use `repartition` after this step."
    )

    def build(self, step: Step, upstream: Stream, builder: Context) -> Stream:
        processor = SetTimestamp(step.options["to"])
        name = builder.graph.names.named(step.get("name"), "STREAMKIT-SETTIMESTAMP-")
        return add_stream_node(upstream, builder, name, processor)


def checked_timestamp(value: Value) -> int:
    """Return a timestamp. Raises StreamkitError for a value that is not a timestamp."""
    if type(value) is int and 0 <= value <= MAX_LONG:
        return value
    raise StreamkitError(
        f"set_timestamp: a timestamp is a whole number of milliseconds of at least 0, not {shown(value, 80)}"
    )
