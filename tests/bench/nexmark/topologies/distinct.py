"""Queries 15 and 16: how many bids, bidders and auctions a group has, of all prices and of three ranges of them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Sequence

from streamkit import KeyValueStore, ProcessorContext, Record

BOUNDS = (10_000, 1_000_000)
"""Between the ranges, in cents."""
WAYS = ("total", "rank1", "rank2", "rank3")
COUNTED = [
    (field, [f"{way}_{what}" for way in WAYS])
    for field, what in ((None, "bids"), ("bidder", "bidders"), ("auction", "auctions"))
]
"""The field whose values count once, if not each record does, and the names of its totals."""


class Totals:
    """Keeps the totals of each key, and by key and value in which ranges of prices the value has been seen."""

    def __init__(self, names: Sequence[str]):
        """`names`: the fields that each result has of the last record."""
        self._names = names
        self._fresh = {name: 0 for _, names in COUNTED for name in names}

    def init(self, context: ProcessorContext) -> None:
        self._totals: KeyValueStore = context.store("totals")
        self._seen: KeyValueStore = context.store("seen")

    def process(self, record: Record) -> Record:
        value = record.value
        rank = 1 + bisect_right(BOUNDS, value["price"])
        totals = dict(self._totals.get(record.key) or self._fresh)
        for field, names in COUNTED:
            seen = 0
            if field is not None:
                place = f"{record.key}|{field}|{value[field]}"
                seen = self._seen.get(place) or 0
                if not seen & 1 << rank:
                    self._seen.put(place, seen | 1 << rank | 1)
            for way in (0, rank):
                if not seen & 1 << way:
                    totals[names[way]] += 1
        for name in self._names:
            totals[name] = value[name]
        self._totals.put(record.key, totals)
        return record.replace(value=totals)
