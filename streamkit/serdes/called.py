"""Serdes written in Python: `{call: module:object}`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streamkit.errors import SerdeError, StreamkitError
from streamkit.expressions.calls import load_object
from streamkit.serdes.base import Serde
from streamkit.serdes.plain import plain, unplain

_PAIRS = (("encode", "decode"), ("serialize", "deserialize"))


@dataclass(frozen=True)
class _Ref:
    module: str
    attribute: str
    folder: str
    position: None = None


class CalledSerde(Serde):
    """An object, or a class that is called without arguments, with `encode` and `decode` (or `serialize`, `deserialize`).

    They take a value or bytes; the object may also have `to_json` and `from_json`.
    """

    def __init__(self, target: Any, folder: str):
        module, colon, attribute = str(target).partition(":")
        if not colon or not module or not attribute:
            raise SerdeError(f"the callable of a serde is written module:object, not {target!r}")
        self.spec = {"call": str(target)}
        self.folder = folder
        try:
            found = load_object(_Ref(module, attribute, folder))
            self._object = found() if isinstance(found, type) else found
        except SerdeError:
            raise
        except StreamkitError as error:
            raise SerdeError(f"serde {target}: {error}") from error
        except Exception as error:
            raise SerdeError(f"serde {target} can't be made: {type(error).__name__}: {error}") from error
        for write, read in _PAIRS:
            if hasattr(self._object, write) and hasattr(self._object, read):
                self._write, self._read = getattr(self._object, write), getattr(self._object, read)
                return
        raise SerdeError(f"serde {target} needs the methods encode and decode")

    def __getstate__(self) -> Any:
        return self.spec["call"], self.folder

    def __setstate__(self, state: Any) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CalledSerde) and (self.spec, self.folder) == (other.spec, other.folder)

    __hash__ = Serde.__hash__

    def encode(self, value: Any) -> bytes:
        try:
            data = self._write(value)
        except Exception as error:
            raise SerdeError(f"serde {self.spec['call']}: {type(error).__name__}: {error}") from error
        if not isinstance(data, bytes):
            raise SerdeError(f"serde {self.spec['call']} made {type(data).__name__}, not bytes")
        return data

    def decode(self, data: bytes) -> Any:
        try:
            return self._read(data)
        except Exception as error:
            raise SerdeError(f"serde {self.spec['call']}: {type(error).__name__}: {error}") from error

    def same(self, one: Any, other: Any) -> bool:
        # The objects need not know when they are equal.
        return one is other or self.same_bytes(one, other)

    def to_json(self, value: Any) -> Any:
        own = getattr(self._object, "to_json", None)
        return own(value) if own is not None and value is not None else plain(value)

    def from_json(self, data: Any) -> Any:
        own = getattr(self._object, "from_json", None)
        return own(data) if own is not None and data is not None else unplain(data)
