"""Checks of a file against the schema registry: its subjects exist, and the file's own schemas are compatible with them."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from streamkit.errors import Position, Problem, RegistryError, SerdeError
from streamkit.graph.physical_topology import NOWHERE
from streamkit.operators.core.parsed_values import BranchSpec, Step
from streamkit.plan.model import ExternalTopic
from streamkit.serdes.registry import Registry
from streamkit.serdes.schema_serde import FramedSerde, SchemaSerde
from streamkit.serdes.serde import Serde
from streamkit.spec.topology_model import StoreSpec, TopicSpec, TopologyModel


def fetch_schemas(model: TopologyModel, registry: Registry) -> list[Problem]:
    """Fetch the schema of every serde of a subject, so that its fields are checked; return the schemas that are missing.

    Raises RegistryError if the registry does not answer.
    """
    problems = []
    for serde, position in _serdes(model):
        inner = _inner(serde)
        if isinstance(inner, SchemaSerde) and inner.source.registry:
            try:
                inner.connect(registry)
            except RegistryError as error:
                if not error.is_missing:
                    raise
                problems.append(Problem(position, str(error)))
            except SerdeError as error:
                problems.append(Problem(position, str(error)))
    return list(dict.fromkeys(problems))


def incompatible_schemas(model: TopologyModel, topics: Mapping[str, ExternalTopic]) -> list[Problem]:
    """Return the schemas of files that break the compatibility rule of their subject; a subject without versions has none.

    topics: the Plan's external topics. Raises RegistryError if the registry does not answer.
    """
    problems = []
    for entry in model.topics.values():
        bound = topics[entry.topic]
        for serde in (_inner(bound.key_serde), _inner(bound.value_serde)):
            if (
                not isinstance(serde, FramedSerde)
                or serde.plain.source.file is None
                or not (bound.read or bound.written)
            ):
                continue
            registry = serde.binding.registry
            assert registry is not None  # a framed serde has one
            schema = serde.plain.connect(registry)
            if registry.is_compatible(serde.subject, schema) is False:
                problems.append(
                    Problem(
                        entry.position or NOWHERE,
                        f"serde {schema.form}: {serde.plain.source} is not compatible with the latest version of "
                        f"subject {serde.subject}, by that subject's rule",
                    )
                )
    return problems


def _inner(serde: Serde) -> Serde:
    inner = getattr(serde, "inner", None)
    return _inner(inner) if isinstance(inner, Serde) else serde


def _serdes(model: TopologyModel) -> Iterator[tuple[Serde, Position]]:
    entries: list[TopicSpec | StoreSpec] = [*model.topics.values(), *model.stores.values()]
    for entry in entries:
        yield entry.key, entry.position or NOWHERE
        yield entry.value, entry.position or NOWHERE
    for pipeline in model.pipelines.values():
        yield from _serdes_of_steps(pipeline.steps)


def _serdes_of_steps(steps: tuple[Step, ...]) -> Iterator[tuple[Serde, Position]]:
    for step in steps:
        for name, value in step.options.items():
            if isinstance(value, Serde):
                yield value, step.at(name)
            elif isinstance(value, tuple):
                for branch in value:
                    if isinstance(branch, BranchSpec):
                        yield from _serdes_of_steps(branch.steps)
