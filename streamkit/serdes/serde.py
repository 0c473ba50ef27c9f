"""The base of all serdes."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from math import copysign
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from streamkit.code import Code
from streamkit.errors import SerdeError
from streamkit.expressions.types import ANY, Type
from streamkit.record import Operand, Value
from streamkit.serdes.plain import Json

if TYPE_CHECKING:
    from streamkit.serdes.registry import Registry


SerdeSpec: TypeAlias = str | dict[str, Json]
"""A serde as a topology file writes it: its name, or a mapping with arguments."""


class Binding(NamedTuple):
    """The use of a serde.

    registry: that of the application, None if it has none; topic: its name on the log, None if it differs from record
    to record; is_key: whether the serde is that of keys.
    """

    registry: Registry | None
    topic: str | None
    is_key: bool


class Serde(ABC):
    """Encodes values as bytes and decodes them; None is always an absent value and never passed to a serde.

    Serdes are immutable, picklable and compare by value (`spec`), so that a Plan may carry them.
    """

    spec: SerdeSpec
    """The form that the topology file uses: a name, or a mapping with arguments."""

    immutable = False
    """Whether decoded values can't be changed in place and equal what their bytes decode to, so that a cache may keep them
    decoded (see `as_decoded`)."""

    type: Type = ANY
    """The type of its values, if it is known before any record."""

    takes: tuple[Type, ...] | None = None
    """The types that it can encode; values of all others fail. None: it depends on the value."""

    read_by: tuple[str, ...] = ()
    """The names of other serdes that decode its bytes as the same values."""

    needs_registry = False
    """Whether it works with a schema registry only."""
    by_topic = False
    """Whether its bytes depend on the topic and it is bound to none, so that writing needs `on_topic` for each topic."""

    def bind(self, binding: Binding) -> Serde:
        """Return this serde as it reads and writes one side of a topic."""
        return self

    def on_topic(self, topic: str, is_key: bool) -> Serde:
        """Return this serde as it writes to a topic, if it was bound to none."""
        return self

    @abstractmethod
    def encode(self, value: Value) -> bytes:
        """Return the bytes of a value. Raises SerdeError when the value is not of the serde's type."""

    @abstractmethod
    def decode(self, data: bytes) -> Value:
        """Return the value of some bytes. Raises SerdeError when they are not the serde's."""

    @abstractmethod
    def to_json(self, value: Value) -> Json:
        """Return the JSON form of a value (None stays None), as in records written as JSON Lines."""

    @abstractmethod
    def from_json(self, data: Json) -> Value:
        """Return the value of its JSON form. Raises SerdeError."""

    def same(self, one: Value, other: Value) -> bool:
        """Return whether two values, not None, are equal as Java's objects for this serde are (Object.equals).

        Values with equal bytes are equal; others may be too, such as objects whose fields have another order.
        """
        return same(one, other) or self.same_bytes(one, other)

    def same_bytes(self, one: Value, other: Value) -> bool:
        """Return whether two values, not None, have the same bytes; False if one of them can't be encoded."""
        try:
            return self.encode(one) == self.encode(other)
        except SerdeError:
            return False  # the sink or store that writes the value reports the error

    def as_decoded(self, value: Value) -> Value:
        """Return a value that was encoded as its bytes would decode; for caches, which hold decoded values of immutable serdes."""
        return value

    def json_column(self, column: Sequence[bytes | None]) -> list[Json]:
        """Return the JSON forms of many values' bytes. Raises SerdeError when one of them is not the serde's."""
        decode, to_json = self.decode, self.to_json
        return [None if data is None else to_json(decode(data)) for data in column]

    # -- For the code generator: pieces of Python over a variable that is not None. --

    def encode_source(self, variable: Code) -> Code | None:
        """Return inline Python that encodes `variable`, or None when it must call `encode`.

        May use the names of `inline_globals`; must raise for a value of another type (any exception).
        """
        return None

    def decode_source(self, variable: Code) -> Code | None:
        """Return inline Python that decodes `variable`, or None when it must call `decode`."""
        return None

    def well_formed_source(self, variable: Code) -> tuple[Code, Code] | None:
        """Return cheaper pieces that decode bytes and encode a value, if these are well-formed; None if there are none.

        For others they raise UnicodeError, and the caller uses `decode_source` or `encode_source`. What the first one
        decodes has the same bytes again.
        """
        return None

    batch_decoder: Callable[[Sequence[bytes | None]], Callable[[bytes], Value]] | None = None
    """Where a check of a whole batch makes decoding cheaper: takes the values of a batch and returns the decoder of one."""

    def explained(self, error: Exception, data: bytes | None) -> Exception:
        """Return the error that `decode` would raise instead of a batch decoder's error; any other error unchanged."""
        return error

    def canonical_source(self, variable: Code) -> Code | None:
        """Return an inline condition under which decoding and encoding again gives the same bytes.

        Where it holds, bytes pass through a topology undecoded; None: never assume so.
        """
        return None

    @property
    def inline_globals(self) -> Mapping[str, object]:
        """Names that the inline sources use, such as a struct's bound pack method; all begin with `_s_`."""
        return {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Serde) and self.spec == other.spec

    def __hash__(self) -> int:
        return hash(repr(self.spec))

    def __repr__(self) -> str:
        return f"serde({self.spec!r})"


# Equality of values as Java's Object.equals defines it, which differs from Python's `==`.


def same(one: Operand, other: Operand) -> bool:
    """Return whether two values are equal in Java: a number is not equal to a number of another type, or to a boolean.

    The order of an object's fields does not count (JsonNode.equals); 0.0 is not equal to -0.0, and NaN equals itself
    (Double.equals). Values that are not plain data compare by their own `==`.

    >>> same(1, True), same(1, 1.0), same(0.0, -0.0), same({"a": 1, "b": 2}, {"b": 2, "a": 1})
    (False, False, False, True)
    """
    if one is other:
        return True
    kind = one.__class__
    if kind is not other.__class__:
        # Every serde encodes lists and tuples alike.
        return isinstance(one, (list, tuple)) and isinstance(other, (list, tuple)) and _same_items(one, other)
    if kind is str or kind is int or kind is bytes:
        return bool(one == other)
    if kind is float:
        if one != one or one == 0:
            return other != other if one != one else other == 0 and copysign(1, one) == copysign(1, other)
        return bool(one == other)
    if isinstance(one, dict):
        return len(one) == len(other) and all(name in other and same(item, other[name]) for name, item in one.items())
    if isinstance(one, (list, tuple)):
        return _same_items(one, other)
    return bool(one == other)


def _same_items(one: Sequence[Value], other: Sequence[Value]) -> bool:
    return len(one) == len(other) and all(map(same, one, other))
