"""The manifest of a run: what the job has read up to then, where its state is, and what each run wrote."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import NamedTuple
from zlib import crc32

from streamkit.errors import StateError
from streamkit.serdes.plain import Document as Json

VERSION = 7
_OLDEST = 2
"""The oldest version that is read; its files of state are not numbered. Manifests have a checksum from version 4 on, and files of
state from version 5 on. Outputs of versions before 6 have the columns of the log, and none before 7 is a table."""
_CHECKED = 4
_CHECKSUM = "checksum"


class InputFile(NamedTuple):
    """A file that a run has read: name, bytes, time of modification (ms), and the number of the run."""

    name: str
    size: int
    time: int
    run: int


@dataclass(frozen=True)
class KnownInput:
    """How runs read an input. None: written by an older release, which did not keep it."""

    settings: Mapping[str, str] | None = None
    """The settings of `--input` as text, and its format."""
    order: str | None = None
    """What orders its rows (files.OpenedInput)."""
    columns: Mapping[str, str] = field(default_factory=dict)
    """The types of what was read, by name (input_columns.types_of)."""


class StateFile(NamedTuple):
    """A file of state: its path below the folders of state, and the CRC-32 of all its bytes."""

    name: str
    crc: int


class Piece(NamedTuple):
    """Rows of one store and partition: the folder of the run that wrote them, how many there are, their bytes, and their files.

    Pieces of versions before 5 do not name their files.
    """

    folder: str
    kind: str
    rows: int
    size: int
    files: tuple[StateFile, ...] = ()


class WrittenFile(NamedTuple):
    """A file that a run has written, by its path in the folder of the run."""

    name: str
    size: int


@dataclass(frozen=True)
class RunOutput:
    """What a run has written to an output: its final folder, the folder before the commit, and the files in it.

    Older manifests do not have the files of rows that wait for a table.
    """

    run: int
    folder: str
    staged: str
    files: tuple[WrittenFile, ...]


@dataclass(frozen=True)
class TableRows:
    """How an output reaches its table. keys: the columns that tell rows apart; since: the first run that wrote it."""

    keys: tuple[str, ...]
    mode: str
    since: int
    partition_by: tuple[str, ...] = ()
    sort_by: tuple[str, ...] = ()


@dataclass(frozen=True)
class Output:
    """An output in files or in a table, by its path or name and its format."""

    path: str
    format: str
    runs: tuple[RunOutput, ...] = ()
    columns: Mapping[str, str] = field(default_factory=dict)
    """The types of decoded columns by name; none: those of the log, or lines."""
    table: TableRows | None = None
    """None: files. Of a table only the last run is among the runs; `staged` is where its rows wait, in the checkpoint."""


@dataclass(frozen=True)
class Manifest:
    """The state of a job after a run."""

    run: int
    """From 1; 0: before the first one."""
    application: str
    topology: Json
    """The form of the topology (changes.form.to_json)."""
    partitions: Mapping[str, int] = field(default_factory=dict)
    """Of topics, by their names on the log."""
    files: Mapping[str, tuple[InputFile, ...]] = field(default_factory=dict)
    """The files that were read, by topic."""
    inputs: Mapping[str, Mapping[str, KnownInput]] = field(default_factory=dict)
    """How inputs in files and tables were read, by topic and place."""
    offsets: Mapping[str, Mapping[str, int]] = field(default_factory=dict)
    """The next offsets to read, by topic and partition, of topics on the log."""
    topic_ids: Mapping[str, str] = field(default_factory=dict)
    """The ids of these topics (Admin.topic_ids)."""
    tasks: Mapping[str, Json] = field(default_factory=dict)
    """What each task has beside its stores, by the task's id."""
    state: Mapping[str, Mapping[str, tuple[Piece, ...]]] = field(default_factory=dict)
    """The rows of stores, by store and partition: a base and its deltas, in order."""
    outputs: Mapping[str, Output] = field(default_factory=dict)
    """By topic."""
    id: str = ""
    """Of the checkpoint, by which the commits of tables name it; versions before 7 have none."""

    def to_text(self) -> str:
        """Return the manifest as JSON, with the checksum of the rest."""
        data = {"version": VERSION, **asdict(self)}
        return json.dumps({**data, _CHECKSUM: _checksum(data)}, indent=1)

    def pieces(self) -> Iterator[tuple[str, int, Piece]]:
        """Yield the pieces of the state with their store and partition."""
        for store, partitions in self.state.items():
            for partition, pieces in partitions.items():
                for piece in pieces:
                    yield store, int(partition), piece

    def state_bytes(self) -> int:
        """Return the bytes of all rows of stores."""
        return sum(piece.size for _, _, piece in self.pieces())

    def with_pieces(self, found: Iterable[tuple[str, int, Piece]], base: str) -> Manifest:
        """Return the manifest with new pieces; those of kind `base` replace the ones before."""
        state = {store: dict(partitions) for store, partitions in self.state.items()}
        for store, partition, piece in found:
            before = () if piece.kind == base else state.get(store, {}).get(str(partition), ())
            state.setdefault(store, {})[str(partition)] = (*before, piece) if piece.rows else before
        return replace(self, state=state)


def parse_manifest(text: str, place: str) -> Manifest:
    """Return the manifest of a text. `place`: its path, for messages. Raises StateError if it is damaged, newer or older."""
    try:
        data = json.loads(text)
        written = data.pop(_CHECKSUM, None)
        version = data["version"]
        if version > VERSION:
            raise StateError(
                f"{place}: written by a newer streamkit (version {version} of the format, this one reads {VERSION}); "
                "use that release"
            )
        if version < _OLDEST:
            raise StateError(
                f"{place}: written by an older streamkit (version {version} of the format, this one reads {_OLDEST} to {VERSION}); "
                "begin with a new checkpoint and a new output"
            )
        if written != _checksum(data) and (written is not None or version >= _CHECKED):
            raise damaged(place, "its contents do not have the checksum that it was written with")
        return Manifest(
            run=data["run"],
            application=data["application"],
            topology=data["topology"],
            partitions=data["partitions"],
            files={topic: tuple(InputFile(*each) for each in found) for topic, found in data["files"].items()},
            inputs=_inputs(data),
            offsets=data["offsets"],
            topic_ids=data["topic_ids"],
            tasks=data["tasks"],
            state={
                store: {number: tuple(map(_piece, pieces)) for number, pieces in found.items()}
                for store, found in data["state"].items()
            },
            outputs={topic: _output(found) for topic, found in data["outputs"].items()},
            id=data.get("id", ""),
        )
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(place, repr(error)) from error


def _checksum(data: Json) -> int:
    """Return the checksum of the contents of a manifest, whatever their layout in the file."""
    return crc32(json.dumps(data, indent=1).encode())


def damaged(place: str, reason: str) -> StateError:
    """Return the error of a manifest that can't be read, with what to do."""
    run = place.rpartition("/")[2].removesuffix(".json")
    return StateError(
        f"{place}: the manifest is damaged ({reason}); delete it, and the folder run={run} of each output in files: the "
        f"next run does again what run {int(run)} did"
    )


def _inputs(data: Json) -> dict[str, dict[str, KnownInput]]:
    """Return how inputs were read; older manifests have only the types of columns, or nothing."""
    if "inputs" not in data:
        columns = data.get("columns", {})
        return {
            topic: {path: KnownInput(columns=types) for path, types in found.items()}
            for topic, found in columns.items()
        }
    return {
        topic: {path: KnownInput(**each) for path, each in found.items()} for topic, found in data["inputs"].items()
    }


def _piece(data: Json) -> Piece:
    folder, kind, rows, size, *others = data
    return Piece(folder, kind, rows, size, *(tuple(StateFile(*each) for each in files) for files in others))


def _output(data: Json) -> Output:
    runs = tuple(
        RunOutput(each["run"], each["folder"], each["staged"], tuple(WrittenFile(*file) for file in each["files"]))
        for each in data["runs"]
    )
    table = data.get("table")
    rows = None if table is None else _table_rows(table)
    return Output(data["path"], data["format"], runs, data.get("columns", {}), rows)


def _table_rows(data: Json) -> TableRows:
    keys, partition_by, sort_by = (tuple(data[name]) for name in ("keys", "partition_by", "sort_by"))
    return TableRows(keys, data["mode"], data["since"], partition_by, sort_by)
