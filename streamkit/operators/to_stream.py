"""`to_stream`: a table's changes as a stream."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TYPE_CHECKING, Any, ClassVar

from streamkit.code import TRUE
from streamkit.errors import Problem
from streamkit.graph.node import ProcessorNode
from streamkit.operators.base import Example, Operator, Processor
from streamkit.operators.context import Context
from streamkit.operators.fields import KEY_SERDE, NAME, Expr, Field, Step
from streamkit.operators.frozen import frozen
from streamkit.operators.select_key import select_key
from streamkit.operators.serdes import plain_or_none
from streamkit.operators.typing import Types, Typing
from streamkit.operators.upstream import Stream, Table

if TYPE_CHECKING:
    from streamkit.operators.writer import CodeWriter, Node


@frozen
class ToStream(Processor):
    """Forwards the new value of each change, None included (KTableImpl.toStream)."""

    def emit(self, node: Node, gen: CodeWriter) -> None:
        gen.forward(node, old=None, latest=TRUE)


class ToStreamOperator(Operator):
    """`to_stream` (KTable.toStream)."""

    name: ClassVar[str] = "to_stream"
    main = "key"
    fields = (
        Field("key", Expr(), "A new key for the stream; the table's key where absent."),
        KEY_SERDE,
        NAME,
    )
    accepts = ("table",)
    summary = (
        "Turns a table into the stream of its changes: a record for each update, with value null where a row was "
        "deleted. A table must become a stream before `to` can write it."
    )
    example = Example(
        topology="""streamkit: 1
application: changes
topics:
  users: {value: string}
  user-changes: {value: string}
pipelines:
  changes:
    table: users
    steps:
      - to_stream
    to: user-changes
""",
        input="""{"topic": "users", "key": "1", "value": "Ada", "timestamp": 0}
{"topic": "users", "key": "1", "value": null, "timestamp": 1}
""",
        output="""{"topic": "user-changes", "key": "1", "value": "Ada", "timestamp": 0}
{"topic": "user-changes", "key": "1", "value": null, "timestamp": 1}
""",
    )

    def check(self, step: Step) -> Iterable[Problem]:
        if "key_serde" in step.options and "key" not in step.options:
            yield Problem(step.at("key_serde"), "to_stream: `key_serde` needs `key`, which is what it is for")

    def types(self, hand: Typing) -> Types:
        return Types(hand.of("key"), hand.own.value) if "key" in hand.step.options else hand.own

    def build(self, step: Step, upstream: Any, builder: Context) -> Stream:
        table: Table = upstream
        name = builder.graph.names.named(step.get("name"), "KTABLE-TOSTREAM-")
        node = ProcessorNode(name, ToStream())
        node.serdes = (plain_or_none(table.key_serde), plain_or_none(table.value_serde))
        builder.graph.add(table.node, node)
        stream = Stream(name, node, table.sources, table.key_serde, table.value_serde)
        key = step.get("key")
        if key is None:
            return stream
        return select_key(builder, stream, key, step.get("key_serde", builder.default_key), None)
