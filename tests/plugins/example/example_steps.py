"""A step that stands for others, and a function for expressions, as a package adds them to streamkit."""

from __future__ import annotations

from collections.abc import Mapping
from decimal import Decimal

from streamkit import Stream
from streamkit.api.extending import ComposedStep, Example, Expr, Field, FieldValue, Integer, PipelineRef, Text


def cents(text: str) -> int:
    """Return an amount in cents."""
    return int(Decimal(text) * 100)


class CountBy(ComposedStep[Stream]):
    """`count_by`: how many large records there are of each kind."""

    name = "count_by"
    main = "field"
    fields = (
        Field("field", Expr(), "What is counted.", required=True),
        Field("store", Text(kafka_name=True), "The name of the store.", default="counts"),
        Field("minimum", Integer(0), "The least amount."),
        Field("others", PipelineRef(many=True), "Streams that are counted too."),
    )
    summary = "Counts the records of each kind."
    example = Example(
        topology="""streamkit: 1
application: kinds
topics:
  orders: {value: json}
  kinds: {value: long}
pipelines:
  kinds:
    stream: orders
    steps:
      - count_by: {field: value.kind, minimum: 500}
    to: kinds
""",
        input="""{"topic": "orders", "key": "1", "value": {"kind": "tea", "price": "7.50"}, "timestamp": 0}
{"topic": "orders", "key": "2", "value": {"kind": "tea", "price": "2.50"}, "timestamp": 1}
""",
        output="""{"topic": "kinds", "key": "tea", "value": 1, "timestamp": 0}
""",
    )

    def build(self, stream: Stream, options: Mapping[str, FieldValue]) -> Stream:
        if options["others"] is not None:
            stream = stream.merge(options["others"])
        if options["minimum"] is not None:
            stream = stream.filter(f"cents(value.price) >= {options['minimum']} and {options['field']} != None")
        return stream.group_by(options["field"], key_serde="string").count(options["store"]).to_stream()
