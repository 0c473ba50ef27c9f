"""The inferred types of keys and values between steps, and the inference with which a step checks its expressions."""

from __future__ import annotations

from typing import TYPE_CHECKING

from streamkit.errors import Problem
from streamkit.expressions.analysis.infer import infer
from streamkit.expressions.analysis.types import ANY, Type, WindowedKey, one_of
from streamkit.expressions.checked_expression import Expression
from streamkit.operators.core.frozen import frozen

if TYPE_CHECKING:
    from streamkit.operators.core.parsed_values import Step
    from streamkit.operators.core.upstream import Upstream


@frozen
class Types:
    """The inferred types of the keys and values of a stream or a table."""

    key: Type = ANY
    value: Type = ANY


def common_types(types: list[Types]) -> Types:
    """Return the types of keys and values that have one of several types."""
    return Types(one_of(each.key for each in types), one_of(each.value for each in types))


class TypeInference:
    """Infers the types of a step's expressions.

    `upstream_types`: those of its upstream; `referred_types`: those of the upstreams that its options refer to, in the
    order of the references. ends: the upstream of the step, and its result. `problems`: the fields in its expressions
    that do not exist.
    """

    def __init__(self, step: Step, ends: tuple[Upstream, Upstream], upstream_types: Types, referred_types: list[Types]):
        self.step = step
        self.upstream, self.result = ends
        self.upstream_types = upstream_types
        self.referred_types = referred_types
        self.problems: list[Problem] = []

    @property
    def aggregated_key(self) -> Type:
        """The type of the keys of an aggregation's result: with their windows where its upstream has windows."""
        on_window = self.upstream.kind in ("windowed_stream", "windowed_cogroup")
        return WindowedKey(self.upstream_types.key) if on_window else self.upstream_types.key

    def option_type(self, option: str, **names: Type) -> Type:
        """Return the type of an option's expression, ANY where it is absent; `names` bind more than key and value."""
        return self.type_of(self.step.get(option), **names)

    def type_of(self, expression: object, **names: Type) -> Type:
        """Return the type of an expression, ANY for other objects, and note the fields in it that do not exist."""
        if not isinstance(expression, Expression):
            return ANY
        return infer(
            expression, {"key": self.upstream_types.key, "value": self.upstream_types.value, **names}, self.problems
        )

    def unchecked_type(self, option: str, **names: Type) -> Type:
        """Return the type of an option's expression without noting its problems, which `option_type` notes."""
        known = len(self.problems)
        found = self.option_type(option, **names)
        del self.problems[known:]
        return found

    def stored_type(self, type_: Type) -> Type:
        """Return the type of a value as the step makes it, or as the serde of the result decodes it."""
        return _either(type_, self.result, "value_serde")

    def encoded_type(self, type_: Type) -> Type:
        """Return the type of a value that the serde of the result has encoded; other values have failed there."""
        takes = getattr(getattr(self.result, "value_serde", None), "takes", None)
        return one_of(takes) if type_ is ANY and takes else self.stored_type(type_)

    def result_types(self, types: Types) -> Types:
        """Return the types of the step's result, which may be read back from a topic or a store."""
        return Types(_either(types.key, self.result, "key_serde"), self.stored_type(types.value))

    def unchanged_types(self) -> Types:
        """Check all expressions of a step that changes neither keys nor values, and return the types of its upstream."""
        runs_python = False
        for value in self.step.options.values():
            expressions = [part for _, part in value] if isinstance(value, tuple) and _is_headers(value) else [value]
            for expression in expressions:
                self.type_of(expression)
                runs_python = runs_python or getattr(expression, "runs_python", False)
        # The user's Python may change the value in place.
        return Types(self.upstream_types.key) if runs_python else self.upstream_types


def _either(type_: Type, result: Upstream, side: str) -> Type:
    given = getattr(getattr(result, side, None), "type", ANY)
    return type_ if given is ANY else one_of([type_, given])


def _is_headers(value: tuple[object, ...]) -> bool:
    return all(isinstance(part, tuple) and len(part) == 2 for part in value)
