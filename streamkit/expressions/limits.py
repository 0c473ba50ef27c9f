"""The bounds of the expression language, and the budget that loops draw on."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from itertools import islice
from time import perf_counter, thread_time
from typing import Any

from streamkit.errors import LimitError

MAX_RANGE = 1_000_000
MAX_BYTES = 10 * 1024 * 1024
MAX_BITS = 4096
SLOT = 8
"""What one element of a list counts, in bytes: a pointer."""

MAX_TEXT = 16_384
"""Characters of an expression's text; longer logic belongs into a Python function."""
MAX_DEPTH = 150
"""Levels of nesting; keeps every recursive step below Python's own limit."""
MAX_CALLS = 10_000
"""Calls of the file's functions that one expression may amount to when they are written out."""

MAX_STEPS = 5_000_000
MAX_TOTAL = 64 * 1024 * 1024
MAX_SECONDS = 2.5


def refuse_size(what: str, size: int) -> LimitError:
    """Return the error of something that is too large.

    >>> str(refuse_size("text made by '*'", 20_000_000))
    "text made by '*' has 20000000 bytes; at most 10485760 are allowed"
    """
    return LimitError(f"{what} has {_digits(size)} bytes; at most {MAX_BYTES} are allowed")


def _digits(number: int) -> str:
    # Python refuses to print integers of more than 4,300 digits.
    return str(number) if number.bit_length() < 200 else f"over 2**{number.bit_length() - 1}"


def check_bits(number: int) -> int:
    """Return the integer, or raise LimitError where it has more than 4,096 bits."""
    if number.bit_length() > MAX_BITS:
        raise LimitError(f"an integer of {number.bit_length()} bits; at most {MAX_BITS} are allowed")
    return number


def deep_size(value: Any, limit: int) -> int:
    """Return roughly the bytes of plain data written out, shared parts each time; stops counting beyond `limit`.

    >>> deep_size(["ab", [1, "c"]], 1000)
    35
    """
    total = 0
    todo = [value]
    while todo:
        item = todo.pop()
        if isinstance(item, (str, bytes)):
            total += len(item)
        elif isinstance(item, dict):
            total += 2 * SLOT * len(item)
            if total <= limit:
                todo.extend(item)
                todo.extend(item.values())
        elif isinstance(item, (list, tuple, set, frozenset)):
            total += SLOT * len(item)
            # Long lists are nearly always of one kind, which needs no look at each element.
            if total <= limit and not (kinds := set(map(type, item))) <= _SMALL:
                if kinds == _TEXT:
                    total += sum(map(len, item))
                else:
                    todo.extend(item)
        if total > limit:
            break
    return total


_SMALL = frozenset((int, float, bool))
_TEXT = frozenset((str,))


class Budget:
    """The steps, bytes and seconds that the loops of one evaluation share.

    Only loops whose length or output the file drives draw on it, so that plain loops over a record stay free.
    """

    __slots__ = ("cpu", "deadline", "seconds", "steps", "total")

    def __init__(self, seconds: float = MAX_SECONDS):
        self.steps = MAX_STEPS
        self.total = MAX_TOTAL
        self.seconds = seconds
        self.deadline = perf_counter() + seconds
        self.cpu = 0.0

    def loop(self, items: Iterable[Any]) -> Iterator[Any]:
        """Yield the items, charging a step and the size of each."""
        charge = self.item
        for item in items:
            yield charge(item)

    def item(self, value: Any) -> Any:
        """Charge a step and the size of a value, and return it. Raises LimitError when the budget is spent."""
        self.steps -= 1
        if self.steps < 0:
            raise LimitError(f"loops take more than {MAX_STEPS} steps")
        if perf_counter() > self.deadline:
            self._late()
        if not (value is None or value.__class__ in _SMALL):
            self.total -= SLOT + deep_size(value, self.total)
            if self.total < 0:
                raise LimitError(f"loops make more than {MAX_TOTAL} bytes")
        return value

    def spread(self, items: Iterable[Any]) -> tuple[Any, ...]:
        """Return the items that a `*` writes out, charging for all of them."""
        held = tuple(islice(items, max(self.total, 0) // SLOT + 1))
        self.item(held)
        return held

    def _late(self) -> None:
        # The wall clock is cheap to read, but a machine that stood still is no reason to refuse a record.
        if not self.cpu:
            self.cpu = thread_time() + self.seconds
        elif thread_time() > self.cpu:
            raise LimitError(f"an expression takes longer than {2 * MAX_SECONDS:g} seconds")
