"""The two functions of ShuffleBench (Henning et al., ICPE '24): matching records with rules, and a consumer with a state.

Each rule covers a range of a ring of 2**63 places; a record matches the rules whose ranges hold its own place, which
follows from its first 16 bytes. The first bytes of a state are four numbers: how many records the consumer has seen since
its last result, the sum of their first 8 bytes, and the times of the first and of the last one; then come bytes of the last.
"""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct
from typing import Any

import numpy as np

from streamkit import KeyValueStore, ProcessorContext, Record

Number = np.ndarray | int
MASK = (1 << 64) - 1
RING = 1 << 63
SEED = 0x5348_5546_464C_4531
STATE = Struct(">qQqq")
"""Count, sum, first time, last time."""
HEAD = Struct(">QQ")
"""What a record begins with."""


def mixed(number: Number) -> Number:
    """A permutation of the numbers of 64 bits without visible order: the last step of SplitMix64."""
    number = ((number ^ (number >> 30)) * 0xBF58476D1CE4E5B9) & MASK
    number = ((number ^ (number >> 27)) * 0x94D049BB133111EB) & MASK
    return number ^ (number >> 31)


def place(first: Number, second: Number) -> Number:
    """The place of a record on the ring, of its first two numbers."""
    return mixed((first + ((second * 0x9E3779B97F4A7C15) & MASK)) & MASK) >> 1


def ranges(rules: int, selectivity: float, exponent: float) -> list[tuple[int, int]]:
    """(begin, width) of each rule's range: rule n takes a part of `selectivity` in proportion to 1/n**exponent."""
    weights = [1 / number**exponent for number in range(1, rules + 1)]
    total = 0.0
    for weight in weights:
        total += weight
    return [
        (mixed((SEED + number * 0x9E3779B97F4A7C15) & MASK) >> 1, min(RING, int(weight / total * selectivity * RING)))
        for number, weight in enumerate(weights)
    ]


def name(rule: int) -> str:
    """The key of a rule's consumer."""
    return f"consumer_{rule}"


class Index:
    """The rules of each part of the ring between two neighbouring bounds of ranges."""

    def __init__(self, found: Sequence[tuple[int, int]]):
        changes: dict[int, tuple[list[int], list[int]]] = {0: ([], [])}
        active: set[int] = set()
        for rule, (begin, width) in enumerate(found):
            if width == RING:
                active.add(rule)
                continue
            if not width:
                continue
            end = (begin + width) % RING
            if end < begin:
                active.add(rule)
            changes.setdefault(begin, ([], []))[0].append(rule)
            changes.setdefault(end, ([], []))[1].append(rule)
        bounds = sorted(changes)
        self._bounds = np.array(bounds, dtype=np.uint64)
        self._names: list[tuple[str, ...]] = []
        for bound in bounds:
            begun, ended = changes[bound]
            active.difference_update(ended)
            active.update(begun)
            self._names.append(tuple(name(rule) for rule in sorted(active)))
        self._matches = np.array([bool(names) for names in self._names])

    def matches(self, places: np.ndarray) -> list[tuple[int, tuple[str, ...]]]:
        """(number of the place, consumers) of each place that a rule covers."""
        parts = np.searchsorted(self._bounds, places, side="right") - 1
        hits = np.flatnonzero(self._matches[parts])
        return [(hit, self._names[part]) for hit, part in zip(hits.tolist(), parts[hits].tolist(), strict=True)]


class Match:
    """For each record a list of (consumer, record), in the order of the rules."""

    def __init__(self, rules: int, selectivity: float, exponent: float):
        self._index = Index(ranges(rules, selectivity, exponent))

    def __call__(self, keys: Sequence[bytes | None], values: Sequence[bytes]) -> list[Any]:
        heads = np.frombuffer(b"".join([value[:16] for value in values]), dtype=">u8").astype(np.uint64)
        found: list[Any] = [()] * len(values)
        for number, consumers in self._index.matches(place(heads[::2], heads[1::2])):
            value = values[number]
            found[number] = [(consumer, value) for consumer in consumers]
        return found


class Consume:
    """Keeps the state of each consumer, and gives it out with every n-th record (`rate`)."""

    def __init__(self, rate: int, size: int, random: bool):
        """`size`: bytes of a state; `random`: whether a consumer begins somewhere on the way to its first result."""
        self._rate = rate
        self._room = size - STATE.size
        self._empty = bytes(size)
        self._random = random

    def init(self, context: ProcessorContext) -> None:
        self._states: KeyValueStore = context.store("consumers")

    def process(self, record: Record) -> Record | None:
        data = record.value
        first, second = HEAD.unpack_from(data)
        state = self._states.get(record.key)
        if state is None:
            count = place(first, second) % self._rate if self._random else 0
            total, began = 0, record.timestamp
        else:
            count, total, began, _ = STATE.unpack_from(state)
            if not count:
                began = record.timestamp
        count += 1
        new = STATE.pack(count, (total + first) & MASK, began, record.timestamp) + data[: self._room]
        if count < self._rate:
            self._states.put(record.key, new)
            return None
        self._states.put(record.key, self._empty)
        return record.replace(value=new)
