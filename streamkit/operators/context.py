"""What a step may ask of the plan while it is built."""

from __future__ import annotations

from typing import Any, Protocol

from streamkit.graph.builder import GraphBuilder
from streamkit.operators.fields import BranchSpec, Ref, Step
from streamkit.operators.frozen import frozen
from streamkit.serdes.base import Serde


@frozen
class StoreDefaults:
    """Where stores lie of which a step does not say it.

    in_memory: those that ask the builder; supplied_in_memory: those that only see dsl.store.suppliers.class, because Java
    makes their Materialized without the builder (KTableImpl.filter and mapValues, SubscriptionStoreFactory).
    """

    in_memory: bool = False
    supplied_in_memory: bool = False

    @classmethod
    def of(cls, config: Any) -> StoreDefaults:
        """Read the settings of a Config."""
        return cls(config.dsl_in_memory, config.supplied_in_memory)


class Context(Protocol):
    """The plan in the making, as operators see it."""

    graph: GraphBuilder
    default_key: Serde
    default_value: Serde
    store_defaults: StoreDefaults

    def resolve(self, ref: Ref, step: Step) -> Any:
        """Return the upstream object that a reference means, building its pipeline first if need be."""

    def serde(self, spec: Any) -> Serde:
        """Return a serde of the language by its name or mapping."""

    def custom_store(self, name: str, step: Step) -> Any:
        """Return the definition of one of the file's `stores`, or the name itself where a step materializes it."""

    def build_branch(self, upstream: Any, branch: BranchSpec) -> Any:
        """Build what hangs below a branch; return what `P.BRANCH` stands for."""
