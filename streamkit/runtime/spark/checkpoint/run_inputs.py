"""How the runs of a checkpoint read their inputs: settings, order and column types stay the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING

from streamkit.config.values import is_secret
from streamkit.errors import TransportError, UsageError
from streamkit.runtime.spark.checkpoint.manifest import InputFile, KnownInput
from streamkit.runtime.spark.job_options import JSON_LINES, OF_SPARK, OPTION, Columns, Parts, Place
from streamkit.runtime.spark.rows.file_system import FileState, FileSystem, escaped
from streamkit.runtime.spark.rows.files import OpenedInput, files_of_place, files_of_table, open_files
from streamkit.runtime.spark.rows.input_columns import has_value, types_of, wider_type, with_known_fields, without_case
from streamkit.runtime.spark.rows.topic_inputs import check_order
from streamkit.runtime.spark.spark_session import tells_case

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

ACCEPT = "--accept-input-changes"


@dataclass(frozen=True)
class KnownInputs:
    """How the runs up to `run` read the inputs of a topic. known: the inputs by their names in the manifest."""

    topic: str
    run: int
    known: Mapping[str, KnownInput]
    accepts: bool
    """Whether this run may read them differently (`--accept-input-changes`)."""

    @staticmethod
    def of(files: FileSystem, topic: str, run: int, inputs: Mapping[str, KnownInput], accepts: bool) -> KnownInputs:
        """Return the inputs of a manifest. Older releases wrote their names as on the command line."""
        return KnownInputs(topic, run, {files.normal(path): known for path, known in inputs.items()}, accepts)

    def check_settings(self, files: FileSystem, places: Iterable[Place]) -> None:
        """Raise UsageError for an input whose settings differ from those of earlier runs."""
        for place in places:
            past = self.known.get(place_of(files, place), KnownInput()).settings
            now = settings_of(place)
            if self.accepts or past in (None, now):
                continue
            changes = [
                f"{name} is {now.get(name, 'not given')} and was {past.get(name, 'not given')}"
                for name in dict.fromkeys((*past, *now))
                if past.get(name) != now.get(name)
            ]
            raise UsageError(
                f"--input {self.topic}={place.path}: the settings differ from those of the runs up to {self.run}: {'; '.join(changes)}. Use the "
                f"same settings, or {ACCEPT} once to read new records with the new ones"
            )

    def after(
        self,
        files: FileSystem,
        places: Sequence[Place],
        opened: Sequence[OpenedInput],
        past: Callable[[], Iterable[OpenedInput]],
    ) -> dict[str, KnownInput]:
        """Return how this run and earlier ones read the inputs. past: opens the files that earlier runs have read.

        Raises TransportError for a column whose type has changed, and UsageError if the order of two inputs' rows is undefined.
        """
        known = dict(self.known)
        for source in opened:
            name = place_of(files, source.place)
            before, settings = known.get(name, KnownInput()), settings_of(source.place)
            # If the settings were different, earlier runs read different fields.
            columns = self._columns(source, before.columns if before.settings in (None, settings) else {}, past)
            known[name] = KnownInput(settings, source.order, columns)
        orders = [(place.path, known.get(place_of(files, place), KnownInput()).order) for place in places]
        check_order(self.topic, [(path, order) for path, order in orders if order is not None])
        return known

    def _columns(
        self, opened: OpenedInput, known: Mapping[str, str], past: Callable[[], Iterable[OpenedInput]]
    ) -> dict[str, str]:
        """Return the column types of an input. A column without any value is compatible with every type."""
        kinds = dict(known)
        same = {} if tells_case(opened.frame.sparkSession) else {without_case(name): name for name in known}
        for name, kind in ({} if opened.place.has_lines else types_of(opened.frame)).items():
            other = same.get(without_case(name), name)
            if other != name and name not in known:
                raise TransportError(
                    f"--input {self.topic}={opened.place.path}: {name} of the new files was {other} up to run {self.run}, and the names "
                    "differ only in case; --conf spark.sql.caseSensitive=true tells them apart"
                )
            before = kinds.get(name, kind)
            wider = wider_type(before, kind)
            if wider is None and not has_value(opened.frame, name):
                continue
            of_past = () if wider or self.accepts else past()
            if any(has_value(source.frame, name) for source in of_past if source.place == opened.place):
                raise self._conflict(opened.place, name, kind, before)
            kinds[name] = wider or kind
        return kinds

    def _conflict(self, place: Place, name: str, kind: str, before: str) -> TransportError:
        nested = {kind, before} & {"struct", "array", "map"}
        return TransportError(
            f"--input {self.topic}={place.path}: {name} is of type {kind} in the new files, and was {before} up to run "
            f"{self.run}, so equal values would become different records. {ACCEPT} accepts that; to turn all values into text, use "
            f"{'to_json' if nested else 'string'}(COLUMN) with a new checkpoint and a new output"
        )


def with_all_fields(files: FileSystem, opened: OpenedInput, inputs: Mapping[str, KnownInput]) -> OpenedInput:
    """Return an input whose objects have the fields of all runs, in their order. inputs: how runs up to this one read the topic."""
    if opened.place.has_lines:
        return opened
    columns = inputs[place_of(files, opened.place)].columns
    is_sorted = opened.place.format == JSON_LINES
    rows = with_known_fields(opened.frame, columns, is_sorted=is_sorted)
    return replace(opened, rows=lambda: rows)


def place_of(files: FileSystem, place: Place) -> str:
    """Return the name of an input in a manifest, which is the same for all spellings of a path."""
    return place.path if place.format not in OF_SPARK and "/" not in place.path else files.normal(place.path)


def settings_of(place: Place) -> dict[str, str]:
    """Return the settings of an input as text, by name; secret options are left out."""
    parts = {field.name: getattr(place.columns, field.name) for field in fields(Columns)}
    settings = {"format": place.format, "order": place.order, **parts}
    options = {f"{OPTION}{name.lower()}": value for name, value in place.options.items() if not is_secret(name)}
    return {**{name: _text(value) for name, value in settings.items() if value is not None}, **options}


def _text(written: Parts) -> str:
    if isinstance(written, Mapping):
        return json.dumps(dict(written), ensure_ascii=False)
    return written if isinstance(written, str) else ",".join(written)


@dataclass(frozen=True)
class TopicFiles:
    """The files of a topic. read: in earlier runs. new: not read yet, ordered by input and then by name."""

    files: FileSystem
    spark: SparkSession
    places: Sequence[Place]
    read: tuple[InputFile, ...]
    new: tuple[InputFile, ...]
    numbers: Mapping[str, int]
    """The number of each file's input, by the file's name."""

    @property
    def all(self) -> tuple[InputFile, ...]:
        """All files, in the order in which runs found them."""
        return (*self.read, *self.new)

    @property
    def ranks(self) -> dict[str, int]:
        """The rank of each file in the order in which runs found the files."""
        return {file.name: rank for rank, file in enumerate(self.all)}

    def open_read(self) -> list[OpenedInput]:
        """Open the files that earlier runs have read."""
        return self.open(self.read)

    def open(self, chosen: Sequence[InputFile]) -> list[OpenedInput]:
        """Open some files: one result for each input that has at least one of them."""
        opened = []
        for number, place in enumerate(self.places):
            names = [file.name for file in chosen if self.numbers[file.name] == number]
            if names and place.format not in OF_SPARK:
                opened.append(open_files(self.spark, place, names, number=number))
            elif names:
                of_place = [name for name, other in self.numbers.items() if other == number]
                base, uris = _base(self.files, place, of_place), [_uri(name) for name in names]
                opened.append(open_files(self.spark, place, uris, base, number))
        return opened


def find_files(
    files: FileSystem, spark: SparkSession, topic: str, places: Sequence[Place], read: Sequence[InputFile], run: int
) -> TopicFiles:
    """Return the files of a topic for a run. Raises TransportError if a file that was read is missing or has changed.

    The size of a table's file is its number of rows, which deletions reduce. Older releases wrote 0 as its time.
    """
    by_name: dict[str, InputFile] = {}
    numbers: dict[str, int] = {}
    for number, place in enumerate(places):
        for name, state in _states(files, spark, place).items():
            if name in by_name:
                raise UsageError(
                    f"--input {topic}={place.path}: {name} is also in {places[numbers[name]].path}; each file must belong to one input"
                )
            numbers[name] = number
            by_name[name] = InputFile(name, state.size, state.time, run)
    for past in read:
        now = by_name.pop(past.name, None)
        if now is None:
            cure, paths = _cure(places), ", ".join(place.path for place in places)
            raise TransportError(
                f"--input {topic}={paths}: {past.name}, which run {past.run} has read, is missing{cure and f'; {cure}'}"
            )
        if now.size != past.size or past.time not in (0, now.time):
            place = places[numbers[past.name]]
            raise TransportError(
                f"--input {topic}={place.path}: {past.name} has changed since run {past.run} read it "
                f"({_difference(past, now, place)}); {_cure([place]) or 'put new records into new files'}"
            )
    new = sorted(by_name.values(), key=lambda file: (numbers[file.name], file.name))
    return TopicFiles(files, spark, places, tuple(read), tuple(new), numbers)


def _difference(past: InputFile, now: InputFile, place: Place) -> str:
    if now.size != past.size:
        return f"{past.size} {'bytes' if place.format in OF_SPARK else 'rows'} then, {now.size} now"
    before, after = (datetime.fromtimestamp(file.time / 1000, UTC).isoformat() for file in (past, now))
    return f"it was written at {before} then, and at {after} now"


def _states(files: FileSystem, spark: SparkSession, place: Place) -> dict[str, FileState]:
    if place.format in OF_SPARK:
        return files.states(files_of_place(spark, place))
    return {name: FileState(name, *state) for name, state in files_of_table(spark, place).items()}


def _cure(places: Iterable[Place]) -> str:
    tables = any(place.format not in OF_SPARK for place in places)
    only_added = "a run can read rows that were added to a table, but not a table that was rewritten"
    return f"{only_added}; begin with a new checkpoint and a new output" if tables else ""


def _base(files: FileSystem, place: Place, names: Iterable[str]) -> str | None:
    """Return the directory whose folders NAME=VALUE are columns: the input itself, or the only directory that its pattern matches.

    names: all files. Spark refuses a pattern that matches several directories with such folders.
    """
    if files.is_folder(place.path):
        return place.path
    folders = {name.rpartition("/")[0] for name in names}
    matched = [files.normal(path) for path in files.matches(place.path)]
    paths = [path for path in matched if any(folder.startswith(f"{path}/") for folder in folders)]
    return _with_scheme(paths[0]) if len(paths) == 1 else None


def _uri(name: str) -> str:
    """Return the name of a file for Spark, with the characters of patterns escaped."""
    return _with_scheme(escaped(name))


def _with_scheme(name: str) -> str:
    """Return a name with its scheme. Local names have none, and Spark would look them up in its default file system."""
    return f"file://{name}" if name.startswith("/") else name
