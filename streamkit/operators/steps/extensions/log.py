"""`log`: writes a line per record to the application's log, up to a maximum rate."""

from __future__ import annotations

import logging
from collections.abc import Callable
from time import monotonic
from typing import ClassVar

from streamkit.code import attribute, call, literal, method, symbol
from streamkit.expressions import Expression
from streamkit.operators.codegen.code_writer import CodeWriter, Node, Processor
from streamkit.operators.core.fields import NAME, Choice, Expr, Field, Integer
from streamkit.operators.core.frozen import frozen
from streamkit.operators.core.operator import Context, Operator, Stream, add_stream_node
from streamkit.operators.core.parsed_values import Step
from streamkit.record import Value
from streamkit.serdes.plain import shown
from streamkit.suggestions import number_of

LEVELS = {"debug": logging.DEBUG, "info": logging.INFO, "warning": logging.WARNING, "error": logging.ERROR}
LIMIT = 100


@frozen
class Log(Processor):
    """Logs the text of an expression. level: a level of the module `logging`; limit: the maximum number of lines per second."""

    message: Expression
    level: int
    limit: int

    def emit(self, node: Node, gen: CodeWriter) -> None:
        arguments = (attribute(symbol("rt"), "log_line"), *map(literal, (node.name, self.level, self.limit)))
        lines = gen.prologue(("log", node.name), "log", call(gen.name_of(LimitedLog, "LimitedLog"), *arguments))
        # The test comes first, so that no text is computed beyond the limit.
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
            "The message: text is logged unchanged, other values as JSON or in Python's notation.",
            required=True,
        ),
        Field("level", Choice(tuple(LEVELS)), "The level of the line.", default="info"),
        Field("limit", Integer(), "The maximum number of lines that a task logs per second.", default=LIMIT),
        NAME,
    )
    summary = (
        "Logs a line for each record, which begins with the name of the node, and forwards the record unchanged. "
        "`run` writes it to its log (logger `streamkit.steps`), `try`, `test` and Spark to stderr. A task logs at "
        "most `limit` lines in a second of the wall clock; for further records the message is not computed, and the "
        "next line begins with the number of omitted lines. A line has at most 10,000 characters, and "
        "line breaks in it are written as `\\n`."
    )

    def build(self, step: Step, upstream: Stream, builder: Context) -> Stream:
        level = LEVELS[step.get("level", "info")]
        processor = Log(step.options["message"], level, step.get("limit", LIMIT))
        name = builder.graph.names.named(step.get("name"), "STREAMKIT-LOG-")
        return add_stream_node(upstream, builder, name, processor)


# The class that writes the lines at run time.

LONGEST = 10_000


class LimitedLog:
    """Logs the lines of one node. log_line: takes (level, text); limit: lines per second; clock: returns seconds."""

    def __init__(
        self,
        log_line: Callable[[int, str], None],
        name: str,
        level: int,
        limit: int,
        clock: Callable[[], float] = monotonic,
    ):
        self._log_line = log_line
        self._name = name
        self._level = level
        self._limit = limit
        self._clock = clock
        self._second = 0
        self._written = 0
        self._omitted = 0

    def has_room(self) -> bool:
        """Return whether another line may be written in this second; otherwise count it as omitted."""
        second = int(self._clock())
        if second != self._second:
            self._second, self._written = second, 0
        if self._written < self._limit:
            self._written += 1
            return True
        self._omitted += 1
        return False

    def write(self, value: Value) -> None:
        """Write a line, which begins with the number of lines omitted since the last one."""
        text = value if isinstance(value, str) else shown(value, LONGEST)
        line = f"{self._name}: {text[:LONGEST]}".replace("\r", "\\r").replace("\n", "\\n")
        if self._omitted:
            line = f"({number_of(self._omitted, 'line')} left out) {line}"
            self._omitted = 0
        self._log_line(self._level, line)
