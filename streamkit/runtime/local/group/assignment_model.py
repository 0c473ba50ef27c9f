"""Input and output of the assignor; plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from streamkit.record import TaskId

if TYPE_CHECKING:
    from streamkit.config import Config


@dataclass(frozen=True)
class Instance:
    """A member of the group: a process with its threads."""

    threads: int = 1
    running: frozenset[TaskId] = frozenset()
    """The tasks that it owns now."""
    lags: Mapping[TaskId, int] = field(default_factory=dict)
    """By stateful task of which it has state: its lag in changelog records; 0 for tasks that it runs."""
    tags: Mapping[str, str] = field(default_factory=dict)
    able: frozenset[TaskId] | None = None
    """The tasks that it can run; None: all. Instances of another version may not have some."""


@dataclass(frozen=True)
class Rules:
    """The settings of the assignor, by Kafka Streams' names."""

    acceptable_lag: int = 10_000
    warmups: int = 2
    standbys: int = 0
    rack_tags: tuple[str, ...] = ()
    probing_ms: int = 600_000

    @classmethod
    def of(cls, config: Config) -> Rules:
        """Read the rules of a Config."""
        return cls(
            acceptable_lag=int(config["acceptable.recovery.lag"]),
            warmups=int(config["max.warmup.replicas"]),
            standbys=int(config["num.standby.replicas"]),
            rack_tags=tuple(config["rack.aware.assignment.tags"]),
            probing_ms=int(config["probing.rebalance.interval.ms"]),
        )


@dataclass
class Decision:
    """Tasks by instance; warm-ups are among the standbys."""

    active: dict[str, list[TaskId]]
    standby: dict[str, list[TaskId]]
    probe: bool = False
    """Whether tasks are still warming up on their target instance: a probing rebalance is due after the probing interval."""
    missing_standbys: int = 0
    """Standbys for which there is no instance."""
