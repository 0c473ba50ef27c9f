"""The number of records that a task processes between punctuation and commits (StreamThread's numIterations)."""

from __future__ import annotations

from dataclasses import dataclass

START = 256
MAX = 65_536


@dataclass
class Iterations:
    """Doubles after each round, and halves after a punctuator, a commit, or half of max.poll.interval.ms.

    Java starts at 1 and adds 1; each round costs Python calls, so that the number starts higher and doubles.
    """

    max_poll_interval_ms: int = 300_000
    records: int = START

    def adapt(self, *, interrupted: bool, since_poll_ms: int) -> None:
        """Adapt after a round: `interrupted` by a punctuator or a commit, `since_poll_ms` after the last poll."""
        if interrupted or since_poll_ms > self.max_poll_interval_ms // 2:
            self.records = max(1, self.records // 2)
        else:
            self.records = min(MAX, self.records * 2)
