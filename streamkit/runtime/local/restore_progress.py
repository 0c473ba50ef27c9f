"""The progress of restoring, for logs, listeners and status pages (StateRestoreListener, StandbyUpdateListener)."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

from streamkit.record import TopicPartition
from streamkit.runtime.local.local_task import LocalTask
from streamkit.runtime.local.restore import Changelog


@dataclass(frozen=True)
class RestoreProgress:
    """The progress of one store with its changelog, at one moment."""

    task: str
    active: bool
    """Whether the task runs once it is restored; False: a standby, which follows its changelogs indefinitely."""
    store: str
    changelog: TopicPartition
    start: int
    """The offset at which the restore began."""
    position: int
    """The next offset to apply."""
    end: int
    """The end of the changelog when it was last looked up."""
    restored: int
    """Records applied since `start`."""
    seconds: float
    """Time since the restore began."""

    @property
    def remaining(self) -> int:
        """Return the number of remaining offsets, including transaction markers and compacted records."""
        return max(0, self.end - self.position)

    @property
    def rate(self) -> float:
        """Return the records per second since the start."""
        return self.restored / self.seconds if self.seconds > 0 else 0.0

    @property
    def eta_seconds(self) -> float | None:
        """Return the remaining time at the rate so far; None if it is not known yet."""
        if not self.remaining:
            return 0.0
        done = self.position - self.start
        return self.remaining * self.seconds / done if done > 0 else None

    def __str__(self) -> str:
        place = f"{self.changelog.topic}-{self.changelog.partition}"
        text = f"{place}: {self.restored:,} records, {self.remaining:,} left, {self.rate:,.0f} a second"
        eta = self.eta_seconds
        return text if eta is None else f"{text}, done in {eta:.0f} s"


Event = Literal["start", "batch", "end", "suspend"]
RestoreListener = Callable[[Event, RestoreProgress], None]
"""Called by the updater's thread, so it must be quick; `suspend`: the restore was stopped before its end. Standbys have no end.
"""


def progress_of(task: LocalTask, changelog: Changelog) -> RestoreProgress:
    """Return a task's progress with one of its changelogs."""
    position = changelog.position or 0
    return RestoreProgress(
        task.name,
        task.active,
        changelog.store.name,
        changelog.partition,
        changelog.start or 0,
        position,
        max(position, changelog.end or 0),
        changelog.restored,
        changelog.seconds(),
    )
