"""The options of a batch job: inputs, outputs and ranges of the log."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from glob import glob, has_magic

from streamkit.errors import UsageError
from streamkit.record import TopicPartition

JSON_LINES, PARQUET, TABLE = "json", "parquet", "table"
_FORMATS = {"json": JSON_LINES, "jsonl": JSON_LINES, "parquet": PARQUET, "table": TABLE}
REST = "*"
"""Stands for the topics that have no output of their own."""
UPDATES, FINAL = "updates", "final"


@dataclass(frozen=True)
class Place:
    """Where the records of a topic are: a path and its format, one of these or any other of Spark."""

    path: str
    format: str
    order: str | None = None
    """The column that orders the rows of an input."""

    @property
    def is_local(self) -> bool:
        """Whether the path is in the file system of this machine."""
        return "://" not in self.path and self.format != TABLE


@dataclass(frozen=True)
class Range:
    """The part of the log that a job reads. start: earliest, committed, a time or offsets; end: latest, or one of these."""

    start: str = "earliest"
    end: str = "latest"
    tolerate_loss: bool = False
    """Whether to read the rest where retention has removed the beginning of the range."""
    continued: Mapping[TopicPartition, int] = field(default_factory=dict)
    """Where earlier runs ended, instead of the start."""
    to_end: frozenset[str] = frozenset()
    """The topics that are read to their ends where `end` is committed and the group has committed no offset."""
    needs_beginning: bool = False
    """Whether the first run must find each record that the log ever had."""


@dataclass(frozen=True)
class JobOptions:
    """What a job reads, writes and does."""

    inputs: Mapping[str, Place] = field(default_factory=dict)
    """By topic on the log; topics that are not here are read from the log."""
    outputs: Mapping[str, Place | None] = field(default_factory=dict)
    """By topic on the log, REST for the others; None: the log. Empty: every written topic goes to the log."""
    emit: str | None = None
    """UPDATES or FINAL; None: FINAL for tables."""
    range: Range = field(default_factory=Range)
    overwrite: bool = False
    shadow: str = ""
    """A suffix for the names of topics that are written to the log."""
    compare: tuple[str, ...] = ()
    """Topics on the log that the result is compared with."""
    write_state: bool = False
    """Whether the stores at the end of the job become changelogs for a live run."""
    checkpoint: str | None = None
    """The directory of the state between runs; None: the job reads everything each time."""
    parallelism: int = 1
    """The least number of Spark tasks of a stage that can be cut by key."""
    state_only: bool = False
    """Whether no topic is written, since only the stores of a checkpoint are wanted."""

    @property
    def writes_everything(self) -> bool:
        """Whether all written topics go to the log, since no option names another result."""
        return not (self.outputs or self.compare or self.write_state or self.state_only)


def parse_place(text: str, option: str) -> tuple[str, Place | None]:
    """Return topic and place of `TOPIC[=PATH[,format=…]]`. Raises UsageError.

    >>> parse_place("lines=/lake/lines,format=parquet", "--input")
    ('lines', Place(path='/lake/lines', format='parquet', order=None))
    >>> parse_place("lines", "--input")
    ('lines', None)
    """
    topic, equals, rest = text.partition("=")
    path, *settings = rest.split(",")
    found = dict(setting.partition("=")[::2] for setting in settings)
    known = {"format", "order"} if option == "--input" else {"format"}
    if not topic or (equals and not path) or not found.keys() <= known:
        order = "[,order=COLUMN]" if option == "--input" else ""
        raise UsageError(f"{option} {text}: expected TOPIC=PATH or TOPIC=PATH,format=json|parquet|…{order}")
    if not equals:
        return topic, None
    named = found.get("format")
    place = Place(path, _FORMATS.get(named, named) if named else _guess(path), found.get("order"))
    if place.order is not None and place.format == JSON_LINES:
        raise UsageError(
            f"{option} {text}: order= names a column, and lines of JSON have none: give each record its offset"
        )
    return topic, place


def _guess(path: str) -> str:
    """Return the format of a path without one: that of its name, or of the files in the directory."""
    name = path.rstrip("/").lower()
    if name.endswith((".parquet", ".parq")):
        return PARQUET
    if "://" not in path:
        inside = glob(path) if has_magic(path) else glob(os.path.join(glob_escaped(path), "*"))
        if any(each.endswith(".parquet") for each in inside):
            return PARQUET
    return JSON_LINES


def glob_escaped(path: str) -> str:
    """Return a path in which no character is a wildcard."""
    from glob import escape

    return escape(path)


def check_input(place: Place, topic: str) -> None:
    """Raise UsageError where a local path does not exist."""
    if place.is_local and not (glob(place.path) if has_magic(place.path) else os.path.exists(place.path)):
        raise UsageError(f"--input {topic}={place.path}: no such file or directory")
