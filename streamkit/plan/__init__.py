"""From a checked file to the frozen Plan."""

from __future__ import annotations

import os
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from streamkit.errors import TopologyError
from streamkit.plan.model import Plan

if TYPE_CHECKING:
    from streamkit.spec.model import TopologyModel


def load(path: str | Path, env: Mapping[str, str] | None = None, overrides: Mapping[str, Any] | None = None) -> Plan:
    """Return the Plan of a topology file.

    env: variables for `${NAME}` and settings, the process's where None; overrides: settings that go before all others.
    Raises TopologyError with every problem, UsageError where the file can't be read, ConfigError.
    """
    from streamkit import spec

    variables = os.environ if env is None else env
    return build(spec.load(path, environment=variables), overrides, variables)


def build(
    model: TopologyModel, overrides: Mapping[str, Any] | None = None, env: Mapping[str, str] | None = None
) -> Plan:
    """Return the Plan of a checked file. Raises TopologyError with every problem of meaning, ConfigError.

    env: variables, of which those named STREAMKIT_… are settings.
    """
    from streamkit.config import Config
    from streamkit.plan.assemble import Assembler
    from streamkit.plan.bind import bind_serdes
    from streamkit.plan.copartition import broken_copartitions, copartition_groups
    from streamkit.plan.freeze import freeze

    config = Config(model.application, model.settings, overrides=overrides or {}, environment=env)
    assembler = Assembler(model)
    assembler.build()
    topology = assembler.graph.write(config.optimizations)
    groups = copartition_groups(assembler.graph, topology)
    problems = [*topology.problems, *broken_copartitions(model, topology, groups)]
    if assembler.problems:
        # What a failed step would have made is missing, which is not another mistake.
        problems = [*assembler.problems, *(each for each in problems if "is not added yet" not in each.message)]
    if problems:
        raise TopologyError(sorted(problems, key=lambda each: (each.position.line, each.position.column)))
    sources = tuple(frozenset(group) for group in assembler.graph.copartitioned)
    plan = freeze(model, config, topology, (groups, sources), (assembler.read, assembler.written))
    return bind_serdes(plan, model)
