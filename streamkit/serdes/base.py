"""What a serde is."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from typing import Any


class Serde(ABC):
    """Turns values into bytes and back; None is always an absent value and never reaches a serde.

    Serdes are immutable, picklable and compare by value (`spec`), so that a Plan may carry them.
    """

    spec: Any
    """The form that the topology file uses: a name, or a mapping with arguments."""

    immutable = False
    """Whether decoded values can't be changed in place, so that a cache may hold them decoded."""

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

    # -- What the code generator asks for. Sources are Python expressions over a variable that is not None. --

    def encode_source(self, variable: str) -> str | None:
        """Return inline Python that encodes `variable`, or None when only `encode` will do.

        May use the names of `inline_globals`; must raise for a value of another type (any exception).
        """
        return None

    def decode_source(self, variable: str) -> str | None:
        """Return inline Python that decodes `variable`, or None when only `decode` will do."""
        return None

    def canonical_source(self, variable: str) -> str | None:
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
