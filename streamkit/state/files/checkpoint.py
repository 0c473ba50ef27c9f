"""Checkpoint files: the changelog offsets up to which a task's stores are durable (OffsetCheckpoint)."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from streamkit.errors import StateError
from streamkit.record import TopicPartition
from streamkit.state.files.mark import translated, write_atomically

FILE_NAME = ".checkpoint"
OFFSET_UNKNOWN = -4
"""The offset of a store whose offset is not known."""


def write_checkpoint(directory: str | Path, offsets: Mapping[TopicPartition, int]) -> None:
    """Write offsets by (topic, partition) so that a crash leaves the old file or the new one; no offsets: no file.

    A task's offsets are the last applied, the global ones the next. Raises StateError.
    """
    path = Path(directory) / FILE_NAME
    for place, offset in offsets.items():
        if offset < 0 and offset != OFFSET_UNKNOWN:
            raise StateError(f"Offset {offset} of {place[0]}-{place[1]} can't stand in a checkpoint")
    lines = ["0", str(len(offsets))]
    lines += [f"{topic} {partition} {offset}" for (topic, partition), offset in offsets.items()]
    with translated(path):
        if not offsets:
            path.unlink(missing_ok=True)
            return
        write_atomically(path, "\n".join(lines) + "\n")


def read_checkpoint(directory: str | Path) -> dict[TopicPartition, int]:
    """Return offsets by (topic, partition), none if there is no file. Raises StateError for a damaged file."""
    path = Path(directory) / FILE_NAME
    try:
        with translated(path):
            lines = path.read_text(encoding="utf-8").splitlines()
    except StateError as error:
        if isinstance(error.__cause__, FileNotFoundError):
            return {}
        raise
    except UnicodeDecodeError as error:
        raise StateError(f"The checkpoint {path} is damaged: it is not text") from error
    return _parse(path, lines)


def _parse(path: Path, lines: list[str]) -> dict[TopicPartition, int]:
    try:
        if lines[0] != "0":
            raise StateError(f"The checkpoint {path} has the unknown version {lines[0]}")
        offsets = {}
        for line in lines[2:]:
            topic, partition, offset = line.split()
            offsets[TopicPartition(topic, int(partition))] = int(offset)
        if len(offsets) != int(lines[1]):
            raise StateError(f"The checkpoint {path} is damaged: it has {len(offsets)} of {lines[1]} entries")
    except (ValueError, IndexError) as error:
        raise StateError(f"The checkpoint {path} is damaged: {error}") from error
    return offsets


def delete_checkpoint(directory: str | Path) -> None:
    """Delete the file. Raises StateError."""
    path = Path(directory) / FILE_NAME
    with translated(path):
        path.unlink(missing_ok=True)
