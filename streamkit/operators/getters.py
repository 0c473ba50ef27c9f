"""How a table's current value is looked up, as data: from a store, or computed from the tables above it.

Java's KTableValueGetterSupplier and its implementations.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

from streamkit.graph.hashing import hash_order
from streamkit.operators.fields import CallRef
from streamkit.operators.frozen import frozen


@frozen
class Getter(ABC):
    """A lookup by key that gives (value, timestamp) or nothing."""

    @property
    @abstractmethod
    def stores(self) -> tuple[str, ...]:
        """Names of the stores that it reads, in the order of connection."""

    @property
    @abstractmethod
    def versioned(self) -> bool:
        """Whether it can look up the value as of a timestamp."""


@frozen
class StoreGetter(Getter):
    """Reads a store (KTableSourceValueGetterSupplier, KTableMaterializedValueGetterSupplier)."""

    store: str
    is_versioned: bool = False

    @property
    def stores(self) -> tuple[str, ...]:
        return (self.store,)

    @property
    def versioned(self) -> bool:
        return self.is_versioned


@frozen
class FilterGetter(Getter):
    """Nothing where the predicate fails on the parent's value (KTableFilterValueGetter)."""

    parent: Getter
    predicate: Any
    negate: bool
    origin: Any = None

    @property
    def stores(self) -> tuple[str, ...]:
        return self.parent.stores

    @property
    def versioned(self) -> bool:
        return self.parent.versioned


@frozen
class MapValuesGetter(Getter):
    """The mapped value of the parent, with its timestamp (KTableMapValuesValueGetter)."""

    parent: Getter
    value: Any
    origin: Any = None

    @property
    def stores(self) -> tuple[str, ...]:
        return self.parent.stores

    @property
    def versioned(self) -> bool:
        return self.parent.versioned


@frozen
class TransformGetter(Getter):
    """What a Python callable gives for the parent's value, also where that is absent (KTableTransformValuesGetter)."""

    parent: Getter
    call: CallRef
    node: str
    """The node of the step."""

    @property
    def stores(self) -> tuple[str, ...]:
        return self.parent.stores

    @property
    def versioned(self) -> bool:
        return self.parent.versioned


@frozen
class JoinGetter(Getter):
    """Joins what both sides give; the timestamp is the later one. kind: inner, left, outer."""

    kind: str
    left: Getter
    right: Getter
    value: Any
    origin: Any = None

    @property
    def stores(self) -> tuple[str, ...]:
        # Java gathers them in three sets of just that capacity (KTableKTableJoinMerger.view).
        one, other = self.left.stores, self.right.stores
        forth = hash_order((*one, *other), copied=False, capacity=len(one) + len(other))
        back = hash_order((*other, *one), copied=False, capacity=len(one) + len(other))
        return tuple(hash_order((*forth, *back), copied=False, capacity=len(forth) + len(back)))

    @property
    def versioned(self) -> bool:
        return False


@frozen
class SuppressGetter(Getter):
    """What the buffer last let through for a key that it holds, else the parent's value (KTableSuppress…)."""

    parent: Getter
    buffer: str

    @property
    def stores(self) -> tuple[str, ...]:
        return (self.buffer, *self.parent.stores)

    @property
    def versioned(self) -> bool:
        return False
