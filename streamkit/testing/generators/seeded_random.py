"""`random` in the expressions of generators: equal for equal seeds, on every machine and version of Python."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence
from functools import lru_cache
from itertools import accumulate
from math import cos, log, pi, sqrt
from random import Random

from streamkit.errors import LimitError
from streamkit.expressions.expression_limits import MAX_RANGE
from streamkit.record import Value


class SeededRandom:
    """Draws of one generator. They are made of `Random.random` alone, whose numbers never change between versions."""

    def __init__(self, seed: str):
        self._next = Random(seed).random

    def number(self, low: Value = 0.0, high: Value = 1.0) -> float:
        """Return a number from `low` to less than `high`, all equally likely."""
        return float(low + (high - low) * self._next())

    def integer(self, low: Value, high: Value) -> int:
        """Return a whole number from `low` to `high`, both included, all equally likely."""
        first, last = _whole(low), _whole(high)
        if last < first:
            raise ValueError(f"random.integer() takes a range, not {first} to {last}")
        return first + int(self._next() * (last - first + 1))

    def boolean(self, likely: Value = 0.5) -> bool:
        """Return True with a probability."""
        return bool(self._next() < likely)

    def choice(self, items: Sequence[Value], weights: Sequence[Value] | None = None) -> Value:
        """Return one of some items, equally likely or by weights."""
        if weights is None:
            return items[int(self._next() * len(items))]
        if len(weights) != len(items):
            raise ValueError(f"random.choice() takes a weight for each of {len(items)} items, not {len(weights)}")
        sums = list(accumulate(weights))
        return items[min(bisect_right(sums, self._next() * sums[-1]), len(items) - 1)]

    def zipf(self, n: Value, s: Value = 1.0) -> int:
        """Return a rank from 0 to n - 1; rank r is as likely as 1 / (r + 1) ** s."""
        sums = _zipf_sums(_whole(n), float(s))
        return min(bisect_right(sums, self._next() * sums[-1]), len(sums) - 1)

    def normal(self, mean: Value = 0.0, deviation: Value = 1.0) -> float:
        """Return a number of a normal distribution (Box and Muller)."""
        return float(mean + deviation * sqrt(-2 * log(1 - self._next())) * cos(2 * pi * self._next()))

    def exponential(self, mean: Value = 1.0) -> float:
        """Return a number of an exponential distribution."""
        return float(-mean * log(1 - self._next()))

    def uuid(self) -> str:
        """Return a UUID of version 4."""
        from uuid import UUID

        parts = [int(self._next() * (1 << 32)) for _ in range(4)]
        number = parts[0] << 96 | parts[1] << 64 | parts[2] << 32 | parts[3]
        return str(UUID(int=number, version=4))


@lru_cache(maxsize=16)
def _zipf_sums(n: int, s: float) -> list[float]:
    if not 1 <= n <= MAX_RANGE:
        raise LimitError(f"random.zipf() takes 1 to {MAX_RANGE} ranks, not {n}")
    return list(accumulate((rank + 1) ** -s for rank in range(n)))


def _whole(value: Value) -> int:
    if type(value) is not int:
        raise TypeError(f"a whole number is needed, not {type(value).__name__}")
    return value
