"""The records that the generators of a topology create, in the order of their times."""

from __future__ import annotations

import heapq
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import lru_cache, partial
from itertools import accumulate, count, islice
from math import cos, log, pi, sqrt
from random import Random

from streamkit.errors import LimitError, StreamkitError, UsageError
from streamkit.expressions.budget import MAX_RANGE
from streamkit.record import Operand, Value
from streamkit.serdes.plain import Document, Json
from streamkit.spec.topology_model import GeneratorSpec
from streamkit.suggestions import did_you_mean

START = 1_735_689_600_000
"""The time of the first records, if none is given: 2025-01-01T00:00:00Z."""

Timed = tuple[int, int, Callable[[int], dict[str, Json]]]
"""(time in ms, before lateness; index of the generator; the function that creates the record for a time)."""


def chosen(generators: Mapping[str, GeneratorSpec], topics: Iterable[str]) -> list[GeneratorSpec]:
    """Return the generators of some topics, of all if none is given. Raises UsageError."""
    if not generators:
        raise UsageError(
            "there are no generators: write a section 'generators', or a file NAME.generators.yaml beside NAME.yaml"
        )
    names = list(topics) or list(generators)
    for name in names:
        if name not in generators:
            raise UsageError(f"there is no generator of {name!r}{did_you_mean(name, generators)}")
    return [generators[name] for name in names]


def is_endless(generators: Iterable[GeneratorSpec]) -> bool:
    """Return whether records never end."""
    return any(generator.count is None for generator in generators)


def generated(
    generators: list[GeneratorSpec], seed: int, start: int, per_second: float | None = None
) -> Iterator[dict[str, Document]]:
    """Yield records as `produce` reads them, in the order of their times; records with equal times are in the order of the generators.

    per_second: their times follow this rate, in place of `every`, which then only gives their order.

    Each generator has its own random numbers, so that adding another one does not change its records. Raises StreamkitError
    that names the topic and the place in the file.
    """
    streams = [_timed(generator, number, seed, start) for number, generator in enumerate(generators)]
    for number, (time, _, make) in enumerate(heapq.merge(*streams, key=lambda timed: timed[:2])):
        # Before the next record of the generator draws its numbers.
        yield make(time if per_second is None else start + int(number * 1000 / per_second))


def _timed(spec: GeneratorSpec, number: int, seed: int, start: int) -> Iterator[Timed]:
    random = SeededRandom(f"{seed} {spec.topic}")
    key_of = spec.key.function(("random", "sequence", "time"))
    value_of = spec.value.function(("key", "random", "sequence", "time"))
    for sequence in islice(count(), spec.count):

        def make(at: int, sequence: int = sequence) -> dict[str, Json]:
            time = at
            if spec.late_part and random.boolean(spec.late_part):
                time = max(0, at - random.integer(1, spec.late_by))
            key = _evaluate(spec, "key", sequence, partial(key_of, random, sequence, time))
            value = _evaluate(spec, "value", sequence, partial(value_of, key, random, sequence, time))
            return {"topic": spec.topic, "key": key, "value": value, "timestamp": time}

        yield start + sequence * spec.every, number, make


def _evaluate(spec: GeneratorSpec, part: str, sequence: int, make: Callable[[], Json]) -> Json:
    try:
        return make()
    except Exception as error:
        message = f"{spec.position}: the {part} of record {sequence} of the generator of {spec.topic!r}: {error}"
        raise StreamkitError(message) from error


# `random` in the expressions of generators: equal for equal seeds, on every machine and version of Python.


class SeededRandom:
    """Draws of one generator. They use only `Random.random`, whose numbers never change between versions."""

    def __init__(self, seed: str):
        self._next = Random(seed).random

    def number(self, low: Value = 0.0, high: Operand = 1.0) -> float:
        """Return a number from `low` to less than `high`, all equally likely."""
        return float(low + (high - low) * self._next())

    def integer(self, low: Value, high: Value) -> int:
        """Return a whole number from `low` to `high`, both included, all equally likely."""
        first, last = _whole(low), _whole(high)
        if last < first:
            raise ValueError(f"random.integer() takes a range, not {first} to {last}")
        return first + int(self._next() * (last - first + 1))

    def boolean(self, likely: Operand = 0.5) -> bool:
        """Return True with a probability."""
        return bool(self._next() < likely)

    def choice(self, items: Sequence[Value], weights: Sequence[Operand] | None = None) -> Value:
        """Return one of some items, equally likely or by weights."""
        if weights is None:
            return items[int(self._next() * len(items))]
        if len(weights) != len(items):
            raise ValueError(f"random.choice() takes a weight for each of {len(items)} items, not {len(weights)}")
        sums = list(accumulate(weights))
        return items[min(bisect_right(sums, self._next() * sums[-1]), len(items) - 1)]

    def zipf(self, n: Value, s: Operand = 1.0) -> int:
        """Return a rank from 0 to n - 1; rank r is as likely as 1 / (r + 1) ** s."""
        sums = _zipf_sums(_whole(n), float(s))
        return min(bisect_right(sums, self._next() * sums[-1]), len(sums) - 1)

    def normal(self, mean: Value = 0.0, deviation: Operand = 1.0) -> float:
        """Return a number from a normal distribution (Box and Muller)."""
        return float(mean + deviation * sqrt(-2 * log(1 - self._next())) * cos(2 * pi * self._next()))

    def exponential(self, mean: Operand = 1.0) -> float:
        """Return a number from an exponential distribution."""
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
