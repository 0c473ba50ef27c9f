"""The kinds of fields that steps declare; spec/ parses and documents them, and writes the JSON Schema from them."""

from __future__ import annotations

from dataclasses import field
from typing import Any

from streamkit.operators.frozen import frozen

STREAM_NAMES = ("key", "value", "timestamp", "headers", "topic", "partition", "offset")
PARTITION_NAMES = (*STREAM_NAMES, "partitions")
AGGREGATE_NAMES = (*STREAM_NAMES, "aggregate")


@frozen
class Kind:
    """What a field holds."""


@frozen
class Expr(Kind):
    """An expression over these names; parsed to `expressions.Expression`. `{call: m:o}` takes `arguments` in order."""

    names: tuple[str, ...] = STREAM_NAMES
    arguments: tuple[str, ...] = ("key", "value")


@frozen
class SerdeField(Kind):
    """A serde by name or with arguments; parsed to `serdes.Serde`."""


@frozen
class Text(Kind):
    """Any text; `kafka_name` asks for a legal Kafka name (Named.validate)."""

    kafka_name: bool = False


@frozen
class Duration(Kind):
    """`5m`, `PT5M` or an integer; parsed to milliseconds, at least `minimum`."""

    minimum: int = 0


@frozen
class SignedDuration(Kind):
    """A duration before which a minus may stand (`-5m`, `-PT5M`, a negative integer); parsed to milliseconds."""


@frozen
class Integer(Kind):
    """A whole number of at least `minimum`."""

    minimum: int = 1


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
    """A name from which store names are made (`store` of stream-stream joins); parsed to text."""


@frozen
class PipelineRef(Kind):
    """A pipeline (`NAME`, `NAME.BRANCH`) or `{stream|table|global_table: T}`; parsed to `Ref`."""

    many: bool = False
    """Whether a list may stand; parsed to a tuple of Ref in any case when it is."""


@frozen
class CogroupInputs(Kind):
    """A list of `{from: PIPELINE, add: EXPR}`; parsed to a tuple of `CogroupInput`."""


@frozen
class Branches(Kind):
    """`{NAME: predicate or {if, steps, to, for_each, chained}}`, or a list of them; parsed to a tuple of `BranchSpec`.

    An entry of a list without `name` is called by its place, counted from 1.
    """


@frozen
class DefaultBranch(Kind):
    """The name of the default branch, or true for one without a name, which is called 0; parsed to text."""


@frozen
class HeaderMap(Kind):
    """`{NAME: expression or null}`; parsed to a tuple of (name, Expression or None)."""


@frozen
class Callable_(Kind):
    """`module:object`; parsed to `CallRef`."""


@frozen
class Field:
    """One option of a step. `doc`: a sentence for the language reference."""

    name: str
    kind: Kind
    doc: str
    required: bool = False
    default: Any = None


NAME = Field("name", Text(kafka_name=True), "The name of the step's node in place of a generated one.")
KEY_SERDE = Field("key_serde", SerdeField(), "The serde of the new key; the file's default where absent.")
VALUE_SERDE = Field("value_serde", SerdeField(), "The serde of the new value; the file's default where absent.")
STORE = Field(
    "store", StoreField(), "The [store](#stores) that holds the result; without it no Materialized is passed."
)


@frozen
class CallRef:
    """A Python callable by its place: `module:object`, found beside the YAML file (`folder`) first."""

    module: str
    attribute: str
    folder: str
    position: Any = field(default=None, compare=False)

    def __str__(self) -> str:
        return f"{self.module}:{self.attribute}"


STORE_KINDS = ("persistent", "in_memory")
"""What `type` of a store may be (Materialized.StoreType)."""


@frozen
class StoreOptions:
    """`store: NAME` or its long form; durations in milliseconds, None where the file says nothing.

    name None: the store gets a generated name (Materialized.with). config: settings of the changelog's topic. ttl: streamkit's
    own, as Kafka Streams has no such thing.
    """

    name: str | None = None
    persistent: bool | None = None
    caching: bool | None = None
    logging: bool | None = None
    config: tuple[tuple[str, str], ...] = ()
    retention: int | None = None
    segment_interval: int | None = None
    versioned: int | None = None
    ttl: int | None = None
    position: Any = field(default=None, compare=False)
    ttl_position: Any = field(default=None, compare=False)


@frozen
class Ref:
    """A reference: either `pipeline` (and perhaps `branch`), or an inline source of `kind` on `topics`.

    kind: "pipeline", "stream", "table", "global_table", "global_store", "read_only_store". topics: entries' names of
    the file; pattern: a regex; call, source_name: of the last two, what writes to the store, and the name of its source.
    """

    kind: str
    pipeline: str | None = None
    branch: str | None = None
    topics: tuple[str, ...] = ()
    pattern: str | None = None
    store: StoreOptions | None = None
    name: str | None = None
    call: CallRef | None = None
    source_name: str | None = None
    position: Any = field(default=None, compare=False)


@frozen
class CogroupInput:
    """One further input of a cogroup."""

    source: Ref
    add: Any


@frozen
class BranchSpec:
    """A branch: its predicate (an Expression), and what the file hangs below it."""

    name: str
    predicate: Any
    steps: tuple[Any, ...] = ()
    to: Any = None
    for_each: Any = None
    chained: bool = False
    """Whether what hangs below it is built with the branch, not after all branches (Branched.withConsumer)."""
    position: Any = field(default=None, compare=False)


@frozen
class SinkSpec:
    """`to:` in any of its forms: `topic` (entry's name) or `route` (Expression); `partition` an Expression or None."""

    topic: str | None = None
    route: Any = None
    name: str | None = None
    partition: Any = None
    position: Any = field(default=None, compare=False)


@frozen
class ForEachSpec:
    """`for_each:` of a pipeline or a branch."""

    call: CallRef
    name: str | None = None
    position: Any = field(default=None, compare=False)


@frozen
class OnError:
    """`on_error` of a step; action: "fail", "continue" or "dead_letter" (then `topic` is an entry's name)."""

    action: str
    topic: str | None = None


@frozen
class Step:
    """A step of a pipeline as the file has it, checked by itself.

    `options` holds parsed values by field name (absent ones are missing); `positions` where each stands.
    """

    operator: str
    position: Any
    options: dict[str, Any] = field(default_factory=dict)
    positions: dict[str, Any] = field(default_factory=dict, compare=False)
    on_error: OnError | None = None
    pipeline: str = ""
    index: int = 0

    def get(self, name: str, default: Any = None) -> Any:
        """Return an option's parsed value, or `default`."""
        return self.options.get(name, default)

    def at(self, name: str) -> Any:
        """Return where an option stands, or the step."""
        return self.positions.get(name, self.position)
