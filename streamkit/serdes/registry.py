"""The schema registry of an application: Confluent's REST API through Confluent's client."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache
from typing import TYPE_CHECKING, Any, NamedTuple

from streamkit.distribution import install_command
from streamkit.errors import RegistryError
from streamkit.serdes.compiled_schema import Part, Schema

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
        """Return the registry of a Config, None where it names none."""
        if not config.get(URL):
            return None
        names = (URL, "basic.auth.credentials.source", *_CLIENT, *BEHAVIOUR)
        return cls({name: config.get(name) for name in names if config.get(name) not in (None, "")})

    @property
    def url(self) -> str:
        """The address without credentials."""
        return ",".join(each.rpartition("@")[2] for each in self.settings[URL])

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
            found = self._request(f"schema {number}", "get_schema", number)
            self._known[number] = self._stored(number, found)
        return self._known[number]

    def of_subject(self, subject: str, version: int | None = None) -> Stored:
        """Return a version of a subject, the latest where None."""
        if version is None:
            found = self._request(f"subject {subject}", "get_latest_version", subject)
        else:
            what = f"version {version} of subject {subject}"
            found = self._request(what, "get_version", subject, version)
        self._known[found.schema_id] = self._stored(found.schema_id, found.schema)
        return self._known[found.schema_id]

    def id_for(self, subject: str, schema: Schema) -> int:
        """Return the id under which a schema is written to a subject: registered there, or only looked up."""
        if self._dry_run_ids is not None:
            return self._dry_run_id(schema)
        normalize = bool(self.settings.get("normalize.schemas"))
        given = self._client_schema(schema, subject)
        if self.settings.get("auto.register.schemas", True):
            what = f"registering {schema.form} for subject {subject}"
            return int(self._request(what, "register_schema", subject, given, normalize))
        what = f"this {schema.form} schema under subject {subject} (auto.register.schemas is false)"
        return int(self._request(what, "lookup_schema", subject, given, normalize).schema_id)

    def is_compatible(self, subject: str, schema: Schema) -> bool | None:
        """Return whether a schema is compatible with the latest one of a subject, by the subject's rule; None: it has none yet."""
        try:
            given = self._client_schema(schema, subject, write=False)
            return bool(self._request(f"subject {subject}", "test_compatibility", subject, given))
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

        def made(text: str) -> Given:
            needed = [references[name] for name in schema.needed_by(text) if name in references]
            return Given(text, schema.kind, needed)

        for part in schema.parts:
            given = made(part.text)
            if write and self.settings.get("auto.register.schemas", True):
                what = f"registering {part.name}, which the schema of {subject} refers to"
                self._request(what, "register_schema", part.name, given)
            what = f"subject {part.name}, which the schema of {subject} refers to"
            version = self._request(what, "get_latest_version", part.name).version
            references[part.name] = SchemaReference(part.name, part.name, version)
        return made(schema.text)

    def _stored(self, number: int, found: Given) -> Stored:
        parts: dict[str, Part] = {}

        def add(references: Iterable[SchemaReference] | None) -> None:
            for each in references or ():
                name = each.name or ""  # a registry's reference has a name; the client allows for none
                if name not in parts:
                    what = f"version {each.version} of subject {each.subject}, which schema {number} refers to"
                    inner = self._request(what, "get_version", each.subject, each.version)
                    add(inner.schema.references)
                    parts[name] = Part(name, inner.schema.schema_str)

        add(found.references)
        return Stored(number, found.schema_type or "AVRO", found.schema_str or "", tuple(parts.values()))

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
