"""Definitions of windows as data; times in milliseconds."""

from __future__ import annotations

from abc import ABC, abstractmethod

from streamkit.operators.core.frozen import frozen


@frozen
class Windows(ABC):
    """The windows of an aggregation."""

    grace: int

    @property
    @abstractmethod
    def close_delay(self) -> int:
        """The time between the end of a window and its close (GraphGraceSearchUtil)."""

    @property
    @abstractmethod
    def least_retention(self) -> int:
        """The default retention of the store, and the shortest that is allowed."""


@frozen
class TimeWindows(Windows):
    """Tumbling (advance = size) and hopping windows: [start, end)."""

    size: int
    advance: int

    @property
    def close_delay(self) -> int:
        return self.grace

    @property
    def least_retention(self) -> int:
        return self.size + self.grace


@frozen
class SlidingWindows(Windows):
    """Windows over each record and those up to `difference` before it: [start, end]."""

    difference: int

    @property
    def close_delay(self) -> int:
        return self.grace

    @property
    def least_retention(self) -> int:
        return 2 * self.difference + self.grace


@frozen
class SessionWindows(Windows):
    """Bursts of records with pauses of at most `gap`: [start, end]."""

    gap: int

    @property
    def close_delay(self) -> int:
        return self.grace + self.gap

    @property
    def least_retention(self) -> int:
        return self.gap + self.grace
