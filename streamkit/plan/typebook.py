"""Records the types of keys and values of every stream and table while a Plan is built."""

from __future__ import annotations

from typing import TypeVar

from streamkit.errors import Problem
from streamkit.expressions.analysis.infer import infer
from streamkit.expressions.analysis.types import INTEGER
from streamkit.expressions.checked_expression import Expression
from streamkit.operators.core.operator import AnyOperator
from streamkit.operators.core.parsed_values import SinkSpec, Step
from streamkit.operators.core.step_types import TypeInference, Types, common_types
from streamkit.operators.core.upstream import Stream, Upstream
from streamkit.plan.misfits import misfit
from streamkit.spec.topology_model import TopicSpec

Referred = TypeVar("Referred", bound=Upstream)


class TypeBook:
    """Types by upstream object; steps nest, since a reference may build another pipeline while its step is built."""

    def __init__(self) -> None:
        self._types: dict[int, tuple[Upstream, Types]] = {}
        self._upstreams: list[Types] = []
        """Of each step that is being built, the types of its upstream."""
        self._references: list[list[Types]] = []
        """Of each step that is being built, the types of what it refers to."""

    def of(self, upstream: Upstream) -> Types:
        """Return the types of an upstream object."""
        return self._types[id(upstream)][1] if id(upstream) in self._types else Types()

    def _record(self, upstream: Upstream, types: Types) -> None:
        # The entry holds the object too, so that no other object gets its id.
        self._types[id(upstream)] = (upstream, types)

    def source(self, result: Upstream, entries: list[TopicSpec]) -> list[Problem]:
        """Record the types of a source, and return the problems in the timestamps of its topics."""
        problems: list[Problem] = []
        found = []
        for entry in entries:
            found.append(Types(entry.key.type, entry.value.type))
            if isinstance(entry.timestamp, Expression):
                names = {"key": entry.key.type, "value": entry.value.type, "timestamp": INTEGER}
                infer(entry.timestamp, names, problems)
        self._record(result, common_types(found) if found else Types())
        return problems

    def begin(self, upstream: Upstream) -> None:
        """Begin a step."""
        self._upstreams.append(self.of(upstream))
        self._references.append([])

    def referred(self, other: Referred) -> Referred:
        """Record the types of what the innermost step refers to, and return it."""
        if self._references:
            self._references[-1].append(self.of(other))
        return other

    def branch(self, upstream: Stream) -> Stream:
        """Record that a branch of the innermost step has the types of the step's upstream, and return it."""
        self._record(upstream, self._upstreams[-1])
        return upstream

    def end(self, operator: AnyOperator, step: Step, upstream: Upstream, result: Upstream) -> list[Problem]:
        """End a step: record the types of its result, and return the fields in its expressions that can't exist."""
        inference = TypeInference(step, (upstream, result), self._upstreams.pop(), self._references.pop())
        self._record(result, inference.result_types(operator.types(inference)))
        return list(dict.fromkeys(inference.problems))

    def discard(self) -> None:
        """End a step that failed."""
        self._upstreams.pop()
        self._references.pop()

    def sink(self, stream: Stream, to: SinkSpec, entry: TopicSpec | None) -> list[Problem]:
        """Return the fields in the expressions of `to` that can't exist, and the types that the topic's serdes can't write."""
        types, problems = self.of(stream), list[Problem]()
        if entry is not None:
            sides = (("key", types.key, entry.key), ("value", types.value, entry.value))
            found = [misfit(*side) for side in sides]
            problems += [Problem(to.position, f"topic {entry.name} {each}") for each in found if each is not None]
        for expression in (to.route, to.partition):
            if isinstance(expression, Expression):
                infer(expression, {"key": types.key, "value": types.value, "partitions": INTEGER}, problems)
        return problems
