"""Serdes written in Python: `{call: module:object}`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

from streamkit.errors import SerdeError, StreamkitError
from streamkit.expressions.calls import load_object
from streamkit.serdes.base import Serde
from streamkit.serdes.plain import plain, unplain
from streamkit.serdes.size import check_size

_PAIRS = (("encode", "decode"), ("serialize", "deserialize"))


@dataclass(frozen=True)
class _Ref:
    module: str
    attribute: str
    folder: str
    position: None = None


class WrappedSerde(Serde):
    """An object with `encode` and `decode` (or `serialize`, `deserialize`), which take a value or bytes.

    The object may also have `to_json` and `from_json`. Subclasses call `_wrap`.
    """

    def _wrap(self, made: Any, name: str) -> None:
        """Take an object; `name` stands in messages. Raises SerdeError where its methods are missing."""
        self._object, self._name = made, name
        for write, read in _PAIRS:
            if hasattr(made, write) and hasattr(made, read):
                self._write, self._read = getattr(made, write), getattr(made, read)
                return
        raise SerdeError(f"serde {name} needs the methods encode and decode")

    def encode(self, value: Any) -> bytes:
        try:
            data = self._write(value)
        except Exception as error:
            raise SerdeError(f"serde {self._name}: {type(error).__name__}: {error}") from error
        if not isinstance(data, bytes):
            raise SerdeError(f"serde {self._name} made {type(data).__name__}, not bytes")
        return check_size(data)

    def decode(self, data: bytes) -> Any:
        try:
            return self._read(data)
        except Exception as error:
            raise SerdeError(f"serde {self._name}: {type(error).__name__}: {error}") from error

    def same(self, one: Any, other: Any) -> bool:
        # The objects need not know when they are equal.
        return one is other or self.same_bytes(one, other)

    def to_json(self, value: Any) -> Any:
        own = getattr(self._object, "to_json", None)
        return own(value) if own is not None and value is not None else plain(value)

    def from_json(self, data: Any) -> Any:
        own = getattr(self._object, "from_json", None)
        return own(data) if own is not None and data is not None else unplain(data)


class CalledSerde(WrappedSerde):
    """An object of a module, or a class that is called without arguments."""

    def __init__(self, target: Any, folder: str):
        module, colon, attribute = str(target).partition(":")
        if not colon or not module or not attribute:
            raise SerdeError(f"the callable of a serde is written module:object, not {target!r}")
        self.spec = {"call": str(target)}
        self.folder = folder
        try:
            found = load_object(_Ref(module, attribute, folder))
            made = found() if isinstance(found, type) else found
        except SerdeError:
            raise
        except StreamkitError as error:
            raise SerdeError(f"serde {target}: {error}") from error
        except Exception as error:
            raise SerdeError(f"serde {target} can't be made: {type(error).__name__}: {error}") from error
        self._wrap(made, str(target))

    def __getstate__(self) -> Any:
        return self.spec["call"], self.folder

    def __setstate__(self, state: Any) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CalledSerde) and (self.spec, self.folder) == (other.spec, other.folder)

    __hash__ = Serde.__hash__
