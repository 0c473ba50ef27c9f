"""The findings of a comparison, and their verdicts."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from streamkit.errors import Position


class Verdict(StrEnum):
    """What a change does to a running application, from the least to the worst."""

    SAFE = "safe"
    """Instances may be restarted one after the other."""
    UNKNOWN = "unknown"
    """The topologies do not decide it; the user has to check."""
    STOP = "stop"
    """Tasks change, so that old and new instances can't share the group; state stays where it is."""
    RESTORE = "restore"
    """State is read from changelogs again."""
    LEFT_BEHIND = "records left behind"
    """No consumer reads a repartition topic any more; its unread records are never processed."""
    RENAMED = "renamed"
    """State starts empty, because its changelog has another name."""
    INCOMPATIBLE = "incompatible"
    """The bytes of a changelog would be misread, or do not fit the tasks."""

    @property
    def rank(self) -> int:
        """Return the place in the order from the least to the worst."""
        return list(Verdict).index(self)


@dataclass(frozen=True)
class Finding:
    """One change. subject: application, store, topic, sub-topology, pipeline or names; name: of the new version, if it has it.

    action: what the user has to do, if anything. position: in the new version.
    """

    verdict: Verdict
    subject: str
    name: str
    message: str
    action: str
    position: Position
    pipeline: str = ""
    old: str | None = None
    """The name in the old version, if it is another."""


def worst(findings: list[Finding]) -> Verdict:
    """Return the worst verdict; safe for no findings."""
    return max((finding.verdict for finding in findings), key=lambda verdict: verdict.rank, default=Verdict.SAFE)
