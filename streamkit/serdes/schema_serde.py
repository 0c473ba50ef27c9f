"""Serdes of schemas: plain ones, and those in the framing of a schema registry (a zero byte, the schema's id, the value)."""

from __future__ import annotations

from collections.abc import Callable
from struct import Struct
from threading import Lock
from typing import TypeAlias

from streamkit.errors import RegistryError, SerdeError
from streamkit.expressions.types import ANY, Type
from streamkit.record import Value
from streamkit.serdes.plain import Json
from streamkit.serdes.registry import URL, Read, Registry, Schema, Source, Stored, read_file, source_of
from streamkit.serdes.serde import Binding, Serde

_HEADER = Struct(">bI")
_State: TypeAlias = tuple[type[Schema], dict[str, Json], Schema | None, int | None]
"""What a serde is pickled by: the class of its schema, its spec, and the schema with its id if it has them."""
_CONNECTING = Lock()
_STRATEGIES: dict[str, Callable[[str | None, str, str | None], str]] = {
    "TopicNameStrategy": lambda topic, side, record: f"{topic}-{side}",
    "RecordNameStrategy": lambda topic, side, record: str(record),
    "TopicRecordNameStrategy": lambda topic, side, record: f"{topic}-{record}",
}


class SchemaSerde(Serde):
    """`{avro: FILE}`, `{protobuf: FILE}`, `{json_schema: FILE}`: the bytes of the format alone. `bind` returns the serde for a registry.

    The schema of a file is compiled at once and pickled with the serde; that of a subject is there after `connect`, with its id.
    All bindings share both, so that no binding writes the id of a version that was registered later.
    """

    spec: dict[str, Json]

    def __init__(self, kind: type[Schema], spec: dict[str, Json], folder: str):
        self.spec = dict(spec)
        self.kind = kind
        self.source: Source = source_of(kind.form, spec)
        self.schema: Schema | None = self._from_file(folder) if self.source.file else None
        self.number: int | None = None
        if self.schema is not None:
            self._use(self.schema)

    def _from_file(self, folder: str) -> Schema:
        assert self.source.file is not None
        path, text = read_file(self.kind.form, self.source.file, folder)
        parts = self.kind.read_parts(path, text, list(self.source.references), folder)
        try:
            return self.kind(text, parts, self.source.message)
        except SerdeError as error:
            raise self.named(error) from error

    def _use(self, schema: Schema) -> None:
        self._encode, self._decode = schema.encode, schema.reader(schema)
        self.schema = schema

    def named(self, error: Exception) -> SerdeError:
        """Return an error whose text names the serde."""
        text = str(error)
        return SerdeError(text if text.startswith("serde ") else f"serde {self.kind.form} ({self.source}): {text}")

    def connect(self, registry: Registry) -> Schema:
        """Return the schema, from the registry if there is no file. Raises RegistryError, SerdeError."""
        if self.schema is None:
            assert self.source.subject is not None
            stored = registry.of_subject(self.source.subject, self.source.version)
            if stored.kind != self.kind.kind:
                raise SerdeError(f"serde {self.kind.form}: subject {self.source.subject} holds {stored.kind} schemas")
            schema = self.kind(stored.text, stored.parts, self.source.message)
            with _CONNECTING:
                # Another thread may have connected; its schema stays, since its id may be in a writer.
                if self.schema is None:
                    self.number = stored.id
                    self._use(schema)
        assert self.schema is not None
        return self.schema

    @property
    def type(self) -> Type:  # type: ignore[override]
        return ANY if self.schema is None else self.schema.type

    @property
    def needs_registry(self) -> bool:  # type: ignore[override]
        """Whether this serde works with a registry only."""
        return self.source.subject is not None and self.source.registry

    def bind(self, binding: Binding) -> Serde:
        if binding.registry is None or not self.source.registry:
            return self
        return FramedSerde(self, binding)

    def encode(self, value: Value) -> bytes:
        self._known()
        try:
            return self._encode(value)
        except SerdeError as error:
            raise self.named(error) from error

    def decode(self, data: bytes) -> Value:
        self._known()
        try:
            return self._decode(data, 0)
        except SerdeError as error:
            raise self.named(error) from error

    def to_json(self, value: Value) -> Json:
        return None if value is None else self._known().to_json(value)

    def from_json(self, data: Json) -> Value:
        return None if data is None else self._known().from_json(data)

    def _known(self) -> Schema:
        if self.schema is None:
            raise SerdeError(f"serde {self.kind.form} ({self.source}) needs a schema registry; set {URL} in `config`")
        return self.schema

    def __getstate__(self) -> _State:
        return self.kind, self.spec, self.schema, self.number

    def __setstate__(self, state: _State) -> None:
        self.kind, self.spec, self.schema, self.number = state
        self.source = source_of(self.kind.form, self.spec)
        if self.schema is not None:
            self._use(self.schema)

    def __eq__(self, other: object) -> bool:
        return (
            isinstance(other, SchemaSerde) and (self.spec, self.kind) == (other.spec, other.kind) and self._same(other)
        )

    def _same(self, other: SchemaSerde) -> bool:
        # A file's name in two folders means two schemas; schemas that are not fetched yet are the same by their subject.
        return self.schema is None or other.schema is None or self.schema == other.schema

    __hash__ = Serde.__hash__


class FramedSerde(Serde):
    """The bytes that Confluent's serializers write: a zero byte, four bytes of the schema's id, the value.

    Bound to a topic and a side, which make the subject. The registry is requested once for each id that is read and once
    before the first record is written. Values are always of this serde's schema, for every version that wrote them.
    """

    def __init__(self, plain: SchemaSerde, binding: Binding):
        self.plain = plain
        self.binding = binding
        self.spec = plain.spec
        assert binding.registry is not None
        self._registry = binding.registry
        self._readers: dict[bytes, Read] = {}
        self._write: Callable[[Value], bytes] | None = None
        self._prefix = b""

    @property
    def type(self) -> Type:  # type: ignore[override]
        return self.plain.type

    def bind(self, binding: Binding) -> Serde:
        return self.plain.bind(binding)

    def on_topic(self, topic: str, is_key: bool) -> Serde:
        return self if self.binding.topic is not None else self.plain.bind(Binding(self._registry, topic, is_key))

    @property
    def by_topic(self) -> bool:  # type: ignore[override]
        return self.binding.topic is None and self.plain.source.subject is None

    def same(self, one: Value, other: Value) -> bool:
        # Without the framing, which would need an id from the registry.
        return self.plain.same(one, other)

    def encode(self, value: Value) -> bytes:
        write = self._write or self._writer()
        try:
            return self._prefix + write(value)
        except SerdeError as error:
            raise self.plain.named(error) from error

    def decode(self, data: bytes) -> Value:
        read = self._readers.get(data[:5]) or self._reader(data)
        try:
            return read(data, 5)
        except SerdeError as error:
            raise self.plain.named(error) from error

    def to_json(self, value: Value) -> Json:
        return None if value is None else self._schema().to_json(value)

    def from_json(self, data: Json) -> Value:
        return None if data is None else self._schema().from_json(data)

    def _schema(self) -> Schema:
        return self.plain.schema or self.plain.connect(self._registry)

    # -- Requests to the registry --

    @property
    def subject(self) -> str:
        """The subject that is written to."""
        source, settings = self.plain.source, self._registry.settings
        if source.subject is not None:
            return source.subject
        side = "key" if self.binding.is_key else "value"
        strategy = settings.get(f"{side}.subject.name.strategy", "TopicNameStrategy")
        if self.binding.topic is None and strategy != "RecordNameStrategy":
            raise SerdeError(f"serde {self.plain.kind.form} ({source}) is bound to no topic")
        record = self._schema().name
        if record is None and strategy != "TopicNameStrategy":
            raise SerdeError(f"serde {self.plain.kind.form} ({source}): {strategy} needs the name of a record")
        return _STRATEGIES[strategy](self.binding.topic, side, record)

    def _writer(self) -> Callable[[Value], bytes]:
        schema, subject, settings = self._schema(), self.subject, self._registry.settings
        if self.plain.number is not None:
            number = self.plain.number
        elif settings.get("use.latest.version") and not self._registry.is_dry_run:
            number, schema = self._latest(schema, subject)
        else:
            number = self._registry.id_for(subject, schema)
        self._prefix = _HEADER.pack(0, number) + schema.lead
        self._write = schema.encode
        return self._write

    def _latest(self, schema: Schema, subject: str) -> tuple[int, Schema]:
        strict = self._registry.settings.get("latest.compatibility.strict", True)
        if strict and self._registry.is_compatible(subject, schema) is False:
            # As if the registry refused to register it: no record is at fault.
            raise RegistryError(
                f"serde {schema.form} ({self.plain.source}) is not compatible with the latest version of {subject}; "
                "set latest.compatibility.strict to false to write it nevertheless"
            )
        stored = self._registry.of_subject(subject)
        return stored.id, self._compiled(stored, self.plain.source.message)

    def _reader(self, data: bytes) -> Read:
        if len(data) < 5 or data[0] != 0:
            raise self.plain.named(
                SerdeError(f"not in a registry's framing (a zero byte and the schema's id): {data[:16]!r}")
            )
        stored = self._registry.by_id(_HEADER.unpack_from(data)[1])
        if stored.kind != self.plain.kind.kind:
            raise self.plain.named(SerdeError(f"the record is {stored.kind}, written with schema {stored.id}"))
        schema = self._schema()
        read = schema.framed_reader(self._compiled(stored))
        self._readers[data[:5]] = read
        return read

    def _compiled(self, stored: Stored, message: str | None = None) -> Schema:
        """Compile a schema of the registry. Raises RegistryError, as no record is at fault if it does not compile."""
        try:
            return self.plain.kind(stored.text, stored.parts, message)
        except SerdeError as error:
            raise self._registry.unusable(stored, error) from error

    def __getstate__(self) -> tuple[SchemaSerde, Binding]:
        return self.plain, self.binding

    def __setstate__(self, state: tuple[SchemaSerde, Binding]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, FramedSerde) and self.plain == other.plain and self._where() == other._where()

    def _where(self) -> tuple[object, ...]:
        """Return what the bytes depend on; if the serde names a subject, they do not depend on the topic."""
        return (self._registry,) if self.plain.source.subject is not None else tuple(self.binding)

    __hash__ = Serde.__hash__
