"""What only the schema registry knows of a file: the schemas of its subjects, and whether its own schemas may follow them."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from streamkit.errors import Problem, RegistryError, SerdeError
from streamkit.operators.fields import BranchSpec, Step
from streamkit.serdes.base import Serde
from streamkit.serdes.registry import Registry
from streamkit.serdes.schema_serde import FramedSerde, SchemaSerde
from streamkit.spec.model import TopologyModel


def fetch_schemas(model: TopologyModel, registry: Registry) -> list[Problem]:
    """Give every serde of a subject its schema, so that its fields are known; return what is not there.

    Raises RegistryError where the registry does not answer.
    """
    problems = []
    for serde, position in _all(model):
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


def misfits(model: TopologyModel, topics: Any) -> list[Problem]:
    """Return the schemas of files that the rule of their topic's subject refuses; subjects without versions take any.

    topics: the Plan's external topics. Raises RegistryError where the registry does not answer.
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
            registry, schema = serde.binding.registry, serde.plain.connect(serde.binding.registry)
            if registry.fits(serde.subject, schema) is False:
                assert entry.position is not None
                problems.append(
                    Problem(
                        entry.position,
                        f"serde {schema.form}: {serde.plain.source} is not compatible with the latest version of "
                        f"subject {serde.subject}, by that subject's rule",
                    )
                )
    return problems


def _inner(serde: Any) -> Any:
    return _inner(serde.inner) if hasattr(serde, "inner") else serde


def _all(model: TopologyModel) -> Iterator[tuple[Serde, Any]]:
    entries: list[Any] = [*model.topics.values(), *model.stores.values()]
    for entry in entries:
        yield entry.key, entry.position
        yield entry.value, entry.position
    for pipeline in model.pipelines.values():
        yield from _of_steps(pipeline.steps)


def _of_steps(steps: tuple[Step, ...]) -> Iterator[tuple[Serde, Any]]:
    for step in steps:
        for name, value in step.options.items():
            if isinstance(value, Serde):
                yield value, step.at(name)
            elif isinstance(value, tuple):
                for branch in value:
                    if isinstance(branch, BranchSpec):
                        yield from _of_steps(branch.steps)
