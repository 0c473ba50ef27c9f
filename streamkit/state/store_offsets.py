"""The metadata of a store on disk: its owner, and the changelog offsets up to which it is complete (KIP-1035)."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from streamkit.state.engines.ages import layout_with
from streamkit.state.engines.segments import interval_of

if TYPE_CHECKING:
    from streamkit.state.definitions import StoreDef


@dataclass(frozen=True)
class Owner:
    """The owner of a store; state of another owner is not used."""

    application: str
    store: str
    partition: int | None
    """None: a global store."""
    topic: str | None
    """Its changelog; None where it has none."""
    topic_id: str = ""
    """The id of the topic, which changes when it is deleted and created again; empty where it is not known."""
    layout: str = ""

    def other_than(self, found: Owner) -> str | None:
        """Return why state of `found` can't be used by this owner; None where it can."""
        if found.topic_id and self.topic_id and found.topic == self.topic and found.topic_id != self.topic_id:
            return f"follows a topic {self.topic} that was deleted since"
        for name, noun in _NOUNS.items():
            have, want = getattr(found, name), getattr(self, name)
            if have != want:
                return f"is of {noun} {have}, not {want}"
        return None


_NOUNS = {
    "application": "the application",
    "store": "the store",
    "partition": "the partition",
    "topic": "the changelog",
    "layout": "the layout",
}


@dataclass
class StoreOffsets:
    """The metadata of a store: its owner, and by partition of its changelog the offset up to which it is complete, exclusive."""

    owner: Owner
    positions: dict[int, int] = field(default_factory=dict)
    committed_ms: int | None = None
    """When a position last moved, since the epoch."""

    def note(self, partition: int, position: int) -> None:
        """Set a position, and the time if it has changed: an unchanged store is not written again."""
        if self.positions.get(partition) != position:
            self.positions[partition] = position
            self.committed_ms = time.time_ns() // 1_000_000

    def encode(self) -> bytes:
        """Return the metadata as JSON, which people can read in the files."""
        return json.dumps(
            {**vars(self.owner), "positions": self.positions, "committed_ms": self.committed_ms}, separators=(",", ":")
        ).encode()

    def owned_by(self, owner: Owner) -> StoreOffsets:
        """Return the same offsets for another owner; the topic's id stays where the new one is not known."""
        return replace(self, owner=replace(owner, topic_id=owner.topic_id or self.owner.topic_id))


def decode_offsets(data: bytes) -> StoreOffsets:
    """Return what `encode` wrote. Raises ValueError."""
    try:
        found = json.loads(data)
        positions = {int(number): int(offset) for number, offset in found.pop("positions").items()}
        committed = found.pop("committed_ms", None)
        return StoreOffsets(Owner(**found), positions, None if committed is None else int(committed))
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the metadata of a store can't be read: {error}") from error


def layout_of(store: StoreDef) -> str:
    """Return a description of the layout of a store's rows on disk; state of another layout can't be read."""
    kind = store.type.removeprefix("timestamped_")
    if not store.kind.windowed:
        return layout_with(kind, store.ttl)
    order = ", also by time" if store.options.get("time_ordered") else ""
    return f"{kind} in segments of {interval_of(store.retention or 0, store.segment_interval)} ms{order}"
