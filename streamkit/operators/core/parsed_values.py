"""The parsed values of fields and windows, and the steps that contain them. `spec` creates them, operators build nodes from them."""

from __future__ import annotations

from dataclasses import field
from typing import ClassVar

from streamkit.errors import Position
from streamkit.expressions import Expression
from streamkit.expressions.calls import Argument, PythonObject
from streamkit.graph.physical_topology import OnError
from streamkit.operators.core.fields import FieldValue
from streamkit.operators.core.frozen import frozen


@frozen
class CallRef:
    """A reference to a Python callable, `module:object`; the folder of the YAML file (`folder`) is searched first.

    arguments: the named arguments that the file passes (`with`). target: the object itself, if a topology in Python passes one that
    can't be imported by name.
    """

    module: str
    attribute: str
    folder: str
    arguments: tuple[Argument, ...] = ()
    position: Position | None = field(default=None, compare=False)
    target: PythonObject | None = None

    def __str__(self) -> str:
        return f"{self.module}:{self.attribute}"


@frozen
class BatchCall:
    """A callable that takes lists of up to `size` records of a task's run (`{call: …, batch: N}`).

    form: "list", or the library whose columns hold the values. passed: the names of the record's parts that the callable
    takes, in order.
    """

    call: CallRef
    size: int
    form: str
    passed: tuple[str, ...]

    runs_python: ClassVar[bool] = True


@frozen
class CacheOptions:
    """`cache` of `enrich`: the maximum number of results, and how long a result is valid in milliseconds (None: until it is evicted)."""

    size: int
    ttl: int | None


@frozen
class StoreOptions:
    """`store: NAME` or its long form; durations in milliseconds, None for options that the file does not set.

    name None: the store gets a generated name (Materialized.with). config: settings of the changelog's topic. ttl: an
    extension of streamkit, which Kafka Streams does not have.
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
    position: Position | None = field(default=None, compare=False)
    ttl_position: Position | None = field(default=None, compare=False)


@frozen
class Ref:
    """A reference: either `pipeline` (and perhaps `branch`), or an inline source of `kind` on `topics`.

    kind: "pipeline", "stream", "table", "global_table", "global_store", "read_only_store". topics: the names of entries
    in the file; pattern: a regex. For the last two kinds, `call` is the processor that writes to the store, and `source_name` the
    name of its source.
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
    position: Position | None = field(default=None, compare=False)


@frozen
class CogroupInput:
    """An input of a cogroup other than the first."""

    source: Ref
    add: Expression


@frozen
class BranchSpec:
    """A branch: its predicate, its steps and its ends."""

    name: str
    predicate: Expression | None
    """None for the default branch."""
    steps: tuple[Step, ...] = ()
    to: SinkSpec | None = None
    for_each: ForEachSpec | None = None
    chained: bool = False
    """Whether the branch's steps are built with the branch, not after all branches (Branched.withConsumer)."""
    position: Position | None = field(default=None, compare=False)


@frozen
class SinkSpec:
    """`to:` in any of its forms: `topic` (the name of an entry) or `route`."""

    topic: str | None = None
    route: Expression | None = None
    name: str | None = None
    partition: Expression | None = None
    position: Position = field(kw_only=True, compare=False)


@frozen
class ForEachSpec:
    """`for_each:` of a pipeline or a branch."""

    call: CallRef
    name: str | None = None
    position: Position | None = field(default=None, compare=False)


@frozen
class Step:
    """A step of a pipeline as written in the file; it was checked without regard to other steps.

    `options`: the parsed values of the fields that the file sets, by name; `positions`: their positions in the file.
    """

    operator: str
    position: Position
    options: dict[str, FieldValue] = field(default_factory=dict)
    positions: dict[str, Position] = field(default_factory=dict, compare=False)
    on_error: OnError | None = None
    pipeline: str = ""
    index: int = 0

    def get(self, name: str, default: FieldValue = None) -> FieldValue:
        """Return an option's parsed value, or `default`."""
        return self.options.get(name, default)

    def at(self, name: str) -> Position:
        """Return the position of an option, or of the step if the option is absent."""
        return self.positions.get(name, self.position)


# How long a call of `enrich` may take with its retries, in milliseconds.

LONGEST_BACKOFF = 30_000
"""The maximum pause before a retry."""


def backoff_before(attempt: int, backoff: int) -> int:
    """Return the pause before a retry: `backoff` before the first one (attempt 0), then twice as long each time.

    >>> backoff_before(0, 100), backoff_before(3, 100), backoff_before(10**9, 100)
    (100, 800, 30000)
    """
    return min(backoff << min(attempt, 40), LONGEST_BACKOFF)


def longest_call(timeout: int, retries: int, backoff: int) -> int:
    """Return the maximum duration of a call with all its retries.

    >>> longest_call(2000, 0, 100), longest_call(2000, 2, 100)
    (2000, 6300)
    """
    growing = min(retries, 41)
    pauses = sum(backoff_before(attempt, backoff) for attempt in range(growing))
    return (retries + 1) * timeout + pauses + (retries - growing) * min(backoff << 40, LONGEST_BACKOFF)


# Definitions of windows as data; times in milliseconds.


@frozen
class Windows:
    """The windows of an aggregation. size: the time difference of sliding windows, the inactivity gap of sessions."""

    grace: int
    size: int

    @property
    def length(self) -> int | None:
        """The time from the start of a window to its end; None for sessions."""
        return self.size

    @property
    def close_delay(self) -> int:
        """The time from the end of a window to its close (GraphGraceSearchUtil)."""
        return self.grace

    @property
    def least_retention(self) -> int:
        """The default, and minimum, retention of the store."""
        return self.size + self.grace


@frozen
class TimeWindows(Windows):
    """Tumbling (advance = size) and hopping windows: [start, end)."""

    advance: int


@frozen
class SlidingWindows(Windows):
    """Windows that end at a record and include the records up to `size` before it: [start, end]."""

    @property
    def least_retention(self) -> int:
        return 2 * self.size + self.grace


@frozen
class SessionWindows(Windows):
    """Bursts of records with gaps of at most `size`: [start, end]."""

    @property
    def length(self) -> None:
        return None

    @property
    def close_delay(self) -> int:
        return self.grace + self.size
