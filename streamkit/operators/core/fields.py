"""The fields that steps declare, and their kinds. spec/ parses and documents them, and generates the JSON Schema."""

from __future__ import annotations

from typing import Any, TypeAlias

from streamkit.operators.core.frozen import frozen

STREAM_NAMES = ("key", "value", "timestamp", "headers", "topic", "partition", "offset")
PARTITION_NAMES = (*STREAM_NAMES, "partitions")
AGGREGATE_NAMES = (*STREAM_NAMES, "aggregate")

FieldValue: TypeAlias = Any
"""The parsed value of a field. Its type is determined by the kind that the step declares (see the kinds)."""


@frozen
class Kind:
    """The kind of value that a field takes."""


@frozen
class Expr(Kind):
    """An expression over these names; parsed to `expressions.Expression`. `{call: m:o}` takes `arguments` in order.

    batch: whether the callable may take lists of arguments (`batch: N`, parsed to `BatchCall`). takes_all: whether a
    callable takes all arguments; otherwise the step selects them, and validate does not check their number.
    """

    names: tuple[str, ...] = STREAM_NAMES
    arguments: tuple[str, ...] = ("key", "value")
    batch: bool = False
    takes_all: bool = True


@frozen
class SerdeField(Kind):
    """A serde, by name or with arguments; parsed to `serdes.Serde`."""


@frozen
class Text(Kind):
    """Any text, or a legal Kafka name with `kafka_name` (Named.validate)."""

    kafka_name: bool = False


@frozen
class Duration(Kind):
    """`5m`, `PT5M` or an integer; parsed to milliseconds, at least `minimum`."""

    minimum: int = 0


@frozen
class SignedDuration(Kind):
    """A duration with an optional minus (`-5m`, `-PT5M`, a negative integer); parsed to milliseconds."""


@frozen
class Integer(Kind):
    """A whole number of at least `minimum`."""

    minimum: int = 1


@frozen
class Fraction(Kind):
    """A number from 0 to 1; parsed to float."""


@frozen
class Choice(Kind):
    """One of some words."""

    words: tuple[str, ...] = ()


@frozen
class Flag(Kind):
    """True or false."""


@frozen
class TopicConfig(Kind):
    """Settings of a topic by name; parsed to a tuple of (name, text)."""


@frozen
class DurationOr(Kind):
    """A duration, or one of some words (suppress `until`)."""

    words: tuple[str, ...] = ()
    minimum: int = 0


@frozen
class StoreField(Kind):
    """`NAME` or a mapping, with or without a `name`; parsed to `StoreOptions`."""


@frozen
class StoreNames(Kind):
    """A list of names of the file's `stores`, parsed to a tuple of text (a lone name is a list of one)."""


@frozen
class BaseName(Kind):
    """A name from which store names are derived (`store` of stream-stream joins); parsed to text."""


@frozen
class PipelineRef(Kind):
    """A pipeline (`NAME`, `NAME.BRANCH`) or `{stream|table|global_table: T}`; parsed to `Ref`."""

    many: bool = False
    """Whether a list is allowed; then the parsed value is always a tuple of Ref."""


@frozen
class CogroupInputs(Kind):
    """A list of `{from: PIPELINE, add: EXPR}`; parsed to a tuple of `CogroupInput`."""


@frozen
class Branches(Kind):
    """`{NAME: predicate or {if, steps, to, for_each, chained}}`, or a list of them; parsed to a tuple of `BranchSpec`.

    The name of a list's entry without `name` is its position, counted from 1.
    """


@frozen
class DefaultBranch(Kind):
    """The name of the default branch, or true for the name 0; parsed to text."""


@frozen
class HeaderMap(Kind):
    """`{NAME: expression or null}`; parsed to a tuple of (name, Expression or None)."""


@frozen
class Callable_(Kind):
    """`module:object`; parsed to `CallRef`, with the arguments of the field `with`.

    passed: the positional arguments of a function, None if they depend on the upstream; context: whether the function may take
    the context after them.
    """

    passed: tuple[str, ...] | None = None
    context: bool = False


@frozen
class Arguments(Kind):
    """A callable's arguments by name; parsed into the `CallRef` of the field `call`."""


@frozen
class CacheField(Kind):
    """`{size, ttl}`; parsed to `CacheOptions`."""


@frozen
class Field:
    """One option of a step. `doc`: a sentence for the language reference."""

    name: str
    kind: Kind
    doc: str
    required: bool = False
    default: FieldValue = None


CALL_KEYS = ("call", "with", "batch", "as")
"""The keys of a Python call, which replace the main field of a step if that field is an expression."""
COLUMN_FORMS = ("arrow", "pandas", "numpy")
"""The libraries whose columns a function over batches may take."""
WITH = Field("with", Arguments(), "The callable's arguments by name.")
BATCH = Field(
    "batch", Integer(1), "The callable takes [lists](calls.md#functions-over-batches) of up to this many records."
)
AS = Field("as", Choice(COLUMN_FORMS), "With `batch`: values are passed as columns, named by their fields.")
BATCH_CALL = (
    Field("call", Callable_(("key", "value")), "Instead of an expression: `module:Name`, a callable of key and value."),
    WITH,
    BATCH,
    AS,
)
"""The fields of a step that may call a function over batches instead of evaluating an expression."""

NAME = Field("name", Text(kafka_name=True), "The name of the step's node, instead of a generated one.")
KEY_SERDE = Field("key_serde", SerdeField(), "The serde of the new key; by default the file's key serde.")
VALUE_SERDE = Field("value_serde", SerdeField(), "The serde of the new value; by default the file's value serde.")
STORE = Field("store", StoreField(), "The [store](stores.md) for the result; without it no Materialized is passed.")

STORE_KINDS = ("persistent", "in_memory")
"""The values of a store's `type` (Materialized.StoreType)."""
