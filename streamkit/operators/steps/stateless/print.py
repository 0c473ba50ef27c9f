"""`print`: prints records."""

from __future__ import annotations

from typing import ClassVar

from streamkit.code import call, literal
from streamkit.operators.codegen.code_writer import CodeWriter, Node, Processor
from streamkit.operators.core.fields import NAME, Field, Text
from streamkit.operators.core.frozen import frozen
from streamkit.operators.core.operator import Context, Operator, Stream, add_stream_node
from streamkit.operators.core.parsed_values import Step
from streamkit.record import Key, Value
from streamkit.serdes.size import check_value


@frozen
class Print(Processor):
    """Writes `[label]: key, value` (KStreamPrint)."""

    label: str

    def emit(self, node: Node, gen: CodeWriter) -> None:
        with gen.guard(node):
            key, value = gen.object_of(gen.record.key), gen.object_of(gen.record.value)
            line = call(gen.name_of(shown, "shown"), literal(self.label), key, value)
            gen.do(call("rt.print_line", line))
        gen.forward(node)


class PrintOperator(Operator[Stream]):
    """`print` (KStream.print)."""

    name: ClassVar[str] = "print"
    main = "label"
    fields = (
        Field("label", Text(), "The prefix of each line; by default the name of the node above."),
        NAME,
    )
    summary = (
        "Prints each record as `[label]: key, value`; under `try` to stderr. The node has no successors; the next "
        "step follows the node above `print`."
    )

    def build(self, step: Step, upstream: Stream, builder: Context) -> Stream:
        name = builder.graph.names.named(step.get("name"), "KSTREAM-PRINTER-")
        label = step.get("label")
        add_stream_node(upstream, builder, name, Print(upstream.name if label is None else label))
        return upstream


def shown(label: str, key: Key, value: Value) -> str:
    """Return the line of a record as Java prints it. Raises SerdeError for a record that is too large.

    >>> shown("words", "a", None)
    '[words]: a, null'
    """
    check_value(key)
    check_value(value)
    return f"[{label}]: {'null' if key is None else key}, {'null' if value is None else value}"
