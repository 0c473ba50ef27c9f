"""The entries of the library: functions with the facts that the checks, the bounds and the reference need."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import TypeAlias, TypeVar

from streamkit.expressions.budget import Budget
from streamkit.expressions.types import ANY, BYTES, INTEGER, NUMBER, TEXT, Type
from streamkit.record import Value
from streamkit.suggestions import did_you_mean, number_of

Check: TypeAlias = Callable[[Value], object]
"""Raises ValueError for an argument that no call takes."""

CALL, WORK = 50, 2
"""Steps of one call, and of each byte of its arguments."""


Run = TypeVar("Run", bound=Callable[..., Value])

_KINDS: dict[Type, str] = {TEXT: "str", INTEGER: "int", BYTES: "bytes", NUMBER: "number"}


@dataclass(eq=False)
class LibraryFunction:
    """The decorator of a function of the language, which enters it into a section.

    The name, the parameters and the documentation are those of the function; parameters with a default may be absent.
    factor: the maximum size of the result relative to that of the arguments; constant: the size added to it.
    """

    section: list[LibraryFunction] = field(repr=False)
    examples: tuple[tuple[str, str], ...]
    """Expressions, and the `repr` of their results."""
    type: Type = ANY
    may_be_none: bool = False
    """Whether the result may be None instead of a value of the type."""
    factor: float = 0.0
    constant: float = 1.0
    checks: Mapping[int, Check] = field(default_factory=dict)
    """Checks of constant arguments by index; they run when the file is read."""
    charge: Callable[..., Value] | None = None
    """The function that takes a budget first and charges for its own work; None: `charged` charges for it."""
    run: Callable[..., Value] = field(init=False)
    name: str = field(init=False)
    parameters: tuple[str, ...] = field(init=False)
    optional: int = field(init=False)
    doc: str = field(init=False)

    def __call__(self, run: Run) -> Run:
        """Enter a function, and return it as it is."""
        code = run.__code__
        self.run, self.name, self.parameters = run, run.__name__, code.co_varnames[: code.co_argcount]
        self.optional, self.doc = len(run.__defaults__ or ()), " ".join((run.__doc__ or "").split())
        self.section.append(self)
        return run

    @property
    def kind(self) -> str | None:
        """The class of the result if it is never None (piece.Piece.kind)."""
        return None if self.may_be_none else _KINDS.get(self.type)

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
        return number_of(least, "argument") if least == most else f"{least} to {most} arguments"

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
