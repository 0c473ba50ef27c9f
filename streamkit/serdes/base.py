"""What a serde is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from streamkit.code import Code
from streamkit.errors import SerdeError
from streamkit.expressions.types import ANY, Type
from streamkit.serdes.equality import same


class Binding(NamedTuple):
    """What a serde is used for: the schema registry of the application (None: it has none), the topic's name on the log
    (None: it differs from record to record), and the side.
    """

    registry: Any
    topic: str | None
    is_key: bool


class Serde(ABC):
    """Turns values into bytes and back; None is always an absent value and never reaches a serde.

    Serdes are immutable, picklable and compare by value (`spec`), so that a Plan may carry them.
    """

    spec: Any
    """The form that the topology file uses: a name, or a mapping with arguments."""

    immutable = False
    """Whether decoded values can't be changed in place, and are what their bytes decode to, so that a cache may hold them
    decoded (see `held`)."""

    type: Type = ANY
    """What is known of its values."""

    takes: tuple[Type, ...] | None = None
    """The types that it can write, of which every other one fails; None: it depends on the value."""

    needs_registry = False
    """Whether it can do nothing without a schema registry."""
    by_topic = False
    """Whether its bytes depend on the topic and it is bound to none, so that writing needs `bind` for each topic."""

    def bind(self, binding: Binding) -> Serde:
        """Return this serde as it reads and writes one side of a topic."""
        return self

    def on_topic(self, topic: str, is_key: bool) -> Serde:
        """Return this serde as it writes to a topic, where it was bound to none."""
        return self

    @abstractmethod
    def encode(self, value: Any) -> bytes:
        """Return the bytes of a value. Raises SerdeError when the value is not of the serde's type."""

    @abstractmethod
    def decode(self, data: bytes) -> Any:
        """Return the value of some bytes. Raises SerdeError when they are not the serde's."""

    @abstractmethod
    def to_json(self, value: Any) -> Any:
        """Return the JSON form of a value (None stays None), as in records written as JSON Lines."""

    @abstractmethod
    def from_json(self, data: Any) -> Any:
        """Return the value of its JSON form. Raises SerdeError."""

    def same(self, one: Any, other: Any) -> bool:
        """Return whether two values, not None, are equal as Java's objects for this serde are (Object.equals).

        Where bytes are equal, values are; others may be, such as objects with their fields in another order.
        """
        return same(one, other) or self.same_bytes(one, other)

    def same_bytes(self, one: Any, other: Any) -> bool:
        """Return whether two values, not None, have the same bytes; not where one of them has none."""
        try:
            return self.encode(one) == self.encode(other)
        except SerdeError:
            return False  # what can't be written is reported where it is written

    def held(self, value: Any) -> Any:
        """Return a value that was encoded as a cache of an immutable serde holds it: as its bytes would decode."""
        return value

    def json_column(self, column: Sequence[bytes | None]) -> list[Any]:
        """Return the JSON forms of many values' bytes. Raises SerdeError when one of them is not the serde's."""
        decode, to_json = self.decode, self.to_json
        return [None if data is None else to_json(decode(data)) for data in column]

    # -- What the code generator asks for: pieces of Python over a variable that is not None. --

    def encode_source(self, variable: Code) -> Code | None:
        """Return inline Python that encodes `variable`, or None when only `encode` will do.

        May use the names of `inline_globals`; must raise for a value of another type (any exception).
        """
        return None

    def decode_source(self, variable: Code) -> Code | None:
        """Return inline Python that decodes `variable`, or None when only `decode` will do."""
        return None

    batch_decoder: Callable[[Sequence[bytes | None]], Callable[[bytes], Any]] | None = None
    """Where a look at all the values of a batch makes decoding each of them cheaper: returns what decodes one of them."""

    def explained(self, error: Exception, data: bytes | None) -> Exception:
        """Return an error of a batch's decoder in the words of `decode`; any other one as it is."""
        return error

    def canonical_source(self, variable: Code) -> Code | None:
        """Return an inline condition under which decoding and encoding again gives the same bytes.

        Where it holds, bytes pass through a topology undecoded; None: never assume so.
        """
        return None

    @property
    def inline_globals(self) -> Mapping[str, Any]:
        """Names that the inline sources use, such as a struct's bound pack method; all begin with `_s_`."""
        return {}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Serde) and self.spec == other.spec

    def __hash__(self) -> int:
        return hash(repr(self.spec))

    def __repr__(self) -> str:
        return f"serde({self.spec!r})"
