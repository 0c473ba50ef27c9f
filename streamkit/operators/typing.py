"""What is known of keys and values between steps, and what a step may ask to check the fields that its expressions name."""

from __future__ import annotations

from typing import Any

from streamkit.errors import Problem
from streamkit.expressions.infer import infer
from streamkit.expressions.model import Expression
from streamkit.expressions.types import ANY, Type, WindowedKey, one_of
from streamkit.operators.fields import Step
from streamkit.operators.frozen import frozen


@frozen
class Types:
    """What is known of the keys and values of a stream or a table."""

    key: Type = ANY
    value: Type = ANY


def meet_types(types: list[Types]) -> Types:
    """Return the types of what is one of several."""
    return Types(one_of(each.key for each in types), one_of(each.value for each in types))


class Typing:
    """One step's view: `own` is what it stands on, `others` what it refers to, in the order of reference.

    ends: the upstream object that the step stands on, and the one that it gives.
    """

    def __init__(self, step: Step, ends: tuple[Any, Any], own: Types, others: list[Types]):
        self.step = step
        self.upstream, self.result = ends
        self.own = own
        self.others = others
        self.problems: list[Problem] = []

    @property
    def aggregated_key(self) -> Type:
        """The type of the keys that an aggregation gives: with their windows where it stands on a window."""
        on_window = self.upstream.kind in ("windowed_stream", "windowed_cogroup")
        return WindowedKey(self.own.key) if on_window else self.own.key

    def of(self, option: str, **names: Type) -> Type:
        """Return the type that an option's expression gives, ANY where it is absent; `names` bind more than key and value."""
        return self.infer(self.step.get(option), **names)

    def infer(self, expression: Any, **names: Type) -> Type:
        """Return the type that an expression gives and note the fields in it that can't be."""
        if not isinstance(expression, Expression):
            return ANY
        return infer(expression, {"key": self.own.key, "value": self.own.value, **names}, self.problems)

    def quietly(self, option: str, **names: Type) -> Type:
        """Return the type that an option's expression gives; what is wrong in it is found another time."""
        known = len(self.problems)
        found = self.of(option, **names)
        del self.problems[known:]
        return found

    def stored(self, type_: Type) -> Type:
        """Return the type of a value that is read as the step made it, or as the serde of its result gives it back."""
        return _either(type_, self.result, "value_serde")

    def given(self, types: Types) -> Types:
        """Return the types of what the step gives, which a topic or a store may lie before."""
        return Types(_either(types.key, self.result, "key_serde"), self.stored(types.value))

    def kept(self) -> Types:
        """Return the types of a step that changes nothing, after checking all its expressions."""
        touched = False
        for value in self.step.options.values():
            expressions = [part for _, part in value] if isinstance(value, tuple) and _is_headers(value) else [value]
            for expression in expressions:
                self.infer(expression)
                touched = touched or getattr(expression, "runs_python", False)
        # Python of the user's may have changed the value in place.
        return Types(self.own.key) if touched else self.own


def _either(type_: Type, result: Any, side: str) -> Type:
    given = getattr(getattr(result, side, None), "type", ANY)
    return type_ if given is ANY else one_of([type_, given])


def _is_headers(value: tuple[Any, ...]) -> bool:
    return all(isinstance(part, tuple) and len(part) == 2 for part in value)
