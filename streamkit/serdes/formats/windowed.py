"""Keys with a window: key + start8, and for sessions key + end8 + start8 (TimeWindowedSerializer, SessionWindowedSerializer)."""

from __future__ import annotations

from collections.abc import Sequence
from struct import Struct

from streamkit import durations
from streamkit.errors import ConfigError, SerdeError, SerdeTypeError
from streamkit.expressions.types import Type
from streamkit.expressions.types import WindowedKey as WindowedType
from streamkit.record import Key, Operand, Value, WindowedKey
from streamkit.serdes import parse
from streamkit.serdes.plain import Json, shown
from streamkit.serdes.serde import Binding, Serde

_LONG = Struct(">q")
_TWO_LONGS = Struct(">qq")
_LATEST = (1 << 63) - 1
"""Java limits the end of a window to the largest long."""


class _WindowedBase(Serde):
    def __init__(self, inner: Serde):
        self.inner = inner

    @property
    def type(self) -> Type:  # type: ignore[override]
        return WindowedType(self.inner.type)

    @property
    def needs_registry(self) -> bool:  # type: ignore[override]
        return self.inner.needs_registry

    @property
    def by_topic(self) -> bool:  # type: ignore[override]
        return self.inner.by_topic

    def same(self, one: Value, other: Value) -> bool:
        if not isinstance(one, WindowedKey) or not isinstance(other, WindowedKey):
            return False
        return (one.start, one.end) == (other.start, other.end) and self.inner.same(one.key, other.key)

    def to_json(self, value: Operand) -> Json:
        if value is None:
            return None
        return {"key": self.inner.to_json(value.key), "start": value.start, "end": value.end}

    def __eq__(self, other: object) -> bool:
        return isinstance(other, _WindowedBase) and self.spec == other.spec and self.inner == other.inner

    __hash__ = Serde.__hash__

    def _checked(self, value: Value) -> WindowedKey:
        if not isinstance(value, WindowedKey):
            raise SerdeTypeError(f"serde {self.spec} takes a windowed key, not {shown(value, 80)}")
        return value

    def _parts(self, data: Json) -> tuple[Key, int, int | None]:
        if not isinstance(data, dict) or not {"key", "start"} <= set(data) <= {"key", "start", "end"}:
            raise SerdeError(f'a windowed key is written {{"key": …, "start": …, "end": …}}, not {shown(data, 80)}')
        start, end = data["start"], data.get("end")
        if type(start) is not int or (end is not None and type(end) is not int):
            raise SerdeError("start and end of a windowed key are whole numbers of milliseconds")
        return self.inner.from_json(data["key"]), start, end


class TimeWindowedSerde(_WindowedBase):
    """Keys with a time window; only its start is written, the end is start + size (milliseconds)."""

    def __init__(self, inner: Serde, size: int):
        super().__init__(inner)
        self.size = size
        self.spec = {"windowed": inner.spec, "size": size}

    def on_topic(self, topic: str, is_key: bool) -> Serde:
        return TimeWindowedSerde(self.inner.on_topic(topic, is_key), self.size)

    def bind(self, binding: Binding) -> Serde:
        return TimeWindowedSerde(self.inner.bind(binding), self.size)

    def encode(self, value: Value) -> bytes:
        key = self._checked(value)
        return (b"" if key.key is None else self.inner.encode(key.key)) + _LONG.pack(key.start)

    def decode(self, data: bytes) -> WindowedKey:
        if len(data) < 8:
            raise SerdeError(f"serde {self.spec}: expected at least 8 bytes, found {len(data)}")
        start = _LONG.unpack(data[-8:])[0]
        return WindowedKey(self.inner.decode(data[:-8]), start, min(start + self.size, _LATEST))

    def json_column(self, column: Sequence[bytes | None]) -> list[Json]:
        if None in column or min(map(len, column), default=0) < 8:  # type: ignore[arg-type]
            return super().json_column(column)
        keys = self.inner.json_column([data[:-8] for data in column])  # type: ignore[index]
        starts_of_windows = [_LONG.unpack_from(data, len(data) - 8)[0] for data in column]  # type: ignore[arg-type]
        return [
            {"key": key, "start": start, "end": min(start + self.size, _LATEST)}
            for key, start in zip(keys, starts_of_windows, strict=True)
        ]

    def from_json(self, data: Json) -> Value:
        if data is None:
            return None
        key, start, end = self._parts(data)
        return WindowedKey(key, start, start + self.size if end is None else end)


class SessionWindowedSerde(_WindowedBase):
    """Keys with a session; end and start are written."""

    def __init__(self, inner: Serde):
        super().__init__(inner)
        self.spec = {"session_windowed": inner.spec}

    def on_topic(self, topic: str, is_key: bool) -> Serde:
        return SessionWindowedSerde(self.inner.on_topic(topic, is_key))

    def bind(self, binding: Binding) -> Serde:
        return SessionWindowedSerde(self.inner.bind(binding))

    def encode(self, value: Value) -> bytes:
        key = self._checked(value)
        return (b"" if key.key is None else self.inner.encode(key.key)) + _TWO_LONGS.pack(key.end, key.start)

    def decode(self, data: bytes) -> WindowedKey:
        if len(data) < 16:
            raise SerdeError(f"serde {self.spec}: expected at least 16 bytes, found {len(data)}")
        end, start = _TWO_LONGS.unpack(data[-16:])
        return WindowedKey(self.inner.decode(data[:-16]), start, end)

    def from_json(self, data: Json) -> Value:
        if data is None:
            return None
        key, start, end = self._parts(data)
        if end is None:
            raise SerdeError("a session's key needs its end")
        return WindowedKey(key, start, end)


def make_windowed(spec: dict[str, Json], folder: str) -> Serde:
    """Return the serde of `{windowed: SERDE, size: D}`. Raises SerdeError."""
    if "size" not in spec:
        raise SerdeError("a windowed serde needs the size of its windows: {windowed: SERDE, size: 5m}")
    try:
        size = durations.parse(spec["size"], 1)
    except ConfigError as error:
        raise SerdeError(f"the size of a windowed serde {error}, not {spec['size']!r}") from error
    return TimeWindowedSerde(parse(spec["windowed"], folder), size)


def make_session_windowed(spec: dict[str, Json], folder: str) -> Serde:
    """Return the serde of `{session_windowed: SERDE}`. Raises SerdeError."""
    return SessionWindowedSerde(parse(spec["session_windowed"], folder))
