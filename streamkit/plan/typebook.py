"""Records the types of keys and values of every stream and table while a Plan is built."""

from __future__ import annotations

from typing import TypeVar

from streamkit.errors import Problem
from streamkit.expressions.analysis.infer import infer
from streamkit.expressions.analysis.types import ANY, INTEGER, NOTHING, OneOf, Type, WindowedKey
from streamkit.expressions.functions import Expression
from streamkit.operators.core.operator import AnyOperator, Stream, TypeInference, Types, Upstream, common_types
from streamkit.operators.core.parsed_values import SinkSpec, Step
from streamkit.serdes.formats.windowed import SessionWindowedSerde, TimeWindowedSerde
from streamkit.serdes.serde import Serde
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


# Finds topics whose serde can't write the type of the records that reach them (in Java a ClassCastException at run time).


def misfit(side: str, given: Type, serde: Serde) -> str | None:
    """Return why a serde fails for every value of a type; None where it takes some.

    side: "key" or "value".

    >>> from streamkit.expressions.analysis.types import INTEGER
    >>> from streamkit.serdes.formats.primitives import StringSerde
    >>> misfit("value", INTEGER, StringSerde())
    'takes text as its value (serde string), and gets a whole number; make it text: str(value)'
    """
    choices = given.choices if isinstance(given, OneOf) else (given,)
    if given is NOTHING or any(_may_take(serde, each) for each in choices):
        return None
    kind = serde.spec if isinstance(serde.spec, str) else next(iter(serde.spec))
    takes = serde.takes[0].word if serde.takes else "a windowed key"
    cure = ""
    if all(isinstance(each, WindowedKey) for each in choices):
        cure = "; give the topic a windowed key serde, or take the key out: to_stream: {key: key.key}"
    elif kind == "string":
        cure = f"; make it text: str({side})"
    return f"takes {takes} as its {side} (serde {kind}), and gets {given.word}{cure}"


def _may_take(serde: Serde, given: Type) -> bool:
    if given is ANY:
        return True
    if isinstance(serde, (TimeWindowedSerde, SessionWindowedSerde)):
        return isinstance(given, WindowedKey) and _may_take(serde.inner, given.fields["key"])
    return serde.takes is None or given in serde.takes
