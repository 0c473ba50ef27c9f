"""The settings that the plan itself looks at."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from streamkit.errors import ConfigError
from streamkit.graph import optimize
from streamkit.spec.model import TopologyModel

_OPTIMIZATION = "topology.optimization"


def make_config(model: TopologyModel, overrides: Mapping[str, Any] | None) -> Any:
    """Return the application's Config. Raises ConfigError."""
    from streamkit.config import Config

    return Config({**model.settings, **(overrides or {})})


def optimizations(config: Any) -> frozenset[str]:
    """Return the optimizations that are on (StreamsConfig.verifyTopologyOptimizationConfigs). Raises ConfigError."""
    value = config[_OPTIMIZATION]
    names = value if isinstance(value, (list, tuple)) else str(value or "none").split(",")
    wanted = frozenset(str(name).strip() for name in names)
    if wanted == {"all"}:
        return optimize.ALL
    if wanted == {"none"}:
        return frozenset()
    unknown = wanted - optimize.ALL
    if unknown:
        raise ConfigError(
            f"{_OPTIMIZATION}: {', '.join(sorted(unknown))} is not one of all, none, {', '.join(sorted(optimize.ALL))}"
        )
    return wanted
