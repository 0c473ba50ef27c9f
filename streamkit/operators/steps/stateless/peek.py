"""`peek`: evaluates an expression for its effect; records pass unchanged."""

from __future__ import annotations

from typing import ClassVar

from streamkit.expressions import Expression
from streamkit.operators.codegen.code_writer import CodeWriter, Node, Processor
from streamkit.operators.core.fields import NAME, Expr, Field
from streamkit.operators.core.frozen import frozen
from streamkit.operators.core.operator import Context, Operator, Stream, add_stream_node
from streamkit.operators.core.parsed_values import Step


@frozen
class Peek(Processor):
    """Evaluates an expression for its effect and forwards the record (KStreamPeek)."""

    do: Expression

    def emit(self, node: Node, gen: CodeWriter) -> None:
        with gen.guard(node):
            gen.do(gen.expr(self.do))
        gen.forward(node)


class PeekOperator(Operator[Stream]):
    """`peek` (KStream.peek)."""

    name: ClassVar[str] = "peek"
    main = "do"
    fields = (
        Field("do", Expr(), "Evaluated for each record; the result is ignored.", required=True),
        NAME,
    )
    summary = (
        "Evaluates an expression, or calls a Python callable with key and value, for each record, and forwards the "
        "record unchanged."
    )

    def build(self, step: Step, upstream: Stream, builder: Context) -> Stream:
        name = builder.graph.names.named(step.get("name"), "KSTREAM-PEEK-")
        return add_stream_node(upstream, builder, name, Peek(step.options["do"]))
