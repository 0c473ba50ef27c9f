"""Records and rows in the JSON form that files and command lines use."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import TypeAlias, cast

from streamkit import durations
from streamkit.errors import SerdeError
from streamkit.plan.model import Plan, SinkNode, SourceNode
from streamkit.record import Headers, Key, Operand, OutputTuple, Record, Value
from streamkit.serdes.plain import Document, Json, plain
from streamkit.serdes.serde import Serde
from streamkit.state.definitions import Store, StoreDef
from streamkit.suggestions import did_you_mean

Serdes = tuple[Serde, Serde]
EncodedRecord: TypeAlias = tuple[str, bytes | None, bytes | None, int, Headers | None, int | None]
"""An OutputTuple with a timestamp."""

_PLAIN = ("string", "long", "integer", "short", "bytes")
_FIELDS = frozenset(("topic", "key", "value", "timestamp", "headers", "partition"))


class RecordJson:
    """Encodes JSON records by the serdes of topics that are read, and decodes rows to JSON by those of written topics."""

    def __init__(self, plan: Plan):
        self._default = plan.default_serdes
        self._declared: dict[str, Serdes] = {
            topic.name: (topic.key_serde, topic.value_serde) for topic in plan.external_topics.values()
        }
        self._read: dict[str, Serdes] = dict(self._declared)
        self._written: dict[str, Serdes] = {}
        self._routed: list[Serdes] = []
        self._forms: dict[str, list[tuple[Callable[..., Operand], ...]]] = {}
        for node in plan.nodes:
            if isinstance(node, SourceNode):
                for topic in node.topics:
                    self._read[plan.internal_name(topic)] = node.topic_serdes.get(
                        topic, (node.key_serde, node.value_serde)
                    )
            elif isinstance(node, SinkNode):
                if node.topic is None:
                    self._routed.append((node.key_serde, node.value_serde))
                else:
                    self._written[plan.internal_name(node.topic)] = (node.key_serde, node.value_serde)

    def encode(self, record: Mapping[str, Document], now: int, check: Callable[[str], None]) -> EncodedRecord:
        """Return the row of a JSON record; an absent timestamp is `now` (ms). Raises SerdeError, and as `check`."""
        unknown = [name for name in record if name not in _FIELDS]
        if unknown:
            hint = did_you_mean(unknown[0], _FIELDS, f"a record has {', '.join(sorted(_FIELDS))}")
            raise SerdeError(f"unknown field {unknown[0]!r}{hint}")
        topic = record.get("topic")
        if not isinstance(topic, str):
            raise SerdeError("a record needs a topic")
        check(topic)
        timestamp = record.get("timestamp")
        if timestamp is None:
            timestamp = now
        elif type(timestamp) is not int:
            timestamp = _instant(timestamp)
        if timestamp.bit_length() > 63:
            raise SerdeError(f"timestamp is {timestamp}, which is beyond 64 bits")
        key_serde, value_serde = self.reading(topic)
        key = _encode(key_serde, record.get("key"), "key", topic)
        value = _encode(value_serde, record.get("value"), "value", topic)
        return (topic, key, value, timestamp, headers_from_json(record.get("headers")), record.get("partition"))

    def reading(self, topic: str) -> Serdes:
        """Return the serdes by which a topic is read."""
        key_serde, value_serde = self._read.get(topic, self._default)
        return key_serde.on_topic(topic, True), value_serde.on_topic(topic, False)

    def decode(self, row: OutputTuple) -> dict[str, Json]:
        """Return the JSON record of a row; bytes that no serde of the topic decodes (dead letters): {"base64": …}."""
        topic, key, value, timestamp, headers, _ = row
        for decode_key, key_json, decode_value, value_json in self._forms.get(topic) or self._add_form(topic):
            try:
                record: dict[str, Json] = {
                    "topic": topic,
                    "key": None if key is None else key_json(decode_key(key)),
                    "value": None if value is None else value_json(decode_value(value)),
                }
            except SerdeError:
                continue
            break
        else:
            record = {"topic": topic, "key": plain(key), "value": plain(value)}
        record["timestamp"] = timestamp
        if headers:
            record["headers"] = headers_to_json(headers)
        return record

    def columns(
        self, topic: str, keys: Sequence[bytes | None], values: Sequence[bytes | None]
    ) -> tuple[list[Json], list[Json]] | None:
        """Return keys and values of a written topic in JSON form; None if not all are of its first serdes."""
        for key_serde, value_serde in self.candidates(topic):
            try:
                return key_serde.json_column(keys), value_serde.json_column(values)
            except SerdeError:
                break
        return None

    def is_plain(self, topic: str) -> bool:
        """Return whether the JSON forms of a written topic's first serdes have no fractions, which Java formats differently."""
        pair = next(self.candidates(topic), ())
        return all(getattr(serde, "inner", serde).spec in _PLAIN for serde in pair)

    def decode_source(self, topic: str | None, key: bytes | None, value: bytes | None) -> tuple[Json, Json]:
        """Return a key and a value of a topic that is read, in JSON form; bytes that do not decode become text, or base64."""
        serdes = self._read.get(topic or "", self._default)
        return _decode_or_show(serdes[0], key), _decode_or_show(serdes[1], value)

    def _add_form(self, topic: str) -> list[tuple[Callable[..., Operand], ...]]:
        """Return the functions of the serdes that a written topic's bytes may be of, and keep them for the next record."""
        pairs = self.candidates(topic)
        forms: list[tuple[Callable[..., Operand], ...]] = [
            (key.decode, key.to_json, value.decode, value.to_json) for key, value in pairs
        ]
        self._forms[topic] = forms
        return forms

    def candidates(self, topic: str) -> Iterator[Serdes]:
        """Yield the serdes that the bytes of a topic may be of, in the order in which they are tried."""
        if topic in self._written:
            yield self._written[topic]
        if topic in self._declared:
            yield self._declared[topic]
        yield from self._routed


class RecordObjects(RecordJson):
    """Encodes and decodes Python objects in place of their JSON form."""

    def encode(self, record: Mapping[str, Document], now: int, check: Callable[[str], None]) -> EncodedRecord:
        """Return the row of a record: topic, key, value, timestamp (ms or None) and headers. Raises as RecordJson."""
        topic = record["topic"]
        check(topic)
        timestamp = now if record["timestamp"] is None else record["timestamp"]
        if type(timestamp) is not int:
            raise SerdeError(f"timestamp is {timestamp!r}; expected milliseconds")
        key_serde, value_serde = self.reading(topic)
        key = None if record["key"] is None else key_serde.encode(record["key"])
        value = None if record["value"] is None else value_serde.encode(record["value"])
        return (topic, key, value, timestamp, record["headers"], None)

    def decode(self, row: OutputTuple) -> tuple[str, Record]:  # type: ignore[override]  # objects in place of JSON
        """Return (topic, Record) of a row; bytes that no serde of the topic decodes stay bytes."""
        topic, key, value, timestamp, headers, _ = row
        decoded: tuple[Key, Value] = (key, value)
        for decode_key, _, decode_value, _ in self._forms.get(topic) or self._add_form(topic):
            try:
                decoded = (
                    None if key is None else decode_key(key),
                    None if value is None else decode_value(value),
                )
            except SerdeError:
                continue
            break
        # Only changelogs have rows without a timestamp.
        return topic, Record(*decoded, cast(int, timestamp), tuple(headers or ()))


def store_rows(definition: StoreDef, store: Store) -> list[list[Json]]:
    """Return a store's rows as [key, value] in JSON form."""
    write = definition.kind.implementation_class().row_writer(definition)
    return [list(write(key, value)) for key, value in store.rows()]


def headers_from_json(headers: Document) -> Headers | None:
    """Return headers of their JSON form `[[name, text or {"base64": …}], …]`; none are None. Raises SerdeError."""
    if not headers:
        return None
    try:
        return [(name.encode().decode(), _header_bytes(value)) for name, value in headers]
    except (TypeError, ValueError, KeyError, AttributeError) as error:
        raise SerdeError(f'headers are {headers!r}; expected [["name", "text" or {{"base64": …}}], …]') from error


def headers_to_json(headers: Headers) -> list[list[Json]]:
    """Return the JSON form of headers: text if the bytes are UTF-8."""
    return [[name, _header_json(value)] for name, value in headers]


def _instant(text: object) -> int:
    try:
        return durations.instant(text)
    except SerdeError:
        raise SerdeError(f"timestamp is {text!r}; expected {durations.TIME_FORMS}") from None


def _header_bytes(value: Document) -> bytes | None:
    if value is None:
        return None
    if isinstance(value, dict):
        return base64.b64decode(value["base64"], validate=True)
    data: bytes = value.encode()
    return data


def _header_json(value: bytes | None) -> Json:
    if value is None:
        return None
    try:
        return value.decode()
    except UnicodeDecodeError:
        return plain(value)


def _decode_or_show(serde: Serde, data: bytes | None) -> Json:
    try:
        return _decode(serde, data)
    except SerdeError:
        return _header_json(data)


def _encode(serde: Serde, data: Json, what: str, topic: str) -> bytes | None:
    if data is None:
        return None
    try:
        return serde.encode(serde.from_json(data))
    except SerdeError as error:
        raise SerdeError(f"{what} for topic {topic}: {error}") from error


def _decode(serde: Serde, data: bytes | None) -> Json:
    return None if data is None else serde.to_json(serde.decode(data))
