"""The metadata of a store on disk: its owner, and the changelog offsets up to which it is complete (KIP-1035)."""

from __future__ import annotations

import json
import time
from dataclasses import dataclass, field, replace

from streamkit.state.definitions import Owner, StoreDef
from streamkit.state.engines.segments import interval_of

WITH_TTL = ", ttl "
WITH_HEADERS = ", headers"


@dataclass
class StoreOffsets:
    """The metadata of a store: its owner, and for each partition of its changelog the offset up to which it is complete, exclusive."""

    owner: Owner
    positions: dict[int, int] = field(default_factory=dict)
    committed_ms: int | None = None
    """When a position last moved, since the epoch."""
    sequence: int = 0
    """The last number of a row of a NumberedStore."""
    inputs: dict[str, int] = field(default_factory=dict)
    """The input offsets that were committed before the rows, by partition, for a store without a changelog."""

    def note(self, partition: int, position: int) -> None:
        """Set a position, and the time if it has changed: an unchanged store is not written again."""
        if self.positions.get(partition) != position:
            self.positions[partition] = position
            self.committed_ms = time.time_ns() // 1_000_000

    def encode(self) -> bytes:
        """Return the metadata as JSON, which people can read in the files."""
        document = {**vars(self.owner), "positions": self.positions, "committed_ms": self.committed_ms}
        if self.sequence:
            document["sequence"] = self.sequence
        if self.inputs:
            document["inputs"] = self.inputs
        return json.dumps(document, separators=(",", ":")).encode()

    def owned_by(self, owner: Owner) -> StoreOffsets:
        """Return the same offsets for another owner; the topic's id stays if the new one is not known."""
        return replace(self, owner=replace(owner, topic_id=owner.topic_id or self.owner.topic_id))


def decode_offsets(data: bytes) -> StoreOffsets:
    """Return what `encode` wrote. Raises ValueError."""
    try:
        document = json.loads(data)
        positions = {int(number): int(offset) for number, offset in document.pop("positions").items()}
        committed, sequence = document.pop("committed_ms", None), int(document.pop("sequence", 0))
        inputs = {str(place): int(offset) for place, offset in document.pop("inputs", {}).items()}
        times = None if committed is None else int(committed)
        return StoreOffsets(Owner(**document), positions, times, sequence, inputs)
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise ValueError(f"the metadata of a store can't be read: {error}") from error


def layout_of(store: StoreDef) -> str:
    """Return a description of the layout of a store's rows on disk; state with another layout can't be read."""
    kind = store.type.removeprefix("timestamped_")
    if not store.kind.windowed:
        return kind + WITH_HEADERS if store.restores_headers else layout_with(kind, store.ttl)
    order = ", also by time" if store.options.get("time_ordered") else ""
    return f"{kind} in segments of {interval_of(store.retention or 0, store.segment_interval)} ms{order}"


def layout_with(layout: str, ttl: int | None) -> str:
    """Return the layout of a store's rows and of their index."""
    return layout if ttl is None else f"{layout}{WITH_TTL}{ttl} ms"
