"""`peek`: look at records in passing."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from streamkit.graph.node import ProcessorNode
from streamkit.operators.base import Example, Operator, Processor
from streamkit.operators.context import Context
from streamkit.operators.fields import NAME, Expr, Field, Step
from streamkit.operators.frozen import frozen
from streamkit.operators.serdes import plain_or_none
from streamkit.operators.upstream import Stream

if TYPE_CHECKING:
    from streamkit.operators.writer import CodeWriter, Node


@frozen
class Peek(Processor):
    """Evaluates an expression for its effect and forwards the record (KStreamPeek)."""

    do: Any

    def emit(self, node: Node, gen: CodeWriter) -> None:
        with gen.guard(node):
            gen.do(gen.expr(self.do))
        gen.forward(node)


class PeekOperator(Operator):
    """`peek` (KStream.peek)."""

    name: ClassVar[str] = "peek"
    main = "do"
    fields = (
        Field("do", Expr(), "Evaluated for each record; what it gives is ignored.", required=True),
        NAME,
    )
    summary = (
        "Evaluates an expression, or calls a Python callable with key and value, for each record and passes the record "
        "on unchanged."
    )
    example = Example(
        topology="""streamkit: 1
application: look
topics:
  numbers: {value: integer}
  same: {value: integer}
pipelines:
  same:
    stream: numbers
    steps:
      - peek: value + 1
    to: same
""",
        input="""{"topic": "numbers", "key": "a", "value": 1, "timestamp": 0}
""",
        output="""{"topic": "same", "key": "a", "value": 1, "timestamp": 0}
""",
    )

    def build(self, step: Step, upstream: Any, builder: Context) -> Stream:
        name = builder.graph.names.named(step.get("name"), "KSTREAM-PEEK-")
        node = ProcessorNode(name, Peek(step.options["do"]))
        node.serdes = (plain_or_none(upstream.key_serde), plain_or_none(upstream.value_serde))
        builder.graph.add(upstream.node, node)
        result: Stream = upstream.below(name, node)
        return result
