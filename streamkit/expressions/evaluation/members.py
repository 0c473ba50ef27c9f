"""Limits how many members of sets and keys of objects have equal hashes, since each is compared with all others.

Python salts the hashes of text and bytes in each process, unless PYTHONHASHSEED is set. It does not salt those of
integers, floats and tuples of them: all multiples of 2**61 - 1 have the same hash.
"""

from __future__ import annotations

from collections import Counter
from typing import Protocol, TypeVar

from streamkit.errors import LimitError
from streamkit.expressions.expression_limits import MAX_EQUAL_HASHES
from streamkit.record import Value

T = TypeVar("T")

_SALTED = frozenset((str, bytes, bool, type(None)))
_CHUNK = 4096


class Charged(Protocol):
    """The methods of a budget that this module calls."""

    def key(self, value: T) -> T:
        """Charge the steps of hashing a value."""

    def spend(self, steps: int) -> None:
        """Charge steps."""


def check_hashes(members: list[T], budget: Charged | None = None) -> list[T]:
    """Return the members. Raises LimitError where too many different ones have the same hash.

    >>> check_hashes([2**61 - 1] * 1000) is not None
    True
    """
    if len(members) <= MAX_EQUAL_HASHES:
        if budget is not None:
            for each in members:
                budget.key(each)
        return members
    kinds = set(map(type, members))
    if kinds <= _SALTED:
        return members
    if budget is not None and tuple in kinds:
        for each in members:
            budget.key(each)
    integers: list[Value] = members
    if kinds == {int} and min(integers) > -_PRIME and max(integers) < _PRIME:
        # Small integers are their own hashes; -1 has that of -2.
        return members
    if not all(map(_is_hashable, kinds)):
        # Python's own error names the member that can't be hashed.
        return members
    hashes = Counter(map(hash, members))
    most = max(hashes.values())
    if most > MAX_EQUAL_HASHES:
        suspects = {found for found, count in hashes.items() if count > MAX_EQUAL_HASHES}
        different: dict[int, list[Value]] = {}
        for each in members:
            found = hash(each)
            if found in suspects:
                same = different.setdefault(found, [])
                if not any(other is each or other == each for other in same):
                    same.append(each)
                    if len(same) > MAX_EQUAL_HASHES:
                        raise LimitError(
                            f"more than {MAX_EQUAL_HASHES} keys or members with equal hashes, such as {same[0]!r:.40}"
                            f" and {same[1]!r:.40}"
                        )
    return members


_PRIME = (1 << 61) - 1


def _is_hashable(kind: type) -> bool:
    return kind.__hash__ is not None
