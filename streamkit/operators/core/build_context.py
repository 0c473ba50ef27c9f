"""The services of the plan that a step's `build` uses."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from streamkit.graph.builder import GraphBuilder
from streamkit.operators.core.frozen import frozen
from streamkit.operators.core.parsed_values import BranchSpec, Ref, Step
from streamkit.serdes.serde import Serde

if TYPE_CHECKING:
    from streamkit.config import Config
    from streamkit.operators.core.upstream import Stream, Upstream
    from streamkit.state.definitions import StoreDef


@frozen
class StoreDefaults:
    """Whether stores are in memory where their steps do not set it.

    in_memory: for stores that Java makes with the builder's settings; supplied_in_memory: for those that only
    dsl.store.suppliers.class decides about, because Java makes their Materialized without the builder (KTableImpl.filter
    and mapValues, SubscriptionStoreFactory).
    """

    in_memory: bool = False
    supplied_in_memory: bool = False

    @classmethod
    def of(cls, config: Config) -> StoreDefaults:
        """Read the settings of a Config."""
        return cls(config.dsl_in_memory, config.supplied_in_memory)


class Context(Protocol):
    """The plan that is being built, as operators see it."""

    graph: GraphBuilder
    default_key: Serde
    default_value: Serde
    store_defaults: StoreDefaults

    def resolve(self, ref: Ref, step: Step) -> Upstream:
        """Return the upstream that a reference names, after building its pipeline if necessary."""

    def serde(self, spec: object) -> Serde:
        """Return a serde of the language by its name or mapping."""

    def custom_store(self, name: str, step: Step) -> StoreDef | str:
        """Return the definition of one of the file's `stores`, or the name itself where a step materializes it."""

    def build_branch(self, upstream: Stream, branch: BranchSpec) -> Upstream | None:
        """Build the steps and ends below a branch; return the upstream that `P.BRANCH` names, None after a mistake."""
