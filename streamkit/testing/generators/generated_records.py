"""The records that the generators of a topology make, in the order of their times."""

from __future__ import annotations

import heapq
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial
from itertools import count, islice

from streamkit.errors import StreamkitError, UsageError
from streamkit.record import Value
from streamkit.serdes.plain import Json
from streamkit.spec.topology_model import GeneratorSpec
from streamkit.suggestions import did_you_mean
from streamkit.testing.generators.seeded_random import SeededRandom

START = 1_735_689_600_000
"""The time of the first records, where none is given: 2025-01-01T00:00:00Z."""

Timed = tuple[int, int, Callable[[int], dict[str, Json]]]
"""(time in ms, place of the generator, the function that makes the record of a time); the time is that before lateness."""


def chosen(generators: Mapping[str, GeneratorSpec], topics: Iterable[str]) -> list[GeneratorSpec]:
    """Return the generators of some topics, of all where none is given. Raises UsageError."""
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
    return any(each.count is None for each in generators)


def generated(
    generators: list[GeneratorSpec], seed: int, start: int, per_second: float | None = None
) -> Iterator[dict[str, Json]]:
    """Yield records as `produce` reads them, in the order of their times; of equal times in the order of the generators.

    per_second: their times follow this rate, in place of `every`, which then only gives their order.

    Each generator draws from numbers of its own, so that another one beside it changes nothing. Raises StreamkitError
    that names the topic and the place in the file.
    """
    streams = [_timed(each, place, seed, start) for place, each in enumerate(generators)]
    for number, (time, _, make) in enumerate(heapq.merge(*streams, key=lambda timed: timed[:2])):
        # Before the next record of the generator draws its numbers.
        yield make(time if per_second is None else start + int(number * 1000 / per_second))


def _timed(spec: GeneratorSpec, place: int, seed: int, start: int) -> Iterator[Timed]:
    random = SeededRandom(f"{seed} {spec.topic}")
    key_of = spec.key.function(("random", "sequence", "time"))
    value_of = spec.value.function(("key", "random", "sequence", "time"))
    for sequence in islice(count(), spec.count):

        def make(at: int, sequence: int = sequence) -> dict[str, Json]:
            time = at
            if spec.late_part and random.boolean(spec.late_part):
                time = max(0, at - random.integer(1, spec.late_by))
            key = _made(spec, "key", sequence, partial(key_of, random, sequence, time))
            value = _made(spec, "value", sequence, partial(value_of, key, random, sequence, time))
            return {"topic": spec.topic, "key": key, "value": value, "timestamp": time}

        yield start + sequence * spec.every, place, make


def _made(spec: GeneratorSpec, part: str, sequence: int, make: Callable[[], Value]) -> Value:
    try:
        return make()
    except Exception as error:
        message = f"{spec.position}: the {part} of record {sequence} of the generator of {spec.topic!r}: {error}"
        raise StreamkitError(message) from error
