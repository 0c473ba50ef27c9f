"""Keys with a window: key + start8, and for sessions key + end8 + start8 (TimeWindowedSerializer, SessionWindowedSerializer)."""

from __future__ import annotations

from struct import Struct
from typing import Any

from streamkit.errors import SerdeError
from streamkit.record import WindowedKey
from streamkit.serdes.base import Serde

_LONG = Struct(">q")
_TWO_LONGS = Struct(">qq")


class _WindowedBase(Serde):
    def __init__(self, inner: Serde):
        self.inner = inner

    def to_json(self, value: Any) -> Any:
        if value is None:
            return None
        return {"key": self.inner.to_json(value.key), "start": value.start, "end": value.end}

    def _checked(self, value: Any) -> WindowedKey:
        if not isinstance(value, WindowedKey):
            raise SerdeError(f"serde {self.spec} takes a windowed key, not {repr(value)[:80]}")
        return value

    def _parts(self, data: Any) -> tuple[Any, int, int | None]:
        if not isinstance(data, dict) or not {"key", "start"} <= set(data) <= {"key", "start", "end"}:
            raise SerdeError(f'a windowed key is written {{"key": …, "start": …, "end": …}}, not {repr(data)[:80]}')
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

    def encode(self, value: Any) -> bytes:
        key = self._checked(value)
        return (b"" if key.key is None else self.inner.encode(key.key)) + _LONG.pack(key.start)

    def decode(self, data: bytes) -> WindowedKey:
        if len(data) < 8:
            raise SerdeError(f"serde {self.spec}: expected at least 8 bytes, found {len(data)}")
        start = _LONG.unpack(data[-8:])[0]
        # Java bounds the end by the largest long.
        return WindowedKey(self.inner.decode(data[:-8]), start, min(start + self.size, (1 << 63) - 1))

    def from_json(self, data: Any) -> Any:
        if data is None:
            return None
        key, start, end = self._parts(data)
        return WindowedKey(key, start, start + self.size if end is None else end)


class SessionWindowedSerde(_WindowedBase):
    """Keys with a session; end and start are written."""

    def __init__(self, inner: Serde):
        super().__init__(inner)
        self.spec = {"session_windowed": inner.spec}

    def encode(self, value: Any) -> bytes:
        key = self._checked(value)
        return (b"" if key.key is None else self.inner.encode(key.key)) + _TWO_LONGS.pack(key.end, key.start)

    def decode(self, data: bytes) -> WindowedKey:
        if len(data) < 16:
            raise SerdeError(f"serde {self.spec}: expected at least 16 bytes, found {len(data)}")
        end, start = _TWO_LONGS.unpack(data[-16:])
        return WindowedKey(self.inner.decode(data[:-16]), start, end)

    def from_json(self, data: Any) -> Any:
        if data is None:
            return None
        key, start, end = self._parts(data)
        if end is None:
            raise SerdeError("a session's key needs its end")
        return WindowedKey(key, start, end)
