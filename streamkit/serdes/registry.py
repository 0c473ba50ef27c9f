"""The schema registry of an application, through Confluent's client, and compiled schemas of any format."""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterable, Mapping
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

from streamkit.distribution import install_command
from streamkit.errors import RegistryError, SerdeError
from streamkit.expressions.types import ANY, Type
from streamkit.record import Value
from streamkit.serdes.plain import Document, Json, plain, unplain
from streamkit.suggestions import did_you_mean, listed

if TYPE_CHECKING:
    from confluent_kafka.schema_registry import Schema as Given
    from confluent_kafka.schema_registry import SchemaReference, SchemaRegistryClient

    from streamkit.config import Config


URL = "schema.registry.url"
_CLIENT = {
    "basic.auth.user.info": "basic.auth.user.info",
    "schema.registry.ssl.ca.location": "ssl.ca.location",
    "schema.registry.ssl.certificate.location": "ssl.certificate.location",
    "schema.registry.ssl.key.location": "ssl.key.location",
    "schema.registry.ssl.key.password": "ssl.key.password",
    "bearer.auth.credentials.source": "bearer.auth.credentials.source",
    "bearer.auth.token": "bearer.auth.token",
    "bearer.auth.issuer.endpoint.url": "bearer.auth.issuer.endpoint.url",
    "bearer.auth.client.id": "bearer.auth.client.id",
    "bearer.auth.client.secret": "bearer.auth.client.secret",
    "bearer.auth.scope": "bearer.auth.scope",
    "bearer.auth.logical.cluster": "bearer.auth.logical.cluster",
    "bearer.auth.identity.pool.id": "bearer.auth.identity.pool.id",
}
"""The names of a file's settings in Confluent's client for Python."""
BEHAVIOUR = (
    "auto.register.schemas",
    "use.latest.version",
    "latest.compatibility.strict",
    "normalize.schemas",
    "key.subject.name.strategy",
    "value.subject.name.strategy",
)
_NOT_FOUND = 404
_LAST_ID = 2**31 - 1
_TIMEOUT_SECONDS = 10


class Stored(NamedTuple):
    """A schema of the registry, with all schemas that it refers to."""

    id: int
    kind: str
    text: str
    parts: tuple[Part, ...] = ()


class Registry:
    """The registry that a file's settings name; immutable except for its cache of schemas, picklable, compares by settings.

    It connects with the first request. Raises RegistryError with one line for every failure of a request.
    """

    def __init__(self, settings: Mapping[str, Any]):
        self.settings = dict(settings)
        self._known: dict[int, Stored] = {}
        self._dry_run_ids: dict[tuple[str, str], int] | None = None

    @classmethod
    def of(cls, config: Config) -> Registry | None:
        """Return the registry of a Config, None if it names none."""
        if not config.schema_registry_url:
            return None
        names = (URL, "basic.auth.credentials.source", *_CLIENT, *BEHAVIOUR)
        return cls({name: config[name] for name in names if config[name] not in (None, "")})

    @property
    def url(self) -> str:
        """The address without credentials."""
        return ",".join(address.rpartition("@")[2] for address in self.settings[URL])

    @property
    def is_dry_run(self) -> bool:
        """Whether schemas are not registered."""
        return self._dry_run_ids is not None

    def start_dry_run(self) -> None:
        """Register no schemas from now on: new ones get ids that only this object has. Existing schemas are still read."""
        self._dry_run_ids = {}

    # -- Requests --

    def by_id(self, number: int) -> Stored:
        """Return the schema of an id."""
        if number not in self._known:
            schema = self._request(f"schema {number}", "get_schema", number)
            self._known[number] = self._stored(number, schema)
        return self._known[number]

    def of_subject(self, subject: str, version: int | None = None) -> Stored:
        """Return a version of a subject, the latest if None."""
        if version is None:
            registered = self._request(f"subject {subject}", "get_latest_version", subject)
        else:
            what = f"version {version} of subject {subject}"
            registered = self._request(what, "get_version", subject, version)
        number = self._number(registered.schema_id, f"subject {subject}")
        self._known[number] = self._stored(number, registered.schema)
        return self._known[number]

    def id_for(self, subject: str, schema: Schema) -> int:
        """Return the id under which a schema is written to a subject: registered there, or only looked up."""
        if self._dry_run_ids is not None:
            return self._dry_run_id(schema)
        normalize = bool(self.settings.get("normalize.schemas"))
        client_schema = self._client_schema(schema, subject)
        if self.settings.get("auto.register.schemas", True):
            what = f"registering {schema.form} for subject {subject}"
            return self._number(self._request(what, "register_schema", subject, client_schema, normalize), what)
        what = f"this {schema.form} schema under subject {subject} (auto.register.schemas is false)"
        return self._number(self._request(what, "lookup_schema", subject, client_schema, normalize).schema_id, what)

    def is_compatible(self, subject: str, schema: Schema) -> bool | None:
        """Return whether a schema is compatible with the latest one of a subject, by the subject's rule; None if the subject has no schema yet."""
        try:
            client_schema = self._client_schema(schema, subject, write=False)
            return bool(self._request(f"subject {subject}", "test_compatibility", subject, client_schema))
        except RegistryError as error:
            if error.is_missing:
                return None
            raise

    # -- The client --

    def _dry_run_id(self, schema: Schema) -> int:
        assert self._dry_run_ids is not None
        key = (schema.kind, schema.text)
        if key not in self._dry_run_ids:
            # From the largest id down, which registries do not reach.
            number = _LAST_ID - len(self._dry_run_ids)
            self._dry_run_ids[key] = number
            self._known[number] = Stored(number, schema.kind, schema.text, schema.parts)
        return self._dry_run_ids[key]

    def _client_schema(self, schema: Schema, subject: str, write: bool = True) -> Given:
        """Return the client's schema object; the schemas that it refers to are registered under subjects of their names."""
        from confluent_kafka.schema_registry import Schema as Given
        from confluent_kafka.schema_registry import SchemaReference

        references: dict[str, SchemaReference] = {}

        def client_schema(text: str) -> Given:
            needed = [references[name] for name in schema.needed_by(text) if name in references]
            return Given(text, schema.kind, needed)

        for part in schema.parts:
            version = self._part_version(part.name, client_schema(part.text), subject, write)
            references[part.name] = SchemaReference(part.name, part.name, version)
        return client_schema(schema.text)

    def _part_version(self, name: str, client_schema: Given, subject: str, write: bool) -> int:
        """Return the version of a schema that another one refers to, under the subject of its name.

        It is the version with this text, since values are encoded by it. Without `write` it may not be registered yet; the
        latest version is used instead.
        """
        registers = write and self.settings.get("auto.register.schemas", True)
        if registers:
            what = f"registering {name}, which the schema of {subject} refers to"
            self._request(what, "register_schema", name, client_schema)
        what = f"this schema under subject {name}, which the schema of {subject} refers to"
        normalize = bool(self.settings.get("normalize.schemas")) and not registers
        try:
            return self._number(self._request(what, "lookup_schema", name, client_schema, normalize).version, what)
        except RegistryError as error:
            if write or not error.is_missing:
                raise
        return self._number(self._request(what, "get_latest_version", name).version, what)

    def _stored(self, number: int, schema: Given) -> Stored:
        parts: dict[str, Part] = {}

        def add(references: Iterable[SchemaReference] | None) -> None:
            for reference in references or ():
                name = reference.name or ""  # a registry's reference has a name; the client allows for none
                if name not in parts:
                    what = (
                        f"version {reference.version} of subject {reference.subject}, which schema {number} refers to"
                    )
                    inner = self._request(what, "get_version", reference.subject, reference.version)
                    add(inner.schema.references)
                    parts[name] = Part(name, self._text(inner.schema, what))

        add(schema.references)
        text = self._text(schema, f"schema {number}")
        return Stored(number, schema.schema_type or "AVRO", text, tuple(parts.values()))

    # An answer without the schema comes from something else, such as a proxy. No handler may drop a record because of it.

    def _number(self, value: object, what: str) -> int:
        """Return an id or a version of an answer. Raises RegistryError if it is not a number."""
        if type(value) is not int:
            raise self._no_answer(what)
        return value

    def _text(self, schema: Given, what: str) -> str:
        """Return the text of a schema of an answer. Raises RegistryError if there is none."""
        text = schema.schema_str
        if not isinstance(text, str) or not text:
            raise self._no_answer(what)
        return text

    def unusable(self, stored: Stored, error: SerdeError) -> RegistryError:
        """Return the error of a schema that does not compile, and forget the schema."""
        self._forget()
        return RegistryError(f"schema registry {self.url}: schema {stored.id}: {error}")

    def _forget(self) -> None:
        """Request all schemas again: the client would give the same answers."""
        self._known.clear()
        self._client().clear_caches()  # type: ignore[no-untyped-call]  # its own stub

    def _no_answer(self, what: str) -> RegistryError:
        self._forget()
        return RegistryError(f"schema registry {self.url}: {what}: the answer is not that of a schema registry")

    def _request(self, what: str, method: str, *arguments: object) -> Any:  # of the method that is named
        """Return the result of a method of the client; `what` names its object in errors."""
        client = self._client()
        from confluent_kafka.schema_registry.error import OAuthTokenError, SchemaRegistryError

        try:
            return getattr(client, method)(*arguments)
        except SchemaRegistryError as error:
            missing = error.http_status_code == _NOT_FOUND
            reason = "it has none" if missing else f"{error.error_message} (HTTP {error.http_status_code})"
            raise RegistryError(f"schema registry {self.url}: {what}: {reason}", is_missing=missing) from error
        except OAuthTokenError as error:
            raise RegistryError(f"schema registry {self.url}: no token: {error.message}") from error
        except Exception as error:
            reason = str(error) or type(error).__name__
            raise RegistryError(f"schema registry {self.url} doesn't answer: {what}: {reason}") from error

    def _client(self) -> SchemaRegistryClient:
        settings = {own: self.settings[name] for name, own in _CLIENT.items() if name in self.settings}
        if self.settings.get("basic.auth.credentials.source") == "URL":
            settings.pop("basic.auth.user.info", None)
        if "bearer.auth.token" in settings:
            settings.setdefault("bearer.auth.credentials.source", "STATIC_TOKEN")
        if "bearer.auth.credentials.source" in settings:
            # Only Confluent's own cloud has clusters, yet the client requires the setting.
            settings.setdefault("bearer.auth.logical.cluster", "")
        return _connect((("url", ",".join(self.settings[URL])), *sorted(settings.items())))

    def __getstate__(self) -> tuple[dict[str, Any], bool]:
        return self.settings, self._dry_run_ids is not None

    def __setstate__(self, state: tuple[dict[str, Any], bool]) -> None:
        self.__init__(state[0])  # type: ignore[misc]
        if state[1]:
            self.start_dry_run()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Registry) and self.settings == other.settings

    def __hash__(self) -> int:
        return hash(tuple(self.settings.items()))

    def __repr__(self) -> str:
        return f"Registry({self.url})"


@cache
def _connect(settings: tuple[tuple[str, object], ...]) -> SchemaRegistryClient:
    """Return the process's client of these settings. Raises RegistryError for settings that it refuses."""
    try:
        from confluent_kafka.schema_registry import SchemaRegistryClient
    except ImportError as error:
        raise RegistryError(
            f"a schema registry needs more packages: {install_command('registry')} ({error})"
        ) from error
    try:
        return SchemaRegistryClient(
            {"timeout": _TIMEOUT_SECONDS, "max.retries": 2, "retries.wait.ms": 200, **dict(settings)}
        )
    except Exception as error:
        raise RegistryError(f"the settings of the schema registry: {error}") from error


# Compiled schemas of any format, and the source of a serde's schema.

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
        first one if None. Raises SerdeError for a malformed schema.
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


def source_of(form: str, spec: dict[str, Document]) -> Source:
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
    options = {"message": spec.get("message"), **target}
    if not options.get("file") and not options.get("subject"):
        raise SerdeError(f"serde {form} needs a schema: {{{form}: FILE}}, or {{{form}: {{subject: NAME}}}}")
    version = options.get("version")
    if version is not None and (type(version) is not int or version < 1):
        raise SerdeError(f"serde {form}: 'version' is {version!r}; expected a whole number from 1 on")
    if version is not None and options.get("file"):
        raise SerdeError(f"serde {form}: 'version' goes with 'subject'; the schema is that of {options['file']}")
    references = options.get("references") or []
    if not isinstance(references, list) or not all(isinstance(name, str) for name in references):
        raise SerdeError(f"serde {form}: 'references' is a list of schema files, each behind those that it needs")
    if not isinstance(options.get("registry", True), bool):
        raise SerdeError(f"serde {form}: 'registry' is true or false; false writes without a registry's framing")
    return Source(**{**options, "references": tuple(references)})


def read_file(form: str, name: str, folder: str) -> tuple[Path, str]:
    """Return the path and the text of a schema file. Raises SerdeError if there is none."""
    path = Path(os.path.join(folder, name))
    try:
        return path, path.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise SerdeError(f"serde {form}: the schema file {name!r} is not UTF-8 text") from error
    except OSError as error:
        raise SerdeError(f"serde {form}: there is no schema file {name!r} beside the topology file") from error
