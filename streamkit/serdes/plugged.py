"""Serdes of installed plugins: entry points `streamkit.serdes`."""

from __future__ import annotations

from typing import Any

from streamkit import plugins
from streamkit.errors import SerdeError
from streamkit.serdes.called import WrappedSerde


class PluggedSerde(WrappedSerde):
    """The serde that a plugin makes of the argument that a file gives it; None for the name alone.

    The entry point is a function or a class that takes the argument and returns an object with `encode` and `decode`.
    """

    def __init__(self, name: str, argument: Any = None):
        self.spec = name if argument is None else {name: argument}
        self._made_of = (name, argument)
        make = plugins.load(plugins.SERDES).get(name)
        if make is None:
            raise SerdeError(f"no installed package has a serde {name!r}")
        try:
            made = make(argument)
        except Exception as error:
            raise SerdeError(f"serde {name} can't be made: {type(error).__name__}: {error}") from error
        self._wrap(made, name)

    def __getstate__(self) -> Any:
        return self._made_of

    def __setstate__(self, state: Any) -> None:
        self.__init__(*state)  # type: ignore[misc]

    def __eq__(self, other: object) -> bool:
        return isinstance(other, PluggedSerde) and self._made_of == other._made_of

    __hash__ = WrappedSerde.__hash__
