"""Keeps what is known of the types of every stream and table while a Plan is built."""

from __future__ import annotations

from typing import Any

from streamkit.errors import Problem
from streamkit.expressions.infer import infer
from streamkit.expressions.model import Expression
from streamkit.expressions.types import INTEGER
from streamkit.operators.base import Operator
from streamkit.operators.fields import SinkSpec, Step
from streamkit.operators.typing import Types, Typing, meet_types
from streamkit.plan.misfits import misfit
from streamkit.spec.model import TopicSpec


class TypeBook:
    """Types by upstream object; steps nest, as a reference may build another pipeline in the middle of one."""

    def __init__(self) -> None:
        self._known: dict[int, tuple[Any, Types]] = {}
        self._hands: list[Types] = []
        self._others: list[list[Types]] = []

    def of(self, upstream: Any) -> Types:
        """Return what is known of an upstream object."""
        return self._known[id(upstream)][1] if id(upstream) in self._known else Types()

    def _note(self, upstream: Any, types: Types) -> None:
        # The object is held too, so that nothing else gets its id.
        self._known[id(upstream)] = (upstream, types)

    def source(self, result: Any, entries: list[TopicSpec]) -> list[Problem]:
        """Note what a source gives, and return what is wrong in the timestamps of its topics."""
        problems: list[Problem] = []
        found = []
        for entry in entries:
            found.append(Types(entry.key.type, entry.value.type))
            if isinstance(entry.timestamp, Expression):
                names = {"key": entry.key.type, "value": entry.value.type, "timestamp": INTEGER}
                infer(entry.timestamp, names, problems)
        self._note(result, meet_types(found) if found else Types())
        return problems

    def begin(self, upstream: Any) -> None:
        """Begin a step."""
        self._hands.append(self.of(upstream))
        self._others.append([])

    def referred(self, other: Any) -> Any:
        """Return what the step under way refers to, after noting it."""
        if self._others:
            self._others[-1].append(self.of(other))
        return other

    def branch(self, upstream: Any) -> Any:
        """Return a branch of the step under way, after noting that it has what the step stands on."""
        self._note(upstream, self._hands[-1])
        return upstream

    def end(self, operator: Operator, step: Step, upstream: Any, result: Any) -> list[Problem]:
        """End a step: note what it gives, and return the fields in its expressions that can't be."""
        hand = Typing(step, (upstream, result), self._hands.pop(), self._others.pop())
        self._note(result, hand.given(operator.types(hand)))
        return list(dict.fromkeys(hand.problems))

    def give_up(self) -> None:
        """End a step that failed."""
        self._hands.pop()
        self._others.pop()

    def sink(self, stream: Any, to: SinkSpec, entry: TopicSpec | None) -> list[Problem]:
        """Return the fields in the expressions of `to` that can't be, and what the topic of this entry can't take."""
        types, problems = self.of(stream), list[Problem]()
        if entry is not None:
            sides = (("key", types.key, entry.key), ("value", types.value, entry.value))
            found = [misfit(*side) for side in sides]
            problems += [Problem(to.position, f"topic {entry.name} {each}") for each in found if each is not None]
        for expression in (to.route, to.partition):
            if isinstance(expression, Expression):
                infer(expression, {"key": types.key, "value": types.value, "partitions": INTEGER}, problems)
        return problems
