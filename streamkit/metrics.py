"""Counters, added to once a batch or rarer (Kafka Streams' metric names, without its sensors)."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping


class Metrics:
    """Totals by (metric, labels); the owner adds, any thread may read."""

    def __init__(self) -> None:
        self._totals: Counter[tuple[str, str]] = Counter()

    def add(self, name: str, amount: int = 1, labels: str = "") -> None:
        """Add to a total, such as `dropped-records-total` of task `0_1`."""
        self._totals[name, labels] += amount

    def totals(self) -> Mapping[tuple[str, str], int]:
        """Return a copy of all totals."""
        return dict(self._totals)
