"""`log`: a line in the application's log for each record, at most so many a second."""

from __future__ import annotations

import logging
from typing import TYPE_CHECKING, ClassVar

from streamkit.code import attribute, call, literal, method, symbol
from streamkit.operators.core.fields import NAME, Choice, Expr, Field, Integer
from streamkit.operators.core.frozen import frozen
from streamkit.operators.core.operator import Context, Example, Operator, Processor, Stream
from streamkit.operators.core.parsed_values import Step
from streamkit.operators.steps.extensions.stream_node import add_stream_node

if TYPE_CHECKING:
    from streamkit.expressions import Expression
    from streamkit.operators.codegen.code_writer import CodeWriter, Node

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
LIMIT = 100


@frozen
class Log(Processor):
    """Logs the text of an expression. level: of the module `logging`; limit: lines a second at most."""

    message: Expression
    level: int
    limit: int

    def emit(self, node: Node, gen: CodeWriter) -> None:
        arguments = (attribute(symbol("rt"), "log_line"), *map(literal, (node.name, self.level, self.limit)))
        lines = gen.prologue(
            ("log", node.name), "log", call(gen.kernel("extensions.limited_log", "LimitedLog"), *arguments)
        )
        # Beyond the limit the text is not made.
        with gen.guard(node), gen.when(method(lines, "has_room")):
            gen.do(method(lines, "write", gen.expr(self.message)))
        gen.forward(node)


class LogOperator(Operator[Stream]):
    """`log` (KStream.peek with a logger)."""

    name: ClassVar[str] = "log"
    is_extension = True
    main = "message"
    fields = (
        Field(
            "message",
            Expr(),
            "What is logged: text as it is, other values as JSON or as Python shows them.",
            required=True,
        ),
        Field("level", Choice(tuple(LEVELS)), "The level of the line.", default="info"),
        Field("limit", Integer(), "How many lines a second a task logs at most.", default=LIMIT),
        NAME,
    )
    summary = (
        "Logs a line for each record, which begins with the name of the node, and forwards the record unchanged. `run` writes "
        "it to its log (logger `streamkit.steps`), `try`, `test` and Spark to stderr. A task logs at most `limit` lines in a "
        "second of the wall clock; the message of a further record is not computed, and the next line of a later second "
        "begins with how many were left out. A line has at most 10,000 characters, and line breaks in it are written as `\\n`."
    )
    example = Example(
        topology="""streamkit: 1
application: logged
topics:
  orders: {value: json}
  same: {value: json}
pipelines:
  same:
    stream: orders
    steps:
      - log: {message: "f'{key} paid {value.cents}'", level: warning, limit: 10}
    to: same
""",
        input="""{"topic": "orders", "key": "a", "value": {"cents": 5}, "timestamp": 0}
""",
        output="""{"topic": "same", "key": "a", "value": {"cents": 5}, "timestamp": 0}
""",
    )

    def build(self, step: Step, upstream: Stream, builder: Context) -> Stream:
        level = LEVELS[step.get("level", "info")]
        processor = Log(step.options["message"], level, step.get("limit", LIMIT))
        return add_stream_node(step, upstream, builder, "STREAMKIT-LOG-", processor)
