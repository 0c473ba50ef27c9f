"""How the runs of a checkpoint read their inputs: the settings, the order and the types of columns stay the same."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields

from streamkit.config.values import is_secret
from streamkit.errors import TransportError, UsageError
from streamkit.runtime.spark.checkpoint.file_system import FileSystem
from streamkit.runtime.spark.checkpoint.manifest import KnownInput
from streamkit.runtime.spark.rows.files import OpenedInput
from streamkit.runtime.spark.rows.input_columns import has_value, types_of, wider_type
from streamkit.runtime.spark.rows.topic_inputs import check_order
from streamkit.runtime.spark.submission.job_options import OF_SPARK, OPTION, Columns, Parts, Place

ACCEPT = "--accept-input-changes"


@dataclass(frozen=True)
class KnownInputs:
    """The inputs of a topic as the runs up to `run` read them, by their places."""

    topic: str
    run: int
    known: Mapping[str, KnownInput]
    accepts: bool
    """Whether this run may read them in another way."""

    @staticmethod
    def of(files: FileSystem, topic: str, run: int, found: Mapping[str, KnownInput], accepts: bool) -> KnownInputs:
        """Return the inputs of a manifest, which older releases name as the command line did."""
        return KnownInputs(topic, run, {files.normal(path): each for path, each in found.items()}, accepts)

    def check_settings(self, files: FileSystem, places: Iterable[Place]) -> None:
        """Raise UsageError for an input with other settings than in the runs before."""
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
                f"--input {self.topic}={place.path}: it is not read as in the runs up to {self.run}: {'; '.join(changes)}. Give the "
                f"same settings, or {ACCEPT} once to read new records in this way"
            )

    def after(
        self,
        files: FileSystem,
        places: Sequence[Place],
        opened: Sequence[OpenedInput],
        past: Callable[[], Iterable[OpenedInput]],
    ) -> dict[str, KnownInput]:
        """Return the inputs as this run and those before read them. past: opens the files that were read before.

        Raises TransportError for a column with another type than before, and UsageError where nothing orders the rows of two inputs.
        """
        found = dict(self.known)
        for each in opened:
            name = place_of(files, each.place)
            columns = self._columns(each, found.get(name, KnownInput()).columns, past)
            found[name] = KnownInput(settings_of(each.place), each.order, columns)
        orders = [(place.path, found.get(place_of(files, place), KnownInput()).order) for place in places]
        check_order(self.topic, [(path, order) for path, order in orders if order is not None])
        return found

    def _columns(
        self, opened: OpenedInput, known: Mapping[str, str], past: Callable[[], Iterable[OpenedInput]]
    ) -> dict[str, str]:
        """Return the types of the columns of an input. A column without any value has no type that another one contradicts."""
        found = dict(known)
        for name, kind in ({} if opened.place.has_lines else types_of(opened.frame)).items():
            before = found.get(name, kind)
            wider = wider_type(before, kind)
            if wider is None and not has_value(opened.frame, name):
                continue
            of_past = () if wider or self.accepts else past()
            if any(has_value(each.frame, name) for each in of_past if each.place == opened.place):
                raise self._conflict(opened.place, name, kind, before)
            found[name] = wider or kind
        return found

    def _conflict(self, place: Place, name: str, kind: str, before: str) -> TransportError:
        nested = {kind, before} & {"struct", "array", "map"}
        return TransportError(
            f"--input {self.topic}={place.path}: {name} is of type {kind} in the new files, and was {before} in those up to run "
            f"{self.run}, so that equal values would become different records; {ACCEPT} goes on with each as it is, and "
            f"{'to_json' if nested else 'string'}(COLUMN) with a new checkpoint and a new output makes text of all"
        )


def place_of(files: FileSystem, place: Place) -> str:
    """Return the name of an input in a manifest: one for all ways to write a path."""
    return place.path if place.format not in OF_SPARK and "/" not in place.path else files.normal(place.path)


def settings_of(place: Place) -> dict[str, str]:
    """Return the settings of an input as text by name, without options that are secrets."""
    parts = {each.name: getattr(place.columns, each.name) for each in fields(Columns)}
    given = {"format": place.format, "order": place.order, **parts}
    options = {f"{OPTION}{name.lower()}": value for name, value in place.options.items() if not is_secret(name)}
    return {**{name: _text(value) for name, value in given.items() if value is not None}, **options}


def _text(written: Parts) -> str:
    if isinstance(written, Mapping):
        return json.dumps(dict(written), ensure_ascii=False)
    return written if isinstance(written, str) else ",".join(written)


__all__ = ["ACCEPT", "KnownInputs"]
