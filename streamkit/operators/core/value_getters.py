"""Describes lookups of a table's current value, from a store or computed from upstream tables.

Java's KTableValueGetterSupplier and its implementations.
"""

from __future__ import annotations

from abc import ABC, abstractmethod

from streamkit.expressions import Expression
from streamkit.hashing import hash_order
from streamkit.operators.core.frozen import frozen
from streamkit.operators.core.parsed_values import CallRef
from streamkit.state.definitions import StoreDef


@frozen
class Getter(ABC):
    """A lookup by key that returns (value, timestamp) or None."""

    @property
    @abstractmethod
    def stores(self) -> tuple[str, ...]:
        """The names of the stores that the lookup reads, in the order of connection."""

    @property
    @abstractmethod
    def versioned(self) -> bool:
        """Whether the lookup can return the value as of a timestamp."""


@frozen
class StoreGetter(Getter):
    """Reads a store (KTableSourceValueGetterSupplier, KTableMaterializedValueGetterSupplier)."""

    store: str
    is_versioned: bool = False

    @classmethod
    def of(cls, store: StoreDef) -> StoreGetter:
        """Return the lookup in a store."""
        return cls(store.name, store.type == "versioned")

    @property
    def stores(self) -> tuple[str, ...]:
        return (self.store,)

    @property
    def versioned(self) -> bool:
        return self.is_versioned


@frozen
class DerivedGetter(Getter):
    """A lookup that transforms the result of the parent table's lookup."""

    parent: Getter

    @property
    def stores(self) -> tuple[str, ...]:
        return self.parent.stores

    @property
    def versioned(self) -> bool:
        return self.parent.versioned


@frozen
class FilterGetter(DerivedGetter):
    """The parent's value, None if the predicate fails on it (KTableFilterValueGetter)."""

    predicate: Expression
    negate: bool


@frozen
class MapValuesGetter(DerivedGetter):
    """The mapped value of the parent, with its timestamp (KTableMapValuesValueGetter)."""

    value: Expression


@frozen
class TransformGetter(DerivedGetter):
    """The result of a Python callable for the parent's value, which may be absent (KTableTransformValuesGetter)."""

    call: CallRef
    node: str
    """The node of the step."""


@frozen
class JoinGetter(Getter):
    """The join of both sides' values, with the later timestamp. kind: inner, left, outer."""

    kind: str
    left: Getter
    right: Getter
    value: Expression

    @property
    def stores(self) -> tuple[str, ...]:
        # Java collects the names in three sets of exactly this capacity (KTableKTableJoinMerger.view).
        one, other = self.left.stores, self.right.stores
        forth = hash_order((*one, *other), copied=False, capacity=len(one) + len(other))
        back = hash_order((*other, *one), copied=False, capacity=len(one) + len(other))
        return tuple(hash_order((*forth, *back), copied=False, capacity=len(forth) + len(back)))

    @property
    def versioned(self) -> bool:
        return False


@frozen
class SuppressGetter(Getter):
    """The last emitted value of a key in the buffer, or else the parent's value (KTableSuppressProcessorSupplier)."""

    parent: Getter
    buffer: str

    @property
    def stores(self) -> tuple[str, ...]:
        return (self.buffer, *self.parent.stores)

    @property
    def versioned(self) -> bool:
        return False
