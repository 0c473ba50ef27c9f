"""`print`: show records."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from streamkit.code import call, literal
from streamkit.graph.node import ProcessorNode
from streamkit.operators.base import Example, Operator, Processor
from streamkit.operators.context import Context
from streamkit.operators.fields import NAME, Field, Step, Text
from streamkit.operators.frozen import frozen
from streamkit.operators.serdes import plain_or_none
from streamkit.operators.upstream import Stream
from streamkit.serdes.size import check_value

if TYPE_CHECKING:
    from streamkit.operators.writer import CodeWriter, Node


@frozen
class Print(Processor):
    """Writes `[label]: key, value` (KStreamPrint)."""

    label: str

    def emit(self, node: Node, gen: CodeWriter) -> None:
        with gen.guard(node):
            key, value = gen.obj(gen.hand.key), gen.obj(gen.hand.value)
            line = call(gen.name_of(shown, "shown"), literal(self.label), key, value)
            gen.do(call("rt.print_line", line))
        gen.forward(node)


class PrintOperator(Operator):
    """`print` (KStream.print)."""

    name: ClassVar[str] = "print"
    main = "label"
    fields = (
        Field("label", Text(), "What stands in front of each line; the name of the node above where absent."),
        NAME,
    )
    summary = (
        "Prints each record as `[label]: key, value`; under `try` to stderr. The node has no successors: the step after "
        "it stands on what `print` stands on."
    )
    example = Example(
        topology="""streamkit: 1
application: show
topics:
  numbers: {value: integer}
  same: {value: integer}
pipelines:
  same:
    stream: numbers
    steps:
      - print: seen
    to: same
""",
        input="""{"topic": "numbers", "key": "a", "value": 1, "timestamp": 0}
""",
        output="""{"topic": "same", "key": "a", "value": 1, "timestamp": 0}
""",
    )

    def build(self, step: Step, upstream: Any, builder: Context) -> Stream:
        name = builder.graph.names.named(step.get("name"), "KSTREAM-PRINTER-")
        label = step.get("label")
        node = ProcessorNode(name, Print(upstream.name if label is None else label))
        node.serdes = (plain_or_none(upstream.key_serde), plain_or_none(upstream.value_serde))
        builder.graph.add(upstream.node, node)
        result: Stream = upstream
        return result


def shown(label: str, key: Any, value: Any) -> str:
    """Return the line of a record as Java prints it. Raises SerdeError for one that is too large to be written.

    >>> shown("words", "a", None)
    '[words]: a, null'
    """
    check_value(key)
    check_value(value)
    return f"[{label}]: {'null' if key is None else key}, {'null' if value is None else value}"
