"""From a checked file to the frozen Plan."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from streamkit.config import Config
from streamkit.errors import Problem, TopologyError
from streamkit.operators.core.operator import StoreDefaults
from streamkit.plan.model import Plan

if TYPE_CHECKING:
    from streamkit.plan.assemble import Assembler, BuiltStep
    from streamkit.spec.topology_model import TopologyModel


def load(
    path: str | Path,
    env: Mapping[str, str] | None = None,
    overrides: Mapping[str, object] | None = None,
    online: bool = False,
) -> Plan:
    """Return the Plan of a topology file.

    env: variables for `${NAME}` and settings, the process's if None; overrides: settings that replace all others;
    online: whether to check against the schema registry too.
    Raises TopologyError with every problem, UsageError if the file can't be read, ConfigError, RegistryError.
    """
    from streamkit import spec

    variables = os.environ if env is None else env
    return build(spec.load(path, environment=variables), overrides, variables, online)


def build(
    model: TopologyModel,
    overrides: Mapping[str, object] | None = None,
    env: Mapping[str, str] | None = None,
    online: bool = False,
    observe: Callable[[BuiltStep], None] | None = None,
) -> Plan:
    """Return the Plan of a checked file.

    env: variables, of which those named STREAMKIT_… are settings; online: whether to check against the schema registry too;
    observe: called with each source and step once it is built.
    Raises TopologyError with every problem in the meaning of the file, ConfigError, RegistryError.
    """
    from streamkit.plan.assemble import Assembler

    config = Config(
        model.application,
        model.settings,
        overrides=overrides or {},
        environment=env,
        folder=os.path.dirname(model.file),
    )
    absent = _fetch_schemas(model, config) if online else []
    assembler = Assembler(model, StoreDefaults.of(config), observe)
    try:
        plan = _assembled(model, config, assembler, absent)
    finally:
        assembler.graph.release()
    if online:
        from streamkit.plan.online import incompatible_schemas

        _raise_any(incompatible_schemas(model, plan.external_topics))
    return plan


def _assembled(model: TopologyModel, config: Config, assembler: Assembler, absent: list[Problem]) -> Plan:
    from streamkit.plan.freeze import bind_serdes, broken_copartitions, freeze

    assembler.build()
    topology = assembler.graph.write(config.optimizations)
    problems = [*topology.problems, *broken_copartitions(model, topology, assembler.graph)]
    if assembler.problems:
        # A store that a failed step would have added is missing; that is not a second problem.
        problems = [
            *assembler.problems,
            *(problem for problem in problems if "is not added yet" not in problem.message),
        ]
    _raise_any([*absent, *problems])
    plan = freeze(model, config, topology, assembler.graph.copartitioned, (assembler.read, assembler.written))
    return replace(
        bind_serdes(plan, model), written_types={name: tuple(types) for name, types in assembler.written_types.items()}
    )


def _fetch_schemas(model: TopologyModel, config: Config) -> list[Problem]:
    from streamkit.plan.online import fetch_schemas
    from streamkit.serdes.registry import Registry

    registry = Registry.of(config)
    return [] if registry is None else fetch_schemas(model, registry)


def _raise_any(problems: list[Problem]) -> None:
    if problems:
        raise TopologyError(sorted(problems, key=lambda problem: (problem.position.line, problem.position.column)))
