"""An entry of the library: a function with the facts that the checks, the bounds and the reference need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias

from streamkit.expressions.budget import Budget
from streamkit.expressions.types import ANY, Type
from streamkit.record import Value
from streamkit.suggestions import did_you_mean

Check: TypeAlias = Callable[[Value], object]
"""Raises ValueError for an argument that no call takes."""

CALL, WORK = 50, 2
"""Steps of one call, and of each byte of its arguments."""


@dataclass(frozen=True)
class LibraryFunction:
    """A function `name(parameters)` of the language; the last `optional` parameters may be absent.

    factor: the maximum size of the result relative to that of the arguments; constant: the size added to it.
    """

    name: str
    parameters: tuple[str, ...]
    run: Callable[..., Value]
    doc: str
    examples: tuple[tuple[str, str], ...]
    """Expressions, and the `repr` of their results."""
    optional: int = 0
    kind: str | None = None
    """The class of the result if it is never None (piece.Piece.kind)."""
    type: Type = ANY
    factor: float = 0.0
    constant: float = 1.0
    checks: Mapping[int, Check] = field(default_factory=dict)
    """Checks of constant arguments by index; they run when the file is read."""
    charge: Callable[..., Value] | None = None
    """The function that takes a budget first and charges for its own work; None: `charged` charges for it."""

    @property
    def signature(self) -> str:
        """The call, with optional parameters in brackets."""
        needed = len(self.parameters) - self.optional
        shown = ", ".join(self.parameters[:needed])
        for at, name in enumerate(self.parameters[needed:]):
            shown += f"[, {name}" if at or needed else f"[{name}"
        return f"{self.name}({shown}{']' * self.optional})"

    @property
    def takes(self) -> str:
        """How many arguments it takes, in words."""
        most = len(self.parameters)
        least = most - self.optional
        return f"{least} argument{'s' if least != 1 else ''}" if least == most else f"{least} to {most} arguments"

    def charged(self, budget: Budget, *arguments: Value) -> Value:
        """Call the function, and charge for its work and its result."""
        if self.charge is not None:
            return self.charge(budget, *arguments)
        budget.spend(CALL + WORK * sum(map(budget.size, arguments)))
        return budget.item(self.run(*arguments))


def one_of_words(*words: str) -> Check:
    """Return the check that an argument is one of some words."""

    def check(value: Value) -> None:
        if value not in words:
            hint = did_you_mean(value, words) if isinstance(value, str) else ""
            raise ValueError(f"{value!r} is none of {', '.join(words)}{hint}")

    return check


def need_text(value: Value, name: str) -> str:
    """Return the argument of a function that takes text. Raises TypeError."""
    if not isinstance(value, str):
        raise TypeError(f"{name}() takes text, not {type(value).__name__}")
    return value


def need_integer(value: Value, name: str) -> int:
    """Return the argument of a function that takes a whole number. Raises TypeError."""
    if type(value) is not int:
        raise TypeError(f"{name}() takes a whole number, not {type(value).__name__}")
    return value


def bytes_of(value: Value, name: str) -> bytes:
    """Return the bytes of text (UTF-8) or bytes. Raises TypeError."""
    if isinstance(value, str):
        return value.encode("utf-8", "surrogatepass")
    if not isinstance(value, bytes):
        raise TypeError(f"{name}() takes text or bytes, not {type(value).__name__}")
    return value
