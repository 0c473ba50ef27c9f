"""What the assignor knows and what it decides; plain data."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from streamkit.runtime.local.assignor import Id


@dataclass(frozen=True)
class Instance:
    """A member of the group: a process with its threads."""

    threads: int = 1
    running: frozenset[Id] = frozenset()
    """The tasks that it owns now."""
    lags: Mapping[Id, int] = field(default_factory=dict)
    """By stateful task that it has state of: changelog records that it lags behind; 0 for those that it runs."""
    tags: Mapping[str, str] = field(default_factory=dict)
    able: frozenset[Id] | None = None
    """The tasks that it can run; None: all. Instances of another version may not know some."""


@dataclass(frozen=True)
class Rules:
    """The settings of the assignor, by Kafka Streams' names."""

    acceptable_lag: int = 10_000
    warmups: int = 2
    standbys: int = 0
    rack_tags: tuple[str, ...] = ()
    probing_ms: int = 600_000

    @classmethod
    def of(cls, config: Any) -> Rules:
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
    """Tasks by instance; warm-ups stand among the standbys."""

    active: dict[str, list[Id]]
    standby: dict[str, list[Id]]
    probe: bool = False
    """Whether tasks are still warming up where they are to run: another look is due after the probing interval."""
    missing_standbys: int = 0
    """Standbys that no instance is left for."""
