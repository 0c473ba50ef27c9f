"""The lists of the `top` step: the values of the highest ranks, highest first, equal ranks by arrival."""

from __future__ import annotations

from collections.abc import Callable

from streamkit.record import Key, RecordContext, Value


class TopList:
    """The functions of one node. limit: how long a list is at most; rank: (key, value) to a value's rank.

    Lists are never changed in place, since stores keep them.
    """

    __slots__ = ("_limit", "_rank")

    def __init__(self, limit: int, rank: Callable[[Key, Value], Value]):
        self._limit = limit
        self._rank = rank

    def add(
        self, k: Key, ranked: tuple[Value, Value], found: list[Value], t: int = 0, c: RecordContext = None
    ) -> list[Value]:
        """Return the list with a value, given with its rank; the list itself where the value does not get into it."""
        rank_of, (rank, value) = self._rank, ranked
        low, high = 0, len(found)
        if high >= self._limit and rank_of(k, found[-1]) >= rank:
            return found
        while low < high:
            middle = (low + high) // 2
            if rank_of(k, found[middle]) >= rank:
                low = middle + 1
            else:
                high = middle
        return [*found[:low], value, *found[low : self._limit - 1]]

    def merge(self, k: Key, left: list[Value], right: list[Value]) -> list[Value]:
        """Return the list of two sessions; of equal ranks those of `left` come first."""
        both = [*left, *right]
        both.sort(key=lambda value: self._rank(k, value), reverse=True)
        return both[: self._limit]
