"""`sample`: a fixed part of the records, the same ones on each replay."""

from __future__ import annotations

import json
from typing import ClassVar

from streamkit.code import call, item, literal
from streamkit.errors import StreamkitError
from streamkit.expressions import Expression
from streamkit.operators.codegen.code_writer import CodeWriter, Node, Processor
from streamkit.operators.core.fields import NAME, Expr, Field, Fraction, Integer
from streamkit.operators.core.frozen import frozen
from streamkit.operators.core.operator import Context, Operator, Stream, add_stream_node
from streamkit.operators.core.parsed_values import Step
from streamkit.record import Value, WindowedKey
from streamkit.serdes.plain import shown


@frozen
class Sample(Processor):
    """Forwards records whose hash is below a bound. by None: hashes the key."""

    rate: float
    by: Expression | None
    seed: int

    needs_context: ClassVar[bool] = True

    def emit(self, node: Node, gen: CodeWriter) -> None:
        keep = gen.var("p")
        sampler = gen.name_of(Sampler, "Sampler")
        sample = gen.prologue(
            ("sample", self.rate, self.seed), "sample", call(sampler, *map(literal, (self.rate, self.seed)))
        )
        with gen.guard(node):
            chosen = gen.object_of(gen.record.key) if self.by is None else gen.expr(self.by)
            place = (item(gen.record.context, at) for at in (1, 2, 3))
            gen.assign(keep, call(sample, chosen, *place))
        with gen.when(keep):
            gen.forward(node)

    def why_nothing(self) -> str:
        return "it is not in the sample"


class SampleOperator(Operator[Stream]):
    """`sample` (KStream.filter with a hash of the record)."""

    name: ClassVar[str] = "sample"
    is_extension = True
    main = "rate"
    fields = (
        Field("rate", Fraction(), "The share of the records to keep, from 0 to 1.", required=True),
        Field("by", Expr(), "The value that decides; by default the record's key."),
        Field("seed", Integer(0), "A different number keeps different records.", default=0),
        NAME,
    )
    summary = (
        "Keeps a part of the records and drops the others. A hash (BLAKE2b) of `seed` and of the result of `by` "
        "decides, so all records with the same result are kept or dropped together, on every instance and in each "
        "replay. Of many different results, a share of about `rate` is kept, and a higher `rate` keeps all records "
        "that a lower one keeps. Equal numbers have equal hashes (1, 1.0), and the order of an object's fields does "
        "not matter. If `by` returns null, the position of the record decides (topic, partition and offset), so "
        "records are kept or dropped individually."
    )

    def build(self, step: Step, upstream: Stream, builder: Context) -> Stream:
        processor = Sample(step.options["rate"], step.get("by"), step.get("seed", 0))
        name = builder.graph.names.named(step.get("name"), "STREAMKIT-SAMPLE-")
        return add_stream_node(upstream, builder, name, processor)


# The run-time part: sampling by a hash.

_RANGE = 1 << 64


class Sampler:
    """Decides which records to keep; called with the value to hash and the record's position."""

    __slots__ = ("_bound", "_start")

    def __init__(self, rate: float, seed: int):
        from hashlib import blake2b  # uses OpenSSL, which every command would otherwise load at its start

        self._bound = int(rate * _RANGE)
        self._start = blake2b(b"%d" % seed, digest_size=8)

    def __call__(self, by: Value, topic: str | None, partition: int, offset: int) -> bool:
        """Return whether the record is kept. Raises StreamkitError for a value that has no JSON form."""
        digest = self._start.copy()
        digest.update(repr((topic, partition, offset)).encode() if by is None else _bytes_of(by))
        return int.from_bytes(digest.digest()) < self._bound


def _bytes_of(value: Value) -> bytes:
    if type(value) is str:
        return b"s" + value.encode("utf-8", "surrogatepass")
    if type(value) is bytes:
        return b"b" + value
    try:
        return b"j" + json.dumps(_plain(value), sort_keys=True).encode()
    except (TypeError, ValueError, RecursionError) as error:
        raise StreamkitError(f"sample: {shown(value, 80)} has no JSON form, so it has no hash") from error


def _plain(value: Value) -> Value:
    """Return a value in which equal numbers are written equally."""
    if type(value) is float and value.is_integer():
        return int(value)
    if isinstance(value, WindowedKey):
        return [_plain(value.key), value.start, value.end]
    if isinstance(value, dict):
        return {key: _plain(part) for key, part in value.items()}
    if isinstance(value, (list, tuple)):
        return [_plain(part) for part in value]
    return value
