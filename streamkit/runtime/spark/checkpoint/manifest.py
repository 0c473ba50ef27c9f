"""The manifest of a run: what the job has read so far, where its state is, and what each run has written."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import NamedTuple
from zlib import crc32

from streamkit.errors import StateError
from streamkit.serdes.plain import Document, Json

VERSION = 7
_OLDEST = 2
"""The oldest supported version; it does not number state files. Version 4 added the checksum of manifests, version 5 the checksums of
state files, version 6 outputs with decoded columns, and version 7 outputs in tables."""
_CHECKED = 4
_CHECKSUM = "checksum"


class InputFile(NamedTuple):
    """A file that a run has read: its name, size in bytes, modification time (ms), and the number of the run."""

    name: str
    size: int
    time: int
    run: int


@dataclass(frozen=True)
class KnownInput:
    """How runs read an input. A field is None if the manifest is from an older release, which did not store it."""

    settings: Mapping[str, str] | None = None
    """The settings of `--input` as text, and its format."""
    order: str | None = None
    """The order of its rows (files.OpenedInput.order)."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """The types of the columns that were read, by name (input_columns.types_of)."""


class StateFile(NamedTuple):
    """A state file: its path below the state folders, and the CRC-32 of its contents."""

    name: str
    crc: int


class Piece(NamedTuple):
    """Rows of one store and partition that one run wrote: its folder, the number of rows, their size in bytes, and their files.

    Before version 5, pieces do not name their files.
    """

    folder: str
    kind: str
    rows: int
    size: int
    files: tuple[StateFile, ...] = ()


class WrittenFile(NamedTuple):
    """A file that a run has written. `name`: its path in the folder of the run."""

    name: str
    size: int


@dataclass(frozen=True)
class RunOutput:
    """What a run has written to an output: the final folder, the folder before the commit, and its files.

    Older manifests do not list the files of rows that wait for a table.
    """

    run: int
    folder: str
    staged: str
    files: tuple[WrittenFile, ...]


@dataclass(frozen=True)
class TableRows:
    """How an output is written to its table. `keys`: the columns that identify a row; `since`: the first run that wrote to it.

    `snapshot`: the id of the Iceberg snapshot before the last run was committed, or 0 if the table had none. It is None for other
    formats, for merged tables, and in older manifests.
    """

    keys: tuple[str, ...]
    mode: str
    since: int
    partition_by: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()
    snapshot: int | None = None


@dataclass(frozen=True)
class Output:
    """An output: files at a path, or a table by its name."""

    path: str
    format: str
    runs: tuple[RunOutput, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    """The types of decoded columns by name; empty for lines, and for the columns of the log."""
    table: TableRows | None = None
    """None for files. For a table, `runs` has only the last run, and its `staged` is the folder in the checkpoint where its rows wait."""
    folders: tuple[str, ...] | None = None
    """The `partition_by` of files; None for tables, and in manifests of older releases, which did not store it."""


@dataclass(frozen=True)
class Manifest:
    """The state of a job after a run."""

    run: int
    """The number of the run, from 1; 0 before the first run."""
    application: str
    topology: Json
    """The form of the topology (changes.form.to_json)."""
    partitions: Mapping[str, int] = field(default_factory=dict)
    """The number of partitions of each topic, by its name on the log."""
    files: Mapping[str, tuple[InputFile, ...]] = field(default_factory=dict)
    """The files that were read, by topic."""
    inputs: Mapping[str, Mapping[str, KnownInput]] = field(default_factory=dict)
    """How inputs in files and tables were read, by topic and place."""
    offsets: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The next offsets to read from topics on the log, by topic and partition."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """The ids of the topics in `offsets` (Admin.topic_ids)."""
    tasks: Mapping[str, Document] = field(default_factory=dict)
    """The state of each task outside of its stores, by the task's id."""
    state: Mapping[str, Mapping[str, tuple[Piece, ...]]] = field(default_factory=dict)
    """The rows of stores, by store and partition: a base and its deltas, in order."""
    outputs: Mapping[str, Output] = field(default_factory=dict)
    """The outputs, by topic."""
    id: str = ""
    """The id of the checkpoint, which commits to tables contain. Versions before 7 have none."""

    def to_text(self) -> str:
        """Return the manifest as JSON, with a checksum of everything else."""
        data = {"version": VERSION, **asdict(self)}
        return json.dumps({**data, _CHECKSUM: _checksum(data)}, indent=1)

    def pieces(self) -> Iterator[tuple[str, int, Piece]]:
        """Yield the pieces of the state with their store and partition."""
        for store, partitions in self.state.items():
            for partition, pieces in partitions.items():
                for piece in pieces:
                    yield store, int(partition), piece

    def state_bytes(self) -> int:
        """Return the size in bytes of all rows of stores."""
        return sum(piece.size for _, _, piece in self.pieces())

    def with_pieces(self, pieces: Iterable[tuple[str, int, Piece]], base: str) -> Manifest:
        """Return the manifest with new pieces; a piece of kind `base` replaces all earlier pieces."""
        state = {store: dict(partitions) for store, partitions in self.state.items()}
        for store, partition, piece in pieces:
            before = () if piece.kind == base else state.get(store, {}).get(str(partition), ())
            state.setdefault(store, {})[str(partition)] = (*before, piece) if piece.rows else before
        return replace(self, state=state)


def parse_manifest(text: str, place: str) -> Manifest:
    """Parse a manifest. `place`: its path, for messages. Raises StateError if it is damaged, or of an unsupported version."""
    try:
        data = json.loads(text)
        written = data.pop(_CHECKSUM, None)
        version = data["version"]
        if version > VERSION:
            raise StateError(
                f"{place}: written by a newer streamkit (format version {version}; this release reads {VERSION}); "
                "use that release"
            )
        if version < _OLDEST:
            raise StateError(
                f"{place}: written by an older streamkit (format version {version}; this release reads {_OLDEST} to {VERSION}); "
                "begin with a new checkpoint and a new output"
            )
        if written != _checksum(data) and (written is not None or version >= _CHECKED):
            raise damaged(place, "its contents do not match its checksum")
        return Manifest(
            run=data["run"],
            application=data["application"],
            topology=data["topology"],
            partitions=data["partitions"],
            files={topic: tuple(InputFile(*fields) for fields in files) for topic, files in data["files"].items()},
            inputs=_inputs(data),
            offsets=data["offsets"],
            topic_ids=data["topic_ids"],
            tasks=data["tasks"],
            state={
                store: {number: tuple(map(_piece, pieces)) for number, pieces in numbered.items()}
                for store, numbered in data["state"].items()
            },
            outputs={topic: _output(output) for topic, output in data["outputs"].items()},
            id=data.get("id", ""),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(place, repr(error)) from error


def _checksum(data: Json) -> int:
    """Return the checksum of a manifest's contents, regardless of their layout in the file."""
    return crc32(json.dumps(data, indent=1).encode())


def damaged(place: str, reason: str) -> StateError:
    """Return the error for a manifest that can't be read, with a remedy."""
    run = place.rpartition("/")[2].removesuffix(".json")
    return StateError(
        f"{place}: the manifest is damaged ({reason}); delete it, and the folder run={run} of each output in files. The "
        f"next run repeats the work of run {int(run)}"
    )


def _inputs(data: Document) -> dict[str, dict[str, KnownInput]]:
    """Return the known inputs by topic and place. Older manifests have only the types of columns, or no inputs."""
    if "inputs" not in data:
        columns = data.get("columns", {})
        return {
            topic: {path: KnownInput(columns=types) for path, types in inputs.items()}
            for topic, inputs in columns.items()
        }
    return {
        topic: {path: KnownInput(**known) for path, known in inputs.items()} for topic, inputs in data["inputs"].items()
    }


def _piece(data: Document) -> Piece:
    folder, kind, rows, size, *others = data
    return Piece(folder, kind, rows, size, *(tuple(StateFile(*fields) for fields in files) for files in others))


def _output(data: Document) -> Output:
    runs = tuple(
        RunOutput(run["run"], run["folder"], run["staged"], tuple(WrittenFile(*file) for file in run["files"]))
        for run in data["runs"]
    )
    table = data.get("table")
    rows = None if table is None else _table_rows(table)
    folders = data.get("folders")
    return Output(
        data["path"], data["format"], runs, data.get("columns", {}), rows, None if folders is None else tuple(folders)
    )


def _table_rows(data: Document) -> TableRows:
    keys, partition_by, sort_by = (tuple(data[name]) for name in ("keys", "partition_by", "sort_by"))
    return TableRows(keys, data["mode"], data["since"], partition_by, sort_by, data.get("snapshot"))
