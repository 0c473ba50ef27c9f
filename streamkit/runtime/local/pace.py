"""How many records a task processes before punctuators and commits get their turn (StreamThread's numIterations)."""

from __future__ import annotations

from dataclasses import dataclass

START = 256
MOST = 65_536


@dataclass
class Pace:
    """N grows while rounds go well, and halves when something else wanted its turn or time runs short.

    Java starts at 1 and adds 1; a batch costs Python a call, so N starts higher and doubles.
    """

    max_poll_interval_ms: int = 300_000
    records: int = START

    def after(self, *, interrupted: bool, since_poll_ms: int) -> None:
        """Adapt after a round: `interrupted` by a punctuator or a commit, so long (ms) after the last poll."""
        if interrupted or since_poll_ms > self.max_poll_interval_ms // 2:
            self.records = max(1, self.records // 2)
        else:
            self.records = min(MOST, self.records * 2)
