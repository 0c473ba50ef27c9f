"""Compiled schemas of any format, and the source of a serde's schema."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable
from pathlib import Path
from typing import ClassVar, NamedTuple

from streamkit.distribution import install_command
from streamkit.errors import SerdeError
from streamkit.expressions.types import ANY, Type
from streamkit.record import Value
from streamkit.serdes.plain import Json, plain, unplain
from streamkit.suggestions import did_you_mean, listed

Read = Callable[[bytes, int], Value]
"""Returns the value of bytes from an offset on."""


class Part(NamedTuple):
    """A schema that another one refers to: its name in the reference, and its text."""

    name: str
    text: str


class Schema(ABC):
    """A schema that is compiled once and then encodes and decodes values; pickled as its text."""

    kind: ClassVar[str]
    """AVRO, PROTOBUF or JSON: the schema type of a registry."""
    form: ClassVar[str]
    """The serde's name in topology files."""
    extra: ClassVar[str]
    """The extra of the package that installs the format's library."""

    def __init__(self, text: str, parts: tuple[Part, ...] = (), message: str | None = None):
        """Compile a schema. parts: the schemas that it refers to, each after those that it needs; message: of Protobuf, the
        first one where None. Raises SerdeError for a malformed schema.
        """
        self.text = text
        self.parts = parts
        self.message = message
        self.name: str | None = None
        """The full name of the record, for subjects by record."""
        self.type: Type = ANY
        self.prepare()

    @abstractmethod
    def prepare(self) -> None:
        """Compile the text; set name and type. Raises SerdeError."""

    @abstractmethod
    def encode(self, value: Value) -> bytes:
        """Return the bytes of a value. Raises SerdeError for one that does not fit."""

    @abstractmethod
    def reader(self, written: Schema) -> Read:
        """Return the decoder of bytes that were written by another version of this schema (or by this one).

        It raises SerdeError for bytes that are not of the writer's schema, and for values that do not fit this one.
        """

    def framed_reader(self, written: Schema) -> Read:
        """Return the decoder of the bytes that follow the schema's id in a registry's framing."""
        return self.reader(written)

    @property
    def lead(self) -> bytes:
        """The bytes between the schema's id and the value in a registry's framing."""
        return b""

    def needed_by(self, text: str) -> list[str]:
        """Return the names of the parts that a text refers to."""
        return [part.name for part in self.parts if part.text is not text and part.name in text]

    def to_json(self, value: Value) -> Json:
        """Return the JSON form of a value."""
        return plain(value)

    def from_json(self, data: Json) -> Value:
        """Return the value of its JSON form. Raises SerdeError."""
        return unplain(data)

    def __getstate__(self) -> tuple[str, tuple[Part, ...], str | None]:
        return self.text, self.parts, self.message

    def __setstate__(self, state: tuple[str, tuple[Part, ...], str | None]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.__getstate__() == other.__getstate__()

    def __hash__(self) -> int:
        return hash(self.__getstate__())

    @classmethod
    def missing(cls, error: ImportError) -> SerdeError:
        """Return the error of an extra that is not installed."""
        return SerdeError(f"serde {cls.form} needs more packages: {install_command(cls.extra)} ({error})")

    @classmethod
    def read_parts(cls, path: Path, text: str, references: list[str], folder: str) -> tuple[Part, ...]:
        """Return the schemas that a schema file refers to, each after those that it needs: the files of `references`."""
        return tuple(Part(os.path.basename(name), read_file(cls.form, name, folder)[1]) for name in references)


class Source(NamedTuple):
    """Where a serde's schema comes from: a file, or the registry's subject (`version` None: the latest), or both."""

    file: str | None = None
    subject: str | None = None
    version: int | None = None
    message: str | None = None
    references: tuple[str, ...] = ()
    registry: bool = True

    def __str__(self) -> str:
        return self.file or f"subject {self.subject}"


OPTIONS = ("file", "subject", "version", "references", "registry")


def source_of(form: str, spec: dict[str, Json]) -> Source:
    """Return the source that a serde's mapping names: `{avro: FILE}` or `{avro: {file: …, subject: …}}`. Raises SerdeError."""
    target = spec[form]
    if isinstance(target, str):
        return Source(target, message=spec.get("message"))
    if not isinstance(target, dict):
        raise SerdeError(f"serde {form} takes a schema file or {{subject: NAME}}, not {target!r}")
    known = (*OPTIONS, "message") if form == "protobuf" else OPTIONS
    for name in target:
        if name not in known:
            hint = did_you_mean(str(name), known, f"it has {listed(known)}")
            raise SerdeError(f"serde {form} has no option {name!r}{hint}")
    given = {"message": spec.get("message"), **target}
    if not given.get("file") and not given.get("subject"):
        raise SerdeError(f"serde {form} needs a schema: {{{form}: FILE}}, or {{{form}: {{subject: NAME}}}}")
    version = given.get("version")
    if version is not None and (type(version) is not int or version < 1):
        raise SerdeError(f"serde {form}: 'version' is {version!r}; expected a whole number from 1 on")
    if version is not None and given.get("file"):
        raise SerdeError(f"serde {form}: 'version' goes with 'subject'; the schema is that of {given['file']}")
    references = given.get("references") or []
    if not isinstance(references, list) or not all(isinstance(name, str) for name in references):
        raise SerdeError(f"serde {form}: 'references' is a list of schema files, each behind those that it needs")
    if not isinstance(given.get("registry", True), bool):
        raise SerdeError(f"serde {form}: 'registry' is true or false; false writes without a registry's framing")
    return Source(**{**given, "references": tuple(references)})


def read_file(form: str, name: str, folder: str) -> tuple[Path, str]:
    """Return the path and the text of a schema file. Raises SerdeError where there is none."""
    path = Path(os.path.join(folder, name))
    try:
        return path, path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SerdeError(f"serde {form}: the schema file {name!r} is not UTF-8 text") from error
    except OSError as error:
        raise SerdeError(f"serde {form}: there is no schema file {name!r} beside the topology file") from error
