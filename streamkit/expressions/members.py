"""Members of sets and keys of objects whose hashes are equal, each of which is compared with all others.

The hashes of text and bytes are salted by Python, once a process, unless PYTHONHASHSEED says otherwise. Those of
integers, floats and tuples of them are not: all multiples of 2**61 - 1 have the same.
"""

from __future__ import annotations

from collections import Counter
from typing import Any, Protocol

from streamkit.errors import LimitError
from streamkit.expressions.limits import MAX_EQUAL_HASHES

_SALTED = frozenset((str, bytes, bool, type(None)))
_CHUNK = 4096


class Charged(Protocol):
    """A budget, as far as it is needed here."""

    def key(self, value: Any) -> Any:
        """Charge the steps of hashing a value."""

    def spend(self, steps: int) -> None:
        """Take steps."""


def check_hashes(members: list[Any], budget: Charged | None = None) -> list[Any]:
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
    if kinds == {int} and min(members) > -_PRIME and max(members) < _PRIME:
        # Small integers are their own hashes; -1 has that of -2.
        return members
    if not all(map(_is_hashable, kinds)):
        # Let Python say which of them can't be hashed.
        return members
    hashes = Counter(map(hash, members))
    most = max(hashes.values())
    if most > MAX_EQUAL_HASHES:
        suspects = {found for found, count in hashes.items() if count > MAX_EQUAL_HASHES}
        different: dict[int, list[Any]] = {}
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
