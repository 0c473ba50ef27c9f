"""Serdes written in Python: `{call: module:object, with: {…}}`, and those of installed plugins."""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import cast

from streamkit import plugins
from streamkit.errors import SerdeError, StreamkitError
from streamkit.expressions.calls import Argument, load_callable, load_object
from streamkit.record import Value
from streamkit.serdes.plain import Json, plain, unplain
from streamkit.serdes.serde import Serde
from streamkit.serdes.size import check_size

_LOADED = ("_object", "_write", "_read", "_name")
"""The attributes of a serde that its object gives."""
_PAIRS = (("encode", "decode"), ("serialize", "deserialize"))


@dataclass(frozen=True)
class _Ref:
    module: str
    attribute: str
    folder: str
    arguments: tuple[Argument, ...] = ()
    position: None = None


class WrappedSerde(Serde):
    """An object with `encode` and `decode` (or `serialize`, `deserialize`), which take a value or bytes.

    The object may also have `to_json` and `from_json`. Subclasses call `_wrap`.
    """

    def _wrap(self, serde: object, name: str) -> None:
        """Use an object's methods; `name` is for messages. Raises SerdeError if a method is missing."""
        self._object, self._name = serde, name
        for write, read in _PAIRS:
            if hasattr(serde, write) and hasattr(serde, read):
                self._write, self._read = getattr(serde, write), getattr(serde, read)
                return
        raise SerdeError(f"serde {name} needs the methods encode and decode")

    def encode(self, value: Value) -> bytes:
        try:
            data = self._write(value)
        except Exception as error:
            raise SerdeError(f"serde {self._name}: {type(error).__name__}: {error}") from error
        if not isinstance(data, bytes):
            raise SerdeError(f"serde {self._name} made {type(data).__name__}, not bytes")
        return check_size(data)

    def decode(self, data: bytes) -> Value:
        try:
            return self._read(data)
        except Exception as error:
            raise SerdeError(f"serde {self._name}: {type(error).__name__}: {error}") from error

    def same(self, one: Value, other: Value) -> bool:
        # The objects need no `__eq__`.
        return one is other or self.same_bytes(one, other)

    def to_json(self, value: Value) -> Json:
        own = getattr(self._object, "to_json", None)
        return own(value) if own is not None and value is not None else plain(value)

    def from_json(self, data: Json) -> Value:
        own = getattr(self._object, "from_json", None)
        return own(data) if own is not None and data is not None else unplain(data)


class CalledSerde(WrappedSerde):
    """An object of a module, or the result of calling a class or a function with the arguments of `with`; a class needs no `with`."""

    def __init__(self, target: object, folder: str, arguments: Json):
        module, colon, attribute = str(target).partition(":")
        if not colon or not module or not attribute:
            raise SerdeError(f"the callable of a serde is written module:object, not {target!r}")
        if arguments is not None and not isinstance(arguments, dict):
            raise SerdeError(f"serde {target}: 'with' must be a mapping of arguments, not {arguments!r}")
        self.spec = {"call": str(target), **({"with": arguments} if arguments else {})}
        self._target, self._arguments = str(target), arguments
        self.folder = folder

    def load(self) -> None:
        """Import the object, which runs its module's code: at the first use, so that a check of the file runs none.

        Raises SerdeError.
        """
        target, arguments = self._target, self._arguments
        module, _, attribute = target.partition(":")
        bound = tuple(Argument(name, json.dumps(value)) for name, value in (arguments or {}).items())
        ref = _Ref(module, attribute, self.folder, bound)
        try:
            loaded = load_object(ref)
            serde = load_callable(ref)() if bound or isinstance(loaded, type) else loaded
        except SerdeError:
            raise
        except StreamkitError as error:
            raise SerdeError(f"serde {target}: {error}") from error
        except Exception as error:
            raise SerdeError(f"serde {target} can't be made: {type(error).__name__}: {error}") from error
        self._wrap(serde, target)

    def __getattr__(self, name: str) -> object:
        # Only for attributes that are missing, so that a loaded serde pays nothing for it.
        if name not in _LOADED:
            raise AttributeError(name)
        self.load()
        return self.__dict__[name]

    def __getstate__(self) -> tuple[str, str, Json]:
        return self._target, self.folder, self._arguments

    def __setstate__(self, state: tuple[str, str, Json]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, CalledSerde) and (self.spec, self.folder) == (other.spec, other.folder)

    __hash__ = Serde.__hash__


def make_call(spec: dict[str, Json], folder: str) -> Serde:
    """Return the serde of `{call: module:object, with: {…}}`. Raises SerdeError."""
    return CalledSerde(spec["call"], folder, spec.get("with"))


# Serdes of installed plugins: entry points `streamkit.serdes`.


class PluggedSerde(WrappedSerde):
    """The serde that a plugin makes of its argument in the file; None for the name alone.

    The entry point is a function or a class that takes the argument and returns an object with `encode` and `decode`.
    """

    def __init__(self, name: str, argument: Json = None):
        self.spec = name if argument is None else {name: argument}
        self._made_of = (name, argument)
        make = cast("Callable[[Json], object] | None", plugins.load(plugins.SERDES).get(name))  # code of others
        if make is None:
            raise SerdeError(f"no installed package has a serde {name!r}")
        try:
            serde = make(argument)
        except Exception as error:
            raise SerdeError(f"serde {name} can't be made: {type(error).__name__}: {error}") from error
        self._wrap(serde, name)

    def __getstate__(self) -> tuple[str, Json]:
        return self._made_of

    def __setstate__(self, state: tuple[str, Json]) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PluggedSerde) and self._made_of == other._made_of

    __hash__ = WrappedSerde.__hash__
