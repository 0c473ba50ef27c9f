"""A serde, a step and a rule of lint, as a package adds them to streamkit."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, ClassVar

from streamkit.api.extending import (
    NAME,
    CodeWriter,
    Context,
    Example,
    Field,
    Integer,
    Node,
    Operator,
    Processor,
    ProcessorGraphNode,
    Rule,
    Step,
    Stream,
    Subject,
    code,
    frozen,
)


class Money:
    """Cents as text with a currency: `money`, or `{money: CHF}`."""

    def __init__(self, currency: Any):
        self._currency = (currency or "EUR").encode()

    def encode(self, value: int) -> bytes:
        return b"%d.%02d %s" % (*divmod(value, 100), self._currency)

    def decode(self, data: bytes) -> int:
        number, currency = data.split(b" ")
        if currency != self._currency:
            raise ValueError(f"{currency.decode()} is not {self._currency.decode()}")
        return int(number.replace(b".", b""))


@frozen
class Every(Processor):
    """Forwards each n-th record of a task."""

    n: int

    def emit(self, node: Node, gen: CodeWriter) -> None:
        count = gen.prologue(("every", node.name), "count", code.list_of(code.literal(0)))
        gen.add_to(code.item(count, 0), code.literal(1))
        turn = code.binary(code.item(count, 0), "%", code.literal(self.n))
        with gen.when(code.compare(turn, "==", code.literal(0))):
            gen.forward(node)


class EveryOperator(Operator):
    """`every`: each n-th record."""

    name: ClassVar[str] = "every"
    main = "n"
    fields = (Field("n", Integer(minimum=1), "How many records one stands for.", required=True), NAME)
    summary = "Forwards each n-th record of a task and drops the others. It is not a step of Kafka Streams."
    example = Example(
        topology="""streamkit: 1
application: sample
topics:
  orders: {value: money}
  some: {value: money}
pipelines:
  some:
    stream: orders
    steps:
      - every: 2
    to: some
""",
        input="""{"topic": "orders", "key": "a", "value": 100, "timestamp": 0}
{"topic": "orders", "key": "b", "value": 250, "timestamp": 1}
""",
        output="""{"topic": "some", "key": "b", "value": 250, "timestamp": 1}
""",
    )

    def build(self, step: Step, upstream: Any, builder: Context) -> Stream:
        name = builder.graph.names.named(step.get("name"), "EXAMPLE-EVERY-")
        node = ProcessorGraphNode(name, Every(step.options["n"]))
        builder.graph.add(upstream.node, node)
        result: Stream = upstream.below(name, node)
        return result


def _find(subject: Subject) -> Iterable[tuple[Any, str]]:
    for step in subject.steps:
        if step.operator == "every" and step.options["n"] == 1:
            yield step.position, "every: 1 drops nothing"


RULE = Rule(
    code="no-every-one",
    summary="`every: 1`",
    why="It forwards all records.",
    bad=EveryOperator.example.topology.replace("every: 2", "every: 1"),
    good=EveryOperator.example.topology,
    find=_find,
)
