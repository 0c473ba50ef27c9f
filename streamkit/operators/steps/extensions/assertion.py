"""`assert`: fails for each record that does not fulfil a condition."""

from __future__ import annotations

from typing import TYPE_CHECKING, ClassVar

from streamkit.code import call, literal, negated
from streamkit.errors import StreamkitError
from streamkit.expressions import Expression
from streamkit.operators.codegen.code_writer import CodeWriter, Node, Processor
from streamkit.operators.core.fields import NAME, Expr, Field, Text
from streamkit.operators.core.frozen import frozen
from streamkit.operators.core.operator import Context, Operator, Stream, add_stream_node
from streamkit.operators.core.parsed_values import Step

if TYPE_CHECKING:
    from typing import NoReturn


@frozen
class Assert(Processor):
    """Fails with `message` for each record whose condition is false."""

    condition: Expression
    message: str

    def emit(self, node: Node, gen: CodeWriter) -> None:
        test = gen.var("p")
        with gen.guard(node):
            gen.assign(test, gen.expr(self.condition))
            with gen.when(negated(test)):
                gen.do(call(gen.name_of(fail, "fail"), literal(self.message)))
        gen.forward(node)


class AssertOperator(Operator[Stream]):
    """`assert` (KStream.process with a processor that raises)."""

    name: ClassVar[str] = "assert"
    is_extension = True
    main = "if"
    fields = (
        Field("if", Expr(), "The condition; as in Python, null, 0 and empty values are false.", required=True),
        Field("message", Text(), "The message of the error.", default="the condition does not hold"),
        NAME,
    )
    summary = (
        "Forwards the records for which the condition is true. Every other record is an error of the step with "
        "`message`, and `on_error` decides what happens: the application ends (the default), the record is dropped, "
        "or it goes to a dead-letter topic with the message in its headers."
    )

    def build(self, step: Step, upstream: Stream, builder: Context) -> Stream:
        message = step.get("message", "the condition does not hold")
        name = builder.graph.names.named(step.get("name"), "STREAMKIT-ASSERT-")
        return add_stream_node(upstream, builder, name, Assert(step.options["if"], message))


def fail(message: str) -> NoReturn:
    """Raise StreamkitError with the message of an assertion."""
    raise StreamkitError(f"assert: {message}")
